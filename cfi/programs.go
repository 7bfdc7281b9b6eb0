package cfi

import (
	"bytes"
	"hash/maphash"
	"math/bits"
	"slices"
)

// The programs of a table are its functions' instructions, executed: each that differs once.
type programs struct {
	executor
	all     []program
	made    int               // steps of all of them
	errs    map[uint32]*Error // what is wrong with some of them; Off counts from the start of the instructions
	slots   []programSlot     // a hash table; its size is a power of two
	touched uint32            // what execute read ahead, so that it is read
}

// A program is what functions with the same instructions execute.
type program struct {
	steps       []Step
	cie         *cie
	code, limit uint32 // the instructions of the first function that has it
}

// A programSlot is a number by the hash of what it stands for.
type programSlot struct {
	hash   uint32
	number uint32 // plus 1; 0 for none
}

func newPrograms() *programs {
	return &programs{executor: newExecutor(), errs: make(map[uint32]*Error)}
}

// prepare makes room for the programs of n functions more.
func (p *programs) prepare(n int) {
	p.executor.prepare(n)
	p.all = slices.Grow(p.all, n/2)
	p.grow(len(p.all) + n/2)
}

// batch is of how many functions execute looks up the programs at once.
const batch = 16

// execute gives functions, of one section and at most batch, the numbers of their programs; see
// Function.Program.
func (p *programs) execute(fns []Function) {
	for len(p.all)+len(fns) > len(p.slots)/4*3 {
		p.grow(len(p.slots))
	}
	// The tables are larger than the processor's caches. It waits for all places in them together here,
	// and not for one after the other.
	var hashes [batch]uint32
	var touched uint32
	for i := range fns {
		fn := &fns[i]
		h := uint32(maphash.Bytes(p.seed, fn.instructions())) ^ fn.cie.number*0x9e3779b1 // the same code is another of another CIE
		hashes[i] = h
		touched |= p.slots[h&uint32(len(p.slots)-1)].number
	}
	p.touched = touched
	for i := range fns {
		fn, h := &fns[i], hashes[i]
		s := p.slot(h, fn.cie, fn.instructions())
		if s.number > 0 {
			fn.program = s.number - 1
			continue
		}
		fn.program = uint32(len(p.all))
		steps, err := p.run(fn)
		if err != nil {
			p.errs[fn.program] = err
		}
		p.made += len(steps)
		p.all = append(p.all, program{steps, fn.cie, fn.code, fn.limit})
		if !p.fixed { // with addresses in it, it is that of no other function
			*s = programSlot{h, uint32(len(p.all))}
		}
	}
}

// work is a measure of how long it takes to do anything with all of them.
func (p *programs) work() uint64 {
	var sum int
	for i := range p.all {
		sum += (&Function{code: p.all[i].code, limit: p.all[i].limit}).work()
	}
	return uint64(sum)
}

// done drops what only execute needs.
func (p *programs) done() {
	p.slots, p.changes, p.classes, p.steps, p.stack = nil, nil, nil, nil, nil
}

// of returns the steps of a function's program.
func (p *programs) of(fn *Function) []Step { return p.all[fn.number()].steps }

// instructions returns the instructions, with the padding after them.
func (fn *Function) instructions() []byte { return fn.cie.sec.data[fn.code:fn.limit] }

// slot returns where instructions of a CIE are, or belong. Without a CIE that is a free slot.
func (p *programs) slot(h uint32, d *cie, code []byte) *programSlot {
	mask := uint32(len(p.slots) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		s := &p.slots[i]
		if s.number == 0 {
			return s
		}
		if s.hash == h && d != nil {
			if k := &p.all[s.number-1]; k.cie == d && bytes.Equal(d.sec.data[k.code:k.limit], code) {
				return s
			}
		}
	}
}

// grow makes the hash table larger than n slots.
func (p *programs) grow(n int) {
	old, size := p.slots, 1<<bits.Len(uint(n))
	if size <= len(old) {
		return
	}
	p.slots = make([]programSlot, size)
	clear(p.slots) // pages that are read before they are written are mapped twice
	for _, s := range old {
		if s.number > 0 {
			*p.slot(s.hash, nil, nil) = s
		}
	}
}

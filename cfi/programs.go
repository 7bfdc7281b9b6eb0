package cfi

import (
	"bytes"
	"hash/maphash"
	"math/bits"
)

// The programs of a table are its functions' instructions, executed: each that differs once.
type programs struct {
	executor
	all   []program
	fns   []Function    // that are numbered
	first []uint32      // of each program: the index in fns of the first function that has it
	slots []programSlot // a hash table; its size is a power of two
}

// A programSlot is a number by the hash of what it stands for.
type programSlot struct {
	hash   uint32
	number uint32 // plus 1; 0 for none
}

func newPrograms() *programs { return &programs{executor: newExecutor()} }

// run gives each function the number of its program; see Function.Program.
func (p *programs) run(fns []Function) {
	p.fns, p.all, p.first = fns, make([]program, 0, len(fns)/2), make([]uint32, 0, len(fns)/2)
	p.grow(len(fns))
	p.prepare(len(fns))
	for i := range fns {
		fn := &fns[i]
		if 2*len(p.all) >= len(p.slots) {
			p.grow(len(p.slots) + 1)
		}
		code := fn.instructions()
		h := uint32(maphash.Bytes(p.seed, code)) ^ fn.cie.number*0x9e3779b1 // the same code is another of another CIE
		s := p.slot(h, fn)
		if s.number > 0 {
			fn.program = s.number - 1
			continue
		}
		fn.program = uint32(len(p.all))
		p.all, p.first = append(p.all, p.executor.run(fn)), append(p.first, uint32(i))
		if !p.fixed { // with addresses in it, it is that of no other function
			*s = programSlot{h, uint32(len(p.all))}
		}
	}
	p.slots, p.first, p.fns = nil, nil, nil
	p.changes, p.classes, p.made, p.stack = nil, nil, nil, nil
}

// of returns the steps of a function's program.
func (p *programs) of(fn *Function) []Step { return p.all[fn.program].steps }

// instructions returns the instructions, with the padding after them.
func (fn *Function) instructions() []byte { return fn.cie.sec.data[fn.code:fn.limit] }

// slot returns where the instructions of fn are, or belong. Without fn that is a free slot.
func (p *programs) slot(h uint32, fn *Function) *programSlot {
	mask := uint32(len(p.slots) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		s := &p.slots[i]
		if s.number == 0 {
			return s
		}
		if s.hash == h && fn != nil {
			if k := &p.fns[p.first[s.number-1]]; k.cie == fn.cie && bytes.Equal(k.instructions(), fn.instructions()) {
				return s
			}
		}
	}
}

// grow makes the hash table larger: n slots or more.
func (p *programs) grow(n int) {
	old := p.slots
	p.slots = make([]programSlot, 1<<max(6, bits.Len(uint(n-1))))
	clear(p.slots) // pages that are read before they are written are mapped twice
	for _, s := range old {
		if s.number > 0 {
			*p.slot(s.hash, nil) = s
		}
	}
}

package cfi

import (
	"bytes"
	"hash/maphash"
)

// programs holds the results of executing the distinct instruction sequences of a table.
type programs struct {
	all   []program
	errs  map[uint32]*Error // errors by program; Off is relative to the start of the instructions
	rules []Rules           // by number
}

// A program is the result of executing instructions that functions share.
type program struct {
	steps       []Step
	cie         *cie
	code, limit uint32 // instructions of the first function with this program
}

func newExecutor() *executor {
	return &executor{
		programs:  &programs{errs: make(map[uint32]*Error)},
		seed:      maphash.MakeSeed(),
		numbering: newNumbering(),
	}
}

// maxChunk is the maximum number of steps allocated at once.
const maxChunk = 1 << 13

// batch is the number of functions that addPrograms looks up together.
const batch = 16

// addPrograms assigns program numbers to up to batch functions; see Function.Program.
func (x *executor) addPrograms(fns []Function) {
	for 4*(len(x.all)+len(fns)) > 3*len(x.slots) {
		x.grow(2 * len(x.slots))
	}
	// The hash table is larger than the processor's caches. Reading all slots first overlaps the cache misses, which
	// saves 4 of 30 ms (libLLVM-14, 2026-11-23).
	var hashes [batch]uint32
	for i := range fns {
		// The same instructions with a different CIE are a different program.
		hashes[i] = uint32(maphash.Bytes(x.seed, fns[i].instructions())) ^ fns[i].cie.number*0x9e3779b1
		x.touched |= x.slots[hashes[i]&uint32(len(x.slots)-1)].number
	}
	for i := range fns {
		s := x.slot(hashes[i], &fns[i])
		if s.number > 0 {
			fns[i].program = s.number - 1
			continue
		}
		x.addProgram(&fns[i])
		if !x.fixed { // with set_loc, the program cannot be shared
			*s = slot{hashes[i], uint32(len(x.all))}
		}
	}
}

// addProgram executes the instructions of a function.
func (x *executor) addProgram(fn *Function) {
	fn.program = uint32(len(x.all))
	steps, err := x.run(fn)
	if err != nil {
		x.errs[fn.program] = err
	}
	x.all = append(x.all, program{x.copySteps(steps), fn.cie, fn.code, fn.limit})
}

// A slot is an entry of the hash table of programs.
type slot struct {
	hash   uint32
	number uint32 // program number plus 1; 0: empty
}

// slot returns the slot of the function's program, or an empty slot for it. If fn is nil, it returns an empty slot.
func (x *executor) slot(hash uint32, fn *Function) *slot {
	for i := hash; ; i++ {
		s := &x.slots[i&uint32(len(x.slots)-1)]
		if s.number == 0 || fn != nil && s.hash == hash && x.all[s.number-1].matches(fn) {
			return s
		}
	}
}

// matches reports whether the function has this program.
func (p *program) matches(fn *Function) bool {
	return p.cie == fn.cie && bytes.Equal(fn.cie.sec.data[p.code:p.limit], fn.instructions())
}

// grow resizes the hash table to n slots, a power of two.
func (x *executor) grow(n int) {
	old := x.slots
	x.slots = make([]slot, n)
	for _, s := range old {
		if s.number > 0 {
			*x.slot(s.hash, nil) = s
		}
	}
}

// copySteps returns a copy of steps in memory that is allocated in chunks.
func (x *executor) copySteps(steps []Step) []Step {
	if cap(x.chunk)-len(x.chunk) < len(steps) {
		x.chunk = make([]Step, 0, max(len(steps), min(2*cap(x.chunk), maxChunk), 16))
	}
	n := len(x.chunk)
	x.chunk = append(x.chunk, steps...)
	return x.chunk[n:len(x.chunk):len(x.chunk)]
}

// work estimates the time for a pass over all programs.
func (p *programs) work() uint64 {
	var sum int
	for i := range p.all {
		sum += (&Function{code: p.all[i].code, limit: p.all[i].limit}).work()
	}
	return uint64(sum)
}

// stepsOf returns the steps of a function's program, or none if the function is disputed.
func (p *programs) stepsOf(fn *Function) []Step {
	if fn.Disputed() {
		return nil
	}
	return p.all[fn.number()].steps
}

// instructions returns the FDE's instructions, including padding.
func (fn *Function) instructions() []byte { return fn.cie.sec.data[fn.code:fn.limit] }

package cfi

import (
	"bytes"
	"hash/maphash"
	"math/bits"
)

// noProgram is what Function.number is for functions that were cut.
const noProgram = ^uint32(0)

// programs numbers the functions of a table by what they execute.
type programs struct {
	fns   []Function
	known []uint32      // by number: the index in fns of the first function that has it
	slots []programSlot // a hash table; its size is a power of two
	seed  maphash.Seed
}

// A programSlot is a number by the hash of what it stands for.
type programSlot struct {
	hash   uint32
	number uint32 // plus 1; 0 for none
}

// number gives each function the number of its instructions; see Function.Program.
func (t *Table) number() {
	p := programs{fns: t.Functions, known: make([]uint32, 0, len(t.Functions)/2), seed: maphash.MakeSeed()}
	p.grow(len(t.Functions))
	for i := range p.fns {
		fn := &p.fns[i]
		if fn.End-fn.Begin != fn.size {
			fn.number = noProgram
			continue
		}
		if 2*len(p.known) >= len(p.slots) {
			p.grow(len(p.slots) + 1)
		}
		code := fn.code()
		h := uint32(maphash.Bytes(p.seed, code)) ^ fn.cie.number*0x9e3779b1 // the same code is another of another CIE
		s := p.slot(h, fn)
		if s.number == 0 {
			p.known = append(p.known, uint32(i))
			*s = programSlot{h, uint32(len(p.known))}
		}
		fn.number = s.number - 1
	}
	t.Programs = len(p.known)
}

// code returns the instructions, with the padding behind them.
func (fn *Function) code() []byte { return fn.cie.sec.data[fn.program:fn.limit] }

// slot returns where the instructions of fn are, or belong. Without fn that is a free slot.
func (p *programs) slot(h uint32, fn *Function) *programSlot {
	mask := uint32(len(p.slots) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		s := &p.slots[i]
		if s.number == 0 {
			return s
		}
		if s.hash == h && fn != nil {
			if k := &p.fns[p.known[s.number-1]]; k.cie == fn.cie && bytes.Equal(k.code(), fn.code()) {
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

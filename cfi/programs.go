package cfi

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// Programs tells which functions of a table have the same rows, but for where they begin:
// those whose FDEs have the same CIE and the same instructions. In large programs these are
// most of the functions.
type Programs struct {
	fns   []Function
	known []program     // by number
	slots []programSlot // a hash table; its size is a power of two
}

// A program is the instructions of a function.
type program struct {
	cie        *cie
	begin, end uint32 // offsets in its section
}

func (p *program) code() []byte { return p.cie.sec.data[p.begin:p.end] }

// A programSlot is a number by the hash of what it stands for.
type programSlot struct {
	hash   uint32
	number uint32 // plus 1; 0 for none
}

// NewPrograms returns a Programs for the functions of a table.
func NewPrograms(t *Table) *Programs {
	n := min(len(t.Functions), maxReserved)
	return &Programs{
		fns:   t.Functions,
		known: make([]program, 0, n/2),
		slots: make([]programSlot, 1<<max(6, bits.Len(uint(n)))),
	}
}

// Number returns a number for the instructions of the i-th function, counted from 0, and
// whether they were seen before. It is -1 for a function that was cut because it overlaps
// another one.
//
// A function whose number was seen before has the rows that Rows.MinSize is about, unless they
// depend on the pc: expressions can do that.
func (p *Programs) Number(i int) (n int, seen bool) {
	fn := &p.fns[i]
	if fn.Begin != fn.start || fn.End-fn.Begin != fn.size {
		return -1, false
	}
	if 2*len(p.known) >= len(p.slots) {
		p.grow()
	}
	k := program{fn.cie, fn.program, fn.limit}
	h := hashCode(k.code())
	s := p.slot(h, &k)
	if s.number > 0 {
		return int(s.number - 1), true
	}
	p.known = append(p.known, k)
	*s = programSlot{h, uint32(len(p.known))}
	return len(p.known) - 1, false
}

// slot returns where a program is, or belongs. Without one that is a free slot.
func (p *Programs) slot(h uint32, of *program) *programSlot {
	mask := uint32(len(p.slots) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		s := &p.slots[i]
		if s.number == 0 {
			return s
		}
		if s.hash == h && of != nil {
			if k := &p.known[s.number-1]; k.cie == of.cie && bytes.Equal(k.code(), of.code()) {
				return s
			}
		}
	}
}

func (p *Programs) grow() {
	old := p.slots
	p.slots = make([]programSlot, 2*len(old))
	for _, s := range old {
		if s.number > 0 {
			*p.slot(s.hash, nil) = s
		}
	}
}

// hashCode returns a hash of b. What it is does not matter to any result.
func hashCode(b []byte) uint32 {
	h := uint64(len(b))
	for ; len(b) >= 8; b = b[8:] {
		h = mix(h ^ binary.LittleEndian.Uint64(b))
	}
	var last uint64
	for _, c := range b {
		last = last<<8 | uint64(c)
	}
	return uint32(mix(h ^ last))
}

func mix(v uint64) uint64 {
	hi, lo := bits.Mul64(v, 0x9e3779b97f4a7c15)
	return hi ^ lo
}

package walker

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"cfi2sframe/sframe"
)

// unsortedCopy returns the section with its FDEs in a random order and without the flag for sorted FDEs.
func (s *section) unsortedCopy(t *testing.T, rnd *rand.Rand) *section {
	t.Helper()
	sec, err := sframe.Decode(s.data, s.addr)
	if err != nil {
		t.Fatalf("%s: %v", s.name, err)
	}
	const flagsAt = 3 // offset of the flags, the same in every version
	data := bytes.Clone(s.data)
	data[flagsAt] &^= byte(sframe.FDESorted)
	l, order := sec.Codec().Layout(), sec.ABI.Order()
	first := l.HeaderSize + int(sec.AuxLen) + int(sec.FDEOff)
	for to, from := range rnd.Perm(sec.Len()) {
		a, b := data[first+to*l.FDESize:][:l.FDESize], s.data[first+from*l.FDESize:]
		copy(a, b)
		moved := (from - to) * l.FDESize
		switch {
		case sec.Flags&sframe.FDEFuncStartPCRel == 0:
		case l.StartSize == 8:
			order.PutUint64(a, order.Uint64(b)+uint64(moved))
		default:
			order.PutUint32(a, order.Uint32(b)+uint32(moved))
		}
	}
	return &section{s.name + ", not sorted", data, s.addr}
}

// damagedCopy returns the section with some bytes changed, mostly in headers and FDEs.
func (s *section) damagedCopy(rnd *rand.Rand) *section {
	data := bytes.Clone(s.data)
	for range 1 + rnd.IntN(3) {
		i := rnd.IntN(len(data))
		if rnd.IntN(3) == 0 {
			i = rnd.IntN(min(len(data), 64))
		}
		data[i] ^= byte(1 + rnd.IntN(255))
	}
	if rnd.IntN(8) == 0 {
		data = data[:rnd.IntN(len(data)+1)]
	}
	return &section{s.name + ", damaged", data, s.addr}
}

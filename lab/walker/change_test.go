package walker

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"cfi2sframe/sframe"
)

// Offsets in a header of every version.
const (
	flagsAt   = 3
	fixedFPAt = 5
	fixedRAAt = 6
)

func (s *section) decoded(t *testing.T) *sframe.Section {
	t.Helper()
	sec, err := sframe.Decode(s.data, s.addr)
	if err != nil {
		t.Fatalf("%s: %v", s.name, err)
	}
	return sec
}

// unsorted returns a section with the same FDEs in another order, and says so.
func (s *section) unsorted(t *testing.T, rnd *rand.Rand) *section {
	sec := s.decoded(t)
	data := bytes.Clone(s.data)
	data[flagsAt] &^= byte(sframe.FDESorted)
	for to, from := range rnd.Perm(sec.Len()) {
		s.copyFDE(data, sec, to, from, sec.Codec().Layout().FDESize)
	}
	return &section{s.name + ", not sorted", data, s.addr}
}

// copyFDE copies so many bytes of an FDE to another place in data. The start address stays the same.
func (s *section) copyFDE(data []byte, sec *sframe.Section, to, from, n int) {
	l, order := sec.Codec().Layout(), sec.ABI.Order()
	a, b := fdeAt(sec, to), fdeAt(sec, from)
	copy(data[a:a+n], s.data[b:])
	if sec.Flags&sframe.FDEFuncStartPCRel == 0 {
		return
	}
	if moved := b - a; l.StartSize == 8 {
		order.PutUint64(data[a:], order.Uint64(s.data[b:])+uint64(moved))
	} else {
		order.PutUint32(data[a:], order.Uint32(s.data[b:])+uint32(moved))
	}
}

// fdeAt returns where the i-th FDE is in the section.
func fdeAt(sec *sframe.Section, i int) int {
	l := sec.Codec().Layout()
	return l.HeaderSize + int(sec.AuxLen) + int(sec.FDEOff) + i*l.FDESize
}

// emptied returns the section with functions of no bytes behind some others, at the same address.
func (s *section) emptied(t *testing.T, rnd *rand.Rand) *section {
	sec := s.decoded(t)
	data, size := bytes.Clone(s.data), sec.Codec().Layout().StartSize
	for i := rnd.IntN(3); i < sec.Len(); {
		with := i // code
		for n := 1 + rnd.IntN(3); n > 0 && i+1 < sec.Len(); n-- {
			i++
			s.copyFDE(data, sec, i, with, size)
			clear(data[fdeAt(sec, i)+size:][:4])
		}
		i += 1 + rnd.IntN(3)
	}
	return &section{s.name + ", some of no bytes", data, s.addr}
}

// fixed returns the section with other fixed offsets in its header.
func (s *section) fixed() *section {
	data := bytes.Clone(s.data)
	if data[fixedRAAt] != 0 {
		data[fixedRAAt] -= 8
	}
	data[fixedFPAt] = 0xf0
	return &section{s.name + ", other fixed offsets", data, s.addr}
}

// damaged returns the section with some bytes changed, most of them where they say much.
func (s *section) damaged(rnd *rand.Rand) *section {
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

// Package generate makes CFI, and ELF files that contain it, from a few bytes that encode choices. The results are
// well-formed, and the package also returns the rules for every pc, computed in the simplest way. The bytes come from a
// seed or a fuzzer, which therefore varies structures and not their encoding.
package generate

import "math/rand/v2"

// A Source makes choices from bytes. When the bytes are used up, it always chooses the first alternative.
type Source struct{ b []byte }

// From returns a Source with the given bytes.
func From(b []byte) *Source { return &Source{b} }

// Seeded returns n reproducible bytes for a Source.
func Seeded(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, seed))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// Left returns the number of unused bytes.
func (s *Source) Left() int { return len(s.b) }

// N chooses a number below n, using one or two bytes.
func (s *Source) N(n int) int {
	v := s.byte()
	if n > 256 {
		v = v<<8 | s.byte()
	}
	return v % n
}

func (s *Source) byte() int {
	if len(s.b) == 0 {
		return 0
	}
	v := s.b[0]
	s.b = s.b[1:]
	return int(v)
}

// Rarely chooses a number below n, and returns true for only one of them. If the bytes are used up, it returns false.
func (s *Source) Rarely(n int) bool { return s.N(n) == n-1 }

// Bytes returns n bytes.
func (s *Source) Bytes(n int) []byte {
	b := make([]byte, n)
	s.b = s.b[copy(b, s.b):]
	return b
}

// choose returns one of several values.
func choose[T any](s *Source, values ...T) T { return values[s.N(len(values))] }

// Package choice makes choices from a few bytes, which come from a seed or a fuzzer. A fuzzer therefore varies the
// structure of inputs and not their encoding.
package choice

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

func (s *Source) byte() int { return int(s.Bytes(1)[0]) }

// Rarely chooses a number below n, and returns true for only one of them. If the bytes are used up, it returns false.
func (s *Source) Rarely(n int) bool { return s.N(n) == n-1 }

// Bytes returns n bytes.
func (s *Source) Bytes(n int) []byte {
	b := make([]byte, n)
	s.b = s.b[copy(b, s.b):]
	return b
}

// Of returns one of several values.
func Of[T any](s *Source, values ...T) T { return values[s.N(len(values))] }

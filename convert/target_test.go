package convert

import (
	"bytes"
	"io"
	"math/rand/v2"
	"testing"
)

// TestMemory writes at arbitrary places, truncates, and compares with what is in a slice then.
func TestMemory(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	const limit = 5 << 16
	for range 200 {
		m, want := &memory{}, []byte{}
		for range 20 {
			off, n := r.IntN(limit), r.IntN(2<<16)
			switch r.IntN(8) {
			case 0:
				if err := m.Truncate(int64(off)); err != nil {
					t.Fatal(err)
				}
				want = append(want[:min(off, len(want))], make([]byte, max(0, off-len(want)))...)
			case 1: // aligned
				off, n = off>>16<<16, 1<<16
				fallthrough
			default:
				b := bytes.Repeat([]byte{byte(1 + r.IntN(255))}, n)
				if got, err := m.WriteAt(b, int64(off)); got != n || err != nil {
					t.Fatal(got, err)
				}
				if n > 0 {
					want = append(want, make([]byte, max(0, off+n-len(want)))...)
					copy(want[off:], b)
				}
			}
		}
		size, err := sizeOf(m)
		if err != nil || size != int64(len(want)) {
			t.Fatalf("%d bytes, %d were expected: %v", size, len(want), err)
		}
		got, err := io.ReadAll(io.NewSectionReader(m, 0, size+1))
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("what was written is not there: %v", err)
		}
		off, n := r.IntN(limit), r.IntN(2<<16)
		b := make([]byte, n)
		k, err := m.ReadAt(b, int64(off))
		if there := max(0, min(n, len(want)-off)); k != there || there > 0 && !bytes.Equal(b[:k], want[off:][:k]) || (err == io.EOF) != (k < n) {
			t.Fatalf("%d of %d bytes at %d: %v", k, n, off, err)
		}
	}
}

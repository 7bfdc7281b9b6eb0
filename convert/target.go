package convert

import (
	"fmt"
	"io"
	"math"
	"os"
	"slices"

	"cfi2sframe/internal/filecopy"
)

// A target is what a result is written to, and read back from to be checked: an *os.File or a
// *memory.
type target interface {
	filecopy.Target
	io.ReaderAt
}

// sizeOf returns how many bytes are in a target.
func sizeOf(t target) (int64, error) {
	if m, ok := t.(*memory); ok {
		return int64(len(m.b)), nil
	}
	info, err := t.(*os.File).Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// A memory is a file in memory.
type memory struct{ b []byte }

func (m *memory) ReadAt(b []byte, off int64) (int, error) {
	if off >= int64(len(m.b)) {
		return 0, io.EOF
	}
	n := copy(b, m.b[off:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (m *memory) WriteAt(b []byte, off int64) (int, error) {
	if off > math.MaxInt-int64(len(b)) {
		return 0, fmt.Errorf("offset %#x is too large", off)
	}
	if end := int(off) + len(b); end > len(m.b) {
		if err := m.Truncate(int64(end)); err != nil {
			return 0, err
		}
	}
	return copy(m.b[off:], b), nil
}

func (m *memory) Truncate(size int64) error {
	n := int(size)
	if n > len(m.b) {
		m.b = slices.Grow(m.b, n-len(m.b))
		clear(m.b[len(m.b):n]) // it may have been longer before
	}
	m.b = m.b[:n]
	return nil
}

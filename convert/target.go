package convert

import (
	"fmt"
	"io"
	"math"
	"os"

	"cfi2sframe/internal/filecopy"
)

// A Target receives a result, which is read back to be checked. It is an *os.File, or memory.
type Target interface {
	filecopy.Target
	io.ReaderAt
}

// sizeOf returns the size of a target in bytes.
func sizeOf(t Target) (int64, error) {
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
	n := copy(b, m.b[min(off, int64(len(m.b))):])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (m *memory) WriteAt(b []byte, off int64) (int, error) {
	if off > math.MaxInt64-int64(len(b)) {
		return 0, fmt.Errorf("offset %#x is too large", off)
	}
	if end := off + int64(len(b)); len(b) > 0 && end > int64(len(m.b)) {
		m.grow(end)
	}
	return copy(m.b[min(off, int64(len(m.b))):], b), nil
}

func (m *memory) Truncate(size int64) error {
	if size > int64(len(m.b)) {
		m.grow(size)
	}
	m.b = m.b[:size]
	return nil
}

// grow makes the file longer, by zeros.
func (m *memory) grow(size int64) {
	m.b = append(m.b, make([]byte, size-int64(len(m.b)))...)
}

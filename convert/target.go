package convert

import (
	"fmt"
	"io"
	"math"
	"os"

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
		return m.size, nil
	}
	info, err := t.(*os.File).Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// A memory is a file in memory. It is in parts, which do not move when it grows.
type memory struct {
	parts []*[part]byte
	size  int64
}

// part is the size in bytes of the parts of a memory.
const part = 64 << 10

func (m *memory) ReadAt(b []byte, off int64) (int, error) {
	n := 0
	for n < len(b) && off+int64(n) < m.size {
		n += copy(b[n:], m.at(off+int64(n)))
	}
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// at returns the bytes from an offset on, as far as they are in one part.
func (m *memory) at(off int64) []byte {
	i := off / part
	return m.parts[i][off-i*part : min(m.size-i*part, part)]
}

func (m *memory) WriteAt(b []byte, off int64) (int, error) {
	if off > math.MaxInt64-int64(len(b)) {
		return 0, fmt.Errorf("offset %#x is too large", off)
	}
	if end := off + int64(len(b)); len(b) > 0 && end > m.size {
		m.grow(end)
	}
	for n := 0; n < len(b); {
		n += copy(m.at(off+int64(n)), b[n:])
	}
	return len(b), nil
}

// grow makes the file longer, by zeros.
func (m *memory) grow(size int64) {
	for int64(len(m.parts))*part < size {
		m.parts = append(m.parts, new([part]byte))
	}
	m.size = size
}

func (m *memory) Truncate(size int64) error {
	if size >= m.size {
		m.grow(size)
		return nil
	}
	last := (size + part - 1) / part // parts that are left
	if in := size % part; in > 0 {
		clear(m.parts[last-1][in:])
	}
	m.parts, m.size = m.parts[:last], size
	return nil
}

// WriteTo writes all of it to w.
func (m *memory) WriteTo(w io.Writer) (int64, error) {
	var done int64
	for done < m.size {
		n, err := w.Write(m.at(done))
		done += int64(n)
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

package filecopy

import (
	"fmt"
	"io"
)

// A sized is a file whose size is known.
type sized struct {
	io.ReaderAt
	size int64
}

// Sized returns a reader of a file of the given size. That r ends before is another error than io.EOF.
func Sized(r io.ReaderAt, size int64) io.ReaderAt {
	if s, ok := r.(*sized); ok && s.size == size {
		return s
	}
	return &sized{r, size}
}

func (s *sized) ReadAt(b []byte, off int64) (int, error) {
	n, err := s.ReaderAt.ReadAt(b, off)
	if end := off + int64(n); n < len(b) && end < s.size && (err == nil || err == io.EOF) {
		err = fmt.Errorf("the file ends early: at offset %#x, and not %#x", end, s.size)
	}
	return n, err
}

// unsized returns what a reader reads, if that is a Sized one.
func unsized(r io.ReaderAt) io.ReaderAt {
	if s, ok := r.(*sized); ok {
		return s.ReaderAt
	}
	return r
}

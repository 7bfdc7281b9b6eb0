package outfile

import (
	"bytes"
	"io"
	"os"
)

// A Spool has the contents of a file that came as a stream: small ones in memory, others in a file without a name.
type Spool struct {
	io.ReaderAt
	size int64
	file *os.File // or nil
}

// smallSpool is the size up to which contents are in memory, in bytes.
const smallSpool = 1 << 20

// NewSpool reads size bytes. Zeros take no space on the disk, because a small package can have many.
func NewSpool(r io.Reader, size int64) (*Spool, error) {
	b := make([]byte, max(min(size, smallSpool), 0))
	if err := readFull(r, b); err != nil {
		return nil, err
	}
	if size <= smallSpool {
		return &Spool{bytes.NewReader(b), size, nil}, nil
	}
	f, err := Scratch()
	if err != nil {
		return nil, err
	}
	s := &Spool{f, size, f}
	if err := s.fill(r, b); err != nil {
		f.Close()
		return nil, err
	}
	return s, nil
}

// fill writes b, and then what r has, to the file.
func (s *Spool) fill(r io.Reader, b []byte) error {
	for at := int64(0); ; {
		if !zero(b) {
			if _, err := s.file.WriteAt(b, at); err != nil {
				return cannotWrite(os.TempDir(), err)
			}
		}
		at += int64(len(b))
		b = b[:min(s.size-at, smallSpool)]
		if len(b) == 0 {
			break
		}
		if err := readFull(r, b); err != nil {
			return err
		}
	}
	return Plain(s.file.Truncate(s.size))
}

// readFull fills b. An end before is an error.
func readFull(r io.Reader, b []byte) error {
	_, err := io.ReadFull(r, b)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// zero reports whether all bytes are zero.
func zero(b []byte) bool {
	return len(b) == 0 || b[0] == 0 && bytes.Equal(b[1:], b[:len(b)-1])
}

// Size returns how many bytes there are.
func (s *Spool) Size() int64 { return s.size }

// Reader returns a reader of all bytes. A nil Spool has none.
func (s *Spool) Reader() io.Reader {
	if s == nil {
		return bytes.NewReader(nil)
	}
	return io.NewSectionReader(s, 0, s.size)
}

// Close frees the bytes. The Spool may be nil.
func (s *Spool) Close() {
	if s != nil && s.file != nil {
		s.file.Close()
	}
}

// Equal reports whether two streams of the same size have the same bytes.
func Equal(a, b io.Reader) (bool, error) {
	x, y := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		n, end := io.ReadFull(a, x)
		if _, err := io.ReadFull(b, y[:n]); err != nil && err != io.EOF {
			return false, err
		}
		switch {
		case !bytes.Equal(x[:n], y[:n]):
			return false, nil
		case end == io.EOF || end == io.ErrUnexpectedEOF:
			return true, nil
		case end != nil:
			return false, end
		}
	}
}

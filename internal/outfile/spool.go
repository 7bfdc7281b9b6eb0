package outfile

import (
	"bytes"
	"fmt"
	"io"
	"os"
)

// A Spool has the contents of a file that came as a stream: in memory if they are small, and otherwise in a file without a name.
type Spool struct {
	io.ReaderAt
	size int64
	file *os.File // or nil
}

// smallSpool is the size up to which contents are in memory, in bytes.
const smallSpool = 1 << 20

// NewSpool reads so many bytes. Zeros take no room, as large files of them are easily made.
func NewSpool(r io.Reader, size int64) (*Spool, error) {
	b := make([]byte, min(max(size, 0), smallSpool))
	n, err := io.ReadFull(r, b)
	if int64(n) == size {
		return &Spool{bytes.NewReader(b), size, nil}, nil
	}
	if err != nil {
		return nil, early(err)
	}
	f, err := Scratch()
	if err != nil {
		return nil, err
	}
	at := int64(0)
	for err == nil {
		if !zero(b) {
			if _, err = f.WriteAt(b, at); err != nil {
				break
			}
		}
		if at += int64(len(b)); at == size {
			err = f.Truncate(size)
			break
		}
		b = b[:min(size-at, smallSpool)]
		if _, failed := io.ReadFull(r, b); failed != nil {
			f.Close()
			return nil, early(failed)
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("cannot write to %s: %w", os.TempDir(), Plain(err))
	}
	return &Spool{f, size, f}, nil
}

// SpoolOf returns what a file without a name has. It is closed with the file.
func SpoolOf(f *os.File) (*Spool, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return &Spool{f, info.Size(), nil}, nil
}

// early returns the error of a stream that ends before the size that was announced.
func early(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// zero reports whether all bytes are zero.
func zero(b []byte) bool {
	return len(b) == 0 || b[0] == 0 && bytes.Equal(b[1:], b[:len(b)-1])
}

// Size returns how many bytes there are.
func (s *Spool) Size() int64 { return s.size }

// Reader returns a reader of all of them, of none if there is no Spool.
func (s *Spool) Reader() io.Reader {
	if s == nil {
		return bytes.NewReader(nil)
	}
	return io.NewSectionReader(s, 0, s.size)
}

// Equal reports whether two streams of the same size have the same bytes.
func Equal(a, b io.Reader) (bool, error) {
	x, y := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		n, err := io.ReadFull(a, x)
		if _, err := io.ReadFull(b, y[:n]); err != nil && err != io.EOF {
			return false, err
		}
		switch {
		case !bytes.Equal(x[:n], y[:n]):
			return false, nil
		case err == io.EOF || err == io.ErrUnexpectedEOF:
			return true, nil
		case err != nil:
			return false, err
		}
	}
}

// Close gives them up. There may be no Spool.
func (s *Spool) Close() {
	if s != nil && s.file != nil {
		s.file.Close()
	}
}

package pack

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// MaxMember is how large a member may be to be read into memory.
const MaxMember = 2 << 30

// ErrSize is behind the error of a member that is larger.
var ErrSize = errors.New("too large to be read from a package")

// chunkSize is a multiple of a page.
const chunkSize = 1 << 18

// Contents are those of a member, in memory. They are in chunks, so that as much is taken as has come, whatever
// size was announced, and nothing is copied. A chunk of zeros takes none: of those are holes, and what bombs unpack to.
type Contents struct {
	chunks [][]byte
	size   int64
}

// A readError is an error of the package while the visitor reads.
type readError struct{ err error }

func (e *readError) Error() string { return e.err.Error() }
func (e *readError) Unwrap() error { return e.err }

// Load reads the member. The visitor has to return its error, unless that is ErrSize.
func (m *Member) Load() (*Contents, error) {
	if m.Size > MaxMember {
		return nil, fmt.Errorf("%w: %d bytes; at most %d were expected", ErrSize, m.Size, int64(MaxMember))
	}
	c := &Contents{size: m.Size}
	from := io.MultiReader(bytes.NewReader(m.Head), m.rest)
	spare := []byte(nil)
	for left := m.Size; left > 0; left -= min(left, chunkSize) {
		if spare == nil {
			spare = make([]byte, min(left, chunkSize))
		}
		chunk := spare[:min(left, chunkSize)]
		if _, err := io.ReadFull(from, chunk); err != nil {
			return nil, &readError{early(err)}
		}
		if zero(chunk) {
			chunk = nil
		} else {
			spare = nil
		}
		c.chunks = append(c.chunks, chunk)
	}
	return c, nil
}

var zeros [4096]byte

func zero(b []byte) bool {
	for len(b) > len(zeros) {
		if !bytes.Equal(b[:len(zeros)], zeros[:]) {
			return false
		}
		b = b[len(zeros):]
	}
	return bytes.Equal(b, zeros[:len(b)])
}

// Size returns how many bytes there are.
func (c *Contents) Size() int64 { return c.size }

// ReadAt is that of io.ReaderAt.
func (c *Contents) ReadAt(b []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("offset %d; one that is not negative was expected", off)
	}
	n := 0
	for n < len(b) && off < c.size {
		part := b[n:min(int64(len(b)), int64(n)+c.size-off)]
		begin := off % chunkSize
		part = part[:min(int64(len(part)), chunkSize-begin)]
		if chunk := c.chunks[off/chunkSize]; chunk != nil {
			copy(part, chunk[begin:])
		} else {
			clear(part)
		}
		n, off = n+len(part), off+int64(len(part))
	}
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

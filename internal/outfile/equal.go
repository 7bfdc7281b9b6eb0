package outfile

import (
	"bytes"
	"io"
)

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

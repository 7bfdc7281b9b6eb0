package pack

import (
	"bytes"
	"io"

	"cfi2sframe/internal/outfile"
)

// A readError is an error of the package while the visitor reads.
type readError struct{ err error }

func (e *readError) Error() string { return e.err.Error() }
func (e *readError) Unwrap() error { return e.err }

// Load reads the member. The visitor has to return its error, and to close what it gets.
func (m *Member) Load() (*outfile.Spool, error) {
	s, err := outfile.NewSpool(io.MultiReader(bytes.NewReader(m.Head), m.rest), m.Size)
	if err != nil {
		return nil, &readError{early(err)}
	}
	return s, nil
}

package pack

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"cfi2sframe/internal/archive"
)

// deb reads a Debian package, as deb(5) says: an archive whose first member has the version of the format, and
// that has the files in a tar.
func (r *reader) deb(f io.ReaderAt, size int64) ([]File, error) {
	a, err := archive.Open(f, size)
	if err != nil {
		return nil, err
	}
	for i := range a.Members {
		m := &a.Members[i]
		switch {
		case i == 0:
			version := make([]byte, min(m.Size, 16))
			if _, err := f.ReadAt(version, m.Off); err != nil {
				return nil, &Error{Off: m.Off, Member: m.Name, Err: early(err)}
			}
			if !strings.HasPrefix(string(version), "2.") {
				return nil, &Error{Off: m.Off, Member: m.Name, Err: fmt.Errorf("version %.16q of the format; 2.0 was expected", version)}
			}
		case m.Name == "data.tar" || strings.HasPrefix(m.Name, "data.tar."):
			if m.Size == 0 {
				return nil, &Error{Off: m.Off, Member: m.Name, Err: io.ErrUnexpectedEOF}
			}
			entries, err := r.part(m.Name, io.NewSectionReader(f, m.Off, m.Size))
			if err != nil {
				return nil, err
			}
			return files(entries)
		}
	}
	return nil, &Error{Off: size, Err: errors.New("no member data.tar; one with the files was expected")}
}

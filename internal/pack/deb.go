package pack

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"cfi2sframe/internal/archive"
)

// A Debian is an open Debian package: an archive whose first member has the version of the format, with two tars.
type Debian struct {
	*archive.Archive
	Control, Data int // indexes of members: files for dpkg, or 0; and the files of the package
}

// OpenDeb reads the members' headers of a Debian package of the given size, as deb(5) says.
func OpenDeb(f io.ReaderAt, size int64) (*Debian, error) {
	a, err := archive.Open(f, size)
	if err != nil {
		return nil, err
	}
	d := &Debian{Archive: a}
	for i := range a.Members {
		m := &a.Members[i]
		wrong := func(format string, args ...any) error {
			return &Error{Off: m.Off, Member: m.Name, Err: fmt.Errorf(format, args...)}
		}
		if i == 0 {
			version := make([]byte, min(m.Size, 16))
			if _, err := f.ReadAt(version, m.Off); err != nil {
				return nil, wrong("%w", early(err))
			}
			if !strings.HasPrefix(string(version), "2.") {
				return nil, wrong("unsupported version %.16q of the format; 2.0 is supported", version)
			}
			continue
		}
		for part, to := range map[string]*int{"control.tar": &d.Control, "data.tar": &d.Data} {
			switch {
			case m.Name != part && !strings.HasPrefix(m.Name, part+"."):
			case *to != 0:
				return nil, wrong("a second %s; remove one", part)
			default:
				*to = i
			}
		}
	}
	if d.Data == 0 {
		return nil, &Error{Off: size, Err: errors.New("no member data.tar")}
	}
	return d, nil
}

// deb reads the files of a Debian package.
func (r *reader) deb(f io.ReaderAt, size int64) ([]File, error) {
	d, err := OpenDeb(f, size)
	if err != nil {
		return nil, err
	}
	m := &d.Members[d.Data]
	if m.Size == 0 {
		return nil, &Error{Off: m.Off, Member: m.Name, Err: io.ErrUnexpectedEOF}
	}
	entries, err := r.part(m.Name, io.NewSectionReader(f, m.Off, m.Size))
	if err != nil {
		return nil, err
	}
	return files(entries)
}

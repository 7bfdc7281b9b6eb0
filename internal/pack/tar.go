package pack

import (
	"archive/tar"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/compressed"
)

// An entry is an entry of a tar, without contents.
type entry struct {
	name   string
	typ    entryType
	member int    // the index of a file
	link   string // what a link leads to, as it is written
}

type entryType uint8

const (
	isFile entryType = iota
	isLink           // another name of a member that came before
	isSymlink
	isDir
	isOther // a device, for example
)

// tarFile reads a tar, and if it has an image, its layers.
func (r *reader) tarFile(f io.ReaderAt, size int64) ([]File, error) {
	a := &tarred{r: r, f: f, size: size, small: make(map[string][]byte)}
	var entries []entry
	err := a.read(func(s *stream, h *tar.Header, t *tar.Reader) error {
		e, err := r.entry(s, h, func() (int, error) {
			contents, err := a.keep(clean(h.Name), h.Size, t)
			if err != nil {
				return 0, s.error(clean(h.Name), err)
			}
			return r.member(clean(h.Name), h.Size, s, contents)
		})
		if e != nil {
			entries = append(entries, *e)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if a.small[layoutFile] != nil || isDocker(a.small[dockerFile]) {
		a.index(entries)
		return r.image(a)
	}
	return files(entries)
}

// entry returns the entry of a header, or nil if it is no file. Its argument file shows a file to the visitor.
func (r *reader) entry(s *stream, h *tar.Header, file func() (int, error)) (*entry, error) {
	e := &entry{name: clean(h.Name)}
	if err := r.count(h.Name, h.Linkname); err != nil {
		return nil, s.error("", err)
	}
	switch h.Typeflag {
	case tar.TypeReg, '\x00', tar.TypeCont, tar.TypeGNUSparse:
		var err error
		if e.member, err = file(); err != nil {
			return nil, err
		}
	case tar.TypeLink:
		e.typ, e.link = isLink, clean(h.Linkname)
	case tar.TypeSymlink:
		e.typ, e.link = isSymlink, h.Linkname
	case tar.TypeDir, 'D': // the latter is what GNU tar writes for incremental backups
		e.typ = isDir
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		e.typ = isOther
	case tar.TypeXGlobalHeader, 'V': // comments; the name of a volume
		return nil, nil
	default:
		return nil, s.error(e.name, fmt.Errorf("a member of type %q; a file, a directory, a link or a device was expected", h.Typeflag))
	}
	return e, nil
}

// tar calls fn for the headers of a tar, and reads in to its end.
func (r *reader) tar(s *stream, in io.Reader, fn func(*tar.Header, *tar.Reader) error) error {
	t := tar.NewReader(in)
	for last := ""; ; {
		h, err := t.Next()
		if err == io.EOF {
			return s.drain(in)
		}
		// Names that lead out of the directory stay inside: see clean.
		if err != nil && !(errors.Is(err, tar.ErrInsecurePath) && h != nil) {
			return s.error(last, err)
		}
		last = clean(h.Name)
		if err := fn(h, t); err != nil {
			return err
		}
	}
}

// part reads a tar that is a part of the package.
func (r *reader) part(name string, in io.Reader) ([]entry, error) {
	s, err := r.unpack(name, in)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return r.list(s, s)
}

// list reads the tar in a stream, and shows its files to the visitor.
func (r *reader) list(s *stream, in io.Reader) ([]entry, error) {
	var entries []entry
	err := r.tar(s, in, func(h *tar.Header, t *tar.Reader) error {
		e, err := r.entry(s, h, func() (int, error) { return r.member(clean(h.Name), h.Size, s, t) })
		if e != nil {
			entries = append(entries, *e)
		}
		return err
	})
	return entries, err
}

// A tarred is a tar that is a file. There may be an image in it.
type tarred struct {
	r     *reader
	f     io.ReaderAt
	size  int64
	small map[string][]byte // files that may describe an image
	room  int64             // bytes in small
	names map[string]entry
}

// A seeker reads an uncompressed file, and skips much of it.
type seeker struct {
	s    *stream
	file io.ReadSeeker
}

func (s *seeker) Read(p []byte) (int, error) {
	n, err := s.file.Read(p)
	s.s.Off += int64(n)
	if spent := cmp.Or(s.s.r.ctx.Err(), s.s.r.budget.Spend(elffile.CostUnpacked, uint64(n))); spent != nil {
		return 0, spent
	}
	return n, err
}

func (s *seeker) Seek(off int64, whence int) (int64, error) {
	at, err := s.file.Seek(off, whence)
	s.s.Off = at
	return at, err
}

// read calls fn for every header.
func (a *tarred) read(fn func(*stream, *tar.Header, *tar.Reader) error) error {
	s, err := a.r.unpack("", io.NewSectionReader(a.f, 0, a.size))
	if err != nil {
		return err
	}
	defer s.Close()
	in := io.Reader(s)
	if s.Form.Kind == compressed.None {
		in = &seeker{s, io.NewSectionReader(a.f, 0, a.size)}
	}
	return a.r.tar(s, in, func(h *tar.Header, t *tar.Reader) error { return fn(s, h, t) })
}

// Bounds on the descriptions of an image that are in memory, in bytes: of one, and of all.
const (
	maxSmall = 4 << 20
	allSmall = 64 << 20
)

// keep stores a file that may describe an image, and returns a reader of its contents.
func (a *tarred) keep(name string, size int64, in io.Reader) (io.Reader, error) {
	if strings.Contains(name, "/") && !strings.HasPrefix(name, blobDir) || size == 0 || size > maxSmall || a.room+size > allSmall {
		return in, nil
	}
	first := make([]byte, 1)
	if _, err := io.ReadFull(in, first); err != nil {
		return nil, err
	}
	in = io.MultiReader(bytes.NewReader(first), in)
	if first[0] != '{' && first[0] != '[' {
		return in, nil
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(in, b); err != nil {
		return nil, err
	}
	a.small[name] = b
	a.room += size
	return bytes.NewReader(b), nil
}

// index makes the members known by name.
func (a *tarred) index(entries []entry) {
	a.names = make(map[string]entry, len(entries))
	for _, e := range entries {
		a.names[e.name] = e
	}
}

// real follows the links of an image archive: in older ones, layers that are the same are links.
func (a *tarred) real(name string) string {
	name = clean(name)
	for range maxLinks {
		switch e := a.names[name]; e.typ {
		case isLink:
			name = e.link
		case isSymlink:
			name = clean(path.Join(path.Dir(name), e.link))
		default:
			return name
		}
	}
	return name
}

func (a *tarred) description(name string) ([]byte, error) {
	name = a.real(name)
	if b, ok := a.small[name]; ok {
		return b, nil
	}
	if _, ok := a.names[name]; ok {
		return nil, fmt.Errorf("%s is no JSON, or has more than %d bytes", name, maxSmall)
	}
	return nil, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
}

// layers calls fn for the files with the given names, in the order of the archive. It is read again for that.
func (a *tarred) layers(names []string, fn func(name string, in io.Reader) error) error {
	wanted := make(map[string]bool)
	for _, name := range names {
		if e, ok := a.names[name]; !ok || e.typ != isFile {
			return fmt.Errorf("%s: %w", name, fs.ErrNotExist)
		}
		wanted[name] = true
	}
	return a.read(func(_ *stream, h *tar.Header, t *tar.Reader) error {
		if name := clean(h.Name); wanted[name] {
			return fn(name, t)
		}
		return nil
	})
}

package pack

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"

	"cfi2sframe/internal/compressed"
	"cfi2sframe/internal/outfile"
	"cfi2sframe/internal/rpm"
)

// An entry is an entry of a tar, without contents.
type entry struct {
	name   string
	typ    entryType
	member int    // the index of a file
	link   string // the target of a link, as it is written
	off    int64  // of the contents of a file in the tar, in bytes
	size   int64  // of a file
}

type entryType uint8

const (
	isFile entryType = iota
	isLink           // another name of a member that came before
	isSymlink
	isDir
	isOther // a device, for example
)

// A stream is a part of a package, decompressed.
type stream struct {
	*compressed.Reader
	r    *reader
	part string
}

// unpack opens a part of the package.
func (r *reader) unpack(part string, in io.Reader) (*stream, error) {
	z, err := compressed.Open(r.ctx, r.budget, in)
	s := &stream{z, r, part}
	if err != nil {
		return nil, s.error("", err)
	}
	return s, nil
}

// drain reads the rest of in, which reads the stream: checksums are at the end.
func (s *stream) drain(in io.Reader) error {
	_, err := io.CopyBuffer(io.Discard, struct{ io.Reader }{in}, make([]byte, 1<<16))
	if err != nil {
		return s.error("", err)
	}
	return nil
}

// error returns an error with its place. Member may be "".
func (s *stream) error(member string, err error) error {
	off := s.Off
	var in *rpm.Error
	if errors.As(err, &in) {
		if in.Payload < 0 {
			return rpmError(in)
		}
		off, err = in.Payload, in.Err
	}
	var known *Error
	if errors.As(err, &known) || s.r.ctx.Err() != nil {
		return err
	}
	return &Error{Part: s.part, Off: off, Packed: s.Form.Kind != compressed.None, Member: member, Err: early(err)}
}

// tarFile reads a tar, and if it has an image, its layers.
func (r *reader) tarFile(f io.ReaderAt, size int64) ([]File, error) {
	s, err := r.unpack("", io.NewSectionReader(f, 0, size))
	if err != nil {
		return nil, err
	}
	defer s.Close()
	entries, err := r.list(s, s)
	if err != nil {
		return nil, err
	}
	t := &layoutTar{f, make(map[string]entry, len(entries))}
	for _, e := range entries {
		t.entries[e.name] = e
	}
	_, isLayout := t.entries[layoutFile]
	if _, mayBeSaved := t.entries[dockerFile]; !isLayout && !mayBeSaved {
		return files(entries)
	}
	if s.Form.Kind != compressed.None {
		plain, err := r.scratch(f, size)
		if err != nil {
			return nil, err
		}
		defer plain.Close()
		t.ReaderAt = plain
	}
	if isLayout || t.isSaved() {
		return r.image(t.open)
	}
	return files(entries)
}

// scratch unpacks a file to one without a name.
func (r *reader) scratch(f io.ReaderAt, size int64) (*os.File, error) {
	s, err := r.unpack("", io.NewSectionReader(f, 0, size))
	if err != nil {
		return nil, err
	}
	defer s.Close()
	to, err := outfile.Scratch()
	if err != nil {
		return nil, err
	}
	if _, err := io.Copy(compressed.Output{File: to}, s); err != nil {
		to.Close()
		return nil, s.error("", err)
	}
	return to, nil
}

// entry returns the entry of a header, or nil if it is no file. It shows a file to the visitor.
func (r *reader) entry(s *stream, h *tar.Header, t *tar.Reader) (*entry, error) {
	e := &entry{name: Clean(h.Name), off: s.Off, size: h.Size}
	if err := r.count(h.Name, h.Linkname); err != nil {
		return nil, s.error("", err)
	}
	switch h.Typeflag {
	case tar.TypeReg, '\x00', tar.TypeCont, tar.TypeGNUSparse:
		var err error
		e.member, err = r.member(&Member{Name: e.name, Size: h.Size, sparse: Sparse(h)}, s, t)
		return e, err
	case tar.TypeLink:
		e.typ, e.link = isLink, Clean(h.Linkname)
	case tar.TypeSymlink:
		e.typ, e.link = isSymlink, h.Linkname
	case tar.TypeDir, 'D': // the latter is what GNU tar writes for incremental backups
		e.typ = isDir
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		e.typ = isOther
	case tar.TypeXGlobalHeader, 'V': // comments; the name of a volume
		return nil, nil
	default:
		return nil, s.error(e.name, fmt.Errorf("unsupported type %q of a member", h.Typeflag))
	}
	return e, nil
}

// TarHeaders returns the headers of a tar, and its end or another error.
func TarHeaders(t *tar.Reader) iter.Seq2[*tar.Header, error] {
	return func(yield func(*tar.Header, error) bool) {
		for {
			h, err := t.Next()
			if errors.Is(err, tar.ErrInsecurePath) && h != nil { // such names stay inside: see Clean
				err = nil
			}
			if err == io.EOF || !yield(h, err) || err != nil {
				return
			}
		}
	}
}

// Sparse reports whether a file is stored without its holes.
func Sparse(h *tar.Header) bool {
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return true
		}
	}
	return h.Typeflag == tar.TypeGNUSparse
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

// list reads the tar in a stream, and shows its files to the visitor. It reads in, which reads the stream, to its end.
func (r *reader) list(s *stream, in io.Reader) ([]entry, error) {
	var entries []entry
	t, last := tar.NewReader(in), ""
	for h, err := range TarHeaders(t) {
		if err != nil {
			return nil, s.error(last, err)
		}
		last = Clean(h.Name)
		e, err := r.entry(s, h, t)
		if err != nil {
			return nil, err
		}
		if e != nil {
			entries = append(entries, *e)
		}
	}
	return entries, s.drain(in)
}

package repack

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"

	"cfi2sframe/elffile"
)

// Archives of tar are copied as blocks: a writer that makes headers of what it understood would lose the rest, and write numbers,
// names and times in another way. If the size of a file changes, it replaces the old one, in the style of that.

const tarBlock = 512

// A field of a header is its place.
type field struct{ at, end int }

func (f field) of(block []byte) []byte { return block[f.at:f.end] }

// The fields of a header that change, from tar(5).
var (
	tarSize     = field{124, 136}
	tarChecksum = field{148, 156}
)

const (
	maxHeaders = 2 << 20 // bytes of all headers of a file
	maxTail    = 1 << 20 // bytes after the end
)

// A tarEntry is an entry of an archive.
type tarEntry struct {
	*tar.Header
	name string // without ./ or / before it
	link string // the same of the file that a hard link names
}

func newEntry(h *tar.Header) *tarEntry { return &tarEntry{h, clean(h.Name), clean(h.Linkname)} }

// clean returns a name in an archive as a path below its root.
func clean(name string) string { return path.Clean("/" + name)[1:] }

// regular reports whether the entry has the contents of a file.
func (e *tarEntry) regular() bool {
	return slices.Contains([]byte{tar.TypeReg, tar.TypeCont, tar.TypeGNUSparse}, e.Typeflag) && !strings.HasSuffix(e.Name, "/")
}

// sparse reports whether the file is stored without its holes.
func (e *tarEntry) sparse() bool {
	for key := range e.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return true
		}
	}
	return e.Typeflag == tar.TypeGNUSparse
}

// signed returns the name of an attribute that signs the contents, as GNU tar and libarchive write it, or "".
func (e *tarEntry) signed() string {
	for _, name := range []string{"security.ima", "security.evm"} {
		for _, prefix := range []string{"SCHILY.xattr.", "LIBARCHIVE.xattr."} {
			if _, ok := e.PAXRecords[prefix+name]; ok {
				return prefix + name
			}
		}
	}
	return ""
}

// check refuses entries that programs read in different ways.
func (e *tarEntry) check() error {
	if e.Typeflag >= tar.TypeLink && e.Typeflag <= tar.TypeFifo && e.Size != 0 {
		return fmt.Errorf("an entry of type %q with contents of %d bytes, which only files may have", e.Typeflag, e.Size)
	}
	for _, key := range []string{"path", "linkpath", "size"} {
		if _, ok := e.PAXRecords[key]; ok && e.Typeflag == tar.TypeXGlobalHeader {
			return fmt.Errorf("%s in a global header, which only the header of a file may have", key)
		}
	}
	if e.Typeflag == tar.TypeXGlobalHeader && e.sparse() {
		return errors.New("GNU.sparse in a global header, which only the header of a file may have")
	}
	return nil
}

// A rawTar holds the bytes that a reader of tar reads.
type rawTar struct {
	in   io.Reader
	off  int64
	mode rawMode
	to   io.Writer
	held []byte // headers, and the padding before them
	// cut and fill are the sizes of the padding that is held of a file that changed, and of the one that replaces it.
	cut, fill int64
}

// A rawMode says what becomes of bytes.
type rawMode uint8

const (
	hold rawMode = iota
	drop
	pass // they are written
)

func (r *rawTar) Read(p []byte) (int, error) {
	n, err := r.in.Read(p)
	r.off += int64(n)
	switch r.mode {
	case hold:
		if r.held = append(r.held, p[:n]...); len(r.held) > maxHeaders {
			return 0, fmt.Errorf("headers of more than %d bytes", maxHeaders)
		}
	case pass:
		if _, err := r.to.Write(p[:n]); err != nil {
			return 0, err
		}
	}
	return n, err
}

// headers returns what is held.
func (r *rawTar) headers() []byte {
	b := slices.Concat(make([]byte, r.fill), r.held[min(r.cut, int64(len(r.held))):])
	r.held, r.cut, r.fill = r.held[:0], 0, 0
	return b
}

// A tarFunc returns the change of a regular file. It reads as much of its contents as it needs.
type tarFunc func(e *tarEntry, r io.Reader) (*change, error)

// copyTar copies an archive, and gives each regular file the contents that edit returns. Sparse files cannot change. Other entries are
// told to other, if that is not nil.
func (p *packer) copyTar(w io.Writer, in io.Reader, edit tarFunc, other func(e *tarEntry) error) error {
	raw := &rawTar{in: in, to: w}
	err := p.copyEntries(raw, tar.NewReader(raw), edit, other)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		err = errors.New("it ends early")
	}
	if err != nil && !aboutFile(err) {
		err = fmt.Errorf("tar archive at offset %#x: %w", raw.off, err)
	}
	return err
}

// copyEntries is copyTar with a reader of raw.
func (p *packer) copyEntries(raw *rawTar, t *tar.Reader, edit tarFunc, other func(e *tarEntry) error) error {
	for {
		raw.mode = hold
		h, err := t.Next()
		switch {
		case err == io.EOF:
			b := raw.headers()
			if !bytes.HasSuffix(b, make([]byte, tarBlock)) {
				return err
			}
			if _, err := raw.to.Write(b); err != nil {
				return err
			}
			return copyTail(raw.to, raw)
		case err != nil && !(errors.Is(err, tar.ErrInsecurePath) && h != nil):
			return err
		}
		e := newEntry(h)
		if err := e.check(); err != nil {
			return err
		}
		if err := p.budget.Spend(elffile.CostEntry, 1); err != nil {
			return err
		}
		if h.Typeflag == tar.TypeXGlobalHeader { // it is held
			continue
		}
		c := &change{}
		if !e.regular() && other != nil {
			err = other(e)
		}
		if err == nil && e.regular() && !e.sparse() {
			raw.mode = drop
			c, err = edit(e, t)
		}
		if err != nil {
			return err
		}
		err = p.copyEntry(raw, t, e, c)
		if err == nil && e.sparse() {
			err = p.copySparse(raw, t, e, edit)
		}
		c.close()
		if err != nil {
			return err
		}
	}
}

// copyEntry copies an entry, but for the contents of a sparse file, with a change of its contents.
func (p *packer) copyEntry(raw *rawTar, t *tar.Reader, e *tarEntry, c *change) error {
	head, first := raw.headers(), c.old
	if c.now != nil {
		first = c.now
		if err := resize(head, e, first.Size()); err != nil {
			return err
		}
		if n, err := t.Read(make([]byte, 1)); n > 0 || err != io.EOF {
			return fmt.Errorf("%s was changed before all of it was read", e.name)
		}
		raw.cut, raw.fill = -e.Size&(tarBlock-1), -first.Size()&(tarBlock-1)
	}
	if _, err := raw.to.Write(head); err != nil || e.sparse() {
		return err
	}
	raw.mode = drop
	_, err := io.Copy(raw.to, contextReader{p.ctx, io.MultiReader(first.Reader(), t)})
	return err
}

// copySparse copies the contents of a sparse file, as they are stored.
func (p *packer) copySparse(raw *rawTar, t *tar.Reader, e *tarEntry, edit tarFunc) error {
	if err := p.budget.Spend(elffile.CostUnpacked, uint64(e.Size)); err != nil { // the reader makes the holes
		return err
	}
	raw.mode = pass
	if e.regular() {
		c, err := edit(e, t)
		if err != nil {
			return err
		}
		c.close()
	}
	_, err := io.Copy(io.Discard, t)
	return err
}

// copyTail copies the zeros after the end of an archive.
func copyTail(w io.Writer, in io.Reader) error {
	b, err := io.ReadAll(io.LimitReader(in, maxTail+1))
	switch {
	case err != nil:
		return err
	case len(b) > maxTail:
		return fmt.Errorf("more than %d bytes after the end of the archive", maxTail)
	case len(bytes.Trim(b, "\x00")) > 0:
		return errors.New("data after the end of the archive, where only zeros may be")
	}
	_, err = w.Write(b)
	return err
}

// resize changes the size in the headers of a file.
func resize(headers []byte, e *tarEntry, size int64) error {
	if _, ok := e.PAXRecords["size"]; ok {
		return fmt.Errorf("%s has its size in an extended header, which is not supported; build the package anew without it", e.name)
	}
	h := headers[len(headers)-tarBlock:]
	if !putNumber(tarSize.of(h), size) {
		return fmt.Errorf("the header of %s has no room for a size of %d bytes", e.name, size)
	}
	putSum(h)
	return nil
}

// putNumber writes a number in the style of the one that it replaces: octal digits, or GNU's bytes after one with the first bit set.
// It reports whether there is room.
func putNumber(b []byte, n int64) bool {
	if b[0]&0x80 != 0 {
		clear(b)
		binary.BigEndian.PutUint64(b[len(b)-8:], uint64(n))
		b[0] |= 0x80 // in a field of eight bytes it is one of the number's
		return true
	}
	end := len(bytes.TrimRight(b, " \x00"))
	begin := end - len(bytes.TrimLeft(b[:end], " \x00"))
	fill := byte('0')
	if begin > 0 || end == 0 {
		fill = ' '
	}
	digits := strconv.FormatInt(n, 8)
	if end == 0 || len(digits) > end { // all but one byte for its end can be digits
		end = len(b) - 1
	}
	if len(digits) > end {
		return false
	}
	for i := range end {
		b[i] = fill
	}
	copy(b[end-len(digits):end], digits)
	return true
}

// putSum writes the sum of a header, which has six digits at most.
func putSum(h []byte) {
	sum := int64((tarChecksum.end - tarChecksum.at) * ' ')
	for i, b := range h {
		if i < tarChecksum.at || i >= tarChecksum.end {
			sum += int64(b)
		}
	}
	putNumber(tarChecksum.of(h), sum)
}

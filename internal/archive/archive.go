// Package archive reads GNU ar archives, and rewrites them with new contents for some members. Order, names and
// attributes of members are unchanged, and offsets in the symbol index are updated.
//
// Thin archives, whose members are separate files, and BSD archives are not supported.
package archive

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"sort"
	"strconv"
	"strings"

	"cfi2sframe/internal/filecopy"
)

// Magic is the start of an archive.
const (
	Magic     = "!<arch>\n"
	thinMagic = "!<thin>\n"
	debMember = "debian-binary" // the first member of a Debian package

	headerSize = 60
	sizeField  = 48 // offset in a member's header; 10 digits
	sizeDigits = 10
)

// Is reports whether r starts like an archive. Debian packages, which are archives of tar files (deb(5)), do not count.
func Is(r io.ReaderAt) (bool, error) {
	b := make([]byte, len(Magic)+len(debMember))
	n, err := r.ReadAt(b, 0)
	if err != nil && err != io.EOF {
		return false, err
	}
	magic, member := b[:min(n, len(Magic))], b[min(n, len(Magic)):n]
	return string(magic) == thinMagic || string(magic) == Magic && string(member) != debMember, nil
}

// Costs of members in an elffile.Budget, measured in November 2026.
const (
	CostMember  = 4_000  // of any kind
	CostHeaders = 50_000 // additional cost of an ELF file: reading its headers
)

// A Member is a file in an archive.
type Member struct {
	Name string
	Off  int64 // offset of the contents in the archive
	Size int64 // size of the contents in bytes

	index int // bytes per entry (4 or 8) if this is the symbol index, otherwise 0
}

// Special reports whether the member is the symbol index or the table of long names.
func (m *Member) Special() bool { return m.index > 0 || m.Name == "//" }

// An Archive is an open archive.
type Archive struct {
	Members []Member

	r     io.ReaderAt
	size  int64
	long  string // the table of long names
	names bool   // long was read
}

// An Error describes an error at an offset in an archive.
type Error struct {
	Off int64 // in bytes
	Err error
}

func (e *Error) Error() string { return fmt.Sprintf("archive at offset %#x: %v", e.Off, e.Err) }
func (e *Error) Unwrap() error { return e.Err }

// ErrKind is the error for archives of an unsupported kind.
var ErrKind = errors.New("unsupported kind of archive")

func errorf(off int64, format string, args ...any) error {
	return &Error{off, fmt.Errorf(format, args...)}
}

// Limits on accepted archives.
const (
	maxSpecial = 128 << 20 // bytes of the symbol index, and of the table of long names
	maxMembers = 1 << 19
	maxName    = 4096 // bytes of a member name
)

// Open reads the member headers of an archive of the given size.
func Open(r io.ReaderAt, size int64) (*Archive, error) {
	a := &Archive{r: r, size: size}
	head := make([]byte, len(Magic))
	if _, err := r.ReadAt(head, 0); err != nil {
		return nil, errorf(0, "%w", err)
	}
	if string(head) == thinMagic {
		return nil, errorf(0, "%w: a thin archive, whose members are separate files; convert those", ErrKind)
	}
	for off := int64(len(Magic)); off < size; {
		m, err := a.member(off)
		if err != nil {
			return nil, err
		}
		if len(a.Members) == maxMembers {
			return nil, errorf(off, "more than %d members", maxMembers)
		}
		a.Members = append(a.Members, m)
		_, off = a.Range(len(a.Members) - 1)
	}
	return a, nil
}

// member reads the header at off and, if the member is the table of long names, its contents.
func (a *Archive) member(off int64) (Member, error) {
	if a.size-off < headerSize {
		return Member{}, errorf(off, "%d bytes are left, fewer than the %d of a member's header", a.size-off,
			headerSize)
	}
	h := make([]byte, headerSize)
	if _, err := a.r.ReadAt(h, off); err != nil {
		return Member{}, errorf(off, "%w", err)
	}
	if string(h[58:]) != "`\n" {
		return Member{}, errorf(off, "not a member header: it ends in % x, not 60 0a", h[58:])
	}
	digits := strings.TrimRight(string(h[sizeField:][:sizeDigits]), " ")
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || int64(n) > a.size-off-headerSize {
		return Member{}, errorf(off, "member of size %q does not fit in the archive of %d bytes", digits, a.size)
	}
	m := Member{Off: off + headerSize, Size: int64(n)}
	name := strings.TrimRight(string(h[:16]), " ")
	switch {
	case name == "/":
		m.Name, m.index = name, 4
	case name == "/SYM64/":
		m.Name, m.index = name, 8
	case name == "//":
		m.Name = name
		if a.names {
			return Member{}, errorf(off, "second name table (//)")
		}
		b, err := a.contents(&m)
		if err != nil {
			return Member{}, err
		}
		a.long, a.names = string(b), true
	case strings.HasPrefix(name, "#1/") || strings.HasPrefix(name, "__.SYMDEF"):
		return Member{}, errorf(off, "%w: BSD; only the GNU kind is supported", ErrKind)
	case strings.HasPrefix(name, "/"):
		m.Name, err = a.longName(off, name)
	default:
		m.Name = strings.TrimSuffix(name, "/")
	}
	return m, err
}

// longName returns the entry of the name table that a header refers to.
func (a *Archive) longName(off int64, name string) (string, error) {
	at, err := strconv.ParseUint(name[1:], 10, 63)
	if err != nil || at >= uint64(len(a.long)) {
		return "", errorf(off, "member name %q points outside the name table of %d bytes", name, len(a.long))
	}
	rest := a.long[at:]
	n := strings.Index(rest[:min(len(rest), maxName)], "/\n")
	if n < 0 {
		return "", errorf(off, "member name %q in the name table is not terminated within %d bytes", name, maxName)
	}
	return rest[:n], nil
}

func (a *Archive) contents(m *Member) ([]byte, error) {
	if m.Size > maxSpecial {
		return nil, errorf(m.Off, "%s of %d bytes; at most %d are supported", m.Name, m.Size, maxSpecial)
	}
	b := make([]byte, m.Size)
	if _, err := a.r.ReadAt(b, m.Off); err != nil {
		return nil, errorf(m.Off, "%w", err)
	}
	return b, nil
}

// smallMember is the maximum size in bytes of a member that is read into memory as a whole. Reading small members
// piecewise makes the conversion of libc.a take 8 % more CPU time (2026-11-23).
const smallMember = 64 << 10

// Contents returns a reader of a member's contents.
func (a *Archive) Contents(i int) *io.SectionReader {
	m := &a.Members[i]
	r := io.NewSectionReader(a.r, m.Off, m.Size)
	if m.Size > smallMember {
		return r
	}
	b := make([]byte, m.Size)
	if n, err := r.ReadAt(b, 0); n < len(b) {
		return io.NewSectionReader(failedReader{err}, 0, m.Size)
	}
	return io.NewSectionReader(bytes.NewReader(b), 0, m.Size)
}

// A failedReader stands for a member that could not be read. Every read returns the error.
type failedReader struct{ err error }

func (f failedReader) ReadAt([]byte, int64) (int, error) { return 0, f.err }

// Header returns the header of member i with a new size.
func (a *Archive) Header(i int, size int64) ([]byte, error) {
	m := &a.Members[i]
	header := make([]byte, headerSize)
	if _, err := a.r.ReadAt(header, m.Off-headerSize); err != nil {
		return nil, err
	}
	digits := fmt.Sprintf("%-*d", sizeDigits, size)
	if len(digits) > sizeDigits {
		return nil, fmt.Errorf("%s: an archive cannot express a size of %d bytes", m.Name, size)
	}
	copy(header[sizeField:], digits)
	return header, nil
}

// Range returns the offsets of member i, including its header and the padding byte.
func (a *Archive) Range(i int) (begin, end int64) {
	m := &a.Members[i]
	end = m.Off + m.Size
	return m.Off - headerSize, min(end+end&1, a.size)
}

// A Writer writes an archive with the members of an existing one. Each member must be added once, in order.
type Writer struct {
	ctx context.Context
	a   *Archive
	dst filecopy.Target
	off int64   // offset of the next member
	at  []int64 // offsets of the headers of the members added so far
}

// NewWriter starts an archive in dst, which must be empty. Copying stops when ctx is canceled.
func (a *Archive) NewWriter(ctx context.Context, dst filecopy.Target) (*Writer, error) {
	_, err := dst.WriteAt([]byte(Magic), 0)
	return &Writer{ctx: ctx, a: a, dst: dst, off: int64(len(Magic))}, err
}

// Keep adds member i unchanged.
func (w *Writer) Keep(i int) error {
	begin, end := w.a.Range(i)
	w.at = append(w.at, w.off)
	if err := filecopy.Range(w.ctx, w.dst, w.off, w.a.r, begin, end-begin); err != nil {
		return err
	}
	w.off += end - begin
	return w.align()
}

// align pads the archive to an even size.
func (w *Writer) align() error {
	if w.off&1 == 0 {
		return nil
	}
	_, err := w.dst.WriteAt([]byte{'\n'}, w.off)
	w.off++
	return err
}

// Add adds member i with new contents, the first size bytes of r.
func (w *Writer) Add(i int, r io.ReaderAt, size int64) error {
	header, err := w.a.Header(i, size)
	if err != nil {
		return err
	}
	w.at = append(w.at, w.off)
	if _, err := w.dst.WriteAt(header, w.off); err != nil {
		return err
	}
	w.off += headerSize
	if err := filecopy.Range(w.ctx, w.dst, w.off, r, 0, size); err != nil {
		return err
	}
	w.off += size
	return w.align()
}

// Close finishes the archive, and updates the symbol index.
func (w *Writer) Close() error {
	for i := range w.a.Members {
		if m := &w.a.Members[i]; m.index > 0 {
			b, err := w.a.contents(m)
			if err != nil {
				return err
			}
			if err := w.update(m, b); err != nil {
				return err
			}
			if _, err := w.dst.WriteAt(b, w.at[i]+headerSize); err != nil {
				return err
			}
		}
	}
	return nil
}

// newOffset returns the new offset of the header that was at the old offset.
func (w *Writer) newOffset(old uint64) (int64, bool) {
	i := sort.Search(len(w.a.Members), func(i int) bool { return uint64(w.a.Members[i].Off-headerSize) >= old })
	if i == len(w.at) || uint64(w.a.Members[i].Off-headerSize) != old {
		return 0, false
	}
	return w.at[i], true
}

// update updates a symbol index, which contains the number of entries, the offset of a member's header for each entry
// (big-endian), and the names.
func (w *Writer) update(m *Member, b []byte) error {
	get := func(b []byte) uint64 { return uint64(binary.BigEndian.Uint32(b)) }
	put := func(b []byte, v uint64) { binary.BigEndian.PutUint32(b, uint32(v)) }
	limit := int64(math.MaxUint32)
	if m.index == 8 {
		get, put, limit = binary.BigEndian.Uint64, binary.BigEndian.PutUint64, math.MaxInt64
	}
	if len(b) < m.index {
		if len(bytes.Trim(b, "\x00")) == 0 {
			return nil // an empty index
		}
		return errorf(m.Off, "symbol index of %d bytes is too short", len(b))
	}
	n := get(b)
	if n > uint64(len(b)/m.index-1) {
		return errorf(m.Off, "symbol index has %d entries, but only %d bytes", n, len(b))
	}
	for i := range n {
		entry := b[(i+1)*uint64(m.index):]
		old := get(entry)
		to, ok := w.newOffset(old)
		if !ok {
			return errorf(m.Off, "entry %d of the symbol index is %#x, where no member starts", i, old)
		}
		if to > limit {
			return errorf(m.Off, "the archive would exceed 4 GiB, the limit of its symbol index")
		}
		put(entry, uint64(to))
	}
	return nil
}

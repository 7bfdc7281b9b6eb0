package repack

import (
	"bytes"
	"context"
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

// Archives of tar are read as blocks, and written as the same blocks: a reader that makes headers of what it understood would
// lose the rest, and write numbers, names and times in another way. Where a file has another size then, that is put in the place
// of the old one, in the way in which the old one was written.

const tarBlock = 512

// A field of a header is its place.
type field struct{ at, end int }

func (f field) of(block []byte) []byte { return block[f.at:f.end] }

// The fields of a header that matter here, from tar(5).
var (
	tarName     = field{0, 100}
	tarSize     = field{124, 136}
	tarChecksum = field{148, 156}
	tarLink     = field{157, 257}
	tarMagic    = field{257, 263}
	tarPrefix   = field{345, 500}
)

const (
	tarType       = 156
	tarMoreSparse = 482 // in a GNU sparse header, whether there are more blocks of it
	tarEvenMore   = 504 // the same in one of those
)

// What is accepted at most.
const (
	maxExtended = 1 << 20 // bytes of all extended headers of a file
	maxTail     = 1 << 20 // bytes after the end
)

// A tarEntry is a file of an archive.
type tarEntry struct {
	raw    []byte // all headers, whole blocks
	main   int    // where the last one begins, that of the file itself
	kind   byte
	name   string // without ./ or / at the begin
	link   string // the same of the file that a hard link is another name of
	size   int64  // of the contents, in bytes
	at     int64  // where the headers begin in the archive
	sparse bool   // the contents are a part of the file's
	signed string // the name of an attribute that signs the contents, or ""

	pax    field  // the records of an extended header that has the size, in raw
	record field  // the record of the size, in raw
	global string // what there is of the same in a global header, which is not understood
}

// regular reports whether the entry has the contents of a file.
func (e *tarEntry) regular() bool {
	return (e.kind == '0' || e.kind == 0 || e.kind == '7' || e.kind == 'S') && !strings.HasSuffix(e.name, "/")
}

// A tarReader reads the files of an archive one after the other.
type tarReader struct {
	in  io.Reader
	off int64 // in bytes
	// what of an entry is not read yet
	left, padding int64
}

// errorf returns an error about the archive.
func (t *tarReader) errorf(at int64, format string, args ...any) error {
	return fmt.Errorf("tar archive at offset %#x: %w", at, fmt.Errorf(format, args...))
}

// wrong is the error of something that could not be read.
func (t *tarReader) wrong(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return t.errorf(t.off, "it ends early")
	}
	return t.errorf(t.off, "%w", err)
}

// full reads so many bytes.
func (t *tarReader) full(b []byte) error {
	n, err := io.ReadFull(t.in, b)
	t.off += int64(n)
	if err != nil {
		return t.wrong(err)
	}
	return nil
}

// Read reads contents of the entry, and what fills up its last block.
func (t *tarReader) Read(p []byte) (int, error) {
	if t.left == 0 {
		return 0, io.EOF
	}
	n, err := t.in.Read(p[:min(int64(len(p)), t.left)])
	t.left -= int64(n)
	t.off += int64(n)
	switch {
	case err == io.EOF && t.left == 0:
		err = nil
	case err != nil:
		err = t.wrong(err)
	}
	return n, err
}

// next reads the headers of the next entry, all of the one before being read. It returns an entry without a kind of
// its own, and io.EOF, at the end of the archive: the block that says so.
func (t *tarReader) next() (*tarEntry, error) {
	e := &tarEntry{at: t.off}
	var long, longLink, paxName, paxLink string
	size := int64(-1)
	for {
		at, begin := t.off, len(e.raw)
		e.raw = append(e.raw, make([]byte, tarBlock)...)
		h := e.raw[begin:]
		if err := t.full(h); err != nil {
			return nil, err
		}
		if len(bytes.Trim(h, "\x00")) == 0 {
			if begin > 0 {
				return nil, t.errorf(at, "the end of the archive; the file that the extended header before is of was expected")
			}
			return e, io.EOF
		}
		if err := t.sum(at, h); err != nil {
			return nil, err
		}
		e.kind = h[tarType]
		n, err := number(tarSize.of(h))
		if err != nil || n < 0 {
			return nil, t.errorf(at, "size %q of an entry is no number from 0 on", tarSize.of(h))
		}
		switch e.kind {
		case 'x', 'g', 'X', 'L', 'K':
			b, err := t.extended(e, at, n)
			if err != nil {
				return nil, err
			}
			switch e.kind {
			case 'L':
				long = text(b)
			case 'K':
				longLink = text(b)
			default:
				p, err := e.records(len(e.raw)-roundUp(len(b)), b)
				if err != nil {
					return nil, t.errorf(at, "%w", err)
				}
				if e.kind == 'g' {
					continue
				}
				paxName, paxLink = p.name, p.link
				if p.hasSize {
					size = p.size
				}
			}
			continue
		}
		e.main = begin
		e.name, e.link = text(tarName.of(h)), text(tarLink.of(h))
		if string(tarMagic.of(h)) == "ustar\x00" {
			if prefix := text(tarPrefix.of(h)); prefix != "" {
				e.name = prefix + "/" + e.name
			}
		}
		if long != "" {
			e.name = long
		}
		if longLink != "" {
			e.link = longLink
		}
		if paxName != "" {
			e.name = paxName
		}
		if paxLink != "" {
			e.link = paxLink
		}
		dir := strings.HasSuffix(e.name, "/")
		e.name, e.link = clean(e.name), clean(e.link)
		if dir {
			e.name += "/"
		}
		if e.size = n; size >= 0 {
			e.size = size
		}
		if e.global != "" {
			return nil, t.errorf(e.at, "%s in a global header; a header of one file was expected", e.global)
		}
		return e, t.contents(e, at, h)
	}
}

// contents prepares for the contents of an entry, whose last header is h.
func (t *tarReader) contents(e *tarEntry, at int64, h []byte) error {
	if e.kind >= '1' && e.kind <= '6' && e.size != 0 { // some readers skip so much, and others do not
		return t.errorf(at, "an entry of type %q with contents of %d bytes; none were expected", e.kind, e.size)
	}
	if e.kind == 'S' {
		e.sparse = true
		more := h[tarMoreSparse] != 0
		for more {
			if len(e.raw) > maxExtended {
				return t.errorf(at, "headers of more than %d bytes", maxExtended)
			}
			begin := len(e.raw)
			e.raw = append(e.raw, make([]byte, tarBlock)...)
			if err := t.full(e.raw[begin:]); err != nil {
				return err
			}
			more = e.raw[begin+tarEvenMore] != 0
		}
	}
	t.left, t.padding = e.size, -e.size&(tarBlock-1)
	return nil
}

// sum checks the sum of a header. Some have counted bytes as numbers with a sign.
func (t *tarReader) sum(at int64, h []byte) error {
	have, err := number(tarChecksum.of(h))
	plain, signed := sums(h)
	if err != nil || have != plain && have != signed {
		return t.errorf(at, "checksum %q of a header; %06o was expected", tarChecksum.of(h), plain)
	}
	return nil
}

// sums returns the sum of a header's bytes, and the same where these have signs.
func sums(h []byte) (plain, signed int64) {
	for i, b := range h {
		if i >= tarChecksum.at && i < tarChecksum.end {
			b = ' '
		}
		plain += int64(b)
		signed += int64(int8(b))
	}
	return plain, signed
}

// extended reads the contents of an extended header.
func (t *tarReader) extended(e *tarEntry, at, size int64) ([]byte, error) {
	if size > maxExtended || len(e.raw) > maxExtended {
		return nil, t.errorf(at, "extended headers of more than %d bytes", maxExtended)
	}
	begin := len(e.raw)
	e.raw = append(e.raw, make([]byte, roundUp(int(size)))...)
	err := t.full(e.raw[begin:])
	return e.raw[begin : begin+int(size)], err
}

// roundUp returns how many bytes the blocks of n bytes have.
func roundUp(n int) int { return (n + tarBlock - 1) &^ (tarBlock - 1) }

// text returns what there is before the first zero byte.
func text(b []byte) string {
	s, _, _ := strings.Cut(string(b), "\x00")
	return s
}

// clean returns a name in an archive as a path below its root.
func clean(name string) string {
	if name == "" {
		return ""
	}
	return strings.TrimPrefix(path.Clean("/"+name), "/")
}

// A records is what PAX records say.
type records struct {
	name, link string
	size       int64
	hasSize    bool
}

// records reads PAX records, which begin at an offset in the headers.
func (e *tarEntry) records(begin int, b []byte) (*records, error) {
	p := &records{}
	global := e.kind == 'g'
	for at := 0; at < len(b); {
		digits, _, ok := bytes.Cut(b[at:], []byte(" "))
		n, err := strconv.Atoi(string(digits))
		if !ok || err != nil || n <= len(digits)+1 || n > len(b)-at || b[at+n-1] != '\n' || digits[0] == '+' {
			return nil, fmt.Errorf("record %.20q of an extended header; its length, a key, = and a value were expected", b[at:])
		}
		key, value, ok := strings.Cut(string(b[at+len(digits)+1:at+n-1]), "=")
		if !ok {
			return nil, fmt.Errorf("record %.20q of an extended header has no =", b[at:at+n])
		}
		switch {
		case key == "path":
			p.name = value
		case key == "linkpath":
			p.link = value
		case key == "size":
			size, err := strconv.ParseInt(value, 10, 64)
			if err != nil || size < 0 || value[0] == '+' || p.hasSize || e.record.end > 0 {
				return nil, fmt.Errorf("size %.20q of an extended header; one number from 0 on was expected", value)
			}
			p.size, p.hasSize = size, true
			e.pax, e.record = field{begin, begin + len(b)}, field{begin + at, begin + at + n}
		case strings.HasPrefix(key, "GNU.sparse."):
			e.sparse = true
		case slices.Contains(signatures, key):
			e.signed = key
		}
		if global && (key == "path" || key == "linkpath" || key == "size" || e.sparse) {
			e.global = key
		}
		at += n
	}
	return p, nil
}

// signatures are the attributes that sign a file's contents, as GNU tar and libarchive write them.
var signatures = []string{
	"SCHILY.xattr.security.ima", "SCHILY.xattr.security.evm", "LIBARCHIVE.xattr.security.ima", "LIBARCHIVE.xattr.security.evm",
}

// number reads a number: octal digits between spaces and zeros, or, as GNU has it, bytes after one with the first bit set.
func number(b []byte) (int64, error) {
	if b[0]&0x80 != 0 {
		if b[0]&0x7f != 0 || len(b) > 8 && len(bytes.Trim(b[1:len(b)-8], "\x00")) > 0 {
			return 0, errors.New("a number that is too large")
		}
		n := binary.BigEndian.Uint64(b[len(b)-8:])
		if len(b) == 8 {
			n &= 1<<56 - 1
		}
		if n > 1<<62 {
			return 0, errors.New("a number that is too large")
		}
		return int64(n), nil
	}
	digits := strings.Trim(string(b), " \x00")
	if digits == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(digits, 8, 62)
	return int64(n), err
}

// putNumber writes a number in the way of the one that is there, and reports whether there is room.
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
	if end == 0 {
		end = len(b) - 1
	}
	digits := strconv.FormatInt(n, 8)
	if len(digits) > end { // all but one byte for its end can be digits
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

// resized returns the headers of an entry whose contents have another size.
func (e *tarEntry) resized(size int64) ([]byte, error) {
	raw, main := slices.Clone(e.raw), e.main
	if e.record.end > 0 {
		raw, main = e.withRecord(size)
	}
	h := raw[main : main+tarBlock]
	// Beside a record it can be anything.
	if old, err := number(tarSize.of(h)); err == nil && old == e.size && !putNumber(tarSize.of(h), size) && e.record.end == 0 {
		return nil, fmt.Errorf("the header of %s has no room for a size of %d bytes", e.name, size)
	}
	putSum(h)
	return raw, nil
}

// putSum writes the sum of a header. There is room for it: it has six digits at most.
func putSum(h []byte) {
	sum, _ := sums(h)
	putNumber(tarChecksum.of(h), sum)
}

// withRecord returns the headers with another size in the record that has it, and where the last one begins then.
func (e *tarEntry) withRecord(size int64) ([]byte, int) {
	rest := fmt.Sprintf(" size=%d\n", size)
	length := len(rest)
	for length != len(rest)+len(strconv.Itoa(length)) {
		length = len(rest) + len(strconv.Itoa(length))
	}
	records := slices.Concat(e.raw[e.pax.at:e.record.at], []byte(strconv.Itoa(length)+rest), e.raw[e.record.end:e.pax.end])
	old := e.pax.at + roundUp(e.pax.end-e.pax.at)
	raw := slices.Concat(e.raw[:e.pax.at], records, make([]byte, roundUp(len(records))-len(records)), e.raw[old:])
	h := raw[e.pax.at-tarBlock : e.pax.at]
	putNumber(tarSize.of(h), int64(len(records))) // which is little more than maxExtended
	putSum(h)
	return raw, e.main + len(raw) - len(e.raw)
}

// A tarFunc says what becomes of the contents of a regular file. It reads as much of them as it likes.
type tarFunc func(e *tarEntry, r io.Reader) (*change, error)

// copyTar copies an archive, and gives each regular file the contents that edit wants. Other entries are told to other, if that
// is not nil.
func (p *packer) copyTar(w io.Writer, r io.Reader, edit tarFunc, other func(e *tarEntry) error) error {
	ctx, t := p.ctx, &tarReader{in: r}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		e, err := t.next()
		if err == io.EOF {
			if _, err := w.Write(e.raw); err != nil {
				return err
			}
			return t.tail(w)
		}
		if err != nil {
			return err
		}
		if err := p.budget.Spend(elffile.CostEntry, 1); err != nil {
			return t.errorf(e.at, "%w", err)
		}
		if other != nil && !e.regular() {
			if err := other(e); err != nil {
				return err
			}
		}
		if err := t.copyEntry(ctx, w, e, edit); err != nil {
			return err
		}
	}
}

// copyEntry is copyTar for one file.
func (t *tarReader) copyEntry(ctx context.Context, w io.Writer, e *tarEntry, edit tarFunc) error {
	changed := &change{}
	var err error
	if e.regular() {
		if changed, err = edit(e, t); err != nil {
			return err
		}
	}
	defer changed.close()
	raw, first := e.raw, changed.old
	if changed.now != nil {
		if t.left > 0 {
			return t.errorf(t.off, "%s was changed before all of it was read", e.name)
		}
		if raw, err = e.resized(changed.now.Size()); err != nil {
			return t.errorf(e.at, "%w", err)
		}
		first = changed.now
	}
	if _, err := w.Write(raw); err != nil {
		return err
	}
	if _, err := io.Copy(w, contextReader{ctx, io.MultiReader(first.Reader(), t)}); err != nil {
		return err
	}
	padding := make([]byte, t.padding)
	if err := t.full(padding); err != nil {
		return err
	}
	if changed.now != nil {
		padding = make([]byte, -changed.now.Size()&(tarBlock-1))
	}
	_, err = w.Write(padding)
	return err
}

// tail copies what there is after the end, which fills up to a multiple of some size.
func (t *tarReader) tail(w io.Writer) error {
	begin := t.off
	buf := make([]byte, 1<<15)
	for {
		n, err := t.in.Read(buf)
		if at := bytes.IndexFunc(buf[:n], func(r rune) bool { return r != 0 }); at >= 0 {
			return t.errorf(t.off+int64(at), "something after the end of the archive; zeros were expected")
		}
		t.off += int64(n)
		if t.off-begin > maxTail {
			return t.errorf(t.off, "more than %d bytes after the end of the archive", maxTail)
		}
		if _, err := w.Write(buf[:n]); err != nil {
			return err
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return t.errorf(t.off, "%w", err)
		}
	}
}

// An unpacked reader takes what comes out of a part of the package from its budget.
type unpacked struct {
	io.ReadCloser
	budget *elffile.Budget
}

func (u *unpacked) Read(p []byte) (int, error) {
	n, err := u.ReadCloser.Read(p)
	if spent := u.budget.Spend(elffile.CostUnpacked, uint64(n)); spent != nil {
		return 0, spent // without what was read, as a full buffer would hide the error
	}
	return n, err
}

// A contextReader ends with a context.
type contextReader struct {
	ctx context.Context
	io.Reader
}

func (r contextReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}

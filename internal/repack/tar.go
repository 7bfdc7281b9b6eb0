package repack

import (
	"archive/tar"
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"strconv"
	"strings"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/pack"
)

const tarBlock = 512

// sizeField and sumField return the fields of a header that change (tar(5)).
func sizeField(header []byte) []byte { return header[124:136] }
func sumField(header []byte) []byte  { return header[148:156] }

// A tarEntry is an entry of an archive.
type tarEntry struct {
	*tar.Header
	name     string // without ./ or / before it
	link     string // the same of the file that a hard link names
	off      int64  // of the contents
	head     []byte // their first bytes
	contents *io.SectionReader
}

// regular reports whether the entry has the contents of a file.
func (e *tarEntry) regular() bool {
	switch e.Typeflag {
	case tar.TypeReg, tar.TypeCont, tar.TypeGNUSparse:
		return !strings.HasSuffix(e.Name, "/")
	}
	return false
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

// entries calls fn for each entry of an archive.
func (p *packer) entries(archive *io.SectionReader, fn func(*tarEntry) error) error {
	in := io.NewSectionReader(archive, 0, archive.Size())
	t := tar.NewReader(in)
	for h, err := range pack.TarHeaders(t) {
		off, _ := in.Seek(0, io.SeekCurrent) // a SectionReader gives no errors
		if err = cmp.Or(err, p.budget.Spend(elffile.CostEntry, 1), p.ctx.Err()); err != nil {
			return fmt.Errorf("tar archive at offset %#x: %w", off, err)
		}
		contents := io.NewSectionReader(archive, off, h.Size)
		e := &tarEntry{Header: h, name: pack.Clean(h.Name), link: pack.Clean(h.Linkname), off: off, contents: contents}
		if e.regular() {
			if !pack.Sparse(e.Header) && h.Size > archive.Size()-off {
				return fmt.Errorf("tar archive at offset %#x: %s: %w", off, e.name, io.ErrUnexpectedEOF)
			}
			e.head = make([]byte, min(h.Size, pack.HeadSize))
			if _, err := io.ReadFull(t, e.head); err != nil {
				return fmt.Errorf("tar archive at offset %#x: %s: %w", off, e.name, err)
			}
		}
		if err := fn(e); err != nil {
			return err
		}
	}
	return nil
}

// replace replaces the contents of an entry.
func (e *tarEntry) replace(c *changes, now *io.SectionReader) error {
	if _, ok := e.PAXRecords["size"]; ok {
		return fmt.Errorf("%s has its size in an extended header, which is not supported; build the package anew",
			e.name)
	}
	head := make([]byte, tarBlock)
	if _, err := c.of.ReadAt(head, e.off-tarBlock); err != nil {
		return err
	}
	if !putNumber(sizeField(head), now.Size()) {
		return fmt.Errorf("the header of %s cannot express a size of %d bytes", e.name, now.Size())
	}
	putSum(head)
	c.replace(e.off-tarBlock, tarBlock, literal(head))
	c.replace(e.off, e.Size+padding(e.Size), now, literal(make([]byte, padding(now.Size()))))
	return nil
}

// padding returns how many bytes follow a file of the given size.
func padding(size int64) int64 { return -size & (tarBlock - 1) }

// putNumber writes a number in the style of the one that it replaces: octal digits, or GNU's bytes after one with the
// first bit set. It reports whether the number fits.
func putNumber(b []byte, n int64) bool {
	if b[0]&0x80 != 0 {
		clear(b)
		binary.BigEndian.PutUint64(b[len(b)-8:], uint64(n))
		b[0] |= 0x80 // in a field of eight bytes it is one of the number's
		return true
	}
	end := len(bytes.TrimRight(b, " \x00"))
	digits := strconv.FormatInt(n, 8)
	if end == 0 || len(digits) > end { // all but one byte for its end can be digits
		end = len(b) - 1
	}
	if len(digits) > end {
		return false
	}
	fill := "0"
	if b[0] == ' ' {
		fill = " "
	}
	copy(b, strings.Repeat(fill, end-len(digits))+digits)
	return true
}

// putSum writes the sum of a header, which has six digits at most.
func putSum(h []byte) {
	var sum int64
	for _, b := range h {
		sum += int64(b)
	}
	field := sumField(h)
	for _, b := range field { // counts as spaces
		sum += ' ' - int64(b)
	}
	putNumber(field, sum)
}

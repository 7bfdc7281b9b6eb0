// Package dwline finds the source lines of addresses in a file's DWARF debug information
// (versions 2 to 5): of .debug_info only the first entry of each unit is read, and line
// tables only of units with one of the addresses.
//
// The standard library's debug/dwarf is meant for sound files. It reads whole sections, makes as much
// of abbreviations and line table headers as these claim there is, and goes through what is
// shared once for each that shares it: kilobytes can take gigabytes, or hours. Here nothing is
// read that is not asked for, and all that is read is counted.
//
// Not in here: functions, split units (.dwo files), and what is in a supplementary file (dwz).
package dwline

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"path"
	"sort"

	"cfi2sframe/elffile"
)

// ErrNone is returned for files without debug information.
var ErrNone = errors.New("no debug information")

// What is read of a file at most, in bytes of its sections, each as often as it is read: so much of
// any, and as many as the file has.
const anyWork = 32 << 20

// maxPath is the longest part of a path that is read, in bytes.
const maxPath = 4096

// Find calls found for each of the addresses, which are sorted and in a relocatable object those of
// elffile.Section.Base, with the file and line of the code there, as far as that is known. It may
// call it again for an address that several tables have: the last call counts. After an error, what
// was found before is sound; the error says what could not be read, or what would have been too much.
func Find(f *elffile.File, addrs []uint64, found func(i int, file string, line int)) error {
	x := &finder{f: f, addrs: addrs, found: found, work: anyWork + f.Size}
	return x.run()
}

// A finder is the work of Find.
type finder struct {
	f     *elffile.File
	addrs []uint64
	found func(i int, file string, line int)
	work  uint64 // that may still be done

	info, abbrev, line, str, lineStr, ranges, rngLists, addr, strOffsets *section

	head *reader      // of .debug_info
	root abbreviation // that was looked up last
}

// An Error says what could not be read, and where.
type Error struct {
	Section string
	Off     uint64 // in bytes, in the section when it is decompressed
	Msg     string
}

func (e *Error) Error() string { return fmt.Sprintf("%s+%#x: %s", e.Section, e.Off, e.Msg) }

// A section is one of debug information. A nil one stands for none.
type section struct {
	name string
	size uint64
	data []byte // all of it, or nil if it is read when it is asked for

	f   *elffile.File
	off uint64 // in the file
}

// open finds a section by its name without .debug_.
func (x *finder) open(name string) (*section, error) {
	s := x.f.Section(".debug_" + name)
	if s == nil {
		s = x.f.Section(".zdebug_" + name)
	}
	if s == nil || !s.HasBytes() {
		return nil, nil
	}
	size, err := x.f.UncompressedSize(s)
	if err != nil {
		return nil, err
	}
	out := &section{name: s.Name, size: size, f: x.f, off: s.Off}
	if size != s.Size || s.Compressed() || x.f.IsObject() {
		out.data, err = x.f.ReadDebug(s)
	}
	return out, err
}

func (x *finder) run() error {
	for _, s := range []struct {
		name string
		to   **section
	}{
		{"info", &x.info}, {"abbrev", &x.abbrev}, {"line", &x.line}, {"str", &x.str}, {"line_str", &x.lineStr},
		{"ranges", &x.ranges}, {"rnglists", &x.rngLists}, {"addr", &x.addr}, {"str_offsets", &x.strOffsets},
	} {
		var err error
		if *s.to, err = x.open(s.name); err != nil {
			return err
		}
		if x.info == nil {
			return ErrNone
		}
	}
	x.head = x.at(x.info, 0, x.info.size, 4096)
	for off := uint64(0); off < x.info.size; {
		u, err := x.unit(off)
		if err != nil {
			return err
		}
		if off = u.end; !u.wanted {
			continue
		}
		if err := x.lines(u); err != nil {
			return err
		}
	}
	return nil
}

// A reader reads a part of a section. The first error sticks; reads after it return zeros.
type reader struct {
	x    *finder
	s    *section
	off  uint64 // in the section, of b[0]
	b    []byte
	end  uint64 // of what may be read
	wide bool   // 64-bit DWARF
	err  error

	window uint64 // how many bytes are read ahead
}

// perReader is for how many bytes each reader counts.
const perReader = 256

// at returns a reader of a section, which is not nil, from off up to end, which reads so many bytes ahead.
func (x *finder) at(s *section, off, end, window uint64) *reader {
	r := &reader{x: x, s: s, off: off, end: end, window: window}
	if off > end || end > s.size {
		r.fail("up to %#x, and the section has %d bytes", end, s.size)
		return r
	}
	if r.spend(perReader); r.err == nil {
		r.fill(window)
	}
	return r
}

// seek goes to another place, with the end of the section as its end.
func (r *reader) seek(off uint64) {
	if n := off - r.off; off >= r.off && n <= uint64(len(r.b)) {
		r.b = r.b[n:]
	} else {
		r.b = nil
	}
	r.off, r.end, r.wide = off, r.s.size, false
	if r.s.data != nil {
		r.fill(0)
	}
}

// limit makes the end an earlier one.
func (r *reader) limit(end uint64) {
	r.end = end
	r.b = r.b[:min(uint64(len(r.b)), end-r.off)]
}

// fill makes n bytes from the current offset on, if there are as many, the next ones.
func (r *reader) fill(n uint64) {
	n = min(n, r.end-r.off)
	if r.s.data != nil {
		r.b = r.s.data[r.off:r.end]
		return
	}
	r.b = make([]byte, n)
	if err := r.s.f.ReadInto("section "+r.s.name, r.b, r.s.off+r.off); err != nil {
		r.err = err
		r.b = nil
	}
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = &Error{r.s.name, r.off, fmt.Sprintf(format, args...)}
		r.b = nil
	}
}

// take returns the next n bytes, or nil after an error.
func (r *reader) take(n uint64) []byte {
	if r.err != nil {
		return nil
	}
	if n > r.end-r.off {
		r.fail("%d bytes where %d are left", n, r.end-r.off)
		return nil
	}
	if r.spend(n); r.err != nil {
		return nil
	}
	if n > uint64(len(r.b)) {
		r.fill(max(n, r.window))
		if r.err != nil {
			return nil
		}
	}
	b := r.b[:n]
	r.b, r.off = r.b[n:], r.off+n
	return b
}

// spend counts n bytes as read.
func (r *reader) spend(n uint64) {
	if r.x.work < n {
		r.fail("units share so much of the sections that more than %d bytes would have to be read", anyWork+r.x.f.Size)
		return
	}
	r.x.work -= n
}

// skip passes over n bytes.
func (r *reader) skip(n uint64) {
	if n > r.end-r.off && r.err == nil {
		r.fail("%d bytes where %d are left", n, r.end-r.off)
	}
	if r.err != nil {
		return
	}
	r.spend(1)
	r.off += n
	r.b = r.b[min(n, uint64(len(r.b))):]
}

func (r *reader) more() bool { return r.err == nil && r.off < r.end }

func (r *reader) u8() byte {
	if len(r.b) > 0 && r.x.work > 0 { // for most
		b := r.b[0]
		r.b, r.off = r.b[1:], r.off+1
		r.x.work--
		return b
	}
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

// uint returns an unsigned integer of n bytes, at most 8.
func (r *reader) uint(n int) uint64 {
	b := r.take(uint64(n))
	if b == nil {
		return 0
	}
	switch o := r.x.f.Order; n {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(o.Uint16(b))
	case 3:
		if o == binary.BigEndian {
			return uint64(b[0])<<16 | uint64(b[1])<<8 | uint64(b[2])
		}
		return uint64(b[2])<<16 | uint64(b[1])<<8 | uint64(b[0])
	case 4:
		return uint64(o.Uint32(b))
	case 8:
		return o.Uint64(b)
	}
	r.fail("integers of %d bytes; 1, 2, 3, 4 or 8 were expected", n)
	return 0
}

// offset returns an offset in a section.
func (r *reader) offset() uint64 {
	if r.wide {
		return r.uint(8)
	}
	return r.uint(4)
}

// length returns the length that a unit begins with, and notes whether it is 64-bit DWARF.
func (r *reader) length() uint64 {
	n := r.uint(4)
	if n == 0xffffffff {
		r.wide = true
		return r.uint(8)
	}
	if n >= 0xfffffff0 {
		r.fail("length %#x is reserved", n)
	}
	return n
}

func (r *reader) uleb() uint64 {
	var v uint64
	for shift := 0; shift < 70; shift += 7 {
		b := r.u8()
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return v
		}
	}
	r.fail("LEB128 number longer than 64 bits")
	return 0
}

func (r *reader) sleb() int64 {
	var v int64
	for shift := 0; shift < 70; shift += 7 {
		b := r.u8()
		v |= int64(b&0x7f) << shift
		if b < 0x80 {
			if shift < 57 && b&0x40 != 0 {
				v |= -1 << (shift + 7)
			}
			return v
		}
	}
	r.fail("LEB128 number longer than 64 bits")
	return 0
}

// text returns a string that ends in a zero, of at most maxPath bytes.
func (r *reader) text() string {
	var b []byte
	for r.err == nil {
		if len(r.b) == 0 {
			if r.off >= r.end {
				r.fail("text without an end")
				break
			}
			r.fill(r.window)
			continue
		}
		part := r.b[:min(len(r.b), maxPath)]
		i := bytes.IndexByte(part, 0)
		if i >= 0 {
			part = part[:i]
		}
		b = append(b, part...)
		r.take(uint64(len(part)))
		if i >= 0 {
			r.take(1)
			return string(b)
		}
		if len(b) > maxPath {
			r.fail("text of more than %d bytes", maxPath)
		}
	}
	return ""
}

// textAt returns the string at an offset of a section.
func (x *finder) textAt(s *section, off uint64) (string, error) {
	if s == nil {
		return "", nil // it is in another file
	}
	r := x.at(s, off, s.size, 256)
	t := r.text()
	return t, r.err
}

// join puts a path together.
func join(dir, name string) string {
	if dir == "" || path.IsAbs(name) {
		return name
	}
	return path.Join(dir, name)
}

// first returns the index of the first address that is not before addr.
func (x *finder) first(addr uint64) int {
	return sort.Search(len(x.addrs), func(i int) bool { return x.addrs[i] >= addr })
}

// has reports whether one of the addresses lies in a range.
func (x *finder) has(begin, end uint64) bool {
	i := x.first(begin)
	return i < len(x.addrs) && x.addrs[i] < end
}

// Package dwline finds the source lines of addresses in a file's DWARF debug information (versions 2 to 5).
// It reads the first entry of each unit in .debug_info, and the line tables of units that have one of the addresses.
// It does not read functions, split units (.dwo files) and supplementary files (dwz).
//
// The standard library's debug/dwarf is not hardened against damaged files: kilobytes can take gigabytes, or hours.
// On the debug information of CPython 3.13 (20 MB) it also needs 51 MB of memory and 116 ms for 1,000 addresses, this
// package 10 MB and 76 ms (2026-11). Here all that is read is counted.
package dwline

import (
	"errors"
	"fmt"
	"path"
	"slices"

	"cfi2sframe/elffile"
)

// ErrNone is returned for files without debug information.
var ErrNone = errors.New("no debug information")

// anyWork bounds what is read of any file, in bytes of its sections, each as often as it is read. The size of the file
// is added to it.
const anyWork = 32 << 20

// Find calls report for the addresses with the file and line of their code, if they are known. The addresses are
// sorted, and in a relocatable object those of elffile.Section.Base. Several tables can have an address: the last
// call counts. After an error the lines reported before are sound; the error says what could not be read.
func Find(f *elffile.File, addrs []uint64, report func(i int, file string, line int)) error {
	x := &finder{f: f, addrs: addrs, report: report, work: anyWork + f.Size, sections: make(map[string]*section)}
	info := x.section("info")
	if info == nil && x.err == nil {
		return ErrNone
	}
	for r := x.at(info, 0); r.more(); {
		if u := x.unit(r); u.has(attrStmtList) && u.hasAddress() {
			u.lines()
		}
	}
	return x.err
}

// A finder is the work of Find.
type finder struct {
	f        *elffile.File
	addrs    []uint64
	report   func(i int, file string, line int)
	work     uint64 // left
	sections map[string]*section
	err      error // the first one; after it reads return zeros
}

// An Error says what could not be read, and where.
type Error struct {
	Section string
	Off     uint64 // in bytes, in the section when it is decompressed
	Msg     string
}

func (e *Error) Error() string { return fmt.Sprintf("%s+%#x: %s", e.Section, e.Off, e.Msg) }

// failAt notes what is wrong at an offset of a section.
func (x *finder) failAt(s *section, off uint64, format string, args ...any) {
	if x.err == nil {
		x.err = &Error{s.name, off, fmt.Sprintf(format, args...)}
	}
}

// A section is one of debug information.
type section struct {
	name string
	size uint64
	data []byte // all of it, or nil if it is read piece by piece
	off  uint64 // in the file
}

// section returns a section by its name without .debug_, or nil if the file does not have it.
func (x *finder) section(name string) *section {
	if s, ok := x.sections[name]; ok || x.err != nil {
		return s
	}
	s := x.f.Section(".debug_" + name)
	if s == nil {
		s = x.f.Section(".zdebug_" + name)
	}
	var out *section
	if s != nil && s.HasBytes() {
		out = &section{name: s.Name, off: s.Off}
		out.size, x.err = x.f.UncompressedSize(s)
		if whole := out.size != s.Size || s.Compressed() || x.f.IsObject(); whole && x.err == nil {
			out.data, x.err = x.f.ReadDebug(s)
		}
	}
	x.sections[name] = out
	return out
}

// textAt returns the string at an offset of a section, or "" if that is in another file.
func (x *finder) textAt(section string, off uint64) string {
	s := x.section(section)
	if s == nil {
		return ""
	}
	return x.at(s, off).text()
}

// entry returns the n-th integer of the given size from an offset of a section on.
func (x *finder) entry(section string, base, n uint64, size int) uint64 {
	s := x.section(section)
	switch {
	case s == nil:
		x.failAt(x.section("info"), 0, "a section that is referred to is missing")
		return 0
	case base > s.size || n > (s.size-base)/uint64(max(size, 1)):
		x.failAt(s, base, "entry %d lies outside", n)
	}
	return x.at(s, base+n*uint64(size)).uint(size)
}

// first returns the index of the first address that is not before addr.
func (x *finder) first(addr uint64) int {
	i, _ := slices.BinarySearch(x.addrs, addr)
	return i
}

// anyIn reports whether one of the addresses lies in a range.
func (x *finder) anyIn(begin, end uint64) bool {
	i := x.first(begin)
	return i < len(x.addrs) && x.addrs[i] < end
}

// join puts a path together.
func join(dir, name string) string {
	if dir == "" || path.IsAbs(name) {
		return name
	}
	return path.Join(dir, name)
}

// Package dwline finds the source lines of addresses in a file's DWARF debug information (versions 2 to 5).
// It reads the first entry of each unit in .debug_info, and its line table. It does not read functions, split units
// (.dwo files) and supplementary files (dwz).
//
// The standard library's debug/dwarf is for sound files. It holds all sections in memory, allocates what headers
// demand, and reads again what units share: a damaged file of some kilobytes takes gigabytes, or hours. Here all that
// is read is counted.
package dwline

import (
	"errors"
	"path"

	"cfi2sframe/elffile"
)

// ErrNone is returned for files without debug information.
var ErrNone = errors.New("no debug information")

// anyWork, added to the size of the file, bounds the bytes that are read. Those that are read again count again.
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
		if table, dir := r.unit(); table.form != 0 {
			x.lines(table.n, dir)
		}
	}
	return x.err
}

// A finder has the state of Find.
type finder struct {
	f        *elffile.File
	addrs    []uint64
	report   func(i int, file string, line int)
	work     uint64 // left
	sections map[string]*section
	err      error // the first one; after it, reads return zeros
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

// text returns a value that is a string, or "" if that is in another file or found by an index.
func (x *finder) text(v value) string {
	names := map[form]string{formStrp: "str", formLineStrp: "line_str"}
	if name := names[v.form]; name != "" {
		if s := x.section(name); s != nil {
			return x.at(s, v.n).cstring()
		}
	}
	return v.inline
}

// join returns the path of a name in a directory.
func join(dir, name string) string {
	if dir == "" || path.IsAbs(name) {
		return name
	}
	return path.Join(dir, name)
}

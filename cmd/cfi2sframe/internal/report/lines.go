package report

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"path"
	"slices"

	"cfi2sframe/elffile"
)

// Source lines are in the line tables of .debug_line (DWARF 5, section 6.2), which are read one after the other without
// .debug_info. Until version 4 tables do not have the directory of the compilation, and names can be relative to it.
//
// The standard library's debug/dwarf is for sound files: a table of 36 bytes makes it allocate 4 GiB (Go 1.26).

var errNoLines = errors.New("no line tables")

// Bounds on the work that tables can ask for beyond reading their bytes once. Names count by their lengths.
const (
	anyLineWork = 32 << 20 // and the size of the file
	perAddress  = 16
	perEntry    = 40
	maxPath     = 4096 // bytes of a part of a path
)

// A lineReader reads the line tables of a file. After an error it reads zeros.
type lineReader struct {
	f        *elffile.File
	addrs    []uint64
	found    func(i int, file string, line int)
	work     uint64 // that is left
	sections map[string][]byte

	table int    // offset of the current table in .debug_line
	b     []byte // that is left of it
	err   error
}

// findLines calls found for the addresses with the file and line of their code, if they are known. The addresses are
// sorted, and in a relocatable object those of elffile.Section.Base. Several tables can have an address: the last call
// counts. After an error the lines found before are sound.
func findLines(f *elffile.File, addrs []uint64, found func(i int, file string, line int)) error {
	r := lineReader{f: f, addrs: addrs, found: found, work: anyLineWork + f.Size, sections: make(map[string][]byte)}
	section := r.section("line")
	if section == nil && r.err == nil {
		return errNoLines
	}
	for r.err == nil && r.table < len(section) {
		r.b = section[r.table:]
		table := r.take(r.uint(4))
		next := len(section) - len(r.b)
		r.b = table
		r.read()
		r.table = next
	}
	return r.err
}

// section returns the contents of a section of debug information, or nil if the file does not have it.
func (r *lineReader) section(name string) []byte {
	if b, ok := r.sections[name]; ok {
		return b
	}
	s := r.f.Section(".debug_" + name)
	if s == nil {
		s = r.f.Section(".zdebug_" + name)
	}
	if s != nil && s.HasBytes() && r.err == nil {
		r.sections[name], r.err = r.f.ReadDebug(s)
	}
	return r.sections[name]
}

// fail notes the first error, with its place.
func (r *lineReader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("table at .debug_line+%#x: %s", r.table, fmt.Sprintf(format, args...))
	}
}

// spend counts work.
func (r *lineReader) spend(n int) {
	if uint64(n) > r.work {
		r.fail("the tables ask for more work than %d bytes", anyLineWork+r.f.Size)
		return
	}
	r.work -= uint64(n)
}

// take returns the next n bytes, or nil if the table does not have them.
func (r *lineReader) take(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.fail("%d bytes where %d are left", n, len(r.b))
	}
	if r.err != nil {
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

// uint returns an unsigned integer of n bytes.
func (r *lineReader) uint(n uint64) uint64 {
	var v uint64
	for i, b := range r.take(n) {
		if r.f.Order == binary.BigEndian {
			v = v<<8 | uint64(b)
		} else {
			v |= uint64(b) << (8 * i)
		}
	}
	return v
}

func (r *lineReader) uleb() uint64 { return r.leb(false) }

// leb returns a LEB128 number, whose sign is extended if it has one.
func (r *lineReader) leb(signed bool) uint64 {
	var v uint64
	for shift := 0; shift < 70; shift += 7 {
		b := r.uint(1)
		v |= b & 0x7f << shift
		if b < 0x80 {
			if signed && b&0x40 != 0 {
				v |= ^uint64(0) << (shift + 7)
			}
			return v
		}
	}
	r.fail("LEB128 number longer than 64 bits")
	return 0
}

// text returns a string that ends in a zero.
func (r *lineReader) text() []byte {
	text := r.cut(r.b, 0)
	r.take(uint64(len(text)) + 1)
	return text
}

// cut returns the string at an offset of a section or table.
func (r *lineReader) cut(b []byte, off uint64) []byte {
	b = b[min(off, uint64(len(b))):]
	b = b[:min(len(b), maxPath+1)]
	n := bytes.IndexByte(b, 0)
	if n < 0 {
		r.fail("a name without an end, or of more than %d bytes", maxPath)
	}
	if r.err != nil {
		return nil
	}
	return b[:n]
}

// A lineName is a directory, or a file with the index of its directory.
type lineName struct {
	text []byte
	dir  uint64
}

// oldNames reads the directories or files of a header until version 4. They count from 1.
func (r *lineReader) oldNames(files bool) []lineName {
	names := make([]lineName, 1)
	for {
		n := lineName{text: r.text()}
		if len(n.text) == 0 {
			return names
		}
		if files {
			n.dir = r.uleb()
			r.uleb() // time
			r.uleb() // size
		}
		r.spend(perEntry)
		names = append(names, n)
	}
}

// names reads the directories or files of a header of version 5, after the fields that each has.
func (r *lineReader) names() []lineName {
	const path, directoryIndex = 1, 2 // DW_LNCT_*
	type field struct{ content, form uint64 }
	var fields []field
	for n := r.uint(1); n > 0; n-- {
		fields = append(fields, field{r.uleb(), r.uleb()})
	}
	var names []lineName
	for n := r.uleb(); n > 0 && r.err == nil; n-- {
		r.spend(perEntry + len(fields))
		var name lineName
		for _, f := range fields {
			switch text, number := r.value(f.form); f.content {
			case path:
				name.text = text
			case directoryIndex:
				name.dir = number
			}
		}
		names = append(names, name)
	}
	return names
}

// value reads a value of a form (DWARF 5, section 7.5.6).
func (r *lineReader) value(form uint64) (text []byte, number uint64) {
	switch form {
	case 0x08: // DW_FORM_string
		text = r.text()
	case 0x0e: // DW_FORM_strp
		text = r.cut(r.section("str"), r.uint(4))
	case 0x1f: // DW_FORM_line_strp
		text = r.cut(r.section("line_str"), r.uint(4))
	case 0x0b: // DW_FORM_data1
		number = r.uint(1)
	case 0x05, 0x06, 0x07: // DW_FORM_data2, data4, data8
		number = r.uint(2 << (form - 0x05))
	case 0x1e: // DW_FORM_data16
		r.take(16)
	case 0x0f: // DW_FORM_udata
		number = r.uleb()
	case 0x09: // DW_FORM_block
		r.take(r.uleb())
	default:
		r.fail("form %#x is not known", form)
	}
	return text, number
}

// A lineProgram is a line number program with its header.
type lineProgram struct {
	*lineReader
	minLength, lineRange, opcodeBase uint64
	lineBase                         int8
	operands                         []byte // how many each standard opcode has
	dirs, files                      []lineName

	now, last lineRow // the current row, and the one before it
	open      bool    // last belongs to the same sequence
	next      int     // index of the first address that is not before last
	discarded bool    // the linker discarded the code of the sequence, which begins at 0
}

// A lineRow is a row of a line table.
type lineRow struct{ addr, file, line uint64 }

// read reads the current table, from its version on.
func (r *lineReader) read() {
	version := r.uint(2)
	if version < 2 || version > 5 {
		return
	}
	if version == 5 {
		r.take(2) // sizes of addresses and segments
	}
	header := r.take(r.uint(4))
	instructions := r.b
	r.b = header
	p := lineProgram{lineReader: r, minLength: r.uint(1)}
	if version >= 4 {
		r.take(1) // operations of an instruction: 1 on all machines that SFrame is for
	}
	r.take(1) // whether rows are statements
	p.lineBase, p.lineRange, p.opcodeBase = int8(r.uint(1)), r.uint(1), r.uint(1)
	if p.lineRange == 0 {
		r.fail("line range 0")
	}
	p.operands = r.take(max(p.opcodeBase, 1) - 1)
	if version == 5 {
		p.dirs, p.files = r.names(), r.names()
	} else {
		p.dirs, p.files = r.oldNames(false), r.oldNames(true)
	}
	r.b = instructions
	for p.reset(); len(r.b) > 0 && r.err == nil; {
		p.step()
	}
}

// reset begins a sequence.
func (p *lineProgram) reset() { p.now, p.open, p.discarded = lineRow{file: 1, line: 1}, false, false }

// step executes an instruction (DWARF 5, section 7.22).
func (p *lineProgram) step() {
	op := p.uint(1)
	if op >= p.opcodeBase {
		n := op - p.opcodeBase
		p.now.addr += p.minLength * (n / p.lineRange)
		p.now.line += n%p.lineRange + uint64(p.lineBase)
		p.emit()
		return
	}
	switch op {
	case 0: // extended
		p.extended(p.take(p.uleb()))
	case 1: // DW_LNS_copy
		p.emit()
	case 2: // DW_LNS_advance_pc
		p.now.addr += p.minLength * p.uleb()
	case 3: // DW_LNS_advance_line
		p.now.line += p.leb(true)
	case 4: // DW_LNS_set_file
		p.now.file = p.uleb()
	case 8: // DW_LNS_const_add_pc
		p.now.addr += p.minLength * ((255 - p.opcodeBase) / p.lineRange)
	case 9: // DW_LNS_fixed_advance_pc
		p.now.addr += p.uint(2)
	default:
		for range p.operands[op-1] {
			p.uleb()
		}
	}
}

// extended executes an extended instruction.
func (p *lineProgram) extended(b []byte) {
	switch {
	case len(b) == 0:
	case b[0] == 2: // DW_LNE_set_address
		after := p.b
		p.b = b[1:]
		p.now.addr = p.uint(uint64(len(p.b)))
		p.b, p.discarded = after, p.now.addr == 0
	case b[0] == 1: // DW_LNE_end_sequence
		p.emit()
		p.reset()
	}
}

// emit adds a row to the table. The one before it ends here.
func (p *lineProgram) emit() {
	if !p.open || p.now.addr < p.last.addr {
		p.next, _ = slices.BinarySearch(p.addrs, p.now.addr)
	}
	for ; p.next < len(p.addrs) && p.addrs[p.next] < p.now.addr && p.err == nil; p.next++ {
		p.spend(perAddress)
		line := p.last.line
		if p.discarded || line == 0 || line > math.MaxInt32 { // 0: code of no line
			continue
		}
		file := p.path(p.last.file)
		if p.spend(len(file)); p.err == nil && file != "" {
			p.found(p.next, file, int(line))
		}
	}
	p.last, p.open = p.now, true
}

// path returns the path of a file, or "" if the tables do not have it.
func (p *lineProgram) path(file uint64) string {
	if file >= uint64(len(p.files)) || len(p.files[file].text) == 0 {
		return ""
	}
	name := string(p.files[file].text)
	for _, dir := range []uint64{p.files[file].dir, 0} { // the first is that of the compilation
		if dir < uint64(len(p.dirs)) && len(p.dirs[dir].text) > 0 && !path.IsAbs(name) {
			name = path.Join(string(p.dirs[dir].text), name)
		}
	}
	return name
}

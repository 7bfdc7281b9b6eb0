package dwline

import (
	"math"
	"slices"
)

// Opcodes of line number programs (DWARF 5, section 7.22).
const (
	lnsExtended = iota
	lnsCopy
	lnsAdvancePC
	lnsAdvanceLine
	lnsSetFile
	lnsSetColumn
	lnsNegateStmt
	lnsSetBasicBlock
	lnsConstAddPC
	lnsFixedAdvancePC

	lneEndSequence = 1
	lneSetAddress  = 2
)

// Contents of entries in tables of files and directories (DWARF 5, section 7.22).
const (
	lnctPath           = 1
	lnctDirectoryIndex = 2
)

// A program is a line number program with its header.
type program struct {
	*reader
	minLength  uint64
	lineBase   int64
	lineRange  uint64
	opcodeBase byte
	operands   []byte // how many the standard opcodes have
	dirs       []pathEntry
	files      []pathEntry
	paths      map[uint64]string // of files

	now, last row  // the current row, and the one before it
	open      bool // last belongs to the same sequence
	next      int  // index of the first address that is not before last
	discarded bool // the linker discarded the code of this sequence: it begins at 0
}

// A row is one of the line table.
type row struct {
	addr       uint64
	file, line uint64
}

// A pathEntry is a directory, or a file with the index of its directory.
type pathEntry struct {
	name value
	dir  uint64
}

// Bytes that are counted for an address with a line, and for an entry of a table: an entry takes 40 in memory, and may
// take none in the file.
const (
	perLine  = 16
	perEntry = 40
)

// lines reads the line table at an offset, of a unit that was compiled in a directory.
func (x *finder) lines(off uint64, compDir value) {
	s := x.section("line")
	if s == nil {
		return // it is in another file
	}
	p := program{reader: x.at(s, off), paths: make(map[uint64]string)}
	p.end = p.length("line table")
	if p.version = int(p.uint(2)); p.version < 2 || p.version > 5 {
		return
	}
	for p.header(compDir); p.more(); {
		p.step()
	}
}

// header reads the rest of the header, and goes to the first instruction. Up to version 4, compDir is the first of the
// directories.
func (p *program) header(compDir value) {
	if p.version == 5 {
		p.skip(2) // sizes of addresses and segments
	}
	size := p.offset()
	if size > p.end-p.off {
		p.fail("header of %d bytes, and %d are left", size, p.end-p.off)
	}
	begin, end := p.off+size, p.end
	p.minLength = uint64(p.u8())
	if p.version >= 4 {
		p.u8() // operations of an instruction: 1 on all machines that SFrame is for
	}
	p.u8() // whether rows are statements
	p.lineBase, p.lineRange, p.opcodeBase = int64(int8(p.u8())), uint64(p.u8()), p.u8()
	if p.lineRange == 0 {
		p.fail("line range 0")
	}
	p.operands = []byte{0}
	for len(p.operands) < int(p.opcodeBase) {
		p.operands = append(p.operands, p.u8())
	}
	if begin < p.off {
		p.fail("instructions at %#x, inside the header", begin)
	}
	p.end = begin
	if p.version == 5 {
		p.dirs, p.files = p.table(), p.table()
	} else {
		p.dirs, p.files = p.oldTable(false), p.oldTable(true)
		p.dirs[0].name = compDir
	}
	p.skip(p.end - p.off)
	p.end = end
	p.reset()
}

// reset begins a sequence.
func (p *program) reset() { p.now, p.open, p.discarded = row{file: 1, line: 1}, false, false }

// step executes an instruction.
func (p *program) step() {
	op := p.u8()
	if op >= p.opcodeBase {
		n := uint64(op - p.opcodeBase)
		p.now.addr += p.minLength * (n / p.lineRange)
		p.now.line += uint64(p.lineBase + int64(n%p.lineRange))
		p.emit()
		return
	}
	switch op {
	case lnsExtended:
		p.extended()
	case lnsCopy:
		p.emit()
	case lnsAdvancePC:
		p.now.addr += p.minLength * p.uleb()
	case lnsAdvanceLine:
		p.now.line += p.leb(true)
	case lnsSetFile:
		p.now.file = p.uleb()
	case lnsConstAddPC:
		p.now.addr += p.minLength * (uint64(255-p.opcodeBase) / p.lineRange)
	case lnsFixedAdvancePC:
		p.now.addr += p.uint(2)
	default:
		for range p.operands[op] {
			p.uleb()
		}
	}
}

// extended executes an extended instruction.
func (p *program) extended() {
	n := p.uleb()
	if n == 0 {
		return
	}
	if n > p.end-p.off {
		p.fail("instruction of %d bytes, and %d are left", n, p.end-p.off)
		return
	}
	switch op := p.u8(); {
	case op == lneSetAddress && n > 1 && n <= 9:
		p.now.addr = p.uint(int(n - 1))
		p.discarded = p.now.addr == 0
		return
	case op == lneSetAddress:
		p.fail("address of %d bytes", n-1)
	case op == lneEndSequence:
		p.emit()
		p.reset()
	}
	p.skip(n - 1)
}

// emit adds a row to the table. The one before it ends here.
func (p *program) emit() {
	if p.open && p.last.addr < p.now.addr {
		for ; p.next < len(p.addrs) && p.addrs[p.next] < p.now.addr && !p.discarded; p.next++ {
			p.spend(perLine)
			file := p.path(p.last.file)
			if p.err != nil {
				return
			}
			if file != "" && p.last.line > 0 && p.last.line <= math.MaxInt32 { // 0: code of no line
				p.report(p.next, file, int(p.last.line))
			}
		}
	} else if !p.open || p.now.addr < p.last.addr {
		p.next, _ = slices.BinarySearch(p.addrs, p.now.addr)
	}
	p.last, p.open = p.now, true
}

// path returns the path of a file, or "" if the tables do not have it.
func (p *program) path(file uint64) string {
	path, ok := p.paths[file]
	if !ok && file < uint64(len(p.files)) {
		f := p.files[file]
		if name := p.text(f.name); name != "" {
			path = p.dir(0)
			if f.dir > 0 {
				path = join(path, p.dir(f.dir))
			}
			path = join(path, name)
		}
		p.paths[file] = path
	}
	return path
}

// dir returns a directory, or "" if the table does not have it. The first is that of the compilation.
func (p *program) dir(n uint64) string {
	if n < uint64(len(p.dirs)) {
		return p.text(p.dirs[n].name)
	}
	return ""
}

// oldTable reads the directories or files of a header up to version 4. They count from 1.
func (p *program) oldTable(files bool) []pathEntry {
	out := make([]pathEntry, 1)
	for p.err == nil {
		e := pathEntry{name: p.value(formString)}
		if e.name.inline == "" {
			break
		}
		if files {
			e.dir = p.uleb()
			p.uleb() // time
			p.uleb() // size
		}
		p.spend(perEntry)
		out = append(out, e)
	}
	return out
}

// table reads the directories or files of a header of version 5.
func (p *program) table() []pathEntry {
	type field struct {
		kind uint64
		form form
	}
	fields := make([]field, p.u8())
	for i := range fields {
		fields[i] = field{p.uleb(), form(p.uleb())}
	}
	var out []pathEntry
	for n := p.uleb(); n > 0 && p.err == nil; n-- {
		p.spend(perEntry + uint64(len(fields)))
		var e pathEntry
		for _, f := range fields {
			switch v := p.value(f.form); f.kind {
			case lnctPath:
				e.name = v
			case lnctDirectoryIndex:
				e.dir = v.n
			}
		}
		out = append(out, e)
	}
	return out
}

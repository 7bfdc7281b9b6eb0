package dwline

import "math"

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

// A program is a line number program with what its header says.
type program struct {
	*reader
	u          *unit
	version    int
	addrSize   int
	tables     uint64 // offset of the directories and files
	begin      uint64 // of the instructions
	minLength  uint64
	maxOps     uint64
	lineBase   int64
	lineRange  uint64
	opcodeBase byte
	operands   []byte // how many the standard opcodes have

	// The row in the making, and the one before it of the same sequence.
	now, last row
	open      bool // there is one before
	next      int  // index of the first address that is not before the last row

	hits []hit
}

// A row is one of the line table.
type row struct {
	addr, op   uint64
	file, line uint64
}

// A hit is an address, by its index, and what the table says of it.
type hit struct {
	addr       int
	file, line uint64
}

// For how many bytes each hit counts, and each entry of a table, which need not have any.
const (
	perHit   = 16
	perEntry = 16
)

// lines reads the line table of a unit.
func (x *finder) lines(u *unit) error {
	off := u.attrs[attrStmtList].n
	if x.line == nil {
		return nil // it is in another file
	}
	p := program{reader: x.at(x.line, off, x.line.size, 1<<16), u: u}
	if !p.header() {
		return p.err
	}
	for p.more() {
		p.step()
	}
	if p.err != nil || len(p.hits) == 0 {
		return p.err
	}
	return p.report()
}

// header reads the header up to the tables, and goes to the first instruction. It reports whether
// the version is known.
func (p *program) header() bool {
	n := p.length()
	if n > p.end-p.off {
		p.fail("line table of %d bytes, and %d are left", n, p.end-p.off)
	}
	if p.err != nil {
		return false
	}
	p.limit(p.off + n)
	p.version, p.addrSize = int(p.uint(2)), p.u.addrSize
	if p.version < 2 || p.version > 5 {
		return false
	}
	if p.version == 5 {
		p.addrSize = int(p.u8())
		p.u8() // of segments
	}
	size := p.offset()
	if size > p.end-p.off {
		p.fail("header of %d bytes, and %d are left", size, p.end-p.off)
	}
	p.begin = p.off + size
	p.minLength, p.maxOps = uint64(p.u8()), 1
	if p.version >= 4 {
		p.maxOps = max(uint64(p.u8()), 1)
	}
	p.u8() // whether rows are statements
	p.lineBase, p.lineRange, p.opcodeBase = int64(int8(p.u8())), uint64(p.u8()), p.u8()
	if p.lineRange == 0 {
		p.fail("line range 0")
	}
	p.operands = append([]byte{0}, p.take(uint64(max(p.opcodeBase, 1)-1))...)
	p.tables = p.off
	if p.err == nil && p.begin < p.off {
		p.fail("instructions at %#x, inside the header", p.begin)
	}
	p.skip(p.begin - p.off)
	p.reset()
	return p.err == nil
}

// reset begins a sequence.
func (p *program) reset() { p.now, p.open = row{file: 1, line: 1}, false }

// advance advances the address.
func (p *program) advance(n uint64) {
	if p.maxOps == 1 { // of nearly all machines
		p.now.addr += p.minLength * n
		return
	}
	op := p.now.op + n
	p.now.addr += p.minLength * (op / p.maxOps)
	p.now.op = op % p.maxOps
}

// step executes an instruction.
func (p *program) step() {
	op := p.u8()
	if op >= p.opcodeBase {
		n := uint64(op - p.opcodeBase)
		p.advance(n / p.lineRange)
		p.now.line += uint64(p.lineBase + int64(n%p.lineRange))
		p.emit(false)
		return
	}
	switch op {
	case lnsExtended:
		p.extended()
	case lnsCopy:
		p.emit(false)
	case lnsAdvancePC:
		p.advance(p.uleb())
	case lnsAdvanceLine:
		p.now.line += uint64(p.sleb())
	case lnsSetFile:
		p.now.file = p.uleb()
	case lnsConstAddPC:
		p.advance(uint64(255-p.opcodeBase) / p.lineRange)
	case lnsFixedAdvancePC:
		p.now.addr += p.uint(2)
		p.now.op = 0
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
	switch op := p.u8(); op {
	case lneEndSequence:
		p.emit(true)
		p.reset()
		p.skip(n - 1)
	case lneSetAddress:
		if n > 1 && n <= 9 {
			p.now.addr, p.now.op = p.uint(int(n-1)), 0
			return
		}
		p.fail("address of %d bytes", n-1)
	default:
		p.skip(n - 1)
	}
}

// emit adds a row to the table: the one before it ends here.
func (p *program) emit(end bool) {
	x := p.x
	if p.open && p.last.addr < p.now.addr {
		for ; p.next < len(x.addrs) && x.addrs[p.next] < p.now.addr; p.next++ {
			if p.spend(perHit); p.err != nil {
				return
			}
			p.hits = append(p.hits, hit{p.next, p.last.file, p.last.line})
		}
	} else if !p.open || p.now.addr < p.last.addr {
		p.next = x.first(p.now.addr)
	}
	p.last, p.open = p.now, !end
}

// A name is that of a file or a directory, and of a file the index of its directory.
type name struct {
	text string
	dir  uint64
}

// report names the files of the hits.
func (p *program) report() error {
	x, u := p.x, p.u
	comp, err := x.text(u, u.attrs[attrCompDir])
	if err != nil {
		return err
	}
	files := make(map[uint64]*name)
	for i := range p.hits {
		files[p.hits[i].file] = nil
	}
	dirs := make(map[uint64]*name)
	t := x.at(x.line, p.tables, p.begin, 4096)
	t.wide = p.wide
	if p.version < 5 {
		err = p.oldTables(t, dirs, files)
	} else {
		err = p.newTables(t, dirs, files)
	}
	if err != nil {
		return err
	}
	names := make(map[uint64]string)
	for i, f := range files {
		if f == nil {
			continue
		}
		dir := comp
		if d := dirs[f.dir]; d != nil {
			dir = join(comp, d.text)
		}
		names[i] = join(dir, f.text)
	}
	for _, h := range p.hits {
		if n := names[h.file]; n != "" && h.line > 0 && h.line <= math.MaxInt32 { // 0: code of no line
			x.found(h.addr, n, int(h.line))
		}
	}
	return nil
}

// oldTables reads directories and files up to version 4: those files that are asked for, and all
// directories that are short.
func (p *program) oldTables(t *reader, dirs, files map[uint64]*name) error {
	dirsAt := t.off
	for t.err == nil && t.textEnds() > 0 { // which files are in which comes later
	}
	for i := uint64(1); t.err == nil; i++ {
		_, wanted := files[i]
		var text string
		if wanted {
			if text = t.text(); text == "" {
				break
			}
		} else if t.textEnds() == 0 {
			break
		}
		dir := t.uleb()
		t.uleb() // time
		t.uleb() // size
		if wanted && t.err == nil {
			files[i] = &name{text, dir}
			dirs[dir] = nil
		}
	}
	if t.err != nil {
		return t.err
	}
	t = p.x.at(p.x.line, dirsAt, p.begin, 4096)
	for i := uint64(1); t.err == nil; i++ {
		if _, wanted := dirs[i]; !wanted {
			if t.textEnds() == 0 {
				break
			}
			continue
		}
		text := t.text()
		if text == "" {
			break
		}
		dirs[i] = &name{text: text}
	}
	return t.err
}

// newTables is oldTables for version 5.
func (p *program) newTables(t *reader, dirs, files map[uint64]*name) error {
	dirsAt := t.off
	p.table(t, nil)
	p.table(t, files)
	for _, f := range files {
		if f != nil {
			dirs[f.dir] = nil
		}
	}
	if t.err != nil {
		return t.err
	}
	t = p.x.at(p.x.line, dirsAt, p.begin, 4096)
	t.wide = p.wide
	p.table(t, dirs)
	return t.err
}

// table reads a table of version 5, and those of its names that are asked for.
func (p *program) table(t *reader, wanted map[uint64]*name) {
	type field struct {
		kind uint64
		form form
	}
	fields := make([]field, t.u8())
	for i := range fields {
		fields[i] = field{t.uleb(), form(t.uleb())}
	}
	n := t.uleb()
	for i := uint64(0); i < n && t.err == nil; i++ {
		_, keep := wanted[i]
		var e name
		t.spend(perEntry + uint64(len(fields)))
		for _, f := range fields {
			var v value
			if f.form == formString && !keep {
				t.textEnds()
				continue
			}
			v = t.value(p.version, p.addrSize, f.form, 0)
			switch {
			case !keep || t.err != nil:
			case f.kind == lnctPath:
				e.text, t.err = p.x.text(p.u, v)
			case f.kind == lnctDirectoryIndex:
				e.dir = v.n
			}
		}
		if keep {
			wanted[i] = &e
		}
	}
}

// textEnds passes over a string, and returns how long it is.
func (r *reader) textEnds() int {
	n := 0
	for r.err == nil && r.u8() != 0 {
		n++
	}
	return n
}

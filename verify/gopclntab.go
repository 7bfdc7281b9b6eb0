package verify

import (
	"debug/elf"
	"errors"
	"fmt"
	"strings"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
)

// A goTable is the table of a Go program, read a second time. The layout is that of runtime/symtab.go and
// runtime/runtime2.go of Go 1.18 to 1.27.
type goTable struct {
	abi
	file *elffile.File
	b    []byte // from the start of the table on
	old  bool   // of Go 1.18 or 1.19
	unit uint64 // bytes of an instruction, at least
	base uint64 // the address that functions count from
	res  *Result

	frames []goFrame // of the current function
	window []byte    // code from codeAt on
	codeAt uint64
	// Functions whose first instructions make the frame, and all with a frame.
	moves, framed int
}

// A goFrame is the size of the frame in bytes, from a pc on, relative to the function.
type goFrame struct {
	pc   uint64
	size int64
}

// errGo says that the functions of a table are not where the table says.
var errGo = errors.New("the rows of .gopclntab are not those of the code")

// checkGo compares the rows that come from the table of a Go program with that table and with the code.
func checkGo(t *cfi.Table, f *elffile.File, a abi, res *Result) error {
	var g *goTable
	for fn := range t.Functions() {
		if fn.Section() != ".gopclntab" {
			continue
		}
		if g == nil {
			var err error
			if g, err = findGo(fn, f, a); err != nil {
				return err
			}
			g.res = res
		}
		if what := g.function(fn); what != "" {
			res.mismatch(fn.Begin, fn.End, ".gopclntab: %s", what)
		}
	}
	if g != nil && 2*g.moves < g.framed {
		return fmt.Errorf("%w: of %d functions with frames, %d move the stack pointer where the table says", errGo,
			g.framed, g.moves)
	}
	return nil
}

// findGo finds the table by its magic number and a function of it.
func findGo(fn *cfi.Function, f *elffile.File, a abi) (*goTable, error) {
	for i := range f.Progs {
		p := &f.Progs[i]
		if elf.ProgType(p.Type) != elf.PT_LOAD {
			continue
		}
		var at []uint64
		skip := (8 - p.Vaddr%8) % 8
		if skip > p.Filesz {
			continue
		}
		err := f.ReadTable("segment", p.Off+skip, p.Filesz-skip, 8, func(b []byte, off uint64) error {
			for k := 0; k+8 <= len(b) && len(at) < 100; k += 8 {
				m := f.Order.Uint32(b[k:])
				if (m == 0xfffffff0 || m == 0xfffffff1) && f.Order.Uint16(b[k+4:]) == 0 && b[k+7] == 8 {
					at = append(at, off+uint64(k))
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		for _, off := range at {
			b, err := f.ReadAt("segment", off, p.Off+p.Filesz-off)
			if err != nil {
				return nil, err
			}
			g := &goTable{abi: a, file: f, b: b, old: f.Order.Uint32(b) == 0xfffffff0, unit: uint64(b[6])}
			if entry, ok := g.word(fn.Offset()); ok && len(b) > 72 {
				g.base = fn.Begin - uint64(entry)
				if g.listed(fn, entry) {
					return g, nil
				}
			}
		}
	}
	return nil, fmt.Errorf("%w: no table has the function at %#x", errGo, fn.Begin)
}

// listed reports whether the list of functions has one with such a record.
func (g *goTable) listed(fn *cfi.Function, entry uint32) bool {
	list := g.file.Order.Uint64(g.b[64:])
	for n := g.file.Order.Uint64(g.b[8:]); n > 0; n-- {
		e, ok := g.word(list)
		r, _ := g.word(list + 4)
		if !ok || e > entry {
			return false
		}
		if e == entry {
			return g.file.Order.Uint64(g.b[64:])+uint64(r) == fn.Offset()
		}
		list += 8
	}
	return false
}

func (g *goTable) word(off uint64) (uint32, bool) {
	if off > uint64(len(g.b)) || uint64(len(g.b))-off < 4 {
		return 0, false
	}
	return g.file.Order.Uint32(g.b[off:]), true
}

// decode decodes the pcsp table at an offset to g.frames, and returns the size of the function.
func (g *goTable) decode(off uint64) (end uint64, ok bool) {
	g.frames = g.frames[:0]
	number := func() (v uint64, ok bool) {
		for shift := 0; shift < 35 && off < uint64(len(g.b)); shift += 7 {
			c := g.b[off]
			off++
			v |= uint64(c%128) << shift
			if c < 128 {
				return v, true
			}
		}
		return 0, false
	}
	size := int64(-1)
	for {
		delta, ok := number()
		if !ok {
			return 0, false
		}
		if delta == 0 && len(g.frames) > 0 {
			return end, true
		}
		if delta%2 == 0 {
			size += int64(delta / 2)
		} else {
			size -= int64(delta/2) + 1
		}
		n, ok := number()
		if !ok {
			return 0, false
		}
		g.frames = append(g.frames, goFrame{end, size})
		end += n * g.unit
	}
}

// function compares the rows of a function with the table, and returns what is wrong.
func (g *goTable) function(fn *cfi.Function) string {
	off := fn.Offset()
	entry, _ := g.word(off)
	pcsp, ok := g.word(off + 16)
	if !ok || g.base+uint64(entry) > fn.Begin || off+44 > uint64(len(g.b)) {
		return "its record is elsewhere"
	}
	first := g.base + uint64(entry)
	end, ok := g.decode(g.file.Order.Uint64(g.b[56:]) + uint64(pcsp))
	if !ok || fn.End > first+end {
		return "its pcsp table ends before it"
	}
	flag := g.b[off+41]
	if g.old {
		flag = g.b[off+37]
	}
	if fn.SwitchesStack() {
		return g.onStacks(fn, first)
	}
	k, saved := 0, g.saves(first+end, first)
	for row := range fn.Rows() {
		if row.RA.Rule == cfi.RuleUndefined {
			if flag&1 == 0 && g.file.Entry != fn.Begin && !strings.HasPrefix(g.name(off), "_rt0_") {
				return "the caller is not known, but the table says that it is"
			}
			return ""
		}
		if flag&3 != 0 {
			return "it has no caller, or is on another stack"
		}
		for pc := row.Begin; pc < row.End; {
			for k+1 < len(g.frames) && g.frames[k+1].pc <= pc-first {
				k++
			}
			size := g.frames[k].size
			if what := g.row(&row, size, saved, pc-first); what != "" {
				return fmt.Sprintf("at %#x: frame of %d bytes, and %s: %v", pc, size, what, row.Rules)
			}
			if pc = row.End; k+1 < len(g.frames) {
				pc = min(pc, first+g.frames[k+1].pc)
			}
		}
	}
	return ""
}

// name returns the first bytes of a function's name.
func (g *goTable) name(record uint64) string {
	n, _ := g.word(record + 4)
	at := g.file.Order.Uint64(g.b[32:]) + uint64(n)
	if at >= uint64(len(g.b)) {
		return ""
	}
	return string(g.b[at:min(at+32, uint64(len(g.b)))])
}

// row compares a row with a size of the frame, and returns what is wrong.
func (g *goTable) row(row *cfi.Row, size int64, saved goSlot, pc uint64) string {
	ra := row.RA
	switch below := size + int64(g.entry); {
	case row.CFA.Rule != cfi.RuleCFA || row.CFA.Reg != g.sp || row.CFA.Offset != below ||
		row.SP.Rule != cfi.RuleArchitectural:
		return "another CFA"
	case g.fixedRA != 0 && (ra.Rule != cfi.RuleOffset || ra.Offset != int64(g.fixedRA)),
		g.fixedRA == 0 && size > 0 && (ra.Rule != cfi.RuleOffset || ra.Offset != -below),
		g.fixedRA == 0 && size == 0 && ra.Rule != cfi.RuleArchitectural:
		return "the return address elsewhere"
	}
	switch fp := row.FP; {
	case fp.Rule == cfi.RuleArchitectural:
	case fp.Rule != cfi.RuleOffset || !saved.ok || pc < saved.from || size < saved.size ||
		fp.Offset != -saved.below-int64(g.entry):
		return "the frame pointer not where the code saves it"
	}
	return ""
}

// A goSlot is where a function saves its caller's frame pointer.
type goSlot struct {
	ok    bool
	from  uint64 // pc relative to the function
	size  int64  // of the frame
	below int64  // bytes below the stack pointer that a call leaves
}

// maxPrologue is the number of instructions by which functions have a frame, and have saved the frame pointer.
const maxPrologue = 32

// saves executes the first instructions of a function, up to the one that saves the frame pointer. Jumps on the way
// lead to the code that makes the stack larger and begins anew. It counts whether the first frame is in the code.
func (g *goTable) saves(end, first uint64) (slot goSlot) {
	if len(g.frames) < 2 || g.frames[0].size != 0 || g.frames[1].size <= 0 {
		return slot
	}
	g.framed++
	code, st, at := g.code(first, min(end, first+8*maxPrologue)), prologue{}, uint64(0)
	for range maxPrologue {
		after := g.sizeAt(at)
		n := g.prologue(&st, code)
		if n == 0 || n > len(code) {
			break
		}
		at, code = at+uint64(n), code[n:]
		if size := g.sizeAt(at); size != after && at == g.frames[1].pc {
			if st.loaded {
				st.sp, st.loaded = size, false
			}
			if st.sp == size {
				g.moves++
			}
		}
		if st.saved && !st.loaded && at >= g.frames[1].pc {
			size := g.sizeAt(at)
			return goSlot{st.sp == size, at, size, st.slot + st.sp*st.relative}
		}
	}
	return slot
}

// sizeAt returns the size of the frame at a pc relative to the function.
func (g *goTable) sizeAt(pc uint64) (size int64) {
	for _, f := range g.frames {
		if f.pc > pc {
			break
		}
		size = f.size
	}
	return size
}

// A prologue is the state of a function after some instructions. Sizes are in bytes.
type prologue struct {
	sp       int64 // how far the stack pointer is below where it was
	loaded   bool  // the stack pointer was loaded from another register: how far is to be read in the table
	saved    bool  // the frame pointer is saved
	slot     int64 // how far below the first stack pointer
	relative int64 // 1 if slot counts from the stack pointer of the frame, otherwise 0
}

// code returns the code of a function.
func (g *goTable) code(begin, end uint64) []byte {
	n := end - begin
	if begin < g.codeAt || begin+n > g.codeAt+uint64(len(g.window)) {
		for size := uint64(1 << 16); ; size /= 2 {
			size = max(size, n)
			if off, ok := g.file.FileOffset(begin, size); ok {
				b, err := g.file.ReadAt("code", off, size)
				if err != nil {
					return nil
				}
				g.window, g.codeAt = b, begin
				break
			}
			if size == n {
				return nil
			}
		}
	}
	return g.window[begin-g.codeAt:][:n]
}

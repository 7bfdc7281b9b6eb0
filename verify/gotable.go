package verify

import (
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"go/version"
	"math"
	"slices"
	"strings"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
)

// ErrGo means that the functions of a table are not where the table says.
var ErrGo = errors.New("the rows of .gopclntab contradict the code")

// Go compares the rows from the table of a Go program with that table and with the code. For each function whose rows
// are not proved, it calls the callback wrong with the reason. An error, which may be ErrGo, concerns the whole table.
func Go(t *cfi.Table, f *elffile.File, wrong func(fn *cfi.Function, what string)) error {
	if !slices.ContainsFunc(t.Sources, func(s cfi.SourceInfo) bool { return s.Name == goSection }) {
		return nil
	}
	var g *goTable
	for fn := range t.Functions() {
		if fn.Section() != goSection || fn.Err() != nil {
			continue
		}
		if g == nil {
			var err error
			if g, err = findGo(t, fn, f); err != nil {
				return err
			}
		}
		if what := g.function(fn); what != "" {
			wrong(fn, what)
		}
	}
	if g != nil && 2*g.moves < g.framed {
		return fmt.Errorf("%w: %d of %d functions with frames move the stack pointer where the table says", ErrGo,
			g.moves, g.framed)
	}
	return nil
}

// A goTable is the table of a Go program, decoded independently of package gopclntab. Its layout is defined by
// runtime/symtab.go and runtime/runtime2.go of Go 1.18 to 1.27.
type goTable struct {
	abi
	file *elffile.File
	code codeReader
	b    []byte // contents of the file, starting with the table
	old  bool   // Go 1.18 or 1.19
	unit uint64 // minimum size of an instruction in bytes
	base uint64 // base address of functions
	// The garbage collector may shrink the stacks of goroutines that switched to another stack.
	shrinks bool

	// The current function:
	first  uint64 // its start according to the table
	frames goFrames
	slot   goSlot
	pushed int64 // bytes that its injected call pushes in addition to the return address

	// Number of functions whose first instructions set up the frame, and number of functions with a frame.
	moves, framed int
}

const (
	goSection = ".gopclntab"
	// Offsets in the table: of the number of functions, and of the offsets of names, pcsp tables and functions.
	goCount  = 8
	goNames  = 32
	goPCSP   = 56
	goList   = 64
	goHeader = 72
	goRecord = 44 // size in bytes of the relevant part of a function's record
)

// findGo finds the table by its magic number and by a function that it must list.
func findGo(t *cfi.Table, fn *cfi.Function, f *elffile.File) (*goTable, error) {
	g := &goTable{file: f, code: codeReader{file: f}, shrinks: true}
	for _, a := range abis {
		if a.machine == t.Machine && a.big == (t.Order == binary.BigEndian) {
			g.abi = a
		}
	}
	if g.entry == 0 && g.ra == 0 {
		return nil, fmt.Errorf("machine %v, %v, is unknown", t.Machine, t.Order)
	}
	// Go 1.26 does not move a stack that systemstack has left (isShrinkStackSafe in runtime/stack.go). In Go 1.23 to
	// 1.25, that holds only during an execution trace.
	if info, err := buildinfo.Read(f.Contents()); err == nil {
		release, _, _ := strings.Cut(info.GoVersion, " ")
		g.shrinks = version.Compare(release, "go1.26.0") < 0
	}
	for _, p := range elffile.Each(f.Progs) {
		skip := -p.Vaddr & 7
		if elf.ProgType(p.Type) != elf.PT_LOAD || skip > p.Filesz {
			continue
		}
		var places []uint64
		err := f.ReadTable("segment", p.Off+skip, p.Filesz-skip, 8, func(b []byte, off uint64) error {
			for ; len(b) >= 8 && len(places) < 100; b, off = b[8:], off+8 {
				if m := f.Order.Uint32(b); m&^1 == 0xfffffff0 && f.Order.Uint16(b[4:]) == 0 && b[7] == 8 {
					places = append(places, off)
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		for _, off := range places {
			if g.b, err = f.ReadAt("segment", off, p.Off+p.Filesz-off); err != nil {
				return nil, err
			}
			g.old, g.unit = f.Order.Uint32(g.b) == 0xfffffff0, uint64(g.b[6])
			entry, ok := g.word(fn.Offset())
			if g.base = fn.Begin - uint64(entry); ok && len(g.b) > goHeader && g.hasFunction(fn, entry) {
				return g, nil
			}
		}
	}
	return nil, fmt.Errorf("%w: no table contains the function at %#x", ErrGo, fn.Begin)
}

// hasFunction reports whether the list of functions contains a function with the given entry and the record of fn.
func (g *goTable) hasFunction(fn *cfi.Function, entry uint32) bool {
	list := g.long(goList)
	for i := range g.long(goCount) {
		e, ok := g.word(list + 8*i)
		record, _ := g.word(list + 8*i + 4)
		if !ok || e >= entry {
			return ok && e == entry && list+uint64(record) == fn.Offset()
		}
	}
	return false
}

// word returns the 4-byte number at an offset, if the table contains it.
func (g *goTable) word(off uint64) (uint32, bool) {
	if off > uint64(len(g.b)) || uint64(len(g.b))-off < 4 {
		return 0, false
	}
	return g.file.Order.Uint32(g.b[off:]), true
}

// long returns the 8-byte number at an offset in the header.
func (g *goTable) long(off int) uint64 { return g.file.Order.Uint64(g.b[off:]) }

// A goFrame holds the size in bytes that the frame has from a pc on. The pc is relative to the function.
type goFrame struct {
	pc   uint64
	size int64
}

// goFrames holds the frame sizes of a function. The first size applies from the start of the function.
type goFrames []goFrame

// sizeAt returns the size of the frame at a pc relative to the function.
func (f goFrames) sizeAt(pc uint64) (size int64) {
	for i := 0; i < len(f) && f[i].pc <= pc; i++ {
		size = f[i].size
	}
	return size
}

// readFrames decodes the pcsp table at an offset, stores it in g.frames, and returns the size of the function.
func (g *goTable) readFrames(off uint64) (end uint64, ok bool) {
	g.frames = g.frames[:0]
	b := g.b[min(off, uint64(len(g.b))):]
	size := int64(-1)
	for {
		delta, n := binary.Varint(b)
		if n > 0 && delta == 0 && len(g.frames) > 0 {
			return end, true
		}
		units, m := binary.Uvarint(b[max(n, 0):])
		if n <= 0 || m <= 0 || units > math.MaxUint32 {
			return 0, false
		}
		size += delta
		g.frames = append(g.frames, goFrame{end, size})
		end += units * g.unit
		b = b[n+m:]
	}
}

// function compares the rows of a function with the table and with its code, and returns what is wrong, or "".
func (g *goTable) function(fn *cfi.Function) string {
	off := fn.Offset()
	entry, _ := g.word(off)
	pcsp, ok := g.word(off + 16)
	if first := g.base + uint64(entry); !ok || off+goRecord > uint64(len(g.b)) ||
		first > fn.Begin && !(fn.Signal() && first == fn.Begin+1) {
		return "its record gives a different address"
	}
	g.first = g.base + uint64(entry)
	name := g.name(off)
	injected := slices.Contains(goInjected, name)
	switch {
	case fn.Signal() && !injected:
		return g.sigreturn(fn)
	case injected && !fn.Signal():
		return "signal handlers inject calls to it, but its rows do not show this"
	}
	end, ok := g.readFrames(g.long(goPCSP) + uint64(pcsp))
	if !ok || fn.End > g.first+end {
		return "its pcsp table ends before the function does"
	}
	if fn.SwitchesStack() && !injected {
		return g.onStacks(fn)
	}
	var wrong string
	if g.slot, wrong = g.runPrologue(end); wrong != "" {
		return wrong
	}
	g.pushed = 0
	if injected {
		g.pushed = g.injected
	}
	flag := g.b[off+41]
	if g.old {
		flag = g.b[off+37]
	}
	k := 0 // index of the frame at the start of the row
	for row := range fn.Rows() {
		switch {
		case row.RA.Rule == cfi.RuleUndefined && flag&1 == 0 && g.file.Entry != fn.Begin &&
			!strings.HasPrefix(name, "_rt0_"):
			return "rows mark the function as outermost, but the table does not"
		case row.RA.Rule == cfi.RuleUndefined, injected && row.CFA.Rule == cfi.RuleUndefined:
			continue
		case flag&2 != 0 || flag&1 != 0 && name != "runtime.sigtramp":
			return "it is outermost or switches stacks, but has rows with a caller"
		}
		for k+1 < len(g.frames) && g.first+g.frames[k+1].pc <= row.Begin {
			k++
		}
		for _, f := range g.frames[k:] {
			pc := max(row.Begin, g.first+f.pc)
			if pc >= row.End {
				break
			}
			if what := g.row(&row, f.size, pc-g.first); what != "" {
				return fmt.Sprintf("at %#x: frame of %d bytes, but %s: %v", pc, f.size, what, row.Rules)
			}
		}
	}
	return ""
}

// goInjected lists functions to which signal handlers inject calls: their return addresses do not follow call
// instructions (isInjected in runtime/traceback.go). On amd64, sigpanic0 jumps to sigpanic.
var goInjected = []string{"runtime.asyncPreempt", "runtime.debugCallV2", "runtime.sigpanic", "runtime.sigpanic0"}

// name returns the first bytes of a function's name.
func (g *goTable) name(record uint64) string {
	n, _ := g.word(record + 4)
	at := min(g.long(goNames)+uint64(n), uint64(len(g.b)))
	name, _, _ := bytes.Cut(g.b[at:min(at+32, uint64(len(g.b)))], []byte{0})
	return string(name)
}

// row compares a row with the size of the frame at a pc relative to the function, and returns what is wrong, or "".
func (g *goTable) row(row *cfi.Row, size int64, pc uint64) string {
	ra := row.RA
	switch below := size + int64(g.entry) + g.pushed; {
	case size < 0, row.CFA.Rule != cfi.RuleCFA || row.CFA.Reg != g.sp || row.CFA.Offset != below ||
		row.SP.Rule != cfi.RuleArchitectural:
		return "the CFA differs"
	case g.fixedRA != 0 && (ra.Rule != cfi.RuleOffset || ra.Offset != int64(g.fixedRA)),
		g.fixedRA == 0 && size > 0 && (ra.Rule != cfi.RuleOffset || ra.Offset != -below),
		g.fixedRA == 0 && size == 0 && ra.Rule != cfi.RuleArchitectural:
		return "the return address is elsewhere"
	}
	switch fp := row.FP; {
	case fp.Rule == cfi.RuleArchitectural:
	case fp.Rule != cfi.RuleOffset || !g.slot.ok || pc < g.slot.from || size < g.slot.size ||
		fp.Offset != -g.slot.below-int64(g.entry)-g.pushed:
		return "the frame pointer is not where the code saves it"
	}
	return ""
}

// sigreturn checks the rows of the function to which signal handlers return, and returns what is wrong, or "". Its
// first instructions are mov $15,%rax and syscall, and SP points to the ucontext from the kernel:
// arch/x86/include/uapi/asm/ucontext.h and sigcontext.h.
func (g *goTable) sigreturn(fn *cfi.Function) string {
	const rbp, rsp, rip = 40 + 8*10, 40 + 8*15, 40 + 8*16
	code := g.code.read(fn.Begin, fn.End-fn.Begin)
	if fn.Begin+1 == g.first {
		var int3 bool
		if code, int3 = bytes.CutPrefix(code, []byte{0xcc}); !int3 {
			return "its record gives a different address"
		}
	} else if fn.Begin != g.first {
		return "its record gives a different address"
	}
	if g.machine != elf.EM_X86_64 || !bytes.HasPrefix(code, []byte("\x48\xc7\xc0\x0f\x00\x00\x00\x0f\x05")) {
		return "signal frame, but not rt_sigreturn"
	}
	vm := machine{order: g.file.Order, pcReg: g.pc}
	sp := vm.reg(g.sp)
	for row := range fn.Rows() {
		at := [...]uint64{vm.load(sp + rsp), sp + rip, sp + rbp}
		for i, r := range []cfi.Rule{row.CFA, row.RA, row.FP} {
			v, err := vm.run(r.Expression)
			if r.Rule != cfi.RuleExpression || err != nil || v != at[i] {
				return "wrong register locations in a signal frame"
			}
		}
		if row.SP.Rule != cfi.RuleArchitectural {
			return "wrong stack pointer in a signal frame"
		}
	}
	return ""
}

// A goSlot says where a function saves its caller's frame pointer.
type goSlot struct {
	ok    bool
	from  uint64 // pc relative to the function
	size  int64  // of the frame
	below int64  // bytes below the stack pointer at function entry
}

// A prologue holds the state of a function after its first instructions. Sizes are in bytes.
type prologue struct {
	sp       int64 // decrement of the stack pointer so far
	loaded   bool  // the stack pointer was loaded from another register; the table gives the decrement
	saved    bool  // the frame pointer is saved
	slot     int64 // location in bytes below the initial stack pointer
	relative int64 // 1 if slot is relative to the stack pointer of the frame, otherwise 0
	skip     int64 // if the last instruction is a conditional branch: number of bytes that it may skip
	scratch  int64 // the value of r10 (s390x)
}

// A branch holds the target of a conditional branch, relative to the function, and the state there.
type branch struct {
	to uint64
	prologue
}

// runPrologue executes the first instructions of a function, up to the one that saves the frame pointer. Branches
// before that instruction lead to code that grows the stack and starts over. It returns the slot, or what is wrong, and
// counts functions with frames (g.framed) and those whose code sets up the first frame (g.moves).
func (g *goTable) runPrologue(end uint64) (slot goSlot, wrong string) {
	const longest = 32 // limit on instructions until the frame is set up and the frame pointer is saved
	if len(g.frames) < 2 || g.frames[0].size != 0 || g.frames[1].size <= 0 {
		return slot, ""
	}
	g.framed++
	code, st, at := g.code.read(g.first, min(end, 8*longest)), prologue{}, uint64(0)
	var branches []branch
	for range longest {
		before := g.frames.sizeAt(at)
		st.skip = 0
		n := 0
		if at < uint64(len(code)) {
			n = g.prologue(&st, code[at:])
		}
		if n == 0 { // the frame may start at the target of an earlier branch
			i := slices.IndexFunc(branches, func(b branch) bool { return b.to > at && b.to < uint64(len(code)) })
			if i < 0 || g.frames.sizeAt(branches[i].to) != branches[i].sp {
				break
			}
			at, st = branches[i].to, branches[i].prologue
			continue
		}
		at += uint64(n)
		if st.skip > 0 {
			branches = append(branches, branch{at + uint64(st.skip), st})
		}
		size := g.frames.sizeAt(at)
		if size != before && at == g.frames[1].pc {
			if st.loaded {
				st.sp, st.loaded = size, false
			}
			if st.sp != size {
				return slot, fmt.Sprintf("at %#x: frame of %d bytes in the table, but %d in the code", g.first+at,
					size, st.sp)
			}
			g.moves++
		}
		if st.saved && !st.loaded && at >= g.frames[1].pc {
			return goSlot{st.sp == size, at, size, st.slot + st.sp*st.relative}, ""
		}
	}
	return slot, ""
}

package verify

import (
	"debug/buildinfo"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/arch/x86/x86asm"

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
	// The collector of this release shrinks the stacks of goroutines that are in systemstack.
	shrinks bool

	frames []goFrame // of the current function
	pushed int64     // bytes that its injected call has on the stack besides the return address
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

// ErrGo says that the functions of a table are not where the table says.
var ErrGo = errors.New("the rows of .gopclntab are not those of the code")

// Go compares the rows that come from the table of a Go program with that table and with the code. It calls wrong for
// each function whose rows are not proved, with the reason. An error, which may be ErrGo, is about the whole table.
func Go(t *cfi.Table, f *elffile.File, wrong func(fn *cfi.Function, what string)) error {
	a, ok := machineABI(t)
	var g *goTable
	for fn := range t.Functions() {
		if fn.Section() != ".gopclntab" || fn.Err() != nil {
			continue
		}
		if !ok {
			return fmt.Errorf("machine %v, %v, is unknown", t.Machine, t.Order)
		}
		if g == nil {
			var err error
			if g, err = findGo(fn, f, a); err != nil {
				return err
			}
			g.shrinks = shrinks(f)
		}
		if what := g.function(fn); what != "" {
			wrong(fn, what)
		}
	}
	if g != nil && 2*g.moves < g.framed {
		return fmt.Errorf("%w: of %d functions with frames, %d move the stack pointer where the table says", ErrGo,
			g.framed, g.moves)
	}
	return nil
}

// machineABI returns the facts of the table's machine.
func machineABI(t *cfi.Table) (abi, bool) {
	for _, a := range abis {
		if a.machine == t.Machine && a.big == (t.Order == binary.BigEndian) {
			return a, true
		}
	}
	return abi{}, false
}

var goRelease = regexp.MustCompile(`^go1\.(\d{2})(\.| |$)`)

// shrinks reports whether the collector may move a stack that systemstack has left. Go 1.26 refuses it
// (isShrinkStackSafe in runtime/stack.go); Go 1.23 to 1.25 only while there is an execution trace.
func shrinks(f *elffile.File) bool {
	info, err := buildinfo.Read(f.Contents())
	if err != nil {
		return true
	}
	m := goRelease.FindStringSubmatch(info.GoVersion)
	if m == nil {
		return true
	}
	minor, _ := strconv.Atoi(m[1])
	return minor < 26
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
	return nil, fmt.Errorf("%w: no table has the function at %#x", ErrGo, fn.Begin)
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
	if !ok || off+44 > uint64(len(g.b)) {
		return "its record is elsewhere"
	}
	first := g.base + uint64(entry)
	name, _, _ := strings.Cut(g.name(off), "\x00")
	injected := slices.Contains(goInjected, name)
	switch {
	case fn.Signal() && !injected:
		return g.sigreturn(fn, first)
	case injected && !fn.Signal():
		return "signal handlers inject calls of it, and its rows do not say so"
	case first > fn.Begin:
		return "its record is elsewhere"
	}
	end, ok := g.decode(g.file.Order.Uint64(g.b[56:]) + uint64(pcsp))
	if !ok || fn.End > first+end {
		return "its pcsp table ends before it"
	}
	flag := g.b[off+41]
	if g.old {
		flag = g.b[off+37]
	}
	if fn.SwitchesStack() && !injected {
		return g.onStacks(fn, first, name)
	}
	saved, wrong := g.saves(first+end, first)
	if wrong != "" {
		return wrong
	}
	k := 0
	g.pushed = 0
	if injected {
		g.pushed = g.injected
	}
	for row := range fn.Rows() {
		if row.RA.Rule == cfi.RuleUndefined {
			if flag&1 == 0 && g.file.Entry != fn.Begin && !strings.HasPrefix(name, "_rt0_") {
				return "the caller is not known, but the table says that it is"
			}
			return ""
		}
		if injected && row.CFA.Rule == cfi.RuleUndefined {
			continue
		}
		if flag&2 != 0 || flag&1 != 0 && name != "runtime.sigtramp" {
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

// goInjected are functions whose calls signal handlers put into code: their return addresses do not follow calls
// (isInjected in runtime/traceback.go). On amd64 sigpanic0 leads to sigpanic.
var goInjected = []string{"runtime.asyncPreempt", "runtime.debugCallV2", "runtime.sigpanic", "runtime.sigpanic0"}

// sigreturn checks the rows of the function that signal handlers return to, and returns what is wrong. Its first
// instructions are the system call rt_sigreturn, and the stack pointer is at the ucontext that the kernel has made:
// arch/x86/include/uapi/asm/ucontext.h and sigcontext.h.
func (g *goTable) sigreturn(fn *cfi.Function, first uint64) string {
	const rtSigreturn, rbp, rsp, rip = 15, 40 + 8*10, 40 + 8*15, 40 + 8*16
	code := g.code(fn.Begin, fn.End)
	if fn.Begin+1 == first && len(code) > 0 && code[0] == 0xcc {
		code = code[1:]
	} else if fn.Begin != first {
		return "its record is elsewhere"
	}
	number, err := x86asm.Decode(code, 64)
	if g.machine != elf.EM_X86_64 || err != nil || number.Op != x86asm.MOV ||
		number.Args[0] != x86asm.RAX || number.Args[1] != x86asm.Imm(rtSigreturn) {
		return "a signal frame, and it is not rt_sigreturn"
	}
	if in, err := x86asm.Decode(code[number.Len:], 64); err != nil || in.Op != x86asm.SYSCALL {
		return "a signal frame, and it is not rt_sigreturn"
	}
	vm := machine{order: g.file.Order, pcReg: g.pc}
	sp := vm.reg(g.sp)
	for row := range fn.Rows() {
		at := [...]uint64{vm.load(sp + rsp), sp + rip, sp + rbp}
		for i, r := range []cfi.Rule{row.CFA, row.RA, row.FP} {
			v, err := vm.run(r.Expression)
			if r.Rule != cfi.RuleExpression || err != nil || v != at[i] {
				return "the registers of a signal frame are elsewhere"
			}
		}
		if row.SP.Rule != cfi.RuleArchitectural {
			return "the stack pointer of a signal frame is elsewhere"
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
	switch below := size + int64(g.entry) + g.pushed; {
	case size < 0, row.CFA.Rule != cfi.RuleCFA || row.CFA.Reg != g.sp || row.CFA.Offset != below ||
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
		fp.Offset != -saved.below-int64(g.entry)-g.pushed:
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
// lead to the code that makes the stack larger and begins anew. It counts whether the first frame is in the code, or
// returns what is wrong.
func (g *goTable) saves(end, first uint64) (slot goSlot, wrong string) {
	if len(g.frames) < 2 || g.frames[0].size != 0 || g.frames[1].size <= 0 {
		return slot, ""
	}
	g.framed++
	code, st, at := g.code(first, min(end, first+8*maxPrologue)), prologue{}, uint64(0)
	var branches []branch
	for range maxPrologue {
		after := g.sizeAt(at)
		st.skip = 0
		n := g.prologue(&st, code)
		if n > len(code) {
			break
		}
		if n == 0 { // the frame may begin where a branch before leads to
			i := slices.IndexFunc(branches, func(b branch) bool { return b.to > at && b.to-at < uint64(len(code)) })
			if i < 0 || g.sizeAt(branches[i].to) != branches[i].sp {
				break
			}
			at, code, st = branches[i].to, code[branches[i].to-at:], branches[i].prologue
			continue
		}
		at, code = at+uint64(n), code[n:]
		if st.skip > 0 {
			branches = append(branches, branch{at + uint64(st.skip), st})
		}
		if size := g.sizeAt(at); size != after && at == g.frames[1].pc {
			if st.loaded {
				st.sp, st.loaded = size, false
			}
			if st.sp != size {
				return slot, fmt.Sprintf("at %#x: frame of %d bytes in the table, and of %d by the code", first+at, size, st.sp)
			}
			g.moves++
		}
		if st.saved && !st.loaded && at >= g.frames[1].pc {
			size := g.sizeAt(at)
			return goSlot{st.sp == size, at, size, st.slot + st.sp*st.relative}, ""
		}
	}
	return slot, ""
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
	skip     int64 // bytes that a conditional branch, the last instruction, may skip
	scratch  int64 // the value of r10 (s390x)
}

// A branch is the target of a conditional branch, relative to the function, with the state there.
type branch struct {
	to uint64
	prologue
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

package verify

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/goprog"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/sframe"
)

// A goFunc is a function in a Go program.
type goFunc struct {
	name   string
	code   string // instructions in hexadecimal
	frames []int  // frame sizes in bytes, each followed by the number of bytes of code to which it applies
	flag   byte
}

// A goProgram is a Go program with a table.
type goProgram struct {
	p       platform
	release string // "" without build information
	old     bool   // the layout of Go 1.18 and 1.19
	entry   int    // index of the entry function plus 1
	fns     []goFunc
}

const goText = 0x10000

// file returns the program. The table's layout follows runtime/symtab.go and runtime2.go.
func (g *goProgram) file(t *testing.T) *elffile.File {
	t.Helper()
	const tableAddr, dataAddr, infoAddr = 0x40000, 0x80000, 0x90000
	o := g.p.order
	quantum := map[elf.Machine]byte{elf.EM_X86_64: 1, elf.EM_AARCH64: 4, elf.EM_S390: 2}[g.p.machine]
	var text, names, pctab, list, records []byte
	names, pctab = []byte{0}, []byte{0}
	for _, fn := range g.fns {
		code := bytesOf(t, fn.code)
		list = o.AppendUint32(o.AppendUint32(list, uint32(len(text))), uint32(8*(len(g.fns)+1)+len(records)))
		record := make([]byte, 44)
		o.PutUint32(record, uint32(len(text)))
		o.PutUint32(record[4:], uint32(len(names)))
		o.PutUint32(record[16:], uint32(len(pctab)))
		record[41] = fn.flag
		if g.old {
			record[41], record[37] = 0, fn.flag
		}
		records = append(records, record...)
		names = append(append(names, fn.name...), 0)
		value := -1
		for i := 0; i < len(fn.frames); i += 2 {
			pctab = binary.AppendVarint(pctab, int64(fn.frames[i]-value))
			pctab = binary.AppendUvarint(pctab, uint64(fn.frames[i+1])/uint64(quantum))
			value = fn.frames[i]
		}
		pctab = append(pctab, 0)
		text = append(text, code...)
	}
	list = o.AppendUint32(o.AppendUint32(list, uint32(len(text))), 0)
	end := goText + uint64(len(text))
	text = append(text, make([]byte, 128)...)
	const header = 72
	magic := uint32(0xfffffff1)
	if g.old {
		magic = 0xfffffff0
	}
	table := append(o.AppendUint32(nil, magic), 0, 0, quantum, 8)
	pctabAt := uint64(header + len(names))
	recordsAt := pctabAt + uint64(len(pctab))
	recordsAt += -recordsAt & 7
	for _, v := range []uint64{uint64(len(g.fns)), 0, goText, header, pctabAt, pctabAt, pctabAt, recordsAt} {
		table = o.AppendUint64(table, v)
	}
	table = append(append(table, names...), pctab...)
	table = append(table, make([]byte, recordsAt-uint64(len(table)))...)
	table = append(append(append(table, list...), records...), make([]byte, 8)...)
	module := make([]uint64, 23)
	module[0], module[13], module[14] = tableAddr, tableAddr+recordsAt, uint64(len(table))-recordsAt
	module[16], module[17] = module[13], uint64(len(g.fns)+1)
	module[20], module[21], module[22] = goText, end, goText
	var data []byte
	for _, v := range module {
		data = o.AppendUint64(data, v)
	}
	regions := []region{{name: ".text", addr: goText, code: text},
		{name: ".gopclntab", addr: tableAddr, code: table, flags: elf.SHF_ALLOC},
		{name: ".data", addr: dataAddr, code: data, flags: elf.SHF_ALLOC | elf.SHF_WRITE}}
	if g.release != "" {
		info := append([]byte("\xff Go buildinf:\x08\x02"), make([]byte, 16)...)
		info = append(append(info, byte(len(g.release))), g.release...)
		info = append(info, make([]byte, 64)...)
		regions = append(regions, region{name: ".go.buildinfo", addr: infoAddr, code: info,
			flags: elf.SHF_ALLOC | elf.SHF_WRITE})
	}
	f := fileOf(t, elf.ET_EXEC, g.p.machine, o, regions...)
	if g.entry > 0 {
		f.Entry = goText + uint64(o.Uint32(list[8*(g.entry-1):]))
	}
	return f
}

// wrongIn loads the rows of one program, g, checks them against another program, and returns the errors, keyed by index
// of the function.
func wrongIn(t *testing.T, g, other *goProgram) (map[int]string, error) {
	t.Helper()
	table := must.Get(cfi.Load(g.file(t), cfi.GoPCLNTab, nil))(t)
	if table.NumErrors > 0 || table.Len() != len(g.fns) {
		t.Fatalf("%d functions, errors %v", table.Len(), table.Errors)
	}
	wrong := make(map[int]string)
	err := Go(table, other.file(t), func(fn *cfi.Function, what string) {
		for i := range table.Len() {
			if table.At(i) == fn {
				wrong[i] = what
			}
		}
	})
	return wrong, err
}

// Go functions assembled by GNU as.
var (
	// push %rbp; mov %rsp,%rbp; sub $0x20,%rsp; nop; add $0x20,%rsp; pop %rbp; ret
	goAMD64 = goFunc{"main.f", "55 4889e5 4883ec20 90 4883c420 5d c3", []int{0, 1, 8, 7, 40, 5, 8, 1, 0, 1}, 0}
	// sub $0x30,%rsp; mov %rbp,0x28(%rsp); lea 0x28(%rsp),%rbp; mov 0x28(%rsp),%rbp; add $0x30,%rsp; ret
	goAMD64Old = goFunc{"main.old", "4883ec30 48896c2428 488d6c2428 488b6c2428 4883c430 c3", []int{0, 4, 48, 19, 0, 1},
		0}
	goLeaf = goFunc{"main.leaf", "90 c3", []int{0, 2}, 0}
	// cmp 0x10(%r14),%rsp; jbe; push %rbp; mov %rsp,%rbp; add $-128,%rsp; nop; sub $-128,%rsp; pop; ret; call; jmp
	goLarge = goFunc{"main.large", "493b6610 760e 55 4889e5 4883c480 90 4883ec80 5d c3 e800000000 ebe5",
		[]int{0, 7, 8, 7, 136, 5, 8, 1, 0, 8}, 0}
	// cmp $0,%rdi; jne; mov (%rdi),%rdi; ret; sub $0x30,%rsp; mov %rbp,0x28(%rsp); add $0x30,%rsp; ret
	goThunk = goFunc{"main.thunk", "4883ff00 7504 488b3f c3 4883ec30 48896c2428 4883c430 c3",
		[]int{0, 14, 48, 9, 0, 1}, 0}

	// str x30,[sp,#-48]!; stur x29,[sp,#-8]; sub x29,sp,#8; ldur x29,[sp,#-8]; ldr x30,[sp],#48; ret
	goAArch64 = goFunc{"main.f", "fe0f1df8 fd831ff8 fd2300d1 fd835ff8 fe0743f8 c0035fd6", []int{0, 4, 48, 16, 0, 4}, 0}
	// sub x20,sp,#0x200; stp x29,x30,[x20,#-8]; mov sp,x20; nop
	goAArch64Large = goFunc{"main.large", "f40308d1 9dfa3fa9 9f020091 1f2003d5", []int{0, 12, 512, 4}, 0}
	// sub x27,sp,#0x110; str x30,[x27]; mov sp,x27; stur x29,[sp,#-8]; nop
	goAArch64Go118 = goFunc{"main.large118", "fb4304d1 7e0300f9 7f030091 fd831ff8 1f2003d5", []int{0, 12, 272, 8}, 0}
	// sub sp,sp,#0x1f0; stur x29,[sp,#-8]; nop
	goAArch64Preempt = goFunc{"runtime.asyncPreempt", "ffc307d1 fd831ff8 1f2003d5", []int{0, 4, 496, 8}, 0}
	// stp x29,x30,[sp,#-280]; sub sp,sp,#272; nop
	goAArch64Debug = goFunc{"runtime.debugCallV2", "fdfb2ea9 ff4304d1 1f2003d5", []int{0, 8, 272, 4}, 0}

	// lay %r15,-48(%r15); aghi %r15,48; br %r14
	goS390X = goFunc{"main.f", "e3f0ffd0ff71 a7fb0030 07fe", []int{0, 6, 48, 4, 0, 2}, 0}
	// lay %r15,-48(%r15,%r0), with the registers exchanged
	goS390XIndex = goFunc{"main.index", "e3ff0fd0ff71 a7fb0030 07fe", []int{0, 6, 48, 4, 0, 2}, 0}
	// aghi %r15,-48; agfi %r15,48; br %r14
	goS390XShort = goFunc{"main.short", "a7fbffd0 c2f800000030 07fe", []int{0, 4, 48, 6, 0, 2}, 0}
	// agfi %r15,-70000; nopr
	goS390XLong = goFunc{"main.long", "c2f8fffeee90 0700", []int{0, 6, 70000, 2}, 0}
	// lgfi %r10,-48; la %r15,0(%r15,%r10); nopr
	goS390XLa = goFunc{"main.la", "c0a1ffffffd0 41ffa000 0700", []int{0, 10, 48, 2}, 0}

	// push %rbp; mov %rsp,%rbp; mov 0x38(%rdx),%rsp; call *%rdi; mov 0x38(%rax),%rsp; pop %rbp; ret
	goSystemstack = goFunc{"runtime.systemstack", "55 4889e5 488b6238 ffd7 488b6038 5d c3", []int{0, 1, 8, 14, 0, 1}, 2}
	// push %rbp; mov %rsp,%rbp; mov 0x38(%rdx),%rsp; call *%rdi; int3
	goMcall = goFunc{"runtime.mcall", "55 4889e5 488b6238 ffd7 cc", []int{0, 1, 8, 10}, 2}
	// mov $15,%rax; syscall; int3
	goSigreturn = goFunc{"runtime.sigreturn__sigaction", "48c7c00f000000 0f05 cc", []int{0, 10}, 0}
	goPadded    = goFunc{"main.padded", "90 c3 cc", []int{0, 2}, 0}
)

// TestGo checks programs whose rows match the table and the code, and programs in which the table or the code differs.
func TestGo(t *testing.T) {
	named := func(fn goFunc, name string) goFunc {
		fn.name = name
		return fn
	}
	flagged := func(fn goFunc, flag byte) goFunc {
		fn.flag = flag
		return fn
	}
	code := func(at int, hexadecimal string) func(*goFunc) {
		return func(fn *goFunc) {
			b := []byte(strings.ReplaceAll(fn.code, " ", ""))
			copy(b[2*at:], hexadecimal)
			fn.code = string(b)
		}
	}
	frame := func(i, v int) func(*goFunc) {
		return func(fn *goFunc) {
			fn.frames = slices.Clone(fn.frames)
			fn.frames[i] = v
		}
	}
	flag := func(v byte) func(*goFunc) { return func(fn *goFunc) { fn.flag = v } }
	name := func(v string) func(*goFunc) { return func(fn *goFunc) { fn.name = v } }
	const (
		stack   = "it is outermost or switches stacks, but has rows with a caller"
		caller  = "rows mark the function as outermost, but the table does not"
		signal  = "signal frame, but not rt_sigreturn"
		slot    = "but the frame pointer is not where the code saves it"
		keeps   = "row contradicts the code"
		sigName = "runtime.sigpanic"
	)
	for _, tt := range []struct {
		name   string
		p      platform
		fns    []goFunc
		change func(*goFunc) // changes the last function of the program that the rows are checked against
		want   string        // what the check then reports, or ""
	}{
		{"frames", amd64, []goFunc{goAMD64, goAMD64Old, goLeaf, goLarge, goThunk}, nil, ""},
		{"aarch64", aarch64, []goFunc{goAArch64, goAArch64Go118, goAArch64Preempt, goAArch64Debug, goAArch64Large}, nil,
			""},
		{"s390x", s390x, []goFunc{goS390X, goS390XIndex, goS390XShort, goS390XLong, goS390XLa,
			named(goS390X, sigName)}, nil, ""},
		{"a larger frame in the table", amd64, []goFunc{goLeaf, goAMD64}, frame(4, 48),
			"at 0x1000a: frame of 48 bytes, but the CFA differs"},
		{"a frame in the table later", amd64, []goFunc{goLeaf, goAMD64}, frame(3, 8),
			"at 0x1000a: frame of 8 bytes, but the CFA differs"},
		{"a smaller function in the table", amd64, []goFunc{goLeaf, goAMD64}, frame(5, 4),
			"its pcsp table ends before the function does"},
		{"no frame in the table", amd64, []goFunc{goLeaf, goAMD64}, frame(2, -1), "frame of -1 bytes, but the " +
			"CFA differs"},
		{"no push", amd64, []goFunc{goLeaf, goAMD64, goAMD64Old, goAMD64}, code(0, "90"),
			"at 0x1002a: frame of 8 bytes in the table, but 0 in the code"},
		{"push of a different register", amd64, []goFunc{goLeaf, goAMD64}, code(0, "53"),
			"at 0x10003: frame of 8 bytes, " + slot},
		{"a different frame in the code", amd64, []goFunc{goAMD64, goAMD64, goAMD64Old}, code(3, "38"),
			"at 0x10022: frame of 48 bytes in the table, but 56 in the code"},
		{"a different register saved", amd64, []goFunc{goLeaf, goAMD64Old}, code(6, "5c"),
			"at 0x1000b: frame of 48 bytes, " + slot},
		{"a different slot", amd64, []goFunc{goLeaf, goAMD64Old}, code(8, "20"), slot},
		{"saved later", amd64, []goFunc{goLeaf, goAMD64Old}, code(4, "909090909048896c2428"), slot},
		{"a jump before", amd64, []goFunc{goLeaf, goAMD64Old}, code(4, "eb03"), slot},
		{"a different target", amd64, []goFunc{goAMD64, goThunk}, code(5, "03"), slot},
		{"a different slot, aarch64", aarch64, []goFunc{goAArch64, goAArch64}, code(4, "fd031ff8"), slot},
		{"a different frame, aarch64", aarch64, []goFunc{goAArch64, goAArch64}, code(0, "fe0f1cf8"),
			"but 64 in the code"},
		{"a different slot, large, aarch64", aarch64, []goFunc{goAArch64, goAArch64Large}, code(4, "9dfa3ea9"), slot},
		{"a different write to x29, aarch64", aarch64, []goFunc{goAArch64, goAArch64}, code(4, "fd030091"), slot},
		{"a different frame, s390x", s390x, []goFunc{goS390X, goS390X, goS390X}, code(0, "e3f0ffc0ff71"),
			"but 64 in the code"},
		{"a different base, s390x", s390x, []goFunc{goS390X, goS390XIndex}, code(2, "1f"), "but 0 in the code"},
		{"a different frame by index, s390x", s390x, []goFunc{goS390X, goS390X, goS390XIndex}, code(0, "e3ff0fc0ff71"),
			"but 64 in the code"},

		{"no caller", amd64, []goFunc{goLeaf, goAMD64}, flag(1), stack},
		{"a different stack", amd64, []goFunc{goLeaf, goAMD64}, flag(2), stack},
		{"the signal handler", amd64, []goFunc{goLeaf, named(flagged(goAMD64, 1), "runtime.sigtramp")}, nil, ""},
		{"no longer the signal handler", amd64, []goFunc{goLeaf, named(flagged(goAMD64, 1), "runtime.sigtramp")},
			name("runtime.sigtramq"), stack},
		{"outermost", amd64, []goFunc{goLeaf, flagged(goAMD64, 1)}, nil, ""},
		{"not outermost", amd64, []goFunc{goLeaf, flagged(goAMD64, 1)}, flag(0), caller},
		{"the start", amd64, []goFunc{goLeaf, named(goLeaf, "_rt0_amd64")}, nil, ""},
		{"not the start", amd64, []goFunc{goLeaf, named(goLeaf, "_rt0_amd64")}, name("_rt1_amd64"), caller},

		{"injected", amd64, []goFunc{goLeaf, named(goAMD64, sigName)}, nil, ""},
		{"injected, aarch64", aarch64, []goFunc{goAArch64, named(goAArch64, sigName)}, nil, ""},
		{"not known as injected", amd64, []goFunc{goLeaf, named(goAMD64, "runtime.sigpanix")}, name(sigName),
			"signal handlers inject calls to it, but its rows do not show this"},
		{"not injected", amd64, []goFunc{goLeaf, named(goAMD64, sigName)}, name("runtime.sigpanix"), signal},
		{"a different frame of an injected call", amd64, []goFunc{goLeaf, named(goAMD64, sigName)}, frame(4, 48),
			"the CFA differs"},

		{"sigreturn", amd64, []goFunc{goLeaf, goSigreturn}, nil, ""},
		{"sigreturn after padding", amd64, []goFunc{goPadded, goSigreturn}, nil, ""},
		{"a different system call", amd64, []goFunc{goLeaf, goSigreturn}, code(3, "0e"), signal},
		{"no system call", amd64, []goFunc{goLeaf, goSigreturn}, code(7, "0f0b"), signal},

		{"systemstack", amd64, []goFunc{goLeaf, goSystemstack}, nil, ""},
		{"mcall", amd64, []goFunc{goLeaf, goMcall}, nil, ""},
		{"a stack switch, aarch64", aarch64, []goFunc{goAArch64, flagged(goAArch64, 2)}, nil, ""},
		{"a different frame pointer", amd64, []goFunc{goLeaf, goSystemstack}, code(8, "5dc3"), keeps},
		{"no push in systemstack", amd64, []goFunc{goLeaf, goSystemstack}, code(0, "90"), keeps},
		{"a different frame of systemstack", amd64, []goFunc{goLeaf, goSystemstack}, frame(2, 16), "the CFA differs"},
	} {
		g := goProgram{p: tt.p, release: "go1.26.8", fns: tt.fns}
		other := g
		if tt.change != nil {
			other.fns = slices.Clone(tt.fns)
			tt.change(&other.fns[len(tt.fns)-1])
		}
		for _, old := range []bool{false, true} { // the layout of Go 1.18 and 1.19
			g.old, other.old = old, old
			wrong, err := wrongIn(t, &g, &other)
			got, ok := wrong[len(tt.fns)-1]
			if err != nil || ok != (tt.want != "") || !strings.Contains(got, tt.want) || ok && len(wrong) > 1 ||
				!ok && len(wrong) > 0 {
				t.Errorf("%s, old %t: %q, error %v; want %q", tt.name, old, got, err, tt.want)
			}
		}
	}
}

// TestGoShrinks checks systemstack in programs built with Go releases whose garbage collector moves the stack that
// systemstack leaves, and in programs built with other releases.
func TestGoShrinks(t *testing.T) {
	g := goProgram{p: amd64, release: "go1.26.8", fns: []goFunc{goSystemstack, goAMD64}}
	for release, want := range map[string]string{"go1.26.8": "", "go1.26.0": "", "go1.27.1 X:jsonv2": "",
		"go1.25.9": "row contradicts the code", "go1.26rc1": "row contradicts the code",
		"devel go1.27-a": "row contradicts the code", "": "row contradicts the code"} {
		other := g
		other.release = release
		if wrong, err := wrongIn(t, &g, &other); err != nil || wrong[0] != want || len(wrong[1]) > 0 {
			t.Errorf("%q: %v, error %v; want %q", release, wrong, err, want)
		}
	}
}

// TestGoOther checks the rows of a program against other programs.
func TestGoOther(t *testing.T) {
	g := goProgram{p: amd64, fns: []goFunc{goAMD64, goAMD64Old, goLeaf}}
	for _, tt := range []struct {
		name  string
		other goProgram
		first string // what is wrong with the first function
		err   string
	}{
		{"entry", goProgram{p: amd64, entry: 1, fns: g.fns}, "", ""},
		{"different code", goProgram{p: amd64, fns: []goFunc{{"main.f", strings.Repeat("90", 15), goAMD64.frames, 0},
			{"main.old", strings.Repeat("90", 24), goAMD64Old.frames, 0}, goLeaf}},
			"at 0x10001: frame of 8 bytes in the table, but 0 in the code",
			"the rows of .gopclntab contradict the code: 0 of 2 functions with frames move the stack pointer"},
		{"fewer functions", goProgram{p: amd64, fns: g.fns[:1]}, "", "no table contains the function at 0x10000"},
		{"functions at different addresses", goProgram{p: amd64, fns: []goFunc{
			{"main.f", "90" + goAMD64.code, goAMD64.frames, 0}, goAMD64Old, goLeaf}}, "frame of 8 bytes in the table",
			"0 of 1 functions with frames move"},
		{"a different byte order", goProgram{p: s390x, fns: []goFunc{goS390X}}, "", "no table contains the function"},
	} {
		wrong, err := wrongIn(t, &g, &tt.other)
		if !strings.Contains(wrong[0], tt.first) || tt.first == "" && wrong[0] != "" ||
			(err != nil) != (tt.err != "") ||
			err != nil && (!strings.Contains(err.Error(), tt.err) || !errors.Is(err, ErrGo)) {
			t.Errorf("%s: %v, error %v; want %q, %q", tt.name, wrong, err, tt.first, tt.err)
		}
	}
	wrong, err := wrongIn(t, &g, &goProgram{p: amd64, fns: []goFunc{
		{"main.f", goAMD64.code + "90", goAMD64.frames, 0}, goAMD64Old, goLeaf}})
	if err != nil || wrong[1] != "its record gives a different address" {
		t.Errorf("%v, error %v", wrong, err)
	}
	table := must.Get(cfi.Load(g.file(t), cfi.GoPCLNTab, nil))(t)
	flagged := goProgram{p: amd64, fns: slices.Clone(g.fns)}
	flagged.fns[1].flag = 2
	const stack = "0x1000f-0x10027: .gopclntab: it is outermost or switches stacks, but has rows with a caller"
	res, err := Check(table, amd64.section(t, sframe.V2), flagged.file(t), Options{Keep: 2})
	if err != nil || res.Total != 1 || res.Mismatches[0].String() != stack {
		t.Errorf("%+v, error %v; want %q", res, err, stack)
	}
	res, err = Check(table, amd64.section(t, sframe.V2), (&goProgram{p: amd64, fns: g.fns[:1]}).file(t), Options{})
	if !errors.Is(err, ErrGo) {
		t.Errorf("%+v, error %v", res, err)
	}
	odd := g.file(t) // with segments that do not contain the table
	odd.Progs = append([]elf.Prog64{{}, {}}, odd.Progs...)
	odd.Progs[0].Filesz = 1 << 60
	odd.Progs[1].Type, odd.Progs[1].Vaddr, odd.Progs[1].Filesz = uint32(elf.PT_LOAD), 1, 6
	if _, err := findGo(table, table.At(2), odd); err != nil {
		t.Error(err)
	}
	outermost := goProgram{p: amd64, entry: 1, fns: g.fns}
	if wrong, err := wrongIn(t, &outermost, &g); err != nil || !strings.Contains(wrong[0], "but the table does not") {
		t.Errorf("%v, error %v", wrong, err)
	}
}

// TestGoPrograms expects no errors in real Go programs.
func TestGoPrograms(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64", "s390x"} {
		b := testfile.Read(t, goprog.Build(t, "CGO_ENABLED=0 GOARCH="+arch, "-ldflags=-s -w"))
		f := openImage(t, bytes.NewReader(b), len(b))
		table, err := cfi.Load(f, cfi.GoPCLNTab, nil)
		if err != nil || table.Len() < 1000 {
			t.Fatalf("%s: %d functions, error %v", arch, table.Len(), err)
		}
		if err := Go(table, f, func(fn *cfi.Function, what string) {
			t.Errorf("%s: function at %#x: %s", arch, fn.Begin, what)
		}); err != nil {
			t.Errorf("%s: %v", arch, err)
		}
	}
}

// TestGoRows checks handwritten rows of functions that switch stacks, and of sigreturn.
func TestGoRows(t *testing.T) {
	const frames = "\x55\x48\x89\xe5\x90\x5d\xc3" // push %rbp; mov %rsp,%rbp; nop; pop %rbp; ret
	const sigreturn = "\x48\xc7\xc0\x0f\x00\x00\x00\x0f\x05"
	stack := func(g *goTable, fn *cfi.Function) string { return g.onStacks(fn) }
	signal := func(g *goTable, fn *cfi.Function) string { return g.sigreturn(fn) }
	// advance_loc 1, def_cfa_offset 16, offset r6 at c-16; advance_loc 3, def_cfa r6+16
	framed := []byte{0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0c, 6, 16}
	// def_cfa_expression breg7 160, deref; expression r16 breg7 168; expression r6 breg7 120
	saved := []byte{0x0f, 4, 0x77, 0xa0, 1, 6, 0x10, 16, 3, 0x77, 0xa8, 1, 0x10, 6, 3, 0x77, 0xf8, 0}
	changed := func(b []byte, i int, v byte) []byte {
		b = slices.Clone(b)
		b[i] = v
		return b
	}
	for _, tt := range []struct {
		name         string
		check        func(*goTable, *cfi.Function) string
		code         string
		instructions []byte
		first        uint64
		want         string
	}{
		{"a frame", stack, frames[:5], framed, 0x1000, ""},
		{"the CFA differs", stack, frames[:5], changed(framed, 8, 24), 0x1000, "frame does not match the prologue"},
		{"a different slot", stack, frames[:5], changed(framed, 4, 3), 0x1000,
			"the frame pointer is not where the code saves it"},
		{"a different return address", stack, frames[:5], slices.Concat(framed, []byte{0x90, 3}), 0x1000,
			"frame does not match the prologue"},
		{"no frame pointer", stack, frames[:5], slices.Concat(framed, []byte{0xc6}), 0x1000,
			"frame does not match the prologue"},
		{"a different return address below SP", stack, frames[:5], slices.Concat([]byte{0x90, 2}, framed), 0x1000,
			"the return address is elsewhere"},
		{"a different size", stack, frames[:5], changed(framed, 2, 24), 0x1000, "the CFA differs"},
		{"no caller at the start", stack, frames[:5], []byte{0x07, 16}, 0x1000,
			"the CFA is not based on the stack pointer at the start of the function"},
		{"a different start", stack, frames[:5], framed, 0x1001, "unexpected rows for a function that switches stacks"},
		{"no code", stack, "", framed, 0x1000, "its code is not in the file"},

		{"sigreturn", signal, sigreturn, saved, 0x1000, ""},
		{"sigreturn after int3", signal, "\xcc" + sigreturn, saved, 0x1001, ""},
		{"sigreturn after nop", signal, "\x90" + sigreturn, saved, 0x1001, "its record gives a different address"},
		{"sigreturn two bytes after int3", signal, "\xcc" + sigreturn, saved, 0x1002,
			"its record gives a different address"},
		{"the CFA differs", signal, sigreturn, changed(saved, 3, 0xa8), 0x1000,
			"wrong register locations in a signal frame"},
		{"a different return address", signal, sigreturn, changed(saved, 10, 0xa0), 0x1000,
			"wrong register locations in a signal frame"},
		{"a different frame pointer", signal, sigreturn, changed(saved, 15, 0xf0), 0x1000,
			"wrong register locations in a signal frame"},
		{"a value", signal, sigreturn, changed(saved, 12, 0x16), 0x1000, "wrong register locations in a signal frame"},
		{"a stack pointer", signal, sigreturn, slices.Concat(saved, []byte{0x87, 2}), 0x1000,
			"wrong stack pointer in a signal frame"},
	} {
		g := &goTable{abi: abis[sframe.AMD64Little], file: fileOf(t, elf.ET_EXEC, elf.EM_X86_64, amd64.order),
			first: tt.first, frames: goFrames{{0, 0}, {1, 8}}}
		g.code = codeReader{g.file, elffile.Window{Addr: 0x1000, Data: []byte(tt.code)}}
		fn := amd64.cfi(t, function{begin: 0x1000, end: 0x1000 + max(uint64(len(tt.code)), 5),
			code: tt.instructions}).At(0)
		if got := tt.check(g, fn); got != tt.want {
			t.Errorf("%s: %q; want %q", tt.name, got, tt.want)
		}
	}
}

// TestGoRow checks rows that show only part of the frame.
func TestGoRow(t *testing.T) {
	sp := func(reg uint64, offset int64) cfi.Rule { return cfi.Rule{Rule: cfi.RuleCFA, Reg: reg, Offset: offset} }
	none, saved := cfi.Rule{Rule: cfi.RuleArchitectural}, cfi.Rule{Rule: cfi.RuleOffset, Offset: -8}
	a, b := goTable{abi: abis[sframe.AMD64Little]}, goTable{abi: abis[sframe.AArch64Little]}
	for _, tt := range []struct {
		g     *goTable
		size  int64
		rules cfi.Rules
		want  string
	}{
		{&a, 0, cfi.Rules{CFA: sp(7, 8), RA: saved}, ""},
		{&a, -1, cfi.Rules{CFA: sp(7, 7), RA: saved}, "the CFA differs"},
		{&b, 0, cfi.Rules{CFA: sp(31, 0), RA: none}, ""},
		{&b, 0, cfi.Rules{CFA: sp(31, 0), RA: saved}, "the return address is elsewhere"},
		{&b, 8, cfi.Rules{CFA: sp(31, 8), RA: saved}, ""},
		{&b, 8, cfi.Rules{CFA: sp(31, 8), RA: none}, "the return address is elsewhere"},
	} {
		tt.rules.FP, tt.rules.SP = none, none
		if got := tt.g.row(&cfi.Row{Rules: &tt.rules}, tt.size, 0); got != tt.want {
			t.Errorf("frame of %d bytes, %v: %q; want %q", tt.size, &tt.rules, got, tt.want)
		}
	}
}

// TestPrologue checks at which offset the first instructions of functions, assembled by GNU as, save the frame pointer.
func TestPrologue(t *testing.T) {
	const (
		frame  = "\x48\x83\xec\x30\x48\x89\x6c\x24\x28" // sub $0x30,%rsp; mov %rbp,0x28(%rsp)
		test   = "\x48\x83\xff\x00"                     // cmp $0,%rdi
		read   = "\x48\x8b\x3f\xc3"                     // mov (%rdi),%rdi; ret
		absent = "\x0f\x1f\x44\x00\x00"                 // nopl 0(%rax,%rax,1)
	)
	for _, tt := range []struct {
		name, code string
		begins     uint64 // the pc at which the table's frame starts
		slot       goSlot
		wrong      string
	}{
		{"immediately", frame, 4, goSlot{true, 9, 48, 8}, ""},
		// jne, as in racecallbackthunk
		{"after a branch over the end", test + "\x75\x04" + read + frame, 14, goSlot{true, 19, 48, 8}, ""},
		{"after two branches", test + "\x74\x06\x75\x04" + read + frame, 16, goSlot{true, 21, 48, 8}, ""},
		{"in unreachable code", test + "\x90\x90" + read + frame, 14, goSlot{}, ""},
		{"after a branch beyond it", test + "\x75\x0d" + read + frame + absent, 14, goSlot{}, ""},
		{"back", "\x90" + test + "\x75\xf9" + read + frame, 15, goSlot{}, ""},
		{"made smaller again", "\x48\x83\xec\x40\x48\x83\xc4\x10\x48\x89\x6c\x24\x28", 8, goSlot{true, 13, 48, 8}, ""},
		{"with 32-bit immediates", "\x48\x81\xec\x40\x00\x00\x00\x48\x81\xc4\x10\x00\x00\x00\x48\x89\x6c\x24\x28", 14,
			goSlot{true, 19, 48, 8}, ""},
		{"after a 16-bit push", "\x66\x55\x48\x83\xec\x28\x48\x89\x6c\x24\x20", 6, goSlot{}, ""},
		{"after pushes", "\x6a\x01\x68\x01\x00\x00\x00\xff\x37\x48\x83\xec\x18\x48\x89\x6c\x24\x10", 13,
			goSlot{true, 18, 48, 32}, ""},
		{"after a call", "\xe8\x00\x00\x00\x00" + frame, 9, goSlot{}, ""},
		{"after an indirect jump", "\xff\xe0" + frame, 6, goSlot{}, ""},
		{"after a pop", "\x58" + frame, 5, goSlot{}, ""},
		{"after rsp was set", "\x48\x89\xfc" + frame, 7, goSlot{}, ""},
		{"after rbp was set", "\x48\x89\xfd" + frame, 7, goSlot{}, ""},
		{"after comparisons of rsp", "\x49\x3b\x66\x10\x48\x81\xfc\x00\x01\x00\x00" + frame, 15,
			goSlot{true, 20, 48, 8}, ""},
		{"after an unknown instruction", "\x06\x90\x90" + frame, 7, goSlot{}, ""},
		{"saved with an index", "\x48\x83\xec\x30\x48\x89\x6c\x04\x28\xc3", 4, goSlot{}, ""},
		{"half of rbp saved", "\x48\x83\xec\x30\x89\x6c\x24\x28\xc3", 4, goSlot{}, ""},
		{"push in the last byte", "\x48\x83\xec\x30\xb8\x00\x00\x00\x55", 4, goSlot{}, ""},
		{"a different size", "\x48\x83\xec\x38\x48\x89\x6c\x24\x28", 4, goSlot{},
			"at 0x4: frame of 48 bytes in the table, but 56 in the code"},
	} {
		g := goTable{abi: abis[sframe.AMD64Little], code: codeReader{Window: elffile.Window{Data: []byte(tt.code)}},
			frames: goFrames{{0, 0}, {tt.begins, 48}}}
		if slot, wrong := g.runPrologue(uint64(len(tt.code))); slot != tt.slot || wrong != tt.wrong {
			t.Errorf("%s: %+v, %q; want %+v, %q", tt.name, slot, wrong, tt.slot, tt.wrong)
		}
	}
	for n, want := range []int{0, 0, 0, 0, 4} {
		if got := prologueAArch64(new(prologue), []byte("\x1f\x20\x03\xd5")[:n]); got != want {
			t.Errorf("%d bytes of an aarch64 instruction: %d; want %d", n, got, want)
		}
	}
}

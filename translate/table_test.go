package translate

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/amounts"
	"cfi2sframe/internal/plt"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/goprog"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/sframe"
)

// A testFunc is a function for which parse generates an FDE.
type testFunc struct {
	begin, size uint64
	code        []byte // after the CIE's instructions: CFA rsp+8, return address at CFA-8
}

// parse returns a table from .eh_frame on amd64, with code alignment 1 and data alignment -1.
func parse(t *testing.T, augmentation string, fns ...testFunc) *cfi.Table {
	t.Helper()
	var length []byte // of the augmentation data
	if augmentation != "" {
		length = []byte{0}
	}
	var f elftest.Frames
	cie := f.CIEOf(augmentation, 1, length, elftest.Sound)
	for _, fn := range fns {
		f.Entry(cie, f.Addresses(fn.begin, fn.size), length, fn.code)
	}
	table, err := cfi.Parse(elf.EM_X86_64, binary.LittleEndian, cfi.Section{Source: cfi.EHFrame, Data: f.B})
	if err != nil || table.Len() != len(fns) {
		t.Fatalf("%d functions of %d, errors %v, %v", table.Len(), len(fns), err, table.Errors)
	}
	return table
}

// A recorder is a sink that records its input.
type recorder struct {
	rows []sframe.Row
	num  map[sframe.Row]uint32
	fdes []sframe.FDE
	refs [][]sframe.Ref
	like []int // by FDE: the argument of Repeat, or -1
	fail int   // the call to Add that must fail, starting at 1
}

var errFull = errors.New("no room")

func (k *recorder) Row(r sframe.Row) uint32 {
	n, ok := k.num[r]
	if !ok {
		if k.num == nil {
			k.num = make(map[sframe.Row]uint32)
		}
		n = uint32(len(k.rows))
		k.rows, k.num[r] = append(k.rows, r), n
	}
	return n
}

func (k *recorder) Add(d sframe.FDE, refs []sframe.Ref) (int, error) {
	k.fdes, k.refs, k.like = append(k.fdes, d), append(k.refs, slices.Clone(refs)), append(k.like, -1)
	if len(k.fdes) == k.fail {
		return 0, errFull
	}
	return len(k.fdes) - 1, nil
}

func (k *recorder) Repeat(d sframe.FDE, n int) {
	k.fdes, k.refs, k.like = append(k.fdes, d), append(k.refs, k.refs[n]), append(k.like, n)
}

func (k *recorder) String() string {
	var b strings.Builder
	for i, d := range k.fdes {
		fmt.Fprintf(&b, "%#x+%#x", d.Start, d.Size)
		if d.PCMask {
			fmt.Fprintf(&b, " rep %d", d.RepSize)
		}
		if d.Signal {
			b.WriteString(" signal")
		}
		if n := k.like[i]; n >= 0 {
			fmt.Fprintf(&b, " like %d", n)
		}
		b.WriteByte(':')
		for _, r := range k.refs[i] {
			row := k.rows[r.Row]
			fmt.Fprintf(&b, " %#x %v", r.Start, row.CFA)
			if row.RA != (sframe.Rule{}) {
				fmt.Fprintf(&b, " ra %v", row.RA)
			}
			if row.FP != (sframe.Rule{}) {
				fmt.Fprintf(&b, " fp %v", row.FP)
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// pltCFA sets the CFA to GNU ld's expression for .plt: rsp + 8 + (((rip & 15) >= 11) << 3).
var pltCFA = []byte{0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22}

// TestFunctions translates functions to rows, or gaps with a reason.
func TestFunctions(t *testing.T) {
	fixed := func(uint64) uint64 { return 0 }
	by16 := func(uint64) uint64 { return 16 }
	push := []byte{0x41, 0x0e, 16} // advance 1, CFA rsp+16
	every := func(n int) (code []byte) {
		for i := range n {
			code = append(code, 0x41, 0x0e, byte(16+i%2*8))
		}
		return code
	}
	for _, tt := range []struct {
		name string
		opt  Options
		aug  string
		fns  []testFunc
		want string // expected FDEs
		gaps map[Reason]Sum
	}{
		{"identical functions", Options{}, "", []testFunc{{0x1000, 8, push}, {0x1010, 16, push}, {0x1020, 1, push},
			{0x1030, 2, push}}, "0x1000+0x8: 0x0 sp+8 0x1 sp+16\n0x1010+0x10 like 0: 0x0 sp+8 0x1 sp+16\n" +
			"0x1020+0x1: 0x0 sp+8\n0x1030+0x2 like 0: 0x0 sp+8 0x1 sp+16\n", nil},
		{"identical functions without instructions", Options{}, "", []testFunc{{0x1000, 8, push}, {0x1010, 8, nil},
			{0x1020, 4, nil}}, "0x1000+0x8: 0x0 sp+8 0x1 sp+16\n0x1010+0x8: 0x0 sp+8\n0x1020+0x4 like 1: 0x0 sp+8\n",
			nil},
		{"functions with the same rules", Options{}, "", []testFunc{{0x1000, 8, push},
			{0x1010, 8, []byte{0x42, 0x0e, 16, 0x41, 0x0e, 8}}},
			"0x1000+0x8: 0x0 sp+8 0x1 sp+16\n0x1010+0x8: 0x0 sp+8 0x2 sp+16 0x3 sp+8\n", nil},
		{"identical functions with a gap at the end", Options{Padding: []uint8{8, 8}}, "",
			[]testFunc{{0x1000, 8, []byte{0x41, 0x0d, 10}}, {0x1010, 8, []byte{0x41, 0x0d, 10}}},
			"0x1000+0x1: 0x0 sp+8\n0x1010+0x1: 0x0 sp+8\n", map[Reason]Sum{CFARegister: {2, 2, 14}}},
		{"a gap in the middle", Options{}, "", []testFunc{{0x1000, 8, []byte{0x41, 0x0d, 10, 0x42, 0x0d, 7}}},
			"0x1000+0x1: 0x0 sp+8\n0x1003+0x5: 0x0 sp+8\n", map[Reason]Sum{CFARegister: {1, 1, 2}}},
		{"a register and DRAP", Options{}, "",
			[]testFunc{{0x1000, 8, []byte{0x41, 0x0d, 10, 0x41, 0x0f, 3, 0x76, 0x78, 0x06, 0x41, 0x0c, 7, 8}}},
			"0x1000+0x1: 0x0 sp+8\n0x1003+0x5: 0x0 sp+8\n", map[Reason]Sum{DRAP: {1, 2, 2}}},
		{"adjacent gaps with the same rule are merged", Options{}, "",
			[]testFunc{{0x1000, 8, []byte{0x41, 0x0d, 10, 0x41, 0x86, 2, 0x41, 0xc6, 0x0c, 7, 8}}},
			"0x1000+0x1: 0x0 sp+8\n0x1003+0x5: 0x0 sp+8\n", map[Reason]Sum{CFARegister: {1, 1, 2}}},
		{"outside", Options{Outside: func(pc uint64) bool { return pc == 0x1000 }}, "",
			[]testFunc{{0x1000, 8, push}, {0x1008, 8, push}}, "0x1008+0x8: 0x0 sp+8 0x1 sp+16\n",
			map[Reason]Sum{OutsideText: {1, 1, 8}}},
		{"separate gaps with the same rule", Options{}, "",
			[]testFunc{{0x1000, 8, []byte{0x41, 0x0d, 10, 0x41, 0x0d, 7, 0x41, 0x0d, 10}}},
			"0x1000+0x1: 0x0 sp+8\n0x1002+0x1: 0x0 sp+8\n", map[Reason]Sum{CFARegister: {1, 2, 6}}},
		{"padding", Options{Padding: []uint8{8, 0, 3}}, "", []testFunc{{0x1000, 8, push}, {0x1010, 8, push},
			{0x1020, 8, push}}, "0x1000+0x10: 0x0 sp+8 0x1 sp+16\n0x1010+0x8 like 0: 0x0 sp+8 0x1 sp+16\n" +
			"0x1020+0xb like 0: 0x0 sp+8 0x1 sp+16\n", nil},
		{"padding up to the end of reach", Options{Reach: Reach{0x1000, 0x100a}, Padding: []uint8{3}}, "",
			[]testFunc{{0x1000, 8, push}}, "0x1000+0xb: 0x0 sp+8 0x1 sp+16\n", nil},
		{"padding out of reach", Options{Reach: Reach{0x1000, 0x1009}, Padding: []uint8{3}}, "",
			[]testFunc{{0x1000, 8, push}}, "0x1000+0x8: 0x0 sp+8 0x1 sp+16\n", nil},
		{"padding up to 4 GiB", Options{Padding: []uint8{1}}, "", []testFunc{{0x1000, 1<<32 - 1, nil}},
			"0x1000+0xffffffff: 0x0 sp+8\n", nil},
		{"padding up to 4 GiB less a byte", Options{Padding: []uint8{1}}, "", []testFunc{{1 << 33, 1<<32 - 2, nil}},
			"0x200000000+0xffffffff: 0x0 sp+8\n", nil},
		{"a signal frame in V2", Options{}, "zS", []testFunc{{0x1000, 8, push}}, "",
			map[Reason]Sum{SignalFrame: {1, 1, 8}}},
		{"a signal frame in V3", Options{Version: sframe.V3}, "zS", []testFunc{{0x1000, 8, push},
			{0x1008, 8, push}}, "0x1000+0x8 signal: 0x0 sp+8 0x1 sp+16\n" +
			"0x1008+0x8 signal like 0: 0x0 sp+8 0x1 sp+16\n", nil},
		{"out of reach", Options{Reach: Reach{0x1008, 0x1107}}, "", []testFunc{{0x1000, 8, nil}, {0x1008, 0x100, nil},
			{0x1108, 4, nil}}, "0x1008+0x100: 0x0 sp+8\n", map[Reason]Sum{TooFar: {2, 2, 12}}},
		{"a byte out of reach at the start", Options{Reach: Reach{0x1001, 0x2000}}, "", []testFunc{{0x1000, 8, nil}},
			"", map[Reason]Sum{TooFar: {1, 1, 8}}},
		{"a byte out of reach at the end", Options{Reach: Reach{0x1000, 0x1006}}, "", []testFunc{{0x1000, 8, nil}}, "",
			map[Reason]Sum{TooFar: {1, 1, 8}}},
		{"out of reach, partly without a caller", Options{Reach: Reach{0x2000, 0x2fff}}, "",
			[]testFunc{{0x1000, 8, []byte{0x41, 0x07, 0x10}}}, // DW_CFA_advance_loc: 1; DW_CFA_undefined: r16
			"", map[Reason]Sum{TooFar: {1, 1, 1}, Outermost: {1, 1, 7}}},
		{"of 4 GiB", Options{}, "", []testFunc{{0x1000, 1 << 32, nil}}, "", map[Reason]Sum{TooLarge: {1, 1, 1 << 32}}},
		{"malformed", Options{}, "", []testFunc{{0x1000, 8, []byte{0x3f}}}, "", map[Reason]Sum{Malformed: {1, 1, 8}}},
		{"too many rows", Options{}, "", []testFunc{{0x1000, maxRows + 7, every(maxRows - 1)}}, "",
			map[Reason]Sum{TooLarge: {1, 1, maxRows + 7}}},

		{"a PLT that does not move", Options{Moves: fixed}, "", []testFunc{{0x1000, 64, pltCFA}},
			"0x1000+0x40 rep 16: 0x0 sp+8 0xb sp+16\n", nil},
		{"a PLT moved by multiples of a block", Options{Moves: by16, Padding: []uint8{9}}, "",
			[]testFunc{{0x1000, 64, pltCFA}}, "0x1000+0x40 rep 16: 0x0 sp+8 0xb sp+16\n", nil},
		{"a PLT without PC-mask FDEs", Options{Moves: by16, NoPCMask: true, Padding: []uint8{9}}, "",
			[]testFunc{{0x1000, 32, pltCFA}}, "0x1000+0x20: 0x0 sp+8 0xb sp+16 0x10 sp+8 0x1b sp+16\n", nil},
		{"a PLT in V1", Options{Version: sframe.V1, Moves: by16}, "", []testFunc{{0x1000, 32, pltCFA}},
			"0x1000+0x20: 0x0 sp+8 0xb sp+16 0x10 sp+8 0x1b sp+16\n", nil},
		{"a PLT moved by any distance", Options{}, "", []testFunc{{0x1000, 64, pltCFA}}, "",
			map[Reason]Sum{CFAAddress: {1, 1, 64}}},
		{"a PLT moved by multiples of 8", Options{Moves: func(uint64) uint64 { return 8 }}, "",
			[]testFunc{{0x1000, 64, pltCFA}}, "", map[Reason]Sum{CFAAddress: {1, 1, 64}}},
		{"a PLT of a block and a half", Options{Moves: by16}, "", []testFunc{{0x1000, 24, pltCFA}},
			"0x1000+0x18: 0x0 sp+8 0xb sp+16 0x10 sp+8\n", nil},
		{"PLTs, and one that starts within a block and precedes other code", Options{Moves: by16}, "",
			[]testFunc{{0x1000, 32, pltCFA}, {0x1028, 72, slices.Concat(pltCFA, []byte{0x02, 56, 0x0c, 7, 8})}},
			"0x1000+0x20 rep 16: 0x0 sp+8 0xb sp+16\n0x1028+0x8: 0x0 sp+8 0x3 sp+16\n" +
				"0x1030+0x30 rep 16: 0x0 sp+8 0xb sp+16\n0x1060+0x10: 0x0 sp+8\n", nil},
		{"a PLT of one entry", Options{Moves: by16}, "", []testFunc{{0x1000, 16, pltCFA}},
			"0x1000+0x10: 0x0 sp+8 0xb sp+16\n", nil},
		{"a PLT of 1 MiB", Options{Moves: by16}, "", []testFunc{{0x100000, maxPLT, pltCFA}},
			"0x100000+0x100000 rep 16: 0x0 sp+8 0xb sp+16\n", nil},
		{"a PLT of 1 MiB and a byte", Options{Moves: by16}, "", []testFunc{{0x100000, maxPLT + 1, pltCFA}}, "",
			map[Reason]Sum{CFAExpression: {1, 1, maxPLT + 1}}},
		{"a PLT at the end of memory", Options{Moves: by16}, "", []testFunc{{1<<64 - 32, 31, pltCFA}},
			"0xffffffffffffffe0+0x1f: 0x0 sp+8 0xb sp+16 0x10 sp+8 0x1b sp+16\n", nil},
		{"a PLT with the return address undefined", Options{Moves: by16}, "",
			[]testFunc{{0x1000, 64, append(pltCFA[:len(pltCFA):len(pltCFA)], 0x07, 16)}},
			"", map[Reason]Sum{Outermost: {1, 1, 64}}},
		{"a PLT with the return address undefined in V3", Options{Version: sframe.V3, Moves: by16}, "",
			[]testFunc{{0x1000, 64, append(pltCFA[:len(pltCFA):len(pltCFA)], 0x07, 16)}},
			"0x1000+0x40: 0x0 none\n", nil},
		{"a PLT with the frame pointer undefined", Options{Moves: by16}, "",
			[]testFunc{{0x1000, 64, append(pltCFA[:len(pltCFA):len(pltCFA)], 0x07, 6)}},
			"", map[Reason]Sum{FPUndefined: {1, 1, 64}}},
		{"another CFA that depends on the pc", Options{Moves: fixed}, "",
			[]testFunc{{0x1000, 4, []byte{0x0f, 2, 0x80, 0}}}, "", map[Reason]Sum{CFAExpression: {1, 1, 4}}},
		{"the CFA is loaded from a pc-relative address", Options{Moves: fixed}, "",
			[]testFunc{{0x1000, 4, []byte{0x0f, 3, 0x80, 0, 0x06}}}, "", map[Reason]Sum{CFAExpression: {1, 1, 4}}},
	} {
		if tt.opt.Version == 0 {
			tt.opt.Version = sframe.V2
		}
		var sink recorder
		res, err := Translate(parse(t, tt.aug, tt.fns...), tt.opt, &sink)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		var size uint64
		for _, d := range sink.fdes {
			size += uint64(d.Size)
		}
		if size != res.Rows()+res.Padding {
			t.Errorf("%s: FDEs have %d bytes; %d are covered, %d are padding", tt.name, size, res.Covered, res.Padding)
		}
		described, left := uint64(0), uint64(0)
		for _, fn := range tt.fns {
			described += fn.size
		}
		for _, s := range tt.gaps {
			left += s.Bytes
		}
		if tt.gaps == nil {
			tt.gaps = make(map[Reason]Sum)
		}
		if sink.String() != tt.want || !reflect.DeepEqual(res.Sums, tt.gaps) || res.Described != described ||
			res.Rows() != described-left || res.Outermost != tt.gaps[Outermost].Bytes {
			t.Errorf("%s: %+v, %d bytes of %d covered\n%swant %+v\n%s", tt.name, res.Sums, res.Rows(), res.Described,
				&sink, tt.gaps, tt.want)
		}
		sum := make(map[Reason]uint64)
		for _, g := range res.Gaps {
			sum[g.Reason] += g.Size()
			if g.Begin < g.Function.Begin || g.End > g.Function.End || (g.Reason == Malformed) != (g.Err != nil) ||
				g.Reason == CFAAddress && !bytes.Equal(g.Rule.Expression, pltCFA[2:]) {
				t.Errorf("%s: gap %+v", tt.name, g)
			}
		}
		if res.Functions != len(tt.fns) || res.Inferred != 0 {
			t.Errorf("%s: %d functions, %d bytes inferred; want %d, 0", tt.name, res.Functions, res.Inferred,
				len(tt.fns))
		}
		for r, s := range tt.gaps {
			if sum[r] != s.Bytes {
				t.Errorf("%s: gaps of %d bytes with reason %v, want %d", tt.name, sum[r], r, s.Bytes)
			}
		}
	}
}

// TestGoTable withdraws the rows of a function in Go's table. The gap must give the reason for withdrawing the rows.
func TestGoTable(t *testing.T) {
	path := goprog.Build(t, "CGO_ENABLED=0", "-ldflags=-s -w")
	table := must.Get(cfi.Load(elftest.Parse(t, testfile.Read(t, path)), cfi.GoPCLNTab, nil))(t)
	fn := table.At(3)
	table.Withdraw(fn, "other code")
	res := must.Get(Translate(table, Options{Version: sframe.V3}, Discard()))(t)
	i := slices.IndexFunc(res.Gaps, func(g Gap) bool { return g.Reason == GoTable })
	if i < 0 || res.Gaps[i].Begin != fn.Begin || res.Gaps[i].End != fn.End ||
		!strings.HasSuffix(fmt.Sprint(res.Gaps[i].Err), ": other code") || res.Sums[GoTable].Functions != 1 {
		t.Errorf("gaps %+v, want a Go table's at %#x", res.Gaps, fn.Begin)
	}
}

// TestBudget translates more PLT code than the budget allows for an empty input.
func TestBudget(t *testing.T) {
	var fns []testFunc
	for i := range uint64(5) {
		fns = append(fns, testFunc{(i + 1) << 24, maxPLT, pltCFA})
		opt := Options{Version: sframe.V2, Moves: func(uint64) uint64 { return 16 }, Budget: elffile.NewBudget(0)}
		if _, err := Translate(parse(t, "", fns...), opt, Discard()); errors.Is(err,
			elffile.ErrBudget) != (len(fns) == 5) {
			t.Errorf("%d PLTs of 1 MiB: error %v", len(fns), err)
		}
	}
}

// TestRefused checks errors from the sink, and the errors for unknown machines and versions.
func TestRefused(t *testing.T) {
	table := parse(t, "", testFunc{0x1000, 8, nil})
	stubs := []plt.Stub{{Begin: 0x2000, End: 0x2010, Steps: []plt.Step{{CFA: 8}}}}
	for fail, want := range map[int]error{1: errFull, 2: errFull, 3: nil} {
		if _, err := Translate(table, Options{Version: sframe.V2, Stubs: stubs}, &recorder{fail: fail}); err != want {
			t.Errorf("sink fails at call %d: error %v, want %v", fail, err, want)
		}
	}
	if _, err := Translate(table, Options{}, Discard()); err == nil ||
		!strings.Contains(err.Error(), "SFRAME_VERSION_0") {
		t.Errorf("version 0: error %v", err)
	}
	other := *table
	other.Machine = elf.EM_RISCV
	if _, err := Translate(&other, Options{Version: sframe.V2}, Discard()); err == nil ||
		!strings.Contains(err.Error(), "EM_RISCV") {
		t.Errorf("RISC-V: error %v", err)
	}
}

// TestStubs checks that adjacent stubs with the same frames become one FDE.
func TestStubs(t *testing.T) {
	stub := func(begin, size uint64, steps ...plt.Step) plt.Stub {
		return plt.Stub{Begin: begin, End: begin + size, Steps: steps}
	}
	at := func(off uint32, cfa int32) plt.Step { return plt.Step{Offset: off, CFA: cfa} }
	pushed := []plt.Step{at(0, 8), at(11, 16)}
	for _, tt := range []struct {
		name  string
		reach Reach
		stubs []plt.Stub
		want  string
		bytes uint64
	}{
		{"one", Reach{}, []plt.Stub{stub(0x1000, 16, at(0, 8))}, "0x1000+0x10: 0x0 sp+8\n", 16},
		{"adjacent with the same frame", Reach{}, []plt.Stub{stub(0x1000, 16, at(0, 8)), stub(0x1010, 8, at(0, 8))},
			"0x1000+0x18: 0x0 sp+8\n", 24},
		{"three with the same frame", Reach{}, []plt.Stub{stub(0x1000, 16, at(0, 8)), stub(0x1010, 16, at(0, 8)),
			stub(0x1020, 16, at(0, 8))}, "0x1000+0x30: 0x0 sp+8\n", 48},
		{"a byte in between", Reach{}, []plt.Stub{stub(0x1000, 15, at(0, 8)), stub(0x1010, 8, at(0, 8))},
			"0x1000+0xf: 0x0 sp+8\n0x1010+0x8: 0x0 sp+8\n", 23},
		{"other frames", Reach{}, []plt.Stub{stub(0x1000, 16, at(0, 8)), stub(0x1010, 16, at(0, 16))},
			"0x1000+0x10: 0x0 sp+8\n0x1010+0x10: 0x0 sp+16\n", 32},
		{"blocks", Reach{}, []plt.Stub{stub(0x1000, 16, pushed...), stub(0x1010, 16, pushed...),
			stub(0x1020, 16, pushed...)}, "0x1000+0x30 rep 16: 0x0 sp+8 0xb sp+16\n", 48},
		{"blocks of two sizes", Reach{}, []plt.Stub{stub(0x1000, 16, pushed...), stub(0x1010, 24, pushed...)},
			"0x1000+0x10: 0x0 sp+8 0xb sp+16\n0x1010+0x18: 0x0 sp+8 0xb sp+16\n", 40},
		{"the last byte out of reach", Reach{0x1000, 0x100e}, []plt.Stub{stub(0x1000, 16, at(0, 8))}, "", 0},
		{"all in reach", Reach{0x1000, 0x100f}, []plt.Stub{stub(0x1000, 16, at(0, 8)), stub(0x2000, 16, at(0, 8))},
			"0x1000+0x10: 0x0 sp+8\n", 16},
		{"a return address that cannot be expressed", Reach{}, []plt.Stub{stub(0x1000, 16, plt.Step{CFA: 8, RA: -16}),
			stub(0x2000, 16, at(0, 8))}, "0x2000+0x10: 0x0 sp+8\n", 16},
	} {
		var sink recorder
		opt := Options{Version: sframe.V2, Reach: tt.reach, Stubs: tt.stubs, Moves: func(uint64) uint64 { return 16 }}
		res, err := Translate(parse(t, ""), opt, &sink)
		if err != nil || sink.String() != tt.want || res.PLT != tt.bytes || res.Covered != 0 {
			t.Errorf("%s: error %v, %d bytes\n%swant %d\n%s", tt.name, err, res.PLT, &sink, tt.bytes, tt.want)
		}
	}
	table := parse(t, "")
	table.Machine = elf.EM_AARCH64
	var sink recorder
	opt := Options{Version: sframe.V2, Stubs: []plt.Stub{stub(0x1000, 16, plt.Step{CFA: 16, RA: -8})}}
	_, err := Translate(table, opt, &sink)
	if want := "0x1000+0x10: 0x0 sp+16 ra *(c-8)\n"; err != nil || sink.String() != want {
		t.Errorf("AArch64: error %v\n%swant\n%s", err, &sink, want)
	}
}

// TestTopmost translates rules that use registers other than SP and FP (V3 specification, "Flexible FDEs") for the CFA,
// for the return address or for the frame pointer, and rules that do not. In other than topmost frames, Linux accepts
// only SP and FP, and only for the CFA (kernel/unwind/user.c, unwind_user_next_common). Rows that only V3 has are those
// that V2 lacks.
func TestTopmost(t *testing.T) {
	opt := Options{Version: sframe.V3, NoPCMask: true, Moves: func(uint64) uint64 { return 16 }}
	for _, tt := range []struct {
		name string
		code []byte
		want [2]uint64 // in bytes: for any reader, and for Linux
	}{
		{"signal frame", nil, [2]uint64{0, 0}},
		{"SP", nil, [2]uint64{0, 0}},
		{"FP", []byte{0x0c, 6, 16}, [2]uint64{0, 0}},
		{"CFA by r10", []byte{0x0c, 10, 8}, [2]uint64{0x40, 0x40}},
		{"CFA at FP-8", []byte{0x0f, 3, 0x76, 0x78, 0x06}, [2]uint64{0, 0}},
		{"return address in r10", []byte{0x09, 16, 10}, [2]uint64{0x40, 0x40}},
		{"return address at FP+8", []byte{0x10, 16, 2, 0x76, 8}, [2]uint64{0, 0x40}},
		{"frame pointer in r10", []byte{0x09, 6, 10}, [2]uint64{0x40, 0x40}},
		{"frame pointer at FP", []byte{0x10, 6, 2, 0x76, 0}, [2]uint64{0, 0x40}},
		{"frame pointer in r10 from 0x10 on", []byte{0x50, 0x09, 6, 10}, [2]uint64{0x30, 0x30}},
		{"frame pointer at FP from 0x10 on", []byte{0x50, 0x10, 6, 2, 0x76, 0}, [2]uint64{0, 0x30}},
		{"frame pointer in r10 in a PLT", slices.Concat(pltCFA, []byte{0x09, 6, 10}), [2]uint64{0x40, 0x40}},
	} {
		// The second function may repeat the first.
		augmentation := ""
		if tt.name == "signal frame" {
			augmentation = "zS"
		}
		table := parse(t, augmentation, testFunc{0x1000, 0x40, tt.code}, testFunc{0x1040, 0x40, tt.code})
		res, err := Translate(table, opt, Discard())
		got := [2]uint64{res.Topmost / 2, res.TopmostLinux / 2}
		if err != nil || res.Covered != 0x80 || got != tt.want {
			t.Errorf("%s: %d of %d bytes covered in the topmost frame only, error %v; want %d of 128", tt.name,
				got, res.Covered, err, tt.want)
		}
		v2 := must.Get(Translate(table, Options{Version: sframe.V2, Moves: opt.Moves}, Discard()))(t)
		if v2.Covered+res.OnlyV3 != res.Covered || v2.OnlyV3 != 0 {
			t.Errorf("%s: %d bytes covered in V3 only, but V2 covers %d", tt.name, res.OnlyV3, v2.Covered)
		}
	}
}

// TestDiscard numbers rows. Equal rows have the same number.
func TestDiscard(t *testing.T) {
	sink := Discard()
	for i, want := range []uint32{0, 1, 0, 2} {
		row := sframe.Row{CFA: sframe.Rule{Base: sframe.SP, Offset: int32(8 * want)}}
		if got := sink.Row(row); got != want {
			t.Errorf("row %d has number %d, want %d", i, got, want)
		}
	}
}

// TestMerge translates a table with more gaps than a Result lists, and with padded functions with inferred rows before
// and after them, in one part and in two.
func TestMerge(t *testing.T) {
	fns := make([]testFunc, maxGaps+1)
	for i := range fns {
		fns[i] = testFunc{uint64(i+1) << 4, 8, [][]byte{{0x0d, 10}, {0x09, 6, 3}}[i%2]} // in V2, neither is possible
	}
	table := parse(t, "", fns...)
	onEntry := []cfi.InferredRow{{Reg: 7, Offset: 8}}
	table.Infer(&cfi.Inference{Functions: []cfi.InferredFunction{{Begin: 4, End: 8, Rows: onEntry},
		{Begin: 1 << 32, End: 1<<32 + 4, Rows: onEntry}}})
	opt := Options{Version: sframe.V2, Padding: slices.Repeat([]uint8{3}, table.Len())}
	for n := 1; n <= 2; n++ {
		var parts []*Result
		for _, p := range table.Split(n) {
			parts = append(parts, must.Get(Translate(p, opt, Discard()))(t))
		}
		got := Merge(parts)
		if len(got.Gaps) != maxGaps {
			t.Errorf("%d parts: %d gaps, want %d", n, len(got.Gaps), maxGaps)
		}
		got.Gaps, got.cuts = nil, nil
		want := Result{Functions: len(fns) + 2,
			Amounts: amounts.Amounts{Described: 8*maxGaps + 16, Covered: 8, Inferred: 8, Padding: 6},
			Sums: map[Reason]Sum{CFARegister: {maxGaps/2 + 1, maxGaps/2 + 1, 4*maxGaps + 8},
				FPRegister: {maxGaps / 2, maxGaps / 2, 4 * maxGaps}}}
		if !reflect.DeepEqual(got, &want) {
			t.Errorf("%d parts: %+v, want %+v", n, got, want)
		}
	}
}

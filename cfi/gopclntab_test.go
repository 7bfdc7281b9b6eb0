package cfi_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"strings"
	"testing"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/arch"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/goprog"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/testfile"
)

// readGo builds a program and returns its contents.
func readGo(t testing.TB, env string, flags ...string) []byte {
	t.Helper()
	return testfile.Read(t, goprog.Build(t, env, flags...))
}

// loadGo loads the table of a program, which must be valid.
func loadGo(t testing.TB, b []byte, src cfi.Source) *cfi.Table {
	t.Helper()
	table := must.Get(cfi.Load(elftest.Parse(t, b), src, nil))(t)
	for _, e := range table.Errors {
		t.Error(e)
	}
	return table
}

// withoutHeaders returns the program without section headers.
func withoutHeaders(t testing.TB, b []byte) []byte {
	p := elftest.Patch(t.Fatalf, b)
	p.Put64(elftest.EhShoff, 0)
	p.Put16(elftest.EhShnum, 0)
	p.Put16(elftest.EhShstrndx, 0)
	return p.B
}

// TestGoTable compares the rows from the table with those that Go's linker emits in .debug_frame, for all build modes.
// Without section headers, the table must have the same functions.
func TestGoTable(t *testing.T) {
	for _, tt := range []struct{ name, env, flags string }{
		{"static", "CGO_ENABLED=0", ""},
		{"pie", "CGO_ENABLED=0", "-buildmode=pie"},
		{"cgo", "CGO_ENABLED=1", "-ldflags=-linkmode=external"},
		{"cgo-pie", "CGO_ENABLED=1", "-buildmode=pie -ldflags=-linkmode=external"},
		{"c-shared", "CGO_ENABLED=1", "-buildmode=c-shared"},
		{"plugin", "CGO_ENABLED=1", "-buildmode=plugin"},
		{"arm64", "CGO_ENABLED=0 GOARCH=arm64", ""},
		{"s390x", "CGO_ENABLED=0 GOARCH=s390x", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := readGo(t, tt.env, strings.Fields(tt.flags)...)
			debug, table := loadGo(t, b, cfi.DebugFrame), loadGo(t, b, cfi.GoPCLNTab)
			compareGo(t, debug, table)
			bare := loadGo(t, withoutHeaders(t, b), cfi.GoPCLNTab)
			if bare.Len() != table.Len() {
				t.Errorf("%d functions without section headers; want %d", bare.Len(), table.Len())
			}
			for i := range min(bare.Len(), table.Len()) {
				if a, b := bare.At(i), table.At(i); a.Begin != b.Begin || a.End != b.End {
					t.Fatalf("function %d is at %#x-%#x without section headers; want %#x-%#x", i, a.Begin, a.End,
						b.Begin, b.End)
				}
			}
		})
	}
}

// compareGo compares the functions in .debug_frame with those in the table.
func compareGo(t *testing.T, debug, table *cfi.Table) {
	t.Helper()
	a := arch.Of(table.Machine)
	var framed, other, saved int
	for fn := range debug.Functions() {
		got := table.Find(fn.Begin)
		if got == nil || got.Begin != fn.Begin && !got.Signal() || got.End != fn.End {
			t.Fatalf("the table has no function at %#x-%#x", fn.Begin, fn.End)
		}
		first, _ := table.Lookup(fn.Begin)
		before, _ := debug.Lookup(fn.Begin) // for sigtramp, .debug_frame says that there is no caller
		if got.SwitchesStack() || got.Signal() || first.RA.Rule == cfi.RuleUndefined ||
			before.RA.Rule == cfi.RuleUndefined {
			other++
			continue
		}
		framed++
		for row := range got.Rows() {
			for pc := row.Begin; pc < row.End; {
				want, _ := debug.Lookup(pc)
				ra := row.RA.Rule == want.RA.Rule ||
					row.RA.Rule == cfi.RuleArchitectural && want.RA.Rule == cfi.RuleSameVal
				if row.RA.Rule == cfi.RuleOffset {
					ra = want.RA.Rule == cfi.RuleOffset &&
						row.CFA.Offset+row.RA.Offset == want.CFA.Offset+want.RA.Offset
				}
				// In .debug_frame, the CFA is the caller's SP even on s390x.
				if row.CFA.Reg != want.CFA.Reg || row.CFA.Offset+a.CallerSP != want.CFA.Offset || !ra {
					t.Fatalf("at %#x: %v; .debug_frame has %v", pc, row.Rules, want.Rules)
				}
				pc = min(row.End, want.End)
			}
			if row.FP.Rule == cfi.RuleOffset {
				if saved++; row.Begin == fn.Begin {
					t.Fatalf("at %#x, FP is saved already where the function starts", row.Begin)
				}
			}
		}
	}
	t.Logf("%d functions with frames, %d others, FP saved in %d rows", framed, other, saved)
	if framed < 500 || other < 5 || other > 60 || saved < framed && table.Machine != elf.EM_S390 {
		t.Errorf("%d functions with frames, %d others, FP saved in %d rows", framed, other, saved)
	}
}

// TestGoFirst checks that .gopclntab is preferred by default in a program with both sources, and that a stripped
// program has the same functions.
func TestGoFirst(t *testing.T) {
	b := readGo(t, "CGO_ENABLED=0")
	for src, want := range map[cfi.Source]string{cfi.Auto: ".gopclntab", cfi.DebugFrame: ".debug_frame"} {
		for fn := range loadGo(t, b, src).Functions() {
			if fn.Section() != want {
				t.Fatalf("%v: function at %#x from %s; want %s", src, fn.Begin, fn.Section(), want)
			}
		}
	}
	stripped := readGo(t, "CGO_ENABLED=0", "-ldflags=-s -w")
	if n, want := loadGo(t, stripped, cfi.Auto).Len(), loadGo(t, b, cfi.GoPCLNTab).Len(); n != want {
		t.Errorf("%d functions in the stripped program; want %d", n, want)
	}
}

// TestGoStacks checks the runtime functions that leave a goroutine's stack and call a function on a different stack.
// After these calls, the caller must be the frame at which Go's unwinder continues; where it stops, there must be none.
// If C calls back into Go, the goroutine's stack may move before asmcgocall returns to it.
func TestGoStacks(t *testing.T) {
	t.Run("Go", func(t *testing.T) { testGoStacks(t, 16, "CGO_ENABLED=0") })
	t.Run("cgo with exports", func(t *testing.T) {
		testGoStacks(t, -1, "CGO_ENABLED=1", "-ldflags=-linkmode=external")
	})
}

// testGoStacks checks the rows after calls that run on a different stack. After the call in asmcgocall, CFA - FP must
// have the given value; -1 means that the CFA is unknown.
func testGoStacks(t *testing.T, asmcgocall int64, env string, flags ...string) {
	b := readGo(t, env, flags...)
	table := loadGo(t, b, cfi.GoPCLNTab)
	f := must.Get(elf.NewFile(bytes.NewReader(b)))(t)
	symbols := must.Get(f.Symbols())(t)
	text := f.Section(".text")
	wants := map[string]struct {
		call string // instructions of the call on a different stack
		cfa  int64  // CFA - FP; 0: no caller; -1: unknown
	}{
		"runtime.systemstack.abi0": {"\xff\xd7", 16},
		"runtime.mcall":            {"\x41\xff\xd4", 0},
		"runtime.nanotime1.abi0":   {"\xff\xd0", 16},
		"runtime.asmcgocall.abi0":  {"\x48\x83\xe4\xf0\x48\x89\x7c\x24\x08", asmcgocall},
		"runtime.gogo.abi0":        {"\x48\x8b", -1},
	}
	for _, s := range symbols {
		want, ok := wants[s.Name]
		if !ok {
			continue
		}
		delete(wants, s.Name)
		at := bytes.Index(b[text.Offset+s.Value-text.Addr:][:s.Size], []byte(want.call))
		if at < 0 {
			t.Fatalf("%s has no % x", s.Name, want.call)
		}
		row, ok := table.Lookup(s.Value + uint64(at+len(want.call)))
		var is bool
		switch fp := arch.Of(table.Machine).FP; want.cfa {
		case 0:
			is = row.RA.Rule == cfi.RuleUndefined
		case -1:
			is = row.CFA.Rule == cfi.RuleUndefined
		default:
			is = row.CFA.Reg == fp && row.CFA.Offset == want.cfa && row.RA.Offset == -8 && row.FP.Offset == -16
		}
		if !ok || !is {
			t.Errorf("%s: %v; want %d", s.Name, row.Rules, want.cfa)
		}
	}
	for name := range wants {
		t.Errorf("no symbol %s", name)
	}
}

// TestGoInjected checks the runtime functions that signal handlers make interrupted code call. For the bytes that
// signal handlers push, see pushCall and preparePanic in runtime/signal_*.go.
func TestGoInjected(t *testing.T) {
	for _, tt := range []struct {
		arch   string
		pushed int64
		names  string // names of symbols
	}{
		{"amd64", 0, "runtime.sigpanic runtime.sigpanic0.abi0 runtime.asyncPreempt.abi0 runtime.debugCallV2"},
		{"arm64", 16, "runtime.sigpanic runtime.asyncPreempt.abi0 runtime.debugCallV2"},
		{"s390x", 8, "runtime.sigpanic runtime.asyncPreempt.abi0"},
	} {
		t.Run(tt.arch, func(t *testing.T) {
			b := readGo(t, "CGO_ENABLED=0 GOARCH="+tt.arch)
			file := elftest.Parse(t, b)
			symbols := must.Get(file.FindSymbols(append(strings.Fields(tt.names), "runtime.sigtramp.abi0",
				"runtime.main", "runtime.sigreturn__sigaction.abi0")...))(t)
			debug, table := loadGo(t, b, cfi.DebugFrame), loadGo(t, b, cfi.GoPCLNTab)
			a := arch.Of(table.Machine)
			for _, name := range strings.Fields(tt.names) {
				fn := table.Find(symbols[name].Value)
				if fn == nil || !fn.Signal() {
					t.Errorf("%s is not a signal frame", name)
					continue
				}
				var rows int
				for row := range fn.Rows() {
					want, _ := debug.Lookup(row.Begin)
					if row.CFA.Rule == cfi.RuleUndefined { // after the interrupted code's stack pointer is restored
						if callerSP := want.CFA.Offset; callerSP != -tt.pushed || row.End != fn.End {
							t.Errorf("%s: at %#x a gap; .debug_frame has %v", name, row.Begin, want.Rules)
						}
						continue
					}
					rows++
					if row.CFA.Reg != want.CFA.Reg || row.CFA.Offset+a.CallerSP != want.CFA.Offset+tt.pushed ||
						row.RA.Rule == cfi.RuleOffset &&
							row.CFA.Offset+row.RA.Offset != want.CFA.Offset+want.RA.Offset {
						t.Errorf("%s: at %#x %v; .debug_frame has %v, without %d bytes", name, row.Begin, row.Rules,
							want.Rules, tt.pushed)
					}
				}
				if rows < 2 && name != "runtime.sigpanic0.abi0" {
					t.Errorf("%s: %d rows", name, rows)
				}
			}
			if table.Find(symbols["runtime.main"].Value).Signal() {
				t.Error("runtime.main is a signal frame")
			}
			sigtramp := symbols["runtime.sigtramp.abi0"]
			for pc := sigtramp.Value; pc < sigtramp.Value+sigtramp.Size; pc++ {
				if row, ok := table.Lookup(pc); ok && row.RA.Rule == cfi.RuleUndefined {
					t.Fatalf("sigtramp has no caller: %v", row.Rules)
				}
			}
			if tt.arch != "amd64" {
				return
			}
			at := symbols["runtime.sigreturn__sigaction.abi0"].Value
			for _, pc := range []uint64{at - 1, at, at + 7} { // readers look up a return address minus 1
				row, ok := table.Lookup(pc)
				// breg7 (rsp) 160, deref; breg7 168; breg7 120 (struct ucontext: rsp, rip, rbp)
				if !ok || !table.Find(pc).Signal() || string(row.CFA.Expression) != "\x77\xa0\x01\x06" ||
					string(row.RA.Expression) != "\x77\xa8\x01" || string(row.FP.Expression) != "\x77\xf8\x00" {
					t.Errorf("sigreturn: at %#x %v", pc, row.Rules)
				}
			}
		})
	}
}

// TestGoTableDamaged overwrites words of a table.
func TestGoTableDamaged(t *testing.T) {
	b := readGo(t, "CGO_ENABLED=0", "-ldflags=-s -w")
	f := elftest.Parse(t, b)
	at := f.Section(".gopclntab").Off
	le := binary.LittleEndian
	records := at + le.Uint64(b[at+64:])
	record := records + uint64(le.Uint32(b[records+8+4:])) // of the second function
	pctab := at + le.Uint64(b[at+56:])
	all := loadGo(t, b, cfi.GoPCLNTab).Len()
	for _, tt := range []struct {
		name string
		off  uint64
		word uint32
		left int // number of functions
		want string
	}{
		{"another magic", at, 0xfffffffb, 0, ".gopclntab+0x0: starts with "},
		{"more functions", at + 8, 1 << 30, 0, ".gopclntab+0x8: 1073741824 functions, but "},
		{"pctab after the functions", at + 56, 1 << 30, 0,
			".gopclntab+0x38: pctab at 0x40000000 is after the functions at "},
		{"functions elsewhere", at + 64, 96, 0, ".gopclntab+0x40: functions are at 0x60, but at "},
		{"names after their end", at + 32, 1 << 30, 0, ".gopclntab+0x20: names from 0x40000000 to "},
		{"first function elsewhere", records, 4096, 0, " according to module data"},
		{"a record past the end", records + 8 + 4, 1 << 30, all - 1, ": record at 0x"},
		{"a function that ends before it begins", records + 8, 1 << 30, all - 1, "before its start 0x40000000"},
		{"a pcsp table past the end", record + 16, 1 << 30, all - 1,
			": pcsp table at 0x40000000 is past the end of pctab "},
		{"a pcsp table of another size", pctab + uint64(le.Uint32(b[record+16:])), 0xff7fff02, -1, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bad := bytes.Clone(b)
			le.PutUint32(bad[tt.off:], tt.word)
			table := must.Get(cfi.Load(elftest.Parse(t, bad), cfi.Auto, nil))(t)
			if table.NumErrors == 0 || !strings.Contains(table.Errors[0].Error(), tt.want) {
				t.Errorf("errors: %v; want %q", table.Errors, tt.want)
			}
			if tt.left >= 0 && table.Len() != tt.left {
				t.Errorf("%d functions; want %d", table.Len(), tt.left)
			}
		})
	}
}

// FuzzGoTable overwrites a word of a program and reads its table.
func FuzzGoTable(f *testing.F) {
	b := readGo(f, "CGO_ENABLED=0", "-ldflags=-s -w")
	file := elftest.Parse(f, b)
	table, module := file.Section(".gopclntab").Off, file.Section(".go.module").Off
	for i := range uint64(9) {
		f.Add(table+8*i, uint64(1)<<33)
		f.Add(module+8*(13+i), uint64(1)<<40)
	}
	f.Fuzz(func(t *testing.T, off, word uint64) {
		if off > uint64(len(b))-8 {
			return
		}
		bad := bytes.Clone(b)
		binary.LittleEndian.PutUint64(bad[off:], word)
		x, err := elffile.New(bytes.NewReader(bad), int64(len(bad)))
		if err != nil {
			return
		}
		table, err := cfi.Load(x, cfi.GoPCLNTab, nil)
		if err != nil {
			return
		}
		checkOrder(t, table)
	})
}

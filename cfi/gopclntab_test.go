package cfi_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/cfi"
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

// TestGoTable compares rows with those that Go's linker emits in .debug_frame. It also checks the runtime functions
// that signal handlers make interrupted code call, and those that switch stacks. For the bytes that signal handlers
// push, see pushCall and preparePanic in runtime/signal_*.go.
func TestGoTable(t *testing.T) {
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
				"runtime.main", "runtime.sigreturn__sigaction.abi0", "runtime.systemstack.abi0", "runtime.mcall",
				"runtime.gogo.abi0")...))(t)
			debug, table := loadGo(t, b, cfi.DebugFrame), loadGo(t, b, cfi.GoPCLNTab)
			compareGo(t, debug, table)
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
			for name, want := range map[string]string{ // after calls that run on a different stack
				"runtime.systemstack.abi0": "CFA r6+16, RA c-8, FP c-16, SP none",
				"runtime.mcall":            "CFA r7+8, RA u, FP none, SP none",
				"runtime.gogo.abi0":        "CFA u, RA c-8, FP none, SP none",
			} {
				fn := table.Find(symbols[name].Value)
				var rows []string
				for row := range fn.Rows() {
					rows = append(rows, row.Rules.String())
				}
				if !slices.Contains(rows, want) || !fn.SwitchesStack() {
					t.Errorf("%s: %q; want %s", name, rows, want)
				}
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
	at := elftest.Parse(t, b).Section(".gopclntab").Off
	le := binary.LittleEndian
	records := at + le.Uint64(b[at+64:])
	all := loadGo(t, b, cfi.GoPCLNTab).Len()
	for _, tt := range []struct {
		name string
		off  uint64
		left int // number of functions
		want string
	}{
		{"another magic", at, 0, ".gopclntab+0x0: starts with "},
		{"a record past the end", records + 8 + 4, all - 1, ": record at 0x"},
	} {
		bad := bytes.Clone(b)
		le.PutUint32(bad[tt.off:], 1<<30)
		table := must.Get(cfi.Load(elftest.Parse(t, bad), cfi.Auto, nil))(t)
		if table.NumErrors != 1 || !strings.Contains(table.Errors[0].Error(), tt.want) || table.Len() != tt.left {
			t.Errorf("%s: %d functions, errors: %v; want %d, %q", tt.name, table.Len(), table.Errors, tt.left, tt.want)
		}
	}
}

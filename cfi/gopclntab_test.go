package cfi_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"slices"
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

// loadGo loads the table of a program, which must be valid.
func loadGo(t testing.TB, b []byte, src cfi.Source) *cfi.Table {
	t.Helper()
	table := must.Get(cfi.Load(elftest.Parse(t, b), src, nil))(t)
	for _, e := range table.Errors {
		t.Error(e)
	}
	return table
}

// TestGoTable compares rows with those that Go's linker emits in .debug_frame. By default, .gopclntab is preferred. For
// the bytes that signal handlers push, see pushCall and preparePanic in runtime/signal_*.go.
func TestGoTable(t *testing.T) {
	for goarch, pushed := range map[string]int64{"amd64": 0, "arm64": 16, "s390x": 8} {
		t.Run(goarch, func(t *testing.T) {
			b := testfile.Read(t, goprog.Build(t, "CGO_ENABLED=0 GOARCH="+goarch))
			table := loadGo(t, b, cfi.Auto)
			compareGo(t, loadGo(t, b, cfi.DebugFrame), table, pushed)
			if n := len(table.Sources); n != 2 || table.Sources[1].FDEs != table.Len() {
				t.Errorf("%d functions, sources %+v", table.Len(), table.Sources)
			}
			if goarch == "amd64" {
				checkStacks(t, elftest.Parse(t, b), table)
				checkDamagedGo(t, b)
			}
		})
	}
}

// compareGo compares the functions in .debug_frame with those in the table. Signal handlers inject
// calls to some of them into interrupted code; such a call pushes the given number of bytes.
func compareGo(t *testing.T, debug, table *cfi.Table, pushed int64) {
	t.Helper()
	a := arch.Of(table.Machine)
	var framed, injected, saved, other int // numbers of rows
	for fn := range debug.Functions() {
		got := table.Find(fn.Begin)
		if got == nil || got.Section() != ".gopclntab" || got.Begin != fn.Begin && !got.Signal() || got.End != fn.End {
			t.Fatalf("the table has no function at %#x-%#x", fn.Begin, fn.End)
		}
		isInjected := got.SwitchesStack() && got.Signal()
		for row := range got.Rows() {
			if row.RAReg != a.RA || row.RA.Rule == cfi.RuleUndefined && !got.SwitchesStack() &&
				(row.CFA.Reg != a.SP || row.CFA.Offset != int64(a.EntryCFA)) { // the outermost frame
				t.Errorf("at %#x: %v, return address in column %d", row.Begin, row.Rules, row.RAReg)
			}
			want, _ := debug.Lookup(max(row.Begin, fn.Begin))
			above := int64(0)
			switch {
			case isInjected && row.CFA.Rule == cfi.RuleUndefined: // the interrupted code's stack pointer is restored
				if want.CFA.Offset != -pushed || row.End != fn.End {
					t.Errorf("at %#x a gap; .debug_frame has %v", row.Begin, want.Rules)
				}
				continue
			case isInjected:
				injected++
				above = pushed
			case got.SwitchesStack(), got.Signal(), row.RA.Rule == cfi.RuleUndefined,
				want.RA.Rule == cfi.RuleUndefined: // for sigtramp, .debug_frame says that there is no caller
				other++
				continue
			}
			framed++
			for pc := row.Begin; pc < row.End; pc = min(row.End, want.End) {
				want, _ = debug.Lookup(pc)
				isRA := row.RA.Rule == want.RA.Rule ||
					row.RA.Rule == cfi.RuleArchitectural && want.RA.Rule == cfi.RuleSameVal
				if row.RA.Rule == cfi.RuleOffset {
					isRA = want.RA.Rule == cfi.RuleOffset &&
						row.CFA.Offset+row.RA.Offset == want.CFA.Offset+want.RA.Offset
				}
				// In .debug_frame, the CFA is the caller's SP even on s390x.
				if row.CFA.Reg != want.CFA.Reg || row.CFA.Offset+a.CallerSP != want.CFA.Offset+above || !isRA {
					t.Fatalf("at %#x: %v; .debug_frame has %v, without %d bytes", pc, row.Rules, want.Rules, above)
				}
			}
			if row.FP.Rule == cfi.RuleOffset {
				if saved++; row.Begin == fn.Begin {
					t.Fatalf("at %#x, FP is saved already where the function starts", row.Begin)
				}
			}
		}
	}
	if framed < 1500 || injected < 4 || other < 5 || other > 100 || saved < framed/4 && table.Machine != elf.EM_S390 {
		t.Errorf("%d rows with frames, %d of them injected, %d others, FP saved in %d", framed, injected, other, saved)
	}
}

// checkStacks checks functions of the runtime that switch stacks.
func checkStacks(t *testing.T, f *elffile.File, table *cfi.Table) {
	const sigreturn = "runtime.sigreturn__sigaction.abi0"
	for name, want := range map[string]string{ // a row after calls that run on a different stack
		"runtime.systemstack.abi0": "CFA r6+16, RA c-8, FP c-16, SP none",
		"runtime.mcall":            "CFA r7+8, RA u, FP none, SP none",
		"runtime.gogo.abi0":        "CFA u, RA c-8, FP none, SP none",
		// breg7 (rsp) 160, deref; breg7 168; breg7 120 (struct ucontext: rsp, rip, rbp)
		sigreturn: "CFA exp 77 a0 01 06, RA exp 77 a8 01, FP exp 77 f8 00, SP none",
	} {
		at := must.Get(f.FindSymbols(name))(t)[name].Value
		if name == sigreturn {
			at-- // readers look up a return address minus 1
		}
		fn := table.Find(at)
		var rows []string
		for row := range fn.Rows() {
			rows = append(rows, row.Rules.String())
		}
		if !slices.Contains(rows, want) || fn.SwitchesStack() == fn.Signal() || fn.Signal() != (name == sigreturn) {
			t.Errorf("%s: %q; want %s", name, rows, want)
		}
	}
}

// checkDamagedGo overwrites words of a program's table.
func checkDamagedGo(t *testing.T, b []byte) {
	at := elftest.Parse(t, b).Section(".gopclntab").Off
	le := binary.LittleEndian
	sound := loadGo(t, b, cfi.GoPCLNTab)
	all := sound.Len()
	for _, tt := range []struct {
		off  uint64
		left int // number of functions
		want string
	}{{at, 0, ".gopclntab+0x0: starts with "}, {at + le.Uint64(b[at+64:]) + 8 + 4, all - 1, ": record at 0x"}} {
		bad := bytes.Clone(b)
		le.PutUint32(bad[tt.off:], 1<<30)
		table := must.Get(cfi.Load(elftest.Parse(t, bad), cfi.GoPCLNTab, nil))(t)
		if table.NumErrors != 1 || !strings.Contains(table.Errors[0].Error(), tt.want) ||
			table.Len() != tt.left || table.Dropped != (cfi.Dropped{}) {
			t.Errorf("%d functions, errors: %v; want %d, %q", table.Len(), table.Errors, tt.left, tt.want)
		}
	}
	f := elftest.Parse(t, b)
	for discarded := range 2 { // .text ends with the last function, or a byte earlier
		text := f.Section(".text")
		text.Size = sound.At(all-1).End - text.Base - uint64(discarded)
		table := must.Get(cfi.Load(f, cfi.GoPCLNTab, nil))(t)
		if table.Len() != all-discarded || table.Dropped != (cfi.Dropped{Discarded: discarded}) {
			t.Errorf("%d functions of %d, %+v, errors: %v", table.Len(), all, table.Dropped, table.Errors)
		}
	}
}

package convert

import (
	"debug/elf"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/testfile"
)

// TestNoReturn checks that code after a call gets a row only if the called function can return.
func TestNoReturn(t *testing.T) {
	for name, want := range map[string]bool{
		"abort": false, "_Unwind_Resume": false, "_ZSt20__throw_length_errorPKc": false, "__throw_it": true,
		"aborts": true,
	} {
		for _, code := range []string{
			"call NAME@PLT", "call *NAME@GOTPCREL(%rip)",
			"call NAME@PLT; .subsection 1; .globl NAME; NAME: ret; .previous",
			"call 2f; .subsection 1; 2: call NAME; ret; .globl NAME; .hidden NAME; NAME: ret; .previous",
			"call 2f; .subsection 1; 2: jmp NAME; .globl NAME; .hidden NAME; nop; NAME: ret; .previous",
		} {
			source := strings.ReplaceAll("start: .globl start; .type start,@function; push %rbx; test %edi,%edi\n"+
				"jz 1f; pop %rbx; ret; 1: "+code+"\n .size start,.-start; nop; nop; pop %rbx; ret\n", "NAME", name)
			dir := t.TempDir()
			in, out := filepath.Join(dir, "code.s"), filepath.Join(dir, "code.so")
			testfile.Write(t, in, source)
			cmd := exec.Command(peer.Look(t, "gcc"), "-shared", "-nostdlib", "-Wl,--no-relax", "-o", out, in)
			must.Run(t, cmd)
			f := elftest.Parse(t, testfile.Read(t, out))
			var after uint64
			err := f.Symbols(elf.SHT_SYMTAB, func(table *elffile.Section, s elffile.Symbol) {
				if f.SymbolName(table, s.Name) == "start" {
					after = s.Value + s.Size
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			table := must.Get(LoadCFI(f, cfi.Auto, nil, true))(t)
			if _, got := table.Lookup(after); got != want {
				t.Errorf("%s: row after the call: %t, want %t", strings.ReplaceAll(code, "NAME", name), got, want)
			}
		}
	}
}

package cfi_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"cfi2sframe/cfi"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/testfile"
)

// TestAtZero links programs with code at address 0 or elsewhere, and with FDEs of functions that the linker removes. In
// .debug_frame, such FDEs start at 0.
func TestAtZero(t *testing.T) {
	// function returns the assembly of a function in its own section, padded with nops.
	function := func(name string, nops int, cfi bool) string {
		start, end := ".cfi_startproc\npush %rbp\n.cfi_def_cfa_offset 16\n", ".cfi_endproc\n"
		if !cfi {
			start, end = "push %rbp\n", ""
		}
		return fmt.Sprintf(".section .text.%s,\"ax\"\n.globl %[1]s\n.type %[1]s,@function\n%[1]s:\n%s"+
			".skip %d,0x90\nret\n%s.size %[1]s,.-%[1]s\n", name, start, nops, end)
	}
	// comdat puts the function's section into a group; linkers keep only one of the groups with the same name.
	const (
		debug  = ".cfi_sections .debug_frame\n"
		both   = ".cfi_sections .eh_frame, .debug_frame\n"
		zero   = "-Ttext=0"
		comdat = ".section .text.copy,\"axG\",@progbits,copy,comdat\n.weak copy\n.type copy,@function\ncopy:\n" +
			".cfi_startproc\npush %rbp\n.cfi_def_cfa_offset 16\n.skip 6,0x90\nret\n.cfi_endproc\n.size copy,.-copy\n"
	)
	start, dead, large := function("_start", 10, true), function("dead", 5, true), function("large", 20, true)
	for _, tt := range []struct {
		name, a, b, link, after string
		at                      int // size of the function at address 0 in bytes, or -1
		discarded               int
	}{
		{".eh_frame", start + dead, "", zero, "", 12, 0}, // the linker also drops the FDE
		{".eh_frame, no symbols", start, "", zero + " -s", "", 12, 0},
		{".debug_frame", debug + start, "", zero, "", 12, 0},
		{".debug_frame, no symbol", debug + start, "", zero, "objcopy -N _start prog", -1, 1},
		{".debug_frame, a symbol outside code", debug + start + ".section .fake,\"\"\n.type fake,@function\nfake:\n" +
			".skip 12\n.size fake,.-fake\n", "", zero, "objcopy -N _start prog", -1, 1},
		{".debug_frame, one is dropped", debug + start + dead, "", zero, "", -1, 2},
		{".debug_frame, a larger function is dropped", debug + start + large, "", zero, "", 12, 1},
		{".debug_frame, only the FDE of a dropped function", debug + function("_start", 10, false) + dead, "", zero,
			"", -1, 1},
		{"both, one is dropped", both + start + dead, "", zero, "", 12, 2}, // from .eh_frame
		{".debug_frame, copies", debug + comdat + ".globl _start\n.set _start,copy\n", debug + comdat,
			zero + " --no-gc-sections", "", 8, 1},
		{".debug_frame, code elsewhere, one is dropped", debug + start + dead, "", "-Ttext=0x401000", "", -1, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			files := []string{filepath.Join(dir, "a.s"), filepath.Join(dir, "b.s")}
			testfile.Write(t, files[0], tt.a)
			testfile.Write(t, files[1], tt.b)
			dir = peer.Run(t, "sid", "as a.s -o a.o; as b.s -o b.o; ld --gc-sections -e _start "+tt.link+
				" a.o b.o -o prog; "+tt.after, files...)
			f := elftest.Parse(t, testfile.Read(t, filepath.Join(dir, "prog")))
			table := must.Get(cfi.Load(f, cfi.Auto, nil))(t)
			at := -1
			for fn := range table.Functions() {
				if fn.Begin == 0 {
					at = int(fn.End)
				}
			}
			if at != tt.at || table.Dropped.Discarded != tt.discarded || len(table.Errors) > 0 {
				t.Errorf("%d bytes at address 0, %d FDEs discarded, errors %v; want %d and %d", at,
					table.Dropped.Discarded, table.Errors, tt.at, tt.discarded)
			}
		})
	}
}

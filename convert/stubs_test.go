package convert_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"cfi2sframe/cfi"
	"cfi2sframe/convert"
	"cfi2sframe/elffile"
	"cfi2sframe/emit"
	"cfi2sframe/sframe"
	"cfi2sframe/verify"
)

// TestStubs describes code without CFI, of which some would be a stub of a PLT at another place, by
// one row that says that a call has just arrived. What is converted and what is checked know PLTs
// each in its own way.
func TestStubs(t *testing.T) {
	const (
		jump = "jmp *_start(%rip)\nxchg %ax,%ax\n" // 8 bytes
		fde  = ".cfi_startproc\n"
		end  = ".cfi_endproc\n"
		back = ".byte 0xe9\n.long 1b - . - 4\n" // jmp 1b, not the short one
	)
	for _, tt := range []struct {
		name, plt   string
		begin, size uint64 // of what is described, from the start of the section
		synthesised uint64 // bytes that are described in the PLT by a conversion
		want        string // what is said to be wrong, or "" if the row is right
	}{
		{"a stub", jump, 0, 8, 8, ""},
		{"behind padding", ".nops 2\n.nops 6\n" + jump, 8, 8, 0, ""},
		{"behind a push", "push %rax\n.nops 7\n" + jump, 8, 8, 0, "CFA differs"},
		{"behind a push and a stub", jump + "push %rax\n.nops 7\n" + jump, 16, 8, 0, "CFA differs"},
		{"behind other code", "sub $8,%rsp\n.nops 4\n" + jump, 8, 8, 0,
			"SUB RSP, 0x8 at 0x401000, which is not part of a PLT stub"},
		{"behind a return", "ret\n.nops 7\n" + jump, 8, 8, 0, "it returns at 0x401000"},
		{"behind a function that ends in a jump", fde + jump + end + jump, 8, 8, 8, ""},
		{"behind a function that goes on", fde + "push %r11\n.nops 6\n" + end + jump, 8, 8, 0,
			"the code before it may run into it"},
		{"behind a function of padding", fde + ".nops 8\n" + end + jump, 8, 8, 0, "the code before it may run into it"},
		{"behind a function with other code", fde + "sub $8,%rsp\nadd $8,%rsp\n" + end + jump, 8, 8, 0,
			"the code before it may run into it"},
		{"behind other code and a function that ends in a jump", "sub $8,%rsp\n.nops 4\n" + fde + jump + end + jump, 16,
			8, 0, ""},
		{"running into a function", ".nops 8\n" + fde + jump + end, 0, 8, 0, "does not end in a jump"},
		{"padding only", ".nops 16\n", 0, 16, 0, "does not end in a jump"},
		{"padding behind a stub", jump + ".nops 6\n.nops 2\n", 8, 8, 16, ""},
		{"padding that is jumped to", "jmp *_start(%rip)\n0: nop\nnop\npush $1\njmp 0b\n.nops 1\n", 6, 2, 0,
			"a stub jumps into it"},
		{"jumped to with something pushed", "1: " + jump + ".nops 6\n.nops 2\njmp *_start(%rip)\npush $128\n" + back, 0,
			8, 16, "CFA differs"},
		{"jumped to by a function with something pushed", "1: " + jump + fde + "push $128\n" + back + end, 0, 8, 0,
			"CFA differs"},
		{"jumped to with different things pushed", "1: " + jump + ".nops 8\njmp *_start(%rip)\npush $128\n" + back +
			".nops 8\njmp 1b\n", 0, 8, 0, "different things pushed"},
		{"jumped into with something pushed", "endbr64\n1: jmp *_start(%rip)\n.nops 6\njmp *_start(%rip)\npush $128\n" +
			back, 0, 10, 16, "a stub jumps into it, to 0x401004"},
		{"too long", ".rept 256\nnop\n.endr\n" + jump, 256, 8, 0, "no jump in 256 bytes"},
	} {
		prog := link(t, ".cfi_startproc\nnop\n.cfi_endproc\n.section .plt,\"ax\"\n.balign 16\n"+tt.plt)
		f := open(t, prog)
		plt := f.Section(".plt")
		if got := checkRow(t, f, plt.Addr+tt.begin, tt.size); got != tt.want &&
			(tt.want == "" || !strings.Contains(got, tt.want)) {
			t.Errorf("%s: the check says %q, want %q", tt.name, got, tt.want)
		}
		if _, c := run(t, prog, convert.Options{Version: sframe.V2}); c.Stubs != tt.synthesised {
			t.Errorf("%s: %d bytes of stubs are described, want %d", tt.name, c.Stubs, tt.synthesised)
		}
	}

	// The same elsewhere.
	prog := link(t, ".cfi_startproc\nnop\n.cfi_endproc\n.section .text.other,\"ax\"\n.balign 16\n.globl other\nother: "+
		jump)
	f := open(t, prog)
	other := f.Section(".text").Addr + 16
	if got := checkRow(t, f, other, 8); !strings.Contains(got, "in no section of PLT stubs") {
		t.Errorf("in .text: the check says %q", got)
	}
	b, err := os.ReadFile(link(t, ".cfi_startproc\nnop\n.cfi_endproc\n.section .plt,\"ax\"\n.balign 16\n"+jump))
	if err != nil {
		t.Fatal(err)
	}
	if f, err = elffile.New(bytes.NewReader(b), int64(len(b))); err != nil {
		t.Fatal(err)
	}
	addr := f.Section(".plt").Addr
	f.Sections = nil
	if got := checkRow(t, f, addr, 8); !strings.Contains(got, "no section headers") {
		t.Errorf("without section headers: the check says %q", got)
	}
}

// checkRow checks the row CFA = SP + 8 for code at pc, and returns what is said of it, or "".
func checkRow(t *testing.T, f *elffile.File, pc, size uint64) string {
	t.Helper()
	sections := f.Sections
	if sections == nil { // the CFI is found through them
		b, err := elffile.New(f.Contents(), int64(f.Size))
		if err != nil {
			t.Fatal(err)
		}
		f.Sections = b.Sections
	}
	table, err := cfi.Load(f, cfi.Auto, nil)
	if err != nil {
		t.Fatal(err)
	}
	f.Sections = sections
	build, err := emit.NewBuilder(emit.Options{Version: sframe.V2, ABI: sframe.AMD64Little})
	if err != nil {
		t.Fatal(err)
	}
	row := sframe.FRE{Row: sframe.Row{CFA: sframe.Rule{Base: sframe.SP, Offset: 8}}}
	if _, err := build.Add(sframe.FDE{Start: pc, Size: uint32(size)}, build.Refs([]sframe.FRE{row})); err != nil {
		t.Fatal(err)
	}
	data, err := emit.Join([]*emit.Builder{build}).Encode(0x500000)
	if err != nil {
		t.Fatal(err)
	}
	s, err := sframe.Decode(data, 0x500000)
	if err != nil {
		t.Fatal(err)
	}
	res, err := verify.Check(table, s, f, verify.Options{Keep: 10})
	if err != nil {
		t.Fatal(err)
	}
	if res.Total == 0 {
		if res.Stubs != size {
			t.Errorf("at %#x: %d bytes of %d are found right, and none wrong", pc, res.Stubs, size)
		}
		return ""
	}
	return res.Mismatches[0].What
}

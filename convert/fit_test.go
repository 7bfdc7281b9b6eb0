package convert_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"cfi2sframe/convert"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/sframe"
)

// TestFarSection replaces an .sframe at a low address. One function is 1 GiB after it, and one 2.2 GiB. The rows of the
// first one are too large for its place. After the code, start addresses of 32 bits reach both functions.
func TestFarSection(t *testing.T) {
	const (
		source = `	.macro function
	.cfi_startproc
	push %%rbp
	.cfi_def_cfa_offset 16
	pop %%rbp
	.cfi_def_cfa_offset 8
	ret
	.cfi_endproc
	.endm
	.section .near, "ax"
	function
	.section .far, "ax"
	.globl _start
_start:	function
	.section .old, "a" # GNU ld reads what is called .sframe
	.balign 8
	.short %#x
	.skip 38
`
		script = `PHDRS {
	low PT_LOAD FILEHDR PHDRS FLAGS(4); near PT_LOAD FLAGS(5); far PT_LOAD FLAGS(5);
	sframe %#x FLAGS(4);
}
SECTIONS {
	. = 0x400000 + SIZEOF_HEADERS;
	.sframe : { *(.old) } :low :sframe
	. = 0x40000000;
	.near : { *(.near) } :near
	.eh_frame : { *(.eh_frame) } :near
	. = 0x90000000;
	.far : { *(.far) } :far
}
`
		size = 3 // of each function
	)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"far.s":     fmt.Sprintf(source, sframe.Magic),
		"farther.s": strings.Replace(fmt.Sprintf(source, sframe.Magic), "near, \"ax\"\n\tfunction", "near, \"ax\"", 1),
		"script":    fmt.Sprintf(script, sframe.PTGNUSFrame),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, cmd := range [][]string{
		{"as", "--64", "far.s", "-o", "far.o"},
		{"ld", "-m", "elf_x86_64", "-T", "script", "far.o", "-o", "far"},
		{"as", "--64", "farther.s", "-o", "farther.o"},
		{"ld", "-m", "elf_x86_64", "-T", "script", "farther.o", "-o", "farther"},
	} {
		c := exec.Command(peer.Look(t, cmd[0]), cmd[1:]...)
		c.Dir = dir
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd, err, out)
		}
	}
	in := filepath.Join(dir, "far")
	out, c := run(t, in, convert.Options{Force: true})
	if c.Described != 2*size || c.Covered != 2*size || !c.Verified {
		t.Errorf("%d of %d bytes are covered, verified %t; want %d", c.Covered, c.Described,
			c.Verified, 2*size)
	}
	if at := open(t, out).Section(sframe.SectionName).Addr; at < 0x90000000 {
		t.Errorf("the section is at %#x", at)
	}
	// From the old place no code is in reach.
	if _, err := tryRun(t, filepath.Join(dir, "farther"), convert.Options{Force: true, Version: sframe.V2}); err == nil ||
		!strings.Contains(err.Error(), "is more than 2 GiB away from all code") {
		t.Errorf("too far from all code: %v", err)
	}
	if _, err := tryRun(t, filepath.Join(dir, "farther"),
		convert.Options{Force: true, Version: sframe.V3}); err != nil {
		t.Errorf("in format 3: %v", err)
	}
}

package convert_test

import (
	"fmt"
	"strings"
	"testing"

	"cfi2sframe/convert"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/sframe"
)

// TestFarSection replaces an .sframe at a low address. One function is 1 GiB after it, another 2.2 GiB. The section
// outgrows the old space even if it has rows only for the nearer function. From an address after the code, 32-bit start
// addresses reach both functions.
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
	.section .old, "a" # GNU ld parses input sections named .sframe
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
		size = 3 // size of each function in bytes
	)
	text, layout := fmt.Sprintf(source, sframe.Magic), fmt.Sprintf(script, sframe.PTGNUSFrame)
	in := linkScript(t, peer.Assembled(t, text), layout)
	text = strings.Replace(text, "near, \"ax\"\n\tfunction", "near, \"ax\"", 1)
	farther := linkScript(t, peer.Assembled(t, text), layout)
	out, c := run(t, in, convert.Options{Force: true})
	if c.Described != 2*size || c.Covered != 2*size || !c.Verified {
		t.Errorf("%d of %d bytes are covered, verified %t; want %d", c.Covered, c.Described, c.Verified, 2*size)
	}
	if at := open(t, out).Section(sframe.SectionName).Addr; at < 0x90000000 {
		t.Errorf("the section is at %#x", at)
	}
	// No code is within reach of the old address.
	const want = "no code is within 2 GiB of .sframe at 0x400120; use format 3, or remove the old section first"
	_, err := tryRun(t, farther, convert.Options{Force: true, Version: sframe.V2})
	if err == nil || err.Error() != want {
		t.Errorf("too far from all code: %v", err)
	}
	if _, err := tryRun(t, farther, convert.Options{Force: true, Version: sframe.V3}); err != nil {
		t.Errorf("in format 3: %v", err)
	}
}

package convert_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"cfi2sframe/convert"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/sframe"
)

// plt returns a function of 96 bytes with CFA = rsp + 8, or rsp + 16 where the low 4 bits of the pc are 11 or more.
func plt(align int) string {
	return fmt.Sprintf(".balign %d\n.globl plt\n.type plt, @function\nplt:\n.cfi_startproc\n"+
		".cfi_escape 0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22\n"+
		".skip 96, 0x90\n.cfi_endproc\n.size plt, 96\n", align)
}

// TestMoved converts functions whose CFA depends on the pc. They get rows only if the CFA does not depend on the load
// address.
func TestMoved(t *testing.T) {
	object, shared, fixed := []string(nil), []string{"-shared"}, []string{"-no-pie"}
	for _, tt := range []struct {
		name, source string
		link         []string // ld flags; nil for an object
		certain      bool
	}{
		{"object, aligned to 16", plt(16), object, true},
		{"object, aligned to 8", plt(8), object, false},
		{"object, not aligned", plt(1), object, false},
		{"object, aligned to 2 MiB", plt(2 << 20), object, true},
		{"library", plt(16), shared, true},
		{"program", plt(16), fixed, true},
	} {
		path := peer.Assembled(t, ".globl _start\n_start:\n"+tt.source)
		if tt.link != nil {
			path = peer.Linked(t, path, tt.link...)
		}
		for _, version := range []sframe.Version{sframe.V1, sframe.V2, sframe.V3} {
			if version == sframe.V1 && tt.link == nil {
				continue
			}
			j := add(convert.Options{Version: version})
			if tt.link == nil && !tt.certain {
				j = dry(j)
			}
			_, c := runJob(t, path, j)
			if tt.certain && (c.Covered != 96 || len(c.Gaps) > 0) || !tt.certain &&
				(c.Covered > 0 || len(c.Gaps) != 1 || c.Gaps[0].Reason != "cfa-address") {
				t.Errorf("%s, %v: %d bytes covered, gaps %+v", tt.name, version, c.Covered, c.Gaps)
			}
		}
	}
}

// TestMovedObject links converted objects with GNU ld, at odd and even multiples of their alignment, and compares the
// merged section with the CFI.
func TestMovedObject(t *testing.T) {
	for _, tt := range []struct {
		suite   string
		version sframe.Version
	}{{"trixie", sframe.V2}, {"sid", sframe.V3}} {
		ld := peer.Tool(t, tt.suite, "ld.bfd")
		// The rows of the other function do not depend on the pc.
		in := peer.Assembled(t, ".globl _start\n_start:\n.cfi_startproc\nnop\n.cfi_endproc\n"+
			".section .text.plt,\"ax\"\n"+
			plt(16))
		object, res := run(t, in, convert.Options{Version: tt.version})
		for _, at := range []int{0x401000, 0x401010, 0x401020, 0x401030} {
			dir := t.TempDir()
			script, prog := filepath.Join(dir, "script"), filepath.Join(dir, "prog")
			text := fmt.Sprintf("SECTIONS { . = %#x; .text : { *(.text.plt) *(.text) } "+
				".eh_frame : { *(.eh_frame) } .sframe : { *(.sframe) } }", at)
			testfile.Write(t, script, text)
			must.Run(t, ld("-T", script, object, "-o", prog))
			c := must.Get(check(testfile.Read(t, prog)))(t)
			if len(c.Mismatches) > 0 || c.Covered != res.Covered || c.Described != 97 {
				t.Errorf("%v, at %#x: %d bytes are covered in the object, %d of %d in the program; mismatches %v",
					tt.version, at, res.Covered, c.Covered, c.Described, c.Mismatches)
			}
		}
	}
}

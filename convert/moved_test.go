package convert_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"cfi2sframe/cfi"
	"cfi2sframe/convert"
	"cfi2sframe/elffile"
	"cfi2sframe/emit"
	"cfi2sframe/internal/files"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/sframe"
	"cfi2sframe/translate"
	"cfi2sframe/verify"
)

// masked is a function of 96 bytes with CFA = rsp + 8, and 8 more where the pc, masked, is 11 or more.
func masked(align int, mask uint16) string {
	return fmt.Sprintf(".balign %d\n.globl masked\n.type masked, @function\nmasked:\n.cfi_startproc\n"+
		".cfi_escape 0x0f, 13, 0x77, 8, 0x80, 0, 0x0a, %d, %d, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22\n"+
		".skip 96, 0x90\n.cfi_endproc\n.size masked, 96\n", align, mask&0xff, mask>>8)
}

// assembled makes an amd64 object of assembler source.
func assembled(t *testing.T, source string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a.o")
	as := exec.Command(peer.Look(t, "as"), "--64", "-", "-o", path)
	as.Stdin = strings.NewReader(source)
	if out, err := as.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// TestMoved has functions whose CFA depends on the pc: on what is the same wherever the code is put,
// or not. What is described although it is not is found by the check.
func TestMoved(t *testing.T) {
	above := func(addr uint32) string { // CFA = rsp + 8, and 8 more from an address on
		return fmt.Sprintf(".balign 16\n.cfi_startproc\n.cfi_escape 0x0f, 13, 0x77, 8, 0x80, 0, 0x0c, %d, %d, %d, %d, 0x2a, 0x33, 0x24, 0x22\n.skip 96, 0x90\n.cfi_endproc\n",
			byte(addr), byte(addr>>8), byte(addr>>16), byte(addr>>24))
	}
	object, shared, fixed := []string(nil), []string{"-shared"}, []string{"-no-pie"}
	for _, tt := range []struct {
		name, source string
		link         []string // flags of ld; nil for an object
		certain      bool
	}{
		{"object, 4 bits, aligned to 16", masked(16, 15), object, true},
		{"object, 5 bits, aligned to 16", masked(16, 31), object, false},
		{"object, 5 bits, aligned to 32", masked(32, 31), object, true},
		{"object, 4 bits, not aligned", masked(1, 15), object, false},
		{"object, 12 bits, aligned to a page", masked(4096, 4095), object, true},
		{"object, 13 bits, aligned to two pages", masked(8192, 8191), object, false}, // of which the first may be any in a library
		{"object, 5 bits, aligned to 2 MiB", masked(2<<20, 31), object, true},
		{"object, 12 bits, aligned to 2 MiB", masked(2<<20, 4095), object, false}, // the base that it gets is not
		{"object, above an address", above(0x401010), object, false},
		{"library, 4 bits", masked(16, 15), shared, true},
		{"library, 12 bits", masked(16, 4095), shared, true},
		{"library, 13 bits", masked(16, 8191), shared, false},
		{"library, above an address", above(0x1010), shared, false},
		{"program, 13 bits", masked(16, 8191), fixed, true},
		{"program, above an address", above(0x401010), fixed, true},
	} {
		path := assembled(t, ".globl _start\n_start:\n"+tt.source)
		if tt.link != nil {
			prog := filepath.Join(t.TempDir(), "prog")
			if out, err := exec.Command(peer.Look(t, "ld"), append(tt.link, path, "-o", prog)...).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			path = prog
		}
		for _, version := range []sframe.Version{sframe.V1, sframe.V2, sframe.V3} {
			if version == sframe.V1 && tt.link == nil {
				continue
			}
			_, c := run(t, path, convert.Options{Version: version, DryRun: tt.link == nil && !tt.certain})
			if tt.certain && (c.Covered != 96 || len(c.Gaps) > 0) || !tt.certain && (c.Covered > 0 || len(c.Gaps) != 1 || c.Gaps[0].Reason != "cfa-address") {
				t.Errorf("%s, %v: %d bytes covered, gaps %+v", tt.name, version, c.Covered, c.Gaps)
			}
		}
		// As if no code was ever moved.
		res := described(t, open(t, path), translate.Options{Version: sframe.V2, Moves: func(uint64) uint64 { return 0 }})
		if tt.certain && (res.Total > 0 || res.Covered != 96) || !tt.certain && res.Total == 0 {
			t.Errorf("%s: the check finds %+v", tt.name, res)
		}
	}
}

// described translates the CFI of a file in the given way and checks that.
func described(t *testing.T, f *elffile.File, opt translate.Options) *verify.Result {
	t.Helper()
	table, err := cfi.Load(f, cfi.Auto, nil)
	if err != nil {
		t.Fatal(err)
	}
	build, err := emit.NewBuilder(emit.Options{Version: opt.Version, ABI: sframe.AMD64Little})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := translate.Translate(table, opt, build); err != nil {
		t.Fatal(err)
	}
	const addr = 0x500000
	data, err := emit.Join([]*emit.Builder{build}).Encode(addr)
	if err != nil {
		t.Fatal(err)
	}
	s, err := sframe.Decode(data, addr)
	if err != nil {
		t.Fatal(err)
	}
	res, err := verify.Check(table, s, f, verify.Options{Keep: 10})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// TestMovedObject has GNU ld put converted objects at odd and at even multiples of their alignment, and
// checks what it merges with the CFI there.
func TestMovedObject(t *testing.T) {
	for _, tt := range []struct {
		suite   string
		version sframe.Version
	}{{"trixie", sframe.V2}, {"sid", sframe.V3}} {
		ld := peer.Tool(t, tt.suite, "ld.bfd")
		for _, align := range []int{16, 32} {
			// The other function has rows that are merged anyway.
			in := assembled(t, ".globl _start\n_start:\n.cfi_startproc\nnop\n.cfi_endproc\n.section .text.masked,\"ax\"\n"+masked(align, 31))
			object, res := run(t, in, convert.Options{Version: tt.version})
			for _, at := range []int{0x401000, 0x401010, 0x401020, 0x401030} {
				if at%align != 0 {
					continue
				}
				dir := t.TempDir()
				script, prog := filepath.Join(dir, "script"), filepath.Join(dir, "prog")
				text := fmt.Sprintf("SECTIONS { . = %#x; .text : { *(.text.masked) *(.text) } .eh_frame : { *(.eh_frame) } .sframe : { *(.sframe) } }", at)
				if err := os.WriteFile(script, []byte(text), 0o666); err != nil {
					t.Fatal(err)
				}
				if out, err := ld("-T", script, object, "-o", prog).CombinedOutput(); err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				c, err := files.Check(t.Context(), prog, convert.Options{})
				if err != nil {
					t.Fatal(err)
				}
				if len(c.Mismatches) > 0 || c.Covered != res.Covered || c.Described != 97 {
					t.Errorf("%v, aligned to %d, at %#x: %d bytes are covered in the object, %d of %d in the program; mismatches %v",
						tt.version, align, at, res.Covered, c.Covered, c.Described, c.Mismatches)
				}
			}
		}
	}
}

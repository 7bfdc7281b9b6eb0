package convert_test

import (
	"bytes"
	"context"
	"debug/elf"
	"os/exec"
	"path/filepath"
	"testing"

	"cfi2sframe/convert"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/sframe"
)

// formats lists Options for which the sections differ.
var formats = []convert.Options{
	{Version: sframe.V1}, {Version: sframe.V2}, {Version: sframe.V2, PCRel: true},
	{Version: sframe.V2, Outermost: true}, {Version: sframe.V3},
	{Version: sframe.V3, Share: convert.ShareOff}, {Version: sframe.V3, Share: convert.ShareOn},
	{Version: sframe.V3, NoPadding: true},
}

// TestCurrent updates fixtures of all ABIs from each format to every format: a file already in the requested format is
// unchanged, and any other file gives the same result as the file without .sframe.
func TestCurrent(t *testing.T) {
	for _, abi := range []string{"amd64", "aarch64", "aarch64_be", "s390x"} {
		for _, name := range fixtureNames(t, abi) {
			b := testfile.Read(t, filepath.Join(fixtures, abi, name))
			results := make(map[int][]byte) // by index in formats
			for i, opt := range formats {
				if out, _, err := inMemory(b, opt); err == nil { // V1 does not support s390x
					results[i] = out
				}
			}
			if len(results) < len(formats)-1 {
				t.Fatalf("%s/%s: %d formats; want %d", abi, name, len(results), len(formats)-1)
			}
			for from, old := range results {
				for to, want := range results {
					opt := formats[to]
					opt.Update = true
					got, res, err := inMemory(old, opt)
					if err != nil || !bytes.Equal(got, want) && from != to {
						t.Fatalf("%s/%s from %v to %v: %d bytes, not the %d expected; error %v", abi, name, from,
							to, len(got), len(want), err)
					}
					same := bytes.Equal(old, want)
					if (res.Stays == convert.Current) != same || same &&
						(len(res.Kept) != 1 || !res.Facts[0].Verified) {
						t.Errorf("%s/%s from %v to %v: stays %q, kept %v; the files are the same: %t", abi, name, from,
							to, res.Stays, res.Kept, same)
					}
				}
			}
		}
	}
}

// TestWrongIsReplaced modifies each byte of an .sframe. If the file is unchanged by the update, the section must be
// correct.
func TestWrongIsReplaced(t *testing.T) {
	for _, opt := range []convert.Options{{Version: sframe.V2}, {Version: sframe.V3}} {
		want := converted(t, "plt", opt)
		data, s := sectionOf(t, want, ".sframe")
		opt.Update = true
		replaced, refused := 0, 0
		for i := range data {
			b := bytes.Clone(want)
			b[s.Offset+uint64(i)] ^= 1
			got, res, err := inMemory(b, opt)
			switch {
			case err != nil: // a section without the magic number is not replaced
				refused++
			case res.Stays == "":
				replaced++
				if !bytes.Equal(got, want) {
					t.Errorf("byte %d: the result differs from that for the plain file", i)
				}
			default:
				if c, err := check(got); err != nil || len(c.Mismatches) > 0 || c.Covered != res.Facts[0].Covered {
					t.Errorf("byte %d: the unchanged section is wrong: %+v, error %v", i, c, err)
				}
			}
		}
		if refused != 2 || replaced < len(data)/2 {
			t.Errorf("V%d: of %d changes, %d lead to a new section, and %d to an error; want 2 errors", opt.Version,
				len(data), replaced, refused)
		}
	}
}

// TestLinkedIsReplaced updates libraries with linker-generated .sframe sections, some of which do not describe all
// functions.
func TestLinkedIsReplaced(t *testing.T) {
	source := filepath.Join(t.TempDir(), "f.s")
	testfile.Write(t, source, "f:\n.cfi_startproc\n.ifdef outermost\n.cfi_undefined rip\n.endif\n"+
		".skip 64, 0x90\nret\n.cfi_endproc\n")
	for _, tt := range []struct {
		name, suite, build string
		opt, object        convert.Options // object.Version > 0: a.o is converted before linking
		covered, described uint64          // before
	}{
		{"an object without .sframe", "trixie", "as f.s -o a.o; cp a.o b.o", convert.Options{Version: sframe.V2},
			convert.Options{Version: sframe.V2}, 65, 130},
		// The function in the object with .sframe has no caller; the other function has one. Both have the same size.
		{"rows of other functions", "trixie", "as --defsym outermost=1 f.s -o a.o; as f.s -o b.o",
			convert.Options{Version: sframe.V2}, convert.Options{Version: sframe.V2, Outermost: true}, 65, 130},
		{"GNU as", "sid", "as --gsframe f.s -o a.o; cp a.o b.o", convert.Options{}, convert.Options{}, 130, 130},
	} {
		dir := peer.Run(t, tt.suite, tt.build, source)
		if tt.object.Version > 0 {
			path := filepath.Join(dir, "a.o")
			object, _ := must.Two(inMemory(testfile.Read(t, path), tt.object))(t)
			testfile.Write(t, path, object)
		}
		peer.Again(t, tt.suite, dir, "ld -shared a.o b.o -o lib.so")
		lib := testfile.Read(t, filepath.Join(dir, "lib.so"))
		if c, err := check(lib); err != nil || c.Covered != tt.covered || c.Described != tt.described {
			t.Fatalf("%s: linked, %+v, error %v", tt.name, c, err)
		}
		opt := tt.opt
		opt.Force = true
		want, _ := must.Two(inMemory(lib, opt))(t)
		opt = tt.opt
		opt.Update = true
		for _, stays := range []convert.Reason{"", convert.Current} {
			got, res, err := inMemory(lib, opt)
			if err != nil || res.Stays != stays || !bytes.Equal(got, want) {
				t.Errorf("%s: %+v, error %v; want %q", tt.name, res, err, stays)
			}
			lib = got
		}
	}
}

// TestCurrentObjects updates objects, and archives of objects with a member that may be up to date.
func TestCurrentObjects(t *testing.T) {
	none := elftest.NewObject()
	none.Sections[elftest.ObjFrame].Data, none.Sections[elftest.ObjRela].Data = nil, nil
	object, without := elftest.NewObject().Bytes(), none.Bytes()
	v2, v3 := convert.Options{Version: sframe.V2, Update: true}, convert.Options{Version: sframe.V3, Update: true}
	must := func(b []byte, opt convert.Options, stays convert.Reason) ([]byte, *convert.Result) {
		t.Helper()
		out, res, err := inMemory(b, opt)
		if err != nil || res.Stays != stays {
			t.Errorf("stays %q, error %v; want %q", res.Stays, err, stays)
		}
		return out, res
	}
	for _, b := range [][]byte{object, ar(without, object, object)} {
		current, _ := must(b, v3, "")
		if same, _ := must(current, v3, convert.Current); !bytes.Equal(same, current) {
			t.Error("an update has changed an up-to-date file")
		}
		got, _ := must(current, v2, "")
		if want, _ := must(b, v2, ""); !bytes.Equal(got, want) {
			t.Error("an update to a different version differs from the result for the plain file")
		}
	}
	converted, _ := must(object, v2, "")
	partly := ar(without, converted, object)
	got, res := must(partly, v2, "")
	if want := ar(without, converted, converted); !bytes.Equal(got, want) || len(res.Kept) != 2 ||
		res.Kept[0].Reason != convert.NoCode || res.Kept[1].Member != "1.o" || res.Kept[1].Reason != convert.Current {
		t.Errorf("with one member up to date: %+v", res)
	}
	v2.Update, v2.Force = false, true
	if forced, _ := must(partly, v2, ""); !bytes.Equal(forced, got) {
		t.Error("with Force, the archive differs")
	}
}

// TestSkipped expects unsupported files to be rejected with an error, or skipped if SkipUnsupported is set.
func TestSkipped(t *testing.T) {
	plain := testfile.Read(t, filepath.Join(fixtures, "amd64", "plt"))
	with := func(f func(b []byte)) []byte {
		b := bytes.Clone(plain)
		f(b)
		return b
	}
	dir := t.TempDir()
	debug := filepath.Join(dir, "plt.debug")
	output(t, exec.Command(peer.Look(t, "objcopy"), "--only-keep-debug", filepath.Join(fixtures, "amd64", "plt"),
		debug))
	without := filepath.Join(dir, "without")
	output(t, exec.Command(peer.Look(t, "objcopy"), "-R", ".eh_frame", "-R", ".eh_frame_hdr",
		filepath.Join(fixtures, "amd64", "plt"), without))
	// Only the terminator of .eh_frame remains.
	_, frames := sectionOf(t, plain, ".eh_frame")
	noCode := with(func(b []byte) { clear(b[frames.Offset : frames.Offset+frames.Size]) })
	for _, test := range []struct {
		name string
		data []byte
		want convert.Reason
	}{
		{"an empty .eh_frame", noCode, convert.NoCode},
		{"script", []byte("#!/bin/sh\n"), convert.NotELF},
		{"linker script", []byte("/* GNU ld script */ GROUP ( libc.so.6 libc_nonshared.a AS_NEEDED ( " +
			"ld-linux-x86-64.so.2 ) )\n"), convert.NotELF},
		{"an empty file", nil, convert.NotELF},
		{"32 bits", with(func(b []byte) { b[elf.EI_CLASS] = byte(elf.ELFCLASS32) }), convert.Class32},
		{"RISC-V", with(func(b []byte) { b[18] = byte(elf.EM_RISCV) }), convert.Machine},
		{"debug information", testfile.Read(t, debug), convert.DebugOnly},
		{"no CFI", testfile.Read(t, without), convert.NoCFI},
		{"thin archive", []byte("!<thin>\n"), convert.ArchiveKind},
	} {
		if _, _, err := inMemory(test.data, convert.Options{}); err == nil {
			t.Errorf("%s: no error", test.name)
		}
		got, res, err := runBytes(test.data, func(ctx context.Context, run *convert.Run) (*convert.Result, error) {
			run.Report = func(d *convert.Details) error { // no section is written
				if section, err := d.Section(); section != nil || err != nil {
					t.Errorf("%s: section %v, %v", test.name, section, err)
				}
				return nil
			}
			return skip(add(convert.Options{}))(ctx, run)
		})
		if err != nil || res.Stays != test.want || !bytes.Equal(got, test.data) || res.Kept[0].Reason != test.want ||
			test.want.Text() == "" {
			t.Errorf("%s: %+v, error %v", test.name, res, err)
		}
	}
	// Malformed files are still an error.
	damaged := with(func(b []byte) { b[0x3a] = 1 }) // e_shentsize
	if _, res, err := runBytes(damaged, skip(add(convert.Options{}))); err == nil {
		t.Errorf("damaged: %+v", res)
	}
	// An archive with a member for an unsupported machine.
	odd := ar(plain, with(func(b []byte) { b[18] = byte(elf.EM_RISCV) }))
	if _, _, err := inMemory(odd, convert.Options{}); err == nil {
		t.Error("archive: no error")
	}
	if _, res, err := runBytes(odd, skip(add(convert.Options{}))); err != nil || len(res.Facts) != 1 ||
		len(res.Kept) != 1 || res.Kept[0].Reason != convert.Machine {
		t.Errorf("archive: %+v, error %v", res, err)
	}
}

package convert_test

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"cfi2sframe/convert"
	"cfi2sframe/internal/files"
	"cfi2sframe/internal/testkit/linked"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/sframe"
)

// forms are options that change the section.
var forms = []convert.Options{
	{Version: sframe.V1}, {Version: sframe.V2}, {Version: sframe.V2, PCRel: true},
	{Version: sframe.V2, Outermost: true}, {Version: sframe.V3},
	{Version: sframe.V3, Share: convert.ShareOff}, {Version: sframe.V3, Share: convert.ShareOn},
	{Version: sframe.V3, NoPadding: true},
}

// TestCurrent updates fixtures of all ABIs from each format to each: what is of the asked one stays, and of everything
// else becomes what becomes of the file without .sframe.
func TestCurrent(t *testing.T) {
	for _, abi := range []string{"amd64", "aarch64", "aarch64_be", "s390x"} {
		for _, name := range fixtureNames(t, abi) {
			b := testfile.Read(t, filepath.Join(fixtures, abi, name))
			results := make(map[int][]byte) // by the index of the form
			for i, opt := range forms {
				if out, _, err := inMemory(b, opt); err == nil { // V1 knows no s390x
					results[i] = out
				}
			}
			if len(results) < len(forms)-1 {
				t.Fatalf("%s/%s: %d formats; want %d", abi, name, len(results), len(forms)-1)
			}
			for from, old := range results {
				for to, want := range results {
					opt := forms[to]
					opt.Update = true
					got, res, err := inMemory(old, opt)
					if err != nil || !bytes.Equal(got, want) && from != to {
						t.Fatalf("%s/%s from %v to %v: %d bytes; want %d others; error %v", abi, name, from,
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

// TestWrongIsReplaced changes each byte of an .sframe, one at a time. What stays nevertheless has to be right.
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
			case err != nil: // nothing with such a magic number is replaced
				refused++
			case res.Stays == "":
				replaced++
				if !bytes.Equal(got, want) {
					t.Errorf("byte %d: the result is not what becomes of the file otherwise", i)
				}
			default:
				if c, err := check(got); err != nil ||
					len(c.Mismatches) > 0 || c.Covered != res.Facts[0].Covered {
					t.Errorf("byte %d: what stays is wrong: %+v, error %v", i, c, err)
				}
			}
		}
		if refused != 2 || replaced < len(data)/2 {
			t.Errorf("V%d: of %d changes %d lead to a new section, and %d to an error; want 2", opt.Version,
				len(data), replaced, refused)
		}
	}
}

// TestIncompleteIsReplaced links a static program of objects of which one has no .sframe. GNU ld merges the others, and
// that is right, but does not describe all code.
func TestIncompleteIsReplaced(t *testing.T) {
	dir := peer.Run(t, "sid", "g++-16 -O2 -fPIC -c two.cc; as hand_amd64.s -o hand.o",
		"../testdata/cxx/parts.h", "../testdata/cxx/two.cc", "../testdata/cxx/hand_amd64.s")
	two, prog := filepath.Join(dir, "two.o"), filepath.Join(dir, "prog")
	opt := files.Options{Work: files.Add(convert.Options{Version: sframe.V3}, "")}
	if _, err := files.Convert(t.Context(), two, two, opt); err != nil {
		t.Fatal(err)
	}
	peer.Again(t, "sid", dir, "ld -shared two.o hand.o -o prog")
	before, err := linked.Check(prog)
	if err != nil || before.Covered == 0 || before.Covered == before.Described {
		t.Fatalf("%+v (%v); want some code without .sframe", before, err)
	}
	opt.Work = files.Add(convert.Options{Version: sframe.V3, Update: true}, "")
	for _, stays := range []convert.Reason{"", convert.Current} {
		res, err := files.Convert(t.Context(), prog, prog, opt)
		if err != nil || res.Stays != stays || res.Facts[0].Covered != res.Facts[0].Described {
			t.Fatalf("stays %q; want and %q; covered: %+v; error %v", res.Stays, stays, res.Facts[0], err)
		}
	}
}

// TestOtherRowsAreReplaced has a section with as many bytes of code as ours would have, but of other functions: there
// are rows for code without a caller, which was not asked for, and none for a function of the same size.
func TestOtherRowsAreReplaced(t *testing.T) {
	dir := t.TempDir()
	for name, rules := range map[string]string{"plain": "", "outermost": ".cfi_undefined rip"} {
		testfile.Write(t, filepath.Join(dir, name+".s"), ".globl "+name+"\n.type "+name+", @function\n"+name+
			":\n.cfi_startproc\n"+rules+"\n.skip 64, 0x90\nret\n.cfi_endproc\n.size "+name+", .-"+name+"\n")
	}
	dir = peer.Run(t, "trixie", "as plain.s -o plain.o; as outermost.s -o outermost.o", filepath.Join(dir, "plain.s"),
		filepath.Join(dir, "outermost.s"))
	object, lib := filepath.Join(dir, "outermost.o"), filepath.Join(dir, "lib.so")
	if _, err := files.Convert(t.Context(), object, object,
		files.Options{Work: files.Add(convert.Options{Outermost: true}, "")}); err != nil {
		t.Fatal(err)
	}
	peer.Again(t, "trixie", dir, "ld -shared plain.o outermost.o -o lib.so")
	before, err := check(testfile.Read(t, lib))
	if err != nil || before.Covered != 65 || before.Described != 130 {
		t.Fatalf("%+v, error %v", before, err)
	}
	plain, err := tryRun(t, lib, convert.Options{Force: true})
	if err != nil {
		t.Fatal(err)
	}
	res, err := files.Convert(t.Context(), lib, lib, files.Options{Work: files.Add(convert.Options{Update: true}, "")})
	if err != nil || res.Stays != "" || !bytes.Equal(testfile.Read(t, lib), testfile.Read(t, plain)) {
		t.Errorf("stays %q, error %v", res.Stays, err)
	}
}

// TestCurrentObjects updates objects, and an archive of them, in place.
func TestCurrentObjects(t *testing.T) {
	dir := peer.Run(t, "sid", "g++-16 -O2 -c two.cc; as hand_amd64.s -o hand.o; echo 'text = 1' >empty.s; as empty.s -o empty.o",
		"../testdata/cxx/parts.h", "../testdata/cxx/two.cc", "../testdata/cxx/hand_amd64.s")
	path := func(name string) string { return filepath.Join(dir, name) }
	opt := files.Options{Work: files.Add(convert.Options{Version: sframe.V3, Update: true}, "")}
	peer.Again(t, "sid", dir, "ar rcs lib.a empty.o two.o hand.o")
	for _, name := range []string{"two.o", "lib.a"} {
		plain := testfile.Read(t, path(name))
		for _, stays := range []convert.Reason{"", convert.Current} {
			before, err := os.Stat(path(name))
			if err != nil {
				t.Fatal(err)
			}
			res, err := files.Convert(t.Context(), path(name), path(name), opt)
			if err != nil || res.Stays != stays {
				t.Fatalf("%s: stays %q; want and %q; error %v", name, res.Stays, stays, err)
			}
			if after, err := os.Stat(path(name)); err != nil ||
				os.SameFile(before, after) != (stays == convert.Current) {
				t.Errorf("%s: it is the same file: %t, error %v", name, os.SameFile(before, after), err)
			}
		}
		// Another format also has another section type.
		v2 := convert.Options{Version: sframe.V2, Update: true}
		other := files.Options{Work: files.Add(v2, "")}
		if res, err := files.Convert(t.Context(), path(name), path(name), other); err != nil || res.Stays != "" {
			t.Errorf("%s: stays %q, error %v", name, res.Stays, err)
		}
		want, _, err := inMemory(plain, v2)
		if err != nil || !bytes.Equal(testfile.Read(t, path(name)), want) {
			t.Errorf("%s: not what becomes of the plain file; error %v", name, err)
		}
	}
	// Of an archive one member needs an update.
	peer.Again(t, "sid", dir, "ar rcs some.a empty.o two.o hand.o")
	other := files.Options{Work: files.Add(convert.Options{Version: sframe.V2, Update: true}, "")}
	res, err := files.Convert(t.Context(), path("some.a"), path("some.a"), other)
	if err != nil || res.Stays != "" || len(res.Kept) != 2 ||
		res.Kept[1] != (convert.Kept{Member: "two.o", Reason: convert.Current, Why: res.Kept[1].Why}) {
		t.Errorf("%+v, error %v", res, err)
	}
	// What has nothing to be described is not touched either.
	before := testfile.Read(t, path("empty.o"))
	info, err := os.Stat(path("empty.o"))
	if err != nil {
		t.Fatal(err)
	}
	if res, err := files.Convert(t.Context(), path("empty.o"), path("empty.o"), files.Options{}); err != nil ||
		res.Stays != convert.NoCFI {
		t.Errorf("%+v, error %v", res, err)
	}
	if now, err := os.Stat(path("empty.o")); err != nil || !os.SameFile(info, now) ||
		!bytes.Equal(before, testfile.Read(t, path("empty.o"))) {
		t.Errorf("an object without CFI was written anew; error %v", err)
	}
}

// TestCurrentOfOthers updates a library whose .sframe GNU as and ld have made: it has other bytes.
func TestCurrentOfOthers(t *testing.T) {
	dir := peer.Run(t, "sid", "g++-16 -O2 -fPIC -Wa,--gsframe -c two.cc; ld -shared two.o -o lib.so",
		"../testdata/cxx/parts.h", "../testdata/cxx/two.cc")
	path := filepath.Join(dir, "lib.so")
	_, s := sectionOf(t, testfile.Read(t, path), ".sframe")
	if s.Type != elf.SectionType(sframe.SHTGNUSFrame) {
		t.Errorf("the section's type is %v", s.Type)
	}
	for _, tt := range []struct {
		noPadding bool
		stays     convert.Reason
	}{{true, ""}, {true, convert.Current}, {false, ""}, {false, convert.Current}, {true, ""}} {
		opt := convert.Options{Version: sframe.V3, Update: true, NoPadding: tt.noPadding}
		res, err := files.Convert(t.Context(), path, path, files.Options{Work: files.Add(opt, "")})
		if err != nil || res.Stays != tt.stays {
			t.Errorf("no padding: %t: stays %q, want %q, error %v", tt.noPadding, res.Stays, tt.stays, err)
		}
	}
}

// TestSkipped has files that SFrame has nothing for: an error, or not.
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
	// Only the terminator is left of what .eh_frame has.
	_, frames := sectionOf(t, plain, ".eh_frame")
	noCode := with(func(b []byte) { clear(b[frames.Offset : frames.Offset+frames.Size]) })
	// Its debug file has a .debug_frame, which would do as CFI.
	source, own := filepath.Join(dir, "own.c"), filepath.Join(dir, "own")
	testfile.Write(t, source, "int main(void) { return 0; }\n")
	output(t, exec.Command(peer.Look(t, "gcc"), "-g", "-fno-asynchronous-unwind-tables", "-nostartfiles", "-Wl,-e,main",
		"-o", own, source))
	output(t, exec.Command(peer.Look(t, "objcopy"), "--only-keep-debug", own, own+".debug"))
	sectionOf(t, testfile.Read(t, own+".debug"), ".debug_frame")
	for _, test := range []struct {
		name string
		data []byte
		want convert.Reason
	}{
		{"debug information with CFI", testfile.Read(t, own+".debug"), convert.DebugOnly},
		{"an empty .eh_frame", noCode, convert.NoCode},
		{"script", []byte("#!/bin/sh\n"), convert.NotELF},
		{"linker script", []byte("/* GNU ld script */ GROUP ( libc.so.6 libc_nonshared.a AS_NEEDED ( ld-linux-x86-64.so.2 ) )\n"), convert.NotELF},
		{"nothing", nil, convert.NotELF},
		{"32 bits", with(func(b []byte) { b[elf.EI_CLASS] = byte(elf.ELFCLASS32) }), convert.Class32},
		{"RISC-V", with(func(b []byte) { b[18] = byte(elf.EM_RISCV) }), convert.Machine},
		{"debug information", testfile.Read(t, debug), convert.DebugOnly},
		{"no CFI", testfile.Read(t, without), convert.NoCFI},
		{"thin archive", []byte("!<thin>\n"), convert.ArchiveKind},
	} {
		if _, _, err := inMemory(test.data, convert.Options{}); err == nil {
			t.Errorf("%s: no error", test.name)
		}
		got, res, err := do(test.data, skip(add(convert.Options{})))
		if err != nil || res.Stays != test.want || !bytes.Equal(got, test.data) || res.Kept[0].Reason != test.want ||
			test.want.Text() == "" {
			t.Errorf("%s: %+v, error %v", test.name, res, err)
		}
	}
	// What is damaged is an error still.
	damaged := with(func(b []byte) { b[0x3a] = 1 }) // e_shentsize
	if _, res, err := do(damaged, skip(add(convert.Options{}))); err == nil {
		t.Errorf("damaged: %+v", res)
	}
	// Members of an archive that are of other machines.
	odd := ar(plain, with(func(b []byte) { b[18] = byte(elf.EM_RISCV) }))
	if _, _, err := inMemory(odd, convert.Options{}); err == nil {
		t.Error("archive: no error")
	}
	if _, res, err := do(odd, skip(add(convert.Options{}))); err != nil || len(res.Facts) != 1 ||
		len(res.Kept) != 1 || res.Kept[0].Reason != convert.Machine {
		t.Errorf("archive: %+v, error %v", res, err)
	}
}

package gnu

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/cfi"
	"cfi2sframe/convert"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/files"
	"cfi2sframe/internal/testkit/linked"
	"cfi2sframe/internal/testkit/long"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/lab/kit"
	"cfi2sframe/sframe"
)

// A target is a machine for which sid has compilers.
type target struct {
	abi, prefix, qemu string
}

var targets = map[string]target{
	"amd64":   {"amd64", "", ""},
	"aarch64": {"aarch64", "aarch64-linux-gnu-", "qemu-aarch64 -L /usr/aarch64-linux-gnu "},
	"s390x":   {"s390x", "s390x-linux-gnu-", "qemu-s390x -L /usr/s390x-linux-gnu "},
}

// sources returns the files of the C++ program.
func sources(tg target) []string {
	var files []string
	for _, name := range []string{"parts.h", "one.cc", "two.cc", "hand_" + tg.abi + ".s"} {
		files = append(files, "../../testdata/cxx/"+name)
	}
	return files
}

// convertAll converts objects in place.
func convertAll(t *testing.T, dir string, opt convert.Options, names ...string) {
	t.Helper()
	for _, name := range names {
		path := filepath.Join(dir, name)
		res, err := files.Convert(t.Context(), path, path, files.Options{Work: files.Add(opt, "")})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, c := range res.Facts {
			if !c.Verified {
				t.Errorf("%s: not verified", name)
			}
		}
	}
}

// oldLinker copies a target's ld, version 2.44, from trixie to dir/b, for use in the sid system: trixie has no
// compilers for the target.
func oldLinker(t *testing.T, dir string, tg target) {
	t.Helper()
	root := peer.Root(t, "trixie")
	must.Do(t, kit.Run(dir, "sh", "-ec", fmt.Sprintf(`mkdir b
		cp -L %[1]s/usr/bin/%[2]sld b/ld.bin
		cd %[1]s/usr/lib/x86_64-linux-gnu
		cp -L libbfd-2.44-*.so libctf*.so.0 libsframe.so.* libjansson.so.* libzstd.so.* libz.so.* %[3]s/b
		printf '#!/bin/sh\nLD_LIBRARY_PATH=%[4]s exec %[4]s/ld.bin "$@"\n' >%[3]s/b/ld
		chmod +x %[3]s/b/ld`, root, tg.prefix, dir, "/tmp/"+filepath.Base(dir)+"/b")))
	peer.Again(t, "sid", dir, "b/ld --version | grep -q 2.44")
}

// startFiles returns commands that copy gcc's start files to the current directory: their code also has CFI.
func startFiles(prefix string) string {
	return "for f in Scrt1.o crti.o crtbeginS.o crtendS.o crtn.o; do cp $(" + prefix +
		"gcc-16 -print-file-name=$f) .; done\n"
}

// judge expects an .sframe merged by ld to be correct except for known mistakes of ld, and to contain all rows of the
// converted linked file, without PLTs if noPLT is set.
func judge(t *testing.T, path string, version sframe.Version, noPLT bool) *linked.Result {
	t.Helper()
	r, err := linked.Check(path)
	if err != nil {
		t.Errorf("%s: %v", filepath.Base(path), err)
		return nil
	}
	if r.Version != version {
		t.Errorf("%s: %v; want V%d", filepath.Base(path), r.Version, version)
	}
	for name := range r.Wrong {
		if !strings.HasPrefix(name, ".plt") || !isKnownMistake(version, name) {
			t.Errorf("%s: .sframe contradicts the CFI in %s: %v", filepath.Base(path), name, r.Mismatches)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Missing)) {
		if !noPLT || !strings.HasPrefix(name, ".plt") {
			t.Errorf("%s: %d bytes of %s are missing in the merged .sframe", filepath.Base(path), r.Missing[name], name)
		}
	}
	t.Logf("%s: %d FDEs; %d of %d bytes covered; %d described by converting the linked file; missing %v, wrong %v",
		filepath.Base(path), r.FDEs, r.Covered, r.Described, r.Direct, r.Missing, r.Wrong)
	return r
}

// TestLinkedObjects converts the objects of a C++ program, links them, and checks and runs the program.
func TestLinkedObjects(t *testing.T) {
	for _, tt := range []struct {
		abi, compiler string // compiler for C++; "" is GCC
		linkers       []string
	}{
		{"amd64", "", []string{"ld 2.47", "ld 2.44", "mold"}},
		{"aarch64", "", []string{"ld 2.47", "ld 2.44", "mold"}},
		{"s390x", "", []string{"ld 2.47", "mold"}},
		{"amd64", "clang++-23", []string{"ld 2.47", "ld 2.44"}},
	} {
		t.Run(tt.abi+" "+tt.compiler, func(t *testing.T) {
			if tt.abi != "amd64" || tt.compiler != "" {
				long.Test(t)
			}
			tg := targets[tt.abi]
			compile := cmp.Or(tt.compiler, tg.prefix+"g++-16") + " -O2 -ffunction-sections -c "
			dir := peer.Run(t, "sid", compile+"one.cc\n"+compile+"two.cc\n"+tg.prefix+"as hand_*.s -o hand.o\n"+
				startFiles(tg.prefix), sources(tg)...)
			objects := must.Get(filepath.Glob(dir + "/*.o"))(t)
			for _, linker := range tt.linkers {
				t.Run(linker, func(t *testing.T) { linkObjects(t, tg, linker, objects) })
			}
		})
	}
}

// linkObjects converts objects and start files, links them, and runs the program.
func linkObjects(t *testing.T, tg target, linker string, objects []string) {
	t.Helper()
	version := sframe.V3
	if linker == "ld 2.44" {
		version = sframe.V2
	}
	dir := peer.Run(t, "sid", "", objects...)
	convertAll(t, dir, convert.Options{Version: version}, "one.o", "two.o", "hand.o")
	for _, name := range []string{"Scrt1.o", "crti.o", "crtbeginS.o", "crtendS.o", "crtn.o"} {
		path := filepath.Join(dir, name)
		_, err := files.Convert(t.Context(), path, path,
			files.Options{Work: files.Add(convert.Options{Version: version}, "")})
		if err != nil && !errors.Is(err, cfi.ErrNone) && !errors.Is(err, convert.ErrNoCode) {
			t.Errorf("%s: %v", name, err)
		}
	}
	link := tg.prefix + "g++-16 "
	switch linker {
	case "ld 2.44":
		oldLinker(t, dir, tg)
		link += "-B$PWD/b "
	case "mold":
		link += "-fuse-ld=mold "
	}
	build := func(name, objects string) *linked.Result {
		t.Helper()
		peer.Again(t, "sid", dir, link+"-nostartfiles -o "+name+" Scrt1.o crti.o crtbeginS.o "+objects+
			" crtendS.o crtn.o\n"+tg.qemu+"./"+name)
		// Neither mold nor aarch64's ld describes PLTs; with --gc-sections, other linkers drop the rows of PLTs.
		noPLT := linker == "mold" || tg.abi == "aarch64" || strings.Contains(objects, "--gc")
		return judge(t, filepath.Join(dir, name), version, noPLT)
	}
	all := build("plain", "one.o two.o hand.o")
	if linker == "ld 2.44" {
		return // this linker drops .sframe with --gc-sections
	}
	gc := build("gc", "-Wl,--gc-sections one.o two.o hand.o")
	if all != nil && gc != nil && gc.FDEs >= all.FDEs {
		t.Errorf("%d FDEs with --gc-sections, %d without: nothing was discarded", gc.FDEs, all.FDEs)
	}
	if linker == "mold" {
		return // this linker has no -r
	}
	peer.Again(t, "sid", dir, tg.prefix+"ld -r one.o two.o hand.o -o all.obj")
	build("relinked", "all.obj")
	build("gcrelinked", "-Wl,--gc-sections all.obj")
}

// TestObjectKinds converts unusual objects, and objects that other tools modify before or after the conversion. It then
// links them, and runs the program.
func TestObjectKinds(t *testing.T) {
	const (
		user  = "gcc-16 -O2 -g -c user.c -o prog.o "
		debug = user + "-fno-asynchronous-unwind-tables -fno-unwind-tables "
		parts = "g++-16 -O2 -ffunction-sections -c one.cc two.cc; as hand_amd64.s -o hand.o; "
	)
	for _, tt := range []struct {
		name, compile, want string   // want is a section that an object must have
		objects             []string // nil: prog.o
		link                string
	}{
		{"CFI in .debug_frame only", debug, ".rela.debug_frame", nil, "gcc-16 prog.o -lm"},
		{"CFI in compressed .debug_frame only", debug + "-gz", ".rela.debug_frame", nil, "gcc-16 prog.o -lm"},
		{"CFI in both sections", user + "; mv prog.o user.o; " + debug +
			"-Dmain=other; mv prog.o other.o; ld -r user.o other.o -o prog.o",
			".rela.debug_frame", nil, "gcc-16 prog.o -lm"},
		{"large code model", "clang-23 -O2 -mcmodel=large -fno-pic -c user.c -o prog.o", ".rela.eh_frame", nil,
			"gcc-16 -no-pie prog.o -lm"},
		{"kernel code model, linked with -r", user + "-mcmodel=kernel -fno-pic -ffunction-sections; mv prog.o " +
			"user.o; as hand_amd64.s -o hand.o; ld -r user.o hand.o -o prog.o", ".text.by_hand", nil,
			"gcc-16 -no-pie prog.o -lm"},
		{"without .note.GNU-stack, debug information, realigned stacks",
			"clang-23 -O2 -g -mavx2 -mstackrealign -c user.c -o prog.o; objcopy -R .note.GNU-stack prog.o",
			".rela.eh_frame", nil, "gcc-16 -Wl,-z,noexecstack prog.o -lm"},
		{"lld -r before", parts + "ld.lld-23 -r one.o two.o hand.o -o prog.o", ".rela.eh_frame", nil, "g++-16 prog.o"},
		{"mold -r before", parts + "mold -r one.o two.o hand.o -o prog.o", ".rela.eh_frame", nil, "g++-16 prog.o"},
		{"strip -g after", parts, ".rela.eh_frame", []string{"one.o", "two.o", "hand.o"}, "strip -g *.o; g++-16 *.o"},
		{"strip --strip-unneeded after", parts, ".rela.eh_frame", []string{"one.o", "two.o", "hand.o"},
			"strip --strip-unneeded *.o; g++-16 *.o"},
		{"objcopy after", parts, ".rela.eh_frame", []string{"one.o", "two.o", "hand.o"},
			"for f in *.o; do objcopy $f; done; g++-16 *.o"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.objects == nil {
				tt.objects = []string{"prog.o"}
			}
			dir := peer.Run(t, "sid", tt.compile, append(sources(targets["amd64"]), "../../testdata/c/user.c")...)
			f := must.Get(elf.Open(filepath.Join(dir, tt.objects[0])))(t)
			defer f.Close()
			if f.Section(tt.want) == nil || strings.HasSuffix(tt.name, "only") && f.Section(".eh_frame") != nil {
				t.Fatal("the compiler did not make the section to be tested")
			}
			convertAll(t, dir, convert.Options{Version: sframe.V3}, tt.objects...)
			peer.Again(t, "sid", dir, tt.link+" -o prog; ./prog")
			r := must.Get(linked.Check(filepath.Join(dir, "prog")))(t)
			delete(r.Wrong, ".plt.got") // written by ld
			delete(r.Missing, "_start") // in crt1.o, which is not converted
			delete(r.Missing, "_dl_relocate_static_pie")
			if len(r.Wrong) > 0 || len(r.Missing) > 0 || r.FDEs < 3 {
				t.Errorf("%d FDEs, wrong %v, missing %v", r.FDEs, r.Wrong, r.Missing)
			}
		})
	}
}

// TestMergers links objects of each format with GNU ld 2.44 and 2.47 and mold, and expects exactly the linkers in
// Mergers to merge them. Other linkers write the program without the rows; GNU ld warns, and fails only for V1.
func TestMergers(t *testing.T) {
	peer.Binutils(t, "2.40") // its assembler writes V1, which cfi2sframe does not write in objects
	dir := peer.Run(t, "sid", "g++-16 -O2 -S one.cc two.cc\nfor f in one two hand_amd64; do as $f.s -o $f.o; done",
		sources(targets["amd64"])...)
	oldLinker(t, dir, targets["amd64"])
	must.Do(t, kit.Run(dir, "sh", "-ec", "for f in one two; do as --gsframe $f.s -o V1$f.o; done"))
	const dropped = "no .sframe will be created"
	for _, tt := range []struct {
		name   string
		format convert.Format
		says   [3]string // text that each linker must print
	}{
		{"V1", convert.Format{Version: sframe.V1}, [3]string{"different format versions", "section ignored", ""}},
		{"V2", convert.Format{Version: sframe.V2}, [3]string{"", "section ignored", ""}},
		{"V2pcrel", convert.Format{Version: sframe.V2, PCRel: true}, [3]string{dropped, "section ignored", ""}},
		{"V3", convert.Format{Version: sframe.V3}, [3]string{dropped, "", ""}},
	} {
		for _, name := range []string{"one.o", "two.o"} {
			if tt.name == "V1" {
				continue
			}
			opt := convert.Options{Version: tt.format.Version, PCRel: tt.format.PCRel}
			in, out := filepath.Join(dir, name), filepath.Join(dir, tt.name+name)
			must.Get(files.Convert(t.Context(), in, out, files.Options{Work: files.Add(opt, "")}))(t)
		}
		for i, linker := range []string{"GNU ld 2.41 to 2.44", "GNU ld 2.46 and later", "mold 3"} { // as in Mergers
			peer.Again(t, "sid", dir, fmt.Sprintf("rm -f prog\n"+
				"g++-16 %s %sone.o %[2]stwo.o hand_amd64.o -o prog >log 2>&1 || exit 0\n./prog",
				[]string{"-B$PWD/b", "", "-fuse-ld=mold"}[i], tt.name))
			log, says := string(testfile.Read(t, filepath.Join(dir, "log"))), tt.says[i]
			if !strings.Contains(log, says) || says == "" && log != "" {
				t.Errorf("%s, %s: output %q; want %q", tt.name, linker, log, says)
			}
			f, section, err := linked.Load(filepath.Join(dir, "prog"))
			switch {
			case says == "different format versions":
				if !errors.Is(err, os.ErrNotExist) {
					t.Errorf("%s, %s: linked (%v)", tt.name, linker, err)
				}
				continue
			case err != nil && !errors.Is(err, sframe.ErrNone):
				t.Fatalf("%s, %s: %v", tt.name, linker, err)
			}
			got := err == nil && hasRowOf(t, f, section, "main")
			if want := slices.Contains(tt.format.Mergers(), linker); got != want {
				t.Errorf("%s, %s: main has a row: %t; want %t", tt.name, linker, got, want)
			}
		}
	}
}

// hasRowOf reports whether a section has a row for a function.
func hasRowOf(t *testing.T, f *elffile.File, section *sframe.Section, function string) (found bool) {
	t.Helper()
	must.Do(t, f.Symbols(elf.SHT_SYMTAB, func(table *elffile.Section, s elffile.Symbol) {
		if f.SymbolName(table, s.Name) == function {
			_, found, _ = section.Lookup(s.Value)
		}
	}))
	return found
}

package linker

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/testfile"
)

// TestOutputs checks the forms of -o, and options for linker scripts (GNU ld's manual) and others with such prefixes.
func TestOutputs(t *testing.T) {
	t.Chdir(t.TempDir())
	testfile.Write(t, "self", "a @self")
	for args, want := range map[string]string{
		"": "a.out", "a.o b.o": "a.out", "-o x a.o": "x", "a.o -ox": "x", "a.o --output x": "x", "a.o --output=x": "x",
		"a.o --output": "a.out", "a.o --oformat=binary --ox": "a.out", "a.o -output=x": "utput=x", "-o x -o y": "x y",
		"-o x -mllvm -opaque-pointers": "x paque-pointers", "a.o -o": "", "@nothing @ @. @self -o x": "x",
		"-T vdso.lds -o x": "", "-Tvdso.lds": "", "--script=vdso.lds": "", "--script a": "", "-script a": "",
		"-Wl,-T,vdso.lds": "", "-Wl,-z,now,-Tvdso.lds": "", "-Wl,--incremental": "", "--incremental-full": "",
		"-Ttext=0x1000 a.o": "a.out", "-Ttext 0x1000 -Tdata 0 -Tbss 0": "a.out", "-Ttext-segment=0x400000": "a.out",
		"-Wl,-Trodata-segment=1,-Tldata-segment=2": "a.out", "--version-script=x.map --no-incremental": "a.out",
	} {
		if got := strings.Join(Outputs(strings.Fields(args)), " "); got != want {
			t.Errorf("%q: got %q, want %q", args, got, want)
		}
	}
}

// TestOutputsOfLinkers links with this machine's linkers, and expects Outputs to include the file that they create.
func TestOutputsOfLinkers(t *testing.T) {
	found := 0
	for _, name := range Names {
		path := peer.Look(t, name)
		dir := t.TempDir()
		object := filepath.Join(dir, "start.o")
		as := exec.Command(peer.Look(t, "as"), "-o", object)
		as.Stdin = strings.NewReader(".globl _start\n_start: nop\n")
		must.Run(t, as)
		testfile.Write(t, filepath.Join(dir, "file"), `-o "the \"x\""' a'\ \'b`)
		for i, args := range []string{
			"", "-o x", "-ox", "--output x", "--output=x", "-omagic", "-o x -o y", "-r -o x", "-o -x", "@../file",
		} {
			work := filepath.Join(dir, string(rune('a'+i)))
			must.Do(t, os.Mkdir(work, 0o777))
			t.Chdir(work)
			fields := strings.Fields(args)
			if exec.Command(path, append([]string{object}, fields...)...).Run() != nil {
				continue // not every linker supports every option
			}
			made, err := os.ReadDir(work)
			if err != nil || len(made) != 1 {
				t.Fatalf("%s %s: %v, %v", name, args, made, err)
			}
			found++
			if got := Outputs(fields); !slices.Contains(got, made[0].Name()) {
				t.Errorf("%s %s makes %s; want %q", name, args, made[0].Name(), got)
			}
		}
	}
	if found < 6*len(Names) {
		t.Errorf("only %d links succeeded", found)
	}
}

// makePrograms creates executable files in a new directory, and returns the directory. Files with names that end in "-"
// are not executable.
func makePrograms(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		path, mode := filepath.Join(dir, strings.TrimSuffix(name, "-")), os.FileMode(0o755)
		if strings.HasSuffix(name, "-") {
			mode = 0o644
		}
		must.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.Do(t, os.WriteFile(path, []byte("#!/bin/sh\n"), mode))
	}
	return dir
}

func TestFind(t *testing.T) {
	const far = "aarch64-linux-gnu"
	me := must.Get(os.Executable())(t)
	self := t.TempDir()
	for _, name := range append(links(), "cfi2sframe") {
		must.Do(t, os.Symlink(me, filepath.Join(self, name)))
	}
	a := makePrograms(t, "ld", "ld.gold-", "ld.lld/x", far+"-ld", "gcc", "cc")
	b := makePrograms(t, "ld", "ld.gold", "ld.lld", "ld.bfd", "gcc", "cc")
	t.Chdir(b)
	for _, test := range []struct{ name, compiler, path, running, want string }{
		{"ld", "", self + ":" + a + ":" + b, "", a + "/ld"},
		{"ld", "", ":" + a, "", "./ld"}, // an empty element of PATH is the current directory
		// Directories and files that are not executable are skipped.
		{"ld.gold", "", a + ":" + b, "", b + "/ld.gold"},
		{"ld.lld", "", a + ":" + b, "", b + "/ld.lld"},
		{"ld.mold", "", self + ":" + a + ":" + b, "", ""},
		// Directories from GCC, which end in a slash, are searched first, but only for linkers.
		{"ld", self + "/:" + b + "/", a, "", b + "/ld"},
		{"gcc", b + "/", a, "", a + "/gcc"},
		{"objcopy", "", a, "", ""},
		// Debian's gcc runs the linker that is named after its target if our directory contains it.
		{far + "-ld", "", self + ":" + b + ":" + a, "", a + "/" + far + "-ld"},
		{far + "-ld.lld", "", self + ":" + a + ":" + b, "", b + "/ld.lld"},
		// Paths.
		{b + "/ld.gold", "", "", "", b + "/ld.gold"},
		{a + "/ld.gold", "", b, "", ""},
		{self + "/ld.gold", "", a + ":" + b, "", b + "/ld.gold"},
		{self + "/cfi2sframe", "", a, "", ""},
		// Linkers that are running are skipped, but not other programs.
		{"ld", "", a + ":" + b, a + "/ld", b + "/ld"},
		{"cc", "", a + ":" + b, "/x:" + a + "/cc", b + "/cc"},
		{"ld", "", a, a + "/ld", ""},
		{"gcc", "", a + ":" + b, a + "/gcc", a + "/gcc"},
	} {
		t.Setenv("COMPILER_PATH", test.compiler)
		t.Setenv("PATH", test.path)
		t.Setenv(Running, test.running)
		if got, err := Find(test.name); got != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%+v:\ngot %s, %v", test, got, err)
		}
	}
}

// TestDir creates the directory, and expects the one that was installed with the program, if it exists.
func TestDir(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	prefix := makePrograms(t, "bin/tool", "lib/cfi2sframe/ld")
	exe, installed := filepath.Join(prefix, "bin/tool"), filepath.Join(prefix, "lib/cfi2sframe")
	for range 2 {
		dir, err := Dir(exe)
		entries, _ := os.ReadDir(dir)
		to, _ := os.Readlink(filepath.Join(dir, "ld.mold"))
		if err != nil || to != exe || len(entries) != len(links()) {
			t.Errorf("got %s, %v: %v", dir, err, entries)
		}
	}
	must.Do(t, os.Remove(filepath.Join(installed, "ld")))
	must.Do(t, os.Symlink(must.Get(os.Executable())(t), filepath.Join(installed, "ld")))
	if got, err := Dir(exe); got != installed || err != nil {
		t.Errorf("got %s, %v; want %s", got, err, installed)
	}
	t.Setenv("XDG_CACHE_HOME", exe)
	if got, err := Dir("/exe"); err == nil || !strings.Contains(err.Error(), "; set XDG_CACHE_HOME") {
		t.Errorf("got %s, %v", got, err)
	}
}

//go:build linux

package linker

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/must"
)

// makePrograms creates executable files in a new directory, and returns the directory. Files with names that end in "-"
// are not executable.
func makePrograms(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		mode := os.FileMode(0o755)
		if n, ok := strings.CutSuffix(name, "-"); ok {
			name, mode = n, 0o644
		}
		path := filepath.Join(dir, name)
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
	tree := makePrograms(t, "lib/gcc-cross/"+far+"/12/libgcc.a-", far+"/bin/ld")
	lib := filepath.Join(tree, "lib/gcc-cross", far, "12")
	t.Chdir(b)
	for _, test := range []struct {
		name, compiler, path, running, arg string
		want                               string
	}{
		{"ld", "", self + ":" + a + ":" + b, "", "", a + "/ld"},
		{"ld", "", b + ":" + a + ":" + self, "", "", b + "/ld"},
		{"ld", "", ":" + a, "", "", "./ld"}, // an empty element of PATH is the current directory
		// Directories and files that are not executable are skipped.
		{"ld.gold", "", a + ":" + b, "", "", b + "/ld.gold"},
		{"ld.lld", "", a + ":" + b, "", "", b + "/ld.lld"},
		{"ld.mold", "", self + ":" + a + ":" + b, "", "", ""},
		// Directories from GCC, which end in a slash, are searched first.
		{"ld", self + "/:" + b + "/", a, "", "", b + "/ld"},
		{"ld.bfd", self + "/:" + a + "/", self + ":" + b, "", "", b + "/ld.bfd"},
		// Other programs are searched for only in PATH.
		{"gcc", b + "/", a, "", "", a + "/gcc"},
		{"objcopy", "", a, "", "", ""},
		// clang for another target runs the linker of the GCC whose libraries it uses.
		{"ld", "", b + ":" + a, "", "-L" + lib, lib + "/../../../../" + far + "/bin/ld"},
		{"ld", "", b + ":" + a, "", "-L/usr/lib/" + far, b + "/ld"},
		// Debian's gcc runs the linker that is named after its target if our directory contains it.
		{far + "-ld", "", self + ":" + b + ":" + a, "", "", a + "/" + far + "-ld"},
		{far + "-ld.lld", "", self + ":" + a + ":" + b, "", "", b + "/ld.lld"},
		// Paths.
		{b + "/ld.gold", "", "", "", "", b + "/ld.gold"},
		{a + "/ld.gold", "", b, "", "", ""},
		{self + "/ld.gold", "", a + ":" + b, "", "", b + "/ld.gold"},
		{self + "/cfi2sframe", "", a, "", "", ""},
		// Linkers that are running are skipped, but not other programs.
		{"ld", "", a + ":" + b, a + "/ld", "", b + "/ld"},
		{"cc", "", a + ":" + b, "/x:" + a + "/cc", "", b + "/cc"},
		{"ld", "", a, a + "/ld", "", ""},
		{"gcc", "", a + ":" + b, a + "/gcc", "", a + "/gcc"},
	} {
		t.Setenv("COMPILER_PATH", test.compiler)
		t.Setenv("PATH", test.path)
		t.Setenv(Running, test.running)
		got, err := Find(test.name, []string{"-o", "x", test.arg})
		if got != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%+v:\ngot %s, %v", test, got, err)
		}
		if err != nil && !strings.HasPrefix(err.Error(), test.name+": ") {
			t.Errorf("%+v: %v", test, err)
		}
	}
}

func TestIsName(t *testing.T) {
	for name, want := range map[string]bool{
		"ld": true, "ld.bfd": true, "ld.lld-14": true, "aarch64-linux-gnu-ld": true, "aarch64-linux-gnu-ld.gold": true,
		"cfi2sframe": false, "gcc": false, "ldd": false, "gold": false, "build": false, "old": false,
		"ld-linux.so.2": false, "": false,
	} {
		if IsName(name) != want {
			t.Errorf("%q: %t", name, !want)
		}
	}
}

//go:build linux

package linker

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"cfi2sframe/internal/inode"
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

func idOf(t *testing.T, path string) string {
	t.Helper()
	info := must.Get(os.Stat(path))(t)
	id, ok := inode.Of(info)
	if !ok {
		t.Fatal("no ID")
	}
	return id.String()
}

// foreignTarget returns a target other than this machine's.
func foreignTarget(t *testing.T) string {
	if isNative("aarch64-linux-gnu") {
		return "x86_64-linux-gnu"
	}
	return "aarch64-linux-gnu"
}

func TestFind(t *testing.T) {
	far := foreignTarget(t)
	self := makePrograms(t, "cfi2sframe")
	me := filepath.Join(self, "cfi2sframe")
	for _, name := range Names {
		must.Do(t, os.Symlink(me, filepath.Join(self, name)))
	}
	a := makePrograms(t, "ld", "ld.gold-", "ld.lld/x", far+"-ld", "gcc")
	b := makePrograms(t, "ld", "ld.gold", "ld.lld", "ld.bfd", "gcc")
	tree := makePrograms(t, "lib/gcc-cross/"+far+"/12/libgcc.a-", far+"/bin/ld")
	lib := filepath.Join(tree, "lib/gcc-cross", far, "12")
	for _, test := range []struct {
		name, compiler, path, gcc, arg string
		want                           string
	}{
		{"ld", "", self + ":" + a + ":" + b, "", "", a + "/ld"},
		{"ld", "", b + ":" + a + ":" + self, "", "", b + "/ld"},
		// Directories and files that are not executable are skipped.
		{"ld.gold", "", a + ":" + b, "", "", b + "/ld.gold"},
		{"ld.lld", "", a + ":" + b, "", "", b + "/ld.lld"},
		{"ld.mold", "", self + ":" + a + ":" + b, "", "", ""},
		// Directories from GCC, which end in a slash, are searched first.
		{"ld", self + "/:" + b + "/", a, "", "", b + "/ld"},
		{"ld.bfd", self + "/:" + a + "/", self + ":" + b, "", "", b + "/ld.bfd"},
		// Other programs are searched for only in PATH.
		{"gcc", b + "/", a, "", "", a + "/gcc"},
		{"cc", "", a, "", "", ""},
		// A cross compiler uses the linker of its target if PATH contains it under the requested name.
		{"ld", "", b + ":" + a, "/usr/bin/" + far + "-gcc-12", "", a + "/" + far + "-ld"},
		{"ld", "", b + ":" + a, far + "-g++", "", a + "/" + far + "-ld"},
		{"ld", "", b + ":" + a, "gcc", "", b + "/ld"},
		{"ld.lld", "", b + ":" + a, far + "-gcc", "", b + "/ld.lld"},
		{"ld", "", b + ":" + a, "", "-L" + lib, lib + "/../../../../" + far + "/bin/ld"},
		{"ld", "", b + ":" + a, "", "-L/nowhere/lib/gcc/" + far + "/12", a + "/" + far + "-ld"},
		{"ld", "", b + ":" + a, "", "-L/usr/lib/" + far, b + "/ld"},
		{far + "-ld", "", self + ":" + a, "", "", a + "/" + far + "-ld"},
		// Paths.
		{b + "/ld.gold", "", "", "", "", b + "/ld.gold"},
		{a + "/ld.gold", "", b, "", "", ""},
		{self + "/ld.gold", "", a + ":" + b, "", "", b + "/ld.gold"},
		{me, "", a, "", "", ""},
	} {
		env := map[string]string{"COMPILER_PATH": test.compiler, "PATH": test.path, "COLLECT_GCC": test.gcc}
		s := &Search{Args: []string{"-o", "x", test.arg}, Skip: []string{"0:0", idOf(t, me)},
			Env: func(k string) string { return env[k] }}
		got, err := s.Find(test.name)
		if got != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%+v:\ngot %s, %v", test, got, err)
		}
		if err != nil && !strings.HasPrefix(err.Error(), test.name+": ") {
			t.Errorf("%+v: %v", test, err)
		}
	}
	// A file that is skipped under one name may be used under another.
	for name, want := range map[string]string{"ld": a + "/ld", "ld.bfd": b + "/ld.bfd"} {
		s := &Search{Skip: []string{idOf(t, b+"/ld") + "/ld", idOf(t, b+"/ld.bfd") + "/gcc"},
			Env: func(k string) string {
				return map[string]string{"PATH": b + ":" + a}[k]
			}}
		if got, err := s.Find(name); got != want || err != nil {
			t.Errorf("got %s, %v; want %s", got, err, want)
		}
	}
	// An empty element of PATH is the current directory.
	t.Chdir(b)
	s := &Search{Env: func(k string) string { return map[string]string{"PATH": ":" + a}[k] }}
	if got, err := s.Find("ld"); got != "./ld" || err != nil {
		t.Errorf("got %s, %v", got, err)
	}
}

// TestNative expects a compiler for this machine to use ld, even if TARGET-ld exists.
func TestNative(t *testing.T) {
	var u unix.Utsname
	must.Do(t, unix.Uname(&u))
	target := unix.ByteSliceToString(u.Machine[:]) + "-linux-gnu"
	a := makePrograms(t, target+"-ld")
	b := makePrograms(t, "ld")
	env := map[string]string{"PATH": a + ":" + b, "COLLECT_GCC": target + "-gcc"}
	s := &Search{Args: []string{"-L/nowhere/lib/gcc/" + target + "/12"}, Env: func(k string) string { return env[k] }}
	if got, err := s.Find("ld"); got != b+"/ld" || err != nil {
		t.Errorf("got %s, %v", got, err)
	}
	// If the compiler asks for TARGET-ld, that linker is used or, if it does not exist, ld.
	if got, err := s.Find(target + "-ld"); got != a+"/"+target+"-ld" || err != nil {
		t.Errorf("got %s, %v", got, err)
	}
	env["PATH"] = b
	if got, err := s.Find(target + "-ld"); got != b+"/ld" || err != nil {
		t.Errorf("got %s, %v", got, err)
	}
	if got, err := s.Find(foreignTarget(t) + "-ld"); err == nil {
		t.Errorf("got %s", got)
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
	for _, name := range links() {
		if IsName(name) == (name == Compiler) {
			t.Errorf("%s is in the directory, but is not a linker", name)
		}
	}
}

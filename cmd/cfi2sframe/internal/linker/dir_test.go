//go:build linux

package linker

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/testfile"
)

// checkLinks expects a directory to contain links for all linkers, and nothing else.
func checkLinks(t *testing.T, dir, exe string) {
	t.Helper()
	entries := must.Get(os.ReadDir(dir))(t)
	if len(entries) != len(links()) {
		t.Errorf("%d files in %s; want %d", len(entries), dir, len(links()))
	}
	for _, name := range links() {
		if to, err := os.Readlink(filepath.Join(dir, name)); to != exe {
			t.Errorf("%s leads to %s, error %v", name, to, err)
		}
	}
}

// TestDir creates the directory in several goroutines, and repairs missing and wrong links.
func TestDir(t *testing.T) {
	home := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", home)
	exe := filepath.Join(makePrograms(t, "bin/tool"), "bin/tool")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if dir, err := Dir(exe); err != nil || filepath.Dir(dir) != filepath.Join(home, "cfi2sframe") {
				t.Errorf("got %s, %v", dir, err)
			}
		})
	}
	wg.Wait()
	dir := must.Get(Dir(exe))(t)
	checkLinks(t, dir, exe)
	for _, name := range Names {
		must.Do(t, os.Remove(filepath.Join(dir, name)))
	}
	must.Do(t, os.Symlink("/nowhere", filepath.Join(dir, Names[0])))
	must.Do(t, os.WriteFile(filepath.Join(dir, Names[1]), nil, 0o755))
	if again, err := Dir(exe); again != dir || err != nil {
		t.Errorf("got %s, %v", again, err)
	}
	checkLinks(t, dir, exe)
	// A different program gets a different directory.
	if other, err := Dir(exe + "2"); err != nil || other == dir {
		t.Errorf("got %s, %v", other, err)
	}
}

// TestInstalled expects the directory that was installed with the program, if its path has no blanks.
func TestInstalled(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	for _, lib := range []string{"lib", "libexec"} {
		prefix := makePrograms(t, "bin/tool", lib+"/cfi2sframe/ld")
		exe, want := filepath.Join(prefix, "bin/tool"), filepath.Join(prefix, lib, "cfi2sframe")
		if got, err := Dir(exe); got == want || err != nil {
			t.Errorf("the linker is another program: got %s, %v", got, err)
		}
		must.Do(t, os.Remove(filepath.Join(want, "ld")))
		must.Do(t, os.Symlink(must.Get(os.Executable())(t), filepath.Join(want, "ld")))
		if got, err := Dir(exe); got != want || err != nil {
			t.Errorf("got %s, %v; want %s", got, err, want)
		}
		blank := filepath.Join(t.TempDir(), "a b")
		must.Do(t, os.Rename(prefix, blank))
		if got, err := Dir(filepath.Join(blank, "bin/tool")); strings.Contains(got, " ") || err != nil {
			t.Errorf("with a blank in its own path: got %q, %v", got, err)
		}
	}
}

// TestUncreatable expects an error that names the remedy if the cache is not a directory, has a blank in its path, or
// contains something else.
func TestUncreatable(t *testing.T) {
	dir := t.TempDir()
	file, full := filepath.Join(dir, "file"), filepath.Join(dir, "full")
	testfile.Write(t, file, "kept")
	t.Setenv("XDG_CACHE_HOME", full)
	links := must.Get(Dir("/exe"))(t)
	must.Do(t, os.Remove(filepath.Join(links, Names[0])))
	must.Do(t, os.MkdirAll(filepath.Join(links, Names[0], "sub"), 0o700))
	for _, cache := range []string{file, filepath.Join(dir, "a b"), full} {
		t.Setenv("XDG_CACHE_HOME", cache)
		if got, err := Dir("/exe"); err == nil || !strings.Contains(err.Error(), "; set XDG_CACHE_HOME") {
			t.Errorf("%s: got %s, %v", cache, got, err)
		}
	}
	if temp := must.Get(filepath.Glob(filepath.Join(links, Names[0]+".*[0-9]*")))(t); len(temp) > 0 {
		t.Errorf("%s remains", temp)
	}
}

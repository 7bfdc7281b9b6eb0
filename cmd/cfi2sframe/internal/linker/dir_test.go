//go:build linux

package linker

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"cfi2sframe/internal/testkit/must"
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

func TestDir(t *testing.T) {
	home := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", home)
	exe := filepath.Join(makePrograms(t, "bin/tool"), "bin/tool")
	dirs := make([]string, 8)
	var wg sync.WaitGroup
	for i := range dirs {
		wg.Go(func() {
			var err error
			if dirs[i], err = Dir(exe); err != nil {
				t.Error(err)
			}
			for _, name := range Names { // once the directory is visible, it is complete
				if to, err := os.Readlink(filepath.Join(dirs[i], name)); to != exe {
					t.Errorf("%s leads to %s, error %v", name, to, err)
				}
			}
		})
	}
	wg.Wait()
	for _, dir := range dirs {
		if dir != dirs[0] || filepath.Dir(dir) != filepath.Join(home, "cfi2sframe") {
			t.Errorf("got directories %s and %s", dirs[0], dir)
		}
	}
	checkLinks(t, dirs[0], exe)
	// Missing and wrong links are repaired.
	for i, name := range Names[:3] {
		must.Do(t, os.Remove(filepath.Join(dirs[0], name)))
		var err error
		switch i {
		case 0:
			err = os.Symlink("/nowhere", filepath.Join(dirs[0], name))
		case 1:
			err = os.WriteFile(filepath.Join(dirs[0], name), nil, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if again, err := Dir(exe); again != dirs[0] || err != nil {
		t.Errorf("got %s, %v", again, err)
	}
	checkLinks(t, dirs[0], exe)
	// A different program gets a different directory.
	other := filepath.Join(makePrograms(t, "bin/tool"), "bin/tool")
	dir, err := Dir(other)
	if err != nil || dir == dirs[0] {
		t.Errorf("got %s, %v", dir, err)
	}
	checkLinks(t, dir, other)
	checkLinks(t, dirs[0], exe)
}

// TestInstalled expects the directory that was installed with the program, if it is complete and its path has no
// blanks.
func TestInstalled(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	for _, lib := range []string{"lib", "libexec"} {
		prefix := makePrograms(t, "bin/tool", lib+"/cfi2sframe/ld")
		exe, want := filepath.Join(prefix, "bin/tool"), filepath.Join(prefix, lib, "cfi2sframe")
		must.Do(t, os.Remove(filepath.Join(want, "ld")))
		for _, name := range append([]string{Compiler}, Names...) {
			if got, err := Dir(exe); got == want || err != nil {
				t.Errorf("without %s: got %s, %v", name, got, err)
			}
			must.Do(t, os.Symlink("../../bin/tool", filepath.Join(want, name)))
		}
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

// TestHomeless expects a private directory in TMPDIR if HOME is unusable: unset, not a directory, missing, or a path
// that shells would split at a space.
func TestHomeless(t *testing.T) {
	exe := filepath.Join(makePrograms(t, "bin/tool"), "bin/tool")
	missing, blank := filepath.Join(t.TempDir(), "missing"), filepath.Join(t.TempDir(), "a b")
	must.Do(t, os.Mkdir(blank, 0o777))
	for _, home := range []string{"", "/dev/null", missing, blank} {
		temp := t.TempDir()
		t.Setenv("XDG_CACHE_HOME", "")
		if home == "/dev/null" {
			t.Setenv("XDG_CACHE_HOME", home)
		}
		t.Setenv("HOME", home)
		t.Setenv("TMPDIR", temp)
		dir := must.Get(Dir(exe))(t)
		checkLinks(t, dir, exe)
		own := filepath.Dir(dir)
		if info, err := os.Stat(own); filepath.Dir(own) != temp || err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("home %q: got %s, %v, %v", home, dir, info, err)
		}
		if again, err := Dir(exe); again != dir || err != nil {
			t.Errorf("got %s, %v", again, err)
		}
		// Other users must not be able to add linkers to this directory.
		must.Do(t, os.Chmod(own, 0o777))
		if got, err := Dir(exe); err == nil {
			t.Errorf("a directory that all users can write to: got %s", got)
		}
		must.Do(t, os.RemoveAll(own))
		must.Do(t, os.Symlink(t.TempDir(), own))
		if got, err := Dir(exe); err == nil {
			t.Errorf("a link to another directory: got %s", got)
		}
		t.Setenv("TMPDIR", blank)
		if got, err := Dir(exe); err == nil || !strings.Contains(err.Error(), "blank") {
			t.Errorf("no path without blanks: got %s, %v", got, err)
		}
	}
	if _, err := os.Stat(missing); err == nil {
		t.Error("the missing home was created")
	}
}

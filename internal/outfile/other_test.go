//go:build !linux || portable

package outfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cfi2sframe/internal/inode"
)

// put writes a file with the mode, whatever the umask is.
func put(t *testing.T, path, text string, mode fs.FileMode) {
	t.Helper()
	if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
}

// look returns what is in a file, and its mode.
func look(t *testing.T, path string) (string, fs.FileMode) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b), info.Mode()
}

// alone expects that there is nothing in a folder but the named files.
func alone(t *testing.T, dir string, names ...string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	for _, e := range list {
		have = append(have, e.Name())
	}
	if strings.Join(have, " ") != strings.Join(names, " ") {
		t.Errorf("the folder has %v; want %v", have, names)
	}
}

// finish writes a result and puts it in its place.
func finish(t *testing.T, o *File) error {
	t.Helper()
	if _, err := o.WriteString("result"); err != nil {
		t.Fatal(err)
	}
	if err := o.Finish(true); err != nil {
		return err
	}
	return o.Commit()
}

// TestOtherNew makes a file, and no other one if something has come there meanwhile.
func TestOtherNew(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "new")
	o, err := Open(path, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is there before it is finished: %v", err)
	}
	if err := finish(t, o); err != nil {
		t.Fatal(err)
	}
	o.Close()
	if text, mode := look(t, path); text != "result" || mode != 0o700 {
		t.Errorf("%q with mode %v", text, mode)
	}
	alone(t, dir, "new")

	second := filepath.Join(dir, "second")
	if o, err = Open(second, 0o700); err != nil {
		t.Fatal(err)
	}
	put(t, second, "of somebody else", 0o600)
	if err := finish(t, o); err == nil || !strings.Contains(err.Error(), "was created meanwhile") {
		t.Errorf("error is %v", err)
	}
	o.Close()
	if text, _ := look(t, second); text != "of somebody else" {
		t.Errorf("it was replaced by %q", text)
	}
	alone(t, dir, "new", "second")
}

// TestOtherReplace replaces a file by way of a symbolic link: as an output, and as the input.
func TestOtherReplace(t *testing.T) {
	for _, input := range []bool{false, true} {
		dir := t.TempDir()
		path, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
		put(t, path, "old", 0o751|fs.ModeSetgid)
		if err := os.Symlink("file", link); err != nil {
			t.Fatal(err)
		}
		var o *File
		var err error
		if input {
			p, src, _, e := OpenInput(link)
			if e != nil {
				t.Fatal(e)
			}
			defer p.Close()
			if o, err = Replace(p); err == nil {
				is, e := o.ReplacesInput(src)
				if e != nil || !is {
					t.Errorf("it does not replace its input: %v", e)
				}
			}
		} else {
			o, err = Open(link, 0o700)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := finish(t, o); err != nil {
			t.Fatal(err)
		}
		if err := o.Replaced().SyncDirectory(); err != nil {
			t.Error(err)
		}
		o.Close()
		want := 0o751 | fs.ModeSetgid
		if !input && os.Geteuid() != 0 {
			want = 0o751
		}
		if text, mode := look(t, path); text != "result" || mode != want {
			t.Errorf("%q with mode %v; want %v", text, mode, want)
		}
		if to, err := os.Readlink(link); to != "file" {
			t.Errorf("the link leads to %q, %v", to, err)
		}
		alone(t, dir, "file", "link")
	}
}

// TestOtherMoved does not replace a file that has come there meanwhile, and leaves nothing behind.
func TestOtherMoved(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	put(t, path, "old", 0o600)
	o, err := Open(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	put(t, path+"2", "third", 0o600)
	if err := os.Rename(path+"2", path); err != nil {
		t.Fatal(err)
	}
	if err := finish(t, o); !errors.Is(err, errMoved) {
		t.Errorf("error is %v", err)
	}
	o.Close()
	if text, _ := look(t, path); text != "third" {
		t.Errorf("it was replaced by %q", text)
	}
	alone(t, dir, "file")
}

// TestOtherErrors are errors of places.
func TestOtherErrors(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("nothing", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"link": "symbolic link to nothing", "no/file": "cannot write to",
		".": "is a directory"} {
		if _, err := Open(filepath.Join(dir, path), 0o600); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", path, err, want)
		}
	}
	if _, _, _, err := OpenInput(filepath.Join(dir, "link")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("input: %v", err)
	}
}

// TestOtherRelink makes one file of two.
func TestOtherRelink(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	put(t, a, "a", 0o600)
	put(t, b, "b", 0o600)
	info, err := os.Stat(a)
	if err != nil {
		t.Fatal(err)
	}
	id, ok := inode.Of(info)
	if !ok {
		t.Skip("files have no numbers here")
	}
	for range 2 {
		p, _, _, err := OpenInput(b)
		if err != nil {
			t.Fatal(err)
		}
		if err := Relink(a, id, p); err != nil {
			t.Fatal(err)
		}
		p.Close()
	}
	if now, err := os.Stat(b); err != nil || !os.SameFile(info, now) {
		t.Errorf("they are two: %v", err)
	}
	alone(t, dir, "a", "b")
}

// TestOtherScratch expects that a file for temporary use has no name for long.
func TestOtherScratch(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	f, err := Scratch()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("text"); err != nil {
		t.Fatal(err)
	}
	f.Close()
	alone(t, dir)
}

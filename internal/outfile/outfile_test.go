//go:build linux && !portable

package outfile

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"cfi2sframe/internal/inode"
)

// TestPipe opens an output that is a pipe without a reader.
func TestPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	opened := make(chan *File)
	go func() {
		o, err := Open(path, 0o666)
		if err != nil {
			t.Error(err)
		}
		opened <- o
	}()
	var o *File
	select {
	case o = <-opened:
	case <-time.After(time.Minute):
		t.Fatal("Open waits for a reader")
	}
	if o == nil {
		return
	}
	defer o.Close()
	if !o.Stream() {
		t.Error("a pipe is no stream")
	}
	got := make(chan string)
	go func() {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
		}
		got <- string(b)
	}()
	write(t, o, "contents")
	if err := o.Commit(); err != nil {
		t.Error(err)
	}
	o.Close()
	if s := <-got; s != "contents" {
		t.Errorf("read %q", s)
	}
}

// write writes to an output and finishes it.
func write(t *testing.T, o *File, s string) {
	t.Helper()
	if _, err := io.WriteString(o, s); err != nil {
		t.Fatal(err)
	}
	if err := o.Finish(true); err != nil {
		t.Fatal(err)
	}
}

// put makes a file.
func put(t *testing.T, path, s string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(s), 0o644); err != nil {
		t.Fatal(err)
	}
}

// expect compares what is in a folder with names and contents.
func expect(t *testing.T, dir string, want map[string]string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]string)
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		got[e.Name()] = string(b)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("there is %v; want %v", got, want)
	}
}

// eachWay runs a test with files without names, and with those that have temporary ones.
func eachWay(t *testing.T, run func(t *testing.T)) {
	t.Run("nameless", run)
	t.Run("named", func(t *testing.T) {
		named = true
		defer func() { named = false }()
		run(t)
		if len(names.temporary) > 0 {
			t.Errorf("names are left: %v", names.temporary)
		}
	})
}

// TestMode replaces a file that there is, and one that there is not.
func TestMode(t *testing.T) {
	old := syscall.Umask(0o027)
	defer syscall.Umask(old)
	eachWay(t, func(t *testing.T) {
		dir := t.TempDir()
		for name, want := range map[string]os.FileMode{"new": 0o640, "old": 0o604} {
			path := filepath.Join(dir, name)
			if name == "old" {
				put(t, path, "old contents, which are longer")
				if err := os.Chmod(path, want); err != nil {
					t.Fatal(err)
				}
			}
			o, err := Open(path, 0o666)
			if err != nil {
				t.Fatal(err)
			}
			write(t, o, name)
			if err := o.Commit(); err != nil {
				t.Error(err)
			}
			o.Close()
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if info.Mode() != want {
				t.Errorf("%s has mode %v; want %v", name, info.Mode(), want)
			}
		}
		expect(t, dir, map[string]string{"new": "new", "old": "old"})
	})
}

// TestNamesUntilCommit looks at the folder before the result is in its place: there is nothing in it,
// where the file system has files without names, and nothing is left where it has none.
func TestNamesUntilCommit(t *testing.T) {
	eachWay(t, func(t *testing.T) {
		dir := t.TempDir()
		put(t, filepath.Join(dir, "old"), "old")
		for _, name := range []string{"old", "new"} {
			o, err := Open(filepath.Join(dir, name), 0o666)
			if err != nil {
				t.Fatal(err)
			}
			write(t, o, "contents")
			if entries, err := os.ReadDir(dir); err != nil || !named && len(entries) > 1 {
				t.Errorf("there is %v, error %v", entries, err)
			}
			o.Close()
		}
		expect(t, dir, map[string]string{"old": "old"})
		scratch, err := Scratch()
		if err != nil {
			t.Fatal(err)
		}
		defer scratch.Close()
		if _, err := scratch.WriteString("contents"); err != nil {
			t.Error(err)
		}
	})
}

// TestTaken has something else come to the output's place. It stays.
func TestTaken(t *testing.T) {
	eachWay(t, func(t *testing.T) {
		dir := t.TempDir()
		old, other, fresh := filepath.Join(dir, "old"), filepath.Join(dir, "other"), filepath.Join(dir, "fresh")
		put(t, old, "old")
		put(t, other, "other")
		for _, tt := range []struct{ path, err string }{{old, "the file was replaced or removed"},
			{fresh, "was created meanwhile"}} {
			o, err := Open(tt.path, 0o666)
			if err != nil {
				t.Fatal(err)
			}
			write(t, o, "contents")
			if err := os.Rename(other, tt.path); err != nil {
				t.Fatal(err)
			}
			if err := o.Commit(); err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: error %v", tt.path, err)
			}
			o.Close()
			expect(t, dir, map[string]string{filepath.Base(tt.path): "other"})
			if err := os.Rename(tt.path, other); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestLastMoment has another file come to the place before the result, or none. It is not lost.
func TestLastMoment(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "in")
	put(t, path, "old")
	p, _, _, err := OpenInput(path)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	put(t, filepath.Join(dir, "other"), "other")
	if err := os.Rename(filepath.Join(dir, "other"), path); err != nil {
		t.Fatal(err)
	}
	temp := filepath.Join(dir, "temp")
	put(t, temp, "ours")
	if err := p.rename(temp); err != errMoved {
		t.Errorf("error %v", err)
	}
	expect(t, dir, map[string]string{"in": "other"})
	// The place is empty.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	put(t, temp, "ours")
	if err := p.rename(temp); err != errMoved {
		t.Errorf("error %v", err)
	}
	expect(t, dir, map[string]string{})
}

// TestAbandon ends the work before the result is in its place.
func TestAbandon(t *testing.T) {
	eachWay(t, func(t *testing.T) {
		dir := t.TempDir()
		path := filepath.Join(dir, "out")
		o, err := Open(path, 0o666)
		if err != nil {
			t.Fatal(err)
		}
		write(t, o, "contents")
		Abandon()
		expect(t, dir, map[string]string{})
		committed := make(chan error, 1)
		go func() { committed <- o.Commit() }()
		select {
		case err := <-committed:
			t.Errorf("a result was put in its place after the end, error %v", err)
		case <-time.After(50 * time.Millisecond):
		}
		expect(t, dir, map[string]string{})
		names.Unlock() // the test goes on, which a program does not
		<-committed
		o.Close()
	})
}

// TestPlaces finds out which paths lead to the same place.
func TestPlaces(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"a", "b"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	put(t, filepath.Join(dir, "a/file"), "")
	for name, to := range map[string]string{
		"folder": "a", "a/soft": "file", "b/there": "../a/soft", "b/absolute": filepath.Join(dir, "folder/soft"),
		"nothing": "missing", "a/loop": "loop", "b/far": "../nowhere/file",
	} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	want, err := RealPath(filepath.Join(dir, "a/file"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"folder/file", "a/soft", "b/there", "b/absolute", "b/../a/./file", "a//file"} {
		if got, err := RealPath(dir + "/" + name); err != nil || got != want {
			t.Errorf("%s is %v, error %v; want %v", name, got, err, want)
		}
	}
	a, errA := RealPath(dir + "/a/new")
	b, errB := RealPath(dir + "/folder/new")
	if errA != nil || errB != nil || a != b || a == want {
		t.Errorf("%v and %v, errors %v and %v", a, b, errA, errB)
	}
	for name, want := range map[string]string{
		"a/loop": "too many levels of symbolic links", "nothing": "a symbolic link to nothing",
		"missing/file": "no such file",
		"a/file/new":   "not a directory", "b/far": "a symbolic link to nothing",
	} {
		if _, err := RealPath(dir + "/" + name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", name, err, want)
		}
	}
	for name, want := range map[string]string{
		"a": "it is a directory, not a regular file", "a/": "it is a directory, not a regular file",
		"a/..": "it is a directory, not a regular file", "nothing": "no such file", "b/far": "no such file",
	} {
		if _, _, _, err := OpenInput(dir + "/" + name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", name, err, want)
		}
	}
}

// TestRelink makes a name another one of a file that has taken another one's place meanwhile.
func TestRelink(t *testing.T) {
	dir := t.TempDir()
	result, name := filepath.Join(dir, "result"), filepath.Join(dir, "name")
	put(t, result, "result")
	put(t, name, "old")
	info, err := os.Stat(result)
	if err != nil {
		t.Fatal(err)
	}
	id, _ := inode.Of(info)
	open := func() *Place {
		t.Helper()
		p, _, _, err := OpenInput(name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		return p
	}
	first := open()
	put(t, filepath.Join(dir, "other"), "other")
	if err := os.Rename(filepath.Join(dir, "other"), name); err != nil {
		t.Fatal(err)
	}
	if err := Relink(result, id, first); err != errMoved {
		t.Errorf("error %v", err)
	}
	expect(t, dir, map[string]string{"result": "result", "name": "other"})
	if err := Relink(name, id, open()); err == nil {
		t.Error("another file than the result is linked")
	}
	if err := Relink(result, id, open()); err != nil {
		t.Error(err)
	}
	expect(t, dir, map[string]string{"result": "result", "name": "result"})
	if err := Relink(result, id, open()); err != nil {
		t.Errorf("a name that it has: %v", err)
	}
	a, errA := os.Stat(name)
	if errA != nil || !os.SameFile(a, info) {
		t.Errorf("it is another file, error %v", errA)
	}
}

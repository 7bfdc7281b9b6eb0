//go:build unix

package outfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/testfile"
)

// TestPipe opens an output that is a pipe without a reader.
func TestPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	must.Do(t, syscall.Mkfifo(path, 0o600))
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
		t.Error("a pipe is not a stream")
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
	must.Get(io.WriteString(o, s))(t)
	must.Do(t, o.Finish(true))
}

// put creates a file.
func put(t *testing.T, path, s string) {
	t.Helper()
	testfile.Write(t, path, s)
}

// expect compares the files in a directory with the names and contents in want.
func expect(t *testing.T, dir string, want map[string]string) {
	t.Helper()
	entries := must.Get(os.ReadDir(dir))(t)
	got := make(map[string]string)
	for _, e := range entries {
		b := testfile.Read(t, filepath.Join(dir, e.Name()))
		got[e.Name()] = string(b)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("there is %v; want %v", got, want)
	}
}

// eachWay runs a test twice: with unnamed temporary files, if the system supports them, and with named temporary files.
func eachWay(t *testing.T, run func(t *testing.T)) {
	if f := createUnnamed(t.TempDir(), 0o600); f != nil {
		f.Close()
		t.Run("nameless", run)
	}
	t.Run("named", func(t *testing.T) {
		forceNamed = true
		defer func() { forceNamed = false }()
		run(t)
		if len(names.temporary) > 0 {
			t.Errorf("temporary names are left behind: %v", names.temporary)
		}
	})
}

// TestMode checks the mode of a new file, and of files that are replaced by name, through a link, or because they are
// the input. In the case "late", the mode of the old file changes after it was copied to the result.
func TestMode(t *testing.T) {
	old := syscall.Umask(0o027)
	defer syscall.Umask(old)
	eachWay(t, func(t *testing.T) {
		for name, want := range map[string]os.FileMode{"new": 0o640, "old": 0o604, "link": 0o700,
			"in": 0o751 | os.ModeSetgid, "late": 0o701} {
			dir := t.TempDir()
			file, path := filepath.Join(dir, "file"), filepath.Join(dir, "file")
			if name != "new" {
				put(t, file, "old contents, which are longer")
				must.Do(t, os.Chmod(file, want))
			}
			if name == "link" || name == "in" {
				path = filepath.Join(t.TempDir(), "link")
				must.Do(t, os.Symlink(file, path))
			}
			var o *File
			var err error
			if name == "in" {
				p, _, _, failed := OpenInput(path)
				if failed != nil {
					t.Fatal(failed)
				}
				defer p.Close()
				o, err = Replace(p)
			} else {
				o, err = Open(path, 0o666)
			}
			if err != nil {
				t.Fatal(err)
			}
			if name == "late" {
				err = os.Chmod(file, 0o600)
			}
			write(t, o, name)
			if name == "late" {
				err = errors.Join(err, os.Chmod(file, want))
			}
			if err = errors.Join(err, o.Commit()); err != nil {
				t.Error(err)
			}
			if name != "new" {
				if err := SyncDirectory(o.Replaced().Dir()); err != nil {
					t.Error(err)
				}
			}
			o.Close()
			if info, err := os.Stat(file); err != nil || info.Mode() != want {
				t.Errorf("%s has mode %v, error %v; want %v", name, info.Mode(), err, want)
			}
			expect(t, dir, map[string]string{"file": name})
		}
	})
}

// TestNamesUntilCommit expects no temporary file in the directory before Commit if the file system supports unnamed
// files. In any case, no temporary file may be left behind.
func TestNamesUntilCommit(t *testing.T) {
	eachWay(t, func(t *testing.T) {
		dir := t.TempDir()
		put(t, filepath.Join(dir, "old"), "old")
		for _, name := range []string{"old", "new"} {
			o := must.Get(Open(filepath.Join(dir, name), 0o666))(t)
			write(t, o, "contents")
			if entries, err := os.ReadDir(dir); err != nil || !forceNamed && len(entries) > 1 {
				t.Errorf("there is %v, error %v", entries, err)
			}
			o.Close()
		}
		expect(t, dir, map[string]string{"old": "old"})
		scratch := must.Get(Scratch())(t)
		defer scratch.Close()
		if _, err := scratch.WriteString("contents"); err != nil {
			t.Error(err)
		}
	})
}

// TestTaken moves a different file to the output's path, or removes the old file, before Commit. The different file
// must remain.
func TestTaken(t *testing.T) {
	eachWay(t, func(t *testing.T) {
		for _, tt := range []struct {
			old, other bool
			err        string
		}{
			{true, true, "the file was replaced or removed"},
			{true, false, "file"}, // on Linux, the file's attributes cannot be read
			{false, true, "was created meanwhile"},
		} {
			dir := t.TempDir()
			path, want := filepath.Join(dir, "file"), map[string]string{}
			if tt.old {
				put(t, path, "old")
			}
			o := must.Get(Open(path, 0o666))(t)
			write(t, o, "contents")
			if tt.other {
				put(t, path+"2", "other")
				must.Do(t, os.Rename(path+"2", path))
				want["file"] = "other"
			} else {
				must.Do(t, os.Remove(path))
			}
			if err := o.Commit(); err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%+v: error %v", tt, err)
			}
			o.Close()
			expect(t, dir, want)
		}
	})
}

// TestAbandon abandons the output before the result is in place.
func TestAbandon(t *testing.T) {
	eachWay(t, func(t *testing.T) {
		dir := t.TempDir()
		path := filepath.Join(dir, "out")
		o := must.Get(Open(path, 0o666))(t)
		write(t, o, "contents")
		Abandon()
		expect(t, dir, map[string]string{})
		committed := make(chan error, 1)
		go func() { committed <- o.Commit() }()
		select {
		case err := <-committed:
			t.Errorf("a result was put in its place after Abandon, error %v", err)
		case <-time.After(50 * time.Millisecond):
		}
		expect(t, dir, map[string]string{})
		names.Unlock() // the test continues; a program would exit
		<-committed
		o.Close()
	})
}

// TestPlaces checks which paths lead to the same file.
func TestPlaces(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"a", "b"} {
		must.Do(t, os.Mkdir(filepath.Join(dir, d), 0o777))
	}
	put(t, filepath.Join(dir, "a/file"), "")
	for name, to := range map[string]string{
		"folder": "a", "a/soft": "file", "b/there": "../a/soft", "b/absolute": filepath.Join(dir, "folder/soft"),
		"nothing": "missing", "a/loop": "loop", "b/far": "../nowhere/file",
	} {
		must.Do(t, os.Symlink(to, filepath.Join(dir, name)))
	}
	want := must.Get(RealPath(filepath.Join(dir, "a/file")))(t)
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
		"a/loop": "too many levels of symbolic links", "nothing": "a dangling symbolic link",
		"missing/file": "no such file",
		"a/file/new":   "not a directory", "b/far": "a dangling symbolic link",
	} {
		if _, err := RealPath(dir + "/" + name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", name, err, want)
		}
	}
}

// TestCommitNames replaces a file with several names. A name at which there is another file by then remains, and so do
// files that are missing.
func TestCommitNames(t *testing.T) {
	eachWay(t, func(t *testing.T) {
		dir := t.TempDir()
		at := func(name string) string { return filepath.Join(dir, name) }
		put(t, at("old"), "old")
		must.Do(t, errors.Join(os.Mkdir(at("sub"), 0o777), os.Link(at("old"), at("sub/hard")),
			os.Link(at("old"), at("moved")), os.Symlink("old", at("soft")), os.Symlink("sub/hard", at("far"))))
		p, _, _, err := OpenInput(at("old"))
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		o := must.Get(Replace(p))(t)
		defer o.Close()
		write(t, o, "new")
		put(t, at("other"), "other")
		must.Do(t, os.Rename(at("other"), at("moved")))
		others := []string{at("moved"), at("none"), at("soft"), at("far"), at("sub/hard"), at("old")}
		errs := must.Get(o.CommitNames(others))(t)
		want := []error{errMoved, syscall.ENOENT, nil, nil, nil, nil}
		if !slices.EqualFunc(errs, want, errors.Is) {
			t.Errorf("errors %v; want %v", errs, want)
		}
		info := must.Get(os.Stat(at("old")))(t)
		for _, name := range []string{"soft", "far", "sub/hard"} {
			if now, err := os.Stat(at(name)); err != nil || !os.SameFile(now, info) {
				t.Errorf("%s is a different file, error %v", name, err)
			}
		}
		if to, err := os.Readlink(at("far")); to != "sub/hard" {
			t.Errorf("the symbolic link refers to %q, error %v", to, err)
		}
		expect(t, at("sub"), map[string]string{"hard": "new"})
		must.Do(t, os.RemoveAll(at("sub")))
		must.Do(t, errors.Join(os.Remove(at("soft")), os.Remove(at("far"))))
		expect(t, dir, map[string]string{"old": "new", "moved": "other"})
	})
}

func TestEqual(t *testing.T) {
	for _, n := range []int{0, 1, 64<<10 - 1, 64 << 10, 64<<10 + 1} {
		text := strings.Repeat("x", n)
		if same, err := Equal(strings.NewReader(text), strings.NewReader(text)); !same || err != nil {
			t.Errorf("%d bytes: %v, %v", n, same, err)
		}
		if same, err := Equal(strings.NewReader(text+"y"), strings.NewReader(text+"z")); same || err != nil {
			t.Errorf("%d bytes, and a different one: %v, %v", n, same, err)
		}
	}
	failing := errors.New("no disk")
	for _, second := range []io.Reader{strings.NewReader("x"), iotest.ErrReader(failing)} {
		if same, err := Equal(iotest.ErrReader(failing), second); same || err != failing {
			t.Errorf("streams with an error are equal: %v, %v", same, err)
		}
	}
	if same, err := Equal(strings.NewReader("x"), iotest.ErrReader(failing)); same || err != failing {
		t.Errorf("streams with an error are equal: %v, %v", same, err)
	}
}

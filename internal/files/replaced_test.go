package files_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"cfi2sframe/convert"
	"cfi2sframe/internal/files"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/sframe"
)

// TestReplacedInput replaces or removes the input before the result is complete. The replacement, and the target of a
// symbolic link, must remain.
func TestReplacedInput(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(dir, in string) error
	}{
		{"renamed over it", func(dir, in string) error { return os.Rename(filepath.Join(dir, "new"), in) }},
		{"a symbolic link", func(dir, in string) error {
			if err := os.Remove(in); err != nil {
				return err
			}
			return os.Symlink(filepath.Join(dir, "victim"), in)
		}},
		{"a directory", func(dir, in string) error {
			if err := os.Remove(in); err != nil {
				return err
			}
			return os.Mkdir(in, 0o777)
		}},
		{"nothing", func(dir, in string) error { return os.Remove(in) }},
		{"the directory is a symbolic link to a different directory", func(dir, in string) error {
			sub := filepath.Dir(in)
			if err := os.Rename(sub, sub+".old"); err != nil {
				return err
			}
			if err := os.Mkdir(filepath.Join(dir, "other"), 0o777); err != nil {
				return err
			}
			if err := os.Link(filepath.Join(dir, "victim"), filepath.Join(dir, "other", "in")); err != nil {
				return err
			}
			return os.Symlink("other", sub)
		}},
		{"a write at the end", func(dir, in string) error {
			f, err := os.OpenFile(in, os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = f.Write([]byte{1})
			f.Close()
			return err
		}},
	} {
		dir := t.TempDir()
		in := filepath.Join(dir, "sub", "in")
		must.Do(t, os.Mkdir(filepath.Dir(in), 0o777))
		copyFixture(t, in)
		copyFixture(t, filepath.Join(dir, "victim"))
		testfile.Write(t, filepath.Join(dir, "new"), "a new file")
		var after map[string]string
		ctx := &disturbance{Context: context.Background(), after: 1, do: func() { // the file is opened after check 1
			must.Do(t, tt.do(dir, in))
			after = tree(t, dir)
		}}
		opt := files.Options{Work: files.Add(convert.Options{Version: sframe.V2}, "")}
		if _, err := files.Convert(ctx, in, in, opt); err == nil &&
			tt.name != "the directory is a symbolic link to a different directory" {
			t.Errorf("%s: no error", tt.name)
		}
		got := tree(t, dir)
		delete(after, "sub.old/in") // the original input, now in sub.old, may be replaced
		for path, what := range after {
			if got[path] != what {
				t.Errorf("%s: %s has changed", tt.name, path)
			}
		}
		for path := range got {
			if _, ok := after[path]; !ok && path != "sub.old/in" {
				t.Errorf("%s: %s is new", tt.name, path)
			}
		}
	}
}

// tree describes the files below a directory: contents, and targets of symbolic links.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := make(map[string]string)
	must.Do(t, filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		switch {
		case info.Mode().IsRegular():
			b, err := os.ReadFile(path)
			all[name] = info.Mode().String() + string(b)
			return err
		case info.Mode()&os.ModeSymlink != 0:
			to, err := os.Readlink(path)
			all[name] = "-> " + to
			return err
		}
		all[name] = info.Mode().String()
		return nil
	}))
	return all
}

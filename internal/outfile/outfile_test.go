package outfile

import (
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestPipe opens an output that is a pipe without a reader.
func TestPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	opened := make(chan *File)
	go func() {
		o, err := Open(path)
		if err != nil {
			t.Error(err)
		}
		opened <- o
	}()
	var o *File
	select {
	case o = <-opened:
	case <-time.After(10 * time.Second):
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
	if _, err := io.WriteString(o, "contents"); err != nil {
		t.Error(err)
	}
	if err := o.Commit(); err != nil {
		t.Error(err)
	}
	o.Close()
	if s := <-got; s != "contents" {
		t.Errorf("read %q", s)
	}
}

// TestLikeNew replaces a file that there is, and one that there is not.
func TestLikeNew(t *testing.T) {
	old := syscall.Umask(0o027)
	defer syscall.Umask(old)
	dir := t.TempDir()
	for name, want := range map[string]os.FileMode{"new": 0o640, "old": 0o604} {
		path := filepath.Join(dir, name)
		if name == "old" {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, want); err != nil {
				t.Fatal(err)
			}
		}
		o, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := o.LikeNew(); err != nil {
			t.Error(err)
		}
		if err := o.Commit(); err != nil {
			t.Error(err)
		}
		o.Close()
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != want {
			t.Errorf("%s has mode %v; %v was expected", name, info.Mode(), want)
		}
	}
}

package files_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"cfi2sframe/convert"
	"cfi2sframe/internal/files"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/testfile"
)

// withStdin runs a function with f as standard input.
func withStdin(t *testing.T, f *os.File, fn func()) {
	t.Helper()
	saved := os.Stdin
	os.Stdin = f
	defer func() { os.Stdin = saved }()
	defer f.Close()
	fn()
}

// opened opens a file with the given contents, at an offset.
func opened(t *testing.T, b []byte, at int64) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "stdin")
	must.Do(t, os.WriteFile(path, b, 0o640))
	f := must.Get(os.Open(path))(t)
	must.Get(f.Seek(at, io.SeekStart))(t)
	return f
}

// piped returns the reading end of a pipe with the given contents.
func piped(t *testing.T, b []byte) *os.File {
	t.Helper()
	r, w := must.Two(os.Pipe())(t)
	go func() {
		_, _ = w.Write(b) // the reader may stop early
		w.Close()
	}()
	return r
}

// TestStdinInterrupted cancels a check that waits for a pipe.
func TestStdinInterrupted(t *testing.T) {
	r, w := must.Two(os.Pipe())(t)
	defer w.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	withStdin(t, r, func() {
		if _, err := check(ctx, files.Stdin, files.Sources{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error is %v", err)
		}
	})
}

// TestFileRefused expects errors for unsupported inputs and outputs, and nothing to be written.
func TestFileRefused(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	must.Do(t, unix.Mkfifo(fifo, 0o666))
	prog := filepath.Join(fixtures, "amd64/plt")
	out := filepath.Join(dir, "out")
	for _, tt := range []struct {
		name, in, out string
		opt           files.Options
		want          string
	}{
		{"a directory", dir, out, files.Options{}, "it is a directory, not a regular file"},
		{"a pipe without a writer", fifo, out, files.Options{}, "not a regular file"},
		{"missing", filepath.Join(dir, "missing"), out, files.Options{}, "no such file"},
		{"a directory as the output", prog, dir, files.Options{}, "directory"},
		{"a missing debug file", prog, out,
			files.Options{Work: files.Add(convert.Options{}, filepath.Join(dir, "debug"))}, "no such file"},
		{"a debug file of a different program", prog, out,
			files.Options{Work: files.Add(convert.Options{}, filepath.Join(fixtures, "s390x/plt"))}, "debug"},
		{"too little covered", filepath.Join(fixtures, "amd64/drap1"), out,
			files.Options{Accept: func() string { return "too little" }}, "nothing was written: too little"},
	} {
		before := tree(t, dir)
		res, err := files.Convert(t.Context(), tt.in, tt.out, tt.opt)
		if err == nil || !strings.Contains(err.Error(), tt.want) || (res != nil) != errors.Is(err, files.ErrRefused) {
			t.Errorf("%s: result %v, error %v; want %q", tt.name, res, err, tt.want)
		}
		if after := tree(t, dir); len(after) != len(before) {
			t.Errorf("%s: %d files, %d before", tt.name, len(after), len(before))
		}
	}
	for name, path := range map[string]string{"a directory": dir, "a pipe": fifo,
		"missing": filepath.Join(dir, "missing")} {
		if c, err := check(t.Context(), path, files.Sources{}); err == nil || c != nil {
			t.Errorf("%s, checked: %v, error %v", name, c, err)
		}
	}
	if res, err := files.Convert(t.Context(), prog, out,
		files.Options{DryRun: true}); err != nil || !res.Facts[0].Verified || res.Output != "" {
		t.Errorf("dry run: %v, error %v", res, err)
	}
	if _, err := os.Stat(out); !os.IsNotExist(err) {
		t.Errorf("there is an output, error %v", err)
	}
}

// TestUnchanged expects a copy as the output if a file is not converted.
func TestUnchanged(t *testing.T) {
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	testfile.Write(t, in, "This is not an ELF file.")
	opt := files.Options{Run: convert.Run{SkipUnsupported: true}, DebugLinkUpdate: "auto"}
	res, err := files.Convert(t.Context(), in, out, opt)
	if err != nil || res.Stays != convert.NotELF {
		t.Errorf("%+v, error %v", res, err)
	}
	expectFile(t, "a copy", out, testfile.Read(t, in))
	if _, err := files.Convert(t.Context(), in, filepath.Join(dir, "none", "out"), opt); !errors.Is(err,
		os.ErrNotExist) {
		t.Errorf("without a directory for the copy: %v", err)
	}
	if _, err := files.Convert(t.Context(), in, "/dev/full", opt); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("without space for the copy: %v", err)
	}
	f := opened(t, nil, 0)
	f.Close()
	withStdin(t, f, func() {
		if _, err := files.Open(t.Context(), files.Stdin); !errors.Is(err, os.ErrClosed) {
			t.Errorf("standard input is closed: %v", err)
		}
	})
	r, w := must.Two(os.Pipe())(t)
	r.Close()
	withStdin(t, w, func() {
		if _, err := files.Open(t.Context(), files.Stdin); !errors.Is(err, unix.EBADF) {
			t.Errorf("standard input cannot be read: %v", err)
		}
	})
}

// TestTerminal expects an error for an output that is a terminal.
func TestTerminal(t *testing.T) {
	const path = "/dev/ptmx" // creates a new terminal
	if f, err := os.OpenFile(path, os.O_WRONLY, 0); err != nil {
		peer.Missing(t, "a terminal cannot be created: "+err.Error())
	} else {
		f.Close()
	}
	const want = "the output is a terminal; name a file, or pipe it to another program"
	if _, err := files.Create(path, 0o666); err == nil || err.Error() != want {
		t.Errorf("%v; want %q", err, want)
	}
}

package files_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
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

// openAt returns an open file with the given contents, positioned at an offset.
func openAt(t *testing.T, b []byte, at int64) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "stdin")
	must.Do(t, os.WriteFile(path, b, 0o640))
	f := must.Get(os.Open(path))(t)
	must.Get(f.Seek(at, io.SeekStart))(t)
	return f
}

// newPipe returns the read end of a pipe that delivers the given contents.
func newPipe(t *testing.T, b []byte) *os.File {
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
		if _, err := files.OpenProgram(ctx, files.Stdin, files.Sources{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error is %v", err)
		}
	})
}

// TestUnchanged expects the output to be a copy of the input if the input is not converted.
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
	f := openAt(t, nil, 0)
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

// TestTerminal expects errors for a terminal as the input and as the output.
func TestTerminal(t *testing.T) {
	const path = "/dev/ptmx" // creates a new terminal
	terminal, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		peer.Missing(t, "a terminal cannot be created: "+err.Error())
	}
	const input = "standard input is a terminal; redirect a file or a pipe"
	withStdin(t, terminal, func() {
		if _, err := files.Open(t.Context(), files.Stdin); err == nil || err.Error() != input {
			t.Errorf("%v; want %q", err, input)
		}
	})
	const output = "the output is a terminal; name a file, or pipe it to another program"
	if _, err := files.Create(path, 0o666); err == nil || err.Error() != output {
		t.Errorf("%v; want %q", err, output)
	}
}

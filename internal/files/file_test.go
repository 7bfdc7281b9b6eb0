package files_test

import (
	"bytes"
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
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/sframe"
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

// TestStdin converts standard input: a file, the rest of a file, and a pipe.
func TestStdin(t *testing.T) {
	old := testfile.Read(t, filepath.Join(fixtures, "amd64/plt"))
	want := converted(t, "plt", convert.Options{})
	library := elftest.Ar(elftest.ArMember("a.o/", old), elftest.ArMember("odd/", []byte("text")))
	wantLibrary, _ := must.Two(inMemory(library, convert.Options{}))(t)
	mask := os.FileMode(unix.Umask(0o022))
	unix.Umask(int(mask))
	for _, tt := range []struct {
		name  string
		stdin func() *os.File
		want  []byte
		mode  os.FileMode
	}{
		{"a file", func() *os.File { return opened(t, old, 0) }, want, 0o640},
		{"the rest of a file", func() *os.File { return opened(t, append([]byte("before"), old...), 6) }, want, 0o777},
		{"a pipe", func() *os.File { return piped(t, old) }, want, 0o777},
		{"an archive through a pipe", func() *os.File { return piped(t, library) }, wantLibrary, 0o666},
	} {
		out := filepath.Join(t.TempDir(), "out")
		withStdin(t, tt.stdin(), func() {
			if _, err := files.Convert(t.Context(), files.Stdin, out, files.Options{}); err != nil {
				t.Errorf("%s: %v", tt.name, err)
				return
			}
			expectFile(t, tt.name, out, tt.want)
			if info, err := os.Stat(out); err != nil || info.Mode() != tt.mode&^mask {
				t.Errorf("%s: mode %v, error %v; want %v", tt.name, info.Mode(), err, tt.mode&^mask)
			}
		})
	}
	for name, stdin := range map[string]*os.File{"file": opened(t, want, 0), "pipe": piped(t, want)} {
		withStdin(t, stdin, func() {
			in := must.Get(files.Open(t.Context(), files.Stdin))(t)
			defer in.Close()
			if b, err := io.ReadAll(io.NewSectionReader(in.File, 0, in.Info.Size())); err != nil ||
				!bytes.Equal(b, want) {
				t.Errorf("%s: error %v, or other contents", name, err)
			}
		})
	}
	withStdin(t, piped(t, want), func() {
		if c, err := check(t.Context(), files.Stdin, files.Sources{}); err != nil || len(c.Mismatches) > 0 ||
			c.Covered == 0 {
			t.Errorf("checked: %+v, error %v", c, err)
		}
	})
}

// TestStdinRefused expects no output for unsupported input.
func TestStdinRefused(t *testing.T) {
	folder := must.Get(os.Open(t.TempDir()))(t)
	closed := opened(t, nil, 0)
	for _, tt := range []struct {
		name  string
		stdin *os.File
		want  string
	}{
		{"nothing", piped(t, nil), "ELF"},
		{"text", piped(t, []byte("text")), "ELF"},
		{"much text", piped(t, bytes.Repeat([]byte("text"), 1<<20)), "ELF"},
		{"a truncated file", piped(t, testfile.Read(t, filepath.Join(fixtures, "amd64/plt"))[:100]),
			"headers of 64 bytes do not fit in the file of 100 bytes"},
		{"a directory", folder, "standard input is a directory; redirect a file or a pipe"},
		{"an empty file", closed, "ELF"},
	} {
		out := filepath.Join(t.TempDir(), "out")
		withStdin(t, tt.stdin, func() {
			if _, err := files.Convert(t.Context(), files.Stdin, out, files.Options{}); err == nil ||
				!strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: error is %v, want %q", tt.name, err, tt.want)
			}
		})
		if _, err := os.Stat(out); !os.IsNotExist(err) {
			t.Errorf("%s: there is an output, error %v", tt.name, err)
		}
	}
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

// TestFileInPlace replaces files, and removes .sframe again.
func TestFileInPlace(t *testing.T) {
	dir := t.TempDir()
	in := filepath.Join(dir, "in")
	copyFixture(t, in)
	must.Do(t, os.Chmod(in, 0o511))
	want, plain := converted(t, "plt", convert.Options{Version: sframe.V3}), filepath.Join(dir, "plain")
	must.Get(files.Convert(t.Context(), in, in,
		files.Options{Work: files.Add(convert.Options{Version: sframe.V3}, "")}))(t)
	expectFile(t, "converted", in, want)
	if _, err := files.Convert(t.Context(), in, in, files.Options{}); err == nil {
		t.Error("it was converted twice")
	}
	expectFile(t, "refused", in, want)
	must.Get(files.Convert(t.Context(), in, plain, files.Options{Work: files.Remove("")}))(t)
	res, err := files.Convert(t.Context(), in, in, files.Options{Work: files.Remove("")})
	if err != nil || len(res.Facts) > 0 || len(res.Kept) > 0 {
		t.Errorf("removed: %+v, error %v", res, err)
	}
	expectFile(t, "removed", in, testfile.Read(t, plain))
	if info, err := os.Stat(in); err != nil || info.Mode() != 0o511 {
		t.Errorf("mode %v, error %v", info.Mode(), err)
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

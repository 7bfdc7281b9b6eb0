package files_test

import (
	"context"
	"errors"
	"io"
	"maps"
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
	opt := files.Options{Run: convert.Run{SkipUnsupported: true}}
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

// TestOutputsRefused makes reading and writing fail at different steps: the error names the file, and nothing is left
// behind.
func TestOutputsRefused(t *testing.T) {
	dir := t.TempDir()
	in := filepath.Join(dir, "in")
	copyFixture(t, in)
	want := tree(t, dir)
	if _, err := files.Convert(t.Context(), in, "/dev/full", files.Options{}); err == nil ||
		err.Error() != "cannot write to /dev/full: no space left on device" {
		t.Errorf("/dev/full: %v", err)
	}
	none := filepath.Join(dir, "none")
	t.Setenv("TMPDIR", none)
	const noFolder = ": no such file or directory; set TMPDIR to another directory"
	withStdin(t, newPipe(t, testfile.Read(t, in)), func() {
		if _, err := files.Convert(t.Context(), files.Stdin, filepath.Join(dir, "out"), files.Options{}); err == nil ||
			err.Error() != "cannot write to "+none+noFolder {
			t.Errorf("a pipe without a directory to copy it to: %v", err)
		}
	})
	library := filepath.Join(t.TempDir(), "lib.a")
	testfile.Write(t, library, elftest.Ar(elftest.ArMember("a.o/", elftest.NewObject().Bytes())))
	if _, err := files.Convert(t.Context(), library, filepath.Join(dir, "lib.a"), files.Options{}); err == nil ||
		!strings.HasSuffix(err.Error(), ": cannot write to "+none+noFolder) {
		t.Errorf("an archive without a directory for its members: %v", err)
	}
	if j := each(t.Context(), []string{none}, inPlace(files.Options{}))[0]; !errors.Is(j.Err, os.ErrNotExist) {
		t.Errorf("a missing file: %+v", j)
	}
	if got := tree(t, dir); !maps.Equal(got, want) {
		t.Errorf("there is %v; want %v", got, want)
	}
}

// TestEachKeptNames converts both names of a file that is not converted, and of a file that cannot be replaced.
func TestEachKeptNames(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	testfile.Write(t, at("text"), "This is not an ELF file.")
	copyFixture(t, at("prog"))
	for _, name := range []string{"text", "prog"} {
		must.Do(t, os.Link(at(name), at(name+"2")))
	}
	want := tree(t, dir)
	for _, j := range each(t.Context(), []string{at("text"), at("text2")}, inPlace(files.Options{
		Run: convert.Run{SkipUnsupported: true},
	})) {
		if j.Err != nil || j.Result == nil || j.Result.Stays != convert.NotELF {
			t.Errorf("%s: %+v, %v", j.In, j.Result, j.Err)
		}
	}
	// A different file takes the first name before the result does. The second name is unchanged as well.
	for _, j := range each(t.Context(), []string{at("prog"), at("prog2")}, inPlace(during(func() {
		testfile.Write(t, at("new"), "a new file")
		must.Do(t, os.Rename(at("new"), at("prog")))
	}))) {
		if j.Err == nil {
			t.Errorf("%s is replaced", j.In)
		}
	}
	got := tree(t, dir)
	for name := range want {
		if filepath.Base(name) != "prog" && got[name] != want[name] {
			t.Errorf("%s is %s; want %s", name, got[name], want[name])
		}
	}
}

// TestMountPoint converts a file that cannot be replaced because it is a mount point, as in containers.
func TestMountPoint(t *testing.T) {
	if os.Geteuid() != 0 {
		peer.Missing(t, "only root can mount a file")
	}
	prog := filepath.Join(t.TempDir(), "prog")
	copyFixture(t, prog)
	want := testfile.Read(t, prog)
	if err := unix.Mount(prog, prog, "", unix.MS_BIND, ""); err != nil {
		peer.Missing(t, "a file cannot be mounted: "+err.Error())
	}
	_, err := files.Convert(t.Context(), prog, prog, files.Options{})
	must.Do(t, unix.Unmount(prog, 0))
	if err == nil || err.Error() != "device or resource busy" {
		t.Errorf("%v", err)
	}
	expectFile(t, "mounted", prog, want)
}

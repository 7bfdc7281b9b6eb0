//go:build linux && !portable

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/testfile"
)

// noRoom is a writer that fails like a full disk.
type noRoom struct{}

func (noRoom) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// TestFullDisk writes reports to a full disk: the files are converted nevertheless, and messages say so.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	copyTo(t, in)
	expectRun(t, exitError,
		"cfi2sframe: report: cannot write to /dev/full: no space left on device\n"+
			"cfi2sframe: files replaced despite the error: 1\n",
		io.Discard, "--report", "html", "--report-file", "/dev/full", in, "-o", out)
	expectConverted(t, out)
	other := filepath.Join(dir, "other")
	copyTo(t, other)
	for _, flag := range []string{"--dry-run", "--in-place"} {
		said := expectRun(t, exitError,
			"cfi2sframe: report: cannot write to standard output: no space left on device\n", noRoom{}, flag,
			"--report", "json", in, other)
		if strings.Contains(said, "files replaced despite the error: 2\n") != (flag == "--in-place") {
			t.Errorf("%s: said %q", flag, said)
		}
	}
	expectConverted(t, in, other)
	// Writing a long report fails in the middle.
	gaps := filepath.Join(dir, "gaps")
	library := elftest.Patch(t.Fatalf, fixture(t, "pltlib.so"))
	testfile.Write(t, gaps, withGaps(library, 1000))
	for _, form := range []string{"json", "html"} {
		expectRun(t, exitError, "no space left on device", noRoom{}, "-v", "--dry-run", "--report", form, gaps)
	}
	// Only the first gaps are listed.
	said := expectRun(t, exitCoverage, "", io.Discard, "-q", "--format", "2", "--min-coverage", "100", gaps, "-o", out)
	if n := strings.Count(said, gaps+": 0x"); n != shortList {
		t.Errorf("%d gaps are listed; want %d", n, shortList)
	}
	expectRun(t, exitError, "cfi2sframe: cannot write to standard output: no space left on device\n", noRoom{},
		"ld", "--print-dir")

	for _, args := range [][]string{{"dump", out}, {"version"}, {"completion", "bash"}, {"--help"}} {
		expectRun(t, exitError, "cannot write to standard output: no space left on device\n", noRoom{}, args...)
	}
	for _, args := range [][]string{{"check", out}, {"check", "--report", "json", out}, {"lookup", out, ".text+0"},
		{"lookup", "--report", "json", out, ".text+0"}} {
		expectRun(t, exitTrouble, "cannot write to standard output: no space left on device\n", noRoom{}, args...)
	}

	closed := must.Get(os.Create(filepath.Join(dir, "closed")))(t)
	closed.Close()
	expectRun(t, exitError, "file already closed", closed, "--dry-run", "--report", "json", in)
}

// expectConverted expects files to have an .sframe.
func expectConverted(t *testing.T, paths ...string) {
	t.Helper()
	for _, path := range paths {
		if _, err := decodeOutput(path); err != nil {
			t.Errorf("%s is not converted: %v", path, err)
		}
	}
}

// panicAt is a context that panics at the given check, like a bug in the code that reads one of several files.
type panicAt struct {
	context.Context
	left atomic.Int32
}

func (p *panicAt) Err() error {
	if p.left.Add(-1) == 0 {
		panic("a bug")
	}
	return nil
}

// TestPanic expects a panic to be an error of the file that causes it. The other files are checked or converted.
func TestPanic(t *testing.T) {
	dir := t.TempDir()
	bad, good := filepath.Join(dir, "bad"), filepath.Join(dir, "good")
	for verb, want := range map[string]int{"check": exitTrouble, "convert": exitError} {
		copyTo(t, bad)
		copyTo(t, good)
		args := []string{"check", "--require", bad, good}
		if verb == "check" {
			must.Do(t, os.Remove(good))
			expectRun(t, exitDone, "", io.Discard, "-q", bad, "-o", good)
		} else {
			args = []string{"--in-place", "-j1", bad, good}
		}
		var stdout, stderr bytes.Buffer
		ctx := &panicAt{Context: t.Context()}
		ctx.left.Store(2)
		status := run(ctx, args, &stdout, &stderr)
		said := stderr.String()
		if status != want || strings.Count(said, ": internal error in ") != 1 ||
			!strings.Contains(said, ": a bug; please report it, with this file\n") {
			t.Errorf("%s: status %d, want %d; %s", verb, status, want, said)
		}
		if all := stdout.String() + said; !strings.Contains(all, "2 files: 1 correct, 1 failed") &&
			!strings.Contains(all, "2 files: 1 done, 1 failed") {
			t.Errorf("%s: %s", verb, all)
		}
	}
}

// TestInputErrors expects messages to name the kind of an unsupported input, for each verb that reads files.
func TestInputErrors(t *testing.T) {
	dir := t.TempDir()
	copyTo(t, filepath.Join(dir, "prog"))
	t.Chdir(dir)
	must.Do(t, errors.Join(os.Mkdir("dir", 0o777), unix.Mkfifo("pipe", 0o666)))
	for name, contents := range map[string]string{
		"empty": "", "script": "#!/bin/sh\n", "pe": "MZ\x90\x00", "macho": "\xcf\xfa\xed\xfe", "gz": "\x1f\x8b\x08",
		"xz": "\xfd7zXZ\x00", "bz2": "BZh9", "zst": "\x28\xb5\x2f\xfd", "zip": "PK\x03\x04",
		"deb": "!<arch>\ndebian-binary   0           0     0     100644  4         \x60\n2.0\n",
		"rpm": "\xed\xab\xee\xdb\x03\x00\x00\x00" + strings.Repeat("\x00", 88), "text": "text",
		"tar": "file" + strings.Repeat("\x00", 253) + "ustar\x0000",
	} {
		testfile.Write(t, name, contents)
	}
	for name, want := range map[string]string{
		"dir": "is a directory; use ", "pipe": "is a pipe; use - to read standard input", "empty": "is empty",
		"script": "is a script, not an ELF file", "pe": "is a PE file, not an ELF file",
		"macho": "is a Mach-O file, not an ELF file", "gz": "is a gzip file; unpack it",
		"xz":  "is an xz file; unpack it",
		"bz2": "is a bzip2 file; unpack it", "zst": "is a zstd file; unpack it", "zip": "is a ZIP file; unpack it",
		"deb":  "is a Debian package; unpack it with dpkg-deb -R",
		"rpm":  "is an RPM package; unpack it with rpm2cpio",
		"tar":  "is a tar archive or a container image; unpack it",
		"text": "ELF header at file offset 0x0: not an ELF file",
	} {
		message := "cfi2sframe: " + name + ": " + want
		expectRun(t, exitError, message, io.Discard, name, "-o", "out")
		expectRun(t, exitError, message, io.Discard, "--in-place", name)
		expectRun(t, exitError, message, io.Discard, "remove", name, "-o", "out")
		expectRun(t, exitTrouble, message, io.Discard, "check", name)
		expectRun(t, exitError, message, io.Discard, "dump", name)
		expectRun(t, exitTrouble, message, io.Discard, "lookup", name, "0")
	}
	testfile.Write(t, "archive", elftest.Ar([]byte("text")))
	expectRun(t, exitTrouble, "archive: is an archive; extract its members with ar x", io.Discard, "check", "archive")
}

// TestOutputErrors expects messages to name the output: a file in a missing directory, a directory, and files on a full
// disk.
func TestOutputErrors(t *testing.T) {
	big := withGaps(elftest.Patch(t.Fatalf, fixture(t, "pltlib.so")), 1000)
	dir := t.TempDir()
	copyTo(t, filepath.Join(dir, "prog"))
	t.Chdir(dir)
	must.Do(t, os.Mkdir("dir", 0o777))
	for args, want := range map[string]string{
		"prog -o dir":       "prog: output dir is a directory; did you mean dir/prog?\n",
		"prog -o /dev/full": "prog: cannot write to /dev/full: no space left on device\n",
		"prog -o out --report-file nodir/r": "report: cannot write to nodir: no such file or directory; create the " +
			"directory first\n",
	} {
		expectRun(t, exitError, "cfi2sframe: "+want, io.Discard, append(strings.Fields(args), "-q")...)
	}
	if os.Geteuid() != 0 {
		peer.Missing(t, "mounting a file system requires root")
	}
	if err := unix.Mount("none", "dir", "tmpfs", 0, "size=8k"); err != nil {
		peer.Missing(t, "tmpfs cannot be mounted: "+err.Error())
	}
	defer func() {
		if err := unix.Unmount("dir", 0); err != nil {
			t.Error(err)
		}
	}()
	must.Do(t, os.WriteFile("big", big, 0o777))
	const full = ": no space left on device\n"
	expectRun(t, exitError, "cfi2sframe: big: cannot write to dir/out"+full, io.Discard, "-q", "big", "-o", "dir/out")
	t.Setenv("TMPDIR", "dir")
	var stdout bytes.Buffer
	expectRun(t, exitError, "cfi2sframe: big: cannot write to dir"+full, &stdout, "-q", "big", "-o", "/dev/null")
	t.Setenv("TMPDIR", "")
	expectRun(t, exitError,
		"cfi2sframe: report: cannot write to dir/r: no space left on device\n", io.Discard,
		"--format", "2", "--report", "json", "--report-file", "dir/r", "big", "-o", "out")
	if entries, err := os.ReadDir("dir"); err != nil || len(entries) > 0 {
		t.Errorf("files on the full disk: %v, %v", entries, err)
	}
}

// TestNearlyFull converts the programs of a file system with space for one more of them, but not for several.
func TestNearlyFull(t *testing.T) {
	if os.Geteuid() != 0 {
		peer.Missing(t, "mounting a file system requires root")
	}
	program := withGaps(elftest.Patch(t.Fatalf, fixture(t, "pltlib.so")), 10_000)
	at := t.TempDir()
	in, out, dir := filepath.Join(at, "in"), filepath.Join(at, "out"), filepath.Join(at, "dir")
	testfile.Write(t, in, program)
	expectRun(t, exitDone, "", io.Discard, "-q", in, "-o", out)
	must.Do(t, os.Mkdir(dir, 0o777))
	const programs = 20
	size := (programs + 2) * (len(testfile.Read(t, out)) + os.Getpagesize())
	for _, jobs := range []string{"-j1", "-j2"} {
		if err := unix.Mount("none", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
			peer.Missing(t, "tmpfs cannot be mounted: "+err.Error())
		}
		for i := range programs {
			must.Do(t, os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), program, 0o777))
		}
		expectRun(t, exitDone, "20 files: 20 done, 0 failed\n", io.Discard, "-r", "--in-place", jobs, dir)
		must.Do(t, unix.Unmount(dir, 0))
	}
}

// TestMounted expects an error for a file that is a mount point, which cannot be replaced. Mount points below a
// directory are skipped.
func TestMounted(t *testing.T) {
	if os.Geteuid() != 0 {
		peer.Missing(t, "mounting a file requires root")
	}
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	must.Do(t, os.MkdirAll(at("tree/mounted"), 0o777))
	mount := func(source, target, kind string, flags uintptr) {
		t.Helper()
		if err := unix.Mount(source, target, kind, flags, ""); err != nil {
			peer.Missing(t, "mounting fails: "+err.Error())
		}
		t.Cleanup(func() {
			if err := unix.Unmount(target, 0); err != nil {
				t.Error(err)
			}
		})
	}
	for _, name := range []string{"busy", "free", "tree/prog"} {
		copyTo(t, at(name))
	}
	mount(at("busy"), at("busy"), "", unix.MS_BIND)
	mount("none", at("tree/mounted"), "tmpfs", 0)
	copyTo(t, at("tree/mounted/prog"))

	for form, want := range map[string]string{
		"text": "2 files: 1 done, 1 failed\n", "json": at("busy") + `","error":"device or resource busy"}` + "\n",
		"html": `<td class="text">device or resource busy</td>`,
	} {
		expectRun(t, exitError, "cfi2sframe: "+at("busy")+": device or resource busy\n", io.Discard, "--in-place",
			"--force", "--report", form, "--report-file", at("report"), at("busy"), at("free"))
		if text, err := os.ReadFile(at("report")); err != nil || strings.Count(string(text), want) != 1 ||
			form == "html" && strings.Count(string(text), "<!DOCTYPE html>") != 1 {
			t.Errorf("%v, and the report is\n%s", err, text)
		}
	}
	expectRun(t, exitDone, "cfi2sframe: "+at("tree/mounted")+": is on another file system; skipped\n", io.Discard, "-r",
		"--in-place", "--report", "none", at("tree"))
	for name, converted := range map[string]bool{"busy": false, "free": true, "tree/prog": true,
		"tree/mounted/prog": false} {
		if _, err := decodeOutput(at(name)); (err == nil) != converted {
			t.Errorf("%s: converted is expected to be %t, error %v", name, converted, err)
		}
	}
}

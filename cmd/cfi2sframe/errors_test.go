//go:build linux && !portable

package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
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

// TestFullDisk writes reports to a full disk: messages must report the state of the files.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	copyTo(t, in)
	expectRun(t, exitError,
		"cfi2sframe: "+in+": report: cannot write to /dev/full: no space left on device; nothing written\n",
		io.Discard, "--report", "html", "--report-file", "/dev/full", in, "-o", out)
	if _, err := os.Stat(out); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an output exists, error %v", err)
	}
	// If the report on the first file cannot be written, the run stops, and later files are not converted.
	other := filepath.Join(dir, "other")
	copyTo(t, other)
	before := testfile.Read(t, other)
	said := expectRun(t, exitError, "cfi2sframe: files not converted: 1\n", noRoom{}, "--dry-run", "--report",
		"json", in, other)
	if want := "cfi2sframe: " + in + ": report: cannot write to standard output: no space left on device; " +
		"nothing written\n"; !strings.HasPrefix(said, want) {
		t.Errorf("said %q", said)
	}
	for _, path := range []string{in, other} {
		if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, before) {
			t.Errorf("%s has changed, error %v", path, err)
		}
	}
	// Writing a long report fails in the middle.
	gaps := filepath.Join(dir, "gaps")
	library := elftest.Patch(t.Fatalf, fixture(t, "pltlib.so"))
	testfile.Write(t, gaps, withGaps(library, 1000))
	for _, form := range []string{"json", "html"} {
		expectRun(t, exitError, "no space left on device", noRoom{}, "-v", "--dry-run", "--report", form, gaps)
	}
	// Only the first gaps are listed.
	said = expectRun(t, exitCoverage, "", io.Discard, "-q", "--format", "2", "--min-coverage", "100", gaps, "-o", out)
	if n := strings.Count(said, gaps+": 0x"); n != shortList {
		t.Errorf("%d gaps are listed; want %d", n, shortList)
	}
	expectRun(t, exitError, "cfi2sframe: cannot write to standard output: no space left on device\n", noRoom{},
		"ld", "--print-dir")

	closed := must.Get(os.Create(filepath.Join(dir, "closed")))(t)
	closed.Close()
	expectRun(t, exitError, "file already closed", closed, "survey", in)
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
		expectRun(t, exitTrouble, message, io.Discard, "diff", name, "prog")
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
		"cfi2sframe: big: report: cannot write to dir/r: no space left on device; nothing written\n", io.Discard,
		"--format", "2", "--report", "json", "--report-file", "dir/r", "big", "-o", "out")
	if entries, err := os.ReadDir("dir"); err != nil || len(entries) > 0 {
		t.Errorf("files on the full disk: %v, %v", entries, err)
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
		"text": at("busy") + ": not replaced: device or resource busy\n",
		"json": `"error":"device or resource busy"}` + "\n",
		"html": "not replaced: device or resource busy",
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

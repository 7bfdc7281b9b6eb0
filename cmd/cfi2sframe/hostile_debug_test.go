package main

import (
	"bytes"
	"context"
	"debug/elf"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"cfi2sframe/internal/testkit/elftest"
)

// TestHostileDebugFiles has debug files that are none, and files that lead to them in odd
// ways.
func TestHostileDebugFiles(t *testing.T) {
	plain := fixture(t, "plt")
	// with returns the file with other notes than the build-id, and a link.
	with := func(notes, link []byte) []byte { return elftest.Linked(t, plain, notes, link) }
	none := []byte{}
	huge := func(path string) error {
		if err := os.WriteFile(path, with(none, nil), 0o644); err != nil {
			return err
		}
		return os.Truncate(path, 1<<42)
	}
	file := func(data []byte) func(string) error {
		return func(path string) error { return os.WriteFile(path, data, 0o644) }
	}
	for _, tt := range []struct {
		name   string
		data   []byte
		debug  func(path string) error // makes the debug file
		arg    string                  // other than its path
		status int
		want   string
	}{
		{name: "the file itself", data: plain, debug: file(plain)},
		{name: "a fifo", data: plain, debug: func(path string) error { return syscall.Mkfifo(path, 0o600) }, status: 1,
			want: "regular file"},
		{name: "a directory", data: plain, debug: func(path string) error { return os.Mkdir(path, 0o700) }, status: 1,
			want: "regular file"},
		{name: "/dev/zero", data: plain, arg: "/dev/zero", status: 1, want: "debug file /dev/zero: "},
		{name: "nothing", data: plain, debug: func(string) error { return nil }, status: 1,
			want: "no such file or directory"},
		{name: "empty", data: plain, debug: file(nil), status: 1, want: "not an ELF file"},
		{name: "an archive", data: plain, debug: file(elftest.Ar(elftest.ArMember("a/", plain))), status: 1,
			want: "not an ELF file"},
		{name: "4 TiB without a build-id", data: with(none, elftest.DebugLink("debug", nil)), debug: huge, status: 1,
			want: "are more than the limit for a checksum of"},
		{name: "4 TiB with a build-id", data: plain, debug: func(path string) error {
			if err := os.WriteFile(path, plain, 0o644); err != nil {
				return err
			}
			return os.Truncate(path, 1<<42)
		}},
		{name: ".debug_frame compressed to nothing", data: plain, debug: func(path string) error {
			p := elftest.Patch(t.Fatalf, plain)
			p.AddSection(".debug_frame", uint64(elf.SHF_COMPRESSED), elftest.Compressed(elf.COMPRESS_ZLIB, 1<<30, nil))
			return os.WriteFile(path, p.B, 0o644)
		}, status: 1, want: "section .debug_frame at file offset"},

		{name: "link without a zero byte", data: with(nil, []byte("debug")), debug: file(plain), status: 1,
			want: "section .gnu_debuglink at file offset"},
		{name: "auto: link to the file itself", data: with(nil, elftest.DebugLink("in", nil)), arg: "auto"},
		{name: "auto: link to the folder", data: with(nil, elftest.DebugLink(".", nil)), arg: "auto"},
		{name: "auto: link to the folder above", data: with(nil, elftest.DebugLink("..", nil)), arg: "auto"},
		{name: "auto: link to the root", data: with(nil, elftest.DebugLink("/", nil)), arg: "auto"},
		{name: "auto: link with slashes", data: with(nil, elftest.DebugLink("../../../../dev/zero", nil)), arg: "auto"},
		{name: "auto: link to a device", data: with(nil, elftest.DebugLink("/dev/zero", nil)), arg: "auto"},
		{name: "auto: link of a megabyte", data: with(nil, elftest.DebugLink(strings.Repeat("x", 1<<20), nil)),
			arg: "auto"},
		{name: "auto: build-id of 500 KiB", data: with(elftest.Note(4, 500<<10, 3, "GNU\x00", make([]byte, 500<<10)),
			nil), arg: "auto"},
		{name: "auto: build-id of 2^32-1 bytes", data: with(elftest.Note(4, 1<<32-1, 3, "GNU\x00", nil), nil),
			arg: "auto"},
		{name: "auto: a megabyte of empty notes", data: with(make([]byte, 1<<20), nil), arg: "auto"},
		{name: "auto: 100 MiB of notes, 1,000 times", data: func() []byte {
			p := elftest.Patch(t.Fatalf, plain)
			n := uint64(p.Append(make([]byte, 20<<20)))
			p.NewSections(1000, func(_, h int) {
				p.CopySection(h, ".note.gnu.build-id")
				p.Put64(h+elftest.ShOff, n)
				p.Put64(h+elftest.ShSize, 20<<20)
			})
			return p.B
		}(), arg: "auto"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			arg := tt.arg
			if arg == "" {
				arg = filepath.Join(t.TempDir(), "debug")
				if err := tt.debug(arg); err != nil {
					t.Fatal(err)
				}
			}
			o := convertHostile(t, t.TempDir(), tt.data, "--debug-file", arg)
			o.expect(t, tt.status, tt.want)
		})
	}
}

// TestHostileOutputs has outputs that something is wrong with.
func TestHostileOutputs(t *testing.T) {
	dir := t.TempDir()
	in := filepath.Join(dir, "in")
	if err := os.WriteFile(in, fixture(t, "plt"), 0o755); err != nil {
		t.Fatal(err)
	}
	try := func(name, out string, status int, want string) {
		t.Helper()
		var stderr bytes.Buffer
		done := make(chan int, 1)
		go func() { done <- run(context.Background(), []string{"-q", in, "-o", out}, nil, &stderr) }()
		select {
		case got := <-done:
			if got != status || !strings.Contains(stderr.String(), want) {
				t.Errorf("%s: exit status %d; want %d\n%s\nwhich should contain %q", name, got, status,
					stderr.String(), want)
			}
		case <-time.After(boundWait):
			t.Fatalf("%s: it takes more than %v", name, boundWait)
		}
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	try("no such directory", at("none/out"), 1, "none does not exist")
	try("a folder", dir, 1, "is a directory")
	try("below a file", filepath.Join(in, "out"), 1, "not a directory")
	try("an empty name", "", 2, "no output file")
	try("a name that is too long", at(strings.Repeat("x", 300)), 1, "file name too long")
	if err := os.Symlink(at("loop"), at("loop")); err != nil {
		t.Fatal(err)
	}
	try("a link to itself", at("loop"), 1, "too many levels of symbolic links")
	if err := os.Symlink(at("none"), at("dangling")); err != nil {
		t.Fatal(err)
	}
	try("a link to nothing", at("dangling"), 1, "is a symbolic link to nothing")
	try("/dev/null", "/dev/null", 0, "")
	try("/dev/full", "/dev/full", 1, "no space left on device")
	left, err := filepath.Glob(filepath.Join(dir, ".cfi2sframe*"))
	if err != nil || len(left) > 0 {
		t.Errorf("%v is left (%v)", left, err)
	}
	if got, err := os.ReadFile(in); err != nil || !bytes.Equal(got, fixture(t, "plt")) {
		t.Errorf("the input has changed (%v)", err)
	}
}

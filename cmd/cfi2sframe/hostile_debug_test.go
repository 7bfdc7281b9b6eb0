package main

import (
	"debug/elf"
	"os"
	"path/filepath"
	"syscall"
	"testing"

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
		{name: "/dev/zero", data: plain, arg: "/dev/zero", status: 1, want: "debug file /dev/zero: "},
		{name: "nothing", data: plain, debug: func(string) error { return nil }, status: 1,
			want: "no such file or directory"},
		{name: "an archive", data: plain, debug: file(elftest.Ar(elftest.ArMember("a/", plain))), status: 1,
			want: "not an ELF file"},
		{name: "4 TiB without a build-id", data: with(none, elftest.DebugLink("debug", nil)), debug: huge, status: 1,
			want: "are more than the limit for a checksum of"},
		{name: ".debug_frame compressed to nothing", data: plain, debug: func(path string) error {
			p := elftest.Patch(t.Fatalf, plain)
			p.AddSection(".debug_frame", uint64(elf.SHF_COMPRESSED), elftest.Compressed(elf.COMPRESS_ZLIB, 1<<30, nil))
			return os.WriteFile(path, p.B, 0o644)
		}, status: 1, want: "section .debug_frame at file offset"},

		{name: "auto: link to the file itself", data: with(nil, elftest.DebugLink("in", nil)), arg: "auto"},
		{name: "auto: link with slashes", data: with(nil, elftest.DebugLink("../../../../dev/zero", nil)), arg: "auto"},
		{name: "auto: build-id of 2^32-1 bytes", data: with(elftest.Note(4, 1<<32-1, 3, "GNU\x00", nil), nil),
			arg: "auto"},
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

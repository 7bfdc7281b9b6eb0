package compressed

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"cfi2sframe/elffile"
)

// TestHeads has beginnings that the formats forbid, or that end early.
func TestHeads(t *testing.T) {
	for _, tt := range []struct {
		head, want string
	}{
		{"\x1f\x8b\x08", "gzip: unexpected EOF"},
		{"\x1f\x8b\x07\x00\x00\x00\x00\x00\x00\x03", "gzip: "}, // RFC 1952, 2.3.1: 8 is the only method
		{"\xfd7zXZ\x00\x00\x04", "xz: data is truncated or corrupt"},
		{"BZh91AY&SY", "bzip2: unexpected EOF"},
		{"\x28\xb5\x2f\xfd", "zstd: unexpected EOF"},
		// RFC 8878, 3.1.1.1.1: a bit that is reserved
		{"\x28\xb5\x2f\xfd\x08\x00", "zstd: "},
		// the range coder's first byte is 0
		{"\x5d\x00\x00\x01\x00\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00\x00\x00\x00", "lzma: "},
	} {
		if _, _, err := readAll([]byte(tt.head)); err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%q: %v; want %s", tt.head, err, tt.want)
		}
	}
}

// TestFailing has readers that fail after a part, which is what is said then, and not that it ends early.
func TestFailing(t *testing.T) {
	failing := errors.New("no disk")
	b := contents(3000)
	for name, p := range programs {
		packed := by(t, b, p.pack[0], p.pack[1:]...)
		for n := 0; n <= len(packed); n += 1 + n/8 {
			r, err := Open(t.Context(), nil, io.MultiReader(bytes.NewReader(packed[:n]), iotest.ErrReader(failing)))
			if err == nil {
				_, err = io.ReadAll(r)
			}
			if !errors.Is(err, failing) {
				t.Errorf("%s: after %d bytes of %d: %v; want %v", name, n, len(packed), err, failing)
			}
		}
	}
}

// TestBehind has bytes after the end of a stream of lzma, which nothing but the reader looks at.
func TestBehind(t *testing.T) {
	packed := append(by(t, contents(3000), "xz", "--format=lzma"), "rest"...)
	if got, _, err := readAll(packed); err == nil || err.Error() != "lzma: data after its end" || len(got) != 3000 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// TestNone copies, and leaves the writer open.
func TestNone(t *testing.T) {
	b := contents(3000)
	got, form, err := readAll(b)
	if err != nil || !bytes.Equal(got, b) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	if !bytes.Equal(write(t, b, form, 1), b) {
		t.Error("something else is written")
	}
}

// TestFull has no room for what is written, and says so.
func TestFull(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	b := contents(400_000)
	for name, p := range programs {
		_, form, err := readAll(by(t, b, p.pack[0], p.pack[1:]...))
		if err != nil {
			t.Fatal(err)
		}
		if p.kind == Bzip2 {
			continue
		}
		want := "cannot write to " + os.TempDir() + ": no space left on device"
		if p.kind == XZ {
			want = "No space left on device" // as xz says
		}
		if err := store(t, full, b, form, 2); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %s", name, err, want)
		}
	}
}

// xzOf returns an xz file of a block with these chunks, without its end.
func xzOf(chunks []byte) []byte {
	b := []byte("\xfd7zXZ\x00\x00\x00")
	b = binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b[6:]))
	header := []byte{2, 0, lzma2, 1, 22, 0, 0, 0}
	b = append(b, header...)
	b = binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(header))
	return append(b, chunks...)
}

// TestChunks has a block of nothing but chunks that reset the state, which are much work for few bytes: they exceed the
// budget.
func TestChunks(t *testing.T) {
	first, one := "\xe0\x00\x00\x00\x05\x5d"+strings.Repeat("\x00", 6), "\xa0\x00\x00\x00\x05"+strings.Repeat("\x00", 6)
	b := xzOf([]byte(first + strings.Repeat(one, 200_000)))
	budget := elffile.NewBudget(0)
	_ = budget.Spend(1, 1_100_000_000)
	r, err := Open(t.Context(), budget, bytes.NewReader(b))
	if err == nil {
		_, err = io.Copy(io.Discard, r)
	}
	if !errors.Is(err, elffile.ErrBudget) {
		t.Errorf("%v; want %v", err, elffile.ErrBudget)
	}
}

// TestSource has a source that fails: its error is that of the compression, by every kind.
func TestSource(t *testing.T) {
	failing := errors.New("no disk")
	path := os.Getenv("PATH")
	for name, p := range programs {
		t.Setenv("PATH", path)
		_, form, err := readAll(by(t, contents(3000), p.pack[0], p.pack[1:]...))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{path, ""} {
			t.Setenv("PATH", path)
			err = form.Store(t.Context(), scratch(t), 2, io.MultiReader(bytes.NewReader(contents(3000)),
				iotest.ErrReader(failing)))
			if p.kind != Bzip2 && !errors.Is(err, failing) {
				t.Errorf("%s: %v; want %v", name, err, failing)
			}
		}
	}
}

// TestFilters refuses other filters, and reads headers of blocks that have sizes.
func TestFilters(t *testing.T) {
	b := contents(9999)
	for _, args := range []string{"--x86 --lzma2", "--delta --lzma2"} {
		if _, _, err := readAll(by(t, b, "xz", strings.Fields(args)...)); err == nil ||
			!strings.Contains(err.Error(), "xz: a block has filters beside LZMA2") {
			t.Errorf("%s: %v", args, err)
		}
	}
	if _, form, err := readAll(by(t, b, "xz", "-T2", "--lzma2=dict=1MiB", "--block-size=9000")); err != nil ||
		form.xz.dictionary != 1<<20 {
		t.Errorf("%+v, %v", form, err)
	}
}

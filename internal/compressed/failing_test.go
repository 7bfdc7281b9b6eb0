package compressed

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// TestHeads has beginnings that the formats forbid, or that end early.
func TestHeads(t *testing.T) {
	for _, tt := range []struct {
		kind       Kind
		head, want string
	}{
		{Gzip, "\x1f\x8b\x08", "gzip: unexpected EOF"},
		{Gzip, "\x1f\x8b\x07\x00\x00\x00\x00\x00\x00\x03", "gzip: "}, // RFC 1952, 2.3.1: 8 is the only method
		{XZ, "\xfd7zXZ\x00\x00\x04", "xz: unexpected EOF"},
		{Bzip2, "BZh", "bzip2: unexpected EOF"},
		{Bzip2, "BZh01AY&SY", `bzip2: block size '0'; 1 to 9 was expected`},
		{Bzip2, "BZh:1AY&SY", `bzip2: block size ':'; 1 to 9 was expected`},
		{Zstd, "\x28\xb5\x2f\xfd", "zstd: unexpected EOF"},
		{Zstd, "\x28\xb5\x2f\xfd\x08\x00", "zstd: "}, // RFC 8878, 3.1.1.1.1: a bit that is reserved
		{LZMA, "\x5d\x00\x00\x01", "lzma: unexpected EOF"},
		{LZMA, "\xe1\x00\x00\x01\x00\xff\xff\xff\xff\xff\xff\xff\xff\x00", "lzma: "},                 // properties go up to (4*5+4)*9+8
		{LZMA, "\x5d\x00\x00\x01\x00\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00\x00\x00\x00", "lzma: "}, // the range coder's first byte is 0
	} {
		if _, _, err := readAll([]byte(tt.head), tt.kind); err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%q: %v; %s was expected", tt.head, err, tt.want)
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
			r, _, err := NewReader(io.MultiReader(bytes.NewReader(packed[:n]), iotest.ErrReader(failing)), p.kind)
			if err == nil {
				_, err = io.ReadAll(r)
			}
			if !errors.Is(err, failing) {
				t.Errorf("%s: after %d bytes of %d: %v; %v was expected", name, n, len(packed), err, failing)
			}
		}
	}
}

// TestBehind has bytes after the end of a stream of lzma, which nothing but the reader looks at.
func TestBehind(t *testing.T) {
	packed := append(by(t, contents(3000), "xz", "--format=lzma"), "rest"...)
	if got, _, err := readAll(packed, LZMA); err == nil || err.Error() != "lzma: there is something after its end" || len(got) != 3000 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// TestNone copies, and leaves the writer open.
func TestNone(t *testing.T) {
	b := contents(3000)
	got, form, err := readAll(b, None)
	if err != nil || !bytes.Equal(got, b) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	if !bytes.Equal(write(t, b, form, 1), b) {
		t.Error("something else is written")
	}
}

// A failingWriter takes so many bytes.
type failingWriter struct {
	left int
	err  error
}

func (w *failingWriter) Write(p []byte) (int, error) {
	n := min(len(p), w.left)
	w.left -= n
	if n < len(p) {
		return n, w.err
	}
	return n, nil
}

// TestFailingWriter has no room for what is written, which is what is said then.
func TestFailingWriter(t *testing.T) {
	failing := errors.New("no room")
	b := contents(400_000)
	for name, p := range programs {
		_, form, err := readAll(by(t, b, p.pack[0], p.pack[1:]...), p.kind)
		if err != nil {
			t.Fatal(err)
		}
		all := len(write(t, b, form, 2))
		for _, room := range []int{0, 5, all / 2, all - 1} {
			w, err := form.NewWriter(context.Background(), &failingWriter{room, failing}, 2)
			if err == nil {
				_, err = w.Write(b)
				err = errors.Join(err, w.Close())
			}
			if !errors.Is(err, failing) {
				t.Errorf("%s, room for %d bytes of %d: %v; %v was expected", name, room, all, err, failing)
			}
		}
	}
}

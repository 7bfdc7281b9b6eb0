package filecopy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/testfile"
)

// twoFiles returns a file with the given contents, and an empty file.
func twoFiles(t *testing.T, contents string) (src, dst *os.File) {
	t.Helper()
	dir := t.TempDir()
	for i, f := range []**os.File{&src, &dst} {
		var err error
		if *f, err = os.OpenFile(filepath.Join(dir, []string{"src", "dst"}[i]), os.O_CREATE|os.O_RDWR,
			0o600); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { (*f).Close() })
	}
	must.Get(src.WriteString(contents))(t)
	return src, dst
}

// TestSources copies the same bytes from a file, from memory, and from SectionReaders of both, to a file and to memory.
func TestSources(t *testing.T) {
	const text = "what is copied, and what is not"
	src, _ := twoFiles(t, text)
	for name, r := range map[string]io.ReaderAt{
		"file": src, "part of a file": io.NewSectionReader(src, 0, int64(len(text))), "memory": strings.NewReader(text),
		"part of memory": io.NewSectionReader(strings.NewReader(text), 0, int64(len(text))),
	} {
		_, dst := twoFiles(t, "")
		var inMemory memory
		for _, target := range []Target{dst, &inMemory} {
			if err := Range(t.Context(), target, 3, r, 8, 6); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		const want = "\x00\x00\x00copied"
		if b, err := os.ReadFile(dst.Name()); err != nil || string(b) != want || inMemory.String() != want {
			t.Errorf("%s: %q, %q, %v", name, b, inMemory.String(), err)
		}
	}
	// A section reader may end before its file does.
	_, dst := twoFiles(t, "")
	if err := Range(t.Context(), dst, 0, io.NewSectionReader(src, 0, 4), 0, 6); err == nil ||
		!strings.Contains(err.Error(), "the input ends 2 bytes early") {
		t.Errorf("past the end of a part: %v", err)
	}
}

// TestCopyErrors copies from files that cannot be read, and to files that cannot be written.
func TestCopyErrors(t *testing.T) {
	src, dst := twoFiles(t, "text")
	closed, other := twoFiles(t, "")
	closed.Close()
	dir := must.Get(os.Open(t.TempDir()))(t)
	defer dir.Close()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		name string
		err  error
		want error
	}{
		{"input closed", Bytes(t.Context(), dst, 0, closed, 0, 4), os.ErrClosed},
		{"output closed", Bytes(t.Context(), closed, 0, src, 0, 4), os.ErrClosed},
		{"input closed, with holes", Range(t.Context(), other, 0, closed, 0, 4), syscall.EBADF},
		{"output full", Range(t.Context(), full, 0, src, 0, 4), syscall.ENOSPC},
		{"a directory", Range(t.Context(), other, 0, dir, 0, 4), syscall.EISDIR},
		{"canceled", Range(ctx, dst, 0, src, 0, 4), context.Canceled},
		{"canceled, memory", Range(ctx, dst, 0, bytes.NewReader(make([]byte, 4)), 0, 4), context.Canceled},
	} {
		// The second error occurs on systems where holes cannot be found.
		if !errors.Is(tt.err, tt.want) && (tt.want != syscall.EBADF || !errors.Is(tt.err, os.ErrClosed)) {
			t.Errorf("%s: %v; want %v", tt.name, tt.err, tt.want)
		}
	}
}

// TestNoHoles copies from a file system that does not report holes.
func TestNoHoles(t *testing.T) {
	src, err := os.Open("/proc/version")
	if err != nil {
		t.Skip(err)
	}
	defer src.Close()
	want := testfile.Read(t, "/proc/version")
	_, dst := twoFiles(t, "")
	if err := Range(t.Context(), dst, 0, src, 0, int64(len(want))); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(dst.Name()); err != nil || !bytes.Equal(b, want) {
		t.Errorf("%q, %v; want %q", b, err, want)
	}
}

// memory is a destination that is not a file.
type memory struct{ bytes.Buffer }

func (m *memory) WriteAt(b []byte, off int64) (int, error) {
	if gap := int(off) - m.Len(); gap > 0 {
		m.Write(make([]byte, gap))
	}
	return m.Write(b)
}

func (m *memory) Truncate(int64) error { return nil }

// TestSized reads files of the declared size, and files that are shorter.
func TestSized(t *testing.T) {
	for _, tt := range []struct {
		size, off int64
		n         int // of 4
		end       bool
		want      string
	}{
		{6, 2, 4, false, ""},
		{6, 4, 2, true, ""},
		{6, 6, 0, true, ""},
		{7, 4, 2, false, "the file ends early: at offset 0x6 instead of 0x7"},
		{9, 6, 0, false, "the file ends early: at offset 0x6 instead of 0x9"},
	} {
		r := Sized(Sized(strings.NewReader("abcdef"), tt.size), tt.size)
		n, err := r.ReadAt(make([]byte, 4), tt.off)
		if n != tt.n || (err == io.EOF) != tt.end || tt.want != "" && (err == nil || err.Error() != tt.want) ||
			tt.want == "" && !tt.end && err != nil {
			t.Errorf("%+v: %d bytes, %v", tt, n, err)
		}
	}
}

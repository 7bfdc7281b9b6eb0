package elfwrite

import (
	"bytes"
	"debug/elf"
	"errors"
	"math"
	"strings"
	"syscall"
	"testing"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/testfile"
)

// TestInto fills bytes reserved by a linker script. Nothing else changes.
func TestInto(t *testing.T) {
	const begin, end = 0x600, 0x700 // loaded zeros after the code of the fixture alloca
	reserved := func(change func(*elftest.Patcher)) []byte {
		return patched(t, "alloca", func(p *elftest.Patcher) {
			h := p.Segment(elf.PT_LOAD, 0)
			p.Put64(h+elftest.PhFilesz, 0x800)
			p.Put64(h+elftest.PhMemsz, 0x800)
			change(p)
		})
	}
	old := reserved(func(*elftest.Patcher) {})
	l, err := PlanInto(elftest.Parse(t, old), begin, end, 100, Options{})
	if err != nil || l.Addr != begin {
		t.Fatalf("%+v, %v", l, err)
	}
	want := bytes.Clone(old)
	copy(want[begin:], content(100))
	b := write(t, l, old, content(100))
	if !bytes.Equal(b, want) {
		t.Error("more than the reserved bytes changed")
	}
	if _, err := PlanInto(elftest.Parse(t, b), begin, end, 8, Options{}); !errors.Is(err, ErrExists) {
		t.Errorf("a second time: error %v, want %v", err, ErrExists)
	}
	if l, err = PlanInto(elftest.Parse(t, b), begin, end, 0, Options{Force: true}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(write(t, l, b, nil), old) {
		t.Error("after removal, the file differs from the original")
	}
	r := &testfile.FailingReader{ReaderAt: bytes.NewReader(old), Err: syscall.EIO}
	r.Left.Store(math.MaxInt64)
	f := must.Get(elffile.New(r, int64(len(old))))(t)
	r.Left.Store(0)
	if _, err := PlanInto(f, begin, end, 8, Options{}); !errors.Is(err, syscall.EIO) {
		t.Errorf("a read fails: error %v", err)
	}
	for _, tt := range []struct {
		name             string
		begin, end, size uint64
		want             string
	}{
		{"no bytes", begin, begin, 0, "the bytes from 0x600 to 0x600: the range is empty"},
		{"not aligned", begin + 4, end, 8, "the start is not a multiple of 8"},
		{"not loaded", 0x900, 0xa00, 8, "are not in a loaded segment of the file"},
		{"too small", begin, begin + 8, 16, "only 8 bytes are reserved, but .sframe needs 16; reserve more"},
		{"in use", 0x3a0, 0x400, 8, "are in use: byte 0x3a0 is 0x61, not 0"},
	} {
		l, err := PlanInto(elftest.Parse(t, old), tt.begin, tt.end, tt.size, Options{Force: true})
		if err == nil || l != nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q", tt.name, err, tt.want)
		}
	}
}

//go:build linux && !portable

package filecopy

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"cfi2sframe/internal/testkit/must"
)

// sparse creates a file of the given size, which is a hole except for a byte at each of the given offsets.
func sparse(t *testing.T, size int64, at ...int64) (*os.File, []byte) {
	t.Helper()
	f := must.Get(os.Create(filepath.Join(t.TempDir(), "sparse")))(t)
	t.Cleanup(func() { f.Close() })
	b := make([]byte, size)
	for _, off := range at {
		b[off] = 1
		must.Get(f.WriteAt([]byte{1}, off))(t)
	}
	must.Do(t, f.Truncate(size))
	return f, b
}

// used returns the number of bytes that a file occupies on the disk.
func used(t *testing.T, f *os.File) int64 {
	t.Helper()
	must.Do(t, f.Sync())
	var st syscall.Stat_t
	must.Do(t, syscall.Fstat(int(f.Fd()), &st))
	return 512 * st.Blocks
}

// TestHoles copies parts of files with holes. The bytes must be the same, and the holes must remain.
func TestHoles(t *testing.T) {
	const size = 8 << 20
	for _, tt := range []struct {
		name        string
		data        []int64
		from, to, n int64
	}{
		{"all", []int64{0, 3 << 20, size - 1}, 0, 0, size},
		{"a hole at the end", []int64{5}, 0, 0, size},
		{"a hole at the start", []int64{size - 1}, 0, 0, size},
		{"nothing but a hole", nil, 0, 0, size},
		{"moved", []int64{1, 4 << 20, 4<<20 + 1}, 1, 777, size - 1},
		{"the middle of a hole", []int64{0, size - 1}, 1 << 20, 100, 3 << 20},
		{"the middle", []int64{0, 3 << 20, size - 1}, 2 << 20, 5, 2 << 20},
		{"nothing", []int64{0}, 10, 20, 0},
	} {
		src, b := sparse(t, size, tt.data...)
		for way, r := range map[string]io.ReaderAt{
			"file": src, "section": io.NewSectionReader(src, 0, size), "bytes": bytes.NewReader(b),
			"part": io.NewSectionReader(io.NewSectionReader(src, 0, size), 0, size),
		} {
			dst, _ := sparse(t, 0)
			if err := Range(t.Context(), dst, tt.to, r, tt.from, tt.n); err != nil {
				t.Errorf("%s, %s: %v", tt.name, way, err)
				continue
			}
			want := append(make([]byte, tt.to), b[tt.from:tt.from+tt.n]...)
			if tt.n == 0 {
				want = nil
			}
			if got, err := os.ReadFile(dst.Name()); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s, %s: %d bytes, which are not the %d expected, error %v", tt.name, way, len(got),
					len(want), err)
			}
			if n := used(t, dst); (way == "file" || way == "section") && n > 1<<20 {
				t.Errorf("%s, %s: it occupies %d bytes, and the source %d", tt.name, way, n, used(t, src))
			}
		}
		over, _ := sparse(t, 0)
		must.Get(over.Write(bytes.Repeat([]byte{7}, size)))(t)
		if err := Bytes(t.Context(), over, tt.to, src, tt.from, tt.n); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		got, err := os.ReadFile(over.Name())
		if err != nil || !bytes.Equal(got[tt.to:][:tt.n], b[tt.from:][:tt.n]) {
			t.Errorf("%s: wrong bytes where others were overwritten, error %v", tt.name, err)
		}
	}
}

// TestShrunk copies a file that has become shorter.
func TestShrunk(t *testing.T) {
	for _, data := range []int64{0, 99} {
		src, _ := sparse(t, 10_000, data)
		dst, _ := sparse(t, 0)
		if err := Range(t.Context(), dst, 0, src, 0, 10_001); err == nil ||
			!strings.Contains(err.Error(), "the input ends 1 bytes early") {
			t.Errorf("error %v", err)
		}
		must.Do(t, src.Truncate(0))
		if err := Range(t.Context(), dst, 0, src, 100, 10); err == nil ||
			!strings.Contains(err.Error(), "10 bytes early") {
			t.Errorf("error %v", err)
		}
	}
}

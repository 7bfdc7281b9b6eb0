package filecopy

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// memory is a target that is no file.
type memory struct{ bytes.Buffer }

func (m *memory) WriteAt(b []byte, off int64) (int, error) {
	if gap := int(off) - m.Len(); gap > 0 {
		m.Write(make([]byte, gap))
	}
	return m.Write(b)
}

func (m *memory) Truncate(int64) error { return nil }

// TestToMemory copies a part of a file to what is no file.
func TestToMemory(t *testing.T) {
	src, _ := two(t, "what is copied, and what is not")
	var dst memory
	if err := Range(t.Context(), &dst, 3, src, 8, 6); err != nil || dst.String() != "\x00\x00\x00copied" {
		t.Errorf("%q, error %v", dst.String(), err)
	}
}

// TestReserve makes room for large ranges only, and says at once where there is none.
func TestReserve(t *testing.T) {
	dst, err := os.Create(filepath.Join(t.TempDir(), "dst"))
	if err != nil {
		t.Fatal(err)
	}
	defer dst.Close()
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(dst.Fd()), &fs); err != nil {
		t.Fatal(err)
	}
	if fs.Type != unix.EXT4_SUPER_MAGIC {
		t.Skip("the folder for temporary files is not on ext4")
	}
	blocks := func() int64 {
		t.Helper()
		var st unix.Stat_t
		if err := unix.Fstat(int(dst.Fd()), &st); err != nil {
			t.Fatal(err)
		}
		return st.Blocks * 512
	}
	for _, tt := range []struct{ off, n, want int64 }{{0, 1<<20 - 1, 0}, {1 << 20, 1 << 20, 1 << 20}, {4 << 20, 2 << 20, 3 << 20}} {
		if err := reserve(dst, tt.off, tt.n); err != nil || blocks() < tt.want || blocks() > tt.want+1<<16 {
			t.Errorf("%d bytes at %d: error %v, %d bytes are reserved, want %d", tt.n, tt.off, err, blocks(), tt.want)
		}
	}
	var path *os.PathError
	if err := reserve(dst, 1<<62, 1<<20); !errors.As(err, &path) || path.Op != "write" || path.Err != unix.EFBIG || path.Path != dst.Name() {
		t.Errorf("beyond what the file system has room for: error %v", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if err := Range(t.Context(), dst, 0, r, 0, 8); !errors.Is(err, unix.ESPIPE) {
		t.Errorf("from a pipe: error %v", err)
	}
}

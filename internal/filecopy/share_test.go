//go:build linux && !portable

package filecopy

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/testfile"
)

// TestShare copies within a file system whose files can share blocks, and expects copies to share them if the offsets
// allow it. It needs root, loop devices and mkfs.xfs.
func TestShare(t *testing.T) {
	peer.Look(t, "mkfs.xfs")
	mount := t.TempDir()
	script := `cd $(mktemp -d "$0.XXXXXX"); truncate -s 320M image; mkfs.xfs -q -m reflink=1 image
		mount -o loop image $0; rm image`
	// Even root may not be allowed to mount file systems.
	if out, err := exec.Command("sh", "-ec", script, mount).CombinedOutput(); err != nil {
		t.Skipf("%v %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", mount).CombinedOutput(); err != nil {
			t.Errorf("umount: %v %s", err, out)
		}
	})
	used := func() int64 {
		t.Helper()
		unix.Sync()
		var s unix.Statfs_t
		must.Do(t, unix.Statfs(mount, &s))
		return int64(s.Blocks-s.Bfree) * s.Bsize
	}
	old := make([]byte, 130<<20+100)
	r := rand.NewChaCha8([32]byte{})
	_, _ = r.Read(old) // never fails
	testfile.Write(t, filepath.Join(mount, "old"), old)
	src := must.Get(os.Open(filepath.Join(mount, "old")))(t)
	defer src.Close()
	for _, tt := range []struct {
		name     string
		from, to int64
		n        int64
		shared   bool
	}{
		{"in place", 0, 0, int64(len(old)), true},
		{"moved by blocks", 2 * 4096, 4096, int64(len(old)) - 2*4096, true},
		{"moved by bytes", 10, 7, 8 << 20, false},
	} {
		dst := must.Get(os.Create(filepath.Join(mount, tt.name)))(t)
		defer dst.Close()
		before := used()
		if err := Range(context.Background(), dst, tt.to, src, tt.from, tt.n); err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		grown := used() - before
		if shared := grown < tt.n/2; shared != tt.shared {
			t.Errorf("%s: a copy of %d bytes occupies %d; want shared %t", tt.name, tt.n, grown, tt.shared)
		}
		if !bytes.Equal(testfile.Read(t, dst.Name()), append(make([]byte, tt.to), old[tt.from:tt.from+tt.n]...)) {
			t.Errorf("%s: the contents differ", tt.name)
		}
	}
}

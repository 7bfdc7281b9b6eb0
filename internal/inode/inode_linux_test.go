package inode_test

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"cfi2sframe/internal/inode"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/testfile"
)

// TestStat creates a file with two names, and compares its ID, link count and owner with the output of stat(1).
func TestStat(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	testfile.Write(t, a, "")
	must.Do(t, os.Link(a, b))
	stat := func(path string) fs.FileInfo {
		return must.Get(os.Stat(path))(t)
	}
	info := stat(b)
	id, ok := inode.Of(info)
	if !ok {
		t.Error("no ID")
	}
	uid, gid, ok := inode.Owner(info)
	got := fmt.Sprintf("%x %d %d %d %t", id, inode.Links(info), uid, gid, ok)
	out := must.Get(exec.Command(peer.Look(t, "stat"), "-c", "%D:%i %h %u %g true", a).Output())(t)
	var dev, ino uint64
	var rest string
	must.Get(fmt.Sscanf(string(out), "%x:%d", &dev, &ino))(t)
	_, rest, _ = strings.Cut(strings.TrimSpace(string(out)), " ")
	if want := fmt.Sprintf("{%x %x} %s", dev, ino, rest); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	none := must.Get(fs.Stat(fstest.MapFS{"x": {}}, "x"))(t)
	if !inode.SameDevice(info, stat(dir)) || inode.SameDevice(info, stat("/proc")) || !inode.SameDevice(info, none) ||
		!inode.SameDevice(none, info) {
		t.Error("SameDevice is wrong")
	}
	_, hasID := inode.Of(none)
	if _, _, ok := inode.Owner(none); ok || hasID || inode.Links(none) != 1 {
		t.Error("a file without an inode has an owner or other names")
	}
}

package inode_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"cfi2sframe/internal/inode"
)

func TestFirst(t *testing.T) {
	dir := t.TempDir()
	name := func(s string) string { return filepath.Join(dir, s) }
	for _, s := range []string{"a", "other"} {
		if err := os.WriteFile(name(s), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(name("a"), name("hard")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("a", name("soft")); err != nil {
		t.Fatal(err)
	}
	seen := inode.Seen{}
	for _, tt := range []struct {
		name  string
		first bool
	}{{"hard", true}, {"a", false}, {"soft", false}, {"other", true}, {"other", false}} {
		info, err := os.Stat(name(tt.name))
		if err != nil {
			t.Fatal(err)
		}
		if got := seen.First(info); got != tt.first {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.first)
		}
	}

	// A file system without IDs.
	info, err := fs.Stat(fstest.MapFS{"x": {}}, "x")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if !seen.First(info) {
			t.Error("a file without an ID was met before")
		}
	}
}

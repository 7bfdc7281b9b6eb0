//go:build linux

package linker

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/testfile"
)

// TestUncreatable expects errors if links, or directories for them, cannot be created.
func TestUncreatable(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	testfile.Write(t, file, "kept")
	full := filepath.Join(dir, "full")
	must.Do(t, os.MkdirAll(filepath.Join(full, Names[0], "sub"), 0o700))
	for name, err := range map[string]error{
		"a directory in a file":         ensurePrivate(filepath.Join(file, "x")),
		"a file":                        ensurePrivate(file),
		"links in a file":               fill(file, "/exe"),
		"a link in a file":              relink("/exe", filepath.Join(file, "x")),
		"a link instead of a directory": relink("/exe", filepath.Join(full, Names[0])),
		"links instead of a directory":  fill(full, "/exe"),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if err := ensurePrivate(filepath.Join(dir, "new")); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "kept" {
		t.Errorf("the file is %q, error %v", b, err)
	}
	entries := must.Get(os.ReadDir(full))(t)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), Names[0]+".") {
			t.Errorf("%s remains", e.Name())
		}
	}
	if installed := (&Search{}).isSkipped(filepath.Join(dir, "none")); installed {
		t.Error("a missing file is skipped")
	}
}

package internal_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/testfile"
)

// TestOutside builds a program in a separate module that imports this one, and runs it.
func TestOutside(t *testing.T) {
	root := must.Get(filepath.Abs(".."))(t)
	dir := t.TempDir()
	for from, to := range map[string]string{"testdata/outside/main.go": "main.go", "../go.mod": "go.mod",
		"../go.sum": "go.sum"} {
		b := testfile.Read(t, from)
		testfile.Write(t, filepath.Join(dir, to), b)
	}
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("go", args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
		out := must.Run(t, cmd)
		return string(out)
	}
	// The requirements are those of this module, so nothing is downloaded.
	run("mod", "edit", "-module", "outside", "-require", "cfi2sframe@v0.0.0", "-replace", "cfi2sframe="+root)
	// According to readelf, the row is rbp+16, with rbp at c-16.
	want := "4 19 true 6 16\n107 107\nfp+16 *(c-16) true <nil>\n107 0\n"
	if got := run("run", ".", filepath.Join(root, "testdata/bin/amd64/prologue")); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

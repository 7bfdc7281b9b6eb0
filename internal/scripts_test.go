package internal_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// TestStages runs scripts/test with tools that only say their names, and expects a line before each.
func TestStages(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"go", "gofmt", "gcc"} {
		// gofmt names on standard output the files that are not formatted.
		script := "#!/bin/sh\necho ran " + name + " $1 >&2\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		args []string
		want int
	}{{nil, 3}, {[]string{"--race"}, 3}, {[]string{"--all"}, 7}, {[]string{"--race", "--all"}, 8}} {
		cmd := exec.Command("../scripts/test", tt.args...)
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "CC=gcc")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if n := len(regexp.MustCompile(`(?m)^test: .+\nran go`).FindAll(out, -1)); n != tt.want {
			t.Errorf("%q: %d stages are announced; want %d\n%s", tt.args, n, tt.want, out)
		}
	}
}

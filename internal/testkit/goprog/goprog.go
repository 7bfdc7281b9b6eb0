// Package goprog builds Go programs for tests.
package goprog

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/testfile"
)

// source contains functions with frames of several sizes, one of them large, and calls that run on other stacks.
const source = `package main

import "os"

//go:noinline
func large(n int) byte {
	var b [100000]byte
	for i := range b {
		b[i] = byte(i * n)
	}
	return b[n%len(b)] + small(n)
}

//go:noinline
func small(n int) byte { return byte(len(os.Args) + n) }

//export Exported
func Exported() byte { return large(7) }

func main() {
	done := make(chan byte)
	go func() { done <- Exported() }()
	println(<-done)
}
`

// Build builds a program with the given arguments of go build and environment variables, and returns its path. With
// CGO_ENABLED=1, the program contains C code.
func Build(t testing.TB, env string, flags ...string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("builds a program")
	}
	dir, text := t.TempDir(), source
	if strings.Contains(env, "CGO_ENABLED=1") {
		peer.Look(t, "gcc")
		text = strings.Replace(text, "import \"os\"", "import \"C\"\nimport \"os\"", 1)
	}
	for name, text := range map[string]string{"main.go": text, "go.mod": "module prog\n\ngo 1.21\n"} {
		testfile.Write(t, filepath.Join(dir, name), text)
	}
	out := filepath.Join(dir, "prog")
	cmd := exec.Command(peer.Look(t, "go"), append(append([]string{"build"}, flags...), "-o", out, ".")...)
	cmd.Dir, cmd.Env = dir, append(append(os.Environ(), "GOFLAGS=", "GOWORK=off"), strings.Fields(env)...)
	must.Run(t, cmd)
	return out
}

package internal_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/testfile"
)

// TestStages runs scripts/test with tools that only print their names, and expects a line that announces each stage.
func TestStages(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"go", "gofmt", "gcc"} {
		// Use standard error: on standard output, gofmt lists unformatted files.
		script := "#!/bin/sh\necho ran " + name + " $1 >&2\n"
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755))
	}
	for _, tt := range []struct {
		args []string
		want int
	}{{nil, 3}, {[]string{"--race"}, 4}, {[]string{"--all"}, 7}, {[]string{"--race", "--all"}, 9}} {
		cmd := exec.Command("../scripts/test", tt.args...)
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "CC=gcc")
		out := must.Run(t, cmd)
		if n := len(regexp.MustCompile(`(?m)^test: .+\nran go`).FindAll(out, -1)); n != tt.want {
			t.Errorf("%q: %d stages are announced; want %d\n%s", tt.args, n, tt.want, out)
		}
	}
}

// TestRaced expects scripts/test to use the race detector for the packages that start goroutines.
func TestRaced(t *testing.T) {
	raced := strings.Fields(string(testfile.Read(t, "../scripts/test")))
	started := 0
	sources(t, func(dir, file string) {
		tree := must.Get(parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution))(t)
		ast.Inspect(tree, func(n ast.Node) bool {
			_, starts := n.(*ast.GoStmt)
			if call, ok := n.(*ast.SelectorExpr); ok {
				starts = call.Sel.Name == "Go" // of sync.WaitGroup and errgroup.Group
			}
			if starts {
				if started++; !slices.Contains(raced, "./"+filepath.ToSlash(dir)) {
					t.Errorf("%s starts a goroutine, and scripts/test --race does not test its package", file)
				}
			}
			return true
		})
	})
	if started < 5 {
		t.Errorf("%d goroutines are started", started)
	}
}

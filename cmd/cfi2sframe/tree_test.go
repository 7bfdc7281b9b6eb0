package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/testfile"
)

// readPrograms reads the programs for makeTree, before the working directory changes.
func readPrograms(t *testing.T) (programs [][]byte) {
	for _, name := range []string{"plt", "static", "pltlib.so", "drap1", "signal"} {
		programs = append(programs, testfile.Read(t, filepath.Join(fixtures, name)))
	}
	return programs
}

// makeTree makes a tree with 80 programs, and other files between them if mixed is set.
func makeTree(t *testing.T, programs [][]byte, mixed bool) {
	t.Helper()
	must.Do(t, os.MkdirAll("tree/sub", 0o777))
	for i := range 80 {
		testfile.Write(t, fmt.Sprintf("tree/%02d", i), programs[i%len(programs)])
	}
	if !mixed {
		return
	}
	plt := string(programs[0])
	other := []byte(plt)
	other[0x667] = 0x18 // a different frame size: a different program with the same build-id
	for name, contents := range map[string]string{
		"10-text": "no program", "11-short": plt[:100], "20-damaged": plt[:len(plt)/2], "30-other": string(other),
		"79-last": "\x7fELF",
	} {
		testfile.Write(t, "tree/"+name, contents)
	}
	for _, to := range []string{"tree/00-again", "tree/40-again", "tree/sub/again"} {
		must.Do(t, os.Link("tree/00", to))
	}
	for _, to := range []string{"tree/11-again", "tree/50-again"} {
		must.Do(t, os.Link("tree/11-short", to))
	}
}

// TestTreeOrder expects the same messages, reports and files with one processor and with four.
func TestTreeOrder(t *testing.T) {
	programs := readPrograms(t)
	for _, args := range []string{
		"-r --dry-run --report json tree",
		"-r --in-place tree",
		"-r --in-place --no-sync --report json tree tree/00",
		"-r --in-place --no-sync --min-coverage 50 --format 2 -v tree",
		"--in-place --no-sync tree/00 missing tree/sub/again ./tree/00 tree/11-short tree/50-again tree/11-short " +
			"tree/05 tree/05", "--dry-run tree/00 tree/10-text tree/00 tree/05",
		"-r --dry-run --report html tree",
		"detach -r tree -o store",
		"remove -r --in-place tree",
	} {
		outcome := func(processors int) (all map[string]string) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(processors))
			dir := t.TempDir()
			t.Chdir(dir)
			makeTree(t, programs, true)
			var stdout, stderr bytes.Buffer
			status := run(t.Context(), strings.Fields(args), &stdout, &stderr)
			all = must.Get(snapshot(dir))(t)
			files := make(map[string]string) // by name below dir
			for path, what := range all {
				files[strings.TrimPrefix(path, dir)] = what
			}
			files["status"], files["stdout"], files["stderr"] = fmt.Sprint(status), stdout.String(), stderr.String()
			info, errA := os.Stat("tree/00")
			same, errB := os.Stat("tree/sub/again")
			if errA != nil || errB != nil || !os.SameFile(info, same) {
				t.Errorf("%s: with %d processors a hard link is lost; %v, %v", args, processors, errA, errB)
			}
			return files
		}
		one, four := outcome(1), outcome(4)
		if d := describeChanges(one, four); d != "" {
			t.Errorf("%s: with four processors:\n%s", args, d)
		}
	}
}

// TestTreeInterrupted cancels the context while four files are being converted. Each file must be complete, or
// unchanged and named in a message.
func TestTreeInterrupted(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	programs := readPrograms(t)
	for _, flags := range []string{"-r --in-place", "-r --in-place --no-sync"} {
		t.Chdir(t.TempDir())
		makeTree(t, programs, false)
		before := must.Get(snapshot("."))(t)
		args := append(strings.Fields(flags), "tree")
		expectRun(t, exitDone, "80 done", os.Stdout, args...)
		want := must.Get(snapshot("."))(t)
		for n := int64(0); ; n = 2*n + 1 {
			t.Chdir(t.TempDir())
			makeTree(t, programs, false)
			ctx := &countdown{Context: context.Background(), done: make(chan struct{})}
			ctx.left.Store(n)
			var stdout, stderr bytes.Buffer
			if status := run(ctx, args, &stdout, &stderr); status == exitDone {
				if n < 100 {
					t.Errorf("%s: the context is checked only %d times", flags, n)
				}
				break
			}
			expected := maps.Clone(want)
			for line := range strings.Lines(stderr.String()) {
				path, ok := strings.CutSuffix(strings.TrimPrefix(line, "cfi2sframe: "),
					": interrupted, nothing written\n")
				if ok && path == "tree" { // interrupted while the tree was searched
					expected = before
				} else if ok {
					expected[path] = before[path]
				}
			}
			after, err := snapshot(".")
			if d := describeChanges(expected, after); err != nil || d != "" {
				t.Errorf("%s: after %d: error %v\n%s%s", flags, n, err, d, stderr.String())
			}
			if slices.Equal(slices.Sorted(maps.Values(expected)), slices.Sorted(maps.Values(want))) {
				t.Errorf("%s: after %d: no file is named: %s", flags, n, stderr.String())
			}
		}
	}
}

// TestTotalsInterrupted cancels the context while files are examined. Only a complete report may have the last line.
func TestTotalsInterrupted(t *testing.T) {
	programs := readPrograms(t)
	t.Chdir(t.TempDir())
	makeTree(t, programs, false)
	for n := int64(0); ; n = 2*n + 1 {
		ctx := &countdown{Context: context.Background(), done: make(chan struct{})}
		ctx.left.Store(n)
		var stdout bytes.Buffer
		status := run(ctx, strings.Fields("-r --dry-run --report json tree"), &stdout, io.Discard)
		if complete := strings.Contains(stdout.String(), `"complete":true`); complete != (status == exitDone) {
			t.Errorf("after %d: status %d, totals %t", n, status, complete)
		}
		if status == exitDone {
			break
		}
	}
}

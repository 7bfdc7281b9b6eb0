package files_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"cfi2sframe/convert"
	"cfi2sframe/elfwrite"
	"cfi2sframe/internal/files"
	"cfi2sframe/internal/panics"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/testfile"
)

// converted returns the result of converting a fixture.
func converted(t *testing.T, name string, opt convert.Options) []byte {
	t.Helper()
	b, _ := must.Two(inMemory(testfile.Read(t, filepath.Join(fixtures, "amd64", name)), opt))(t)
	return b
}

// expectFile expects a file to have the given contents, and its directory to have no hidden files.
func expectFile(t *testing.T, what, path string, want []byte) {
	t.Helper()
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s: %s has %d bytes, which are not the %d expected, error %v", what, filepath.Base(path), len(got),
			len(want), err)
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".*")); err != nil || len(left) > 0 {
		t.Errorf("%s: %v is left behind, error %v", what, left, err)
	}
}

// each converts files, and returns the jobs.
func each(ctx context.Context, paths []string, set *files.Settings) []*files.Job {
	return slices.Collect(files.Each(ctx, paths, set))
}

// inPlace returns the settings for replacing files.
func inPlace(opt files.Options) *files.Settings {
	return &files.Settings{InPlace: true, Workers: 2, Options: func(int) files.Options { return opt }}
}

// during returns options whose conversions call f before the file is replaced.
func during(f func()) files.Options {
	return files.Options{Accept: func() string {
		f()
		return ""
	}}
}

// makeNames copies a fixture to a file, with further names. It returns the paths of all names.
func makeNames(t *testing.T, dir, name string, more ...string) (paths []string) {
	t.Helper()
	paths = append(paths, filepath.Join(dir, name))
	copyFixture(t, paths[0])
	for _, name := range more {
		paths = append(paths, filepath.Join(dir, name))
		must.Do(t, os.Link(paths[0], paths[len(paths)-1]))
	}
	return paths
}

// TestEachChanged changes a file with two names before it is replaced. Neither name is replaced.
func TestEachChanged(t *testing.T) {
	dir := t.TempDir()
	paths := makeNames(t, dir, "a", "b")
	changed := append(testfile.Read(t, paths[0]), 1)
	for _, j := range each(t.Context(), paths, inPlace(during(func() {
		must.Do(t, os.WriteFile(paths[0], changed, 0o755))
	}))) {
		if j.Err == nil || j.Err.Error() != "the input changed while it was being read" || j.Result != nil {
			t.Errorf("%s: error is %v, result %v", j.In, j.Err, j.Result)
		}
		expectFile(t, "changed", j.In, changed)
	}
}

// TestEachReplaced converts a file with two names, and meanwhile creates a new file under the second name. The new file
// must remain.
func TestEachReplaced(t *testing.T) {
	dir := t.TempDir()
	paths := makeNames(t, dir, "a", "b")
	other := []byte("a new file")
	jobs := each(t.Context(), paths, inPlace(during(func() {
		must.Do(t, os.Remove(paths[1]))
		testfile.Write(t, paths[1], other)
	})))
	if jobs[0].Err != nil || jobs[1].Err == nil {
		t.Errorf("errors are %v and %v", jobs[0].Err, jobs[1].Err)
	}
	expectFile(t, "replaced", paths[0], converted(t, "plt", convert.Options{}))
	expectFile(t, "new", paths[1], other)
}

// TestEachErrors converts files, some of which cannot be converted, and for some of which the code panics. The others
// are converted, and the jobs are in order.
func TestEachErrors(t *testing.T) {
	dir := t.TempDir()
	worker := func() {
		var g panics.Group
		g.Go(func() { panic("a bug") })
		g.Wait()
	}
	for _, workers := range []int{1, 3} {
		var paths []string
		tests := []struct {
			name string
			opt  files.Options
			err  string // or "" for success
		}{
			{"prologue", files.Options{}, ""},
			{"panics", files.Options{Work: func(context.Context, *convert.Run, string) (*convert.Result, error) {
				panic("a bug")
			}}, "internal error in files_test.TestEachErrors"},
			{"alloca", files.Options{NoSync: true}, ""},
			{"worker", during(worker), "internal error in files_test.TestEachErrors"},
			{"twice", files.Options{}, elfwrite.ErrExists.Error()},
			{"drap1", files.Options{Accept: func() string { return "too little" }}, "nothing was written: too little"},
			{"missing", files.Options{}, "no such file or directory"},
			{"plt", files.Options{}, ""},
		}
		want := make(map[string][]byte)
		for _, tt := range tests {
			path := filepath.Join(dir, tt.name)
			paths = append(paths, path)
			switch tt.name {
			case "prologue", "alloca", "plt":
				want[path] = converted(t, tt.name, convert.Options{})
				must.Do(t, os.WriteFile(path, testfile.Read(t, filepath.Join(fixtures, "amd64", tt.name)), 0o755))
			case "missing":
			case "twice":
				want[path] = converted(t, "plt", convert.Options{})
				must.Do(t, os.WriteFile(path, want[path], 0o755))
			default:
				want[path] = testfile.Read(t, filepath.Join(fixtures, "amd64", "drap1"))
				must.Do(t, os.WriteFile(path, want[path], 0o755))
			}
		}
		set := inPlace(files.Options{})
		set.Workers, set.Options = workers, func(i int) files.Options { return tests[i].opt }
		jobs := each(t.Context(), paths, set)
		if len(jobs) != len(tests) {
			t.Fatalf("%d jobs; want %d", len(jobs), len(tests))
		}
		for i, j := range jobs {
			tt := &tests[i]
			if j.In != paths[i] || (j.Err == nil) != (tt.err == "") || j.Err != nil &&
				!strings.Contains(j.Err.Error(), tt.err) || (j.Result == nil) != (tt.err != "" && tt.name != "drap1") {
				t.Errorf("%s: error is %v, result %v", j.In, j.Err, j.Result)
			}
			if want[j.In] != nil {
				expectFile(t, tt.name, j.In, want[j.In])
			}
		}
	}
}

// A canceling context is canceled after a number of checks.
type canceling struct {
	context.Context
	left atomic.Int32
}

func (c *canceling) Err() error {
	if c.left.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

// TestEachInterrupted cancels the context at each check. Each file is unchanged or complete, all of its names still
// belong to one file, and nothing is left behind.
func TestEachInterrupted(t *testing.T) {
	old, done := testfile.Read(t, filepath.Join(fixtures, "amd64/plt")), converted(t, "plt", convert.Options{})
	for checks := int32(0); ; checks++ {
		dir := t.TempDir()
		paths := append(makeNames(t, dir, "a", "b", "c", "d"), makeNames(t, dir, "e")...)
		ctx := &canceling{Context: t.Context()}
		ctx.left.Store(checks)
		failed := 0
		for i, j := range each(ctx, paths, inPlace(files.Options{})) {
			want := done
			if j.Err != nil {
				want = old
				failed++
			}
			if j.Err != nil && !errors.Is(j.Err, context.Canceled) {
				t.Errorf("%d checks: %s: error is %v", checks, j.In, j.Err)
			}
			expectFile(t, "interrupted", j.In, want)
			if i < 4 && !os.SameFile(must.Get(os.Stat(paths[0]))(t), must.Get(os.Stat(j.In))(t)) {
				t.Errorf("%d checks: %s is a different file", checks, j.In)
			}
		}
		if checks == 0 && failed != len(paths) {
			t.Errorf("%d files failed; want all", failed)
		}
		if failed == 0 {
			break
		}
	}
}

// TestEachShortage simulates a disk that is full while several files are converted: each of them fails the first time.
// They are converted again, one at a time. A shortage that remains is an error.
func TestEachShortage(t *testing.T) {
	for _, no := range []syscall.Errno{syscall.ENOSPC, syscall.EMFILE} {
		dir := t.TempDir()
		var paths []string
		for i := range 20 {
			paths = append(paths, makeNames(t, dir, strconv.Itoa(i))...)
		}
		tries := make([]int, len(paths))
		var running atomic.Int32
		set := inPlace(files.Options{})
		set.Options = func(i int) files.Options {
			tries[i]++
			try := tries[i]
			return files.Options{Work: func(ctx context.Context, run *convert.Run, _ string) (*convert.Result, error) {
				n := running.Add(1)
				defer running.Add(-1)
				switch {
				case try == 2 && n > 1:
					t.Errorf("%d conversions at the same time", n)
				case i == 3 || try == 1 && i > 0 && i < 5:
					return nil, no
				}
				return convert.Add(ctx, run, convert.Options{})
			}}
		}
		for i, j := range each(t.Context(), paths, set) {
			want := error(nil)
			if i == 3 {
				want = no
			}
			if !errors.Is(j.Err, want) {
				t.Errorf("%s: error is %v; want %v", j.In, j.Err, want)
			}
		}
		if want := []int{1, 2, 2, 2, 2, 1}; !slices.Equal(tries[:len(want)], want) {
			t.Errorf("%v conversions; want %v", tries, want)
		}
	}
}

// TestEachBound expects that at most a few files are started before the first ends.
func TestEachBound(t *testing.T) {
	dir := t.TempDir()
	var paths []string
	for i := range 30 {
		paths = append(paths, makeNames(t, dir, strconv.Itoa(i))...)
	}
	started := 0
	set := inPlace(files.Options{})
	set.Options = func(int) files.Options {
		started++
		return files.Options{}
	}
	ended := 0
	for range files.Each(t.Context(), paths, set) {
		if ended++; started > ended+7 {
			t.Errorf("%d files are started, %d have ended", started, ended)
		}
	}
	set.Alone = true
	started, ended = 0, 0
	for range files.Each(t.Context(), paths, set) {
		if ended++; started != ended {
			t.Errorf("alone: %d files are started, %d have ended", started, ended)
		}
	}
}

// TestEachThreads expects two small files to be converted at the same time, and a large file between small files to
// get all threads.
func TestEachThreads(t *testing.T) {
	dir := t.TempDir()
	small, large := filepath.Join(fixtures, "amd64", "plt"), filepath.Join(dir, "large")
	copyFixture(t, large)
	must.Do(t, os.Truncate(large, 100<<20))
	var threads, both atomic.Int32
	both.Store(2)
	met := make(chan struct{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	work := func(ctx context.Context, run *convert.Run, path string) (*convert.Result, error) {
		if n := threads.Add(int32(run.Workers)); n > 4 || path == large && run.Workers != 4 {
			t.Errorf("%s gets %d threads, and all files together %d", path, run.Workers, n)
		}
		defer threads.Add(-int32(run.Workers))
		if path == small && both.Add(-1) == 0 {
			close(met)
		}
		if path == small {
			select {
			case <-met:
			case <-ctx.Done():
				t.Error("files are converted one after the other")
			}
		}
		return convert.Add(ctx, run, convert.Options{})
	}
	paths := []string{small, small, large, small, small}
	set := &files.Settings{Workers: 4, Options: func(i int) files.Options {
		if i == 2 { // the large file may not start between the first two
			select {
			case <-met:
			case <-ctx.Done():
			}
		}
		return files.Options{Work: work, DryRun: true}
	}}
	for _, j := range each(ctx, paths, set) {
		if j.Err != nil {
			t.Errorf("%s: %v", j.In, j.Err)
		}
	}
}

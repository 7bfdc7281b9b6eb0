package files_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"cfi2sframe/convert"
	"cfi2sframe/elfwrite"
	"cfi2sframe/internal/files"
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

// finishAndCommit finishes and commits a batch.
func finishAndCommit(ctx context.Context, b *files.Batch) {
	b.Finish(ctx)
	b.Commit(ctx)
}

// TestBatchFull fills batches up to their limits.
func TestBatchFull(t *testing.T) {
	for _, tt := range []struct {
		name string
		opt  files.Options
		jobs int // number of jobs that fill the batch
	}{
		{"many files", files.Options{}, 32},
		{"nothing to sync", files.Options{NoSync: true}, 1},
		{"nothing to write", files.Options{DryRun: true}, 1},
	} {
		b := files.Batch{}
		for n := 0; n <= tt.jobs; n++ {
			if got := b.Full(tt.opt); got != (n == tt.jobs) {
				t.Errorf("%s: with %d jobs, full is %t", tt.name, n, got)
			}
			b.Jobs = append(b.Jobs, &files.Job{})
		}
		b.Reset()
		if len(b.Jobs) > 0 || b.Full(tt.opt) {
			t.Errorf("%s: %d jobs after Reset", tt.name, len(b.Jobs))
		}
	}
}

// TestBatchOther changes a file with two names before it is replaced. Neither name is replaced.
func TestBatchOther(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	copyFixture(t, a)
	must.Do(t, os.Link(a, b))
	var batch files.Batch
	batch.Expect([]string{a, b})
	batch.AddInPlace(t.Context(), a, files.Options{})
	batch.AddInPlace(t.Context(), b, files.Options{})
	batch.Finish(t.Context())
	changed := append(testfile.Read(t, a), 1)
	must.Do(t, os.WriteFile(a, changed, 0o755))
	batch.Commit(t.Context())
	for i, want := range []string{"the input changed while it was being read", "it is the same file as " + a +
		", which was not replaced"} {
		if err := batch.Jobs[i].Err; err == nil || err.Error() != want {
			t.Errorf("%s: error is %v, want %q", batch.Jobs[i].In, err, want)
		}
	}
	batch.Reset()
	expectFile(t, "changed", a, changed)
	expectFile(t, "changed", b, changed)
}

// TestBatchReplaced converts a file with two names, and creates a new file under the second name before Commit. The new
// file must remain.
func TestBatchReplaced(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	copyFixture(t, a)
	must.Do(t, os.Link(a, b))
	var batch files.Batch
	batch.AddInPlace(t.Context(), a, files.Options{})
	batch.AddInPlace(t.Context(), b, files.Options{})
	batch.Finish(t.Context())
	must.Do(t, os.Remove(b))
	other := []byte("a new file")
	testfile.Write(t, b, other)
	batch.Commit(t.Context())
	if batch.Jobs[0].Err != nil || batch.Jobs[1].Err == nil {
		t.Errorf("errors are %v and %v", batch.Jobs[0].Err, batch.Jobs[1].Err)
	}
	batch.Reset()
	expectFile(t, "replaced", a, converted(t, "plt", convert.Options{}))
	expectFile(t, "new", b, other)
}

// TestBatchAdd adds files, some of which cannot be converted. The others are converted.
func TestBatchAdd(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	twice := path("twice")
	must.Do(t, os.WriteFile(twice, converted(t, "plt", convert.Options{}), 0o755))
	fixture := func(name string) string { return filepath.Join(fixtures, "amd64", name) }
	little := files.Options{Accept: func() string { return "too little" }}
	dry := files.Options{DryRun: true}
	var b files.Batch
	b.Add(t.Context(), fixture("prologue"), path("prologue"), files.Options{})
	b.Add(t.Context(), twice, path("out"), files.Options{})
	b.Add(t.Context(), fixture("drap1"), path("out"), little)
	b.Add(t.Context(), path("missing"), path("out"), files.Options{})
	b.Add(t.Context(), fixture("plt"), filepath.Join(dir, "no", "folder"), files.Options{})
	b.Add(t.Context(), fixture("alloca"), path("dry"), dry)
	b.Add(t.Context(), fixture("plt"), path("plt"), files.Options{NoSync: true})
	finishAndCommit(t.Context(), &b)
	for i, want := range []error{nil, elfwrite.ErrExists, files.ErrRefused, fs.ErrNotExist, fs.ErrNotExist, nil, nil} {
		j := b.Jobs[i]
		if !errors.Is(j.Err, want) || (j.Result != nil) != (want == nil || want == files.ErrRefused) {
			t.Errorf("%s: error is %v, result %v; want %v", j.In, j.Err, j.Result, want)
		}
	}
	if err := b.Jobs[2].Err.Error(); err != "nothing was written: too little" {
		t.Errorf("the error is %s", err)
	}
	b.Reset()
	b.Reset() // again, with nothing to do
	expectFile(t, "converted", path("prologue"), converted(t, "prologue", convert.Options{}))
	expectFile(t, "not synced", path("plt"), converted(t, "plt", convert.Options{}))
	if left, err := os.ReadDir(dir); err != nil || len(left) != 3 {
		t.Errorf("%d files in the directory, error %v; want 3", len(left), err)
	}
}

// TestBatchInterrupted cancels the context at each check. Files that have not been replaced must be unchanged, and
// nothing must be left behind.
func TestBatchInterrupted(t *testing.T) {
	for _, step := range []string{"before", "added", "finished", "reset"} {
		dir := t.TempDir()
		a, out := filepath.Join(dir, "a"), filepath.Join(dir, "out")
		copyFixture(t, a)
		ctx, cancel := context.WithCancel(t.Context())
		end := func(at string) {
			if at == step {
				cancel()
			}
		}
		var b files.Batch
		end("before")
		b.AddInPlace(ctx, a, files.Options{})
		b.Add(ctx, a, out, files.Options{})
		end("added")
		b.Finish(ctx)
		end("finished")
		if step != "reset" {
			b.Commit(ctx)
			for _, j := range b.Jobs {
				if !errors.Is(j.Err, context.Canceled) {
					t.Errorf("%s: error is %v", step, j.Err)
				}
			}
		}
		b.Reset()
		cancel()
		expectFile(t, step, a, testfile.Read(t, filepath.Join(fixtures, "amd64/plt")))
		if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
			t.Errorf("%s: %d files in the directory, error %v; want 1", step, len(left), err)
		}
	}
}

// TestBatchThreads expects two small files to be converted at the same time, and a large file between small files to
// get all threads.
func TestBatchThreads(t *testing.T) {
	dir := t.TempDir()
	small, large := filepath.Join(fixtures, "amd64", "plt"), filepath.Join(dir, "large")
	copyFixture(t, large)
	must.Do(t, os.Truncate(large, 100<<20))
	b := files.Batch{Workers: 4}
	defer b.Close()
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
	for i, path := range []string{small, small, large, small, small} {
		if i == 2 { // the large file may not start between the first two
			select {
			case <-met:
			case <-ctx.Done():
			}
		}
		b.Begin(ctx, path, "", files.Options{Work: work, DryRun: true})
	}
	for range 5 {
		b.Next(ctx)
	}
	for _, j := range b.Jobs {
		if j.Err != nil {
			t.Errorf("%s: %v", j.In, j.Err)
		}
	}
}

package convert

import (
	"runtime"
	"testing"

	"cfi2sframe/internal/testkit/generate"
)

// TestSmallFiles expects one worker for a small file and more for a larger file, within the memory limit for its size.
// Options.Workers overrides the default number.
func TestSmallFiles(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	functions := make([]generate.Range, 3*functionsPerWorker)
	for i := range functions {
		functions[i] = generate.Range{Begin: uint64(16 * i), End: uint64(16*i + 16)}
	}
	for _, tt := range []struct {
		functions, workers int
		size               uint64 // file size in bytes
		want               int
	}{
		{2, 0, 0, 1}, {2*functionsPerWorker - 1, 0, 0, 1}, {2 * functionsPerWorker, 0, 0, 2},
		{3 * functionsPerWorker, 0, 0, 3}, {2, 3, 0, 2}, {2000, 3, 0, 3}, {2000, 1, 0, 1},
		// If all functions have the same CFI, a worker needs 2 MiB and 48 bytes. The limit is 96 MiB plus a quarter of
		// the file size.
		{2000, 200, 0, 47}, {2000, 200, 4 * 104 << 20, 99},
	} {
		table := generate.Described(t, functions[:tt.functions]...)
		if got := (&Options{Workers: tt.workers}).workers(table, tt.size); got != tt.want {
			t.Errorf("%+v: %d workers, %d programs", tt, got, table.NumPrograms())
		}
	}
}

package convert

import (
	"os"
	"runtime"
	"testing"

	"cfi2sframe/cfi"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/peer"
)

// TestSmallFiles expects that a small file is worked on by one worker, and a larger one by more, unless
// somebody says how many.
func TestSmallFiles(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	for name, want := range map[string]int{"/bin/ls": 1, "/bin/bash": 2} {
		b, err := os.ReadFile(peer.File(t, name))
		if err != nil {
			t.Fatal(err)
		}
		f := elftest.Parse(t, b)
		table, err := cfi.Load(f, cfi.Auto, nil)
		if err != nil {
			t.Fatal(err)
		}
		if small := table.Len() < 2*functionsPerWorker; small != (want == 1) {
			t.Skipf("%s has %d functions", name, table.Len())
		}
		if got := (&Options{}).workers(table, f.Size); got != want {
			t.Errorf("%s: %d workers for %d functions; want %d", name, got, table.Len(), want)
		}
		if got := (&Options{Workers: 3}).workers(table, f.Size); got != 3 {
			t.Errorf("%s: %d workers; want 3", name, got)
		}
	}
}

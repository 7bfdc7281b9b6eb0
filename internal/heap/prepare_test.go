package heap

import (
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
)

// TestPrepare looks at the target of the garbage collector.
func TestPrepare(t *testing.T) {
	for _, test := range []struct {
		name       string
		cfi        uint64
		gogc, want int
	}{
		{"small", 100 << 10, 100, 100},
		{"large", 1 << 20, 100, gcPercent},
		{"large, GOGC set", 1 << 20, 50, 50},
	} {
		t.Run(test.name, func(t *testing.T) {
			old := debug.SetGCPercent(test.gogc)
			defer debug.SetGCPercent(old)
			prepared = sync.Once{}
			Prepare(test.cfi, test.cfi, false)
			if got := debug.SetGCPercent(test.gogc); got != test.want {
				t.Errorf("GC percent is %d; %d was expected", got, test.want)
			}
		})
	}
}

// TestPrepareGarbage leaves the target as it is where much is garbage soon.
func TestPrepareGarbage(t *testing.T) {
	old := debug.SetGCPercent(100)
	defer debug.SetGCPercent(old)
	prepared = sync.Once{}
	Prepare(1<<20, 1<<20, true)
	if got := debug.SetGCPercent(100); got != 100 {
		t.Errorf("GC percent is %d; 100 was expected", got)
	}
	// A second file, for which nothing is done again but to look for garbage.
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	Prepare(1<<20, 1<<20, false)
	runtime.ReadMemStats(&after)
	if got := debug.SetGCPercent(100); got != 100 || after.NumForcedGC == before.NumForcedGC {
		t.Errorf("GC percent is %d; 100 was expected; garbage was looked for %d times", got, after.NumForcedGC-before.NumForcedGC)
	}
}

// TestPrepareArchive raises the target for an archive of 1 MiB, unless the user set another one.
func TestPrepareArchive(t *testing.T) {
	for _, tt := range []struct {
		size       uint64
		gogc, want int
	}{{1<<20 - 1, 100, 100}, {1 << 20, 100, gcPercent}, {1 << 20, 50, 50}} {
		old := debug.SetGCPercent(tt.gogc)
		PrepareArchive(tt.size)
		if got := debug.SetGCPercent(old); got != tt.want {
			t.Errorf("%d bytes, GOGC=%d: GC percent is %d; %d was expected", tt.size, tt.gogc, got, tt.want)
		}
	}
}

package heap

import (
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
			huge = sync.Once{}
			Prepare(test.cfi, test.cfi)
			if got := debug.SetGCPercent(test.gogc); got != test.want {
				t.Errorf("GC percent is %d; want %d", got, test.want)
			}
		})
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
			t.Errorf("%d bytes, GOGC=%d: GC percent is %d; want %d", tt.size, tt.gogc, got, tt.want)
		}
	}
}

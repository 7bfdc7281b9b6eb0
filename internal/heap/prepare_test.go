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
			prepared = sync.Once{}
			Prepare(test.cfi, test.cfi, false)
			if got := debug.SetGCPercent(test.gogc); got != test.want {
				t.Errorf("GC percent is %d; %d was expected", got, test.want)
			}
		})
	}
}

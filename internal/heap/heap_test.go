package heap

import (
	"math"
	"runtime/debug"
	"sync"
	"testing"
)

func TestLimit(t *testing.T) {
	old := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(old)
	get := func() int64 { return debug.SetMemoryLimit(-1) }

	debug.SetMemoryLimit(1 << 40)
	Limit()
	raise(math.MaxUint64, math.MaxUint64)
	if got := get(); got != 1<<40 {
		t.Errorf("the user's limit becomes %d", got)
	}
	debug.SetMemoryLimit(math.MaxInt64)
	raise(1<<30, 1<<30)
	if got := get(); got != math.MaxInt64 {
		t.Errorf("raise sets a limit of %d although there was none", got)
	}
	Limit()
	defer func() { limited = false }()
	for _, step := range []struct {
		cfi, size uint64
		want      int64
	}{
		{0, 0, 352 << 20},
		{10 << 20, 10 << 20, 352 << 20}, // too small to raise the limit
		{13 << 20, 0, (352 + 24) << 20},
		{0, 20 << 20, (352 + 24) << 20}, // the limit is never lowered
		{13 << 20, 20 << 20, (352 + 24 + 8) << 20},
	} {
		if raise(step.cfi, step.size); get() != step.want {
			t.Errorf("%d bytes of CFI in a file of %d: limit %d, want %d", step.cfi, step.size, get(), step.want)
		}
	}
}

// TestPrepare checks the garbage collector's target for small and large CFI and archives, including the case in which
// the user has set a target.
func TestPrepare(t *testing.T) {
	prepare := func(cfi uint64) { Prepare(cfi, cfi) }
	many := func(cfi uint64) {
		PrepareMany()
		Prepare(cfi, cfi)
	}
	defer func() { percent = 100 }()
	for _, tt := range []struct {
		prepare    func(uint64)
		size       uint64
		gogc, want int
	}{
		{prepare, 100 << 10, 100, 100}, {prepare, 1 << 20, 100, gcPercent}, {prepare, 1 << 20, 50, 50},
		{many, 0, 100, manyPercent}, {many, 0, 50, 50}, {many, 0, manyPercent, manyPercent},
		{many, 1 << 20, 100, gcPercent},
		{PrepareArchive, 1<<20 - 1, 100, 100}, {PrepareArchive, 1 << 20, 100, gcPercent},
		{PrepareArchive, 1 << 20, 50, 50},
	} {
		old := debug.SetGCPercent(tt.gogc)
		huge, percent = sync.Once{}, 100
		tt.prepare(tt.size)
		if got := debug.SetGCPercent(old); got != tt.want {
			t.Errorf("%d bytes, GOGC=%d: GC percent is %d; want %d", tt.size, tt.gogc, got, tt.want)
		}
	}
}

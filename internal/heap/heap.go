// Package heap tunes the garbage collector of a process that works on files; libraries must not use it. It limits how
// much garbage accumulates, not how much memory is live, and prepares the heap for large files.
package heap

import (
	"math"
	"runtime/debug"
	"sync"
)

// The memory limit in bytes: a base, plus a multiple of the sizes of large CFI and files.
const (
	anyFile   = 352 << 20
	smallCFI  = 12 << 20
	perCFI    = 24
	smallFile = 16 << 20
	perByte   = 2
)

var (
	mu      sync.Mutex
	limited bool  // by Limit
	percent = 100 // GOGC before the heap is prepared for a large file
)

// Limit sets the memory limit of the process, unless GOMEMLIMIT is set.
func Limit() {
	mu.Lock()
	defer mu.Unlock()
	if debug.SetMemoryLimit(-1) == math.MaxInt64 {
		debug.SetMemoryLimit(anyFile)
		limited = true
	}
}

// raise raises the memory limit to allow for a file and its CFI, given their sizes.
func raise(cfi, size uint64) {
	const most = 1 << 40 // upper bound on trusted sizes
	over := func(n, limit uint64) int64 { return int64(max(min(n, most), limit) - limit) }
	limit := anyFile + perCFI*over(cfi, smallCFI) + perByte*over(size, smallFile)
	mu.Lock()
	defer mu.Unlock()
	if limited && limit > debug.SetMemoryLimit(-1) {
		debug.SetMemoryLimit(limit)
	}
}

const (
	tables       = 12        // approximate bytes of memory per byte of CFI
	minHuge      = 4 << 20   // minimum memory use for which huge pages are worthwhile
	maxHuge      = 512 << 20 // maximum bytes of memory in huge pages
	largeArchive = 1 << 20   // bytes

	// minHeap is how much the runtime allocates at GOGC=100 before the first collection. For large files, Prepare
	// raises this amount to the size of the tables.
	minHeap = 4 << 20

	// gcPercent allows four times as much garbage as live memory. With GOGC=100, converting libLLVM-14.so.1 takes 1.05
	// times the CPU time, and libcrypto.a 1.22 times (2026-11-23).
	gcPercent = 400

	// manyPercent is the value of GOGC while files are converted concurrently. With GOGC=100, converting 900 small
	// files with two threads takes 1.3 times the user time (2026-11-24).
	manyPercent = 200
)

var huge sync.Once

// Prepare raises the limit for a file, and prepares the heap if the CFI is large. Without huge pages, converting
// libLLVM-14.so.1 takes 1.06 to 1.13 times the CPU time (2026-11-23).
func Prepare(cfi, size uint64) {
	raise(cfi, size)
	if n := min(cfi*tables, maxHuge); n >= minHuge {
		allowGarbage(max(gcPercent, int(n*100/minHeap)))
		huge.Do(func() { askHuge(n) })
	}
}

// PrepareArchive prepares the heap for an archive, each of whose members leaves garbage.
func PrepareArchive(size uint64) {
	if size >= largeArchive {
		allowGarbage(gcPercent)
	}
}

// PrepareMany prepares the heap for files converted concurrently.
func PrepareMany() {
	if allowGarbage(manyPercent) {
		percent = manyPercent
	}
}

// allowGarbage raises the target of the garbage collector, unless GOGC is set or an earlier file raised it.
func allowGarbage(to int) bool {
	mu.Lock()
	defer mu.Unlock()
	old := debug.SetGCPercent(to)
	if old != percent {
		debug.SetGCPercent(old)
	}
	return old == percent
}

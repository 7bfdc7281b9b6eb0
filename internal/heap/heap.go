// Package heap is for programs that work on files, and not for libraries: it bounds the garbage of the
// process, and makes its heap ready for large files. What is in use has bounds of its own, where it is
// allocated; of garbage the runtime lets there be as much again, or four times as much where it was
// asked to.
package heap

import (
	"math"
	"runtime/debug"
	"sync"
)

// The limit, in bytes: so much for any file, and more for each byte of its CFI and of the file
// itself from some size on.
const (
	anyFile   = 352 << 20
	smallCFI  = 12 << 20
	perCFI    = 24
	smallFile = 16 << 20
	perByte   = 2
)

var (
	mu      sync.Mutex
	limited bool // by Limit
)

// Limit sets the memory limit of the process, unless its user does (GOMEMLIMIT).
func Limit() {
	mu.Lock()
	defer mu.Unlock()
	if debug.SetMemoryLimit(-1) == math.MaxInt64 {
		debug.SetMemoryLimit(anyFile)
		limited = true
	}
}

// Raise raises the limit that Limit has set to what a file of the given size with so many bytes of CFI
// justifies.
func Raise(cfi, size uint64) {
	mu.Lock()
	defer mu.Unlock()
	if limit := limitFor(cfi, size); limited && limit > debug.SetMemoryLimit(-1) {
		debug.SetMemoryLimit(limit)
	}
}

// limitFor returns the limit for a file.
func limitFor(cfi, size uint64) int64 {
	const most = 1 << 40 // bytes that are believed
	over := func(n, limit uint64) uint64 { return max(min(n, most), limit) - limit }
	return int64(anyFile + perCFI*over(cfi, smallCFI) + perByte*over(size, smallFile))
}

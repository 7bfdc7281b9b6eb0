package heap

import (
	"runtime"
	"runtime/debug"
	"sync"
)

const (
	// tables is how many bytes of memory the tables for a byte of CFI take, about.
	tables = 12
	// minHuge is for how many bytes of memory huge pages are worth asking for, and maxHuge for how many
	// they are asked at most.
	minHuge = 4 << 20
	maxHuge = 512 << 20
	// gcPercent is for memory that is filled once, and of which little is garbage until
	// the file is done. Where the tables are large, it is more: minHeap is how much the runtime
	// allocates at 100 percent before it looks for garbage at all, and that has to be as much as the tables.
	gcPercent = 400
	minHeap   = 4 << 20
)

var prepared sync.Once

// Prepare makes the Go heap ready for the tables of a file of the given size with so many bytes of
// CFI, and raises the limit for it. For a large one it also does once for the process what saves a
// tenth of the time: that goes into mapping memory page by page otherwise, and into looking
// for garbage where there is none.
func Prepare(cfi, size uint64) {
	Raise(cfi, size)
	huge := min(cfi*tables, maxHuge)
	if huge < minHuge {
		return
	}
	first := false
	prepared.Do(func() {
		first = true
		percent := debug.SetGCPercent(-1)
		askHuge(huge)
		setPercent(percent, max(gcPercent, int(huge*100/minHeap)))
	})
	if !first {
		runtime.GC() // of the tables of the file before
	}
}

// setPercent sets the garbage collector's target to the one for large files, unless the user set another
// one (GOGC), which old is then.
func setPercent(old, large int) {
	if old == 100 {
		old = large
	}
	debug.SetGCPercent(old)
}

// largeArchive is from which size in bytes on an archive is worked on as a large file is: its members
// are garbage one after the other.
const largeArchive = 1 << 20

// PrepareArchive is Prepare for an archive of the given size, before its members.
func PrepareArchive(size uint64) {
	if size >= largeArchive {
		setPercent(debug.SetGCPercent(-1), gcPercent)
	}
}

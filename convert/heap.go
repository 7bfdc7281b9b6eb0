package convert

import (
	"bytes"
	"os"
	"runtime"
	"runtime/debug"
	"sync"

	"golang.org/x/sys/unix"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/heap"
)

const (
	// perCFI is how many bytes of memory the tables for a byte of CFI take, about.
	perCFI = 12
	// minHuge is for how many bytes of memory huge pages are worth asking for.
	minHuge = 4 << 20
	maxHuge = 512 << 20
	// gcPercent is for memory that is filled once, and of which little is garbage until
	// the file is done.
	gcPercent = 400
)

var prepared sync.Once

// prepareHeap makes the Go heap ready for the tables of a large file, once for the process: a
// tenth of the time goes into mapping memory page by page otherwise, and into looking
// for garbage where there is none.
//
// The runtime asks for huge pages nowhere, so that there are some only where the system gives
// them to everybody. Here a block as large as the tables will be is taken from the runtime,
// advised, and given back unused.
func prepareHeap(f *elffile.File) {
	var size uint64
	for _, name := range []string{".eh_frame", ".debug_frame"} {
		if s := f.Section(name); s != nil {
			size += min(s.Size, f.Size)
		}
	}
	heap.Raise(size, f.Size)
	if size = min(size*perCFI, maxHuge); size < minHuge {
		return
	}
	first := false
	prepared.Do(func() {
		first = true
		percent := debug.SetGCPercent(-1)
		if mode, err := os.ReadFile("/sys/kernel/mm/transparent_hugepage/enabled"); err == nil && bytes.Contains(mode, []byte("[madvise]")) {
			_ = unix.Madvise(make([]byte, size), unix.MADV_HUGEPAGE) // without them it only takes longer
			runtime.GC()
		}
		setPercent(percent)
	})
	if !first {
		runtime.GC() // of the tables of the file before
	}
}

// setPercent sets the garbage collector's target to that for large files, unless the user set another
// one (GOGC).
func setPercent(percent int) {
	if percent == 100 {
		percent = gcPercent
	}
	debug.SetGCPercent(percent)
}

// largeArchive is from which size in bytes on an archive is worked on as a large file is: its members
// are garbage one after the other.
const largeArchive = 1 << 20

// prepareArchive is prepareHeap for an archive.
func prepareArchive(size int64) {
	if size >= largeArchive {
		setPercent(debug.SetGCPercent(-1))
	}
}

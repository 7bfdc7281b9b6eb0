//go:build !portable

package heap

import (
	"bytes"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// askHuge puts the next n bytes of the Go heap in huge pages, if the system grants them on request (madvise).
func askHuge(n uint64) {
	if mode, err := os.ReadFile("/sys/kernel/mm/transparent_hugepage/enabled"); err == nil &&
		bytes.Contains(mode, []byte("[madvise]")) {
		_ = unix.Madvise(make([]byte, n), unix.MADV_HUGEPAGE) // only an optimization
		runtime.GC()
	}
}

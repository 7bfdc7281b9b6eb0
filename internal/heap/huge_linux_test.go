//go:build !portable

package heap

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"cfi2sframe/internal/testkit/must"
)

// TestHuge checks the flags of the memory that the runtime allocates after Prepare.
func TestHuge(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	huge = sync.Once{}
	Prepare(1<<20, 1<<20)
	mode, err := os.ReadFile("/sys/kernel/mm/transparent_hugepage/enabled")
	if err != nil || !bytes.Contains(mode, []byte("[madvise]")) {
		t.Skipf("no huge pages on request: %s %v", mode, err)
	}
	const part = 256 << 10
	var keep [][]byte
	for range (1 << 20) * tables / part / 2 {
		b := make([]byte, part)
		if keep = append(keep, b); isHuge(t, uintptr(unsafe.Pointer(&b[0]))) {
			return
		}
	}
	t.Errorf("none of %d blocks is in memory for which huge pages were requested", len(keep))
}

// isHuge reports whether huge pages were requested at addr (proc_pid_smaps(5), "hg").
func isHuge(t *testing.T, addr uintptr) bool {
	f := must.Get(os.Open("/proc/self/smaps"))(t)
	defer f.Close()
	in := false
	for s := bufio.NewScanner(f); s.Scan(); {
		var begin, end uintptr
		if n, _ := fmt.Sscanf(s.Text(), "%x-%x ", &begin, &end); n == 2 {
			in = begin <= addr && addr < end
		} else if flags, ok := strings.CutPrefix(s.Text(), "VmFlags:"); ok && in {
			return strings.Contains(flags+" ", " hg ")
		}
	}
	t.Fatalf("%#x is not mapped", addr)
	return false
}

package step

import (
	"encoding/binary"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// procMemory is memory of another process.
type procMemory struct {
	pid  int
	base uint64 // is added to addresses
}

func (m *procMemory) read(addr uint64, b []byte) error {
	n, err := unix.ProcessVMReadv(m.pid, []unix.Iovec{{Base: &b[0], Len: uint64(len(b))}},
		[]unix.RemoteIovec{{Base: uintptr(m.base + addr), Len: len(b)}}, 0)
	if err == nil && n < len(b) {
		err = unix.EFAULT
	}
	return err
}

// readMaps returns the memory of a process whose permissions contain perm (proc(5), "/proc/[pid]/maps").
func readMaps(pid int, perm string) ([]mapping, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	var maps []mapping
	for line := range strings.Lines(string(b)) {
		var m mapping
		var perms string
		if n, _ := fmt.Sscanf(line, "%x-%x %s %x", &m.lo, &m.hi, &perms, &m.off); n < 4 {
			continue
		}
		if i := strings.IndexAny(line, "/["); i >= 0 {
			m.path = strings.TrimSuffix(line[i:], "\n")
		}
		if strings.Contains(perms, perm) && m.path != "[vsyscall]" {
			maps = append(maps, m)
		}
	}
	return maps, err
}

// auxv returns an entry of the auxiliary vector of a process of this machine, or 0.
func auxv(pid int, typ uint64) uint64 {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/auxv", pid))
	for ; len(b) >= 16; b = b[16:] {
		if binary.LittleEndian.Uint64(b) == typ {
			return binary.LittleEndian.Uint64(b[8:])
		}
	}
	return 0
}

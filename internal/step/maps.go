package step

import (
	"bytes"
	"fmt"
	"os"
)

// readMaps returns what executable memory a process has, at addresses less base.
func readMaps(pid int, base uint64) ([]mapping, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil, err
	}
	var maps []mapping
	for line := range bytes.Lines(b) {
		var m mapping
		var perms, dev string
		var inode uint64
		line = bytes.TrimSuffix(line, []byte("\n"))
		if n, _ := fmt.Sscanf(string(line), "%x-%x %s %x %s %d", &m.lo, &m.hi, &perms, &m.off, &dev, &inode); n < 6 || len(perms) < 3 || perms[2] != 'x' {
			continue
		}
		if i := bytes.IndexAny(line, "/["); i >= 0 {
			m.path = string(line[i:])
		}
		if m.path == "[vsyscall]" {
			continue
		}
		m.lo, m.hi = m.lo-base, m.hi-base
		maps = append(maps, m)
	}
	return maps, nil
}

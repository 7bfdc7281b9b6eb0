//go:build unix

package files

import (
	"math"

	"golang.org/x/sys/unix"
)

// openFiles is how many files the process may have open.
func openFiles() int {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return math.MaxInt32
	}
	return int(min(uint64(limit.Cur), math.MaxInt32))
}

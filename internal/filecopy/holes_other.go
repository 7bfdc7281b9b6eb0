//go:build !linux || portable

package filecopy

import "os"

// data returns the whole range, because finding holes depends on the system.
func data(_ *os.File, from, end int64) (begin, stop int64) { return from, end }

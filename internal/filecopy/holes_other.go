//go:build !linux || portable

package filecopy

import "os"

// findData returns the whole range, because how to find holes depends on the system.
func findData(_ *os.File, from, end int64) (begin, stop int64) { return from, end }

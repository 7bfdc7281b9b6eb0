//go:build !linux || portable

package filecopy

import "os"

// findData returns the whole range, because finding holes is specific to the system.
func findData(_ *os.File, from, end int64) (begin, stop int64) { return from, end }

//go:build !linux || portable

package filecopy

import "os"

// data returns a range without holes: systems find them in different ways.
func data(_ *os.File, from, end int64) (begin, stop int64) { return from, end }

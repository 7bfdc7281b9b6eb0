//go:build !linux || portable

package filecopy

import "os"

// data returns that a range of a file has no holes: systems find them in different ways.
func data(_ *os.File, from, n int64) (begin, length int64, err error) { return from, n, nil }

// share is for systems whose files can share blocks.
func share(dst, src *os.File, to, from, n int64) int64 { return 0 }

// reserve is for systems where it makes something faster.
func reserve(dst *os.File, off, n int64) error { return nil }

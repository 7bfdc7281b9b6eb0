//go:build !linux || portable

package heap

// askHuge is for Linux.
func askHuge(uint64) {}

//go:build !linux || portable

package heap

// askHuge is for systems that have huge pages to be asked for.
func askHuge(uint64) {}

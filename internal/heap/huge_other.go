//go:build !linux || portable

package heap

// askHuge has an effect on Linux only.
func askHuge(uint64) {}

package main

import (
	"io"
	"runtime"
	"testing"
)

// TestJobs expects no more jobs than processors.
func TestJobs(t *testing.T) {
	n := runtime.GOMAXPROCS(0)
	for jobs, want := range map[string]int{"0": 0, "1": 1, "100000": n, "2147483647": n} {
		s := newConversion()
		cmd := newCall(t.Context(), io.Discard, io.Discard).convertCommand(s)
		if err := cmd.ParseFlags([]string{"-j", jobs}); err != nil || s.Workers != want {
			t.Errorf("-j %s: %d workers, %v; want %d", jobs, s.Workers, err, want)
		}
	}
}

package main

import (
	"io"
	"runtime"
	"testing"
)

// TestJobs expects that no more jobs are taken than there are processors.
func TestJobs(t *testing.T) {
	n := runtime.GOMAXPROCS(0)
	for given, want := range map[string]int{"0": 0, "1": 1, "100000": n, "2147483647": n} {
		s, err := parse(nil, []string{"-j", given, "in", "-o", "out"}, io.Discard)
		if err != nil || s.jobs != want || s.Workers != want {
			t.Errorf("-j %s: %d jobs and %d workers, %v; %d were expected", given, s.jobs, s.Workers, err, want)
		}
	}
}

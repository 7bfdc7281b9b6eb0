package panics_test

import (
	"strings"
	"sync/atomic"
	"testing"

	"cfi2sframe/internal/panics"
)

// index panics unless i is the index of an element.
func index(list []int, i int) int { return list[i] }

// recovered returns the error of a function that may panic.
func recovered(f func()) (err error) {
	defer panics.Recover(&err)
	f()
	return nil
}

// TestRecover expects an error that names the function that panics, also in other goroutines, and no error otherwise.
func TestRecover(t *testing.T) {
	var others atomic.Int32
	group := func(f func()) {
		var g panics.Group
		g.Go(func() { others.Add(1) })
		g.Go(f)
		g.Go(func() { others.Add(1) })
		g.Wait()
	}
	for name, call := range map[string]func(func()){"a call": func(f func()) { f() }, "a group": group} {
		err := recovered(func() { call(func() { index(nil, 2) }) })
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		for _, want := range []string{"internal error in panics_test.index (panics_test.go:", "index out of range [2]",
			"; please report it, with this file"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error is %q, without %q", name, err, want)
			}
		}
		if err := recovered(func() { call(func() {}) }); err != nil {
			t.Errorf("%s without a panic: %v", name, err)
		}
	}
	if others.Load() != 4 {
		t.Errorf("%d other functions ended; want 4", others.Load())
	}
}

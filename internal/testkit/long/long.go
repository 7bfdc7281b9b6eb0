// Package long marks slow tests. go test -short skips them or runs only part of them.
package long

import "testing"

// Test skips the test if -short is set.
func Test(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("slow test, skipped with -short")
	}
}

// Pick returns the argument few if -short is set, and the argument all otherwise.
func Pick[T any](t testing.TB, few, all T) T {
	t.Helper()
	if !testing.Short() {
		return all
	}
	t.Log("-short: only a part is run")
	return few
}

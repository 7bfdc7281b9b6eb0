// Package long tells tests that take long whether they are to run.
package long

import (
	"os"
	"testing"
)

// Run is the environment variable that has all tests run. scripts/test --all sets it.
const Run = "CFI2SFRAME_LONG_TESTS"

// how ends what a test says that is not run, or not whole.
const how = "takes long: scripts/test --all runs it, as does " + Run + "=1"

// Test marks a test as one that takes long: it is skipped unless all tests are to run.
func Test(t testing.TB) {
	t.Helper()
	if os.Getenv(Run) == "" {
		t.Skip("this " + how)
	}
}

// Pick returns all if all tests are to run. Otherwise it returns few, and says so in the test's log.
func Pick[T any](t testing.TB, few, all T) T {
	t.Helper()
	if os.Getenv(Run) != "" {
		return all
	}
	t.Log("only a part is run, as the whole " + how)
	return few
}

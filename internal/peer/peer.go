// Package peer finds the programs that tests compare with.
package peer

import (
	"os"
	"os/exec"
	"testing"
)

// Require is the environment variable that makes a missing peer a failure. It is
// set where a test run that compared with nothing must not count as a pass.
const Require = "CFI2SFRAME_REQUIRE_PEERS"

// Look returns the path of a program, and skips the test without it.
func Look(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		Missing(t, name)
	}
	return path
}

// Missing skips the test for want of something, or fails it.
func Missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv(Require) != "" {
		t.Fatalf("%s is missing, and %s is set", what, Require)
	}
	t.Skipf("%s is missing", what)
}

// File returns path if there is such a file, and skips the test without it.
func File(t testing.TB, path string) string {
	t.Helper()
	if _, err := os.Stat(path); err != nil {
		Missing(t, path)
	}
	return path
}

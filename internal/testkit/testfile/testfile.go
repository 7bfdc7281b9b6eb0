// Package testfile reads and writes files in tests.
package testfile

import (
	"os"
	"path/filepath"
	"testing"

	"cfi2sframe/internal/testkit/must"
)

// Read returns the contents of a file.
func Read(t testing.TB, path string) []byte {
	t.Helper()
	return must.Get(os.ReadFile(path))(t)
}

// Write writes a file, and creates its directory.
func Write[T string | []byte](t testing.TB, path string, contents T) {
	t.Helper()
	must.Do(t, os.MkdirAll(filepath.Dir(path), 0o777))
	must.Do(t, os.WriteFile(path, []byte(contents), 0o666))
}

// Package testfile reads and writes files in tests.
package testfile

import (
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
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

// A FailingReader fails once, with Err: after Left successful reads. Left is then negative. Reads may be concurrent.
type FailingReader struct {
	io.ReaderAt
	Err  error // io.EOF means that pread returns 0
	Left atomic.Int64
}

func (r *FailingReader) ReadAt(b []byte, off int64) (int, error) {
	if r.Left.Add(-1) == -1 {
		return 0, r.Err
	}
	return r.ReaderAt.ReadAt(b, off)
}

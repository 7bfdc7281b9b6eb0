// Package testfile reads and writes files in tests.
package testfile

import (
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strconv"
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

// A Vector is a section in conformance/vectors.
type Vector struct {
	Name, Address, Section string
	Refuse                 any // not nil if readers must reject the section
}

// Decode returns the section and its address.
func (v *Vector) Decode(t testing.TB) (data []byte, addr uint64) {
	t.Helper()
	return must.Get(hex.DecodeString(v.Section))(t), must.Get(strconv.ParseUint(v.Address, 0, 64))(t)
}

// Vectors returns the vectors of all versions and machines, for packages in the top directory.
func Vectors(t testing.TB) (all []Vector) {
	t.Helper()
	for _, path := range must.Get(filepath.Glob("../conformance/vectors/*.json"))(t) {
		var file struct{ Vectors []Vector }
		must.Do(t, json.Unmarshal(Read(t, path), &file))
		all = append(all, file.Vectors...)
	}
	if len(all) < 1000 {
		t.Fatalf("%d vectors", len(all))
	}
	return all
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

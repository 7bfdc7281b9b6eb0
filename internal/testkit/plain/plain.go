// Package plain opens system programs that may have been converted.
package plain

import (
	"os"
	"path/filepath"
	"testing"

	"cfi2sframe/elfwrite"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/testfile"
)

// File returns path or, if the program there has an .sframe, the path of a copy without it, under the same name. If the
// program is missing, the test is skipped.
func File(t testing.TB, path string) string {
	t.Helper()
	f := elftest.Parse(t, testfile.Read(t, peer.File(t, path)))
	if f.Section(".sframe") == nil {
		return path
	}
	l := must.Get(elfwrite.PlanRemoval(f))(t)
	path = filepath.Join(t.TempDir(), filepath.Base(path))
	dst := must.Get(os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o777))(t)
	defer dst.Close()
	must.Do(t, l.Write(t.Context(), dst, f.Contents(), nil, nil))
	return path
}

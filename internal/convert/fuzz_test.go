package convert_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"cfi2sframe/internal/convert"
	"cfi2sframe/sframe"
)

// FuzzFile converts arbitrary files, to every version. The result is checked by the
// conversion itself; it must never be wrong, and nothing else may be left behind.
func FuzzFile(f *testing.F) {
	for _, abi := range []string{"amd64", "aarch64_be", "s390x"} {
		files, err := filepath.Glob(filepath.Join(fixtures, abi, "*"))
		if err != nil || len(files) == 0 {
			f.Fatalf("no fixtures: %v", err)
		}
		for _, path := range files {
			b, err := os.ReadFile(path)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(b, byte(2))
			f.Add(b, byte(3))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, version byte) {
		dir := t.TempDir()
		in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
		if err := os.WriteFile(in, data, 0o666); err != nil {
			t.Fatal(err)
		}
		opt := convert.Options{Version: sframe.Version(version%3) + 1, Force: true}
		_, err := convert.File(context.Background(), in, out, opt)
		if errors.Is(err, convert.ErrWrong) {
			t.Fatal(err)
		}
		entries, e := os.ReadDir(dir)
		if want := map[bool]int{true: 2, false: 1}[err == nil]; e != nil || len(entries) != want {
			t.Fatalf("%d files, want %d; conversion: %v", len(entries), want, err)
		}
	})
}

package files_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"cfi2sframe/convert"
	"cfi2sframe/internal/files"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/sframe"
)

// A disturbance is a context that calls the function do once: at the first check after the given number of checks.
type disturbance struct {
	context.Context
	do    func()
	after int32
	looks atomic.Int32
}

func (d *disturbance) Err() error {
	if d.looks.Add(1) == d.after+1 {
		d.do()
	}
	return nil
}

func copyFixture(t *testing.T, to string) {
	t.Helper()
	b := testfile.Read(t, filepath.Join(fixtures, "amd64", "plt"))
	if err := errors.Join(os.WriteFile(to, b, 0o755), os.Chmod(to, 0o755)); err != nil { // independently of the umask
		t.Fatal(err)
	}
}

// TestChangedInput overwrites a byte of the input while it is converted.
func TestChangedInput(t *testing.T) {
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	copyFixture(t, in)
	ctx := &disturbance{Context: context.Background(), after: 1, do: func() { // the file is opened after check 1
		f := must.Get(os.OpenFile(in, os.O_WRONLY, 0))(t)
		defer f.Close()
		must.Get(f.WriteAt([]byte{1}, 0x900))(t)
	}}
	_, err := files.Convert(ctx, in, out, files.Options{Work: files.Add(convert.Options{Version: sframe.V2}, "")})
	if err == nil || !strings.Contains(err.Error(), "changed while it was being read") {
		t.Errorf("error is %v", err)
	}
	if _, err := os.Stat(out); !os.IsNotExist(err) {
		t.Errorf("there is an output, error %v", err)
	}
}

package convert

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"cfi2sframe/cfi"
	"cfi2sframe/sframe"
	"cfi2sframe/translate"
)

// TestCheckReadsTheFile changes a row in a file that was written, and checks it.
func TestCheckReadsTheFile(t *testing.T) {
	in, err := os.Open("../testdata/bin/amd64/prologue")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		t.Fatal(err)
	}
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	create := func() (*os.File, error) { return out, nil }
	run := &Run{In: in, Size: info.Size(), Create: create}
	if _, err := Add(context.Background(), run, Options{Version: sframe.V2}); err != nil {
		t.Fatal(err)
	}
	f, err := reopen(out)
	if err != nil {
		t.Fatal(err)
	}
	table, err := cfi.Load(f, cfi.Auto, nil)
	if err != nil {
		t.Fatal(err)
	}
	want, err := translate.Translate(table, translate.Options{Version: sframe.V2}, translate.Discard())
	if err != nil {
		t.Fatal(err)
	}
	s := f.Section(".sframe")
	section, err := f.ReadSection(s)
	if err != nil {
		t.Fatal(err)
	}
	if err := reread(out, &Options{}, s.Size, nil, table, want, 1); err != nil {
		t.Fatal(err)
	}
	d, err := sframe.Decode(section, s.Addr)
	if err != nil {
		t.Fatal(err)
	}
	cfa := 28 + 20*d.Len() + 2 // where the CFA offset of the first row is
	if _, err := out.WriteAt([]byte{section[cfa] + 8}, int64(s.Off)+int64(cfa)); err != nil {
		t.Fatal(err)
	}
	if err := reread(out, &Options{}, s.Size, nil, table, want, 1); !errors.Is(err, ErrWrong) {
		t.Errorf("error is %v", err)
	}
}

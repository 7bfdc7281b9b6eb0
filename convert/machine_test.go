package convert_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"cfi2sframe/convert"
	"cfi2sframe/internal/testkit/elftest"
)

// A failingOnce reader fails at one of its calls.
type failingOnce struct {
	io.ReaderAt
	left int // calls before
}

func (f *failingOnce) ReadAt(b []byte, off int64) (int, error) {
	if f.left--; f.left == -1 {
		return 0, &fs.PathError{Op: "read", Path: "x", Err: syscall.EIO}
	}
	return f.ReaderAt.ReadAt(b, off)
}

// TestMachineFails lets each read of the input fail once: with no option the file then counts as one that need not be
// converted, or as up to date.
func TestMachineFails(t *testing.T) {
	read := func(name string) []byte {
		b, err := os.ReadFile(filepath.Join("../testdata/bin/amd64", name))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	plt := read("plt")
	done, _, err := inMemory(plt, convert.Options{})
	if err != nil {
		t.Fatal(err)
	}
	alone, _, err := do(plt, detach(convert.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	narrow := elftest.Patch(t.Fatalf, plt)
	narrow.B[4] = 1 // ELFCLASS32
	archive := []byte("!<arch>\nx/              0           0     0     644     4         `\ntextplt/            " +
		"0           0     0     644     ")
	archive = append(archive, []byte("10        `\n\x7fELF\x02\x01\x01\x00\x00\x00")...)
	for _, tt := range []struct {
		name string
		file []byte
		job  job
	}{
		{"convert", plt, add(convert.Options{})},
		{"update", done, add(convert.Options{Update: true})},
		{"remove", done, remove("")},
		{"detach", plt, detach(convert.Options{})},
		{"attach", plt, attach(alone)},
		{"a script", []byte("#!/bin/sh\necho this is a script and nothing else, with more bytes than a header\n"),
			add(convert.Options{})},
		{"a tar archive", make([]byte, 1024), add(convert.Options{})},
		{"32 bits", narrow.B, add(convert.Options{})},
		{"a static library", archive, add(convert.Options{})},
	} {
		for n := 0; ; n++ {
			f := &failingOnce{bytes.NewReader(tt.file), n}
			_, _, err := doRead(f, int64(len(tt.file)), skip(tt.job))
			if f.left >= 0 {
				if n == 0 {
					t.Errorf("%s: nothing is read", tt.name)
				}
				break
			}
			if !errors.Is(err, syscall.EIO) {
				t.Errorf("%s: read %d fails: %v; want %v", tt.name, n, err, syscall.EIO)
			}
			f = &failingOnce{bytes.NewReader(tt.file), n}
			c, err := checkRead(f, int64(len(tt.file)), "")
			if f.left < 0 && !errors.Is(err, syscall.EIO) {
				t.Errorf("%s: check, read %d fails: %+v, %v; want %v", tt.name, n, c, err, syscall.EIO)
			}
		}
	}
}

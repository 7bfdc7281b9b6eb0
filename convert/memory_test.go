package convert_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"cfi2sframe/convert"
	"cfi2sframe/elfwrite"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/sframe"
)

// ar creates an archive of files.
func ar(files ...[]byte) []byte {
	var members [][]byte
	for i, f := range files {
		members = append(members, elftest.ArMember(fmt.Sprintf("%d.o/", i), f))
	}
	return elftest.Ar(members...)
}

// TestConvert expects the same output from a writer as from a file, for linked files and for archives with members of
// several kinds.
func TestConvert(t *testing.T) {
	inputs := make(map[string][]byte)
	for _, abi := range []string{"amd64", "aarch64", "aarch64_be", "s390x"} {
		for _, name := range fixtureNames(t, abi) {
			inputs[filepath.Join(abi, name)] = testfile.Read(t, filepath.Join(fixtures, abi, name))
		}
	}
	inputs["archive"] = ar(inputs["amd64/prologue"], []byte("odd"), inputs["amd64/drap1"], inputs["s390x/prologue"])
	for name, b := range inputs {
		want, res, err := inMemory(b, convert.Options{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for i := range res.Facts {
			if f := &res.Facts[i]; !f.Verified || f.Format.Version != sframe.V3 {
				t.Errorf("%s: verified %t, format %d by default", name, f.Verified, f.Format.Version)
			}
		}
		var out bytes.Buffer
		written, err := convert.Convert(t.Context(), bytes.NewReader(b), int64(len(b)), &out, convert.Options{})
		if err != nil || !bytes.Equal(out.Bytes(), want) || !reflect.DeepEqual(written, res) {
			t.Errorf("%s: result is %+v, error %v; want %+v", name, written, err, res)
		}
		plain, _, err := runBytes(want, remove(""))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if again, _, err := inMemory(plain, convert.Options{}); err != nil || !bytes.Equal(again, want) {
			t.Errorf("%s: removed and converted again, the file differs: %v", name, err)
		}
	}
}

// unwritable is a writer that fails the test if anything is written to it.
type unwritable struct{ t *testing.T }

func (s unwritable) Write(b []byte) (int, error) {
	s.t.Errorf("%d bytes were written", len(b))
	return len(b), nil
}

// TestConvertNothing expects nothing to be written after an error.
func TestConvertNothing(t *testing.T) {
	prog := testfile.Read(t, filepath.Join(fixtures, "amd64/prologue"))
	twice, _ := must.Two(inMemory(prog, convert.Options{}))(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		name string
		ctx  context.Context
		b    []byte
		want error // nil for any error
	}{
		{name: "not an ELF file", b: []byte("text")},
		{name: "an empty file", b: nil},
		{name: "a truncated file", b: prog[:len(prog)/2]},
		{name: "an existing .sframe", b: twice, want: elfwrite.ErrExists},
		{name: "an archive member with an .sframe", b: ar(prog, twice), want: elfwrite.ErrExists},
		{name: "interrupted", ctx: ended, b: prog, want: context.Canceled},
	} {
		if tt.ctx == nil {
			tt.ctx = t.Context()
		}
		res, err := convert.Convert(tt.ctx, bytes.NewReader(tt.b), int64(len(tt.b)), unwritable{t}, convert.Options{})
		if err == nil || tt.want != nil && !errors.Is(err, tt.want) || res != nil {
			t.Errorf("%s: result %v, error %v", tt.name, res, err)
		}
	}
	run := &convert.Run{In: bytes.NewReader(prog), Size: int64(len(prog))}
	run.Report = func(*convert.Details) error { return io.ErrShortWrite }
	if _, err := convert.Add(t.Context(), run, convert.Options{}); err != io.ErrShortWrite {
		t.Errorf("a report that fails: %v", err)
	}
	if _, err := convert.Convert(t.Context(), bytes.NewReader(prog), int64(len(prog)), failingWriter{},
		convert.Options{}); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a writer that fails: %v", err)
	}
}

// failingWriter is a writer whose Write always fails.
type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// TestConvertPosition expects the file position of the input to be preserved, because it belongs to the caller.
func TestConvertPosition(t *testing.T) {
	f := must.Get(os.Open(filepath.Join(fixtures, "amd64/prologue")))(t)
	defer f.Close()
	info := must.Get(f.Stat())(t)
	must.Get(f.Seek(10, io.SeekStart))(t)
	must.Get(convert.Convert(t.Context(), f, info.Size(), io.Discard, convert.Options{}))(t)
	if at, err := f.Seek(0, io.SeekCurrent); err != nil || at != 10 {
		t.Errorf("the position is %d, error %v; want 10", at, err)
	}
}

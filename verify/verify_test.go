package verify_test

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"cfi2sframe/cfi"
	"cfi2sframe/convert"
	"cfi2sframe/elffile"
	"cfi2sframe/elfwrite"
	"cfi2sframe/internal/testkit/long"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/sframe"
	"cfi2sframe/verify"
)

// An input is a file with an added section.
type input struct {
	file  *elffile.File
	table *cfi.Table
	data  []byte // the section
	addr  uint64 // its address
}

// converted adds a section to a file; it returns nil if that is impossible.
func converted(t *testing.T, b []byte, opt convert.Options) *input {
	t.Helper()
	var out bytes.Buffer
	opt.NoVerify = true
	res, err := convert.Convert(context.Background(), bytes.NewReader(b), int64(len(b)), &out, opt)
	if err != nil || res.Stays == convert.NoRows {
		return nil
	}
	f := must.Get(elffile.New(bytes.NewReader(out.Bytes()), int64(out.Len())))(t)
	where, err := elfwrite.FindSFrame(f)
	if err != nil || where.Segment < 0 {
		t.Fatalf("the result has no .sframe (%v)", err)
	}
	p := &f.Progs[where.Segment]
	data := must.Get(f.ReadAt("PT_GNU_SFRAME", p.Off, p.Filesz))(t)
	table := must.Get(cfi.Load(f, cfi.Auto, nil))(t)
	return &input{f, table, data, p.Vaddr}
}

// check compares the bytes of a section with the CFI. Any number of workers must give the same result.
func (in *input) check(data []byte) (*verify.Result, error) {
	s, err := sframe.Decode(data, in.addr)
	if err != nil {
		return nil, err
	}
	want, wantErr := verify.Check(in.table, s, in.file, verify.Options{Keep: 100})
	got, err := verify.Check(in.table, s, in.file, verify.Options{Keep: 100, Workers: 3})
	if fmt.Sprint(err) != fmt.Sprint(wantErr) || !reflect.DeepEqual(got, want) {
		panic(fmt.Sprintf("3 workers find %+v, error %v; 1 finds %+v, error %v", got, err, want, wantErr))
	}
	return want, wantErr
}

// TestEveryBit flips each bit of each section. The change must cause an error or a mismatch, or reduce coverage.
func TestEveryBit(t *testing.T) {
	t.Parallel()
	for _, abi := range []string{"amd64", "aarch64_be", "s390x"} {
		files, err := filepath.Glob("../testdata/bin/" + abi + "/*")
		if err != nil || len(files) == 0 {
			t.Fatalf("no fixtures: %v", err)
		}
		for _, path := range files {
			for _, version := range []sframe.Version{sframe.V1, sframe.V2, sframe.V3} {
				for _, share := range []convert.Share{convert.ShareOff, convert.ShareOn} {
					if abi != "s390x" || version > sframe.V1 {
						everyBit(t, path, convert.Options{Version: version, Outermost: version == sframe.V2,
							Share: share})
					}
				}
			}
		}
	}
}

func everyBit(t *testing.T, path string, opt convert.Options) {
	t.Helper()
	b := testfile.Read(t, path)
	in := converted(t, b, opt)
	if in == nil {
		t.Fatalf("%s is not converted", path)
	}
	good, err := in.check(in.data)
	if err != nil || good.Total > 0 || good.Covered == 0 {
		t.Fatalf("%s: %+v, error %v", path, good, err)
	}
	step := long.Pick(t, 61, 1)
	flipped := bytes.Clone(in.data)
	for i := range in.data {
		for bit := range 8 {
			if (8*i+bit)%step > 0 {
				continue
			}
			flipped[i] = in.data[i] ^ 1<<bit
			bad, err := in.check(flipped)
			seen := err != nil || bad.Total > 0 || bad.Amounts != good.Amounts
			if !seen && in.text(t, in.data) != in.text(t, flipped) && !in.atReturn(t, path, flipped) {
				t.Errorf("%s, %+v: byte %#x, bit %d of the section: the change is not detected", path, opt, i, bit)
			}
		}
		flipped[i] = in.data[i]
	}
}

// atReturn reports whether an FDE starts one byte early, at the ret of a function with a realigned stack, and omits its
// last byte. Such an FDE is also correct: see epilogue.go.
func (in *input) atReturn(t *testing.T, path string, data []byte) bool {
	t.Helper()
	if base := filepath.Base(path); base != "drap2.so" && base != "drap3" {
		return false
	}
	s := must.Get(sframe.Decode(data, in.addr))(t)
	for i := range s.Len() {
		off, ok := in.file.FileOffset(s.FDE(i).Start, 1)
		if !ok {
			continue
		}
		if b, err := in.file.ReadAt("ret", off, 1); err != nil {
			t.Fatal(err)
		} else if b[0] == 0xc3 {
			return true
		}
	}
	return false
}

// text returns the contents of a section as text. It omits values without meaning: padding, the repetition size of
// PC-increment FDEs, and the base register in rows whose data words contain it.
func (in *input) text(t *testing.T, data []byte) string {
	t.Helper()
	s, err := sframe.Decode(data, in.addr)
	if err != nil {
		return err.Error()
	}
	var out strings.Builder
	if err := s.Dump(&out, nil); err != nil {
		return err.Error()
	}
	// The type of an FDE is irrelevant if all its rows are outermost.
	return strings.ReplaceAll(out.String(), ", attr = \"F\"", "")
}

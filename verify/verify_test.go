package verify_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/emit"
	"cfi2sframe/internal/arch"
	"cfi2sframe/internal/plt"
	"cfi2sframe/internal/testkit/long"
	"cfi2sframe/sframe"
	"cfi2sframe/translate"
	"cfi2sframe/verify"
)

// addr is where the section lies in these tests: after the code of the fixtures.
const addr = 0x70000000

// reach is what V1 and V2 can describe from there.
var reach = translate.Reach{First: 0, Last: addr + 1<<30}

// encode returns the CFI of a fixture and the section made from it.
func encode(t *testing.T, path string, opt translate.Options, share bool) (*input, []byte, *translate.Result) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elffile.New(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	table, err := cfi.Load(f, cfi.Auto, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, abi, err := arch.Find(table.Machine, table.Order)
	if err != nil {
		t.Fatal(err)
	}
	if opt.Version < sframe.V3 {
		opt.Reach = reach
	}
	if opt.Stubs, err = plt.Find(f, table); err != nil {
		t.Fatal(err)
	}
	opt.Moves = f.Moves
	build, err := emit.NewBuilder(emit.Options{Version: opt.Version, ABI: abi, Share: share})
	if err != nil {
		t.Fatal(err)
	}
	res, err := translate.Translate(table, opt, build)
	if err != nil {
		t.Fatal(err)
	}
	data, err := emit.Join([]*emit.Builder{build}).Encode(addr)
	if err != nil {
		t.Fatal(err)
	}
	return &input{f, table}, data, res
}

// An input is what a section is checked against.
type input struct {
	file  *elffile.File
	table *cfi.Table
}

// check compares the section with the CFI. However many workers there are, they have to
// find the same.
func check(in *input, data []byte) (*verify.Result, error) {
	s, err := sframe.Decode(data, addr)
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

func fixtures(t *testing.T, abi string) []string {
	t.Helper()
	files, err := filepath.Glob("../testdata/bin/" + abi + "/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("no fixtures: %v", err)
	}
	return files
}

// TestEveryBit flips each bit of each section and expects the difference to be
// seen: as an error, as a mismatch, or as code that is not covered any more.
func TestEveryBit(t *testing.T) {
	for _, v := range []struct {
		abi      string
		versions []sframe.Version
	}{
		{"amd64", []sframe.Version{sframe.V1, sframe.V2, sframe.V3}},
		{"aarch64_be", []sframe.Version{sframe.V1, sframe.V2, sframe.V3}},
		{"s390x", []sframe.Version{sframe.V2, sframe.V3}},
	} {
		for _, path := range fixtures(t, v.abi) {
			for _, version := range v.versions {
				for _, share := range []bool{false, true} {
					everyBit(t, path, translate.Options{Version: version, Outermost: version == sframe.V2}, share)
				}
			}
		}
	}
}

func everyBit(t *testing.T, path string, opt translate.Options, share bool) {
	t.Helper()
	in, data, res := encode(t, path, opt, share)
	good, err := check(in, data)
	if err != nil || good.Total > 0 || good.Covered != res.Covered || good.Described != res.Described ||
		good.Stubs != res.Synthesised || good.Padding != res.Padding {
		t.Fatalf("%s: %+v, error %v; %+v was translated", path, good, err, res)
	}
	step := long.Pick(t, 23, 1)
	flipped := bytes.Clone(data)
	for i := range data {
		for bit := range 8 {
			if (8*i+bit)%step > 0 {
				continue
			}
			flipped[i] = data[i] ^ 1<<bit
			bad, err := check(in, flipped)
			seen := err != nil || bad.Total > 0 || bad.Covered != good.Covered || bad.Stubs != good.Stubs ||
				bad.Padding != good.Padding
			if !seen && !same(t, data, flipped) && !atReturn(t, in, path, flipped) {
				t.Errorf("%s, %v, shared %t: byte %#x, bit %d of the section: the difference is not seen", path,
					opt.Version, share, i, bit)
			}
		}
		flipped[i] = data[i]
	}
}

// atReturn reports whether an FDE starts one byte early, at the ret of a realigned function, and describes that instead
// of its last byte. This is also true: see epilogue.go.
func atReturn(t *testing.T, in *input, path string, data []byte) bool {
	t.Helper()
	if base := filepath.Base(path); base != "drap2.so" && base != "drap3" {
		return false
	}
	s, err := sframe.Decode(data, addr)
	if err != nil {
		t.Fatal(err)
	}
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

// same reports whether two sections say the same: nothing is said by padding, by the
// repetition size of FDEs that do not repeat, or by the base of rows that name it
// otherwise.
func same(t *testing.T, a, b []byte) bool {
	t.Helper()
	text := func(data []byte) string {
		s, err := sframe.Decode(data, addr)
		if err != nil {
			return err.Error()
		}
		var out strings.Builder
		if err := s.Dump(&out, nil); err != nil {
			return err.Error()
		}
		// The type of an FDE says nothing where all rows are outermost.
		return strings.ReplaceAll(out.String(), ", attr = \"F\"", "")
	}
	return text(a) == text(b)
}

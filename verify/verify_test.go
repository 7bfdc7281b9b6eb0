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

// TestMismatch checks what is said of the usual mistakes.
func TestMismatch(t *testing.T) {
	in, data, _ := encode(t, "../testdata/bin/amd64/prologue", translate.Options{Version: sframe.V2}, false)
	s, err := sframe.Decode(data, addr)
	if err != nil {
		t.Fatal(err)
	}
	fres := 28 + 20*s.Len()
	for _, tt := range []struct {
		name   string
		change func([]byte)
		want   string
	}{
		{"CFA offset", func(b []byte) { b[fres+2] += 8 }, "CFA differs"},
		{"CFA base", func(b []byte) { b[fres+1] ^= 1 }, "CFA differs"},
		{"signed RA", func(b []byte) { b[fres+1] |= 0x80 }, "return address signed"},
		{"fixed RA offset", func(b []byte) { b[6] = 0xf0 }, "fixed offsets"},
		{"frame pointer flag", func(b []byte) { b[3] |= 2 }, "claims that every function keeps a frame pointer"},
		{"not sorted", func(b []byte) { b[3] &^= 1 }, "not marked as sorted"},
		{"start of the first function", func(b []byte) { b[28] -= 4 }, "describes code that CFI does not"},
	} {
		b := bytes.Clone(data)
		tt.change(b)
		res, err := check(in, b)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		found := false
		for _, m := range res.Mismatches {
			found = found || strings.Contains(m.What, tt.want)
		}
		if !found {
			t.Errorf("%s: mismatches %v, want one that says %q", tt.name, res.Mismatches, tt.want)
		}
	}
}

// TestReturnColumn gives a function that returns to x30 the rows of one that returns to x17. What
// the CFI says of their second rows is the same but for the CIE's return address column.
func TestReturnColumn(t *testing.T) {
	const fdeSize, size, list = 16, 8, 12 // of V3, and where these fields are
	in, data, _ := encode(t, "../testdata/bin/aarch64/racolumn", translate.Options{Version: sframe.V3}, false)
	a, b := data[28:][:fdeSize], data[28+fdeSize:][:fdeSize]
	if !bytes.Equal(a[size:list], b[size:list]) || bytes.Equal(a[list:], b[list:]) {
		t.Fatalf("the first two FDEs are % x and % x", a, b)
	}
	copy(b[list:], a[list:])
	res, err := check(in, data)
	if err != nil || res.Total != 3 {
		t.Errorf("%+v, error %v; want 3 mismatches", res, err)
	}
}

// TestPointerColumn describes functions whose return address column is that of FP or SP as if only
// the return address were there.
func TestPointerColumn(t *testing.T) {
	sp := func(offset int32) sframe.FRE {
		return sframe.FRE{Row: sframe.Row{CFA: sframe.Rule{Base: sframe.SP, Offset: offset}}}
	}
	returned := sp(0)
	returned.RA = sframe.Rule{Base: sframe.SP}
	for _, tt := range []struct {
		fixture  string
		abi      sframe.ABI
		function int // index
		fre      sframe.FRE
		want     string
	}{
		{"amd64/racolumn", sframe.AMD64Little, 0, sp(8), "caller's frame pointer differs"},
		{"amd64/racolumn", sframe.AMD64Little, 3, sp(8), "caller's stack pointer differs"},
		{"aarch64/racolumn", sframe.AArch64Little, 5, returned, "in no place"},
	} {
		in, _, _ := encode(t, "../testdata/bin/"+tt.fixture, translate.Options{Version: sframe.V3}, false)
		build, err := emit.NewBuilder(emit.Options{Version: sframe.V3, ABI: tt.abi})
		if err != nil {
			t.Fatal(err)
		}
		fn := in.table.At(tt.function)
		if _, err := build.Add(sframe.FDE{Start: fn.Begin, Size: 4, Flexible: tt.fre.RA.Base != sframe.None},
			build.Refs([]sframe.FRE{tt.fre})); err != nil {
			t.Fatal(err)
		}
		data, err := emit.Join([]*emit.Builder{build}).Encode(addr)
		if err != nil {
			t.Fatal(err)
		}
		res, err := check(in, data)
		if err != nil || len(res.Mismatches) != 1 || !strings.Contains(res.Mismatches[0].What, tt.want) {
			t.Errorf("%s, function %d: %+v, error %v; want a mismatch with %q", tt.fixture, tt.function, res,
				err, tt.want)
		}
	}
}

// TestMaskedFront describes code by a PC-mask FDE whose only row begins after the start of its
// blocks. It holds for no pc in front of that.
func TestMaskedFront(t *testing.T) {
	const begin, size, rep, front = 0x580, 32, 16, 4
	in, _, _ := encode(t, "../testdata/bin/amd64/plt", translate.Options{Version: sframe.V2}, false)
	build, err := emit.NewBuilder(emit.Options{Version: sframe.V2, ABI: sframe.AMD64Little})
	if err != nil {
		t.Fatal(err)
	}
	slot := sframe.Rule{Base: sframe.CFA, Offset: -16, Deref: true}
	fres := []sframe.FRE{{Row: sframe.Row{CFA: sframe.Rule{Base: sframe.FP, Offset: 16}, FP: slot}}}
	if _, err := build.Add(sframe.FDE{Start: begin, Size: size, PCMask: true, RepSize: rep},
		build.Refs(fres)); err != nil {
		t.Fatal(err)
	}
	data, err := emit.Join([]*emit.Builder{build}).Encode(addr)
	if err != nil {
		t.Fatal(err)
	}
	const start = 28 + 20 // of the row, after the header and the FDE
	for at, want := range map[byte]uint64{0: size, front: size - size/rep*front} {
		data[start] = at
		res, err := check(in, data)
		if err != nil || res.Total > 0 || res.Covered != want {
			t.Errorf("row from %d on: %+v, error %v; want %d bytes covered", at, res, err, want)
		}
		s, err := sframe.Decode(data, addr)
		if err != nil {
			t.Fatal(err)
		}
		for pc := uint64(begin); pc < begin+size; pc++ {
			_, found, err := s.Lookup(pc)
			if err != nil || found != (pc%rep >= uint64(at)) {
				t.Errorf("row from %d on: at %#x a row is found: %t, error %v", at, pc, found, err)
			}
		}
	}
}

// TestMaskedMoved has blocks of 24 and of 16 bytes in a PIE, whose rows all say what the CFI says. The
// former are not blocks any more once the code is moved by a page.
func TestMaskedMoved(t *testing.T) {
	const begin, size = 0x588, 0x18 // a multiple of 24
	slot := sframe.Rule{Base: sframe.CFA, Offset: -16, Deref: true}
	row := func(start uint32, offset int32) sframe.FRE {
		return sframe.FRE{Start: start, Row: sframe.Row{CFA: sframe.Rule{Base: sframe.FP, Offset: offset}, FP: slot}}
	}
	in, _, _ := encode(t, "../testdata/bin/amd64/plt", translate.Options{Version: sframe.V2}, false)
	for rep, want := range map[uint8]string{24: "blocks of 24 bytes are others where the code is moved by 4096",
		8: ""} {
		build, err := emit.NewBuilder(emit.Options{Version: sframe.V2, ABI: sframe.AMD64Little})
		if err != nil {
			t.Fatal(err)
		}
		fres := []sframe.FRE{row(0, 16), row(4, 24)}
		if _, err := build.Add(sframe.FDE{Start: begin, Size: size, PCMask: true, RepSize: rep},
			build.Refs(fres)); err != nil {
			t.Fatal(err)
		}
		data, err := emit.Join([]*emit.Builder{build}).Encode(addr)
		if err != nil {
			t.Fatal(err)
		}
		data[len(data)-2] = 16 // what the second row has for the CFA; equal rows are not written
		res, err := check(in, data)
		if err != nil || want == "" && (res.Total > 0 || res.Covered != size) {
			t.Errorf("blocks of %d bytes: %+v, error %v", rep, res, err)
		}
		if want != "" && (res.Total != 1 || !strings.Contains(res.Mismatches[0].What, want)) {
			t.Errorf("blocks of %d bytes: %+v; want a mismatch with %q", rep, res, want)
		}
	}
}

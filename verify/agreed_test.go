package verify

import (
	"debug/elf"
	"strings"
	"testing"

	"cfi2sframe/emit"
	"cfi2sframe/sframe"
)

// encoded returns an encoded section with the given FDEs.
func (p platform) encoded(t *testing.T, fdes ...fde) []byte {
	t.Helper()
	return build(t, emit.Options{Version: sframe.V2, ABI: p.abi}, fdes)
}

// spRows returns a row for each pair of values: its start in bytes, and the offset of the CFA from SP.
func spRows(pairs ...int32) (rows []sframe.FRE) {
	for i := 0; i < len(pairs); i += 2 {
		rows = append(rows, sframe.FRE{Start: uint32(pairs[i]), Row: sframe.Row{CFA: at(sframe.SP, pairs[i+1])}})
	}
	return rows
}

// mismatchInCFI returns the first mismatch in code that CFI describes, or "".
func mismatchInCFI(res *Result) string {
	for _, m := range res.Mismatches {
		if !strings.Contains(m.What, "code that CFI does not") {
			return m.String()
		}
	}
	return ""
}

// TestAgreed checks functions with the same instructions. The same rows are correct for the first function, but wrong
// for a later function, for which the first result must not be reused.
func TestAgreed(t *testing.T) {
	const v2fde, size, info, rep = 20, 4, 16, 17 // the size of an FDE of V2, and offsets of its fields
	field := func(data []byte, fde, field int) []byte { return data[28+v2fde*fde+field:] }
	// rsp + 8 + (pc & 0x1000 ? 8 : 0)
	pcCode := []byte{0x0f, 12, 0x77, 8, 0x80, 0, 0x0a, 0, 0x10, 0x1a, 0x30, 0x2e, 0x33, 0x24}
	pcCode = append(pcCode, 0x22)
	pcCode[1] = byte(len(pcCode) - 2)
	pltCode := func(pushed byte) []byte { // rsp + 8 + (pc & 15 >= pushed ? 8 : 0)
		return []byte{0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x30 + pushed, 0x2a, 0x33, 0x24, 0x22}
	}
	two, three := []byte{0x41, 0x0e, 16}, []byte{0x41, 0x0e, 16, 0x43, 0x0e, 24} // rows start at 1; at 1 and 4
	// at 4, the rule for rbp becomes same_value
	unchanged := []byte{0x41, 0x0e, 16, 0x43, 0x08, 6}
	one4, rest := spRows(0, 8, 1, 16), spRows(0, 24)
	for _, tt := range []struct {
		name    string
		kind    elf.Type
		fns     []function
		fdes    []fde
		change  func([]byte)
		want    string // the first mismatch in code with CFI, or the error
		covered uint64
	}{
		{"both are right", elf.ET_DYN,
			[]function{{begin: 0x1000, end: 0x1008, code: three}, {begin: 0x1010, end: 0x1018, code: three}},
			[]fde{
				{sframe.FDE{Start: 0x1000, Size: 4}, one4}, {sframe.FDE{Start: 0x1004, Size: 4}, rest},
				{sframe.FDE{Start: 0x1010, Size: 4}, one4}, {sframe.FDE{Start: 0x1014, Size: 4}, rest},
			}, nil, "", 16},
		{"without the last row", elf.ET_DYN,
			[]function{{begin: 0x1000, end: 0x1008, code: unchanged}, {begin: 0x1010, end: 0x1013, code: unchanged}},
			[]fde{{sframe.FDE{Start: 0x1000, Size: 8}, one4}, {sframe.FDE{Start: 0x1010, Size: 3}, one4}}, nil, "", 11},
		// The last FDE of the first function extends past the end of that function. The third function has a single
		// FDE.
		{"the first function's FDE extends past it", elf.ET_DYN,
			[]function{{begin: 0x1000, end: 0x1008, code: three}, {begin: 0x1010, end: 0x1018, code: three},
				{begin: 0x1020, end: 0x1028, code: three}},
			[]fde{
				{sframe.FDE{Start: 0x1000, Size: 4}, one4}, {sframe.FDE{Start: 0x1004, Size: 8}, rest},
				{sframe.FDE{Start: 0x1020, Size: 8}, one4},
			}, nil, "0x1024-0x1028: CFA differs", 12},
		{"blocks", elf.ET_DYN,
			[]function{{begin: 0x1000, end: 0x1008, code: two}, {begin: 0x1010, end: 0x1018, code: two}},
			[]fde{{sframe.FDE{Start: 0x1000, Size: 8}, one4}, {sframe.FDE{Start: 0x1010, Size: 8}, one4}},
			func(data []byte) { field(data, 1, info)[0] |= 0x10; field(data, 1, rep)[0] = 4 },
			"0x1014-0x1015: CFA differs", 15},
		// After the change, the last row equals the one before it.
		{"the last row is empty", elf.ET_DYN,
			[]function{{begin: 0x1000, end: 0x1008, code: two}, {begin: 0x1010, end: 0x1016, code: two}},
			[]fde{{sframe.FDE{Start: 0x1000, Size: 8}, spRows(0, 8, 1, 16, 6, 24)},
				{sframe.FDE{Start: 0x1010, Size: 7}, spRows(0, 8, 1, 16, 6, 24)}},
			func(data []byte) { field(data, 1, size)[0], data[len(data)-1] = 6, 16 }, "FRE starts at 0x6", 0},
		{"an overlapping FDE", elf.ET_DYN,
			[]function{{begin: 0x1000, end: 0x1008, code: three}, {begin: 0x1010, end: 0x1018, code: three},
				{begin: 0x1018, end: 0x1020}},
			[]fde{
				{sframe.FDE{Start: 0x1000, Size: 4}, one4}, {sframe.FDE{Start: 0x1004, Size: 4}, rest},
				{sframe.FDE{Start: 0x1010, Size: 4}, one4}, {sframe.FDE{Start: 0x1014, Size: 4}, rest},
				{sframe.FDE{Start: 0x1015, Size: 11}, spRows(0, 8)},
			}, nil, "FDE 4 at 0x1015 overlaps the previous one", 0},
		{"pc, different instructions", elf.ET_EXEC, []function{{begin: 0x1000, end: 0x1008, code: pcCode},
			{begin: 0x2000, end: 0x2008, code: append([]byte{0}, pcCode...)}},
			[]fde{{sframe.FDE{Start: 0x1000, Size: 8}, spRows(0, 16)},
				{sframe.FDE{Start: 0x2000, Size: 8}, spRows(0, 16)}}, nil, "0x2000-0x2008: CFA differs", 8},
		{"pc, the same instructions", elf.ET_EXEC,
			[]function{{begin: 0x1000, end: 0x1008, code: pcCode}, {begin: 0x2000, end: 0x2008, code: pcCode}},
			[]fde{{sframe.FDE{Start: 0x1000, Size: 8}, spRows(0, 16)},
				{sframe.FDE{Start: 0x2000, Size: 8}, spRows(0, 16)}}, nil, "0x2000-0x2008: CFA differs", 8},
		{"pc, a different expression", elf.ET_DYN,
			[]function{{begin: 0x1000, end: 0x1010, code: pltCode(8)}, {begin: 0x1010, end: 0x1020, code: pltCode(11)}},
			[]fde{{sframe.FDE{Start: 0x1000, Size: 16}, spRows(0, 8, 8, 16)},
				{sframe.FDE{Start: 0x1010, Size: 16}, spRows(0, 8, 8, 16)}}, nil, "0x1018-0x1020: CFA differs", 24},
		{"wrong in both functions", elf.ET_DYN,
			[]function{{begin: 0x1000, end: 0x1008, code: two}, {begin: 0x1010, end: 0x1018, code: two}},
			[]fde{{sframe.FDE{Start: 0x1000, Size: 8}, spRows(0, 8, 2, 16)},
				{sframe.FDE{Start: 0x1010, Size: 8}, spRows(0, 8, 2, 16)}}, nil, "0x1001-0x1002: CFA differs", 14},
	} {
		data := amd64.encoded(t, tt.fdes...)
		if tt.change != nil {
			tt.change(data)
		}
		s := decodeSection(t, data)
		if s.Len() != len(tt.fdes) {
			t.Fatalf("%s: %d FDEs", tt.name, s.Len())
		}
		f := bareFile(tt.kind)
		f.Progs = []elf.Prog64{{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_X), Vaddr: 0x1000, Filesz: 0x2000}}
		res, err := Check(amd64.cfi(t, tt.fns...), s, f, Options{Keep: 10})
		if err != nil {
			if tt.want == "" || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: error %v, want %q", tt.name, err, tt.want)
			}
			continue
		}
		found := mismatchInCFI(res)
		if tt.want == "" && res.Total > 0 || !strings.HasPrefix(found, tt.want) || res.Covered != tt.covered {
			t.Errorf("%s: %+v, want %q and %d bytes covered", tt.name, res, tt.want, tt.covered)
		}
	}
}

// TestPartly checks an FDE for code that CFI describes only in part.
func TestPartly(t *testing.T) {
	f := bareFile(elf.ET_DYN)
	f.Progs = []elf.Prog64{{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_X), Vaddr: 0x1000, Filesz: 0x40}}
	table := amd64.cfi(t, function{begin: 0x1010, end: 0x1020}, function{begin: 0x1028, end: 0x1030})
	res, err := Check(table, amd64.section(t, sframe.V2, fde{sframe.FDE{Start: 0x1000, Size: 0x40}, spRows(0, 8)}), f,
		Options{Keep: 10})
	var got []string
	for _, m := range res.Mismatches {
		got = append(got, m.String()[:13])
	}
	if err != nil || res.Covered != 0x18 || strings.Join(got, " ") != "0x1000-0x1010 0x1020-0x1028 0x1030-0x1040" {
		t.Errorf("%+v, error %v", res, err)
	}
}

// TestLastBlock checks PC-mask FDEs whose last block is incomplete.
func TestLastBlock(t *testing.T) {
	// rsp + 8 + ((pc & 7) >= 6 ? 8 : 0)
	code := []byte{0x0f, 11, 0x77, 8, 0x80, 0, 0x37, 0x1a, 0x36, 0x2a, 0x33, 0x24, 0x22}
	for _, size := range []uint32{12, 14, 15, 16} {
		table := amd64.cfi(t, function{begin: 0x1000, end: 0x1000 + uint64(size), code: code},
			function{begin: 0x1000 + uint64(size), end: 0x1020, code: []byte{0x0e, 64}})
		d := fde{sframe.FDE{Start: 0x1000, Size: size, PCMask: true, RepSize: 8}, spRows(0, 8, 6, 16)}
		res, err := Check(table, amd64.section(t, sframe.V2, d), bareFile(elf.ET_DYN), Options{Keep: 10})
		if err != nil || res.Total > 0 || res.Covered != uint64(size) {
			t.Errorf("%d bytes: %+v, error %v", size, res, err)
		}
	}
}

// TestABIs expects facts about each ABI of the format.
func TestABIs(t *testing.T) {
	for id := sframe.ABI(1); id.Order() != nil; id++ {
		a := abis[id]
		if a.sp == 0 || a.stub == nil || a.padding == nil || a.prologue == nil {
			t.Errorf("abis lacks facts about %v: add verify/NAME.go", id)
		}
	}
}

package verify

import (
	"bytes"
	"debug/elf"
	"encoding/hex"
	"reflect"
	"strings"
	"testing"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/amounts"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/sframe"
)

// TestPadding checks FDEs that start and end anywhere in functions and in the padding between them.
func TestPadding(t *testing.T) {
	const text = 0x1000
	code := bytes.Repeat([]byte{0x50}, 0x200) // push %rax
	put := func(at int, hexadecimal string) {
		b := must.Get(hex.DecodeString(hexadecimal))(t)
		copy(code[at:], b)
	}
	put(0x0d, "0f1f00")                       // after a
	put(0x2c, "0f1f4000")                     // after b
	put(0x3e, "90c3")                         // after c: code without CFI
	copy(code[0x51:], make([]byte, 63))       // after d
	copy(code[0x91:], make([]byte, 64))       // after e
	put(0x0e0-4, "cc90cccc")                  // after f
	copy(code[0x1fc:], []byte{0, 0, 0, 0x90}) // after the last one
	push := []byte{0x41, 0x0e, 16}            // after 1 byte
	fns := []function{
		{begin: 0x1000, end: 0x100d, code: push},                               // a
		{begin: 0x1010, end: 0x102c, code: append(push[:3:3], 0x5b, 0x0e, 24)}, // b, with a row at its end
		{begin: 0x1030, end: 0x103e, code: push},                               // c
		{begin: 0x1040, end: 0x1051},                                           // d
		{begin: 0x1090, end: 0x1091},                                           // e
		{begin: 0x10d1, end: 0x10dc, code: push},                               // f
		{begin: 0x10e0, end: 0x11fc, code: push},                               // g
	}
	f := fileOf(t, elf.ET_DYN, elf.EM_X86_64, amd64.order, region{name: ".text", addr: text, code: code})
	bare := fileOf(t, elf.ET_DYN, elf.EM_X86_64, amd64.order, region{name: ".text", addr: text, code: code})
	bare.Sections = nil // the segment has the same code
	row := func(start uint32, cfa int32) sframe.FRE {
		return sframe.FRE{Start: start, Row: sframe.Row{CFA: at(sframe.SP, cfa)}}
	}
	piece := func(begin, end uint64, r ...sframe.FRE) fde {
		return fde{sframe.FDE{Start: begin, Size: uint32(end - begin)}, r}
	}
	for _, tt := range []struct {
		name             string
		fdes             []fde
		covered, padding uint64
		wrong            string // "" if everything is correct
	}{
		{"one function", []fde{piece(0x1000, 0x100d, row(0, 8), row(1, 16))}, 0xd, 0, ""},
		{"and its padding", []fde{piece(0x1000, 0x1010, row(0, 8), row(1, 16))}, 0xd, 3, ""},
		{"a part of it", []fde{piece(0x1000, 0x100e, row(0, 8), row(1, 16))}, 0xd, 1, ""},
		{"two functions", []fde{piece(0x1000, 0x1030, row(0, 8), row(1, 16), row(0x10, 8), row(0x11, 16))},
			0xd + 0x1c, 7, ""},
		{"from the middle of one", []fde{piece(0x1005, 0x1020, row(0, 16), row(11, 8), row(12, 16))}, 8 + 0x10, 3, ""},
		{"in two pieces", []fde{piece(0x1000, 0x1005, row(0, 8), row(1, 16)),
			piece(0x1005, 0x1020, row(0, 16), row(11, 8), row(12, 16)),
			piece(0x1020, 0x1030, row(0, 16))}, 0xd + 0x1c, 7, ""},
		{"starting in the padding", []fde{piece(0x1000, 0x100d, row(0, 8), row(1, 16)),
			piece(0x100d, 0x1030, row(0, 16), row(3, 8), row(4, 16))}, 0xd + 0x1c, 7, ""},
		{"by a separate FDE", []fde{piece(0x100d, 0x1010, row(0, 16))}, 0, 3, ""},
		{"from its second byte", []fde{piece(0x100e, 0x1010, row(0, 16))}, 0, 2, ""},
		{"63 bytes", []fde{piece(0x1040, 0x1090, row(0, 8))}, 0x11, 63, ""},
		{"63 bytes and the next function", []fde{piece(0x1040, 0x1091, row(0, 8))}, 0x12, 63, ""},
		{"traps", []fde{piece(0x10d1, 0x10e0, row(0, 8), row(1, 16))}, 0xb, 4, ""},
		{"to the end of the section", []fde{piece(0x10e0, 0x1200, row(0, 8), row(1, 16))}, 0x11c, 4, ""},
		{"many", []fde{piece(0x1000, 0x103e, row(0, 8), row(1, 16), row(0x10, 8), row(0x11, 16), row(0x30, 8),
			row(0x31, 16)),
			piece(0x1040, 0x1091, row(0, 8)), piece(0x10d1, 0x1200, row(0, 8), row(1, 16), row(15, 8), row(16, 16))},
			0xd + 0x1c + 0xe + 0x12 + 0xb + 0x11c, 7 + 63 + 8, ""},
		{"each by an FDE", []fde{piece(0x1000, 0x1010, row(0, 8), row(1, 16)),
			piece(0x1010, 0x1030, row(0, 8), row(1, 16)), piece(0x1030, 0x103e, row(0, 8), row(1, 16)),
			piece(0x1040, 0x1090, row(0, 8)), piece(0x1090, 0x1091, row(0, 8)),
			piece(0x10d1, 0x10e0, row(0, 8), row(1, 16)), piece(0x10e0, 0x1200, row(0, 8), row(1, 16))},
			0xd + 0x1c + 0xe + 0x12 + 0xb + 0x11c, 3 + 4 + 63 + 4 + 4, ""},

		{"with the next function's row", []fde{piece(0x1000, 0x1010, row(0, 8), row(1, 16), row(0xd, 8))}, 0xd, 0,
			"CFA differs"},
		{"with a different last row", []fde{piece(0x1000, 0x1010, row(0, 8), row(1, 16), row(0xe, 8))}, 0xd, 1,
			"CFA differs"},
		{"by an FDE with a different row", []fde{piece(0x100d, 0x1010, row(0, 8))}, 0, 0, "CFA differs"},
		{"code", []fde{piece(0x1030, 0x1040, row(0, 8), row(1, 16))}, 0xe, 0, "describes code that CFI does not"},
		{"the first byte of code", []fde{piece(0x1030, 0x103f, row(0, 8), row(1, 16))}, 0xe, 0,
			"describes code that CFI does not"},
		{"64 bytes", []fde{piece(0x1090, 0x10d1, row(0, 8))}, 1, 0, "describes code that CFI does not"},
		{"the first of 64 bytes", []fde{piece(0x1090, 0x1092, row(0, 8))}, 1, 0, "describes code that CFI does not"},
		{"wrong in the next function", []fde{piece(0x1000, 0x1030, row(0, 8), row(1, 16), row(0x10, 8), row(0x12, 16))},
			0xd + 0x1b, 7, "CFA differs"},
		{"without the next function's first row", []fde{piece(0x1000, 0x1030, row(0, 8), row(1, 16))}, 0xd + 0x1b, 7,
			"CFA differs"},
	} {
		for workers := range 4 {
			table := amd64.cfi(t, fns...)
			s := amd64.section(t, sframe.V2, tt.fdes...)
			res, err := Check(table, s, []*elffile.File{f, bare}[workers%2], Options{Keep: 10, Workers: workers})
			if err != nil {
				t.Errorf("%s: %v", tt.name, err)
				continue
			}
			wrong := ""
			for _, m := range res.Mismatches {
				wrong += m.String() + "; "
			}
			if res.Covered != tt.covered || res.Padding != tt.padding || (tt.wrong == "") != (res.Total == 0) ||
				!strings.Contains(wrong, tt.wrong) {
				t.Errorf("%s, %d workers: %d bytes and %d of padding, %s; want %d, %d and %q",
					tt.name, workers, res.Covered, res.Padding, wrong, tt.covered, tt.padding, tt.wrong)
			}
		}
	}
}

// TestPaddingOutermost describes part of an outermost function, and part of the padding after it.
func TestPaddingOutermost(t *testing.T) {
	f := fileOf(t, elf.ET_DYN, elf.EM_X86_64, amd64.order,
		region{name: ".text", addr: 0x1000, code: bytes.Repeat([]byte{0x90}, 0x20)})
	rows := one(sframe.Row{Outermost: true})
	res, err := Check(amd64.cfi(t, function{begin: 0x1000, end: 0x1008, code: []byte{0x07, 16}},
		function{begin: 0x1010, end: 0x1020}), amd64.section(t, sframe.V3,
		fde{sframe.FDE{Start: 0x1004, Size: 4}, rows}, fde{sframe.FDE{Start: 0x100e, Size: 2}, rows}), f, Options{})
	if want := (Result{Amounts: amounts.Amounts{Described: 0x18, Covered: 8, Outermost: 4, Padding: 2}}); err != nil ||
		!reflect.DeepEqual(*res, want) {
		t.Errorf("%+v, error %v; want %+v", res, err, want)
	}
}

// TestPaddingAfterSections checks padding after sections, up to the next section or the end of the segment.
func TestPaddingAfterSections(t *testing.T) {
	code := bytes.Repeat([]byte{0xc3}, 0x100)
	copy(code[0x20:], make([]byte, 16))  // to 0x1030
	copy(code[0x50:], make([]byte, 100)) // to 0x10b4
	copy(code[0xf8:], make([]byte, 8))   // to the end of the segment
	table := amd64.cfi(t, function{begin: 0x1000, end: 0x1020}, function{begin: 0x1030, end: 0x1050},
		function{begin: 0x10c0, end: 0x10f8})
	section := func(addr, size uint64) elffile.Section {
		s := elffile.Section{Name: "s"}
		s.Type, s.Flags = uint32(elf.SHT_PROGBITS), uint64(elf.SHF_ALLOC|elf.SHF_EXECINSTR)
		s.Addr, s.Size = addr, size
		return s
	}
	a, b, c := section(0x1000, 0x20), section(0x1030, 0x20), section(0x10c0, 0x38)
	stubs, data, noBytes, notLoaded := a, a, a, a
	stubs.Name, data.Flags, noBytes.Type = ".plt", uint64(elf.SHF_ALLOC), uint32(elf.SHT_NOBITS)
	notLoaded.Flags = uint64(elf.SHF_EXECINSTR)
	unloaded := section(0x1028, 8)
	unloaded.Flags = 0
	for _, tt := range []struct {
		name       string
		begin, end uint64
		sections   []elffile.Section
		padding    uint64
		wrong      bool
	}{
		{"up to the next section", 0x1000, 0x1030, []elffile.Section{a, b, c}, 16, false},
		{"after PLT stubs", 0x1000, 0x1030, []elffile.Section{stubs, b, c}, 0, true},
		{"after data", 0x1000, 0x1030, []elffile.Section{data, b, c}, 0, true},
		{"after a section without bytes", 0x1000, 0x1030, []elffile.Section{noBytes, b, c}, 0, true},
		{"after a section that is not loaded", 0x1000, 0x1030, []elffile.Section{notLoaded, b, c}, 0, true},
		{"in reverse order", 0x1000, 0x1030, []elffile.Section{c, b, a}, 16, false},
		{"across empty sections", 0x1000, 0x1030,
			[]elffile.Section{section(0x1020, 0), a, section(0x1028, 0), unloaded, b, c}, 16, false},
		{"a part", 0x1000, 0x1021, []elffile.Section{a, b, c}, 1, false},
		{"and the next section", 0x1000, 0x1050, []elffile.Section{a, b, c}, 16, false},
		{"with a byte of another section", 0x1000, 0x1030, []elffile.Section{a, section(0x102f, 1), b, c}, 15, true},
		{"up to that section", 0x1000, 0x102f, []elffile.Section{a, section(0x102f, 1), b, c}, 15, false},
		{"100 bytes", 0x1030, 0x1060, []elffile.Section{a, b, c}, 0, true},
		{"62 bytes", 0x1030, 0x1060, []elffile.Section{a, b, section(0x108e, 1), c}, 16, false},
		{"up to code without CFI", 0x1030, 0x1051, []elffile.Section{a, b, section(0x1051, 1), c}, 1, false},
		{"to the end of the segment", 0x10c0, 0x1100, []elffile.Section{a, b, c}, 8, false},
		{"in a section without functions", 0x10c0, 0x1100, []elffile.Section{a, b, c, section(0x10f8, 1)}, 0, true},
	} {
		f := fileOf(t, elf.ET_DYN, elf.EM_X86_64, amd64.order, region{name: ".text", addr: 0x1000, code: code})
		f.Sections = tt.sections
		d := fde{sframe.FDE{Start: tt.begin, Size: uint32(tt.end - tt.begin)}, []sframe.FRE{
			{Row: sframe.Row{CFA: at(sframe.SP, 8)}}}}
		res, err := Check(table, amd64.section(t, sframe.V3, d), f, Options{Keep: 10})
		if err != nil || res.Padding != tt.padding || (res.Total > 0) != tt.wrong {
			t.Errorf("%s: %+v, error %v; want %d bytes of padding, wrong %t", tt.name, res, err, tt.padding, tt.wrong)
		}
	}
}

// TestPaddingCode checks which instructions of each machine are padding, and their sizes.
func TestPaddingCode(t *testing.T) {
	for _, tt := range []struct {
		p    platform
		code string
		want int
	}{
		{amd64, "90", 1}, {amd64, "6690", 2}, {amd64, "0f1f00", 3}, {amd64, "662e0f1f840000000000", 10},
		{amd64, "6666666666662e0f1f840000000000", 15},
		{amd64, "cc", 1}, {amd64, "00", 1}, {amd64, "0f1f", 0}, {amd64, "f390", 0}, {amd64, "f30f1efa", 0},
		{amd64, "4190", 0}, {amd64, "87c0", 0},
		{amd64, "c3", 0}, {amd64, "0f0b", 0}, {amd64, "cd03", 0},
		{aarch64, "1f2003d5", 4}, {aarch64, "00000000", 4}, {aarch64, "0000", 2}, {aarch64, "01000000", 0},
		{aarch64, "3f2003d5", 0}, {aarch64, "5f2403d5", 0},
		{aarch64, "1f20", 0}, {aarch64, "c0035fd6", 0},
		{s390x, "0707", 2}, {s390x, "47000000", 4}, {s390x, "c00400000000", 6}, {s390x, "a7040000", 4},
		{s390x, "0000", 2}, {s390x, "00", 1},
		{s390x, "0001", 0}, {s390x, "07fe", 0}, {s390x, "07e0", 0}, {s390x, "c004", 0}, {s390x, "c0f400000000", 0},
		{s390x, "a7050000", 0},
	} {
		b := must.Get(hex.DecodeString(tt.code))(t)
		if got := abis[tt.p.abi].padding(b); got != tt.want {
			t.Errorf("%v: %d bytes of %s; want %d", tt.p.machine, got, tt.code, tt.want)
		}
	}
}

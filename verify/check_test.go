package verify

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/amounts"
	"cfi2sframe/sframe"
)

// bareFile returns a file without contents. Only its type matters.
func bareFile(kind elf.Type) *elffile.File {
	return &elffile.File{Header64: elf.Header64{Type: uint16(kind)}}
}

// TestRules compares each kind of CFI rule with equivalent rows, and with different rows. The function at 0x1000-0x1010
// is completely covered.
func TestRules(t *testing.T) {
	row := func(cfa, ra, fp sframe.Rule) sframe.Row { return sframe.Row{CFA: cfa, RA: ra, FP: fp} }
	var none sframe.Rule
	reg := func(n uint16, offset int32) sframe.Rule {
		return sframe.Rule{Base: sframe.Register, Reg: n, Offset: offset}
	}
	deref := func(r sframe.Rule) sframe.Rule {
		r.Deref = true
		return r
	}
	signed := row(at(sframe.SP, 0), none, none)
	signed.Signed = true
	last := sframe.Row{Outermost: true}
	plain := map[sframe.ABI]sframe.Row{
		amd64.abi: row(at(sframe.SP, 8), none, none), aarch64.abi: row(at(sframe.SP, 0), none, none),
		s390x.abi: row(at(sframe.SP, 160), none, none),
	}
	for _, tt := range []struct {
		name string
		p    platform
		fn   function
		fde  sframe.FDE
		row  *sframe.Row // nil means the rules at function entry
		want string      // what is wrong, or ""
	}{
		{"at function entry", amd64, function{}, sframe.FDE{}, nil, ""},
		{"at function entry", aarch64, function{}, sframe.FDE{}, nil, ""},
		{"at function entry", s390x, function{}, sframe.FDE{}, nil, ""},

		// CFA.
		{"def_cfa r6+16", amd64, function{code: []byte{0x0c, 6, 16}}, sframe.FDE{}, &sframe.Row{CFA: at(sframe.FP, 16)},
			""},
		{"def_cfa r6+16", amd64, function{code: []byte{0x0c, 6, 16}}, sframe.FDE{}, &sframe.Row{CFA: at(sframe.FP, 24)},
			"CFA differs: SFrame has CFA rbp+24"},
		{"def_cfa r6+16", amd64, function{code: []byte{0x0c, 6, 16}}, sframe.FDE{}, &sframe.Row{CFA: at(sframe.SP, 16)},
			"CFA differs: SFrame has CFA rsp+16"},
		{"def_cfa r10+0", amd64, function{code: []byte{0x0c, 10, 0}}, sframe.FDE{Flexible: true},
			&sframe.Row{CFA: reg(10, 0)}, ""},
		{"def_cfa r10+0", amd64, function{code: []byte{0x0c, 10, 0}}, sframe.FDE{Flexible: true},
			&sframe.Row{CFA: reg(11, 0)}, "CFA differs"},
		{"expression breg6-8 deref", amd64, function{code: []byte{0x0f, 3, 0x76, 0x78, 0x06}},
			sframe.FDE{Flexible: true}, &sframe.Row{CFA: slot(sframe.FP, -8)}, ""},
		{"expression breg6-8 deref", amd64, function{code: []byte{0x0f, 3, 0x76, 0x78, 0x06}}, sframe.FDE{},
			&sframe.Row{CFA: at(sframe.FP, -8)}, "CFA differs"},
		{"expression breg6-8 deref plus 8", amd64, function{code: []byte{0x0f, 5, 0x76, 0x78, 0x06, 0x23, 8}},
			sframe.FDE{Flexible: true}, &sframe.Row{CFA: slot(sframe.FP, -8)}, "CFA differs"},
		{"wrong expression", amd64, function{code: []byte{0x0f, 1, 0x06}}, sframe.FDE{}, nil,
			"CFA: expression 06: stack is empty"},
		{"no CFA", amd64, function{bare: true}, sframe.FDE{}, nil, "CFI defines no CFA"},

		// The return address.
		{"offset", amd64, function{code: []byte{0x90, 2}}, sframe.FDE{}, nil, "return address differs"},
		{"offset", aarch64, function{code: []byte{0x9e, 1}}, sframe.FDE{},
			&sframe.Row{CFA: at(sframe.SP, 0), RA: slot(sframe.CFA, -8)}, ""},
		{"offset", aarch64, function{code: []byte{0x9e, 1}}, sframe.FDE{}, nil, "return address differs"},
		{"val_offset", aarch64, function{code: []byte{0x14, 30, 1}}, sframe.FDE{},
			&sframe.Row{CFA: at(sframe.SP, 0), RA: slot(sframe.CFA, -8)}, "return address differs"},
		{"register 17", aarch64, function{code: []byte{0x09, 30, 17}}, sframe.FDE{Flexible: true},
			&sframe.Row{CFA: at(sframe.SP, 0), RA: reg(17, 0)}, ""},
		{"register 17", aarch64, function{code: []byte{0x09, 30, 17}}, sframe.FDE{}, nil, "return address differs"},
		{"same_value", aarch64, function{code: []byte{0x08, 30}}, sframe.FDE{}, nil, ""},
		{"expression breg6+8", amd64, function{code: []byte{0x10, 16, 2, 0x76, 8}}, sframe.FDE{Flexible: true},
			&sframe.Row{CFA: at(sframe.SP, 8), RA: slot(sframe.FP, 8)}, ""},
		{"expression plus_uconst 8", amd64, function{code: []byte{0x10, 16, 2, 0x23, 8}}, sframe.FDE{Flexible: true},
			&sframe.Row{CFA: at(sframe.SP, 8), RA: slot(sframe.CFA, 8)}, ""},
		{"expression plus_uconst 8", amd64, function{code: []byte{0x10, 16, 2, 0x23, 8}}, sframe.FDE{}, nil,
			"return address differs"},
		{"val_expression breg6+8", amd64, function{code: []byte{0x16, 16, 2, 0x76, 8}}, sframe.FDE{Flexible: true},
			&sframe.Row{CFA: at(sframe.SP, 8), RA: at(sframe.FP, 8)}, ""},
		{"val_expression lit8 minus", amd64, function{code: []byte{0x16, 16, 3, 0x38, 0x1c, 0x96}}, sframe.FDE{}, nil,
			"return address differs"},
		{"wrong expression", amd64, function{code: []byte{0x10, 16, 1, 0x22}}, sframe.FDE{}, nil,
			"return address: expression 22: stack is empty"},
		{"wrong val_expression", amd64, function{code: []byte{0x16, 16, 1, 0x22}}, sframe.FDE{}, nil,
			"return address: expression 22: stack is empty"},
		{"no rule", amd64, function{bare: true, code: []byte{0x0c, 7, 8}}, sframe.FDE{}, nil,
			"return address: CFI gives no location"},
		{"same_value", amd64, function{code: []byte{0x08, 16}}, sframe.FDE{}, nil,
			"return address: CFI gives no location"},
		{"column SP", aarch64, function{column: 31}, sframe.FDE{}, nil, "return address: CFI gives no location"},
		{"column pc", aarch64, function{column: 32}, sframe.FDE{}, nil, "return address: CFI gives no location"},
		{"column FP", amd64, function{column: 6, code: []byte{0x86, 1}}, sframe.FDE{}, nil,
			"caller's frame pointer differs"},
		{"column 17", aarch64, function{column: 17}, sframe.FDE{Flexible: true},
			&sframe.Row{CFA: at(sframe.SP, 0), RA: reg(17, 0)}, ""},
		{"register 2", s390x, function{code: []byte{0x09, 14, 2}}, sframe.FDE{Flexible: true},
			&sframe.Row{CFA: at(sframe.SP, 160), RA: reg(2, 0)}, ""},

		// The frame pointer.
		{"FP at -16", amd64, function{code: []byte{0x86, 2}}, sframe.FDE{},
			&sframe.Row{CFA: at(sframe.SP, 8), FP: slot(sframe.CFA, -16)}, ""},
		{"FP at -16", amd64, function{code: []byte{0x86, 2}}, sframe.FDE{}, nil, "caller's frame pointer differs"},
		{"FP at -16", amd64, function{code: []byte{0x86, 2}}, sframe.FDE{},
			&sframe.Row{CFA: at(sframe.SP, 8), FP: slot(sframe.CFA, -24)}, "caller's frame pointer differs"},
		{"FP not saved", amd64, function{}, sframe.FDE{}, &sframe.Row{CFA: at(sframe.SP, 8), FP: slot(sframe.CFA, -16)},
			"caller's frame pointer differs"},
		{"FP same_value", amd64, function{code: []byte{0x08, 6}}, sframe.FDE{}, nil, ""},
		{"FP in register 3", amd64, function{code: []byte{0x09, 6, 3}}, sframe.FDE{Flexible: true},
			&sframe.Row{CFA: at(sframe.SP, 8), FP: reg(3, 0)}, ""},
		{"FP at *(register 3 - 8)", amd64, function{code: []byte{0x10, 6, 2, 0x73, 0x78}}, sframe.FDE{Flexible: true},
			&sframe.Row{CFA: at(sframe.SP, 8), FP: deref(reg(3, -8))}, ""},
		{"FP undefined", amd64, function{code: []byte{0x07, 6}}, sframe.FDE{}, nil,
			"frame pointer: CFI leaves it undefined"},
		{"FP, wrong expression", amd64, function{code: []byte{0x16, 6, 1, 0x22}}, sframe.FDE{}, nil,
			"frame pointer: expression 22: stack is empty"},

		// The stack pointer.
		{"SP val_offset 0", amd64, function{code: []byte{0x14, 7, 0}}, sframe.FDE{}, nil, ""},
		{"SP val_offset -8", amd64, function{code: []byte{0x14, 7, 1}}, sframe.FDE{}, nil,
			"caller's stack pointer differs"},
		{"SP same_value", amd64, function{code: []byte{0x08, 7}}, sframe.FDE{}, nil, "caller's stack pointer differs"},
		{"SP saved", amd64, function{code: []byte{0x87, 2}}, sframe.FDE{}, nil, "caller's stack pointer differs"},
		{"SP saved", s390x, function{code: []byte{0x8f, 5}}, sframe.FDE{}, nil, ""},
		{"SP in a register", s390x, function{code: []byte{0x09, 15, 2}}, sframe.FDE{}, nil, ""},
		{"SP same_value", s390x, function{code: []byte{0x08, 15}}, sframe.FDE{}, nil, ""},
		{"SP val_offset -160", s390x, function{code: []byte{0x14, 15, 20}}, sframe.FDE{}, nil, ""},
		{"SP val_offset -152", s390x, function{code: []byte{0x14, 15, 19}}, sframe.FDE{}, nil,
			"caller's stack pointer differs"},
		{"SP undefined", amd64, function{code: []byte{0x07, 7}}, sframe.FDE{}, nil,
			"stack pointer: CFI leaves it undefined"},
		{"SP undefined", s390x, function{code: []byte{0x07, 15}}, sframe.FDE{}, nil,
			"stack pointer: CFI leaves it undefined"},
		{"SP, wrong expression", amd64, function{code: []byte{0x16, 7, 1, 0x22}}, sframe.FDE{}, nil,
			"stack pointer: expression 22: stack is empty"},

		// Other properties.
		{"signal in CFI", amd64, function{letters: "S"}, sframe.FDE{}, nil,
			"signal frame: false in SFrame, true in CFI"},
		{"signal in SFrame", amd64, function{}, sframe.FDE{Signal: true}, nil,
			"signal frame: true in SFrame, false in CFI"},
		{"signal in both", amd64, function{letters: "S"}, sframe.FDE{Signal: true}, nil, ""},
		{"key B in CFI", aarch64, function{letters: "B"}, sframe.FDE{}, nil,
			"signing key B: false in SFrame, true in CFI"},
		{"key B in SFrame", aarch64, function{}, sframe.FDE{KeyB: true}, nil,
			"signing key B: true in SFrame, false in CFI"},
		{"key B in both", aarch64, function{letters: "B"}, sframe.FDE{KeyB: true}, nil, ""},
		{"outermost in CFI", amd64, function{code: []byte{0x07, 16}}, sframe.FDE{}, nil,
			"outermost frame: false in SFrame, true in CFI"},
		{"outermost in SFrame", amd64, function{}, sframe.FDE{}, &last,
			"outermost frame: true in SFrame, false in CFI"},
		{"outermost in both", amd64, function{code: []byte{0x07, 16}}, sframe.FDE{}, &last, ""},
		{"signed in CFI", aarch64, function{code: []byte{0x2d}}, sframe.FDE{}, nil,
			"return address signed: false in SFrame, state 1 in CFI"},
		{"signed in SFrame", aarch64, function{}, sframe.FDE{}, &signed,
			"return address signed: true in SFrame, state 0 in CFI"},
		{"signed in both", aarch64, function{code: []byte{0x2d}}, sframe.FDE{}, &signed, ""},
		{"signed with pc in CFI", aarch64, function{code: []byte{0x2c}}, sframe.FDE{}, nil,
			"return address signed: false in SFrame, state 2 in CFI"},
		{"signed with pc in CFI, signed in SFrame", aarch64, function{code: []byte{0x2c}}, sframe.FDE{}, &signed,
			"return address signed: true in SFrame, state 2 in CFI"},
		{"signed or not", aarch64, function{code: []byte{0x09, 34, 2}}, sframe.FDE{}, nil,
			"return address signed: false in SFrame, state 3 in CFI"},
		{"malformed CFI", amd64, function{code: []byte{0x0b}}, sframe.FDE{}, nil,
			"SFrame describes a function whose CFI is malformed (.eh_frame+0x2d: restore_state without a " +
				"remember_state)"},
		{"malformed CFI, outermost in SFrame", amd64, function{code: []byte{0x0b}}, sframe.FDE{}, &last,
			"SFrame describes a function whose CFI is malformed"},
	} {
		tt.fn.begin, tt.fn.end = 0x1000, 0x1010
		tt.fde.Start, tt.fde.Size = 0x1000, 0x10
		r := plain[tt.p.abi]
		if tt.row != nil {
			r = *tt.row
		}
		want := Result{Amounts: amounts.Amounts{Described: 0x10, Covered: 0x10}, keep: 10}
		if tt.want != "" {
			want.Covered, want.Total = 0, 1
		}
		res, err := Check(tt.p.cfi(t, tt.fn), tt.p.section(t, sframe.V3, fde{tt.fde, one(r)}), bareFile(elf.ET_DYN),
			Options{Keep: 10})
		if err != nil {
			t.Errorf("%v, %s: %v", tt.p.machine, tt.name, err)
			continue
		}
		found := res.Mismatches
		res.Mismatches = nil
		if !reflect.DeepEqual(*res, want) || len(found) != want.Total || len(found) > 0 &&
			!strings.HasPrefix(found[0].String(), "0x1000-0x1010: "+tt.want) {
			t.Errorf("%v, %s: %+v, mismatches %v, want %q", tt.p.machine, tt.name, res, found, tt.want)
		}
	}
}

// TestPlaces checks CFI whose CFA depends on the low 4 bits of the pc, as in GNU ld's CFI for PLTs, or on more of its
// bits. In a file that can be relocated, the CFA must be the same at every load address.
func TestPlaces(t *testing.T) {
	// rsp + 8 + (((rip & mask) >= half) << 3)
	expression := func(mask, half byte) []byte {
		return []byte{0x0f, 11, 0x77, 8, 0x80, 0, 0x30 + mask, 0x1a, 0x30 + half, 0x2a, 0x33, 0x24, 0x22}
	}
	plt := expression(15, 8)
	// rsp + 8 + (((rip & 0x1000) != 0) << 3)
	wide := []byte{0x0f, 13, 0x77, 8, 0x80, 0, 0x0a, 0, 0x10, 0x1a, 0x30, 0x2e, 0x33, 0x24, 0x22}
	two := spRows(0, 8, 8, 16, 16, 8, 24, 16)
	const depends = "CFI depends on the load address: SFrame has CFA rsp+"
	object := func(align uint64) *elffile.File {
		b := image(t, elf.ET_REL, elf.EM_X86_64, amd64.order,
			[]region{{name: ".text", code: make([]byte, 0x2000), apart: true}})
		at := int(amd64.order.Uint64(b[0x28:])) + 64 + 48 // e_shoff, and sh_addralign of section 1
		amd64.order.PutUint64(b[at:], align)
		return openImage(t, strings.NewReader(string(b)), len(b))
	}
	for _, tt := range []struct {
		name string
		file *elffile.File
		code []byte
		rows []sframe.FRE
		want string
	}{
		{"16 bytes, moved by pages", bareFile(elf.ET_DYN), plt, two, ""},
		{"16 bytes, a wrong row later", bareFile(elf.ET_DYN), plt, spRows(0, 8, 8, 16, 16, 8, 23, 16),
			"0x1017-0x1020: CFA differs"},
		{"16 bytes, a missing row later", bareFile(elf.ET_DYN), plt, spRows(0, 8, 8, 16, 16, 8),
			"0x1018-0x1020: CFA differs"},
		{"32 bytes, rows as for 16", bareFile(elf.ET_EXEC), expression(31, 24), spRows(0, 8, 8, 16),
			"0x1008-0x1020: CFA differs"},
		{"32 bytes", bareFile(elf.ET_DYN), expression(31, 24), spRows(0, 8, 24, 16), ""},
		{"16 bytes, a row at the wrong offset", bareFile(elf.ET_DYN), plt, spRows(0, 8, 9, 16, 16, 8),
			"0x1008-0x1009: CFA differs"},
		{"16 bytes, fixed", bareFile(elf.ET_EXEC), plt, two, ""},
		{"two pages, moved by pages", bareFile(elf.ET_DYN), wide, spRows(0, 16), depends},
		{"two pages, fixed", bareFile(elf.ET_EXEC), wide, spRows(0, 16), ""},
		{"16 bytes, an object's section aligned to 16", object(16), plt, two, ""},
		{"16 bytes, an object's section aligned to 32", object(32), plt, two, ""},
		{"16 bytes, an object's section aligned to 8", object(8), plt, two, depends},
		{"16 bytes, an object's section aligned to 1", object(1), plt, two, depends},
		{"16 bytes, an object's section aligned to 24", object(24), plt, two, depends},
		{"16 bytes, an object's section aligned to four pages", object(0x4000), plt, two, ""},
		{"16 bytes, an object without sections", bareFile(elf.ET_REL), plt, two, depends},
	} {
		base := uint64(0x1000)
		if len(tt.file.Sections) > 0 {
			base = tt.file.Sections[1].Base
		}
		table := amd64.cfi(t, function{begin: base, end: base + 0x20, code: tt.code})
		s := amd64.section(t, sframe.V2, fde{sframe.FDE{Start: base, Size: 0x20}, tt.rows})
		res, err := Check(table, s, tt.file, Options{Keep: 10})
		switch {
		case err != nil || tt.want == "" && (res.Total > 0 || res.Covered != 0x20):
			t.Errorf("%s: %+v, error %v", tt.name, res, err)
		case tt.want != "" && (res.Total == 0 || !strings.Contains(res.Mismatches[0].String(), tt.want)):
			t.Errorf("%s: %+v, want %q", tt.name, res, tt.want)
		}
	}
}

// TestPlacesApart checks identical CFI in two sections of an object. The second section is aligned to less than 16
// bytes.
func TestPlacesApart(t *testing.T) {
	f := fileOf(t, elf.ET_REL, elf.EM_X86_64, amd64.order, region{name: ".a", code: make([]byte, 0x10), apart: true},
		region{name: ".b", code: make([]byte, 0x10), apart: true})
	var fns []function
	var fdes []fde
	for i, align := range []uint64{16, 8} {
		f.Sections[i+1].Addralign = align
		begin := f.Sections[i+1].Base
		fns = append(fns, function{begin: begin, end: begin + 0x10,
			code: []byte{0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x38, 0x2a, 0x33, 0x24, 0x22}})
		fdes = append(fdes, fde{sframe.FDE{Start: begin, Size: 0x10}, spRows(0, 8, 8, 16)})
	}
	res, err := Check(amd64.cfi(t, fns...), amd64.section(t, sframe.V2, fdes...), f, Options{Keep: 9})
	if err != nil || res.Covered != 0x10 || res.Total == 0 || res.Mismatches[0].Begin != fns[1].begin {
		t.Errorf("%+v, error %v", res, err)
	}
}

// TestHeader changes the header of a valid section.
func TestHeader(t *testing.T) {
	for _, tt := range []struct {
		at   int
		xor  byte
		want string
	}{
		{6, 8, "fixed offsets of RA and FP are -16 and 0, but the ABI has -8 and 0"},
		{5, 8, "fixed offsets of RA and FP are -8 and 8, but the ABI has -8 and 0"},
		{3, 1, "FDEs are not marked as sorted"},
		{3, 2, "section claims that every function keeps a frame pointer"},
	} {
		data := amd64.encode(t, sframe.V2, fde{sframe.FDE{Start: 0x1000, Size: 8}, spRows(0, 8)})
		data[tt.at] ^= tt.xor
		res, err := Check(amd64.cfi(t, function{begin: 0x1000, end: 0x1008}), decodeSection(t, data),
			bareFile(elf.ET_DYN), Options{Keep: 2})
		if err != nil || res.Total != 1 || res.Mismatches[0].What != tt.want {
			t.Errorf("byte %d: %+v, error %v; want %q", tt.at, res, err, tt.want)
		}
	}
}

// TestColumns describes two functions with the same rows. Their CIEs differ only in the return address column.
func TestColumns(t *testing.T) {
	table := aarch64.cfi(t, function{begin: 0x1000, end: 0x1010}, function{begin: 0x1010, end: 0x1020, column: 17})
	row := one(sframe.Row{CFA: at(sframe.SP, 0)})
	res, err := Check(table, aarch64.section(t, sframe.V2, fde{sframe.FDE{Start: 0x1000, Size: 0x20}, row}),
		bareFile(elf.ET_DYN), Options{Keep: 2})
	if err != nil || res.Covered != 0x10 || res.Total != 1 || res.Mismatches[0].Begin != 0x1010 {
		t.Errorf("%+v, error %v", res, err)
	}
}

// TestMasked checks PC-mask FDEs whose rows agree with the CFI where both exist.
func TestMasked(t *testing.T) {
	for _, tt := range []struct {
		name       string
		start      uint64
		size       uint32
		rep, front uint8 // size of a block, and offset of its first row, in bytes
		covered    uint64
		want       string
	}{
		{"whole blocks", 0x1000, 32, 16, 0, 32, ""},
		{"rows from byte 4", 0x1000, 32, 16, 4, 24, ""},
		{"blocks of 24 bytes, in code that moves by pages", 0x1008, 48, 24, 4, 0,
			"blocks of 24 bytes change if the code moves by 4096"},
		{"from the middle of a block", 0x1001, 32, 16, 4, 0, "readers interpret differently"},
	} {
		data := amd64.encode(t, sframe.V2, fde{sframe.FDE{Start: tt.start, Size: tt.size, PCMask: true,
			RepSize: tt.rep}, spRows(0, 8)})
		data[28+20] = tt.front // where the row starts
		res, err := Check(amd64.cfi(t, function{begin: 0x1000, end: 0x1040}), decodeSection(t, data),
			bareFile(elf.ET_DYN), Options{Keep: 2})
		if err != nil || res.Covered != tt.covered || (res.Total > 0) != (tt.want != "") ||
			res.Total > 0 && !strings.Contains(res.Mismatches[0].What, tt.want) {
			t.Errorf("%s: %+v, error %v; want %d bytes covered, %q", tt.name, res, err, tt.covered, tt.want)
		}
	}
}

// TestForeignMachine checks a section against CFI for a different machine or byte order.
func TestForeignMachine(t *testing.T) {
	section := amd64.section(t, sframe.V2)
	for _, p := range []platform{aarch64, s390x, {machine: elf.EM_X86_64, order: binary.BigEndian, column: 16}} {
		res, err := Check(p.cfi(t), section, bareFile(elf.ET_DYN), Options{})
		if err == nil || !strings.Contains(err.Error(), "does not match machine") {
			t.Errorf("%v, %v: %+v, error %v", p.machine, p.order, res, err)
		}
	}
	if res, err := Check(amd64.cfi(t), section, bareFile(elf.ET_DYN), Options{}); err != nil ||
		!reflect.DeepEqual(res, &Result{}) {
		t.Errorf("nothing at all: %+v, error %v", res, err)
	}
}

// blocks returns an FDE at 0x1000 with the given number of two-byte blocks of two rows each.
func blocks(n uint32) fde {
	rows := []sframe.FRE{{Row: sframe.Row{CFA: at(sframe.SP, 16)}}, {Start: 1, Row: sframe.Row{CFA: at(sframe.SP, 24)}}}
	return fde{sframe.FDE{Start: 0x1000, Size: 2 * n, PCMask: true, RepSize: 2}, rows}
}

// TestLimits exceeds the limits on mismatches, on rows for unknown code, and on blocks.
func TestLimits(t *testing.T) {
	t.Parallel()
	f := &elffile.File{Header64: elf.Header64{Type: uint16(elf.ET_DYN)}, Progs: []elf.Prog64{{
		Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_X), Vaddr: 0x1000, Filesz: 1 << 26,
	}}}
	for _, tt := range []struct {
		name   string
		blocks uint32
		fns    []function
		ended  bool
		total  int
		err    string
	}{
		{"all mismatches", maxTotal / 2, []function{{begin: 0x1000, end: 0x1000 + maxTotal}}, false, maxTotal, ""},
		{"one more, and a block without CFI", maxTotal/2 + 2, []function{{begin: 0x1002, end: 0x1004 + maxTotal}}, true,
			maxTotal + 1, ""},
		{"all rows for code without CFI", maxOrphans / 2, nil, false, 1, ""},
		{"one more", maxOrphans/2 + 1, nil, false, 0,
			"SFrame describes code that CFI does not: at 0x101000, the number of rows exceeds the limit of 1048576"},
		{"all blocks", maxBlocks / 2, []function{{begin: 0x1000, end: 0x1000 + maxBlocks, code: []byte{0x0b}}}, true,
			maxTotal + 1, ""},
	} {
		res, err := Check(amd64.cfi(t, tt.fns...), amd64.section(t, sframe.V2, blocks(tt.blocks)), f,
			Options{Keep: 3, Workers: 2})
		switch {
		case tt.err != "":
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: %+v, error %v, want %q", tt.name, res, err, tt.err)
			}
		case err != nil || res.Ended != tt.ended || res.Total != tt.total || len(res.Mismatches) != min(tt.total, 3):
			t.Errorf("%s: %+v, error %v; want ended %t, %d mismatches", tt.name, res, err, tt.ended, tt.total)
		}
	}
}

// TestManyBlocks checks the limit on rows in the blocks of PC-mask FDEs.
func TestManyBlocks(t *testing.T) {
	for before, want := range map[uint64]string{maxBlocks - 16: "",
		maxBlocks - 15: "PC-mask FDEs repeat rows: with FDE 0 at 0x1000, they exceed the limit of 4194304 rows"} {
		s := segments{reader: amd64.section(t, sframe.V2, blocks(8)).NewReader(), after: 1, maxRows: 2,
			blocks: before, limit: math.MaxUint64, masked: func(*sframe.FDE) bool { return true }}
		n, err := 0, s.load(0)
		for ; err == nil && s.begin < math.MaxUint64; n++ {
			err = s.skip(s.end)
		}
		if (err != nil) != (want != "") || err != nil && err.Error() != want || err == nil && n != 16 {
			t.Errorf("%d rows are visited, error %v; want %q", n, err, want)
		}
	}
}

// TestManyRows checks the limit on the total number of rows if FDEs share them.
func TestManyRows(t *testing.T) {
	d := fde{sframe.FDE{Start: 0x1000, Size: 0x10}, []sframe.FRE{{Row: sframe.Row{CFA: at(sframe.SP, 8)}},
		{Start: 1, Row: sframe.Row{CFA: at(sframe.SP, 16)}}}}
	for maxRows, want := range map[uint64]string{2: "",
		1: "FDEs share rows: with FDE 0 at 0x1000, they exceed the limit of 1 rows"} {
		s := segments{reader: amd64.section(t, sframe.V2, d).NewReader(), after: 1,
			limit: math.MaxUint64, maxRows: maxRows}
		err := s.load(0)
		if (err != nil) != (want != "") || err != nil && err.Error() != want {
			t.Errorf("at most %d rows: error %v, want %q", maxRows, err, want)
		}
	}
}

// TestBeyond checks overlapping FDEs, and FDEs that extend beyond all code.
func TestBeyond(t *testing.T) {
	row := one(sframe.Row{CFA: at(sframe.SP, 8)})
	table := amd64.cfi(t, function{begin: 0x1000, end: 0x1020})
	code := func(flags elf.ProgFlag, typ elf.ProgType) *elffile.File {
		f := bareFile(elf.ET_DYN)
		f.Progs = []elf.Prog64{{Type: uint32(typ), Flags: uint32(flags), Vaddr: 0x1020, Filesz: 0x10, Memsz: 0x1000}}
		return f
	}
	loaded, everything := code(elf.PF_X, elf.PT_LOAD), code(elf.PF_X, elf.PT_LOAD)
	everything.Progs[0].Filesz = ^uint64(0) - 0x1020
	for _, tt := range []struct {
		name string
		f    *elffile.File
		fdes []fde
		want string
	}{
		{"overlapping", loaded, []fde{{sframe.FDE{Start: 0x1000, Size: 0x11}, row},
			{sframe.FDE{Start: 0x1010, Size: 0x10}, row}},
			"FDE 1 at 0x1010 overlaps the previous one, or wraps around"},
		{"adjacent", loaded, []fde{{sframe.FDE{Start: 0x1000, Size: 0x10}, row},
			{sframe.FDE{Start: 0x1010, Size: 0x10}, row}}, ""},
		{"up to the end of code", loaded, []fde{{sframe.FDE{Start: 0x1020, Size: 0x10}, row}}, ""},
		{"a byte more", loaded, []fde{{sframe.FDE{Start: 0x1020, Size: 0x11}, row}},
			"FDE 0 at 0x1020, 0x11 bytes, extends beyond the code that CFI describes"},
		{"around the end of the address space", everything, []fde{{sframe.FDE{Start: ^uint64(0) - 7, Size: 16}, row}},
			"overlaps the previous one, or wraps around"},
		{"data after the code", code(elf.PF_R, elf.PT_LOAD), []fde{{sframe.FDE{Start: 0x1020, Size: 0x10}, row}},
			"extends beyond"},
		{"a note segment after the code", code(elf.PF_X, elf.PT_NOTE),
			[]fde{{sframe.FDE{Start: 0x1020, Size: 0x10}, row}}, "extends beyond"},
	} {
		_, err := Check(table, amd64.section(t, sframe.V3, tt.fdes...), tt.f, Options{})
		if (err != nil) != (tt.want != "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q", tt.name, err, tt.want)
		}
	}
}

// TestAfterLastFunction checks a malformed FDE after all code that CFI describes: the FDE's last FRE starts at the
// FDE's end.
func TestAfterLastFunction(t *testing.T) {
	data := amd64.encode(t, sframe.V2, fde{sframe.FDE{Start: 0x1000, Size: 8}, spRows(0, 8)},
		fde{sframe.FDE{Start: 0x1010, Size: 8}, spRows(0, 8, 6, 16)})
	data[28+20+4] = 6 // sfde_func_size of the second FDE
	f := bareFile(elf.ET_DYN)
	f.Progs = []elf.Prog64{{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_X), Vaddr: 0x1000, Filesz: 0x100}}
	res, err := Check(amd64.cfi(t, function{begin: 0x1000, end: 0x1008}), decodeSection(t, data), f, Options{})
	if err == nil || !strings.Contains(err.Error(), "FRE starts at 0x6") {
		t.Errorf("%+v, error %v", res, err)
	}
}

// TestNoRows checks FDEs without FREs, which describe nothing, before and after an FDE with FREs.
func TestNoRows(t *testing.T) {
	data := amd64.encode(t, sframe.V2, fde{sframe.FDE{Start: 0x1000, Size: 8}, spRows(0, 8)},
		fde{sframe.FDE{Start: 0x1008, Size: 8}, spRows(0, 8)}, fde{sframe.FDE{Start: 0x1010, Size: 8}, spRows(0, 8)})
	for _, i := range []int{0, 2} {
		data[28+20*i+12] = 0 // sfde_func_num_fres
	}
	data[12] = 1 // sfh_num_fres
	table := amd64.cfi(t, function{begin: 0x1000, end: 0x1008}, function{begin: 0x1008, end: 0x1010},
		function{begin: 0x1010, end: 0x1018})
	res, err := Check(table, decodeSection(t, data), bareFile(elf.ET_DYN), Options{})
	if err != nil || res.Total > 0 || res.Described != 24 || res.Covered != 8 || res.Outermost != 0 {
		t.Errorf("%+v, error %v", res, err)
	}
}

// TestOverlap checks an FDE whose first bytes belong to the preceding function.
func TestOverlap(t *testing.T) {
	table := amd64.cfi(t, function{begin: 0x1000, end: 0x1008},
		function{begin: 0x1004, end: 0x1010, code: []byte{0x48, 0x0e, 16}}) // advance_loc 8, def_cfa_offset 16
	s := amd64.section(t, sframe.V2, fde{sframe.FDE{Start: 0x1000, Size: 16}, spRows(0, 8, 12, 16)})
	res, err := Check(table, s, bareFile(elf.ET_DYN), Options{})
	if err != nil || res.Total > 0 || res.Covered != 16 {
		t.Errorf("%+v, error %v", res, err)
	}
}

// TestShadowed checks rows for code that two FDEs describe. They must agree with both, whether or not the table says
// that the code is disputed.
func TestShadowed(t *testing.T) {
	fns := []function{{begin: 0x1000, end: 0x1020}, {begin: 0x1008, end: 0x1010, code: []byte{0x44, 0x0e, 16}}}
	for _, tt := range []struct {
		name string
		last function // instead of the last of fns
		fdes []fde
		want []string
	}{
		{"no row", fns[1], []fde{{sframe.FDE{Start: 0x1000, Size: 12}, spRows(0, 8)},
			{sframe.FDE{Start: 0x1010, Size: 16}, spRows(0, 8)}}, nil},
		{"the first", fns[1], []fde{{sframe.FDE{Start: 0x1000, Size: 32}, spRows(0, 8)}},
			[]string{"0x100c-0x1010: SFrame describes a function whose CFI is malformed",
				"0x100c-0x1010: CFA differs: SFrame has CFA rsp+8, RA none, FP none; CFI has CFA rsp+16, RA c-8"}},
		{"the second", fns[1], []fde{{sframe.FDE{Start: 0x1000, Size: 32}, spRows(0, 8, 12, 16, 16, 8)}},
			[]string{"0x100c-0x1010: SFrame describes a function whose CFI is malformed"}},
		{"signal frame", function{begin: 0x1008, end: 0x1010, letters: "S"},
			[]fde{{sframe.FDE{Start: 0x1000, Size: 32}, spRows(0, 8)}},
			[]string{"0x1008-0x1010: SFrame describes a function whose CFI is malformed",
				"0x1008-0x1010: signal frame: false in SFrame, "}},
		{"malformed", function{begin: 0x1008, end: 0x1010, code: []byte{0x3f}},
			[]fde{{sframe.FDE{Start: 0x1000, Size: 32}, spRows(0, 8)}},
			[]string{"0x1008-0x1010: SFrame describes a function whose CFI is malformed (.eh_frame",
				"0x1008-0x1010: SFrame describes a function whose CFI is malformed (.eh_frame"}},
	} {
		table := amd64.parse(t, fns[0], tt.last)
		res, err := Check(table, amd64.section(t, sframe.V3, tt.fdes...), bareFile(elf.ET_DYN), Options{Keep: 9})
		if err != nil || res.Total != len(tt.want) {
			t.Errorf("%s: %+v, error %v", tt.name, res, err)
			continue
		}
		for i, m := range res.Mismatches {
			if !strings.HasPrefix(m.String(), tt.want[i]) {
				t.Errorf("%s: %v, want %s", tt.name, m, tt.want[i])
			}
		}
	}
}

// TestAllSteps checks the limit on the total number of steps of all expressions.
func TestAllSteps(t *testing.T) {
	t.Parallel()
	// rsp + 8, and a loop that counts down from 2000: const2u; 3: lit1; minus; dup; bra 3; drop. Then the pc is pushed
	// and dropped.
	code := []byte{0x77, 8, 0x0a, 0xd0, 0x07, 0x31, 0x1c, 0x12, 0x28, 0xfa, 0xff, 0x13, 0x80, 0, 0x13}
	code = append([]byte{0x0f, byte(len(code))}, code...)
	for size, want := range map[uint64]string{0x10: "",
		0x2000: "function at 0x1000: CFA: expressions exceed the limit of 33554432 steps"} {
		s := amd64.section(t, sframe.V2, fde{sframe.FDE{Start: 0x1000, Size: uint32(size)},
			one(sframe.Row{CFA: at(sframe.SP, 8)})})
		res, err := Check(amd64.cfi(t, function{begin: 0x1000, end: 0x1000 + size, code: code}), s,
			bareFile(elf.ET_EXEC), Options{Keep: 1})
		if want == "" && (err != nil || res.Covered != size) || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("%#x bytes: %+v, error %v, want %q", size, res, err, want)
		}
	}
}

// TestSplit divides functions and FDEs into parts at addresses where both a function and an FDE start.
func TestSplit(t *testing.T) {
	var fns []function
	for i := range uint64(6) {
		fns = append(fns, function{begin: 0x1000 + 0x100*i, end: 0x1100 + 0x100*i})
	}
	row := one(sframe.Row{CFA: at(sframe.SP, 8)})
	// whole returns an FDE for each function whose index is not in the list left.
	whole := func(first, size uint64, left ...int) (fdes []fde) {
		for i := range uint64(6) {
			if !slices.Contains(left, int(i)) {
				fdes = append(fdes, fde{sframe.FDE{Start: 0x1000 + 0x100*i, Size: 0x100}, row})
			}
		}
		if size > 0 {
			fdes = append(fdes, fde{sframe.FDE{Start: first, Size: uint32(size)}, row})
		}
		return fdes
	}
	for _, tt := range []struct {
		name string
		fns  []function
		fdes []fde
		n    int
		want string // for each part: number of functions, first FDE and the FDE after its last
	}{
		{"one", fns, whole(0, 0), 1, "6:0-6"},
		{"none", fns, whole(0, 0), 0, "6:0-6"},
		{"two", fns, whole(0, 0), 2, "3:0-3 3:3-6"},
		{"three", fns, whole(0, 0), 3, "2:0-2 2:2-4 2:4-6"},
		{"across no boundary", fns, whole(0x1100, 0x200, 1, 2), 3, "3:0-2 1:2-3 2:3-5"},
		{"across a boundary between functions", fns, whole(0x1080, 0x100, 1, 2), 3, "3:0-2 1:2-3 2:3-5"},
		{"nothing for the last", fns, whole(0, 0, 4, 5), 3, "2:0-2 4:2-4"},
		{"nothing for the first", fns, whole(0, 0, 0, 1), 3, "3:0-1 1:1-2 2:2-4"},
		{"nothing", fns, nil, 3, "6:0-0"},
		{"after all functions", fns, whole(0x2000, 0x10), 2, "3:0-3 3:3-7"},
	} {
		words := func(table *cfi.Table, s *sframe.Section) string {
			var w []string
			for _, c := range split(table, s, tt.n) {
				w = append(w, fmt.Sprintf("%d:%d-%d", c.table.Len(), c.segs.index, c.segs.after))
			}
			return strings.Join(w, " ")
		}
		table := amd64.cfi(t, tt.fns...)
		data := amd64.encode(t, sframe.V2, tt.fdes...)
		if got := words(table, decodeSection(t, data)); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
		data[3] &^= byte(sframe.FDESorted)
		if got, want := words(table, decodeSection(t, data)), fmt.Sprintf("6:0-%d", len(tt.fdes)); got != want {
			t.Errorf("%s, not marked as sorted: %s, want %s", tt.name, got, want)
		}
	}
}

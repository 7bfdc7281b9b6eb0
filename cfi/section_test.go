package cfi

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/arch"
	"cfi2sframe/internal/gopclntab"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/must"
)

// Addresses of the sections in tinyELF.
const (
	textAddr  = 0x1000
	textSize  = 0x10000
	frameAddr = 0x20000
)

// A target is a machine with a byte order.
type target struct {
	machine elf.Machine
	order   elftest.Order
}

var (
	amd64     = target{elf.EM_X86_64, binary.LittleEndian}
	aarch64   = target{elf.EM_AARCH64, binary.LittleEndian}
	aarch64BE = target{elf.EM_AARCH64, binary.BigEndian}
	s390x     = target{elf.EM_S390, binary.BigEndian}

	targets = []target{amd64, aarch64, aarch64BE, s390x}
)

// tinyELF returns a linked file with executable code at textAddr, the given section at frameAddr, and section headers.
func tinyELF(t testing.TB, tg target, name string, data []byte) *elffile.File {
	t.Helper()
	const off = elffile.HeaderSize + elffile.ProgSize
	o := elftest.Object{Big: tg.order == binary.BigEndian}
	o.Header = elf.Header64{
		Type: uint16(elf.ET_DYN), Machine: uint16(tg.machine), Phentsize: elffile.ProgSize, Phnum: 1,
		Phoff: elffile.HeaderSize,
	}
	load := elf.Prog64{
		Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R), Off: off, Vaddr: frameAddr,
		Filesz: uint64(len(data)), Memsz: uint64(len(data)),
	}
	o.Head = append(elftest.Append(make([]byte, elffile.HeaderSize), tg.order, &load), data...)
	o.Add("", elf.SHT_NULL, 0, nil)
	text := o.Add(".text", elf.SHT_NOBITS, elf.SHF_ALLOC|elf.SHF_EXECINSTR, nil) // its contents do not matter
	o.At(text, 0, textSize)
	flags := elf.SectionFlag(0)
	if name == ".eh_frame" {
		flags = elf.SHF_ALLOC
	}
	section := o.Add(name, elf.SHT_PROGBITS, flags, nil)
	o.At(section, off, uint64(len(data)))
	o.Sections[text].Addr, o.Sections[section].Addr = textAddr, frameAddr
	o.Names()
	return elftest.Parse(t, o.Bytes())
}

// A writer builds a section of CFI.
type writer struct {
	target
	elftest.Frames
}

// ehFrame and debugFrame return a writer for an empty section.
func ehFrame(tg target) *writer    { return &writer{tg, elftest.Frames{Order: tg.order}} }
func debugFrame(tg target) *writer { return &writer{tg, elftest.Frames{Order: tg.order, Debug: true}} }

// plainCIE is version 1 without augmentation: code alignment 1, data alignment -8, return address column 16, CFA =
// r7+8, RA at CFA-8.
var plainCIE = []byte{1, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1}

// loadRows loads the section and returns the rows of its only function.
func loadRows(t *testing.T, tg target, name string, data []byte) ([]row, error) {
	t.Helper()
	table, err := Load(tinyELF(t, tg, name, data), Auto, nil)
	if err != nil {
		return nil, err
	}
	if len(table.Errors) > 0 {
		return nil, table.Errors[0]
	}
	if table.Len() != 1 {
		t.Fatalf("%d functions, want 1 (dropped: %+v)", table.Len(), table.Dropped)
	}
	fn := table.At(0)
	var out []row
	for r := range fn.Rows() {
		out = append(out, row{r.Begin, r.End, *r.Rules})
	}
	return out, fn.Err()
}

type row struct {
	begin, end uint64
	Rules
}

// TestPointerEncodings encodes the start of a function in ways that FuzzStructured does not use.
func TestPointerEncodings(t *testing.T) {
	const start = textAddr + 0x40
	for _, tg := range targets {
		for _, enc := range []byte{
			0x33, 0x3b, // data-relative; without .got, relative to 0
			0x43, 0x4b, // function-relative; for the function itself, relative to 0
			0x50,       // aligned
			0x80, 0x9b, // indirect
		} {
			w := ehFrame(tg)
			cie := w.Shared([]byte("\x01zR\x00"), []byte{1, 0x78, 16, 1, enc, 0x0c, 7, 8, 0x90, 1})
			field := frameAddr + uint64(w.Next())
			value := uint64(start)
			indirect := enc&0x80 != 0
			if indirect { // the pointer follows the FDE
				value = field + 64
			}
			var body []byte
			switch enc & 0x70 {
			case 0x10:
				value -= field
			case 0x50:
				body = make([]byte, -field%8)
			}
			if enc&7 == 3 {
				body = elftest.Append(body, tg.order, []uint32{uint32(value), 0x80})
			} else {
				body = elftest.Append(body, tg.order, []uint64{value, 0x80})
			}
			set := []byte{0}
			if enc&0x77 == 0x43 { // set_loc is relative to the start of the function
				set = append(tg.order.AppendUint32([]byte{0, 1}, 0x20), 0x0e, 16)
			}
			w.Entry(cie, body, set)
			if indirect {
				w.B = append(w.B, make([]byte, int(field-frameAddr)+64-len(w.B))...)
				w.B = tg.order.AppendUint64(w.B, start)
			}
			table := must.Get(Load(tinyELF(t, tg, ".eh_frame", w.B), EHFrame, nil))(t)
			row, _ := table.Lookup(start + 0x20)
			if table.Len() != 1 || table.At(0).Begin != start || table.At(0).End != start+0x80 ||
				len(set) > 1 && (row.Begin != start+0x20 || row.CFA.Offset != 16) {
				t.Errorf("%v, encoding %#02x: %+v, row %+v; want %#x-%#x", tg.machine, enc, table, row, start,
					start+0x80)
			}
		}
	}
}

// TestAugmentations checks the meaning of each letter, and the effect of unknown letters.
func TestAugmentations(t *testing.T) {
	sdata4 := []byte{0, 0x10, 0, 0, 0x80, 0, 0, 0}
	tests := []struct {
		aug          string
		data         []byte // the CIE's augmentation data, after its length
		fde          []byte // start, size and augmentation data
		signal, keyB bool
		err          string
	}{
		{aug: "", fde: nil},
		{aug: "z", data: []byte{0}, fde: nil},
		{aug: "zR", data: []byte{1, 0x0b}, fde: slices.Concat(sdata4, []byte{0})},
		{aug: "zRS", data: []byte{1, 0x0b}, fde: slices.Concat(sdata4, []byte{0}), signal: true},
		{aug: "zRB", data: []byte{1, 0x0b}, fde: slices.Concat(sdata4, []byte{0}), keyB: true},
		{aug: "zRBG", data: []byte{1, 0x0b}, fde: slices.Concat(sdata4, []byte{0}), keyB: true},
		{aug: "zPLR", data: []byte{7, 0x1b, 1, 2, 3, 4, 0x1b, 0x0b}, fde: slices.Concat(sdata4, []byte{4, 9, 9, 9, 9})},
		{aug: "zPR", data: []byte{3, 0xff, 0x0b, 0}, fde: slices.Concat(sdata4, []byte{0})},
		{aug: "zPR", data: []byte{4, 0x0a, 1, 2, 0x0b}, fde: slices.Concat(sdata4, []byte{0})},
		{aug: "zPR", data: []byte{4, 0x01, 0x81, 1, 0x0b}, fde: slices.Concat(sdata4, []byte{0})},
		{aug: "zPR", data: []byte{10, 0x04, 1, 2, 3, 4, 5, 6, 7, 8, 0x0b}, fde: slices.Concat(sdata4, []byte{0})},
		{aug: "zPR", data: []byte{16, 0x50, 0, 0, 0, 0, 0, 0, 1, 2, 0xff, 4, 5, 6, 7, 8, 0x0b}, // aligned
			fde: slices.Concat(sdata4, []byte{0})},
		{aug: "zPR", data: append([]byte{10, 0x07}, make([]byte, 9)...),
			err: "pointer encoding 0x07 has an unknown format"},
		{aug: "z" + strings.Repeat("S", maxAugmentation-1), data: []byte{0}, signal: true},
		{aug: "zXPL", data: []byte{0}}, // without R, P and L cannot be found and do not matter
		{aug: "zRX", data: []byte{5, 0x0b, 1, 2, 3, 4}, fde: slices.Concat(sdata4, []byte{0})},
		{aug: "zRXS", data: []byte{2, 0x0b, 1}, fde: slices.Concat(sdata4, []byte{0}), signal: true},
		{aug: "eh", fde: nil},
		{aug: "S", fde: nil, signal: true}, // GNU as in .debug_frame
		{aug: "B", fde: nil, keyB: true},
		{aug: "SBG", fde: nil, signal: true, keyB: true},
		{aug: "GB", fde: nil, keyB: true},
		{aug: "SX", err: "augmentation \"SX\" is unknown"}, // X may have data
		{aug: "RS", err: "augmentation \"RS\" is unknown"}, // R has data
		{aug: "ehS", err: "augmentation \"ehS\" is unknown"},
		{aug: "zXR", data: []byte{2, 1, 0x0b}, err: "pointer encoding (R) after unknown augmentations"},
		{aug: "X", err: "augmentation \"X\" is unknown"},
		{aug: "zR", data: []byte{100, 0x0b}, err: "augmentation data of 100 bytes"},
	}
	for _, tt := range tests {
		w := ehFrame(amd64)
		body := append([]byte{1}, append([]byte(tt.aug), 0)...)
		if tt.aug == "eh" {
			body = append(body, 1, 2, 3, 4, 5, 6, 7, 8)
		}
		body = slices.Concat(body, []byte{1, 0x78, 16}, tt.data, []byte{0x0c, 7, 8, 0x90, 1})
		cie := w.Shared(body)
		fde := tt.fde
		if fde == nil {
			fde = w.Addresses(textAddr, 0x80)
			if strings.HasPrefix(tt.aug, "z") {
				fde = append(fde, 0)
			}
		}
		w.Entry(cie, fde, []byte{0x41, 0x0e, 16})
		table := must.Get(Load(tinyELF(t, amd64, ".eh_frame", w.B), Auto, nil))(t)
		if tt.err != "" {
			if len(table.Errors) != 2 || !strings.Contains(table.Errors[0].Msg, tt.err) ||
				!strings.Contains(table.Errors[1].Msg, "FDE with an invalid CIE") {
				t.Errorf("%q: errors %v, want %q and its FDE", tt.aug, table.Errors, tt.err)
			}
			continue
		}
		if table.Len() != 1 || len(table.Errors) > 0 {
			t.Errorf("%q: %d functions, errors %v", tt.aug, table.Len(), table.Errors)
			continue
		}
		fn := table.At(0)
		if fn.Begin != textAddr || fn.End != textAddr+0x80 || fn.Signal() != tt.signal || fn.KeyB() != tt.keyB {
			t.Errorf("%q: function %#x-%#x, signal %t, key B %t", tt.aug, fn.Begin, fn.End, fn.Signal(), fn.KeyB())
		}
		n := 0
		for range fn.Rows() {
			n++
		}
		if n != 2 || fn.Err() != nil {
			t.Errorf("%q: %d rows, error %v", tt.aug, n, fn.Err())
		}
	}
}

// TestInstructions executes each instruction of DWARF 5, section 6.4.2, and the vendor extensions, and checks the
// resulting rules. Functions use plainCIE unless cie is set.
func TestInstructions(t *testing.T) {
	const (
		sp = "CFA r7+8, RA "
		ra = sp + "c-8, FP "
	)
	for _, tt := range []struct {
		name      string
		cie, code string
		want      string // expected rules, or the end of the error message
	}{
		{"nop", "", "\x00", ra + "none, SP none"},
		{"def_cfa", "", "\x0c\x06\x10", "CFA r6+16, RA c-8, FP none, SP none"},
		{"def_cfa of two bytes", "", "\x0c\x06\x90\x02", "CFA r6+272, RA c-8, FP none, SP none"},
		{"def_cfa, padded register", "", "\x0c\x86\x00\x10", "CFA r6+16, RA c-8, FP none, SP none"},
		{"def_cfa_sf", "", "\x12\x06\x7e", "CFA r6+16, RA c-8, FP none, SP none"},
		{"def_cfa_register", "", "\x0d\x06", "CFA r6+8, RA c-8, FP none, SP none"},
		{"def_cfa_offset", "", "\x0e\x80\x01", "CFA r7+128, RA c-8, FP none, SP none"},
		{"def_cfa_offset_sf", "", "\x13\x7d", "CFA r7+24, RA c-8, FP none, SP none"},
		{"def_cfa_expression", "", "\x0f\x02\x77\x08", "CFA exp 77 08, RA c-8, FP none, SP none"},
		{"def_cfa_register after an expression", "", "\x0e\x18\x0f\x02\x77\x08\x0d\x06",
			"CFA r6+24, RA c-8, FP none, SP none"},
		{"def_cfa_offset after an expression", "", "\x0f\x02\x77\x08\x0e\x18",
			"CFA exp 77 08, RA c-8, FP none, SP none"},
		{"undefined", "", "\x07\x10", sp + "u, FP none, SP none"},
		{"same_value", "", "\x08\x06", ra + "s, SP none"},
		{"offset", "", "\x86\x02", ra + "c-16, SP none"},
		{"offset of two bytes", "", "\x86\x90\x02", ra + "c-2176, SP none"},
		{"offset_extended", "", "\x05\x06\x03", ra + "c-24, SP none"},
		{"offset_extended_sf", "", "\x11\x06\x7f", ra + "c+8, SP none"},
		{"GNU_negative_offset_extended", "", "\x2f\x06\x02", ra + "c+16, SP none"},
		{"val_offset", "", "\x14\x07\x01", ra + "none, SP v-8"},
		{"val_offset_sf", "", "\x15\x07\x7f", ra + "none, SP v+8"},
		{"register", "", "\x09\x10\x02", sp + "r2, FP none, SP none"},
		{"register, then another", "", "\x09\x10\x02\x09\x10\x03", sp + "r3, FP none, SP none"},
		{"expression", "", "\x10\x06\x02\x76\x00", ra + "exp 76 00, SP none"},
		{"val_expression", "", "\x16\x07\x02\x77\x08", ra + "none, SP exp 77 08 (value)"},
		{"restore gives the CIE's rule", "", "\x07\x10\xd0", ra + "none, SP none"},
		{"restore of another register before", "", "\x86\x02\xc6\x00\x00\x00", ra + "none, SP none"},
		{"restore_extended", "", "\x86\x02\x06\x06", ra + "none, SP none"},
		{"remember and restore, also the CFA", "", "\x0a\x0c\x06\x20\x86\x02\x0b", ra + "none, SP none"},
		{"nested remember_state", "", "\x0a\x86\x02\x0a\x86\x03\x0b", ra + "c-16, SP none"},
		{"GNU_args_size", "", "\x2e\x10", ra + "none, SP none"},
		{"other registers", "", "\x83\x02\x07\x03\x09\x03\x04\x10\x03\x01\x30", ra + "none, SP none"},

		// If the return address column is also FP or SP, a single rule describes both. Unwinders read the return
		// address where that register is saved (TestUnwinder).
		{"column FP", "\x06\x0c\x07\x08", "\x86\x01", sp + "c-8, FP c-8, SP none"},
		{"column of one byte", "\x90\x0c\x07\x08", "\x05\x90\x01\x02", sp + "c-16, FP none, SP none"},
		{"column SP", "\x07\x0c\x07\x08", "\x87\x01", sp + "c-8, FP none, SP c-8"},
		{"another column than FP", "\x10\x0c\x07\x08", "\x90\x01\x86\x02", sp + "c-8, FP c-16, SP none"},
		{"column FP, undefined", "\x06\x0c\x07\x08", "\x07\x06", sp + "u, FP u, SP none"},
		{"column FP, restored", "\x06\x0c\x07\x08", "\x86\x01\xc6\x83\x02", sp + "none, FP none, SP none"},

		// GNU as moves into the CIE those instructions of a function that precede the first advance_loc (PR gas/33170).
		// libgcc, gdb and LLVM's libunwind remove the rule of a register that is restored there.
		{"restore in the CIE", "\x10\x0c\x07\x08\xc6", "", sp + "none, FP none, SP none"},
		{"restore_extended in the CIE", "\x10\x0c\x07\x08\x06\x06", "", sp + "none, FP none, SP none"},
		{"restore after a rule", "\x10\x0c\x07\x08\x86\x02\xc6", "", sp + "none, FP none, SP none"},
		{"restore, and a rule in the FDE", "\x10\x0c\x07\x08\xc6", "\x86\x02\xc6", sp + "none, FP none, SP none"},
		{"restore before a rule", "\x10\x0c\x07\x08\xc6\x86\x02", "\x07\x06\xc6", sp + "none, FP c-16, SP none"},
		{"restore between rules", "\x10\x0c\x07\x08\x86\x02\xc6\x86\x02", "\xc6\x00\x00\x00",
			sp + "none, FP c-16, SP none"},
		{"remember in the CIE", "\x10\x0c\x07\x08\x86\x02\x0a\x07\x06\x0b", "", sp + "none, FP c-16, SP none"},
		{"no CFA", "\x10\x0a", "\x0e\x08", "instruction modifies the CFA rule, but there is none"},
		// In libgcc, an FDE's instructions cannot restore a state that its CIE's instructions remembered.
		{"restore_state of the CIE's state", "\x10\x0c\x07\x08\x0a", "\x0b", "restore_state without a remember_state"},
	} {
		w := ehFrame(amd64)
		cie := plainCIE
		if tt.cie != "" {
			cie = append([]byte{1, 0, 1, 0x78}, tt.cie...)
		}
		shared := w.Shared(cie)
		addr := uint64(textAddr)
		// Functions whose instructions differ from tt.code in one bit come first: effects cached for them must not
		// apply to tt.code.
		for bit := range 8 * len(tt.code) {
			code := []byte(tt.code)
			code[bit/8] ^= 1 << (bit % 8)
			w.Entry(shared, w.Addresses(addr, 0x80), code)
			addr += 0x80
		}
		w.Entry(shared, w.Addresses(addr, 0x80), []byte(tt.code))
		w.Entry(shared, w.Addresses(addr+0x80, 0x80)) // at the end of the section, nothing is cached
		table := parse(t, w)
		fn := table.At(table.Len() - 2)
		var rows []row
		for r := range fn.Rows() {
			rows = append(rows, row{r.Begin, r.End, *r.Rules})
		}
		err := fn.Err()
		got := fmt.Sprint(err)
		if err == nil {
			got = rows[0].String()
			if rows[0].SP.Rule == RuleValExpression {
				got += " (value)"
			}
		}
		if !strings.HasSuffix(got, tt.want) {
			t.Errorf("%s: %s; want %s", tt.name, got, tt.want)
		}
	}
}

// TestSigning executes the AArch64 instructions for signed return addresses.
func TestSigning(t *testing.T) {
	for code, want := range map[string]Sign{
		"\x2d": Signed, "\x2d\x2d": Unsigned, "\x2c": SignedWithPC, "\x2c\x2c": Unsigned, "\x2d\x2c": SignUnknown,
		"\x2d\xe2": Unsigned, "\x0a\x2d\x0b": Unsigned, "\x16\x22\x01\x31": SignUnknown, "\x05\x22\x01": SignUnknown,
	} {
		w := ehFrame(aarch64BE)
		w.Entry(w.Shared([]byte{1, 0, 4, 0x78, 30, 0x0c, 31, 0}), w.Addresses(textAddr, 0x80), []byte(code))
		rows, err := loadRows(t, aarch64BE, ".eh_frame", w.B)
		if err != nil || rows[0].Sign != want || strings.HasSuffix(rows[0].String(), ", signed") != (want != Unsigned) {
			t.Errorf("% x: rows %+v, error %v, want %v", code, rows, err, want)
		}
	}
}

// TestFunctions checks which FDEs are used.
func TestFunctions(t *testing.T) {
	w := ehFrame(amd64)
	cie := w.Shared(plainCIE)
	for _, r := range [][2]uint64{
		{textAddr + 0x200, 0x100},
		{textAddr, 0x80},
		{textAddr + 0x40, 0x80},     // half of it overlaps the previous FDE
		{textAddr + 0x50, 0x10},     // overlaps entirely
		{textAddr + 0xc0, 0x10},     // adjacent to the second
		{textAddr + 0x100, 0},       // no code
		{0, 0x10},                   // discarded
		{math.MaxUint64, 0x10},      // discarded
		{math.MaxUint64 - 1, 1},     // discarded
		{frameAddr, 0x10},           // not code
		{textAddr + textSize, 0x10}, // after the code
		{textAddr + 0xfff0, 0x1000}, // longer than the code
		{textAddr + 0x400, math.MaxUint64},
	} {
		w.Entry(cie, w.Addresses(r[0], r[1]))
	}
	table := must.Get(Load(tinyELF(t, amd64, ".eh_frame", w.B), Auto, nil))(t)
	var got [][2]uint64
	for fn := range table.Functions() {
		got = append(got, [2]uint64{fn.Begin, fn.End})
	}
	want := [][2]uint64{{0x1000, 0x1080}, {0x1080, 0x10c0}, {0x10c0, 0x10d0}, {0x1200, 0x1300}}
	if !slices.Equal(got, want) {
		t.Errorf("functions %#x, want %#x", got, want)
	}
	if d := (Dropped{ZeroLength: 1, Discarded: 5, Overlapped: 2}); table.Dropped != d {
		t.Errorf("dropped %+v, want %+v", table.Dropped, d)
	}
	if len(table.Errors) != 2 || !strings.Contains(table.Errors[0].Msg, "executable code ends at 0x11000") ||
		!strings.HasPrefix(table.Errors[1].Msg, "FDE covers 18446744073709551615 bytes at 0x1400") {
		t.Errorf("errors %v", table.Errors)
	}
}

// TestDisputed loads FDEs that share code. Where their rows differ, unwinders find different rows: there must be none.
func TestDisputed(t *testing.T) {
	type fde struct {
		debug       bool
		begin, size uint64 // begin is relative to textAddr
		signal      bool
		code        []byte
	}
	for _, tt := range []struct {
		name string
		fdes []fde
		want string // begin-end:CFA offset; x: no row
	}{
		{"equal", []fde{{size: 16}, {size: 16}}, "0-16:8"},
		{"equal, encoded differently", []fde{{size: 16, code: []byte{0x0e, 16}}, {size: 16, code: []byte{0x0c, 7, 16}}},
			"0-16:16"},
		{"equal where both are", []fde{{size: 16}, {begin: 8, size: 16, code: []byte{0x48, 0x0e, 16}}},
			"0-16:8 16-24:16"},
		{"different", []fde{{size: 16}, {size: 16, code: []byte{0x0e, 16}}}, "0-16:x"},
		{"inside", []fde{{size: 32}, {begin: 8, size: 8, code: []byte{0x44, 0x0e, 16}}}, "0-12:8 12-16:x 16-32:8"},
		{"at the end", []fde{{size: 16}, {begin: 8, size: 16, code: []byte{0x0e, 16}}}, "0-8:8 8-16:x 16-24:16"},
		{"the same start", []fde{{size: 16}, {size: 32, code: []byte{0x44, 0x0e, 16, 0x44, 0x0e, 8}}},
			"0-4:8 4-8:x 8-16:8 16-32:8"},
		{"different twice", []fde{{size: 16, code: []byte{0x44, 0x0e, 24}}, {size: 8, code: []byte{0x0e, 16}}},
			"0-8:x 8-16:24"},
		{"three", []fde{{size: 32}, {begin: 4, size: 8}, {begin: 8, size: 8, code: []byte{0x0e, 16}}},
			"0-8:8 8-16:x 16-32:8"},
		{"the third with the second only", []fde{{size: 8}, {begin: 4, size: 28, code: []byte{0x44, 0x0e, 16}},
			{begin: 12, size: 4}}, "0-8:8 8-12:16 12-16:x 16-32:16"},
		{"signal frame", []fde{{size: 16}, {begin: 8, size: 8, signal: true}}, "0-8:8 8-16:x"},
		{"malformed", []fde{{size: 16}, {begin: 8, size: 8, code: []byte{0x3f}}}, "0-8:8 8-16:x"},
		{"malformed first", []fde{{size: 16, code: []byte{0x3f}}, {begin: 8, size: 16}}, "0-16:malformed 16-24:8"},
		{".debug_frame is not used", []fde{{size: 16}, {debug: true, size: 16, code: []byte{0x0e, 16}},
			{debug: true, size: 24}}, "0-16:8 16-24:8"},
		{".debug_frame", []fde{{size: 8}, {debug: true, size: 16, code: []byte{0x0e, 16}}, {debug: true, size: 24}},
			"0-8:8 8-16:x 16-24:8"},
	} {
		eh, debug := ehFrame(amd64), debugFrame(amd64)
		for _, f := range tt.fdes {
			w := eh
			if f.debug {
				w = debug
			}
			cie := plainCIE
			if f.signal {
				cie = slices.Concat([]byte("\x01S\x00"), plainCIE[2:])
			}
			w.Entry(w.Shared(cie), w.Addresses(textAddr+f.begin, f.size), f.code)
		}
		table := must.Get(Parse(elf.EM_X86_64, binary.LittleEndian, Section{Source: EHFrame, Data: eh.B},
			Section{Source: DebugFrame, Data: debug.B}))(t)
		var got []string
		for fn := range table.Functions() {
			var what []string
			for r := range fn.Rows() {
				what = append(what, fmt.Sprint(r.CFA.Offset))
			}
			switch err := fn.Err(); {
			case fn.Disputed() && len(fn.Steps()) == 0 && strings.HasSuffix(err.Error(),
				fmt.Sprintf("+%#x: another FDE has different rows for the same code", fn.Offset())):
				what = append(what, "x")
			case err != nil:
				what = append(what, "malformed")
			}
			got = append(got, fmt.Sprintf("%d-%d:%s", fn.Begin-textAddr, fn.End-textAddr, strings.Join(what, ",")))
		}
		if s := strings.Join(got, " "); s != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, s, tt.want)
		}
	}
}

// TestDisputeBound loads nested FDEs. Comparing each with all would take too long, so they are disputed although their
// rows are equal.
func TestDisputeBound(t *testing.T) {
	const n = 1 << 14
	w := ehFrame(amd64)
	cie := w.Shared(plainCIE)
	for i := range uint64(n) {
		w.Entry(cie, w.Addresses(textAddr+i, 2*n))
	}
	table := parse(t, w)
	compared, disputed, total := uint64(0), uint64(0), uint64(0)
	for fn := range table.Functions() {
		total += fn.End - fn.Begin
		switch {
		case fn.Disputed():
			disputed += fn.End - fn.Begin
		case disputed == 0:
			compared += fn.End - fn.Begin
		}
	}
	if total != 3*n-1 || len(table.Shadowed()) != n-1 || compared < 200 || disputed < n {
		t.Errorf("%d bytes, %d disputed, %d before them; %d FDEs share code", total, disputed, compared,
			len(table.Shadowed()))
	}
}

// TestZero loads FDEs of a function at address 0. There is no such function if the ELF header is loaded there.
func TestZero(t *testing.T) {
	other := slices.Replace(slices.Clone(plainCIE), 2, 3, 2) // another code alignment
	for _, tt := range []struct {
		off, size uint64 // of the segment at 0
		second    []byte // CIE of a second FDE, or nil
		found     bool
	}{
		{0, 1, nil, false}, {elffile.HeaderSize - 1, 1, nil, false}, {elffile.HeaderSize, 1, nil, true},
		{0, 0, nil, true}, {0, 0, plainCIE, true}, {0, 0, other, false},
	} {
		w := ehFrame(amd64)
		w.Entry(w.Shared(plainCIE), w.Addresses(0, 0x10), []byte{0x0e, 16})
		if tt.second != nil {
			w.Entry(w.Shared(tt.second), w.Addresses(0, 0x10), []byte{0x0e, 16})
		}
		f := tinyELF(t, amd64, ".eh_frame", w.B)
		f.Sections[1].Base = 0
		f.Progs[0].Vaddr, f.Progs[0].Off, f.Progs[0].Filesz = 0, tt.off, tt.size
		table := must.Get(Load(f, EHFrame, nil))(t)
		if row, ok := table.Lookup(0); ok != tt.found || ok && row.CFA.Offset != 16 {
			t.Errorf("%+v: row %+v, discarded: %d", tt, row, table.Dropped.Discarded)
		}
	}
}

// TestGoRows expects the rules that follow from the layout of Go's frames: the CFA is above the frame and the return
// address, which a call pushes on amd64 and the function saves at its SP on aarch64.
func TestGoRows(t *testing.T) {
	x86, arm := arch.Of(elf.EM_X86_64), arch.Of(elf.EM_AARCH64)
	x := newExecutor()
	for _, tt := range []struct {
		a    *arch.Arch
		row  goRow
		want string
	}{
		{x86, goRow{}, "CFA r7+8, RA c-8, FP none, SP none"},
		{x86, goRow{row: gopclntab.Row{Frame: 8, Saved: 8}}, "CFA r7+16, RA c-8, FP c-16, SP none"},
		{x86, goRow{row: gopclntab.Row{Frame: 8}}, "CFA r7+16, RA c-8, FP none, SP none"},
		{x86, goRow{row: gopclntab.Row{Frame: 1, Saved: 1}}, "CFA r7+9, RA c-8, FP c-9, SP none"},
		{arm, goRow{}, "CFA r31+0, RA none, FP none, SP none"},
		{arm, goRow{row: gopclntab.Row{Frame: 8, Saved: 8}}, "CFA r31+8, RA c-8, FP c-8, SP none"},
		{arm, goRow{row: gopclntab.Row{Frame: 8}}, "CFA r31+8, RA c-8, FP none, SP none"},
		{arm, goRow{gopclntab.Injected, 16, gopclntab.Row{Frame: 32, Saved: 40}},
			"CFA r31+48, RA c-48, FP c-56, SP none"},
		{x86, goRow{gopclntab.Switches, 0, gopclntab.Row{Base: gopclntab.OfFP}}, "CFA r6+16, RA c-8, FP c-16, SP none"},
		{x86, goRow{gopclntab.Switches, 0, gopclntab.Row{Base: gopclntab.NoCaller}},
			"CFA r7+8, RA u, FP none, SP none"},
		{x86, goRow{gopclntab.Switches, 0, gopclntab.Row{Base: gopclntab.Unknown}}, "CFA u, RA c-8, FP none, SP none"},
		{arm, goRow{kind: gopclntab.Outermost}, "CFA r31+0, RA u, FP none, SP none"},
		{x86, goRow{kind: gopclntab.SigReturn},
			"CFA exp 77 a0 01 06, RA exp 77 a8 01, FP exp 77 f8 00, SP none"},
	} {
		s := tt.row.rules(tt.a, x)
		n, _ := x.numbering.number(&s)
		if got := x.numbering.rules[n].String(); got != tt.want {
			t.Errorf("%s, %+v: %s; want %s", tt.a.Name, tt.row, got, tt.want)
		}
	}
}

// TestBuilder expects functions with equal rows and CIEs to have the same program, and rows without code to be dropped.
func TestBuilder(t *testing.T) {
	x := newExecutor()
	b := newBuilder(x, func(r InferredRow) state { return r.rules(arch.Of(elf.EM_X86_64)) })
	s := &section{name: Inferred, programs: x.programs}
	cies := []cie{{sec: s}, {sec: s, number: 1}}
	for i, tt := range []struct {
		cie     int
		offs    []uint32 // of rows with the CFA at SP+1, SP+2, ...
		program int
		want    []uint32 // of steps
	}{
		{0, []uint32{0, 4}, 0, []uint32{0, 4}},
		{0, []uint32{0, 4}, 0, []uint32{0, 4}},
		{1, []uint32{0, 4}, 1, []uint32{0, 4}},
		{0, []uint32{0, 5}, 2, []uint32{0, 5}},
		{0, []uint32{0, 0, 4}, 3, []uint32{0, 4}},
	} {
		for n, off := range tt.offs {
			b.row(off, InferredRow{Reg: 7, Offset: int32(n + 1)})
		}
		fn := b.function(textAddr, textAddr+8, 0, &cies[tt.cie])
		var offs []uint32
		for _, st := range fn.Steps() {
			offs = append(offs, st.Off)
		}
		if fn.Program() != tt.program || !slices.Equal(offs, tt.want) || fn.work() != 16+8*len(offs) {
			t.Errorf("function %d: program %d with steps at %d, work %d", i, fn.Program(), offs, fn.work())
		}
	}
	x.numbering.rules = make([]Rules, maxRules)
	b.row(0, InferredRow{Reg: 7, Offset: 100})
	if fn := b.function(textAddr, textAddr+8, 0, &cies[0]); fn.Err() == nil || len(fn.Steps()) > 0 {
		t.Errorf("too many rules: steps %v, error %v", fn.Steps(), fn.Err())
	}
}

// TestExecutable merges code sections separated only by padding, including at the end of the address space.
func TestExecutable(t *testing.T) {
	f := tinyELF(t, amd64, ".eh_frame", nil)
	other := f.Sections[1]
	for _, tt := range []struct {
		begin, gap uint64
		parts      int
	}{
		{0x1000, 0, 1}, {0x1000, 64, 1}, {0x1000, 65, 2}, {0, 16, 1},
		{1<<64 - 0x30, 0, 1}, {1<<64 - 0x30, 0xf, 1}, {1<<64 - 0x100, 65, 2},
	} {
		f.Sections[1].Base, f.Sections[1].Size = tt.begin, 0x10
		other.Base, other.Size = tt.begin+0x10+tt.gap, 0x10
		code := executable(&elffile.File{Sections: append(f.Sections[:2:2], other)})
		if len(code) != tt.parts || code[0].Begin != tt.begin || code[len(code)-1].End != other.Base+0x10 {
			t.Errorf("sections at %#x and %#x: code %#x", tt.begin, other.Base, code)
		}
	}
}

// TestFillParts splits a function into so many parts that their estimated work exceeds maxParts.
func TestFillParts(t *testing.T) {
	const work = 64 << 10 // size of the instructions in bytes
	var a []Function
	for i := range uint64(1000) {
		a = append(a, Function{Begin: 10 * i, End: 10*i + 5})
	}
	table := new(Table)
	fn := Function{Begin: 0, End: 10_000, limit: work, cie: &cie{sec: &section{}}}
	other := Function{Begin: 10_000, End: 10_010, limit: work} // its first part is not dropped
	var parts []Function
	for _, fn := range table.fill(a, []Function{fn, other}) {
		if fn.limit > 0 && fn.Begin < other.Begin {
			parts = append(parts, fn)
		}
	}
	const want = 1 + maxParts/(work+16)
	if len(parts) != want || table.Dropped.Overlapped != 1000-want {
		t.Fatalf("%d parts, and %d are dropped; want %d and %d", len(parts), table.Dropped.Overlapped, want, 1000-want)
	}
	for i, fn := range parts {
		whole := elffile.Span{End: 10_000}
		if begin := 10*uint64(i) + 5; fn.Begin != begin || fn.End != begin+5 || fn.fdeRange() != whole ||
			fn.Program() >= 0 {
			t.Errorf("part %d is %d-%d of %v, with program %d", i, fn.Begin, fn.End, fn.fdeRange(), fn.Program())
		}
	}
}

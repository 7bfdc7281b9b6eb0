package cfi

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/go-delve/delve/pkg/dwarf/frame"

	"cfi2sframe/elffile"
)

// Addresses of the sections of tinyELF.
const (
	textAddr  = 0x1000
	textSize  = 0x10000
	frameAddr = 0x20000
)

// A target is a machine and byte order.
type target struct {
	machine elf.Machine
	order   interface {
		binary.ByteOrder
		binary.AppendByteOrder
	}
}

var (
	amd64     = target{elf.EM_X86_64, binary.LittleEndian}
	aarch64   = target{elf.EM_AARCH64, binary.LittleEndian}
	aarch64BE = target{elf.EM_AARCH64, binary.BigEndian}
	s390x     = target{elf.EM_S390, binary.BigEndian}

	targets = []target{amd64, aarch64, aarch64BE, s390x}
)

// tinyELF returns a linked file with executable code at textAddr, the given
// section at frameAddr, and section headers.
func tinyELF(t testing.TB, tg target, name string, data []byte) *elffile.File {
	t.Helper()
	names := "\x00.text\x00.shstrtab\x00" + name + "\x00"
	h := elf.Header64{
		Type: uint16(elf.ET_DYN), Machine: uint16(tg.machine), Version: 1, Ehsize: 64,
		Phentsize: 56, Phnum: 1, Phoff: 64, Shentsize: 64, Shnum: 4, Shstrndx: 3,
	}
	copy(h.Ident[:], elf.ELFMAG)
	h.Ident[elf.EI_CLASS], h.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS64), 1
	h.Ident[elf.EI_DATA] = byte(elf.ELFDATA2LSB)
	if tg.order.Uint16([]byte{0, 1}) == 1 {
		h.Ident[elf.EI_DATA] = byte(elf.ELFDATA2MSB)
	}
	const dataOff = 64 + 56
	namesOff := uint64(dataOff + len(data))
	h.Shoff = namesOff + uint64(len(names))
	flags := uint64(0)
	if name == ".eh_frame" {
		flags = uint64(elf.SHF_ALLOC)
	}
	sections := []elf.Section64{
		{},
		{Name: 1, Type: uint32(elf.SHT_PROGBITS), Flags: uint64(elf.SHF_ALLOC | elf.SHF_EXECINSTR), Addr: textAddr,
			Size: textSize},
		{Name: uint32(strings.Index(names, name)), Type: uint32(elf.SHT_PROGBITS), Flags: flags, Addr: frameAddr,
			Off: dataOff, Size: uint64(len(data))},
		{Name: 7, Type: uint32(elf.SHT_STRTAB), Off: namesOff, Size: uint64(len(names))},
	}
	sections[1].Type = uint32(elf.SHT_NOBITS) // its contents do not matter
	load := elf.Prog64{
		Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R), Off: dataOff, Vaddr: frameAddr,
		Filesz: uint64(len(data)), Memsz: uint64(len(data)),
	}
	var b bytes.Buffer
	for _, v := range []any{&h, &load} {
		if err := binary.Write(&b, tg.order, v); err != nil {
			t.Fatal(err)
		}
	}
	b.Write(data)
	b.WriteString(names)
	if err := binary.Write(&b, tg.order, sections); err != nil {
		t.Fatal(err)
	}
	f, err := elffile.New(bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// A writer builds CFI records.
type writer struct {
	target
	debug bool // .debug_frame
	wide  bool // 64-bit DWARF
	b     []byte
}

// record appends a record with the given id and contents, and returns where it is.
func (w *writer) record(id uint64, body []byte) int {
	at := len(w.b)
	idSize := 4
	if w.wide && w.debug {
		idSize = 8
	}
	if w.wide {
		w.b = w.order.AppendUint32(w.b, math.MaxUint32)
		w.b = w.order.AppendUint64(w.b, uint64(idSize+len(body)))
	} else {
		w.b = w.order.AppendUint32(w.b, uint32(idSize+len(body)))
	}
	if idSize == 8 {
		w.b = w.order.AppendUint64(w.b, id)
	} else {
		w.b = w.order.AppendUint32(w.b, uint32(id))
	}
	w.b = append(w.b, body...)
	return at
}

func (w *writer) cie(body ...[]byte) int {
	id := uint64(0)
	if w.debug {
		id = math.MaxUint64
	}
	return w.record(id, slices.Concat(body...))
}

func (w *writer) fde(cie int, body ...[]byte) int {
	id := uint64(cie)
	if !w.debug {
		header := 4
		if w.wide {
			header = 12
		}
		id = uint64(len(w.b) + header - cie)
	}
	return w.record(id, slices.Concat(body...))
}

// abs returns an address and a size of 8 bytes each.
func (w *writer) abs(addr, size uint64) []byte {
	return w.order.AppendUint64(w.order.AppendUint64(nil, addr), size)
}

// plainCIE is version 1 without augmentation: code alignment 1, data alignment -8,
// return address column 16, CFA = r7+8, RA at CFA-8.
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

// TestRecords reads the same function from records of every shape.
func TestRecords(t *testing.T) {
	for _, tg := range targets {
		for _, debug := range []bool{false, true} {
			for _, wide := range []bool{false, true} {
				for _, version := range []byte{1, 3, 4} {
					w := &writer{target: tg, debug: debug, wide: wide}
					head := []byte{version, 0}
					if version == 4 {
						head = append(head, 8, 0)
					}
					cie := w.cie(head, []byte{4, 0x78, 16, 0x0c, 7, 8, 0x90, 1, 0, 0})
					w.fde(cie, w.abs(textAddr, 0x100), []byte{0x41, 0x0e, 16, 0x40 | 2, 0x0e, 24})
					name := ".eh_frame"
					if debug {
						name = ".debug_frame"
					}
					rows, err := loadRows(t, tg, name, w.b)
					if err != nil {
						t.Errorf("%v %v wide=%t version %d: %v", tg.machine, name, wide, version, err)
						continue
					}
					want := []struct {
						begin, end uint64
						cfa        int64
					}{{0x1000, 0x1004, 8}, {0x1004, 0x100c, 16}, {0x100c, 0x1100, 24}}
					if len(rows) != len(want) {
						t.Fatalf("%d rows, want %d", len(rows), len(want))
					}
					for i, r := range rows {
						if r.begin != want[i].begin || r.end != want[i].end || r.CFA.Offset != want[i].cfa ||
							r.CFA.Reg != 7 || r.RA.Offset != -8 {
							t.Errorf("%v %v wide=%t version %d row %d: %+v, want %+v", tg.machine, name, wide, version,
								i, r, want[i])
						}
					}
				}
			}
		}
	}
}

// TestPointerEncodings puts the start of a function in every encoding.
func TestPointerEncodings(t *testing.T) {
	const start = textAddr + 0x40
	for _, tg := range targets {
		for _, enc := range []byte{
			0x00, 0x02, 0x03, 0x04, 0x08, 0x0a, 0x0b, 0x0c, 0x01, 0x09, // absolute
			0x10, 0x14, 0x1b, 0x1c, 0x19, // pc-relative, backwards
			0x23, 0x2b, // text-relative
			0x33, 0x3b, // data-relative; there is no .got, so from 0
			0x43, 0x4b, // function-relative, of the function itself: from 0
			0x50,       // aligned
			0x80, 0x9b, // indirect
		} {
			w := &writer{target: tg}
			cie := w.cie([]byte("\x01zR\x00"), []byte{1, 0x78, 16, 1, enc, 0x0c, 7, 8, 0x90, 1})
			field := frameAddr + uint64(len(w.b)) + 8
			base := map[byte]uint64{0x10: field, 0x20: textAddr}[enc&0x70]
			value := start - base
			// A section to point to for the indirect forms: the pointer follows the FDE.
			indirect := enc&0x80 != 0
			if indirect {
				value = field + 64 - base
			}
			put := func(v uint64) []byte {
				switch enc & 0x0f {
				case 0x01:
					return binary.AppendUvarint(nil, v)
				case 0x09: // a signed LEB128 of ten bytes
					var b []byte
					for range 9 {
						b = append(b, byte(v)|0x80)
						v = uint64(int64(v) >> 7)
					}
					return append(b, byte(v)&0x7f)
				case 0x02, 0x0a:
					return w.order.AppendUint16(nil, uint16(v))
				case 0x03, 0x0b:
					return w.order.AppendUint32(nil, uint32(v))
				}
				return w.order.AppendUint64(nil, v)
			}
			var body []byte
			if enc == 0x50 {
				body = make([]byte, -field%8)
			}
			body = slices.Concat(body, put(value), put(0x80), []byte{0})
			w.fde(cie, body)
			if indirect {
				w.b = append(w.b, make([]byte, int(field-frameAddr)+64-len(w.b))...)
				w.b = w.order.AppendUint64(w.b, start)
			}
			table, err := Load(tinyELF(t, tg, ".eh_frame", w.b), EHFrame, nil)
			if err != nil {
				t.Errorf("encoding %#02x: %v", enc, err)
				continue
			}
			if table.Len() != 1 || table.At(0).Begin != start || table.At(0).End != start+0x80 {
				t.Errorf("%v, encoding %#02x: %d functions, errors %v; want %#x-%#x", tg.machine, enc, table.Len(),
					table.Errors, start, start+0x80)
			}
		}
	}
}

// TestAugmentations checks what each letter says, and what unknown ones cost.
func TestAugmentations(t *testing.T) {
	sdata4 := []byte{0, 0x10, 0, 0, 0x80, 0, 0, 0}
	tests := []struct {
		aug          string
		data         []byte // with its length, for the CIE
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
		{aug: "zRX", data: []byte{5, 0x0b, 1, 2, 3, 4}, fde: slices.Concat(sdata4, []byte{0})},
		{aug: "zRXS", data: []byte{2, 0x0b, 1}, fde: slices.Concat(sdata4, []byte{0}), signal: true},
		{aug: "eh", fde: nil},
		{aug: "S", fde: nil, signal: true}, // as GNU as writes .debug_frame
		{aug: "B", fde: nil, keyB: true},
		{aug: "SBG", fde: nil, signal: true, keyB: true},
		{aug: "GB", fde: nil, keyB: true},
		{aug: "SX", err: "augmentation \"SX\" is unknown"}, // X may have data
		{aug: "RS", err: "augmentation \"RS\" is unknown"}, // R has
		{aug: "ehS", err: "augmentation \"ehS\" is unknown"},
		{aug: "zXR", data: []byte{2, 1, 0x0b}, err: "pointer encoding (R) after unknown augmentations"},
		{aug: "X", err: "augmentation \"X\" is unknown"},
		{aug: "zR", data: []byte{100, 0x0b}, err: "augmentation data of 100 bytes"},
	}
	for _, tt := range tests {
		w := &writer{target: amd64}
		body := append([]byte{1}, append([]byte(tt.aug), 0)...)
		if tt.aug == "eh" {
			body = append(body, 1, 2, 3, 4, 5, 6, 7, 8)
		}
		body = slices.Concat(body, []byte{1, 0x78, 16}, tt.data, []byte{0x0c, 7, 8, 0x90, 1})
		cie := w.cie(body)
		fde := tt.fde
		if fde == nil {
			fde = w.abs(textAddr, 0x80)
			if strings.HasPrefix(tt.aug, "z") {
				fde = append(fde, 0)
			}
		}
		w.fde(cie, fde, []byte{0x41, 0x0e, 16})
		table, err := Load(tinyELF(t, amd64, ".eh_frame", w.b), Auto, nil)
		if err != nil {
			t.Fatal(err)
		}
		if tt.err != "" {
			if len(table.Errors) != 2 || !strings.Contains(table.Errors[0].Msg, tt.err) ||
				!strings.Contains(table.Errors[1].Msg, "FDE of a CIE that cannot be used") {
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

// TestInstructions runs each instruction of DWARF 5, section 6.4.2, and the
// vendors' ones, and looks at the rules it leaves.
func TestInstructions(t *testing.T) {
	cfa := func(reg uint64, off int64) Rule { return Rule{Rule: frame.RuleCFA, Reg: reg, Offset: off} }
	offset := func(off int64) Rule { return Rule{Rule: frame.RuleOffset, Offset: off} }
	none := Rule{Rule: frame.RuleArchitectural}
	start := Rules{CFA: cfa(7, 8), RA: offset(-8), FP: none, SP: none}
	with := func(change func(*Rules)) Rules {
		r := start
		change(&r)
		return r
	}
	tests := []struct {
		name string
		code []byte
		want Rules
	}{
		{"nop", []byte{0}, start},
		{"def_cfa", []byte{0x0c, 6, 16}, with(func(r *Rules) { r.CFA = cfa(6, 16) })},
		{"def_cfa_sf", []byte{0x12, 6, 0x7e}, with(func(r *Rules) { r.CFA = cfa(6, 16) })},
		{"def_cfa_register", []byte{0x0d, 6}, with(func(r *Rules) { r.CFA = cfa(6, 8) })},
		{"def_cfa_offset", []byte{0x0e, 0x80, 1}, with(func(r *Rules) { r.CFA = cfa(7, 128) })},
		{"def_cfa_offset_sf", []byte{0x13, 0x7d}, with(func(r *Rules) { r.CFA = cfa(7, 24) })},
		{"def_cfa_expression", []byte{0x0f, 2, 0x77, 8}, with(func(r *Rules) {
			r.CFA = Rule{Rule: frame.RuleExpression, Offset: 8, Expression: []byte{0x77, 8}}
		})},
		{"def_cfa_register after an expression", []byte{0x0e, 24, 0x0f, 2, 0x77, 8, 0x0d, 6},
			with(func(r *Rules) { r.CFA = cfa(6, 24) })},
		{"def_cfa_offset after an expression", []byte{0x0f, 2, 0x77, 8, 0x0e, 24}, with(func(r *Rules) {
			r.CFA = Rule{Rule: frame.RuleExpression, Offset: 24, Expression: []byte{0x77, 8}}
		})},
		{"register, then another", []byte{0x09, 16, 2, 0x09, 16, 3},
			with(func(r *Rules) { r.RA = Rule{Rule: frame.RuleRegister, Reg: 3} })},
		{"undefined", []byte{0x07, 16}, with(func(r *Rules) { r.RA = Rule{Rule: frame.RuleUndefined} })},
		{"same_value", []byte{0x08, 6}, with(func(r *Rules) { r.FP = Rule{Rule: frame.RuleSameVal} })},
		{"offset", []byte{0x86, 2}, with(func(r *Rules) { r.FP = offset(-16) })},
		{"offset_extended", []byte{0x05, 6, 3}, with(func(r *Rules) { r.FP = offset(-24) })},
		{"offset_extended_sf", []byte{0x11, 6, 0x7f}, with(func(r *Rules) { r.FP = offset(8) })},
		{"GNU_negative_offset_extended", []byte{0x2f, 6, 2}, with(func(r *Rules) { r.FP = offset(16) })},
		{"val_offset", []byte{0x14, 7, 1}, with(func(r *Rules) { r.SP = Rule{Rule: frame.RuleValOffset, Offset: -8} })},
		{"val_offset_sf", []byte{0x15, 7, 0x7f},
			with(func(r *Rules) { r.SP = Rule{Rule: frame.RuleValOffset, Offset: 8} })},
		{"register", []byte{0x09, 16, 2}, with(func(r *Rules) { r.RA = Rule{Rule: frame.RuleRegister, Reg: 2} })},
		{"expression", []byte{0x10, 6, 2, 0x76, 0}, with(func(r *Rules) {
			r.FP = Rule{Rule: frame.RuleExpression, Expression: []byte{0x76, 0}}
		})},
		{"val_expression", []byte{0x16, 7, 2, 0x77, 8}, with(func(r *Rules) {
			r.SP = Rule{Rule: frame.RuleValExpression, Expression: []byte{0x77, 8}}
		})},
		{"restore gives the CIE's rule", []byte{0x07, 16, 0xc0 | 16}, start},
		{"restore_extended", []byte{0x86, 2, 0x06, 6}, start},
		{"remember and restore, the CFA too", []byte{0x0a, 0x0c, 6, 32, 0x86, 2, 0x0b}, start},
		{"nested remember_state", []byte{0x0a, 0x86, 2, 0x0a, 0x86, 3, 0x0b},
			with(func(r *Rules) { r.FP = offset(-16) })},
		{"GNU_args_size", []byte{0x2e, 16}, start},
		{"other registers", []byte{0x83, 2, 0x07, 3, 0x09, 3, 4, 0x10, 3, 1, 0x30}, start},
	}
	for _, tt := range tests {
		w := &writer{target: amd64}
		w.fde(w.cie(plainCIE), w.abs(textAddr, 0x80), []byte{0x41}, tt.code)
		rows, err := loadRows(t, amd64, ".eh_frame", w.b)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if got := rows[len(rows)-1].Rules; !sameRules(got, tt.want) {
			t.Errorf("%s:\n got %+v\nwant %+v", tt.name, got, tt.want)
		}
	}
}

func sameRules(a, b Rules) bool {
	same := func(x, y Rule) bool {
		return x.Rule == y.Rule && x.Reg == y.Reg && x.Offset == y.Offset && bytes.Equal(x.Expression, y.Expression)
	}
	return same(a.CFA, b.CFA) && same(a.RA, b.RA) && same(a.FP, b.FP) && same(a.SP, b.SP) && a.Sign == b.Sign
}

// TestAdvance checks every way to change the location.
func TestAdvance(t *testing.T) {
	for _, tg := range targets {
		o := tg.order
		for name, advance := range map[string][]byte{
			"advance_loc":       {0x40 | 5},
			"advance_loc1":      {0x02, 5},
			"advance_loc2":      o.AppendUint16([]byte{0x03}, 5),
			"advance_loc4":      o.AppendUint32([]byte{0x04}, 5),
			"MIPS_advance_loc8": o.AppendUint64([]byte{0x1d}, 5),
			"set_loc":           o.AppendUint64([]byte{0x01}, textAddr+20),
		} {
			w := &writer{target: tg}
			cie := slices.Clone(plainCIE)
			cie[2] = 4 // code alignment
			w.fde(w.cie(cie), w.abs(textAddr, 0x80), []byte{0x0e, 16}, advance, []byte{0x0e, 24})
			rows, err := loadRows(t, tg, ".eh_frame", w.b)
			if err != nil || len(rows) != 2 || rows[0].end != textAddr+20 || rows[1].begin != textAddr+20 ||
				rows[1].end != textAddr+0x80 {
				t.Errorf("%v %s: rows %+v, error %v", tg.machine, name, rows, err)
			}
		}
	}
}

// TestReturnColumn reads functions whose return address column is that of FP or SP, or the
// pseudo-register for signed return addresses. A column has one rule, whatever it stands for: an
// unwinder reads the return address where it finds the register (TestUnwinder).
func TestReturnColumn(t *testing.T) {
	none := Rule{Rule: frame.RuleArchitectural}
	slot := func(off int64) Rule { return Rule{Rule: frame.RuleOffset, Offset: off} }
	for _, tt := range []struct {
		name   string
		tg     target
		column byte
		code   []byte
		want   Rules
	}{
		{"FP, amd64", amd64, 6, []byte{0x86, 1}, Rules{RA: slot(-8), FP: slot(-8), SP: none}},
		{"SP, amd64", amd64, 7, []byte{0x87, 1}, Rules{RA: slot(-8), FP: none, SP: slot(-8)}},
		{"another than FP", amd64, 16, []byte{0x90, 1, 0x86, 2}, Rules{RA: slot(-8), FP: slot(-16), SP: none}},
		{"FP, undefined", amd64, 6, []byte{0x07, 6},
			Rules{RA: Rule{Rule: frame.RuleUndefined}, FP: Rule{Rule: frame.RuleUndefined}, SP: none}},
		{"FP, restored", amd64, 6, []byte{0x86, 1, 0xc6}, Rules{RA: none, FP: none, SP: none}},
		{"FP, restored by restore_extended", amd64, 6, []byte{0x86, 1, 0x06, 6}, Rules{RA: none, FP: none, SP: none}},
		{"FP, aarch64", aarch64BE, 29, []byte{0x9d, 1}, Rules{RA: slot(-8), FP: slot(-8), SP: none}},
		{"SP, aarch64", aarch64, 31, []byte{0x9f, 1}, Rules{RA: slot(-8), FP: none, SP: slot(-8)}},
		{"RA_SIGN_STATE", aarch64, 34, []byte{0x05, 34, 1}, Rules{RA: slot(-8), FP: none, SP: none, Sign: SignUnknown}},
		{"FP, s390x", s390x, 11, []byte{0x8b, 1}, Rules{RA: slot(-8), FP: slot(-8), SP: none}},
	} {
		w := &writer{target: tt.tg}
		w.fde(w.cie([]byte{1, 0, 1, 0x78, tt.column, 0x0c, 7, 8}), w.abs(textAddr, 0x80), tt.code)
		rows, err := loadRows(t, tt.tg, ".eh_frame", w.b)
		if err != nil || len(rows) != 1 {
			t.Errorf("%s: rows %+v, error %v", tt.name, rows, err)
			continue
		}
		got := rows[0].Rules
		if tt.want.CFA = got.CFA; !sameRules(got, tt.want) {
			t.Errorf("%s:\n got %+v\nwant %+v", tt.name, got, tt.want)
		}
	}
}

// TestInitialInstructions runs instructions in a CIE that have nothing to go back to. GNU as moves
// those in front of a function's first advance into the CIE (PR gas/33170). libgcc, gdb and LLVM's
// libunwind take a register that is restored there for one without a rule; readelf shows the same
// for one that had none.
func TestInitialInstructions(t *testing.T) {
	none := Rule{Rule: frame.RuleArchitectural}
	slot := func(off int64) Rule { return Rule{Rule: frame.RuleOffset, Offset: off} }
	for _, tt := range []struct {
		name     string
		cie, fde []byte
		fp       Rule
		sign     Sign
		err      string
	}{
		{name: "restore", cie: []byte{0xc6}, fp: none},
		{name: "restore_extended", cie: []byte{0x06, 6}, fp: none},
		{name: "restore behind a rule", cie: []byte{0x86, 2, 0xc6}, fp: none},
		{name: "restore, and a rule in the FDE that is restored", cie: []byte{0xc6}, fde: []byte{0x86, 2, 0xc6},
			fp: none},
		{name: "restore in front of a rule", cie: []byte{0xc6, 0x86, 2}, fde: []byte{0x07, 6, 0xc6}, fp: slot(-16)},
		{name: "restore of another register", cie: []byte{0x86, 2, 0xc3}, fp: slot(-16)},
		{name: "remember_state and restore_state", cie: []byte{0x86, 2, 0x0a, 0x07, 6, 0x0b}, fp: slot(-16)},
		{name: "restore of RA_SIGN_STATE", cie: []byte{0x2d, 0xc0 | 34}, fp: none},
		// libgcc keeps no state from one program to the next.
		{name: "restore_state", cie: []byte{0x0b}, err: "restore_state without a remember_state"},
		{name: "restore_state in the FDE", cie: []byte{0x0a}, fde: []byte{0x0b},
			err: "restore_state without a remember_state"},
	} {
		tg := amd64
		if tt.name == "restore of RA_SIGN_STATE" {
			tg = aarch64
		}
		w := &writer{target: tg}
		w.fde(w.cie(plainCIE, tt.cie), w.abs(textAddr, 0x80), tt.fde)
		rows, err := loadRows(t, tg, ".eh_frame", w.b)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: error %v, want %q", tt.name, err, tt.err)
			}
			continue
		}
		if err != nil || len(rows) != 1 {
			t.Errorf("%s: rows %+v, error %v", tt.name, rows, err)
			continue
		}
		if got := rows[0].Rules; !SameRule(&got.FP, &tt.fp) || got.Sign != tt.sign {
			t.Errorf("%s: FP %+v, sign %v, want FP %+v, sign %v", tt.name, got.FP, got.Sign, tt.fp, tt.sign)
		}
	}
}

// TestSigning checks the AArch64 instructions for signed return addresses.
func TestSigning(t *testing.T) {
	for _, tt := range []struct {
		code []byte
		want Sign
	}{
		{[]byte{0x2d}, Signed},
		{[]byte{0x2d, 0x2d}, Unsigned},
		{[]byte{0x2c}, SignedWithPC},
		{[]byte{0x2c, 0x2c}, Unsigned},
		{[]byte{0x2d, 0x2c}, SignUnknown},
		{[]byte{0x2d, 0xc0 | 34}, Unsigned},
		{[]byte{0x0a, 0x2d, 0x0b}, Unsigned},
		{[]byte{0x16, 34, 1, 0x31}, SignUnknown},
	} {
		w := &writer{target: aarch64BE}
		w.fde(w.cie([]byte{1, 0, 4, 0x78, 30, 0x0c, 31, 0}), w.abs(textAddr, 0x80), tt.code)
		rows, err := loadRows(t, aarch64BE, ".eh_frame", w.b)
		if err != nil || rows[0].Sign != tt.want {
			t.Errorf("% x: rows %+v, error %v, want %v", tt.code, rows, err, tt.want)
		}
	}
	w := &writer{target: amd64}
	w.fde(w.cie(plainCIE), w.abs(textAddr, 0x80), []byte{0x2d})
	if _, err := loadRows(t, amd64, ".eh_frame", w.b); err == nil ||
		!strings.Contains(err.Error(), "not defined for this machine") {
		t.Errorf("negate_ra_state on amd64: error %v", err)
	}
}

// TestMalformed checks that damage is reported, with the offset, and costs one
// record only.
func TestMalformed(t *testing.T) {
	leb := append(bytes.Repeat([]byte{0x80}, 100), 0)
	for _, tt := range []struct {
		name string
		code []byte
		want string
	}{
		{"unknown opcode", []byte{0x3e}, "unknown opcode 0x3e"},
		{"restore_state", []byte{0x0b}, "restore_state without a remember_state"},
		{"deep remember_state", bytes.Repeat([]byte{0x0a}, 5000), "remember_state nests deeper than 4096"},
		{"long LEB128", slices.Concat([]byte{0x0e}, leb), "LEB128 number longer than 64 bits"},
		{"truncated operand", []byte{0x04, 1}, "operand of 4 bytes, but 1 bytes are left"},
		{"truncated expression", []byte{0x0f, 200, 1, 1}, "expression of 200 bytes"},
		{"huge offset", []byte{0x05, 6, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}, "too large"},
		{"set_loc back", []byte{0x44, 0x01, 0, 0x10, 0, 0, 0, 0, 0, 0}, "set_loc goes back"},
		{"advance past 2^64", []byte{0x41, 0x1d, 255, 255, 255, 255, 255, 255, 255, 255}, "past 2^64"},
		{"no CFA", []byte{0x0a, 0x0e, 8}, "part of a CFA rule is changed, but there is none"},
	} {
		w := &writer{target: amd64}
		cie := w.cie(plainCIE)
		if tt.name == "no CFA" {
			cie = w.cie([]byte{1, 0, 1, 0x78, 16})
		}
		bad := w.fde(cie, w.abs(textAddr, 0x80), tt.code)
		w.fde(cie, w.abs(textAddr+0x80, 0x80))
		table, err := Load(tinyELF(t, amd64, ".eh_frame", w.b), Auto, nil)
		if err != nil {
			t.Fatal(err)
		}
		if table.Len() != 2 {
			t.Fatalf("%s: %d functions", tt.name, table.Len())
		}
		e, ok := table.At(0).Err().(*Error)
		if !ok || !strings.Contains(e.Msg, tt.want) || e.Off < uint64(bad)+24 || e.Section != ".eh_frame" {
			t.Errorf("%s: error %v, want %q behind offset %#x", tt.name, table.At(0).Err(), tt.want, bad+24)
		}
		if err := table.At(1).Err(); err != nil {
			t.Errorf("%s: the next function has error %v", tt.name, err)
		}
	}
}

// TestFunctions checks which FDEs count.
func TestFunctions(t *testing.T) {
	w := &writer{target: amd64}
	cie := w.cie(plainCIE)
	for _, r := range [][2]uint64{
		{textAddr + 0x200, 0x100},
		{textAddr, 0x80},
		{textAddr + 0x40, 0x80},     // overlaps the one before by half
		{textAddr + 0x50, 0x10},     // and so it does, wholly
		{textAddr + 0x100, 0},       // no code
		{0, 0x10},                   // discarded
		{math.MaxUint64, 0x10},      // discarded
		{frameAddr, 0x10},           // not code
		{textAddr + 0xfff0, 0x1000}, // longer than the code
	} {
		w.fde(cie, w.abs(r[0], r[1]))
	}
	table, err := Load(tinyELF(t, amd64, ".eh_frame", w.b), Auto, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got [][2]uint64
	for fn := range table.Functions() {
		got = append(got, [2]uint64{fn.Begin, fn.End})
	}
	want := [][2]uint64{{0x1000, 0x1080}, {0x1080, 0x10c0}, {0x1200, 0x1300}}
	if !slices.Equal(got, want) {
		t.Errorf("functions %#x, want %#x", got, want)
	}
	if d := (Dropped{ZeroLength: 1, Discarded: 3, Overlapped: 2}); table.Dropped != d {
		t.Errorf("dropped %+v, want %+v", table.Dropped, d)
	}
	if len(table.Errors) != 1 || !strings.Contains(table.Errors[0].Msg, "executable code there ends at 0x11000") {
		t.Errorf("errors %v", table.Errors)
	}
}

// TestExecutable joins sections of code that only padding separates, at the end of the address
// space, too.
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

// TestFill checks that .debug_frame describes what .eh_frame does not.
func TestFill(t *testing.T) {
	d := &cie{sec: &section{}}
	fns := func(spans ...uint64) (out []Function) {
		for i := 0; i < len(spans); i += 2 {
			out = append(out, Function{Begin: spans[i], End: spans[i+1], off: uint32(i), cie: d})
		}
		return out
	}
	same := func(f, g Function) bool { return f.Begin == g.Begin && f.End == g.End }
	for _, tt := range []struct{ a, b, want []Function }{
		{fns(10, 20), fns(10, 20), fns(10, 20)},
		{fns(10, 20), fns(0, 30), fns(0, 10, 10, 20, 20, 30)},
		{fns(10, 20, 30, 40), fns(0, 50), fns(0, 10, 10, 20, 20, 30, 30, 40, 40, 50)},
		{fns(10, 20), fns(12, 15), fns(10, 20)},
		{fns(10, 20), fns(15, 25, 30, 35), fns(10, 20, 20, 25, 30, 35)},
		{fns(10, 20), fns(0, 5, 5, 12), fns(0, 5, 5, 10, 10, 20)},
		{nil, fns(1, 2), fns(1, 2)},
		{fns(1, 2), nil, fns(1, 2)},
	} {
		if got := new(Table).fill(tt.a, tt.b); !slices.EqualFunc(got, tt.want, same) {
			t.Errorf("fill(%v, %v) = %v, want %v", tt.a, tt.b, got, tt.want)
		}
	}
}

// TestFillParts has a function in so many parts that to execute its instructions for each would take
// forever.
func TestFillParts(t *testing.T) {
	const work = 64 << 10 // bytes of instructions
	var a []Function
	for i := range uint64(1000) {
		a = append(a, Function{Begin: 10 * i, End: 10*i + 5})
	}
	table := new(Table)
	var parts []Function
	for _, fn := range table.fill(a, []Function{{Begin: 0, End: 10_000, limit: work, cie: &cie{sec: &section{}}}}) {
		if fn.limit > 0 {
			parts = append(parts, fn)
		}
	}
	const want = 1 + maxParts/(work+16)
	if len(parts) != want || table.Dropped.Overlapped != 1000-want {
		t.Fatalf("%d parts, and %d are dropped; want %d and %d", len(parts), table.Dropped.Overlapped, want,
			1000-want)
	}
	for i, fn := range parts {
		if begin := 10*uint64(i) + 5; fn.Begin != begin || fn.End != begin+5 || fn.whole() != (elffile.Span{End: 10_000}) ||
			fn.Program() >= 0 {
			t.Errorf("part %d is %d-%d of %v, with program %d", i, fn.Begin, fn.End, fn.whole(), fn.Program())
		}
	}
}

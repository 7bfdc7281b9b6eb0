package verify

import (
	"debug/elf"
	"encoding/hex"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/sframe"
)

// TestEpilogue checks rows that leave the frame pointer unchanged where CFI says that it is saved at rbp. They are
// correct directly before the instructions that leave the function, unless an instruction writes rbp.
func TestEpilogue(t *testing.T) {
	// At offset 0, the CFA is r10, and rbp is saved at rbp; at offset 5, the CFA becomes rsp+8.
	r10 := []byte{0x0c, 10, 0, 0x10, 6, 2, 0x76, 0, 0x45, 0x0c, 7, 8}
	// The CFA is r13; at offset 5, it becomes rsp+16, and at offset 7, rsp+8.
	r13 := []byte{0x0c, 13, 0, 0x10, 6, 2, 0x76, 0, 0x45, 0x0c, 7, 16, 0x42, 0x0c, 7, 8}
	// Like r10, but the location of the return address depends on the pc: it changes at offset 3.
	moved := slices.Concat(r10[:8], []byte{0x10, 16, 11, 0x38, 0x1c, 0x80, 0, 0x3f, 0x1a, 0x33, 0x2a, 0x33, 0x24, 0x22},
		r10[8:])
	saved := sframe.Rule{Base: sframe.FP, Deref: true}
	reg := func(n uint16) sframe.Rule { return sframe.Rule{Base: sframe.Register, Reg: n} }
	type rows = []sframe.FRE
	row := func(start uint32, cfa, fp sframe.Rule) sframe.FRE {
		e := sframe.Row{CFA: cfa, FP: fp}
		if fp != (sframe.Rule{}) {
			e.RA = sframe.Rule{Base: sframe.CFA, Offset: -8, Deref: true}
		}
		return sframe.FRE{Start: start, Row: e}
	}
	none := sframe.Rule{}
	epilogue := rows{row(0, reg(10), saved), row(1, reg(10), none), row(5, at(sframe.SP, 8), none)}
	for _, tt := range []struct {
		name string
		code string // from the function's start; the code after / is not part of the function
		cfi  []byte
		rows rows
		want string // the mismatches
	}{
		{"pop, lea, ret", "5d498d62f8c3", r10, epilogue, ""},
		{"leave, lea, ret", "c9498d62f8c3", r10, epilogue, ""},
		{"rep ret", "5d498d62f8f3c3", r10, epilogue, ""},
		{"no-ops after it", "5d498d62f8c30f1f40006690", r10, epilogue, ""},
		{"padding after the function", "5d498d62f8c3/0f1f440000", r10, epilogue, ""},
		{"a jump to another function", "5d498d62f8e900010000", r10, epilogue, ""},
		{"a jump to the function's start", "5d498d62f8ebf9", r10, epilogue, ""},
		{"a jump through a register", "5d498d62f8ffe0", r10, epilogue, ""},
		{"with pop %r13", "5d498d65f0415dc3", r13, rows{row(0, reg(13), saved), row(1, reg(13), none),
			row(5, at(sframe.SP, 16), none), row(7, at(sframe.SP, 8), none)}, ""},
		{"with moves", "5d498d62f8660f28c14889c7c3", r10, epilogue, ""},
		{"a move to rbp", "5d498d62f889cdc3", r10, epilogue,
			"0x1001-0x1005: caller's frame pointer differs; 0x1005-0x1008: caller's frame pointer differs"},
		{"a move to rsp", "5d498d62f889ccc3", r10, epilogue,
			"0x1001-0x1005: caller's frame pointer differs; 0x1005-0x1008: caller's frame pointer differs"},
		{"a load to rbp", "5d498d62f88becc3", r10, epilogue,
			"0x1001-0x1005: caller's frame pointer differs; 0x1005-0x1008: caller's frame pointer differs"},
		{"moves to r12 and r13", "5d498d62f84189cc458bec0f28c1c3", r10, epilogue, ""},
		{"movaps from memory", "5d498d62f80f2800c3", r10, epilogue,
			"0x1001-0x1005: caller's frame pointer differs; 0x1005-0x1009: caller's frame pointer differs"},
		{"lea twice", "5d498d62f8498d62f8c3", r10, epilogue, "0x1001-0x1005: caller's frame pointer differs; " +
			"0x1005-0x100a: caller's frame pointer differs"},
		{"lea with a segment", "5d2e498d62f8c3", r10, rows{row(0, reg(10), saved), row(1, reg(10), none),
			row(6, at(sframe.SP, 8), none)}, "0x1001-0x1005: caller's frame pointer differs; 0x1005-0x1006: CFA " +
			"differs"},
		{"32-bit lea", "5d418d62f8c3", r10, epilogue, "0x1001-0x1005: caller's frame pointer differs"},
		{"pop of a different register", "5d498d65f0415cc3", r13, rows{row(0, reg(13), saved), row(1, reg(13), none),
			row(5, at(sframe.SP, 16), none), row(7, at(sframe.SP, 8), none)},
			"0x1001-0x1005: caller's frame pointer differs; 0x1005-0x1007: caller's frame pointer differs"},
		{"an unknown instruction", "5d498d62f8069090c3", r10, epilogue,
			"0x1001-0x1005: caller's frame pointer differs; 0x1005-0x1009: caller's frame pointer differs"},
		{"a far jump", "5d498d62f8ff2d00000000", r10, epilogue,
			"0x1001-0x1005: caller's frame pointer differs; 0x1005-0x100b: caller's frame pointer differs"},
		{"an interrupt", "5d498d62f8cc", r10, epilogue,
			"0x1001-0x1005: caller's frame pointer differs; 0x1005-0x1006: caller's frame pointer differs"},
		{"a jump to the function's end", "5d498d62f8eb00", r10, epilogue, ""},
		{"a jump to its second byte", "5d498d62f8ebfa", r10, epilogue,
			"0x1001-0x1005: caller's frame pointer differs; 0x1005-0x1007: caller's frame pointer differs"},
		{"a store", "5d498d62f8488907c3", r10, epilogue,
			"0x1001-0x1005: caller's frame pointer differs; 0x1005-0x1009: caller's frame pointer differs"},
		{"a return address that depends on the pc", "5d498d62f8c3", moved, epilogue,
			"0x1001-0x1005: caller's frame pointer differs; 0x1005-0x1006: return address differs"},
		{"as the CFI says", "5d498d62f8c3", r10, rows{row(0, reg(10), saved), row(5, at(sframe.SP, 8), saved)}, ""},

		{"before pop", "5d498d62f8c3", r10, rows{row(0, reg(10), none), row(5, at(sframe.SP, 8), none)},
			"0x1000-0x1005: caller's frame pointer differs"},
		{"the CFA of the next row", "5d498d62f8c3", r10, rows{row(0, reg(10), saved), row(1, at(sframe.SP, 8), none)},
			"0x1001-0x1005: CFA differs"},
		{"rbp written after lea", "5d498d62f85dc3", r10, epilogue,
			"0x1001-0x1005: caller's frame pointer differs; 0x1005-0x1007: caller's frame pointer differs"},
		{"a different base", "5d498d61f8c3", r10, epilogue, "0x1001-0x1005: caller's frame pointer differs"},
		{"the wrong register restored", "5d498d6af8c3", r10, epilogue, "0x1001-0x1005: caller's frame pointer differs"},
		{"no lea", "5d0f1f4000c3", r10, epilogue, "0x1001-0x1005: caller's frame pointer differs"},
		{"a call", "5d498d62f8e800010000", r10, epilogue,
			"0x1001-0x1005: caller's frame pointer differs; 0x1005-0x100a: caller's frame pointer differs"},
		{"a conditional jump", "5d498d62f87410c3", r10, epilogue,
			"0x1001-0x1005: caller's frame pointer differs; 0x1005-0x1008: caller's frame pointer differs"},
		{"a jump into the function", "5d498d62f8ebfa90", r10, epilogue,
			"0x1001-0x1005: caller's frame pointer differs; 0x1005-0x1008: caller's frame pointer differs"},
		{"code after it", "5d498d62f8c3505dc3", r10, epilogue, "0x1005-0x1009: caller's frame pointer differs"},
		{"the function's end", "5d498d62f8/c3", r10, rows{row(0, reg(10), saved), row(1, reg(10), none)},
			"0x1001-0x1005: caller's frame pointer differs"},
		{"padding only", "5d498d62f8c3/90", r10, rows{row(0, reg(10), saved), row(5, at(sframe.SP, 8), saved),
			row(6, at(sframe.SP, 8), none)}, "0x1006-0x1007: caller's frame pointer differs"},
	} {
		inside, outside, _ := strings.Cut(tt.code, "/")
		code := must.Get(hex.DecodeString(inside + outside))(t)
		f := fileOf(t, elf.ET_DYN, elf.EM_X86_64, amd64.order, region{name: ".text", addr: 0x1000, code: code})
		size := uint64(len(inside) / 2)
		if tt.want == "" && outside == "" {
			inObject(t, code, tt.cfi, tt.rows)
		}
		end := uint64(len(code))
		if tt.name == "the function's end" {
			end = size
		}
		table := amd64.cfi(t, function{begin: 0x1000, end: 0x1000 + size, code: tt.cfi})
		s := amd64.section(t, sframe.V3, fde{sframe.FDE{Start: 0x1000, Size: uint32(end)}, tt.rows})
		res, err := Check(table, s, f, Options{Keep: 10})
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		var got []string
		for _, m := range res.Mismatches {
			what, _, _ := strings.Cut(m.String(), ": SFrame has")
			got = append(got, what)
		}
		if text := strings.Join(got, "; "); text != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, text, tt.want)
		}
		if tt.want == "" && (res.Covered != size || res.Padding != end-size) {
			t.Errorf("%s: %d bytes covered, %d of padding; want %d and %d", tt.name, res.Covered, res.Padding, size,
				end-size)
		}
	}
}

// inObject checks the same function in an object, and in an object whose code lacks the last byte.
func inObject(t *testing.T, code, instructions []byte, rows []sframe.FRE) {
	t.Helper()
	for _, left := range []int{0, 1} {
		f := fileOf(t, elf.ET_REL, elf.EM_X86_64, amd64.order,
			region{name: ".text", code: code[:len(code)-left], apart: true})
		base := f.Sections[1].Base
		size := uint64(len(code))
		table := amd64.cfi(t, function{begin: base, end: base + size, code: instructions})
		s := amd64.section(t, sframe.V3, fde{sframe.FDE{Start: base, Size: uint32(size)}, rows})
		unchanged := slices.ContainsFunc(rows, func(r sframe.FRE) bool { return r.FP.Base == sframe.None })
		res, err := Check(table, s, f, Options{Keep: 10})
		if err != nil || (res.Total > 0) != (left > 0 && unchanged) {
			t.Errorf("% x in an object without %d bytes: %+v, error %v", code, left, res, err)
		}
	}
}

package verify

import (
	"debug/elf"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"cfi2sframe/cfi"
	"cfi2sframe/internal/insn"
)

// a64Words are instructions as encoded by GNU as.
var a64Words = map[string]uint32{
	"paciasp": 0xd503233f, "autiasp": 0xd50323bf, "pacibsp": 0xd503237f, "ret": 0xd65f03c0, "retaa": 0xd65f0bff,
	"ret x15": 0xd65f01e0, "mov x15, x30": 0xaa1e03ef, "mov x29, sp": 0x910003fd, "bl .": 0x94000000,
	"stp x29, x30, [sp, #-32]!": 0xa9be7bfd, "ldp x29, x30, [sp], #32": 0xa8c27bfd, "str q0, [sp, #16]": 0x3d8007e0,
	"str q0, [sp]": 0x3d8003e0, "sub sp, sp, #16": 0xd10043ff, "add sp, sp, #16": 0x910043ff,
	"ldr x29, [sp], #32": 0xf84207fd, "bl 8": 0x94000002, "addvl sp, sp, #-1": 0x043f57ff,
	"stur x29, [sp, #-8]": 0xf81f83fd, "movz x29, #0": 0xd280001d, "mov sp, x15": 0x910001ff, "mov x15, sp": 0x910003ef,
	"swpa x0, x29, [x1]": 0xf8a0803d, "prfm #29, [x1]": 0xf980003d,
}

// TestA64Code checks rows that follow the Procedure Call Standard for the Arm 64-bit Architecture, and expects changed
// rows to be rejected.
func TestA64Code(t *testing.T) {
	const sp, fp, lr = 31, 29, 30
	entry := cfi.InferredRow{Reg: sp, RAReg: lr}
	row := func(off uint32, reg uint64, offset int64, change func(r *cfi.InferredRow)) cfi.InferredRow {
		r := cfi.InferredRow{Off: off, Reg: reg, Offset: offset, RAReg: lr}
		if change != nil {
			change(&r)
		}
		return r
	}
	saved := func(r *cfi.InferredRow) { r.FP, r.RA = -32, -24 }
	signed := func(r *cfi.InferredRow) { r.Signed = true }
	savedSigned := func(r *cfi.InferredRow) { r.FP, r.RA, r.Signed = -32, -24, true }
	for _, tt := range []struct {
		name  string
		code  []string
		rows  []cfi.InferredRow
		right bool
	}{
		{"leaf", []string{"ret"}, []cfi.InferredRow{entry}, true},
		{"frame", []string{"stp x29, x30, [sp, #-32]!", "mov x29, sp", "ldp x29, x30, [sp], #32", "ret"},
			[]cfi.InferredRow{entry, row(4, sp, 32, saved), row(8, fp, 32, saved), row(12, sp, 0, nil)}, true},
		{"frame, by SP", []string{"stp x29, x30, [sp, #-32]!", "mov x29, sp", "ldp x29, x30, [sp], #32", "ret"},
			[]cfi.InferredRow{entry, row(4, sp, 32, saved), row(12, sp, 0, nil)}, true},
		{"signed", []string{"paciasp", "stp x29, x30, [sp, #-32]!", "ldp x29, x30, [sp], #32", "autiasp", "ret"},
			[]cfi.InferredRow{entry, row(4, sp, 0, signed), row(8, sp, 32, savedSigned), row(12, sp, 0, signed),
				row(16, sp, 0, nil)}, true},
		{"return by a signed address", []string{"paciasp", "retaa"}, []cfi.InferredRow{entry, row(4, sp, 0, signed)},
			true},
		{"signed at the return", []string{"paciasp", "ret"}, []cfi.InferredRow{entry, row(4, sp, 0, signed)}, false},
		{"key B", []string{"pacibsp", "retaa"}, []cfi.InferredRow{entry, row(4, sp, 0, signed)}, false},
		{"RA is not loaded", []string{"stp x29, x30, [sp, #-32]!", "ldr x29, [sp], #32", "ret"},
			[]cfi.InferredRow{entry, row(4, sp, 32, saved), row(8, sp, 0, nil)}, true},
		{"RA in x15", []string{"mov x15, x30", "ret x15"},
			[]cfi.InferredRow{entry, row(4, sp, 0, func(r *cfi.InferredRow) { r.RAReg = 15 })}, true},
		{"return through a different register", []string{"ret x15"}, []cfi.InferredRow{entry}, false},
		{"a vector overwrites RA", []string{"stp x29, x30, [sp, #-32]!", "str q0, [sp]", "ldp x29, x30, [sp], #32",
			"ret"}, []cfi.InferredRow{entry, row(4, sp, 32, saved), row(12, sp, 0, nil)}, false},
		{"a vector next to RA", []string{"stp x29, x30, [sp, #-32]!", "str q0, [sp, #16]", "ldp x29, x30, [sp], #32",
			"ret"}, []cfi.InferredRow{entry, row(4, sp, 32, saved), row(12, sp, 0, nil)}, true},
		{"SP", []string{"sub sp, sp, #16", "add sp, sp, #16", "ret"},
			[]cfi.InferredRow{entry, row(4, sp, 16, nil), row(8, sp, 0, nil)}, true},
		{"copy of SP", []string{"mov x15, sp", "sub sp, sp, #16", "mov sp, x15", "ret"},
			[]cfi.InferredRow{entry, row(8, sp, 16, nil), row(12, sp, 0, nil)}, true},
		{"SVE", []string{"addvl sp, sp, #-1", "ret"}, []cfi.InferredRow{entry}, false},
		{"below SP", []string{"stur x29, [sp, #-8]", "movz x29, #0", "ret"},
			[]cfi.InferredRow{entry, row(4, sp, 0, func(r *cfi.InferredRow) { r.FP = -8 })}, false},
		{"lost FP", []string{"movz x29, #0", "ret"},
			[]cfi.InferredRow{entry, row(4, sp, 0, func(r *cfi.InferredRow) { r.Lost = true })}, true},
		{"an atomic instruction writes FP", []string{"swpa x0, x29, [x1]", "ret"}, []cfi.InferredRow{entry}, false},
		{"a prefetch", []string{"prfm #29, [x1]", "ret"}, []cfi.InferredRow{entry}, true},
		{"call without a saved RA", []string{"bl 8", "ret", "ret"}, []cfi.InferredRow{entry}, false},
	} {
		var code []byte
		for _, in := range tt.code {
			word, ok := a64Words[in]
			if !ok {
				t.Fatal(in)
			}
			code = binary.LittleEndian.AppendUint32(code, word)
		}
		file := fileOf(t, elf.ET_DYN, elf.EM_AARCH64, binary.LittleEndian,
			region{name: ".text", addr: 0x1000, code: code})
		accepts := func(rows []cfi.InferredRow) bool {
			refused, err := Code(file, &cfi.Inference{Functions: []cfi.InferredFunction{
				{Begin: 0x1000, End: 0x1000 + uint64(len(code)), Rows: rows}}})
			if err != nil {
				t.Fatal(err)
			}
			return len(refused) == 0
		}
		if accepts(tt.rows) != tt.right {
			t.Errorf("%s: accepted %t", tt.name, !tt.right)
		}
		for i := range tt.rows {
			for k, change := range []func(r *cfi.InferredRow){
				func(r *cfi.InferredRow) { r.Offset += 8 }, func(r *cfi.InferredRow) { r.Reg = 7 },
				func(r *cfi.InferredRow) { r.FP -= 8 }, func(r *cfi.InferredRow) { r.RA -= 8 },
				func(r *cfi.InferredRow) { r.RAReg, r.RA = 7, 0 }, func(r *cfi.InferredRow) { r.Signed = !r.Signed },
			} {
				rows := slices.Clone(tt.rows)
				change(&rows[i])
				if tt.right && accepts(rows) {
					t.Errorf("%s: row %d with change %d is accepted", tt.name, i, k)
				}
			}
		}
	}
}

// TestA64Written compares the registers that random instructions write with those found by another decoder. Loads,
// stores, rmif and system calls may write fewer registers than the check assumes.
func TestA64Written(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	known := 0
	for range 1 << 20 {
		word := r.Uint32()
		for _, field := range []int{0, 5, 10, 16} {
			if r.IntN(4) == 0 {
				word |= 31 << field
			}
		}
		in, ok := insn.DecodeAArch64(binary.LittleEndian.AppendUint32(nil, word), 0x1000)
		if !ok {
			continue
		}
		known++
		want := in.Writes
		add := func(is bool, reg insn.Reg) {
			if is && reg != insn.None {
				want |= 1 << reg
			}
		}
		add(in.Op >= insn.Move && in.Op <= insn.Short, in.Reg)
		add(in.Op == insn.Load, in.Pair)
		add(in.Mem.Step != 0, in.Mem.Base)
		add(in.Op == insn.Call || in.Op == insn.CallReg || in.Op == insn.Sign, 30)
		got := (&a64{word}).written()
		exact := word>>25&5 != 4 && word>>24 != 0xd4 && word>>24 != 0xba
		if want&^got != 0 || exact && got != want {
			t.Errorf("%08x writes %08x; want %08x", word, got, want)
		}
	}
	if known < 300_000 {
		t.Errorf("%d instructions are known; want more", known)
	}
}

package verify

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"cfi2sframe/cfi"
	"cfi2sframe/internal/insn"
)

// a64Words are instructions as encoded by GNU as.
var a64Words = map[string]uint32{
	"paciasp": 0xd503233f, "autiasp": 0xd50323bf, "pacibsp": 0xd503237f, "ret": 0xd65f03c0, "retaa": 0xd65f0bff,
	"ret x15": 0xd65f01e0, "mov x29, sp": 0x910003fd, "bl .": 0x94000000,
	"stp x29, x30, [sp, #-32]!": 0xa9be7bfd, "ldp x29, x30, [sp], #32": 0xa8c27bfd, "str q0, [sp, #16]": 0x3d8007e0,
	"str q0, [sp]": 0x3d8003e0, "sub sp, sp, #16": 0xd10043ff, "add sp, sp, #16": 0x910043ff,
	"ldr x29, [sp], #32": 0xf84207fd, "bl 8": 0x94000002, "addvl sp, sp, #-1": 0x043f57ff,
	"stur x29, [sp, #-8]": 0xf81f83fd, "movz x29, #0": 0xd280001d, "mov sp, x15": 0x910001ff, "mov x15, sp": 0x910003ef,
	"swpa x0, x29, [x1]": 0xf8a0803d, "prfm #29, [x1]": 0xf980003d,
	"mov x0, sp": 0x910003e0, "ldp x29, x30, [x0]": 0xa940781d, "add sp, sp, #32": 0x910083ff,
	"mov x30, x9": 0xaa0903fe, "movz x30, #0": 0xd280001e, "blr x8": 0xd63f0100, "ldapur x0, [sp]": 0xd94003e0,
	"stlur x0, [sp]":  0xd90003e0,
	"movz x13, #4112": 0xd282020d, "movk x13, #1": 0xf280002d, "sub sp, sp, x13": 0xcb2d63ff,
	"add sp, sp, x13": 0x8b2d63ff, "ld1 {v0.8b-v3.8b}, [sp], #32": 0x0cdf23e0, "sub sp, sp, #32": 0xd10083ff,
	"st1 {v0.8b-v1.8b}, [sp]": 0x0c00a3e0, "st1 {v0.8b-v2.8b}, [sp]": 0x0c0063e0,
	"st4 {v0.s-v3.s}[1], [sp]": 0x0d20b3e0,
	"st3 {v0.d-v2.d}[1], [sp]": 0x4d00a7e0,
}

// TestA64Code checks rows that follow the Procedure Call Standard for the Arm 64-bit Architecture, and expects changed
// rows to be rejected.
func TestA64Code(t *testing.T) {
	const sp, fp, lr = 31, 29, 30
	entry := cfi.InferredRow{Reg: sp, RAReg: lr}
	row := func(off uint32, reg uint8, offset int32, change func(r *cfi.InferredRow)) cfi.InferredRow {
		r := cfi.InferredRow{Off: off, Reg: reg, Offset: offset, RAReg: lr}
		if change != nil {
			change(&r)
		}
		return r
	}
	saved := func(r *cfi.InferredRow) { r.FP, r.RA = -32, -24 }
	signed := func(r *cfi.InferredRow) { r.Signed = true }
	savedSigned := func(r *cfi.InferredRow) { r.FP, r.RA, r.Signed = -32, -24, true }
	type codeTest struct {
		name  string
		code  []string
		rows  []cfi.InferredRow
		right bool
	}
	tests := []codeTest{
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
		{"return through a different register", []string{"ret x15"}, []cfi.InferredRow{entry}, false},
		{"a vector overwrites RA", []string{"stp x29, x30, [sp, #-32]!", "str q0, [sp]", "ldp x29, x30, [sp], #32",
			"ret"}, []cfi.InferredRow{entry, row(4, sp, 32, saved), row(12, sp, 0, nil)}, false},
		{"a vector next to RA", []string{"stp x29, x30, [sp, #-32]!", "str q0, [sp, #16]", "ldp x29, x30, [sp], #32",
			"ret"}, []cfi.InferredRow{entry, row(4, sp, 32, saved), row(12, sp, 0, nil)}, true},
		{"stlur", []string{"stp x29, x30, [sp, #-32]!", "stlur x0, [sp]", "ldp x29, x30, [sp], #32", "ret"},
			[]cfi.InferredRow{entry, row(4, sp, 32, saved), row(12, sp, 0, nil)}, false},
		{"ldapur", []string{"stp x29, x30, [sp, #-32]!", "ldapur x0, [sp]", "ldp x29, x30, [sp], #32", "ret"},
			[]cfi.InferredRow{entry, row(4, sp, 32, saved), row(12, sp, 0, nil)}, true},
		{"loaded by x0", []string{"stp x29, x30, [sp, #-32]!", "mov x0, sp", "ldp x29, x30, [x0]", "add sp, sp, #32",
			"ret"}, []cfi.InferredRow{entry, row(4, sp, 32, saved), row(16, sp, 0, nil)}, true},
		{"RA in x9", []string{"mov x9, x30", "movz x30, #0", "mov x30, x9", "ret"}, []cfi.InferredRow{entry,
			row(4, sp, 0, func(r *cfi.InferredRow) { r.RAReg = 9 }), row(12, sp, 0, nil)}, true},
		{"call", []string{"stp x29, x30, [sp, #-32]!", "blr x8", "ldp x29, x30, [sp], #32", "ret"},
			[]cfi.InferredRow{entry, row(4, sp, 32, saved), row(12, sp, 0, nil)}, true},
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
	}
	size := []string{"movz x13, #4112", "sub sp, sp, x13", "add sp, sp, x13", "ret"}
	rows := []cfi.InferredRow{entry, row(8, sp, 4112, nil), row(12, sp, 0, nil)}
	tests = append(tests, codeTest{"constant size", size, rows, true},
		codeTest{"constant size that a call may change", slices.Insert(slices.Clone(size), 2, "blr x8"),
			[]cfi.InferredRow{entry, row(8, sp, 4112, nil), row(16, sp, 0, nil)}, false},
		codeTest{"changed size", slices.Insert(slices.Clone(size), 1, "movk x13, #1"),
			[]cfi.InferredRow{entry, row(12, sp, 4112, nil), row(16, sp, 0, nil)}, false},
		codeTest{"structures with SP", []string{"sub sp, sp, #32", "ld1 {v0.8b-v3.8b}, [sp], #32", "ret"},
			[]cfi.InferredRow{entry, row(4, sp, 32, nil), row(8, sp, 0, nil)}, true})
	for store, right := range map[string]bool{"st1 {v0.8b-v1.8b}, [sp]": true, "st1 {v0.8b-v2.8b}, [sp]": false,
		"st4 {v0.s-v3.s}[1], [sp]": true, "st3 {v0.d-v2.d}[1], [sp]": false} {
		tests = append(tests, codeTest{store, []string{"stp x29, x30, [sp, #-32]!", "sub sp, sp, #16", store,
			"add sp, sp, #16", "ldp x29, x30, [sp], #32", "ret"}, []cfi.InferredRow{entry, row(4, sp, 32, saved),
			row(8, sp, 48, saved), row(16, sp, 32, saved), row(20, sp, 0, nil)}, right})
	}
	for i := range uint32(29) {
		move, ret := fmt.Sprintf("mov x%d, x30", i), fmt.Sprintf("ret x%d", i)
		a64Words[move], a64Words[ret] = 0xaa1e03e0|i, 0xd65f0000|i<<5
		tests = append(tests, codeTest{ret, []string{move, ret}, []cfi.InferredRow{entry,
			row(4, sp, 0, func(r *cfi.InferredRow) { r.RAReg = uint8(i) })}, true})
		base, back := fmt.Sprintf("mov x%d, sp", i), fmt.Sprintf("mov sp, x%d", i)
		a64Words[base], a64Words[back] = 0x910003e0|i, 0x9100001f|i<<5
		tests = append(tests, codeTest{base + " across a call", []string{"stp x29, x30, [sp, #-32]!", base, "blr x8",
			back, "ldp x29, x30, [sp], #32", "ret"}, []cfi.InferredRow{entry, row(4, sp, 32, saved),
			row(8, uint8(i), 32, saved), row(20, sp, 0, nil)}, i >= 19})
	}
	for _, tt := range tests {
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
			refused, err := checkCode(file, nil, &cfi.Inference{Functions: []cfi.InferredFunction{
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
				func(r *cfi.InferredRow) { r.RAReg, r.RA = (r.RAReg+1)%30, 0 },
				func(r *cfi.InferredRow) { r.Signed = !r.Signed },
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

// TestA64Callee checks a call, without a saved return address, of a function that writes no register.
func TestA64Callee(t *testing.T) {
	var code []byte
	for _, in := range []string{"bl 8", "ret", "ret"} {
		code = binary.LittleEndian.AppendUint32(code, a64Words[in])
	}
	file := fileOf(t, elf.ET_DYN, elf.EM_AARCH64, binary.LittleEndian, region{name: ".text", addr: 0x1000, code: code})
	rows := []cfi.InferredRow{{Reg: 31, RAReg: 30}}
	refused, err := checkCode(file, nil, &cfi.Inference{Functions: []cfi.InferredFunction{
		{Begin: 0x1000, End: 0x1008, Rows: rows}, {Begin: 0x1008, End: 0x100c, Rows: rows, Component: 1}}})
	if _, ok := refused[0]; err != nil || !ok || len(refused) != 1 {
		t.Errorf("%v, error %v", refused, err)
	}
}

// TestA64Written compares the registers that random instructions write, and where control goes, with another decoder.
// Loads, stores, rmif and system calls may write fewer registers than the check assumes.
func TestA64Written(t *testing.T) {
	flows := map[insn.Op]flow{insn.Branch: flowBranch, insn.Jump: flowJump, insn.JumpReg: flowIndirect,
		insn.Call: flowCall, insn.CallReg: flowCallIndirect, insn.Return: flowReturn, insn.Trap: flowTrap,
		insn.System: flowSystem}
	r := rand.New(rand.NewPCG(1, 2))
	known := 0
	for range 1 << 20 {
		word := r.Uint32()
		for _, field := range []int{0, 5, 10, 16} {
			if r.IntN(4) == 0 {
				word |= 31 << field
			}
		}
		if r.IntN(8) == 0 { // branches to registers, exceptions, hints and mrs
			word = word&0x3ff | []uint32{0xd61f0000, 0xd61f0800, 0xd63f0000, 0xd63f0800, 0xd65f0000, 0xd65f0800,
				0xd71f0800, 0xd73f0800, 0xd4000000, 0xd4200000, 0xd4400000, 0xd5032000, 0xd5380000}[r.IntN(13)]
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
		add(in.Op >= insn.Move && in.Op <= insn.Byte, in.Reg)
		add(in.Op == insn.Load, in.Pair)
		add(in.Mem.Step != 0, in.Mem.Base)
		add(in.Op == insn.Call || in.Op == insn.CallReg || in.Op == insn.Sign, 30)
		machine := new(a64)
		if tags := word&0x1f800000 == 0x11800000; machine.decode(binary.LittleEndian.AppendUint32(nil, word)) == tags {
			t.Errorf("%08x is known: %t", word, tags)
		}
		got := machine.written()
		exact := word>>25&5 != 4 && word>>24 != 0xd4 && word>>24 != 0xba
		if want&^got != 0 || exact && got != want {
			t.Errorf("%08x writes %08x; want %08x", word, got, want)
		}
		next := flows[in.Op]
		if in.Op == insn.Return && in.Imm != 0 || in.Op == insn.JumpReg && word>>16 == 0xd65f {
			next = flowReturnBy // to a signed address, or through another register
		}
		if got := machine.flow(); got != next || in.Target != 0 && machine.target(0x1000) != in.Target {
			t.Errorf("%08x: flow %d to %#x; want %d to %#x", word, got, machine.target(0x1000), next, in.Target)
		}
		if word>>25&5 == 4 && in.Mem.Base == 31 && in.Mem.Index == insn.None {
			checkMemory(t, machine, &in)
		}
	}
	for word, want := range map[uint32]uint32{ // casp x0,x1,x2,x3,[x4]; casp x30,xzr,x2,x3,[x4]; stxr w0,x1,[x2]
		0x48207c82: 3, 0x483e7c82: 1 << 30, 0xc8007c41: 1,
	} {
		if got := (&a64{word}).written(); got != want {
			t.Errorf("%08x writes %08x; want %08x", word, got, want)
		}
	}
	if known < 300_000 {
		t.Errorf("%d instructions are known; want more", known)
	}
	for name, word := range map[string]uint32{
		"stgp x0,x1,[sp]": 0x690007e0, "ldraa x0,[x1]": 0xf8200420, "addpt x0,x1,x2": 0x9a022020,
		"adc, bit 10": 0x9a020420, "st64b x0,[x1]": 0xf83f9020, "ld64b x0,[x1]": 0xf83fd020,
		"swpt x0,x1,[x2]": 0x59208441, "addvl sp,sp,#-1": 0x043f57ff, "addg x0,x1,#16,#1": 0x91810420,
		"ldiapp x0,x1,[x2]": 0xd9411840, "ldg x0,[x1]": 0xd9600020, "cpyfp [x0]!,[x1]!,x2!": 0x19010440,
		"hvc #0": 0xd4000002, "eret": 0xd69f03e0, "cbgt w0,w1,.": 0x74010000, "unallocated": 0x00010000,
	} {
		if new(a64).decode(binary.LittleEndian.AppendUint32(nil, word)) {
			t.Errorf("%s is known", name)
		}
	}
}

// checkMemory executes a load or store with base SP, and checks its effect on SP and on saved values against another
// decoder. The check assumes that exclusive and atomic instructions store up to 64 bytes.
func checkMemory(t *testing.T, machine *a64, in *insn.Inst) {
	const sp = -0x20000
	size, exact := int64(in.Stores), machine.isPair() || machine.isSingle() && machine.word&0x1200c00 != 0x200000
	if in.Op == insn.Store {
		if size = 8; machine.isPair() {
			size = 16
		}
	}
	begin, end := sp+in.Mem.Disp, sp+in.Mem.Disp+size
	run := func(callers savedValue) frameFacts {
		s := frameFacts{proofMachine: &a64Proof, known: 1 << 31, callers: callers}
		s.off[31] = sp
		machine.execute(&s)
		return s
	}
	for _, slot := range []int64{begin - 8, begin - 7, end - 1, end} {
		s := run(savedValue{slot: slot})
		known := s.known>>31&1 != 0
		kept := (size == 0 || slot+8 <= begin || slot >= end) && (!known || slot >= s.off[31])
		if s.callers.slot == slot && !kept || s.callers.slot != slot && kept && exact ||
			known && (in.Writes>>31&1 != 0 || s.off[31] != sp+in.Mem.Step) || !known && exact {
			t.Errorf("%08x: %+v: value at SP%+d is kept: %t; SP%+d, known: %t", machine.word, *in, slot-sp,
				s.callers.slot == slot, s.off[31]-sp, known)
		}
	}
}

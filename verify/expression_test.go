package verify

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"testing"
)

// Some opcodes from DWARF 5, table 7.9.
const (
	opDup  = 0x12
	opPick = 0x15
	opBra  = 0x28
	opSkip = 0x2f
	opLit0 = 0x30
	opNop  = 0x96
)

// stackOf returns what the expression leaves on the stack, from the bottom.
func stackOf(m *machine, code []byte, initial ...uint64) ([]uint64, error) {
	top, err := m.run(code, initial...)
	if err != nil {
		return nil, err
	}
	return append(slices.Clone(m.stack), top), nil
}

// TestOperations evaluates each operation of DWARF 5, section 2.5.1, that CFI may contain, including the examples of
// section D.1.2.
func TestOperations(t *testing.T) {
	const minus = ^uint64(0) // -1
	neg := func(n uint64) uint64 { return -n }
	le := machine{order: binary.LittleEndian, pcReg: 16, pc: 0x401000}
	be := machine{order: binary.BigEndian, pcReg: noReg}
	examples := []uint64{1000, 29, 17} // 17 is the top
	for _, tt := range []struct {
		name    string
		code    []byte
		initial []uint64
		want    []uint64
	}{
		// 2.5.1.1, literals.
		{"lit0", []byte{0x30}, nil, []uint64{0}},
		{"lit31", []byte{0x4f}, nil, []uint64{31}},
		{"addr", []byte{0x03, 1, 2, 3, 4, 5, 6, 7, 0x88}, nil, []uint64{0x8807060504030201}},
		{"const1u", []byte{0x08, 0xfe}, nil, []uint64{0xfe}},
		{"const1s", []byte{0x09, 0xfe}, nil, []uint64{minus - 1}},
		{"const1s, positive", []byte{0x09, 0x7e}, nil, []uint64{0x7e}},
		{"const2u", []byte{0x0a, 0x34, 0xf2}, nil, []uint64{0xf234}},
		{"const2s", []byte{0x0b, 0xfe, 0xff}, nil, []uint64{minus - 1}},
		{"const2s, positive", []byte{0x0b, 0xfe, 0x7f}, nil, []uint64{0x7ffe}},
		{"const4u", []byte{0x0c, 0x78, 0x56, 0x34, 0xf2}, nil, []uint64{0xf2345678}},
		{"const4s", []byte{0x0d, 0xfe, 0xff, 0xff, 0xff}, nil, []uint64{minus - 1}},
		{"const4s, positive", []byte{0x0d, 0xfe, 0xff, 0xff, 0x7f}, nil, []uint64{0x7ffffffe}},
		{"const8u", []byte{0x0e, 1, 0, 0, 0, 0, 0, 0, 0x80}, nil, []uint64{1<<63 + 1}},
		{"const8s", []byte{0x0f, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, nil, []uint64{minus - 1}},
		{"constu", []byte{0x10, 0xe5, 0x8e, 0x26}, nil, []uint64{624485}},
		{"constu, one byte", []byte{0x10, 0x7f}, nil, []uint64{127}},
		{"constu, padded", []byte{0x10, 0x81, 0x80, 0x00}, nil, []uint64{1}},
		{"constu, ten bytes", []byte{0x10, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}, nil,
			[]uint64{minus}},
		{"consts", []byte{0x11, 0x80, 0x7f}, nil, []uint64{neg(128)}}, // table 7.8
		{"consts, 127", []byte{0x11, 0xff, 0}, nil, []uint64{127}},
		{"consts, 128", []byte{0x11, 0x80, 1}, nil, []uint64{128}},
		{"consts, -129", []byte{0x11, 0xff, 0x7e}, nil, []uint64{neg(129)}},
		{"consts, nine bytes", []byte{0x11, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x40}, nil,
			[]uint64{neg(1 << 62)}},
		{"consts, ten bytes", []byte{0x11, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x7f}, nil,
			[]uint64{1 << 63}},

		// 2.5.1.2, register values.
		{"breg0", []byte{0x70, 0}, nil, []uint64{le.reg(0)}},
		{"breg7", []byte{0x77, 8}, nil, []uint64{le.reg(7) + 8}},
		{"breg31", []byte{0x8f, 0x78}, nil, []uint64{le.reg(31) - 8}},
		{"breg16, which is the pc", []byte{0x80, 0x7f}, nil, []uint64{0x400fff}},
		{"bregx", []byte{0x92, 0xa2, 0x01, 0x70}, nil, []uint64{le.reg(162) - 16}},
		{"bregx, which is the pc", []byte{0x92, 16, 2}, nil, []uint64{0x401002}},

		// 2.5.1.3, stack operations.
		{"dup", []byte{opDup}, examples, []uint64{1000, 29, 17, 17}},
		{"drop", []byte{0x13}, examples, []uint64{1000, 29}},
		{"pick 2", []byte{opPick, 2}, examples, []uint64{1000, 29, 17, 1000}},
		{"pick 0", []byte{opPick, 0}, examples, []uint64{1000, 29, 17, 17}},
		{"over", []byte{0x14}, examples, []uint64{1000, 29, 17, 29}},
		{"swap", []byte{0x16}, examples, []uint64{1000, 17, 29}},
		{"rot", []byte{0x17}, examples, []uint64{17, 1000, 29}},
		{"deref", []byte{0x06}, []uint64{1, 0x1000}, []uint64{1, le.load(0x1000)}},
		{"deref_size", []byte{0x94, 8}, []uint64{1, 0x1000}, []uint64{1, le.load(0x1000)}},

		// 2.5.1.4, arithmetic and logic.
		{"abs", []byte{0x19}, []uint64{neg(5)}, []uint64{5}},
		{"abs, positive", []byte{0x19}, []uint64{5}, []uint64{5}},
		{"abs, 0", []byte{0x19}, []uint64{0}, []uint64{0}},
		{"and", []byte{0x1a}, []uint64{9, 0b1100, 0b1010}, []uint64{9, 0b1000}},
		{"div", []byte{0x1b}, []uint64{9, 7, 2}, []uint64{9, 3}},
		{"div, signed", []byte{0x1b}, []uint64{neg(8), 2}, []uint64{neg(4)}},
		{"div, signed divisor", []byte{0x1b}, []uint64{8, neg(2)}, []uint64{neg(4)}},
		{"div, too large", []byte{0x1b}, []uint64{1 << 63, minus}, []uint64{1 << 63}},
		{"minus", []byte{0x1c}, []uint64{9, 7, 2}, []uint64{9, 5}},
		{"mod", []byte{0x1d}, []uint64{9, 7, 4}, []uint64{9, 3}},
		{"mul", []byte{0x1e}, []uint64{9, 7, neg(2)}, []uint64{9, neg(14)}},
		{"neg", []byte{0x1f}, []uint64{9, 7}, []uint64{9, neg(7)}},
		{"not", []byte{0x20}, []uint64{9, 0xff}, []uint64{9, 0xffffffffffffff00}},
		{"or", []byte{0x21}, []uint64{9, 0b1100, 0b1010}, []uint64{9, 0b1110}},
		{"plus", []byte{0x22}, []uint64{9, minus, 3}, []uint64{9, 2}},
		{"plus_uconst", []byte{0x23, 0x80, 1}, []uint64{9, 2}, []uint64{9, 130}},
		{"shl", []byte{0x24}, []uint64{9, 3, 4}, []uint64{9, 48}},
		{"shl by 63", []byte{0x24}, []uint64{3, 63}, []uint64{1 << 63}},
		{"shr", []byte{0x25}, []uint64{9, minus, 60}, []uint64{9, 15}},
		{"shra", []byte{0x26}, []uint64{9, neg(32), 2}, []uint64{9, neg(8)}},
		{"xor", []byte{0x27}, []uint64{9, 0b1100, 0b1010}, []uint64{9, 0b0110}},

		// 2.5.1.5, control flow. Comparisons are signed, and branch offsets are relative to the end of the operand.
		{"le", []byte{0x2c}, []uint64{9, minus, 0}, []uint64{9, 1}},
		{"le, equal", []byte{0x2c}, []uint64{5, 5}, []uint64{1}},
		{"le, not", []byte{0x2c}, []uint64{6, 5}, []uint64{0}},
		{"ge", []byte{0x2a}, []uint64{9, 0, minus}, []uint64{9, 1}},
		{"ge, equal", []byte{0x2a}, []uint64{5, 5}, []uint64{1}},
		{"ge, not", []byte{0x2a}, []uint64{5, 6}, []uint64{0}},
		{"eq", []byte{0x29}, []uint64{9, 5, 5}, []uint64{9, 1}},
		{"eq, not", []byte{0x29}, []uint64{5, 6}, []uint64{0}},
		{"lt", []byte{0x2d}, []uint64{9, minus, 0}, []uint64{9, 1}},
		{"lt, equal", []byte{0x2d}, []uint64{5, 5}, []uint64{0}},
		{"gt", []byte{0x2b}, []uint64{9, 0, minus}, []uint64{9, 1}},
		{"gt, equal", []byte{0x2b}, []uint64{5, 5}, []uint64{0}},
		{"ne", []byte{0x2e}, []uint64{9, 5, 6}, []uint64{9, 1}},
		{"ne, not", []byte{0x2e}, []uint64{5, 5}, []uint64{0}},
		{"skip", []byte{opSkip, 1, 0, 0x31, 0x32}, nil, []uint64{2}},
		{"skip to the end", []byte{0x31, opSkip, 1, 0, 0x32}, nil, []uint64{1}},
		{"skip nothing", []byte{opSkip, 0, 0, 0x31}, nil, []uint64{1}},
		// skip to 7; 3: lit1; skip to 11; 7: lit2; skip to 3; 11: the end.
		{"skip back", []byte{opSkip, 4, 0, 0x31, opSkip, 4, 0, 0x32, opSkip, 0xf8, 0xff}, nil, []uint64{2, 1}},
		{"bra", []byte{opBra, 1, 0, 0x31, 0x32}, []uint64{7, minus}, []uint64{7, 2}},
		{"bra, not", []byte{opBra, 1, 0, 0x31, 0x32}, []uint64{7, 0}, []uint64{7, 1, 2}},
		// lit5; 1: lit1; minus; dup; bra to 1.
		{"bra back", []byte{0x35, 0x31, 0x1c, opDup, opBra, 0xfa, 0xff}, nil, []uint64{0}},

		// 2.5.1.7.
		{"nop", []byte{opNop}, examples, examples},
		{"nothing", nil, examples, examples},
	} {
		got, err := stackOf(&le, tt.code, tt.initial...)
		if err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%s: stack %#x, error %v, want %#x", tt.name, got, err, tt.want)
		}
	}

	for _, tt := range []struct {
		name string
		code []byte
		want uint64
	}{
		{"const2u", []byte{0x0a, 0xf2, 0x34}, 0xf234},
		{"const2s", []byte{0x0b, 0xff, 0xfe}, minus - 1},
		{"const4u", []byte{0x0c, 0xf2, 0x34, 0x56, 0x78}, 0xf2345678},
		{"const8u", []byte{0x0e, 0x80, 0, 0, 0, 0, 0, 0, 1}, 1<<63 + 1},
		{"skip", []byte{opSkip, 0, 1, 0x31, 0x32}, 2},
		{"breg16, which is an ordinary register", []byte{0x80, 0}, be.reg(16)},
	} {
		got, err := stackOf(&be, tt.code)
		if err != nil || !slices.Equal(got, []uint64{tt.want}) {
			t.Errorf("big-endian, %s: stack %#x, error %v, want %#x", tt.name, got, err, tt.want)
		}
	}
}

// TestPCBits checks which bits of the pc an expression depends on.
func TestPCBits(t *testing.T) {
	const all = ^uint64(0)
	for _, tt := range []struct {
		code string
		want uint64
	}{
		{"77 00", 0},
		{"92 0f 00", 0},
		{"80 00", all},
		{"92 10 00", all},
		{"80 00 3f 1a", 15},
		{"92 10 7f 3a 1a", 15}, // lit10
		{"80 00 4f 1a", 31},
		{"80 00 30 1a", 0},
		{"80 00 3f 1a 80 00 31 1a", 15},
		{"80 00 31 1a 80 00", all},
		{"80 00 3f", all},
		{"80 00 3f 22 1a", all}, // plus
		{"31 80 00 12 1a", all}, // dup
		{"80 00 2f 1a", all},
		{"80 00 50 1a", all},
	} {
		m := machine{order: binary.LittleEndian, pcReg: 16, pc: 0x401000}
		if _, _ = m.run(bytesOf(t, tt.code)); m.pcBits != tt.want {
			t.Errorf("%s: bits %#x of the pc, want %#x", tt.code, m.pcBits, tt.want)
		}
	}
}

// TestWrongExpressions evaluates invalid expressions, and expressions without a value.
func TestWrongExpressions(t *testing.T) {
	m := machine{order: binary.LittleEndian, pcReg: 16}
	for _, tt := range []struct {
		name    string
		code    []byte
		initial []uint64
		want    string
	}{
		{"nothing", nil, nil, "stack is empty"},
		{"drop", []byte{0x13}, nil, "stack is empty"},
		{"drop the last", []byte{0x13}, []uint64{1}, "stack is empty"},
		{"dup", []byte{opDup}, nil, "stack has no entry 0"},
		{"over", []byte{0x14}, []uint64{1}, "stack has no entry 1"},
		{"pick", []byte{opPick, 2}, []uint64{1, 2}, "stack has no entry 2"},
		{"swap", []byte{0x16}, []uint64{1}, "stack is empty"},
		{"rot", []byte{0x17}, []uint64{1, 2}, "stack is empty"},
		{"deref", []byte{0x06}, nil, "stack is empty"},
		{"plus", []byte{0x22}, []uint64{1}, "stack is empty"},
		{"plus_uconst", []byte{0x23, 1}, nil, "stack is empty"},
		{"abs", []byte{0x19}, nil, "stack is empty"},
		{"neg", []byte{0x1f}, nil, "stack is empty"},
		{"not", []byte{0x20}, nil, "stack is empty"},
		{"bra", []byte{opBra, 0, 0}, nil, "stack is empty"},
		{"const1u without operand", []byte{0x08}, nil, "operand is truncated"},
		{"const2u of one byte", []byte{0x0a, 1}, nil, "operand is truncated"},
		{"const8u of seven bytes", []byte{0x0e, 1, 2, 3, 4, 5, 6, 7}, nil, "operand is truncated"},
		{"constu without end", []byte{0x10, 0x80}, nil, "operand is truncated"},
		{"consts without end", []byte{0x11, 0x80}, nil, "operand is truncated"},
		{"breg7 without offset", []byte{0x77}, nil, "operand is truncated"},
		{"pick without operand", []byte{opPick}, []uint64{1}, "operand is truncated"},
		{"skip of one byte", []byte{opSkip, 0}, nil, "operand is truncated"},
		{"constu of eleven bytes", slices.Concat([]byte{0x10}, bytes.Repeat([]byte{0x80}, 10), []byte{0}), nil,
			"LEB128 number is too long"},
		{"consts of eleven bytes", slices.Concat([]byte{0x11}, bytes.Repeat([]byte{0x80}, 10), []byte{0}), nil,
			"LEB128 number is too long"},
		{"load of 4 bytes", []byte{0x94, 4}, []uint64{1}, "load of 4 bytes"},
		{"div by 0", []byte{0x1b}, []uint64{1, 0}, "division by zero"},
		{"mod by 0", []byte{0x1d}, []uint64{1, 0}, "division by zero"},
		{"shl by 64", []byte{0x24}, []uint64{1, 64}, "shift by 64 bits"},
		{"shr by 64", []byte{0x25}, []uint64{1, 64}, "shift by 64 bits"},
		{"shra by -1", []byte{0x26}, []uint64{1, ^uint64(0)}, "shift by 18446744073709551615 bits"},
		{"skip before the start", []byte{opSkip, 0xfc, 0xff}, nil, "branch out of the expression"},
		{"skip past the end", []byte{opSkip, 1, 0}, nil, "branch out of the expression"},
		{"bra past the end", []byte{opBra, 2, 0, opNop}, []uint64{1}, "branch out of the expression"},
		{"bra past the end, not taken", []byte{opBra, 2, 0, 0x23}, []uint64{1, 0}, "operand is " +
			"truncated"},
		{"xderef", []byte{0x18}, []uint64{1, 2}, "opcode 0x18 is not allowed in call frame information"},
		{"reg0", []byte{0x50}, []uint64{1, 2}, "opcode 0x50 is not allowed"},
		{"fbreg", []byte{0x91, 0}, []uint64{1, 2}, "opcode 0x91 is not allowed"},
		{"call_frame_cfa", []byte{0x9c}, []uint64{1, 2}, "opcode 0x9c is not allowed"},
		{"stack_value", []byte{0x9f}, []uint64{1, 2}, "opcode 0x9f is not allowed"},
		{"no opcode", []byte{0xff}, []uint64{1, 2}, "opcode 0xff is not allowed"},
		{"an infinite loop", []byte{opSkip, 0xfd, 0xff}, nil, "it does not end"},
		{"the first error", []byte{0x13, 0xff}, nil, "stack is empty"},
	} {
		_, err := m.run(tt.code, tt.initial...)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q", tt.name, err, tt.want)
		}
	}
}

// TestPrinted expects errors to contain the expression, truncated if it is long.
func TestPrinted(t *testing.T) {
	m := machine{order: binary.LittleEndian}
	for n, want := range map[int]string{
		3:  "expression 96 96 ff: opcode",
		64: "96 ff: opcode",
		65: "96 96: opcode",
	} {
		code := append(bytes.Repeat([]byte{opNop}, n-1), 0xff)
		if _, err := m.run(code, 1, 2); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d bytes: error %v, want %q", n, err, want)
		}
	}
}

// TestSteps checks the limits on the steps of one expression, and of all expressions.
func TestSteps(t *testing.T) {
	m := machine{order: binary.LittleEndian}
	nops := bytes.Repeat([]byte{opNop}, maxSteps+1)
	if _, err := m.run(nops[:maxSteps], 1); err != nil {
		t.Errorf("%d steps: %v", maxSteps, err)
	}
	if m.steps != maxSteps+perRun {
		t.Errorf("%d steps were counted", m.steps)
	}
	if _, err := m.run(nops, 1); err == nil || !strings.Contains(err.Error(), "does not end") {
		t.Errorf("%d steps: error %v", maxSteps+1, err)
	}
	m.steps = allSteps - 1
	if _, err := m.run(nops[:1], 1); err != nil || m.steps != allSteps+perRun {
		t.Errorf("%d steps, error %v", m.steps, err)
	}
	if _, err := m.run(nops[:1], 1); err != errSteps {
		t.Errorf("after the last step: error %v", err)
	}
}

// TestContents checks that all registers and memory locations have different values: otherwise a rule with the wrong
// register or address could go unnoticed.
func TestContents(t *testing.T) {
	var m machine
	seen := make(map[uint64]string)
	add := func(v uint64, what string) {
		if was, ok := seen[v]; ok {
			t.Errorf("%s and %s are both %#x", was, what, v)
		}
		seen[v] = what
	}
	for n := range uint64(1 << 16) {
		add(m.reg(n), "a register")
	}
	base := m.reg(7)
	for n := range uint64(1 << 12) {
		add(m.load(base+n-1<<11), "memory near a register's value")
		add(m.load(n), "memory near 0")
	}
}

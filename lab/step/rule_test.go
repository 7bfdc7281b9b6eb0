package step

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"testing"
)

// words is memory with some words.
type words map[uint64]uint64

func (m words) read(addr uint64, b []byte) error {
	x, ok := m[addr]
	if !ok {
		return errors.New("no such word")
	}
	binary.LittleEndian.PutUint64(b, x)
	return nil
}

// testWalk returns a walk of amd64 with this memory.
func testWalk(t *testing.T, mem words) *walk {
	t.Helper()
	m, err := newMachine(elf.EM_X86_64, binary.LittleEndian)
	if err != nil {
		t.Fatal(err)
	}
	return newWalk(t.Context(), m, mem, Options{})
}

// TestExpression evaluates expressions whose values follow from DWARF 5, section 2.5.
func TestExpression(t *testing.T) {
	w := testWalk(t, words{0x1010: 77})
	r := &registers{pc: 0x2b}
	r.r[7], r.r[6] = 0x1000, 5
	cfa := uint64(0x2000)
	for _, c := range []struct {
		name string
		code []byte
		cfa  *uint64
		want uint64
		bad  bool
	}{
		// That of GNU ld for a PLT: rsp+8, and 8 more from the 11th byte of an entry on. 0x2b & 15 is 11.
		{name: "PLT", code: []byte{0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22}, want: 0x1010},
		{name: "deref", code: []byte{0x77, 16, 0x06}, want: 77},
		{name: "deref of nothing", code: []byte{0x77, 8, 0x06}, bad: true},
		{name: "negative offset", code: []byte{0x76, 0x7b}, want: 0},
		{name: "CFA on the stack", code: []byte{0x23, 0x88, 0x01}, cfa: &cfa, want: 0x2088},
		{name: "minus", code: []byte{0x39, 0x35, 0x1c}, want: 4},
		{name: "swap", code: []byte{0x39, 0x35, 0x16, 0x1c}, want: ^uint64(0) - 3},
		{name: "dup, mul", code: []byte{0x35, 0x12, 0x1e}, want: 25},
		{name: "neg, shra", code: []byte{0x38, 0x1f, 0x32, 0x26}, want: ^uint64(0) - 1},
		{name: "const2u, xor", code: []byte{0x0a, 0x34, 0x12, 0x31, 0x27}, want: 0x1235},
		{name: "const1s, lt", code: []byte{0x09, 0xff, 0x30, 0x2d}, want: 1},
		{name: "bra over a literal", code: []byte{0x37, 0x31, 0x28, 1, 0, 0x32}, want: 7},
		{name: "bra not taken", code: []byte{0x37, 0x30, 0x28, 1, 0, 0x32}, want: 2},
		{name: "skip", code: []byte{0x37, 0x2f, 1, 0, 0x32}, want: 7},
		{name: "bregx", code: []byte{0x92, 6, 2}, want: 7},
		{name: "nothing left", code: []byte{0x96}, bad: true},
		{name: "unknown", code: []byte{0xe0}, bad: true},
	} {
		got, ok := w.expression(string(c.code), c.cfa, r)
		if ok == c.bad || ok && got != c.want {
			t.Errorf("%s: %#x, %v; want %#x", c.name, got, ok, c.want)
		}
	}
}

// TestCallerSP evaluates a rule for the stack pointer, as longjmp has.
func TestCallerSP(t *testing.T) {
	w := testWalk(t, words{0x1000: 77})
	r := &registers{}
	r.r[7], r.r[6] = 0x1000, 0x5000
	a := answer{cfa: rule{kind: register, reg: 7, off: 8}, ra: rule{kind: fromCFA, off: -8, deref: true}}
	if c, ok := w.evaluate(&a, r); !ok || c != (caller{0x1008, 77, 0x5000}) {
		t.Errorf("%#x, %v", c, ok)
	}
	a.sp = rule{kind: register, reg: 6}
	if c, ok := w.evaluate(&a, r); !ok || c != (caller{0x5000, 77, 0x5000}) {
		t.Errorf("with a rule for the stack pointer: %#x, %v", c, ok)
	}
}

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

// TestExpression evaluates expressions with registers, memory and the CFA.
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
		{name: "CFA on the stack", code: []byte{0x23, 0x88, 0x01}, cfa: &cfa, want: 0x2088},
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

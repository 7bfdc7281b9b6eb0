package translate

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"cfi2sframe/arch"
	"cfi2sframe/sframe"
)

// TestEval evaluates the spellings of the values that SFrame can express, and of
// some that it cannot.
func TestEval(t *testing.T) {
	reg := func(n uint64, off int64) value { return value{base: ofReg, reg: n, off: off} }
	mem := func(n uint64, off int64) value { return value{base: ofReg, reg: n, off: off, deref: true} }
	cfa := func(off int64) value { return value{base: ofCFA, off: off} }
	for _, tt := range []struct {
		name string
		code []byte
		on   []value // initial stack
		want value
	}{
		{"breg7 8", []byte{0x77, 8}, nil, reg(7, 8)},
		{"breg7 -8", []byte{0x77, 0x78}, nil, reg(7, -8)},
		{"bregx 7 8", []byte{0x92, 7, 8}, nil, reg(7, 8)},
		{"breg7 0, plus_uconst 200", []byte{0x77, 0, 0x23, 0xc8, 1}, nil, reg(7, 200)},
		{"breg7 0, lit16, plus", []byte{0x77, 0, 0x40, 0x22}, nil, reg(7, 16)},
		{"lit16, breg7 0, plus", []byte{0x40, 0x77, 0, 0x22}, nil, reg(7, 16)},
		{"breg7 24, constu 8, minus", []byte{0x77, 24, 0x10, 8, 0x1c}, nil, reg(7, 16)},
		{"breg7 0, const1s -8, plus", []byte{0x77, 0, 0x09, 0xf8, 0x22}, nil, reg(7, -8)},
		{"breg7 0, const2u 300, plus", []byte{0x77, 0, 0x0a, 0x2c, 1, 0x22}, nil, reg(7, 300)},
		{"breg7 0, const4s -8, plus", []byte{0x77, 0, 0x0d, 0xf8, 0xff, 0xff, 0xff, 0x22}, nil, reg(7, -8)},
		{"breg7 0, const8u 8, plus", []byte{0x77, 0, 0x0e, 8, 0, 0, 0, 0, 0, 0, 0, 0x22}, nil, reg(7, 8)},
		{"breg7 0, consts -8, plus", []byte{0x77, 0, 0x11, 0x78, 0x22}, nil, reg(7, -8)},
		{"breg7 0, lit8, neg, plus", []byte{0x77, 0, 0x38, 0x1f, 0x22}, nil, reg(7, -8)},
		{"lit2, lit3, shl, breg7 0, plus", []byte{0x32, 0x33, 0x24, 0x77, 0, 0x22}, nil, reg(7, 16)},
		{"nop, breg7 8, nop", []byte{0x96, 0x77, 8, 0x96}, nil, reg(7, 8)},
		{"breg6 -8, deref", []byte{0x76, 0x78, 0x06}, nil, mem(6, -8)},
		{"breg6 -8, deref_size 8", []byte{0x76, 0x78, 0x94, 8}, nil, mem(6, -8)},
		{"breg6 -8, deref, plus_uconst 0", []byte{0x76, 0x78, 0x06, 0x23, 0}, nil, mem(6, -8)},
		{"breg6 0, breg7 8, swap, drop", []byte{0x76, 0, 0x77, 8, 0x16, 0x13}, nil, reg(7, 8)},
		{"breg7 8, dup, drop", []byte{0x77, 8, 0x12, 0x13}, nil, reg(7, 8)},
		{"breg7 8, lit0, over", []byte{0x77, 8, 0x30, 0x14}, nil, reg(7, 8)},
		{"breg7 8, lit0, lit0, pick 2", []byte{0x77, 8, 0x30, 0x30, 0x15, 2}, nil, reg(7, 8)},
		{"breg7 8, lit0, lit1, rot: the top becomes the third", []byte{0x77, 8, 0x30, 0x31, 0x17, 0x13}, nil, reg(7, 8)},
		{"lit16, minus on the CFA", []byte{0x40, 0x1c}, []value{cfa(0)}, cfa(-16)},
		{"plus_uconst 8 on the CFA", []byte{0x23, 8}, []value{cfa(0)}, cfa(8)},
		{"nothing on the CFA", nil, []value{cfa(0)}, cfa(0)},

		{"breg6 0, breg7 0, plus", []byte{0x76, 0, 0x77, 0, 0x22}, nil, value{}},
		{"breg6 -8, deref, plus_uconst 8", []byte{0x76, 0x78, 0x06, 0x23, 8}, nil, value{}},
		{"breg6 -8, deref, deref", []byte{0x76, 0x78, 0x06, 0x06}, nil, value{}},
		{"breg6 -8, deref_size 4", []byte{0x76, 0x78, 0x94, 4}, nil, value{}},
		{"breg7 0, lit16, and", []byte{0x77, 0, 0x40, 0x1a}, nil, value{}},
		{"lit0, breg7 0, minus", []byte{0x30, 0x77, 0, 0x1c}, nil, value{}},
		{"division by zero", []byte{0x31, 0x30, 0x1b}, nil, value{}},
		{"empty", nil, nil, value{}},
		{"stack underflow", []byte{0x22}, nil, value{}},
		{"cut off", []byte{0x0e, 1, 2}, nil, value{}},
		{"endless LEB128", []byte{0x10, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80}, nil, value{}},
		{"call_frame_cfa is not allowed", []byte{0x9c}, nil, value{}},
		{"bra is not known", []byte{0x31, 0x28, 0, 0, 0x77, 8}, nil, value{}},
	} {
		e := evaluator{order: binary.LittleEndian, pcReg: arch.NoReg}
		if got := e.eval(tt.code, tt.on...); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// TestPLTExpression evaluates GNU ld's expression for .plt at every residue.
func TestPLTExpression(t *testing.T) {
	// rsp + 8 + (((rip & 15) >= 11) << 3)
	code := []byte{0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22}
	e := evaluator{order: binary.LittleEndian, pcReg: 16}
	for pc := uint64(0x1010); pc < 0x1030; pc++ {
		want := int64(8)
		if pc%16 >= 11 {
			want = 16
		}
		e.pc = pc
		if got := e.eval(code); got != (value{base: ofReg, reg: 7, off: want}) || !e.pcHit {
			t.Errorf("at %#x: %+v, pc read: %t, want rsp%+d", pc, got, e.pcHit, want)
		}
	}
}

// TestCertain evaluates expressions at an address that can be moved by multiples of 16 or 4096 bytes,
// or not at all.
func TestCertain(t *testing.T) {
	rip := []byte{0x80, 0} // breg16 0
	for _, tt := range []struct {
		name                string
		code                []byte // after rip
		of16, of4096, fixed bool   // whether the outcome is certain
	}{
		{"pc", nil, false, false, true},
		{"the lowest bit", []byte{0x31, 0x1a}, true, true, true},
		{"the low 4 bits", []byte{0x3f, 0x1a}, true, true, true},
		{"the low 5 bits", []byte{0x4f, 0x1a}, false, true, true},
		{"the low 12 bits", []byte{0x0a, 0xff, 0x0f, 0x1a}, false, true, true},
		{"the low 13 bits", []byte{0x0a, 0xff, 0x1f, 0x1a}, false, false, true},
		{"the low 4 bits are 11 or more", []byte{0x3f, 0x1a, 0x3b, 0x2a}, true, true, true},
		{"pc is 0x1000 or more", []byte{0x0a, 0, 0x10, 0x2a}, false, false, true},
		{"pc modulo 16", []byte{0x40, 0x1d}, true, true, true},
		{"pc modulo 32", []byte{0x08, 32, 0x1d}, false, true, true},
		{"pc modulo 24", []byte{0x08, 24, 0x1d}, false, false, true},
		{"a sum, masked", []byte{0x23, 5, 0x3f, 0x1a}, true, true, true},
		{"a difference, masked", []byte{0x35, 0x1c, 0x3f, 0x1a}, true, true, true},
		{"a product, masked", []byte{0x33, 0x1e, 0x3f, 0x1a}, true, true, true},
		{"shifted left, masked", []byte{0x32, 0x24, 0x08, 0x3f, 0x1a}, true, true, true},
		{"shifted right, masked", []byte{0x34, 0x25, 0x31, 0x1a}, false, true, true},
		{"shifted right too far", []byte{0x3c, 0x25, 0x31, 0x1a}, false, false, true},
		{"the sign", []byte{0x08, 63, 0x26}, false, false, true},
		{"shifted all out", []byte{0x08, 63, 0x24, 0x31, 0x24}, true, true, true},
		{"masked and shifted right", []byte{0x38, 0x1a, 0x33, 0x25}, true, true, true},
		{"divided by 16", []byte{0x40, 0x1b, 0x31, 0x1a}, false, false, true},
		{"or of the high bits", []byte{0x09, 0xf0, 0x21}, true, true, true},
		{"or of some high bits", []byte{0x0b, 0, 0xf0, 0x21}, false, true, true},
		{"exclusive or with itself", []byte{0x12, 0x27}, false, false, true},
		{"not, masked", []byte{0x20, 0x3f, 0x1a}, true, true, true},
		{"negated, masked", []byte{0x1f, 0x3f, 0x1a}, true, true, true},
		{"absolute, masked", []byte{0x19, 0x3f, 0x1a}, false, false, true},
		{"twice the same comparison", []byte{0x12, 0x2e}, false, false, true},
		{"added to rsp", []byte{0x77, 8, 0x22}, false, false, true},
		{"the low 4 bits added to rsp", []byte{0x3f, 0x1a, 0x77, 8, 0x22}, true, true, true},
		{"subtracted from rsp", []byte{0x77, 8, 0x16, 0x1c}, false, false, true},
		{"loaded", []byte{0x77, 8, 0x22, 0x06}, false, false, true},
		{"added to what is loaded, where it is 0", []byte{0x0a, 0, 0x40, 0x1a, 0x77, 8, 0x06, 0x22}, false, false, true},
		{"shifted by it", []byte{0x4f, 0x1a, 0x31, 0x16, 0x24, 0x30, 0x1a}, false, true, true}, // and 0
		{"1 divided by it, masked", []byte{0x31, 0x16, 0x1b, 0x30, 0x1a}, false, false, true},
	} {
		for _, m := range []struct {
			moves uint64
			want  bool
		}{{16, tt.of16}, {4096, tt.of4096}, {0, tt.fixed}} {
			e := evaluator{order: binary.LittleEndian, pcReg: 16, pc: 0x12b4e0, vague: -m.moves}
			got := e.eval(append(rip[:len(rip):len(rip)], tt.code...))
			certain := got.base != unknown && got.vague == 0
			if certain != m.want || !e.pcHit {
				t.Errorf("%s, moved by multiples of %d: %+v, certain: %t, want %t", tt.name, m.moves, got, certain, m.want)
			}
		}
	}
}

// TestCertainAnywhere evaluates random expressions at an address, and at addresses that it can be
// moved to: what is said to be certain has to be the same.
func TestCertainAnywhere(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	binary2 := []byte{0x1a, 0x1b, 0x1c, 0x1d, 0x1e, 0x21, 0x22, 0x24, 0x25, 0x26, 0x27, 0x29, 0x2a, 0x2b, 0x2c, 0x2d, 0x2e}
	numbers := []uint64{0, 1, 2, 3, 4, 7, 8, 11, 15, 16, 24, 31, 63, 64, 255, 4095, 4096, 1 << 20, 1<<63 - 1, 1 << 63, ^uint64(0), ^uint64(15)}
	constant8u := func(v uint64) []byte { return binary.LittleEndian.AppendUint64([]byte{0x0e}, v) }
	certain := 0
	for range 200000 {
		code := []byte{0x80, 0}
		for range 1 + r.IntN(5) {
			switch r.IntN(8) {
			case 0:
				code = append(code, []byte{0x19, 0x1f, 0x20}[r.IntN(3)]) // abs, neg, not
			case 1:
				code = append(code, 0x80, byte(r.IntN(64)), binary2[r.IntN(len(binary2))]) // pc again
			case 2:
				code = append(code, constant8u(numbers[r.IntN(len(numbers))])...)
				code = append(code, 0x16, binary2[r.IntN(len(binary2))]) // swapped
			default:
				code = append(code, constant8u(numbers[r.IntN(len(numbers))])...)
				code = append(code, binary2[r.IntN(len(binary2))])
			}
		}
		moves := uint64(1) << r.IntN(13)
		e := evaluator{order: binary.LittleEndian, pcReg: 16, pc: r.Uint64() >> r.IntN(64), vague: -moves}
		want := e.eval(code)
		if want.base == unknown || want.vague == ^uint64(0) {
			continue
		}
		certain++
		for range 8 {
			f := evaluator{order: binary.LittleEndian, pcReg: 16, pc: e.pc + moves*(r.Uint64()>>r.IntN(64))}
			if got := f.eval(code); got.base != want.base || uint64(got.off^want.off)&^want.vague != 0 {
				t.Fatalf("% x: at %#x, of which multiples of %#x are not certain, %+v; at %#x %+v", code, e.pc, moves, want, f.pc, got)
			}
		}
	}
	if certain < 20000 {
		t.Errorf("%d outcomes have certain bits", certain)
	}
}

// steps builds a step function from pairs of start and row.
func steps(pairs ...uint32) (out []sframe.Ref) {
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, sframe.Ref{Start: pairs[i], Row: pairs[i+1]})
	}
	return out
}

func TestPeriod(t *testing.T) {
	for _, tt := range []struct {
		name  string
		steps []sframe.Ref
		size  uint64
		want  uint64
	}{
		{"three entries", steps(0, 8, 11, 16, 16, 8, 27, 16, 32, 8, 43, 16), 48, 16},
		{"cut off in an entry", steps(0, 8, 11, 16, 16, 8, 27, 16, 32, 8), 40, 16},
		{"starts inside an entry", steps(0, 16, 5, 8, 16, 16, 21, 8, 32, 16), 37, 16},
		{"entries of 24 bytes", steps(0, 8, 4, 16, 24, 8, 28, 16), 48, 24},
		{"one step", steps(0, 8), 64, 0},
		{"no repetition", steps(0, 8, 11, 16), 40, 0},
		{"too long a period", steps(0, 8, 11, 16, 300, 8, 311, 16), 600, 0},
		{"another value the second time", steps(0, 8, 11, 16, 16, 8, 27, 24), 32, 0},
	} {
		for moves, want := range map[uint64]uint64{0: tt.want, 4096: tt.want, 8: 0, 1: 0} {
			if moves == 4096 && want&(want-1) != 0 {
				want = 0 // blocks elsewhere
			}
			if got := period(tt.steps, 0x1000, 0x1000+tt.size, moves); got != want {
				t.Errorf("%s, moved by multiples of %d: period %d, want %d", tt.name, moves, got, want)
			}
		}
	}
}

// TestSpread checks that plain rows and blocks together say at each pc what the step
// function says, wherever it starts.
func TestSpread(t *testing.T) {
	at := func(pc uint64) uint32 {
		if pc%16 >= 11 {
			return 16
		}
		return 8
	}
	for begin := uint64(0x1000); begin < 0x1011; begin++ {
		for _, size := range []uint64{1, 15, 16, 31, 32, 33, 47, 48, 100} {
			end := begin + size
			var fn []sframe.Ref
			for pc := begin; pc < end; pc++ {
				if len(fn) == 0 || fn[len(fn)-1].Row != at(pc) {
					fn = append(fn, steps(uint32(pc-begin), at(pc))...)
				}
			}
			x := translator{layout: &sframe.Layout{RepSize: true}, top: make([]bool, 17), opt: Options{Moves: func(uint64) uint64 { return 16 }}}
			x.spread(fn, begin, end)
			pc := begin
			for _, r := range x.runs {
				if r.begin != pc {
					t.Fatalf("%#x-%#x: run at %#x, want it at %#x", begin, end, r.begin, pc)
				}
				if r.rep > 0 && (r.rep != 16 || r.begin%16 != 0) {
					t.Fatalf("%#x-%#x: blocks of %d bytes at %#x", begin, end, r.rep, r.begin)
				}
				for ; pc < r.end; pc++ {
					off := uint32(pc - r.begin)
					if r.rep > 0 {
						off = uint32(pc % uint64(r.rep))
					}
					var row sframe.Ref
					for _, e := range x.refs[r.first:r.last] {
						if e.Start <= off {
							row = e
						}
					}
					if row.Row != at(pc) {
						t.Fatalf("%#x-%#x: row %d at %#x, want %d", begin, end, row.Row, pc, at(pc))
					}
				}
			}
			if pc != end {
				t.Errorf("%#x-%#x: runs end at %#x", begin, end, pc)
			}
		}
	}
}

// TestReasons names each reason once, for programs and for people. The README has all names.
func TestReasons(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]Reason)
	for _, r := range Reasons() {
		for _, s := range []string{r.Name(), r.String()} {
			if s == "" || strings.HasPrefix(s, "Reason(") {
				t.Errorf("reason %d has no name", r)
			}
			if other, ok := seen[s]; ok && other != r {
				t.Errorf("reasons %d and %d are both %q", r, other, s)
			}
			seen[s] = r
		}
		if name := "`" + r.Name() + "`"; !bytes.Contains(readme, []byte(name)) {
			t.Errorf("README.md does not have %s", name)
		}
	}
	if n := len(Reasons()); n != int(Malformed) {
		t.Errorf("%d reasons, want %d", n, Malformed)
	}
}

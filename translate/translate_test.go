package translate

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/sframe"
)

// TestEvaluate evaluates expressions that SFrame can express, and some that it cannot.
func TestEvaluate(t *testing.T) {
	reg := func(n uint64, off int64) value { return value{base: ofReg, reg: n, off: off} }
	mem := func(n uint64, off int64) value { return value{base: ofReg, reg: n, off: off, deref: true} }
	cfa := func(off int64) value { return value{base: ofCFA, off: off} }
	for _, tt := range []struct {
		name string
		code []byte
		on   value // initially on the stack
		want value
	}{
		{"breg0 8", []byte{0x70, 8}, value{}, reg(0, 8)},
		{"breg31 -8", []byte{0x8f, 0x78}, value{}, reg(31, -8)},
		{"breg7 64", []byte{0x77, 0xc0, 0}, value{}, reg(7, 64)},
		{"breg7 -2^63", []byte{0x77, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01}, value{},
			reg(7, -1<<63)},
		{"bregx 7 8", []byte{0x92, 7, 8}, value{}, reg(7, 8)},
		{"breg7 0, plus_uconst 200", []byte{0x77, 0, 0x23, 0xc8, 1}, value{}, reg(7, 200)},
		{"breg7 0, lit16, plus", []byte{0x77, 0, 0x40, 0x22}, value{}, reg(7, 16)},
		{"breg7 0, lit0, plus", []byte{0x77, 0, 0x30, 0x22}, value{}, reg(7, 0)},
		{"breg7 63, lit31, minus", []byte{0x77, 0x3f, 0x4f, 0x1c}, value{}, reg(7, 32)},
		{"breg7 24, constu 8, minus", []byte{0x77, 24, 0x10, 8, 0x1c}, value{}, reg(7, 16)},
		{"breg7 0, const1u 255, plus", []byte{0x77, 0, 0x08, 0xff, 0x22}, value{}, reg(7, 255)},
		{"breg6 -8, deref", []byte{0x76, 0x78, 0x06}, value{}, mem(6, -8)},
		{"lit16, minus on the CFA", []byte{0x40, 0x1c}, cfa(0), cfa(-16)},
		{"plus_uconst 8 on the CFA", []byte{0x23, 8}, cfa(0), cfa(8)},
		{"breg7 8 on the CFA", []byte{0x77, 8}, cfa(0), reg(7, 8)},
		{"nothing on the CFA", nil, cfa(0), cfa(0)},

		{"pc", []byte{0x80, 0}, value{}, value{}},
		{"bregx pc", []byte{0x92, 16, 0}, cfa(0), value{}},
		{"breg6 0, breg7 0, plus", []byte{0x76, 0, 0x77, 0, 0x22}, value{}, value{}},
		{"breg6 -8, deref, plus_uconst 8", []byte{0x76, 0x78, 0x06, 0x23, 8}, value{}, value{}},
		{"breg6 -8, deref, deref", []byte{0x76, 0x78, 0x06, 0x06}, value{}, value{}},
		{"breg7 0, lit16, and", []byte{0x77, 0, 0x40, 0x1a}, value{}, value{}},
		{"breg7 0, neg", []byte{0x77, 0, 0x1f}, value{}, value{}},
		{"lit0, breg7 0, minus", []byte{0x30, 0x77, 0, 0x1c}, value{}, value{}},
		{"lit16", []byte{0x40}, cfa(0), value{}},
		{"empty", nil, value{}, value{}},
		{"stack underflow", []byte{0x22}, value{}, value{}},
		{"plus_uconst 8 on nothing", []byte{0x23, 8}, value{}, value{}},
		{"deref on nothing", []byte{0x06}, value{}, value{}},
		{"cut off in breg7", []byte{0x77}, value{}, value{}},
		{"cut off in bregx", []byte{0x92, 7}, value{}, value{}},
		{"cut off in const1u", []byte{0x08}, cfa(0), value{}},
		{"cut off in constu", []byte{0x10, 0x80}, cfa(0), value{}},
		{"endless LEB128", slices.Repeat([]byte{0x10, 0x80, 0x80, 0x80}, 4), cfa(0), value{}},
		{"call_frame_cfa is not allowed", []byte{0x9c}, value{}, value{}},
		{"256 bytes", slices.Repeat([]byte{0x23, 1}, 128), cfa(0), cfa(128)},
		{"258 bytes", slices.Repeat([]byte{0x23, 1}, 129), cfa(0), value{}},
	} {
		if got := evaluate(tt.code, tt.on, 16); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// steps returns a step function for pairs of start and row.
func steps(pairs ...uint32) (out []sframe.Ref) {
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, sframe.Ref{Start: pairs[i], Row: pairs[i+1]})
	}
	return out
}

// TestBlocks checks which steps become blocks: this depends on the size of a block, which is stored in an unsigned byte
// (specification, "The SFrame FDE"), and on how the code may move.
func TestBlocks(t *testing.T) {
	for _, tt := range []struct {
		rep, moves uint64
		version    sframe.Version
		want       uint8
	}{
		{16, 16, sframe.V2, 16},
		{16, 4096, sframe.V3, 16},
		{16, 0, sframe.V2, 16},
		{16, 0, sframe.V1, 0},
		{16, 8, sframe.V2, 0},
		{24, 0, sframe.V2, 24},
		{24, 4096, sframe.V2, 0},
		{255, 0, sframe.V2, 255},
		{256, 0, sframe.V2, 0},
	} {
		layout, _ := tt.version.Layout()
		x := translator{layout: &layout, restrictions: make([]restriction, 17),
			opt: Options{Moves: func(uint64) uint64 { return tt.moves }}}
		begin, size := tt.rep*100, uint32(tt.rep)
		x.spread(steps(0, 8, 11, 16, size, 8, size+11, 16), begin, begin+2*tt.rep, tt.rep)
		if len(x.runs) != 1 || x.runs[0].rep != tt.want {
			t.Errorf("steps of %d bytes, moved by multiples of %d, %v: %+v, want blocks of %d", tt.rep, tt.moves,
				tt.version, x.runs, tt.want)
		}
	}
}

// TestSpread checks that plain rows and blocks together match the step function at each pc, wherever the code starts.
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
			x := translator{layout: &sframe.Layout{RepSize: true}, restrictions: make([]restriction, 17),
				opt: Options{Moves: func(uint64) uint64 { return 16 }}}
			x.spread(fn, begin, end, 16)
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

// TestReasons checks that each reason has a unique name and a unique text, and that docs/reports.md contains all names.
func TestReasons(t *testing.T) {
	readme := testfile.Read(t, "../docs/reports.md")
	seen := map[string]Reason{"": numReasons}
	for _, r := range Reasons() {
		for _, s := range []string{r.Name(), r.String()} {
			if other, ok := seen[s]; ok && other != r {
				t.Errorf("the reason after %q needs its own name and text, not %q: edit the variable reasons in "+
					"translate/reason.go", (r - 1).Name(), s)
			}
			seen[s] = r
		}
		if name := "`" + r.Name() + "`"; r.Name() != "" && !bytes.Contains(readme, []byte(name)) {
			t.Errorf("docs/reports.md lacks %s: add a row to its table of reasons", name)
		}
	}
	if got := fmt.Sprint(ColumnNone, ColumnCFA, ColumnRA, ColumnFP, ColumnSP); got != " CFA RA FP SP" {
		t.Errorf("columns %s", got)
	}
}

package translate

import (
	"cmp"
	"reflect"
	"slices"
	"testing"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/plt"
	"cfi2sframe/internal/testkit/choice"
	"cfi2sframe/internal/testkit/generate"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/sframe"
)

// FuzzTranslate generates call frame information, translates it, and checks the totals: each described byte is covered
// once or belongs to one gap; each row starts in its function and can be encoded; and the parts of a table give the
// same result as the whole.
func FuzzTranslate(f *testing.F) {
	for seed := range uint64(120) {
		f.Add(choice.Seeded(seed, 100+4*int(seed)), uint8(seed))
	}
	f.Fuzz(func(t *testing.T, choices []byte, kind uint8) {
		if len(choices) > 4096 {
			return
		}
		s := choice.From(choices)
		m := &generate.Machines[int(kind>>2)%len(generate.Machines)]
		text := []generate.Range{{Begin: 0x20000, End: 0x24000}}
		c := generate.NewCFI(s, m, kind&128 != 0, text)
		source := cfi.EHFrame
		layout := generate.Layout{Addr: 0x40000, Text: 0x20000, GOT: 0x90000}
		if c.Debug {
			source, layout = cfi.DebugFrame, generate.Layout{}
		}
		data := c.Encode(layout)
		table, err := cfi.Parse(m.Elf, m.Order, cfi.Section{Source: source, Data: data, Addr: layout.Addr,
			Text: layout.Text, GOT: layout.GOT})
		if err != nil || table.NumErrors > 0 {
			t.Fatalf("error %v, %v", err, table.Errors)
		}
		opt := Options{Version: sframe.V1 + sframe.Version(kind%3), Outermost: kind&64 != 0 && kind%3 == 1}
		var all recorder
		res, err := Translate(table, opt, &all)
		if err != nil {
			return // V1 does not support s390x
		}
		abi := sframe.AMD64Little
		for _, a := range []sframe.ABI{sframe.AArch64Little, sframe.AArch64Big, sframe.S390XBig} {
			if m.FixedRA == 0 && a.Order() == m.Order && (a == sframe.S390XBig) == (m.SP == 15) {
				abi = a
			}
		}
		codec := must.Get(sframe.NewCodec(opt.Version, abi))(t)
		add(t, table, res, &all, codec, c.Rows())
		opt.Stubs = []plt.Stub{{Begin: 0x30000, End: 0x30010, Steps: []plt.Step{{CFA: 8}}}}
		var joined recorder
		if res, err = Translate(table, opt, &joined); err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{1, 3, 50} {
			var inParts recorder
			var results []*Result
			parts := table.Split(n)
			for i, p := range parts {
				opt := opt
				if i+1 < len(parts) {
					opt.Stubs = nil
				}
				r := must.Get(Translate(p, opt, &inParts))(t)
				results = append(results, r)
			}
			if got := Merge(results); !reflect.DeepEqual(got, res) {
				t.Errorf("in %d parts: %+v, want %+v", n, got, res)
			}
			if !slices.Equal(inParts.fdes, joined.fdes) {
				t.Errorf("in %d parts, the FDEs are\n%+v\nwant\n%+v", n, inParts.fdes, joined.fdes)
			}
		}
	})
}

// add adds up the results for a table.
func add(t *testing.T, table *cfi.Table, res *Result, s *recorder, codec *sframe.Codec, rows []generate.Row) {
	t.Helper()
	var described, covered, gaps uint64
	for fn := range table.Functions() {
		described += fn.End - fn.Begin
	}
	var pieces []elffile.Span
	for i, d := range s.fdes {
		covered += uint64(d.Size)
		pieces = append(pieces, elffile.Span{Begin: d.Start, End: d.End()})
		for j, r := range s.refs[i] {
			if j == 0 && r.Start != 0 || j > 0 && r.Start <= s.refs[i][j-1].Start || r.Start >= d.Size {
				t.Errorf("row %d of the FDE %#x-%#x starts at %#x", j, d.Start, d.End(), r.Start)
			}
			row := s.rows[r.Row]
			if !row.Outermost && !codec.Default(&row) && !codec.Flexible(&row) {
				t.Errorf("at %#x: row %+v cannot be encoded", d.Start+uint64(r.Start), row)
			}
		}
	}
	for i := range res.Gaps {
		g := &res.Gaps[i]
		gaps += g.Size()
		pieces = append(pieces, elffile.Span{Begin: g.Begin, End: g.End})
		if g.Begin < g.Function.Begin || g.End > g.Function.End || g.Begin >= g.End || g.Reason.Name() == "" {
			t.Errorf("gap %#x-%#x (%v) of the function %#x-%#x", g.Begin, g.End, g.Reason, g.Function.Begin,
				g.Function.End)
		}
		wrong := g.Reason == Malformed || g.Reason == Disputed
		if w := generate.At(rows, g.Begin); w == nil || wrong && w.Rules != nil {
			t.Errorf("gap at %#x: %v, for %+v", g.Begin, g.Reason, w)
		}
	}
	if res.Described != described || res.Rows() != covered || covered+gaps != described {
		t.Errorf("%d bytes described and %d covered; functions have %d, FDEs %d, gaps %d", res.Described,
			res.Rows(), described, covered, gaps)
	}
	slices.SortFunc(pieces, func(a, b elffile.Span) int { return cmp.Compare(a.Begin, b.Begin) })
	for i := 1; i < len(pieces); i++ {
		if pieces[i].Begin < pieces[i-1].End {
			t.Errorf("%#x and %#x overlap", pieces[i-1], pieces[i])
		}
	}
}

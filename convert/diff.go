package convert

import (
	"cmp"
	"context"
	"hash/maphash"
	"regexp"
	"slices"
	"sort"
	"strings"
	"sync"

	"cfi2sframe/report"
	"cfi2sframe/sframe"
	"cfi2sframe/translate"
)

// What is held of each of two files at most: FDEs may share rows, and have as many blocks as they like.
const (
	anyDiffRows = 1 << 22 // and one more for two bytes of the section
	maxChanges  = 1 << 16 // that are listed
)

// Reasons that are not those of a translation: of code that the format has rows for.
const (
	notWritten = "not-written"
	notKnown   = "not-known"
)

var diffReasons = map[string]string{
	notWritten: "the format has rows for it, which were not written",
	notKnown:   "there are too many gaps to tell why",
}

// DiffFiles compares the .sframe of two files, whoever wrote them: what is in them, and which rows functions have. If the
// code is not the same, functions are matched by their names. Of the options, Source and DebugFile count.
func DiffFiles(ctx context.Context, old, new string, opt FileOptions) (*report.Diff, error) {
	d := &differ{rows: make(map[diffRow]uint32), words: []string{""}, seed: maphash.MakeSeed()}
	for i, path := range []string{old, new} {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := d.load(ctx, &d.sides[i], path, opt); err != nil {
			return nil, &FileError{path, err}
		}
	}
	return d.compare(), nil
}

// A FileError is an error of one of several files.
type FileError struct {
	Path string
	Err  error
}

func (e *FileError) Error() string { return e.Path + ": " + e.Err.Error() }
func (e *FileError) Unwrap() error { return e.Err }

// A diffRow is a row, and what its FDE says of it.
type diffRow struct {
	sframe.Row
	signal, keyB bool
}

// A differ compares two files. Rows have numbers, which are the same for both; 0 stands for none.
type differ struct {
	rows  map[diffRow]uint32
	words []string // by number
	seed  maphash.Seed
	sides [2]side
}

// sum returns a number that pieces with the same rows have in common.
func (d *differ) sum(s *side, p *piece) uint64 {
	var h maphash.Hash
	h.SetSeed(d.seed)
	maphash.WriteComparable(&h, p.end-p.begin)
	for _, t := range s.tokens[p.first:p.last] {
		maphash.WriteComparable(&h, t)
	}
	return h.Sum64()
}

// sameCode reports whether the code of both files is the same, byte by byte. Names of sections may be gone.
func (d *differ) sameCode() bool {
	a, b := d.sides[0].code, d.sides[1].code
	object := d.sides[0].object
	return object == d.sides[1].object && slices.EqualFunc(a, b, func(a, b codePart) bool {
		return (a.begin == b.begin || object) && a.size == b.size && a.sum == b.sum
	})
}

// place returns where an address is: in which part of the code, and how far from its begin.
func (s *side) place(addr uint64) (part int, offset uint64) {
	part = sort.Search(len(s.code), func(i int) bool { return s.code[i].begin > addr }) - 1
	if part < 0 {
		return part, addr
	}
	return part, addr - s.code[part].begin
}

// compare compares the files.
func (d *differ) compare() *report.Diff {
	out := &report.Diff{
		Schema: report.DiffSchema, Old: d.sides[0].DiffSide, New: d.sides[1].DiffSide, SameCode: d.sameCode(),
		Gaps: []report.DiffGap{}, Changes: []report.Change{},
	}
	pairs := d.pairs(out.SameCode)
	gaps := make(map[string]*report.DiffGap)
	for _, p := range pairs {
		d.change(out, p)
		count(gaps, p)
	}
	for _, r := range translate.Reasons() {
		if g := gaps[r.Name()]; g != nil {
			g.Text = r.String()
			out.Gaps = append(out.Gaps, *g)
		}
	}
	for _, name := range []string{notWritten, notKnown} {
		if g := gaps[name]; g != nil {
			g.Text = diffReasons[name]
			out.Gaps = append(out.Gaps, *g)
		}
	}
	old, new := out.Old, out.New
	old.File = new.File
	n := out.Functions
	out.Same = old == new && n.Offsets+n.Rows+n.OnlyOld+n.OnlyNew == 0
	return out
}

// A pair is a function in both files; one of them is nil if it is in the other one only.
type pair [2]*piece

// count sums up the gaps of a pair.
func count(gaps map[string]*report.DiffGap, p pair) {
	add := func(reason string, old, new uint64) {
		g := gaps[reason]
		if g == nil {
			g = &report.DiffGap{Reason: reason}
			gaps[reason] = g
		}
		g.Old += old
		g.New += new
		g.Gained += max(new, old) - old
		g.Lost += max(new, old) - new
	}
	if p[0] != nil {
		for _, l := range p[0].gaps {
			var new uint64
			if p[1] != nil {
				new = p[1].of(l.reason)
			}
			add(l.reason, l.bytes, new)
		}
	}
	if p[1] != nil {
		for _, l := range p[1].gaps {
			if p[0] == nil || p[0].of(l.reason) == 0 {
				add(l.reason, 0, l.bytes)
			}
		}
	}
}

// change counts a pair, and lists it if it is not the same.
func (d *differ) change(out *report.Diff, p pair) {
	n := &out.Functions
	c := report.Change{Old: d.described(0, p[0]), New: d.described(1, p[1])}
	switch {
	case p[1] == nil:
		n.OnlyOld++
		c.Kind, c.Function = report.ChangeOld, p[0].name
	case p[0] == nil:
		n.OnlyNew++
		c.Kind, c.Function = report.ChangeNew, p[1].name
	default:
		c.Function = cmp.Or(p[1].name, p[0].name)
		a, b := d.sides[0].tokens[p[0].first:p[0].last], d.sides[1].tokens[p[1].first:p[1].last]
		i := 0
		for i < len(a) && i < len(b) && a[i] == b[i] {
			i++
		}
		switch {
		case i == len(a) && i == len(b) && p[0].end-p[0].begin == p[1].end-p[1].begin:
			n.Same++
			return
		case slices.EqualFunc(a, b, func(a, b token) bool { return a.row == b.row }):
			n.Offsets++
			c.Kind = report.ChangeOffsets
		default:
			n.Rows++
			c.Kind = report.ChangeRows
		}
		c.Offset = min(p[0].end-p[0].begin, p[1].end-p[1].begin)
		for _, t := range [][]token{a, b} {
			if i < len(t) {
				c.Offset = min(c.Offset, uint64(t[i].offset))
			}
		}
		c.OldRow, c.NewRow = d.rowAt(a, c.Offset), d.rowAt(b, c.Offset)
	}
	if len(out.Changes) == maxChanges {
		out.Omitted++
		return
	}
	out.Changes = append(out.Changes, c)
}

// rowAt returns in words the row that holds at an offset.
func (d *differ) rowAt(tokens []token, offset uint64) string {
	i := sort.Search(len(tokens), func(i int) bool { return uint64(tokens[i].offset) > offset }) - 1
	if i < 0 {
		return ""
	}
	return d.words[tokens[i].row]
}

// described returns what is reported of a function in one of the files.
func (d *differ) described(i int, p *piece) *report.DiffFunction {
	if p == nil {
		return nil
	}
	s := &d.sides[i]
	f := &report.DiffFunction{Begin: p.begin, Size: p.end - p.begin, Covered: p.covered}
	for _, t := range s.tokens[p.first:p.last] {
		if t.row > 0 {
			f.Rows++
		}
	}
	if part, offset := s.place(p.begin); s.object && part >= 0 {
		f.Section, f.Begin = s.code[part].name, offset
	}
	return f
}

// pairs matches the functions of both files, in the order of the new one, with those that only the old one has at the end.
func (d *differ) pairs(byPlace bool) []pair {
	a, b := &d.sides[0], &d.sides[1]
	partner := make([]*piece, len(b.pieces))
	match := func(old *piece, i int) {
		old.matched = true
		partner[i] = old
	}
	if byPlace {
		d.matchPlaces(match)
	} else {
		d.matchNames(match)
	}
	var out []pair
	for i := range b.pieces {
		out = append(out, pair{partner[i], &b.pieces[i]})
	}
	for i := range a.pieces {
		if !a.pieces[i].matched {
			out = append(out, pair{&a.pieces[i], nil})
		}
	}
	return out
}

// matchPlaces matches functions that begin at the same place of the same code.
func (d *differ) matchPlaces(match func(*piece, int)) {
	a, b := &d.sides[0], &d.sides[1]
	type place struct {
		part   int
		offset uint64
	}
	old := make(map[place]*piece, len(a.pieces))
	for i := range a.pieces {
		part, offset := a.place(a.pieces[i].begin)
		old[place{part, offset}] = &a.pieces[i]
	}
	for i := range b.pieces {
		part, offset := b.place(b.pieces[i].begin)
		if p := old[place{part, offset}]; p != nil {
			match(p, i)
		}
	}
}

// matchNames matches functions by their names. Of several with one name those are matched first that have the same rows, and
// the others in their order; then those whose names a compiler has changed. Functions that no symbol names have the name of a
// section in common: the others of these are matched if they are as many.
func (d *differ) matchNames(match func(*piece, int)) {
	a, b := &d.sides[0], &d.sides[1]
	type key struct {
		name string
		sum  uint64
	}
	old := make(map[key][]*piece)
	for i := range a.pieces {
		p := &a.pieces[i]
		k := key{p.name, d.sum(a, p)}
		old[k] = append(old[k], p)
	}
	var left []int // of the new file
	for i := range b.pieces {
		p := &b.pieces[i]
		k := key{p.name, d.sum(b, p)}
		if same := old[k]; len(same) > 0 {
			match(same[0], i)
			old[k] = same[1:]
		} else {
			left = append(left, i)
		}
	}
	matchRest := func(of func(string) string) {
		rest, others := make(map[string][]*piece), make(map[string][]int)
		for i := range a.pieces {
			if p := &a.pieces[i]; !p.matched {
				rest[of(p.name)] = append(rest[of(p.name)], p)
			}
		}
		for _, i := range left {
			others[of(b.pieces[i].name)] = append(others[of(b.pieces[i].name)], i)
		}
		left = left[:0]
		for name, is := range others {
			old := rest[name]
			n := min(len(old), len(is))
			if (name == "" || strings.HasPrefix(name, ".")) && len(old) != len(is) {
				n = 0
			}
			for i := range n {
				match(old[i], is[i])
			}
			left = append(left, is[n:]...)
		}
		slices.Sort(left)
	}
	matchRest(func(name string) string { return name })
	matchRest(plainName)
}

// variant is what compilers append to the names of functions that they have changed for their callers, and cut parts off.
var variant = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\.(constprop|isra|lto_priv|llvm)\.[0-9]+| \[clone \.(constprop|isra|lto_priv|llvm)\.[0-9]+\]`)
})

// plainName returns the name that a function has in the source.
func plainName(name string) string { return variant().ReplaceAllString(name, "") }

// Package sframediff compares the .sframe sections of two files by function.
//
// If both files have identical code, functions are matched by address, otherwise by name. Code with rows but without
// CFI, such as a PLT stub, counts as a function.
package sframediff

import (
	"cmp"
	"hash/maphash"
	"regexp"
	"slices"
	"sort"
	"strings"
	"sync"

	"cfi2sframe/cmd/cfi2sframe/internal/report"
	"cfi2sframe/translate"
)

// maxChanges limits the number of changes that are listed.
const maxChanges = 1 << 16

// Reasons for missing rows, in addition to those of package translate.
const (
	notWritten = "not-written"
	notKnown   = "not-known"
)

// Compare compares two files.
func Compare(a, b *Side) *report.Diff {
	out := &report.Diff{
		Schema: report.DiffSchema, Old: a.Summary, New: b.Summary, SameCode: a.object == b.object && a.code == b.code,
		Gaps: []report.DiffGap{}, Changes: []report.Change{},
	}
	if out.SameCode {
		matchByKey(a, b, func(f *function) any { return location{f.Section, f.Begin} })
	} else {
		matchNames(a, b)
	}
	// Functions are in the order of the new file, followed by those only in the old file.
	var pairs []pair
	for i := range b.functions {
		f := &b.functions[i]
		pairs = append(pairs, pair{f.partner, f})
	}
	for i := range a.functions {
		if f := &a.functions[i]; f.partner == nil {
			pairs = append(pairs, pair{f, nil})
		}
	}
	for _, p := range pairs {
		c := p.change()
		n := &out.Functions
		switch c.Kind {
		case "":
			n.Same++
			continue
		case report.ChangeOffsets:
			n.Offsets++
		case report.ChangeRows:
			n.Rows++
		case report.ChangeOld:
			n.OnlyOld++
		case report.ChangeNew:
			n.OnlyNew++
		}
		if len(out.Changes) == maxChanges {
			out.Omitted++
			continue
		}
		out.Changes = append(out.Changes, c)
	}
	addGap := func(name, text string) {
		if g := sumGaps(pairs, name); g.Old+g.New > 0 {
			g.Text = text
			out.Gaps = append(out.Gaps, g)
		}
	}
	for _, r := range translate.Reasons() {
		addGap(r.Name(), r.String())
	}
	addGap(notWritten, "the format can express these rows, but .sframe lacks them")
	addGap(notKnown, "too many gaps to determine the reason")
	old, new := out.Old, out.New
	old.File = new.File
	out.Same = old == new && len(out.Changes) == 0
	return out
}

// A location identifies a function by its section and start.
type location struct {
	section string // of an object
	begin   uint64
}

// matchByKey pairs functions that have equal keys and no partner yet, in order. Functions with a nil key are skipped.
func matchByKey(a, b *Side, key func(*function) any) {
	free := make(map[any][]*function)
	for i := range a.functions {
		if f := &a.functions[i]; f.partner == nil {
			k := key(f)
			free[k] = append(free[k], f)
		}
	}
	for i := range b.functions {
		f := &b.functions[i]
		if f.partner != nil {
			continue
		}
		if k := key(f); k != nil && len(free[k]) > 0 {
			f.partner = free[k][0]
			f.partner.partner = f
			free[k] = free[k][1:]
		}
	}
}

// matchNames pairs functions by name: first those with equal rows, then the rest, then those with compiler suffixes.
// Functions without symbols have the name of their section; if their rows differ, they are paired only if both files
// have equally many of them.
func matchNames(a, b *Side) {
	type key struct {
		name string
		hash uint64
	}
	seed := maphash.MakeSeed()
	matchByKey(a, b, func(f *function) any { return key{f.name, f.hash(seed)} })
	more := make(map[string]int) // unpaired functions without symbols, by name: number in b minus number in a
	for change, s := range map[int]*Side{-1: a, 1: b} {
		for i := range s.functions {
			f := &s.functions[i]
			if f.partner == nil && (f.name == "" || strings.HasPrefix(f.name, ".")) {
				more[f.name] += change
			}
		}
	}
	for _, plain := range []func(string) string{strings.Clone, plainName} {
		matchByKey(a, b, func(f *function) any {
			if more[f.name] != 0 {
				return nil
			}
			return plain(f.name)
		})
	}
}

// variant matches the suffixes that compilers give to specialised copies of functions.
var variant = sync.OnceValue(func() *regexp.Regexp {
	const suffix = `\.(constprop|isra|lto_priv|llvm)\.[0-9]+`
	return regexp.MustCompile(suffix + `| \[clone ` + suffix + `\]`)
})

// plainName returns the name without the suffixes that variant matches.
func plainName(name string) string { return variant().ReplaceAllString(name, "") }

// hash returns equal values for functions with equal sizes and rows.
func (f *function) hash(seed maphash.Seed) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	maphash.WriteComparable(&h, f.Size)
	for _, r := range f.rows {
		maphash.WriteComparable(&h, r)
	}
	return h.Sum64()
}

// A pair is a function in the old file and its partner in the new file. Either may be nil.
type pair struct{ old, new *function }

// change returns how a function changed. The kind is "" if the function is unchanged.
func (p pair) change() report.Change {
	switch {
	case p.new == nil:
		return report.Change{Kind: report.ChangeOld, Function: p.old.name, Old: &p.old.DiffFunction}
	case p.old == nil:
		return report.Change{Kind: report.ChangeNew, Function: p.new.name, New: &p.new.DiffFunction}
	}
	c := report.Change{Function: cmp.Or(p.new.name, p.old.name), Old: &p.old.DiffFunction, New: &p.new.DiffFunction}
	x, y := p.old.rows, p.new.rows
	switch {
	case c.Old.Size == c.New.Size && slices.Equal(x, y):
		return c
	case slices.EqualFunc(x, y, func(x, y row) bool { return x.words == y.words }):
		c.Kind = report.ChangeOffsets
	default:
		c.Kind = report.ChangeRows
	}
	i := 0
	for i < len(x) && i < len(y) && x[i] == y[i] {
		i++
	}
	c.Offset = min(c.Old.Size, c.New.Size)
	for _, rows := range [][]row{x, y} {
		if i < len(rows) {
			c.Offset = min(c.Offset, rows[i].offset)
		}
	}
	c.OldRow, c.NewRow = rowAt(x, c.Offset), rowAt(y, c.Offset)
	return c
}

// rowAt returns the row at an offset.
func rowAt(rows []row, offset uint64) string {
	i := sort.Search(len(rows), func(i int) bool { return rows[i].offset > offset }) - 1
	if i < 0 {
		return ""
	}
	return rows[i].words
}

// sumGaps adds up the bytes of code without rows for the given reason.
func sumGaps(pairs []pair, reason string) report.DiffGap {
	g := report.DiffGap{Reason: reason}
	for _, p := range pairs {
		var old, new uint64
		if p.old != nil {
			old = p.old.gaps[reason]
		}
		if p.new != nil {
			new = p.new.gaps[reason]
		}
		g.Old += old
		g.New += new
		g.Gained += max(old, new) - old
		g.Lost += max(old, new) - new
	}
	return g
}

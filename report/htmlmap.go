package report

import (
	"cmp"
	"fmt"
	"slices"
	"sort"

	"cfi2sframe/internal/page"
)

// maxStrips bounds the sections of a file in its map. Programs have five; objects can have one for every function.
const maxStrips = 40

// A strip is an executable section as the map draws it.
type strip struct {
	UncoveredSection
	gaps    []*Gap // that are listed
	LeftOut uint64 // their bytes
	Marks   []mark // gaps come last, the rarest reason at the end: they are drawn over the others
	Lanes   []lane // one for every reason that has gaps in the section
}

// A lane has the gaps of one reason, so that readers need not tell colours.
type lane struct {
	Reason, Text string
	Bytes        uint64
	Marks        []mark
}

// A mark is a piece of a strip. Its place and size are in percent of the strip.
type mark struct {
	Class               string
	X, Y, Width, Height string
	Title               string
}

// codeMap returns the strips of a file, by address, and how many sections have none: those with the smallest gaps.
func codeMap(c *Coverage) ([]strip, int) {
	all := make([]strip, len(c.Uncovered.Sections))
	for i := range all {
		all[i].UncoveredSection = c.Uncovered.Sections[i]
	}
	gaps := c.losses()
	for i := range gaps {
		addGap(all, &gaps[i])
	}
	out := largest(all, maxStrips, func(a, b strip) int {
		return cmp.Or(cmp.Compare(a.LeftOut, b.LeftOut), cmp.Compare(a.Size, b.Size))
	})
	for i := range out {
		out[i].draw()
	}
	return out, len(all) - len(out)
}

// largest returns the n largest elements of a list in their order.
func largest[T any](list []T, n int, compare func(a, b T) int) []T {
	order := make([]int, len(list))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return compare(list[b], list[a]) })
	order = order[:min(len(order), n)]
	slices.Sort(order)
	out := make([]T, len(order))
	for i, j := range order {
		out[i] = list[j]
	}
	return out
}

// addGap adds a gap to the strip that it lies in, if there is one. The strips are sorted by address.
func addGap(strips []strip, g *Gap) {
	addr := g.Begin + g.base
	i := sort.Search(len(strips), func(i int) bool { return strips[i].Begin+strips[i].base > addr }) - 1
	for i >= 0 && strips[i].Size == 0 {
		i--
	}
	if i >= 0 && g.End+g.base-strips[i].Begin-strips[i].base <= strips[i].Size {
		strips[i].gaps = append(strips[i].gaps, g)
		strips[i].LeftOut += g.End - g.Begin
	}
}

// draw makes the marks of a strip.
func (s *strip) draw() {
	for _, r := range s.Ranges {
		s.Marks = append(s.Marks, s.mark(r, "without", "code without CFI, or padding", 0))
	}
	ranges, texts := make(map[string][]Range), make(map[string]string)
	for _, g := range s.gaps {
		ranges[g.Reason] = append(ranges[g.Reason], Range{g.Begin, g.End})
		texts[g.Reason] = g.Text
	}
	for reason, text := range texts {
		l := lane{Reason: reason, Text: text}
		slices.SortFunc(ranges[reason], byBegin)
		for _, r := range summarize(ranges[reason], s.Begin, s.Size) {
			l.Marks = append(l.Marks, s.mark(r, "gap r-"+reason, text, minGapHeight))
			l.Bytes += r.Bytes
		}
		s.Lanes = append(s.Lanes, l)
	}
	// Large marks must not hide small ones.
	slices.SortFunc(s.Lanes, func(a, b lane) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Reason, b.Reason))
	})
	for i := range s.Lanes {
		s.Marks = append(s.Marks, s.Lanes[i].Marks...)
	}
}

// minGapHeight is the least height of a gap. Readers must see the smallest gap, but not the smallest padding.
const minGapHeight = 0.2

// mark returns the mark of a range. Its height is the share of the range that has r.Bytes, or least.
func (s *strip) mark(r UncoveredRange, class, what string, least float64) mark {
	section := ""
	if s.Begin == 0 {
		section = s.Name
	}
	size, amount := r.End-r.Begin, bytesOf(r.Bytes)
	if r.Bytes < size {
		amount = Digits(r.Bytes) + " of " + bytesOf(size)
	}
	height := max(r.Bytes, uint64(least*float64(size)))
	return mark{
		Class: class,
		X:     page.Part(r.Begin-s.Begin, s.Size), Width: page.Part(size, s.Size),
		Y: page.Part(size-height, size), Height: page.Part(height, size),
		Title: fmt.Sprintf("%s: %s, %s", rangeOf(section, r.Begin, r.End), amount, what),
	}
}

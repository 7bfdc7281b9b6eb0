package report

import (
	"cmp"
	"fmt"
	"slices"
	"sort"

	"cfi2sframe/internal/page"
)

// maxStrips bounds the sections that are drawn of a file. Programs have five; objects can have
// one for every function.
const maxStrips = 40

// A strip is an executable section as the map draws it.
type strip struct {
	UncoveredSection
	LeftOut uint64 // bytes in gaps that are listed
	Marks   []mark // all of them, those of gaps last: they are drawn on top, and the rarest reason's on top of all
	Lanes   []lane // one for every reason that has gaps in the section
}

// A lane has the gaps of one reason, so that the reason shows without its colour too.
type lane struct {
	Reason, Text string
	Bytes        uint64
	Marks        []mark
}

// A mark is a piece of a strip. Its place and size are in percent of the strip's.
type mark struct {
	Class               string
	X, Y, Width, Height string
	Title               string
}

// codeMap returns the strips of a file, by address, and how many sections are not among them: the
// smallest ones without gaps.
func codeMap(c *Coverage) ([]strip, int) {
	all := make([]strip, len(c.Uncovered.Sections))
	for i := range all {
		all[i].UncoveredSection = c.Uncovered.Sections[i]
	}
	gaps := gapsBySection(c)
	for i := range all {
		for _, g := range gaps[i] {
			all[i].LeftOut += g.End - g.Begin
		}
	}
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(-cmp.Compare(all[a].LeftOut, all[b].LeftOut), -cmp.Compare(all[a].Size, all[b].Size))
	})
	order = order[:min(len(order), maxStrips)]
	slices.Sort(order)
	out := make([]strip, len(order))
	for i, j := range order {
		out[i] = all[j]
		out[i].draw(gaps[j])
	}
	return out, len(all) - len(out)
}

// gapsBySection returns for each section the gaps in it. Sections of an object have no
// addresses, and of several with the same name, which only some compilers make, the first
// that is large enough gets the gaps.
func gapsBySection(c *Coverage) [][]*Gap {
	sections := c.Uncovered.Sections
	out := make([][]*Gap, len(sections))
	named := make(map[string][]int)
	for i := range sections { // a later one is of use only if it is larger
		list := named[sections[i].Name]
		if n := len(list); n == 0 || sections[list[n-1]].Size < sections[i].Size {
			named[sections[i].Name] = append(list, i)
		}
	}
	for i := range c.Gaps {
		g := &c.Gaps[i]
		list := candidates(sections, named, g)
		j := sort.Search(len(list), func(j int) bool { return g.End-sections[list[j]].Begin <= sections[list[j]].Size })
		if j == len(list) {
			continue
		}
		if at := list[j]; g.Begin >= sections[at].Begin && g.Begin-sections[at].Begin < sections[at].Size {
			out[at] = append(out[at], g)
		}
	}
	return out
}

// candidates returns the sections that a gap can be in: by name in an object, and elsewhere the
// last one that begins before it.
func candidates(sections []UncoveredSection, named map[string][]int, g *Gap) []int {
	if g.Section != "" {
		return named[g.Section]
	}
	at, found := slices.BinarySearchFunc(sections, g.Begin, func(s UncoveredSection, addr uint64) int { return cmp.Compare(s.Begin, addr) })
	if !found {
		at--
	}
	if at < 0 {
		return nil
	}
	return []int{at}
}

// draw makes the marks of a strip.
func (s *strip) draw(gaps []*Gap) {
	for _, r := range s.Ranges {
		s.Marks = append(s.Marks, s.mark(r, "without", "code without CFI", 0))
	}
	byReason := make(map[string][]*Gap)
	for _, g := range gaps {
		byReason[g.Reason] = append(byReason[g.Reason], g)
	}
	for reason, gaps := range byReason {
		s.Lanes = append(s.Lanes, s.lane(reason, gaps))
	}
	// What is large must not hide what is small.
	slices.SortFunc(s.Lanes, func(a, b lane) int { return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Reason, b.Reason)) })
	for i := range s.Lanes {
		s.Marks = append(s.Marks, s.Lanes[i].Marks...)
	}
}

// lane returns the lane of the gaps of one reason.
func (s *strip) lane(reason string, gaps []*Gap) lane {
	l := lane{Reason: reason, Text: gaps[0].Text}
	spans := make([]span, len(gaps))
	for i, g := range gaps {
		spans[i] = span{g.Begin, g.End}
	}
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.begin, b.begin) })
	for _, r := range ranges(spans, s.Begin, s.Size) {
		l.Marks = append(l.Marks, s.mark(r, "gap r-"+reason, l.Text, minGapHeight))
		l.Bytes += r.Bytes
	}
	return l
}

// minGapHeight is the least height of a gap: the smallest has to be seen, as padding has not.
const minGapHeight = 0.2

// mark returns the mark of a range; its height is the share of the range that is meant, or least.
func (s *strip) mark(r UncoveredRange, class, what string, least float64) mark {
	section := ""
	if s.Begin == 0 {
		section = s.Name
	}
	title := fmt.Sprintf("%s: %s, %s", rangeOf(section, r.Begin, r.End), bytesOf(r.Bytes), what)
	size := r.End - r.Begin
	if r.Bytes < size {
		title = fmt.Sprintf("%s: %s of %s, %s", rangeOf(section, r.Begin, r.End), digits(r.Bytes), bytesOf(size), what)
	}
	height := max(r.Bytes, uint64(least*float64(size)))
	return mark{
		Class: class,
		X:     page.Part(r.Begin-s.Begin, s.Size), Width: page.Part(size, s.Size),
		Y: page.Part(size-height, size), Height: page.Part(height, size),
		Title: title,
	}
}

// Label says in words what a strip shows.
func (s *strip) Label() string {
	return fmt.Sprintf("%s: %s, of which %s are left out and %s have no CFI", printable(s.Name), bytesOf(s.Size), digits(s.LeftOut), digits(s.Bytes))
}

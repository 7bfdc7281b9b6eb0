package report

import (
	"slices"
	"strings"
)

// Sum returns the coverage of several files, such as the members of an archive, as that of
// one with the given name. Of the files' gaps it has the sums.
func Sum(file string, files []*Coverage) *Coverage {
	sum := &Coverage{
		Schema: Schema, File: file, Verified: true, Sources: []Source{}, Reasons: []Reason{}, Gaps: []Gap{},
		Uncovered: Uncovered{Sections: []UncoveredSection{}, Functions: []UncoveredFunction{}},
	}
	reasons, sections, sources := index{}, index{}, index{}
	for _, c := range files {
		sum.ABI, sum.Format = c.ABI, c.Format
		sum.Functions += c.Functions
		sum.FDEs += c.FDEs
		sum.FREs += c.FREs
		sum.Described += c.Described
		sum.Covered += c.Covered
		sum.Topmost += c.Topmost
		sum.Outermost += c.Outermost
		sum.PLT += c.PLT
		sum.Padding += c.Padding
		sum.MovedCode += c.MovedCode
		sum.Unsigned = sum.Unsigned || c.Unsigned
		sum.Size += c.Size
		sum.EHFrame += c.EHFrame
		sum.EHHdr += c.EHHdr
		sum.Verified = sum.Verified && c.Verified
		sum.atLeast = sum.atLeast || c.atLeast
		sum.Dropped.ZeroLength += c.Dropped.ZeroLength
		sum.Dropped.Discarded += c.Dropped.Discarded
		sum.Dropped.Overlapped += c.Dropped.Overlapped
		sum.Malformed.Count += c.Malformed.Count
		sum.Malformed.Errors = append(sum.Malformed.Errors, c.Malformed.Errors...)
		for _, w := range c.Warnings {
			if !slices.Contains(sum.Warnings, w) {
				sum.Warnings = append(sum.Warnings, w)
			}
		}
		for _, n := range c.Notes {
			if !slices.Contains(sum.Notes, n) && len(sum.Notes) < maxNotes {
				sum.Notes = append(sum.Notes, n)
			}
		}
		sum.Uncovered.Bytes += c.Uncovered.Bytes
		for _, s := range c.Uncovered.Sections {
			sum.addSection(s, sections)
		}
		for _, s := range c.Sources {
			sum.addSource(s, sources)
		}
		for _, r := range c.Reasons {
			sum.addReason(r, reasons)
		}
	}
	return sum
}

// maxNotes bounds the notes that a sum has of its files.
const maxNotes = 10

// An index says by name where in a list something is.
type index map[string]int

// find returns where the name is in a list of n, and whether it is there. If not, it will be the
// next one.
func (x index) find(name string, n int) (int, bool) {
	i, ok := x[name]
	if !ok {
		x[name] = n
	}
	return i, ok
}

func (c *Coverage) addSource(s Source, x index) {
	i, ok := x.find(s.Name, len(c.Sources))
	if !ok {
		c.Sources = append(c.Sources, s)
		return
	}
	c.Sources[i].Size += s.Size
	c.Sources[i].FDEs += s.FDEs
}

// addSection sums up code without CFI by the names of sections, up to the first dot after
// that at their start: .text.main is a part of .text.
func (c *Coverage) addSection(s UncoveredSection, x index) {
	s.Ranges = []UncoveredRange{} // of several sections there is no common place
	if i := strings.Index(s.Name[min(1, len(s.Name)):], "."); i >= 0 {
		s.Name = s.Name[:i+1]
	}
	i, ok := x.find(s.Name, len(c.Uncovered.Sections))
	if !ok {
		c.Uncovered.Sections = append(c.Uncovered.Sections, s)
		return
	}
	c.Uncovered.Sections[i].Size += s.Size
	c.Uncovered.Sections[i].Bytes += s.Bytes
}

func (c *Coverage) addReason(r Reason, x index) {
	i, ok := x.find(r.Name, len(c.Reasons))
	if !ok {
		c.Reasons = append(c.Reasons, r)
		return
	}
	c.Reasons[i].Functions += r.Functions
	c.Reasons[i].Ranges += r.Ranges
	c.Reasons[i].Bytes += r.Bytes
	c.Reasons[i].Format3 += r.Format3
}

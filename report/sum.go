package report

import (
	"slices"
	"strings"
)

// Sum returns the coverage of several files, such as the members of an archive, as that of one file with the given
// name. It has the sums of the gaps by reason, but no list of gaps.
func Sum(file string, files []*Coverage) *Coverage {
	sum := &Coverage{
		Schema: Schema, File: file, Verified: true, Sources: []Source{}, Reasons: []Reason{}, Gaps: []Gap{},
		Uncovered: noneUncovered(),
	}
	reasons, sections, sources := make(map[string]int), make(map[string]int), make(map[string]int)
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
		sum.Warnings = union(sum.Warnings, c.Warnings)
		sum.Notes = first(union(sum.Notes, c.Notes), maxNotes)
		sum.Uncovered.Bytes += c.Uncovered.Bytes
		for _, s := range c.Uncovered.Sections {
			s.Name, s.Ranges = sectionGroup(s.Name), []UncoveredRange{} // several sections have no common place
			sum.Uncovered.Sections = merge(sum.Uncovered.Sections, sections, s.Name, s, func(to *UncoveredSection) {
				to.Size += s.Size
				to.Bytes += s.Bytes
			})
		}
		for _, s := range c.Sources {
			sum.Sources = merge(sum.Sources, sources, s.Name, s, func(to *Source) {
				to.Size += s.Size
				to.FDEs += s.FDEs
			})
		}
		for _, r := range c.Reasons {
			sum.Reasons = merge(sum.Reasons, reasons, r.Name, r, func(to *Reason) {
				to.Functions += r.Functions
				to.Ranges += r.Ranges
				to.Bytes += r.Bytes
				to.Format3 += r.Format3
			})
		}
	}
	return sum
}

// maxNotes bounds the notes that a sum has of its files.
const maxNotes = 10

// union appends the texts that a list does not have.
func union(list, texts []string) []string {
	for _, t := range texts {
		if !slices.Contains(list, t) {
			list = append(list, t)
		}
	}
	return list
}

// merge appends an item to a list, or calls add for the item that has its name. index has the places of names.
func merge[T any](list []T, index map[string]int, name string, item T, add func(to *T)) []T {
	i, ok := index[name]
	if !ok {
		index[name] = len(list)
		return append(list, item)
	}
	add(&list[i])
	return list
}

// sectionGroup returns the name of a section up to its second dot: .text.main is a part of .text.
func sectionGroup(name string) string {
	if i := strings.Index(name[min(1, len(name)):], "."); i >= 0 {
		return name[:i+1]
	}
	return name
}

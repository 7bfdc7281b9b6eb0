package report

import (
	"slices"

	"cfi2sframe/cmd/cfi2sframe/internal/coverage"
)

// Sum combines the coverage of several files, such as the members of an archive, under the given name. The sum includes
// gaps by reason, but does not list gaps, sections or functions.
func Sum(file string, files []*Coverage) *Coverage {
	sum := &Coverage{
		Schema: Schema, File: file, Verified: true, Sources: []Source{}, Reasons: []Reason{}, Gaps: []Gap{},
		Uncovered: coverage.None(),
	}
	for _, c := range files {
		sum.ABI, sum.Format = c.ABI, c.Format
		sum.Functions += c.Functions
		sum.FDEs += c.FDEs
		sum.FREs += c.FREs
		sum.Amounts.Add(&c.Amounts)
		sum.Restricted.Add(&c.Restricted)
		sum.MovedCode += c.MovedCode
		sum.Unsigned = sum.Unsigned || c.Unsigned
		sum.MergedBy = union(sum.MergedBy, c.MergedBy)
		sum.Size += c.Size
		sum.EHFrame += c.EHFrame
		sum.EHHdr += c.EHHdr
		sum.Verified = sum.Verified && c.Verified
		sum.Dropped.ZeroLength += c.Dropped.ZeroLength
		sum.Dropped.Discarded += c.Dropped.Discarded
		sum.Dropped.Overlapped += c.Dropped.Overlapped
		sum.Malformed.Count += c.Malformed.Count
		sum.Malformed.Errors = append(sum.Malformed.Errors, c.Malformed.Errors...)
		own := c.withoutCFIWarning(false)
		others := slices.DeleteFunc(slices.Clone(c.Warnings), func(w string) bool { return w == own })
		sum.Warnings = union(sum.Warnings, others)
		sum.Notes = first(union(sum.Notes, c.Notes), maxNotes)
		sum.Uncovered.Bytes += c.Uncovered.Bytes
		sum.Uncovered.Padding += c.Uncovered.Padding
		sum.Uncovered.Startup += c.Uncovered.Startup
		for _, s := range c.Sources {
			i := slices.IndexFunc(sum.Sources, func(to Source) bool { return to.Name == s.Name })
			if i < 0 {
				i, sum.Sources = len(sum.Sources), append(sum.Sources, Source{Name: s.Name})
			}
			sum.Sources[i].Size += s.Size
			sum.Sources[i].FDEs += s.FDEs
		}
		sum.Reasons = addReasons(sum.Reasons, c.Reasons)
	}
	if w := sum.withoutCFIWarning(false); w != "" {
		sum.Warnings = append(sum.Warnings, w)
	}
	return sum
}

// maxNotes is the maximum number of notes in a sum.
const maxNotes = 10

// union returns list, followed by those texts that list does not contain.
func union(list, texts []string) []string {
	for _, t := range texts {
		if !slices.Contains(list, t) {
			list = append(list, t)
		}
	}
	return list
}

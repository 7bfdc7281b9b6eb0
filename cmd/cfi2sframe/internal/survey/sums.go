package survey

import (
	"cmp"
	"slices"

	"cfi2sframe/convert"
	"cfi2sframe/sframe"
)

// A Part holds the totals of the files of one ABI, or of all files.
type Part struct {
	Name string
	Sums
}

// Sums holds totals of several files. All sizes are in bytes of code.
type Sums struct {
	Files      uint64 // examined
	WithCFI    uint64 // files with CFI that describes code
	Functions  uint64 // as in Record
	Described  uint64
	Code       uint64
	WithoutCFI uint64
	Formats    []Format  // by version
	Gaps       []Gap     // in the order of translate.Reasons
	Refused    []Refused // in the order of statuses
}

// Refused counts the files that have the same status.
type Refused struct {
	Status convert.Reason
	Files  uint64
}

// Skipped counts files that were not examined.
type Skipped struct {
	Objects uint64 `json:"objects"` // relocatable objects and archives, without --objects
	Other   uint64 `json:"other"`   // not ELF
}

func (s *Skipped) add(t Skipped) {
	s.Objects += t.Objects
	s.Other += t.Other
}

// add adds a file.
func (s *Sums) add(r *Record) {
	s.Files++
	s.Code += r.Code
	s.WithoutCFI += r.WithoutCFI
	if r.Status != "" {
		index := func(r Refused) int { return slices.Index(statuses, r.Status) }
		element(&s.Refused, Refused{Status: r.Status}, index).Files++
		return
	}
	s.WithCFI++
	s.Functions += r.Functions
	s.Described += r.Described
	for _, f := range r.Formats {
		to := element(&s.Formats, Format{Format: f.Format}, func(f Format) int { return int(f.Format) })
		to.Whole += f.Whole
		to.Unwindable += f.Unwindable
		to.Described += f.Described
		to.Covered += f.Covered
		to.Topmost += f.Topmost
		to.Inferred += f.Inferred
	}
	for _, g := range r.Gaps {
		to := element(&s.Gaps, Gap{Reason: g.Reason}, func(g Gap) int { return int(g.reason()) })
		to.Files++
		to.Functions += g.Functions
		to.Ranges += g.Ranges
		to.Bytes += g.Bytes
	}
}

// element returns the element of a sorted list with the key of v, and inserts v if it is missing.
func element[T any, K cmp.Ordered](list *[]T, v T, key func(T) K) *T {
	i, ok := slices.BinarySearchFunc(*list, key(v), func(e T, k K) int { return cmp.Compare(key(e), k) })
	if !ok {
		*list = slices.Insert(*list, i, v)
	}
	return &(*list)[i]
}

// format returns the list element for a version, or an empty element.
func format(list []Format, v sframe.Version) Format {
	if i := slices.IndexFunc(list, func(f Format) bool { return f.Format == v }); i >= 0 {
		return list[i]
	}
	return Format{Format: v}
}

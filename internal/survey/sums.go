package survey

import (
	"cmp"
	"fmt"
	"slices"

	"cfi2sframe/convert"
	"cfi2sframe/sframe"
)

// A Part sums up some of the files: those of a path, of an ABI, a language or a compiler.
type Part struct {
	Name    string `json:"name"`
	Real    string `json:"leads_to,omitempty"` // of a path, if it is another because of symbolic links
	Partial bool   `json:"partial,omitempty"`  // of a path with missing shards
	Sums

	path, real string // both names as they are, unless the survey was read
}

// Sums are about a number of files. All sizes are in bytes of code. Lists have no empty elements.
type Sums struct {
	Files      uint64    `json:"files,omitzero"`         // examined
	WithCFI    uint64    `json:"with_cfi,omitzero"`      // with CFI that describes code
	DRAP       uint64    `json:"drap,omitzero"`          // with an expression as the rule of a CFA, PLTs apart
	OtherCFA   uint64    `json:"non_sp_fp_cfa,omitzero"` // with a CFA based on neither SP nor FP, PLTs apart
	Functions  uint64    `json:"functions,omitzero"`     // that CFI describes
	Described  uint64    `json:"described,omitzero"`     // code that CFI describes
	Code       uint64    `json:"code,omitzero"`          // as report.Amounts has it, also of files without CFI
	WithoutCFI uint64    `json:"without_cfi,omitzero"`   // code that no CFI describes, padding included
	Formats    []Format  `json:"formats,omitempty"`      // by version
	Gaps       []Gap     `json:"gaps,omitempty"`         // in format 2, in the order of translate.Reasons
	Refused    []Refused `json:"refused,omitempty"`      // in the order of statuses
	Skipped    Skipped   `json:"skipped,omitzero"`
}

// A Format says what a version of SFrame has of the files that it can be written for.
type Format struct {
	Format     sframe.Version `json:"format"`
	Functions  uint64         `json:"functions,omitzero"` // that CFI describes
	Whole      uint64         `json:"functions_covered,omitzero"`
	Unwindable uint64         `json:"unwindable,omitzero"` // as report.Amounts has it
	Described  uint64         `json:"described,omitzero"`
	Covered    uint64         `json:"covered,omitzero"`
	Outermost  uint64         `json:"outermost,omitzero"` // of Covered, code without a caller that has no row
	Topmost    uint64         `json:"topmost,omitzero"`   // of Covered, by registers known only in the topmost frame
}

// A Gap sums up the gaps of one reason.
type Gap struct {
	Reason    string `json:"reason"`
	Text      string `json:"text,omitempty"`
	Files     uint64 `json:"files,omitzero"`
	Functions uint64 `json:"functions,omitzero"`
	Ranges    uint64 `json:"ranges,omitzero"`
	Bytes     uint64 `json:"bytes,omitzero"`
	Loss      bool   `json:"loss,omitzero"` // a stack trace loses something
}

// Refused counts the files of one status.
type Refused struct {
	Reason convert.Reason `json:"reason"`
	Text   string         `json:"text"`
	Files  uint64         `json:"files,omitzero"`
}

// Skipped counts files that were not examined.
type Skipped struct {
	Objects  uint64 `json:"objects,omitzero"`  // relocatable objects and archives, without --objects
	Archives uint64 `json:"archives,omitzero"` // archives among them
	Other    uint64 `json:"other,omitzero"`    // not ELF
}

// String says how many files were not examined.
func (s Skipped) String() string {
	return fmt.Sprintf("objects and archives: %d, archives: %d, not ELF: %d", s.Objects, s.Archives, s.Other)
}

func (s *Skipped) add(t Skipped) {
	s.Objects += t.Objects
	s.Archives += t.Archives
	s.Other += t.Other
}

// add adds a file.
func (s *Sums) add(r *Record) {
	s.Files++
	s.Code += r.Code
	s.WithoutCFI += r.WithoutCFI
	if r.Status != "" {
		index := func(r Refused) int { return slices.Index(statuses, r.Reason) }
		element(&s.Refused, Refused{Reason: r.Status, Text: statusText(r.Status)}, index).Files++
		return
	}
	s.WithCFI++
	if r.DRAP {
		s.DRAP++
	}
	if r.OtherCFA {
		s.OtherCFA++
	}
	s.Functions += r.Functions
	s.Described += r.Described
	for _, f := range r.Formats {
		to := element(&s.Formats, Format{Format: f.Format}, func(f Format) int { return int(f.Format) })
		to.Functions += r.Functions
		to.Whole += f.Whole
		to.Unwindable += f.Unwindable
		to.Described += r.Described
		to.Covered += f.Covered
		to.Outermost += f.Outermost
		to.Topmost += f.Topmost
	}
	for _, g := range r.Gaps {
		to := gapOf(&s.Gaps, g.Reason)
		to.Text, to.Loss = reasons[g.Reason].String(), losses[g.Reason]
		to.Files++
		to.Functions += g.Functions
		to.Ranges += g.Ranges
		to.Bytes += g.Bytes
	}
}

// gapOf returns the element of a list that is about a reason.
func gapOf(list *[]Gap, reason string) *Gap {
	return element(list, Gap{Reason: reason}, func(g Gap) int { return int(reasons[g.Reason]) })
}

// partOf returns the element of a list that has a name.
func partOf(list *[]Part, name string) *Part {
	return element(list, Part{Name: name}, func(p Part) string { return p.Name })
}

// element returns the element of a sorted list that has the same key as v. If there is none, v is inserted.
func element[T any, K cmp.Ordered](list *[]T, v T, key func(T) K) *T {
	i, ok := slices.BinarySearchFunc(*list, key(v), func(e T, k K) int { return cmp.Compare(key(e), k) })
	if !ok {
		*list = slices.Insert(*list, i, v)
	}
	return &(*list)[i]
}

// format returns the sums of a version.
func (s *Sums) format(v sframe.Version) Format { return formatOf(s.Formats, v) }

// formatOf returns the element of a list that is about a version, or an empty one.
func formatOf(list []Format, v sframe.Version) Format {
	for _, f := range list {
		if f.Format == v {
			return f
		}
	}
	return Format{Format: v}
}

// lost returns how much code a stack trace loses.
func (s *Sums) lost() uint64 {
	var n uint64
	for _, g := range s.Gaps {
		if g.Loss {
			n += g.Bytes
		}
	}
	return n
}

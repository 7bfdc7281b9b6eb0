package report

import (
	"fmt"
	"io"

	"cfi2sframe/translate"
)

// DiffSchema is the version of the JSON format of a Diff, which diff.schema.json describes.
const DiffSchema = 3

// A Diff lists the differences between the .sframe sections of two files. All sizes are in bytes.
type Diff struct {
	Schema    int           `json:"schema"`
	Same      bool          `json:"same"` // no differences
	Old       DiffSide      `json:"old"`
	New       DiffSide      `json:"new"`
	SameCode  bool          `json:"same_code"` // equal bytes, so functions are matched by address, not by name
	Functions DiffFunctions `json:"functions"`
	Gaps      []DiffGap     `json:"gaps_by_reason"`
	Changes   []Change      `json:"changes"`
	Omitted   int           `json:"changes_omitted"` // further changes, which are not listed
}

// A DiffSide describes one of the two sections.
type DiffSide struct {
	File      string `json:"file"`
	ABI       string `json:"abi"`
	Format    int    `json:"format"`
	PCRel     bool   `json:"pcrel"`  // each start address is relative to its field
	Sorted    bool   `json:"sorted"` // FDEs are sorted by address
	FDEs      int    `json:"fdes"`
	FREs      uint64 `json:"fres"`
	Size      uint64 `json:"sframe_size"`
	Functions int    `json:"functions"` // described by CFI
	Amounts
	Padding uint64 `json:"padding"` // padding covered by the last rows of functions
}

// DiffFunctions counts functions, and ranges of code without CFI that have rows.
type DiffFunctions struct {
	Same    int `json:"same"`    // with the same rows
	Offsets int `json:"offsets"` // with the same rows, but different offsets or sizes
	Rows    int `json:"rows"`    // with different rows
	OnlyOld int `json:"only_old"`
	OnlyNew int `json:"only_new"`
}

// A DiffGap totals the gaps that have the same reason, in bytes.
type DiffGap struct {
	Reason string `json:"reason"`
	Text   string `json:"text"`
	Old    uint64 `json:"old"`
	New    uint64 `json:"new"`
	Gained uint64 `json:"gained"` // total increase in functions whose gaps grew
	Lost   uint64 `json:"lost"`   // total decrease in functions whose gaps shrank
}

// What describes the gap. Code without a caller counts as covered.
func (g *DiffGap) What() string {
	if g.Reason == translate.Outermost.Name() {
		return "covered without rows"
	}
	return "not covered"
}

// Kinds of changes.
const (
	ChangeOffsets = "offsets"
	ChangeRows    = "rows"
	ChangeOld     = "only_old"
	ChangeNew     = "only_new"
)

// A Change is a function whose rows differ.
type Change struct {
	Function string        `json:"function,omitempty"` // demangled, or the section if no symbol names it
	Kind     string        `json:"kind"`
	Old      *DiffFunction `json:"old,omitempty"`
	New      *DiffFunction `json:"new,omitempty"`
	Offset   uint64        `json:"offset"`            // from the start of the function to the first difference
	OldRow   string        `json:"old_row,omitempty"` // the row at this offset
	NewRow   string        `json:"new_row,omitempty"`
}

// A DiffFunction is a function in one of the files.
type DiffFunction struct {
	Section string `json:"section,omitempty"` // in a relocatable object, the section that Begin is relative to
	Begin   uint64 `json:"begin"`
	Size    uint64 `json:"size"`
	Rows    int    `json:"rows"` // adjacent equal rows count once
	Covered uint64 `json:"covered"`
}

// Place returns the function's address.
func (f *DiffFunction) Place() string { return fmt.Sprintf("%s%#x", inSection(f.Section), f.Begin) }

// Text writes the text report with up to the given number of changes, or with all changes if the number is negative.
func (d *Diff) Text(w io.Writer, changes int) error {
	listed := first(d.Changes, changes)
	return writeText(w, "diff", &struct {
		*Diff
		Listed []Change
		More   int
	}{d, listed, len(d.Changes) - len(listed)})
}

// changeLine returns a line that says how a property changed, or "" if it did not.
func changeLine(what, old, new string) string {
	if old == new {
		return ""
	}
	return fmt.Sprintf("  %s: %s, now %s\n", what, old, new)
}

// countChangeLine is like changeLine, but for numbers.
func countChangeLine(what string, old, new uint64) string {
	if old == new {
		return ""
	}
	by := "+" + Digits(new-old)
	if new < old {
		by = "-" + Digits(old-new)
	}
	return changeLine(what, Digits(old), Digits(new)+" ("+by+")")
}

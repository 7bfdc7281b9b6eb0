// Package report writes reports on how much of a file's code SFrame describes. They list gaps, that is, code that CFI
// describes but SFrame does not, with their locations and reasons. A Coverage holds the data of a report, which can be
// written as text, JSON or HTML.
package report

import (
	"cfi2sframe/cmd/cfi2sframe/internal/coverage"
	"cfi2sframe/internal/amounts"
)

// Schema is the version of the JSON format, which report.schema.json describes. It changes when a field is removed or
// changes its meaning, but not when one is added.
const Schema = 3

// Coverage holds the result for one file. All sizes are in bytes.
type Coverage struct {
	Schema    int      `json:"schema"`
	File      string   `json:"file"`
	Kept      string   `json:"kept,omitempty"`     // why the file is unchanged, or ""
	Output    string   `json:"output,omitempty"`   // "" if nothing was written
	BuildID   string   `json:"build_id,omitempty"` // in hexadecimal
	ABI       string   `json:"abi"`
	Format    int      `json:"format"`
	Sources   []Source `json:"sources"`
	DebugFile string   `json:"debug_file,omitempty"` // path of the debug file if .debug_frame was read from it
	Functions int      `json:"functions"`            // that CFI describes
	FDEs      int      `json:"fdes"`                 // written
	FREs      uint64   `json:"fres"`                 // written
	amounts.Amounts
	Percents
	amounts.Restricted
	Reasons   []Reason           `json:"gaps_by_reason"`
	Gaps      []Gap              `json:"gaps"`
	Omitted   int                `json:"gaps_omitted"` // further gaps, which are not listed
	Uncovered coverage.Uncovered `json:"without_cfi"`
	Dropped   Dropped            `json:"dropped"`
	Malformed Malformed          `json:"malformed"`
	MovedCode uint64             `json:"moved_code"` // bytes of code at a different file offset than before
	Unsigned  bool               `json:"signature_removed,omitempty"`
	Warnings  []string           `json:"warnings,omitempty"` // about the output
	Notes     []string           `json:"notes,omitempty"`    // what is missing from the report, and why
	Size      uint64             `json:"sframe_size"`
	EHFrame   uint64             `json:"eh_frame_size"`
	EHHdr     uint64             `json:"eh_frame_hdr_size"`
	Verified  bool               `json:"verified"`
	MergedBy  []string           `json:"merged_by,omitempty"` // linkers that can merge the .sframe of this object
	Error     string             `json:"error,omitempty"`     // why nothing was written after the translation
}

// Failed reports a file that could not be converted or checked, and has no Coverage or Check.
type Failed struct {
	Schema int    `json:"schema"`
	File   string `json:"file"`
	Error  string `json:"error"`
}

// NewFailed returns the report on a file with an error.
func NewFailed(file string, err error) *Failed {
	return &Failed{Schema, file, PrintableMessage(err.Error())}
}

// Kept reports an unchanged file or archive member that has no Coverage.
type Kept struct {
	Schema int    `json:"schema"`
	File   string `json:"file"`
	Kept   string `json:"kept"` // the name of the reason
	Why    string `json:"why"`
}

// A Source is a section that CFI came from.
type Source struct {
	Name string `json:"name"`
	Size uint64 `json:"size"`
	FDEs int    `json:"fdes"`
}

// A Reason totals the gaps that have the same reason.
type Reason struct {
	Name      string `json:"reason"`
	Text      string `json:"text"`
	Functions int    `json:"functions"`
	Ranges    int    `json:"ranges"`
	Bytes     uint64 `json:"bytes"`
	Loss      bool   `json:"loss"` // false if these gaps do not break stack traces
}

// A Gap is a range of code that CFI describes and that has no row.
type Gap struct {
	Function string `json:"function,omitempty"` // demangled
	Symbol   string `json:"symbol,omitempty"`   // the mangled name, if different
	Offset   uint64 `json:"offset"`             // from the function's start
	Section  string `json:"section,omitempty"`  // in a relocatable object, the section of Begin and End
	Begin    uint64 `json:"begin"`              // address
	End      uint64 `json:"end"`                // address after the last byte
	Reason   string `json:"reason"`
	Text     string `json:"text"`
	Column   string `json:"column,omitempty"` // CFA, RA, FP or SP
	Rule     string `json:"rule,omitempty"`   // in readelf's notation
	FDE      string `json:"fde"`              // section and offset of the FDE
}

// Dropped counts FDEs that are not used, or are used only in part.
type Dropped struct {
	ZeroLength int `json:"zero_length"`
	Discarded  int `json:"discarded"`
	Overlapped int `json:"overlapped"`
}

// Malformed lists records that could not be parsed. Count includes unlisted ones.
type Malformed struct {
	Count  int      `json:"count"`
	Errors []string `json:"errors,omitempty"`
}

// A Check is the result of comparing an .sframe with the CFI.
type Check struct {
	Schema int    `json:"schema"`
	File   string `json:"file"`
	ABI    string `json:"abi"`
	Format int    `json:"format"`
	FDEs   int    `json:"fdes"`
	FREs   uint64 `json:"fres"`
	Sorted bool   `json:"sorted"`
	amounts.Amounts
	Percents
	Refused    string     `json:"refused,omitempty"` // why the reader given by --for ignores the section
	Error      string     `json:"error,omitempty"`   // why the file fails the check, for example because of mismatches
	Warnings   []string   `json:"warnings,omitempty"`
	Mismatches []Mismatch `json:"mismatches"`
	// With --infer: code whose CFI contradicts its instructions, and the number of bytes compared.
	Contradictions []Mismatch `json:"contradictions,omitempty"`
	Compared       uint64     `json:"compared,omitempty"`
}

// A Mismatch is a range of code for which the rows differ.
type Mismatch struct {
	Begin    uint64 `json:"begin"`
	End      uint64 `json:"end"`
	Function string `json:"function,omitempty"`
	Offset   uint64 `json:"offset"`
	What     string `json:"what"`
}

// Removed reports a file whose .sframe was removed.
type Removed struct {
	Schema  int    `json:"schema"`
	File    string `json:"file"`
	Output  string `json:"output,omitempty"`
	Removed bool   `json:"removed"` // always true

	Unsigned bool `json:"signature_removed,omitempty"`
}

// Limits bounds the total size of the lists in all reports of a run, which are held in memory. Names can take much more
// space than in the file: many gaps share a name, and mangled names are compressed.
type Limits struct {
	gaps  int
	names int // bytes
	errs  int // malformed records
}

// NewLimits returns the initial limits.
func NewLimits() *Limits { return &Limits{gaps: 1 << 16, names: 16 << 20, errs: 1000} }

// Grow raises the limits for a file of the given size in bytes.
func (l *Limits) Grow(size int64) {
	l.gaps += int(size / 128)
	l.names += int(size / 4)
	l.errs += int(size / 1024)
}

// take returns how many of n elements may still be listed, and subtracts that number from the limit.
func take(limit *int, n int) int {
	n = min(n, *limit)
	*limit -= n
	return n
}

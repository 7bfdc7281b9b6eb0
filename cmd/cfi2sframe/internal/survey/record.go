package survey

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"cfi2sframe/convert"
	"cfi2sframe/internal/outfile"
	"cfi2sframe/sframe"
	"cfi2sframe/translate"
)

// Statuses of files that cannot be read or parsed.
const (
	damaged    convert.Reason = "damaged"    // the file or its CFI is malformed
	unreadable convert.Reason = "unreadable" // reading it fails
)

// statuses lists the reasons why a file has no CFI to translate, in report order.
var statuses = []convert.Reason{convert.NoCFI, convert.NoCode, convert.Class32, convert.Machine, damaged, unreadable}

func statusText(status convert.Reason) string {
	switch status {
	case damaged:
		return "file or CFI damaged or too large"
	case unreadable:
		return "unreadable file or directory"
	}
	return status.Text()
}

// statusOf returns the status for an error.
func statusOf(err error) convert.Reason {
	if system := (*fs.PathError)(nil); errors.As(err, &system) {
		return unreadable
	}
	if reason := convert.ReasonOf(err); slices.Contains(statuses, reason) {
		return reason
	}
	return damaged
}

// A Record is the result for one file. All sums are computed from records. In JSON, each record is one line. All sizes
// are in bytes of code.
type Record struct {
	File       string         `json:"file"` // ARCHIVE(MEMBER) for members of archives
	ABI        string         `json:"abi,omitzero"`
	Status     convert.Reason `json:"status,omitzero"` // why there is no CFI to translate; one of statuses
	Error      string         `json:"error,omitzero"`  // error for a damaged or unreadable file
	Functions  uint64         `json:"functions,omitzero"`
	Described  uint64         `json:"described,omitzero"`   // by CFI
	Code       uint64         `json:"code,omitzero"`        // as in report.Amounts; set even for files without CFI
	WithoutCFI uint64         `json:"without_cfi,omitzero"` // code that no CFI describes
	Formats    []Format       `json:"formats,omitempty"`    // by version
	Gaps       []Gap          `json:"gaps,omitempty"`       // in format 3, in the order of translate.Reasons
	Worst      []Function     `json:"worst_functions,omitempty"`
}

// A Format is the coverage of a file in a version of SFrame.
type Format struct {
	Format     sframe.Version `json:"format"`
	Whole      uint64         `json:"functions_covered,omitzero"`
	Unwindable uint64         `json:"unwindable,omitzero"` // as in report.Amounts
	Described  uint64         `json:"described,omitzero"`
	Covered    uint64         `json:"covered,omitzero"`  // as in report.Amounts
	Topmost    uint64         `json:"topmost,omitzero"`  // part of Covered with rows for topmost frames only
	Inferred   uint64         `json:"inferred,omitzero"` // part of Covered whose rows are inferred from instructions
}

// A Gap totals the gaps that have the same reason.
type Gap struct {
	Reason    string `json:"reason"`
	Files     uint64 `json:"-"` // of a sum
	Functions uint64 `json:"functions,omitzero"`
	Ranges    uint64 `json:"ranges,omitzero"`
	Bytes     uint64 `json:"bytes,omitzero"`
}

// reasons returns a map from names to reasons. The map is cached because sorting the files of a distribution needs
// millions of lookups.
var reasons = sync.OnceValue(func() map[string]translate.Reason {
	m := make(map[string]translate.Reason)
	for _, r := range translate.Reasons() {
		m[r.Name()] = r
	}
	return m
})

// reason returns the reason for a gap, or 0.
func (g *Gap) reason() translate.Reason { return reasons()[g.Reason] }

// breaksTraces reports whether the gaps break stack traces.
func (g *Gap) breaksTraces() bool { return g.reason().Loss() }

// lostCode returns the number of bytes of code in gaps that break stack traces, and the reason for most of them.
func (r *Record) lostCode() (bytes uint64, reason string) { return lostCode(r.Gaps) }

func lostCode(gaps []Gap) (bytes uint64, reason string) {
	most := uint64(0)
	for i := range gaps {
		if g := &gaps[i]; g.breaksTraces() {
			bytes += g.Bytes
			if g.Bytes > most {
				most, reason = g.Bytes, g.Reason
			}
		}
	}
	return bytes, reason
}

// A Function is an entry in a file's list of worst functions.
type Function struct {
	File     string `json:"-"`
	Function string `json:"function,omitempty"` // demangled
	Symbol   string `json:"symbol,omitempty"`   // the mangled name, if different
	Section  string `json:"section,omitempty"`  // in a relocatable object, the section that Begin is relative to
	Begin    uint64 `json:"begin,omitzero"`     // address
	Size     uint64 `json:"size"`               // bytes of code that the CFI describes
	Lost     uint64 `json:"lost"`
	Reason   string `json:"reason"` // of most lost bytes

	gap translate.Gap // first gap that breaks stack traces, for finding the function's name
}

// refused returns the record of a file without CFI to translate. A system error ends the survey.
func refused(file string, status convert.Reason, err error) (*Record, error) {
	if outfile.OfMachine(err) {
		return nil, fmt.Errorf("%s: %w", file, outfile.Plain(err))
	}
	r := &Record{File: toUTF8(file), Status: status}
	if status == damaged || status == unreadable {
		r.Error = toUTF8(outfile.Plain(err).Error())
	}
	return r, nil
}

// toUTF8 replaces bytes that are not valid UTF-8 with \xNN.
func toUTF8(text string) string {
	var b strings.Builder
	for len(text) > 0 {
		r, n := utf8.DecodeRuneInString(text)
		if r == utf8.RuneError && n == 1 {
			fmt.Fprintf(&b, `\x%02x`, text[0])
		} else {
			b.WriteString(text[:n])
		}
		text = text[n:]
	}
	return b.String()
}

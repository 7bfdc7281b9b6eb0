package survey

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"cfi2sframe/convert"
	"cfi2sframe/internal/outfile"
	"cfi2sframe/translate"
)

// What convert fails for, a survey counts.
const (
	damaged    convert.Reason = "damaged"    // the file or its CFI is malformed
	unreadable convert.Reason = "unreadable" // the system does not return its contents
)

// withCFI is what tables say instead of an empty status.
const withCFI = "cfi"

// statuses are the reasons why a file has no CFI to translate, in the order of reports.
var statuses = []convert.Reason{convert.NoCFI, convert.NoCode, convert.Class32, convert.Machine, damaged, unreadable}

func statusText(status convert.Reason) string {
	switch status {
	case damaged:
		return "damaged file or CFI, or one that is too large"
	case unreadable:
		return "file or directory that cannot be read"
	}
	return status.Text()
}

// reasons are the reasons for gaps, and losses those by which a stack trace loses something, by name.
var (
	reasons = make(map[string]translate.Reason)
	losses  = make(map[string]bool)
)

func init() {
	for _, r := range translate.Reasons() {
		reasons[r.Name()], losses[r.Name()] = r, r.Loss()
	}
}

// A Record is what a survey says of a file. All sums follow from the records. Its JSON form is a line of a survey.
type Record struct {
	File       string         `json:"file"`
	Disk       int            `json:"disk,omitzero"` // length of the name of the archive that contains it
	Path       int            `json:"path,omitzero"` // index
	ABI        string         `json:"abi,omitzero"`
	Languages  []string       `json:"languages,omitempty"` // sorted
	Compilers  []string       `json:"compilers,omitempty"` // sorted
	Status     convert.Reason `json:"status,omitzero"`     // why it has no CFI to translate, one of statuses
	Error      string         `json:"error,omitzero"`      // of damaged and unreadable files
	DRAP       bool           `json:"drap,omitzero"`
	OtherCFA   bool           `json:"non_sp_fp_cfa,omitzero"`
	Functions  uint64         `json:"functions,omitzero"`
	Described  uint64         `json:"described,omitzero"`
	Code       uint64         `json:"code,omitzero"`
	WithoutCFI uint64         `json:"without_cfi,omitzero"`
	Formats    []Format       `json:"formats,omitempty"` // without functions and described, which are the file's
	Gaps       []Gap          `json:"gaps,omitempty"`    // without text, files and loss

	path string // of the file on the disk, unless the survey was read
}

// disk returns the name of the file on the disk.
func (r *Record) disk() string { return diskName(r.File, r.Disk) }

func diskName(file string, disk int) string {
	if disk > 0 {
		return file[:disk]
	}
	return file
}

// language and compiler name all that the file tells.
func (r *Record) language() string { return originName(r.Languages) }
func (r *Record) compiler() string { return originName(r.Compilers) }

// unknown is the language or compiler of files that do not tell.
const unknown = "unknown"

func originName(list []string) string { return cmp.Or(strings.Join(list, " + "), unknown) }

// lost returns how much code of the file a stack trace loses, and the reason of most of it.
func (r *Record) lost() (uint64, string) { return lost(r.Gaps, losses) }

// lost returns how much code is in gaps of reasons that lose something, and the reason of most of it.
func lost(gaps []Gap, losses map[string]bool) (bytes uint64, reason string) {
	most := uint64(0)
	for _, g := range gaps {
		if !losses[g.Reason] {
			continue
		}
		bytes += g.Bytes
		if g.Bytes > most {
			most, reason = g.Bytes, g.Reason
		}
	}
	return bytes, reason
}

// refused returns the findings of a file without CFI to translate. An error of the machine ends the survey.
func refused(file string, status convert.Reason, err error) findings {
	if outfile.OfMachine(err) {
		return findings{failed: fmt.Errorf("%s: %w", file, outfile.Plain(err))}
	}
	r := Record{File: file, Status: status}
	if status == damaged || status == unreadable {
		r.Error = valid(outfile.Plain(err).Error())
	}
	return findings{records: []Record{r}}
}

// valid makes a text UTF-8: other bytes become \xNN.
func valid(text string) string {
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

// A BadFunction is one of the worst functions.
type BadFunction struct {
	File     string `json:"file"`
	Disk     int    `json:"disk,omitzero"`      // as in Record
	Path     int    `json:"path,omitzero"`      // as in Record
	Function string `json:"function,omitempty"` // as the source has it
	Symbol   string `json:"symbol,omitempty"`   // the mangled name, if it is another
	Section  string `json:"section,omitempty"`  // in a relocatable object, what Begin counts from
	Begin    uint64 `json:"begin,omitzero"`     // address
	Size     uint64 `json:"size"`               // of what the CFI describes
	Lost     uint64 `json:"lost"`
	Reason   string `json:"reason"` // of most of that

	place string        // where the name of the file on the disk leads to
	seq   int           // index of the record among those of the file on the disk
	gap   translate.Gap // the first one that loses something: its place has the name of the function
}

// addFunction adds a function to the worst ones. Ties are sorted by place: names depend on the given paths.
func addFunction(list *[]BadFunction, fn BadFunction) {
	addWorst(list, fn, func(a, b BadFunction) int {
		return cmp.Or(
			cmp.Compare(b.Lost, a.Lost), cmp.Compare(a.place, b.place),
			cmp.Compare(a.seq, b.seq), cmp.Compare(a.gap.Begin, b.gap.Begin),
		)
	})
}

// maxWorst is how many of the worst are listed.
const maxWorst = 20

// addWorst adds a value to the first ones in an order, without duplicates. The result does not depend on the order of
// additions.
func addWorst[T any](list *[]T, v T, compare func(a, b T) int) {
	i, same := slices.BinarySearchFunc(*list, v, compare)
	if i == maxWorst || same {
		return
	}
	if len(*list) == maxWorst {
		*list = (*list)[:maxWorst-1]
	}
	*list = slices.Insert(*list, i, v)
}

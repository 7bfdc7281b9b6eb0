package survey

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	"cfi2sframe/internal/outfile"
	"cfi2sframe/translate"
)

// A status says why a file has no CFI to translate, and is "" otherwise. It appears in reports.
type status string

const (
	noCFI      status = "no-cfi"     // neither .eh_frame nor .debug_frame
	noCode     status = "no-code"    // the CFI describes no code of the file
	class32    status = "32-bit"     // a 32-bit file
	machine    status = "machine"    // another machine or byte order
	damaged    status = "damaged"    // the file or its CFI is malformed
	unreadable status = "unreadable" // the system does not return its contents
)

// withCFI is what tables say instead of an empty status.
const withCFI = "cfi"

// refusals are all statuses, in the order of reports.
var refusals = []Refused{
	{Reason: noCFI, Text: "no CFI: neither .eh_frame nor .debug_frame"},
	{Reason: noCode, Text: "CFI that describes no code of the file"},
	{Reason: class32, Text: "32-bit file"},
	{Reason: machine, Text: "machine without an SFrame ABI"},
	{Reason: damaged, Text: "damaged file or CFI, or one that is too large"},
	{Reason: unreadable, Text: "file or folder that cannot be read"},
}

// refusalIndex returns the index of a status in refusals, or -1.
func refusalIndex(s status) int {
	return slices.IndexFunc(refusals, func(r Refused) bool { return r.Reason == s })
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

// A Record is what a survey says of a file. All sums follow from the records. Its JSON form is an element of "files".
type Record struct {
	File       string   `json:"file"`
	RawFile    []byte   `json:"file_raw,omitempty"` // the name, if it is not UTF-8
	Disk       int      `json:"disk,omitzero"`      // length of the name of the archive or package that it is in
	Path       int      `json:"path,omitzero"`      // index
	ABI        string   `json:"abi,omitzero"`
	Languages  []string `json:"languages,omitempty"` // sorted
	Compilers  []string `json:"compilers,omitempty"` // sorted
	Status     status   `json:"status,omitzero"`
	Error      string   `json:"error,omitzero"` // of damaged and unreadable files
	DRAP       bool     `json:"drap,omitzero"`
	OtherCFA   bool     `json:"non_sp_fp_cfa,omitzero"`
	Functions  uint64   `json:"functions,omitzero"`
	Described  uint64   `json:"described,omitzero"`
	WithoutCFI uint64   `json:"without_cfi,omitzero"`
	Formats    []Format `json:"formats,omitempty"` // without functions and described, which are the file's
	Gaps       []Gap    `json:"gaps,omitempty"`    // without text, files and loss
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

// refused returns the record of a refused file.
func refused(file string, why status, err error) Record {
	r := Record{File: file, Status: why}
	if why == damaged || why == unreadable {
		r.Error = valid(outfile.Plain(err).Error())
	}
	return r
}

// valid makes a text UTF-8, so that it is the same in all forms.
func valid(text string) string { return strings.ToValidUTF8(text, string(utf8.RuneError)) }

// raw returns the bytes of a name that is not UTF-8.
func raw(name string) []byte {
	if utf8.ValidString(name) {
		return nil
	}
	return []byte(name)
}

// unraw returns a name from both of its forms.
func unraw(name string, raw []byte) string {
	if raw != nil {
		return string(raw)
	}
	return name
}

// A BadFunction is one of the worst functions.
type BadFunction struct {
	File     string `json:"file"`
	RawFile  []byte `json:"file_raw,omitempty"` // as in Record
	Disk     int    `json:"disk,omitzero"`      // as in Record
	Function string `json:"function,omitempty"` // as the source has it
	Symbol   string `json:"symbol,omitempty"`   // the mangled name, if it is another
	Section  string `json:"section,omitempty"`  // in a relocatable object, what Begin counts from
	Begin    uint64 `json:"begin,omitzero"`     // address
	Size     uint64 `json:"size"`               // of what the CFI describes
	Lost     uint64 `json:"lost"`
	Reason   string `json:"reason"` // of most of that

	path  int    // index
	place string // where the name of the file on the disk leads to
	seq   int    // index of the record among those of the file on the disk
	at    uint64 // address of the first loss
}

// byLoss sorts functions by loss. Ties are sorted by place: names depend on which of the paths are given.
func byLoss(a, b *BadFunction) int {
	return cmp.Or(
		cmp.Compare(b.Lost, a.Lost), cmp.Compare(a.place, b.place),
		cmp.Compare(a.seq, b.seq), cmp.Compare(a.at, b.at),
	)
}

// worst keeps the first values in an order, without duplicates. The result does not depend on the order of additions.
type worst[T any] struct {
	cmp  func(a, b *T) int
	list []T
}

// maxWorst is how many of the worst are listed.
const maxWorst = 20

func (w *worst[T]) add(v T) {
	i, same := slices.BinarySearchFunc(w.list, v, func(a, b T) int { return w.cmp(&a, &b) })
	if i == maxWorst || same {
		return
	}
	if len(w.list) == maxWorst {
		w.list = w.list[:maxWorst-1]
	}
	w.list = slices.Insert(w.list, i, v)
}

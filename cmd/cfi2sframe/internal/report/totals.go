package report

import (
	"cmp"
	"io"
	"slices"

	"cfi2sframe/convert"
	"cfi2sframe/internal/amounts"
)

// Totals adds up the reports on several files. In JSON, it is the last line.
type Totals struct {
	Schema    int         `json:"schema"`
	Complete  bool        `json:"complete"` // always true
	Files     int         `json:"files"`
	Done      int         `json:"done"` // changed; with --dry-run, would be changed
	Failed    int         `json:"failed"`
	Unchanged []Unchanged `json:"unchanged_by_reason"` // the most frequent first
	Sums      `json:"totals"`
	Worst     []Worst `json:"worst_files"` // the files with most code that is not unwindable
}

// Unchanged counts files that are unchanged for the same reason.
type Unchanged struct {
	Reason string `json:"reason"`
	Text   string `json:"text"`
	Files  int    `json:"files"`
}

// Sums adds up the numbers of all reports with a Coverage. The fields have the same names and meanings as there.
type Sums struct {
	Functions int `json:"functions"`
	amounts.Amounts
	Percents
	amounts.Restricted
	Reasons    []Reason `json:"gaps_by_reason"`
	WithoutCFI struct {
		Bytes uint64 `json:"bytes"`
	} `json:"without_cfi"`
	Size uint64 `json:"sframe_size"`
}

// A Worst is a file with code that is not unwindable.
type Worst struct {
	File       string `json:"file"`
	Code       uint64 `json:"code"`
	Unwindable uint64 `json:"unwindable"`
	Reason     string `json:"reason"` // of most of the code: that of its gaps, or no-cfi
	Text       string `json:"text"`
}

// maxWorst is the number of files in Totals.Worst.
const maxWorst = 10

// Add adds a file, or a member of an archive.
func (t *Totals) Add(c *Coverage) {
	t.Functions += c.Functions
	t.Amounts.Add(&c.Amounts)
	t.Restricted.Add(&c.Restricted)
	t.Reasons = addReasons(t.Reasons, c.Reasons)
	t.WithoutCFI.Bytes += c.Uncovered.Bytes
	t.Size += c.Size
	if c.Unwindable == c.Code {
		return
	}
	name, text := c.mainReason()
	t.Worst = append(t.Worst, Worst{c.File, c.Code, c.Unwindable, name, text})
	slices.SortStableFunc(t.Worst, func(a, b Worst) int { return cmp.Compare(b.Left(), a.Left()) })
	t.Worst = t.Worst[:min(len(t.Worst), maxWorst)]
}

// Left returns the number of bytes that are not unwindable.
func (w Worst) Left() uint64 { return w.Code - w.Unwindable }

// mainReason returns the name and the text of the reason why most of the code is not unwindable.
func (c *Coverage) mainReason() (name, text string) {
	most := c.Uncovered.Bytes
	if most > 0 {
		name, text = string(convert.NoCFI), "no CFI"
	}
	for _, r := range c.Reasons {
		if r.Loss && r.Bytes > most {
			most, name, text = r.Bytes, r.Name, r.Text
		}
	}
	return name, text
}

// addReasons adds gaps to a list of totals.
func addReasons(to, more []Reason) []Reason {
	for _, r := range more {
		i := slices.IndexFunc(to, func(t Reason) bool { return t.Name == r.Name })
		if i < 0 {
			to = append(to, r)
			continue
		}
		to[i].Functions += r.Functions
		to[i].Ranges += r.Ranges
		to[i].Bytes += r.Bytes
	}
	return to
}

// Finish sets the fields that depend on all files. The lists are not nil, because nil lists become null in JSON.
func (t *Totals) Finish() {
	t.Schema, t.Complete, t.Percents = Schema, true, percentsOf(&t.Amounts)
	slices.SortStableFunc(t.Reasons, func(a, b Reason) int { return cmp.Compare(b.Bytes, a.Bytes) })
	t.Reasons = append([]Reason{}, t.Reasons...)
	t.Unchanged = append([]Unchanged{}, t.Unchanged...)
	t.Worst = append([]Worst{}, t.Worst...)
}

// Text writes the totals of files in the given format.
func (t *Totals) Text(w io.Writer, format int) error {
	return writeText(w, "totals", &struct {
		*Totals
		Format int
	}{t, format})
}

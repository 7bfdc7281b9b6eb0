package survey

import (
	"bufio"
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

	"cfi2sframe/internal/page"
	"cfi2sframe/report"
	"cfi2sframe/sframe"
	"cfi2sframe/translate"
)

//go:embed survey.html.tmpl
var pageText string

// maxFiles is how many files the page lists: those of which most is lost.
const maxFiles = 1 << 16

// A surveyPage is what the template shows.
type surveyPage struct {
	page.Frame
	Heading   string
	Only      string // shards, if not all
	Total     *Sums
	Lost      uint64
	NotLost   uint64
	Lossy     int // files
	Files     page.Table
	NotListed string // files
	Linked    bool
	Bars      []page.Bar
	Tables    []section
}

// A section has one of the tables of the text report.
type section struct {
	page.Table
	Note string
}

var fileColumns = page.Columns(
	"File", "file", "ABI", "text", "Language", "text", "Compiler", "text", "Described", "number", "Lost", "number",
	"Share", "number", "Mostly by", "reason", "Lost in format 3", "number", "Without CFI", "number", "Remarks", "text",
)

// HTML writes the survey as a page that needs nothing else. Links, which may be nil, has for names of files where
// pages about them are, as URLs.
func (s *Survey) HTML(w io.Writer, links map[string]string) error {
	out := bufio.NewWriter(w)
	funcs := template.FuncMap{
		"count": count[uint64], "bytes": countOf[uint64], "files": countOf[int], "share": report.Share,
	}
	if err := page.Template(pageText, funcs).Execute(out, s.page(links)); err != nil {
		return err
	}
	return out.Flush()
}

func (s *Survey) page(links map[string]string) *surveyPage {
	lost := s.Total.lost()
	p := &surveyPage{
		Frame: page.NewFrame(s.title()), Heading: s.heading(), Only: s.Only(), Linked: len(links) > 0, Bars: s.bars(),
		Total: &s.Total, Lost: lost, NotLost: s.Total.Described - lost, Lossy: len(s.lossy()),
	}
	var reasons []page.Reason
	for _, r := range translate.Reasons() {
		p.Data.Reasons[r.Name()] = r.String()
	}
	for _, g := range s.Total.Gaps {
		if g.Ranges > 0 && g.Loss {
			reasons = append(reasons, page.Reason{Name: g.Reason, Text: g.Text})
		}
	}
	files := s.byLoss()
	if n := len(files) - maxFiles; n > 0 {
		p.NotListed = countOf(n, "file")
		files = files[:maxFiles]
	}
	var rows [][]string
	for _, r := range files {
		rows = append(rows, append(r.cells(), links[r.File]))
	}
	p.Files = p.Data.Add(page.Table{
		ID: "files", Caption: "Each file, in format 2", Noun: "files",
		Columns: fileColumns, Reasons: reasons, Falling: "Lost",
	}, rows)
	for i, t := range s.tables() {
		if !t.TextOnly {
			to := page.Table{
				ID: fmt.Sprint("table-", i+1), Caption: t.Title, Noun: "rows", Columns: t.Head, Short: true,
			}
			p.Tables = append(p.Tables, section{p.Data.Add(to, t.Rows), t.Note})
		}
	}
	return p
}

// byLoss returns the files, those that lose most first.
func (s *Survey) byLoss() []*Record {
	var out []*Record
	for _, f := range s.lossy() {
		out = append(out, f.record)
	}
	for _, r := range s.Files {
		if lost, _ := r.lost(); lost == 0 {
			out = append(out, r)
		}
	}
	return out
}

// cells returns a row of fileColumns.
func (r *Record) cells() []string {
	row := make([]string, len(fileColumns), len(fileColumns)+1)
	row[0], row[1], row[2], row[3] = report.Printable(r.File), r.ABI, r.language(), r.compiler()
	var remarks []string
	if r.Status == "" {
		lost, reason := r.lost()
		row[4], row[5], row[7] = decimal(r.Described), decimal(lost), reason
		row[6] = report.Share(lost, max(r.Described, 1))
		for _, f := range r.Formats {
			if f.Format == sframe.V3 {
				row[8] = decimal(r.Described - f.Covered - f.Outermost)
			}
		}
		if r.DRAP {
			remarks = append(remarks, "DRAP")
		}
		if r.OtherCFA {
			remarks = append(remarks, "non-SP/FP CFA")
		}
	} else {
		remarks = append(remarks, statusText(r.Status))
		if r.Error != "" {
			remarks = append(remarks, report.Printable(r.Error))
		}
	}
	row[9], row[10] = decimal(r.WithoutCFI), strings.Join(remarks, "; ")
	return row
}

// bars shows the gaps of all files by reason, the largest first.
func (s *Survey) bars() []page.Bar {
	list := slices.DeleteFunc(slices.Clone(s.Total.Gaps), func(g Gap) bool { return g.Ranges == 0 })
	slices.SortStableFunc(list, func(a, b Gap) int { return cmp.Compare(b.Bytes, a.Bytes) })
	var out []page.Bar
	for _, g := range list {
		out = append(out, page.Bar{
			Name: g.Reason, Text: g.Text, Loss: g.Loss,
			Stays: page.Part(g.Bytes, list[0].Bytes), Striped: page.Part(0, 1), Size: countOf(g.Bytes, "byte"),
			Of: fmt.Sprintf("in %s of %s, in %s",
				countOf(g.Ranges, "gap"), countOf(g.Functions, "function"), countOf(g.Files, "file")),
		})
	}
	return out
}

// A Lossy file loses something.
type Lossy struct {
	Path    string   // on the disk
	Package bool     // it is a package
	Names   []string // in the survey: its name, or those of members of an archive or package
}

// Lossy returns the files that lose something, those that lose most first, as far as the page lists them.
func (s *Survey) Lossy() []Lossy {
	var out []Lossy
	at := make(map[string]int)
	files := s.lossy()
	for _, f := range files[:min(len(files), maxFiles)] {
		path := f.record.path
		i, ok := at[path]
		if !ok {
			i = len(out)
			at[path] = i
			inner := f.File[len(f.record.disk()):]
			out = append(out, Lossy{Path: path, Package: strings.HasPrefix(inner, "!")})
		}
		out[i].Names = append(out[i].Names, f.File)
	}
	return out
}

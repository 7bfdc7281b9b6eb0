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

// maxFiles is how many files the page lists: those that lose most.
const maxFiles = 1 << 16

// A surveyPage is what the template shows.
type surveyPage struct {
	page.Frame
	Kind, Heading  string
	Notes          []string
	Files, WithCFI uint64
	Tree           *place
	Bars           []page.Bar
	FileTable      page.Table
	NotListed      string // files
	Linked         bool
	Tables         []section
}

// A section has one of the tables of the text report.
type section struct {
	page.Table
	Note string
}

var fileColumns = page.Columns(
	"File", "file", "Unwindable", "number", "Not unwindable", "number", "Not covered", "number",
	"In format 3", "number", "Mostly by", "reason", "Code", "number", "Language", "text", "Compiler", "text",
	"ABI", "text", "Remarks", "text",
)

// HTML writes the survey as a page that needs nothing else. Links, which may be nil, has for names of files where
// pages about them are, as URLs. The date may be "".
func (s *Survey) HTML(w io.Writer, links map[string]string, date string) error {
	out := bufio.NewWriter(w)
	funcs := template.FuncMap{
		"count": count[uint64], "files": countOf[int],
		"bytes": func(n uint64) string { return countOf(n, "byte") },
	}
	if err := page.Template(pageText, funcs).Execute(out, s.page(links, date)); err != nil {
		return err
	}
	return out.Flush()
}

func (s *Survey) page(links map[string]string, date string) *surveyPage {
	tree := &place{Open: true}
	files := make([]fileRow, len(s.Files))
	for i, r := range s.Files {
		files[i] = fileRow{r, r.split()}
		tree.add(r, files[i].code)
	}
	p := &surveyPage{
		Frame: page.NewFrame(s.title(), "Made by", s.Tool, "Date", date, "Command", s.command()),
		Kind:  "SFrame survey", Heading: s.heading(), Notes: []string{s.Only()}, Linked: len(links) > 0,
		Files: s.Total.Files, WithCFI: s.Total.WithCFI, Tree: tree, Bars: s.bars(tree.Code),
	}
	if tree.Files > 1 {
		tree.list(tree.Code.Left() / leastPart)
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
	slices.SortStableFunc(files, func(a, b fileRow) int { return cmp.Compare(b.code.Left(), a.code.Left()) })
	if n := len(files) - maxFiles; n > 0 {
		p.NotListed = countOf(n, "file")
		files = files[:maxFiles]
	}
	var rows [][]string
	for _, f := range files {
		rows = append(rows, append(f.cells(), links[f.File]))
	}
	p.FileTable = p.Data.Add(page.Table{
		ID: "files", Caption: "Bytes of code in each file, in format 2, the worst first", Noun: "files",
		Columns: fileColumns, Reasons: reasons, Falling: "Not unwindable",
	}, rows)
	p.addTables(s.tables())
	return p
}

// addTables adds tables of the text report.
func (p *surveyPage) addTables(tables []table) {
	for i, t := range tables {
		if !t.TextOnly && len(t.Rows) > 0 {
			to := page.Table{
				ID: fmt.Sprint("table-", i+1), Caption: t.Title, Noun: "rows", Columns: t.Head, Short: true,
			}
			p.Tables = append(p.Tables, section{p.Data.Add(to, t.Rows), t.Note})
		}
	}
}

// command returns a command that makes the survey. It is the same for a merge.
func (s *Survey) command() string {
	args := []string{"survey"}
	if s.Objects {
		args = append(args, "--objects")
	}
	for i := range s.Paths {
		args = append(args, report.Printable(s.Paths[i].Name))
	}
	return page.Command(args...)
}

// A fileRow is a row of the files' table.
type fileRow struct {
	*Record
	code page.Split
}

// cells returns the cells of fileColumns.
func (r *fileRow) cells() []string {
	row := make([]string, len(fileColumns), len(fileColumns)+1)
	row[0], row[7], row[8], row[9] = report.Printable(r.File), r.language(), r.compiler(), r.ABI
	if code := r.code; code.Code > 0 {
		row[1] = report.Share(code.Unwindable, code.Code)
		row[2], row[6] = decimal(code.Left()), decimal(code.Code)
	}
	var remarks []string
	if r.Status == "" {
		lost, reason := r.lost()
		row[3], row[5] = decimal(lost), reason
		for _, f := range r.Formats {
			if f.Format == sframe.V3 {
				row[4] = decimal(r.Described - f.Covered)
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
	row[10] = strings.Join(remarks, "; ")
	return row
}

// bars returns the bars of the reasons for gaps in all files.
func (s *Survey) bars(code page.Split) []page.Bar {
	var out []page.Bar
	for _, g := range s.Total.Gaps {
		if g.Ranges == 0 || !g.Loss {
			continue
		}
		b := page.NewBar(g.Reason, g.Text, g.Bytes, 0, code.Code)
		b.Of = fmt.Sprintf("in %s of %s, in %s",
			countOf(g.Ranges, "gap"), countOf(g.Functions, "function"), countOf(g.Files, "file"))
		out = append(out, b)
	}
	return code.Bars(out)
}

// A Lossy file loses something.
type Lossy struct {
	Path  string   // on the disk
	Names []string // in the survey: its name, or those of members of an archive
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
			out = append(out, Lossy{Path: path})
		}
		out[i].Names = append(out[i].Names, f.File)
	}
	return out
}

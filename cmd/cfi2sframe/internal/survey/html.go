package survey

import (
	"bufio"
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strconv"

	"cfi2sframe/cmd/cfi2sframe/internal/page"
	"cfi2sframe/cmd/cfi2sframe/internal/report"
	"cfi2sframe/sframe"
	"cfi2sframe/translate"
)

//go:embed survey.html.tmpl
var pageText string

// maxFiles is the maximum number of files listed on the page, worst first.
const maxFiles = 1 << 16

// A surveyPage holds the data for the page template.
type surveyPage struct {
	page.Frame
	Kind, Heading  string
	Format         sframe.Version
	Files, WithCFI uint64
	Code           page.Split
	Chart          page.Chart
	FileTable      page.Table
	NotListed      string // files
	Tables         []section
}

// A section of the page is a table from the text report.
type section struct {
	page.Table
	Note string
}

var fileColumns = page.Columns(
	"File", "file", "Unwindable", "number", "Not unwindable", "number", "Not covered", "number",
	"In format 2", "number", "Main reason", "reason", "Code", "number", "ABI", "text", "Remarks", "text",
)

// HTML writes the survey as a self-contained page. maker is the program's name and version.
func (s *Survey) HTML(w io.Writer, heading, maker string) error {
	out := bufio.NewWriter(w)
	funcs := template.FuncMap{
		"count": count[uint64], "bytes": func(n uint64) string { return countOf(n, "byte") },
	}
	if err := page.Template(pageText, funcs).Execute(out, s.page(heading, maker)); err != nil {
		return err
	}
	return out.Flush()
}

// split divides a file's code by its coverage in gapVersion.
func (r *Record) split() page.Split {
	lost, _ := r.lostCode()
	return page.NewSplit(r.Code, format(r.Formats, gapVersion).Unwindable, lost)
}

func (s *Survey) page(heading, maker string) *surveyPage {
	p := &surveyPage{
		Frame: page.NewFrame(s.title(), maker), Kind: "SFrame survey", Heading: heading, Format: gapVersion,
		Files: s.Total.Files, WithCFI: s.Total.WithCFI,
	}
	files := slices.DeleteFunc(slices.Clone(s.Files), func(r *Record) bool { return r.Code == 0 && r.Error == "" })
	for _, r := range files {
		p.Code.Add(r.split())
	}
	p.Chart = s.chart(p.Code)
	var reasons []string
	for _, r := range translate.Reasons() {
		p.Data.Reasons[r.Name()] = r.String()
	}
	for i := range s.Total.Gaps {
		if g := &s.Total.Gaps[i]; g.Ranges > 0 && g.breaksTraces() {
			reasons = append(reasons, g.Reason)
		}
	}
	left := func(r *Record) uint64 { code := r.split(); return code.Left() }
	slices.SortStableFunc(files, func(a, b *Record) int { return cmp.Compare(left(b), left(a)) })
	if n := len(files) - maxFiles; n > 0 {
		p.NotListed = countOf(n, "file")
		files = files[:maxFiles]
	}
	var rows [][]string
	for _, r := range files {
		rows = append(rows, r.cells())
	}
	p.FileTable = p.Data.Add(page.Table{
		ID: "files", Caption: fmt.Sprintf("Bytes of code in each file, in format %d, worst first", gapVersion),
		Noun: "files", Columns: fileColumns, Reasons: reasons, Falling: "Not unwindable",
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

// cells returns the record's row of the file table (fileColumns).
func (r *Record) cells() []string {
	decimal := func(n uint64) string { return strconv.FormatUint(n, 10) }
	row := make([]string, len(fileColumns))
	row[0], row[7] = report.Printable(r.File), r.ABI
	if code := r.split(); code.Code > 0 {
		row[1] = report.Share(code.Unwindable, code.Code)
		row[2], row[6] = decimal(code.Left()), decimal(code.Code)
	}
	if r.Status == "" {
		lost, reason := r.lostCode()
		row[3], row[5] = decimal(lost), reason
		row[4] = decimal(r.Described - format(r.Formats, sframe.V2).Covered)
		return row
	}
	row[8] = statusText(r.Status)
	if r.Error != "" {
		row[8] += "; " + report.Printable(r.Error)
	}
	return row
}

// chart returns a bar chart of the reasons for gaps in all files.
func (s *Survey) chart(code page.Split) page.Chart {
	var out []page.Bar
	for i := range s.Total.Gaps {
		g := &s.Total.Gaps[i]
		if g.Ranges == 0 || !g.breaksTraces() {
			continue
		}
		of := fmt.Sprintf("in %s of %s, in %s",
			countOf(g.Ranges, "gap"), countOf(g.Functions, "function"), countOf(g.Files, "file"))
		out = append(out, page.Bar{Name: g.Reason, Text: g.reason().String(), Bytes: g.Bytes, Of: of})
	}
	return code.Chart(out)
}

package report

import (
	"bufio"
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strconv"
	"sync"

	"cfi2sframe/cmd/cfi2sframe/internal/coverage"
	"cfi2sframe/cmd/cfi2sframe/internal/page"
	"cfi2sframe/convert"
)

//go:embed report.html.tmpl
var pageText string

// pageTemplate is parsed on first use, because few runs need it.
var pageTemplate = sync.OnceValue(func() *template.Template {
	return page.Template(pageText, functions)
})

// HTML writes a self-contained page with the result for each file, gaps by reason, a sortable table of all gaps, files
// with errors, and unchanged files by reason. Names come from files that may be hostile. The argument maker is the
// program's name and version.
func HTML(w io.Writer, files []*Coverage, failed []*Failed, unchanged []Unchanged, maker string) error {
	out := bufio.NewWriter(w)
	if err := pageTemplate().Execute(out, newPage(files, failed, unchanged, maker)); err != nil {
		return err
	}
	return out.Flush()
}

// pageData is the input of the page template.
type pageData struct {
	page.Frame
	Several bool // or none
	Sum     pageFile
	Files   []pageFile
	Shown   []pageFile // files with a section on the page

	Failed, Unchanged, FileTable, Gaps, Sections, Functions page.Table

	GapsOmitted, FunctionsOmitted int
}

// A pageFile holds the data of one file, or the totals of all files.
type pageFile struct {
	Coverage *Coverage
	ID       string // HTML id of the file's section, or ""
	Split    page.Split
	Chart    page.Chart
}

// maxShown is the maximum number of files that get a section, to keep the page readable.
const maxShown = 1000

// The columns of the tables, in the order of the cells that the row methods return.
var (
	failedColumns    = page.Columns("File", "name", "Error", "text")
	unchangedColumns = page.Columns("Reason", "text", "Files", "number")
	fileColumns      = page.Columns(
		"File", "file", "Unwindable", "share", "Not unwindable", "number", "Not covered", "number", "No CFI", "number",
		"Code", "number", ".sframe", "number", "ABI", "text", "Format", "number",
		"Only V3", "number", "Most because of", "reason",
	)
	gapColumns = page.Columns(
		"File", "name", "Function", "name", "Address", "place", "Offset", "hex", "Bytes", "number", "Reason", "reason",
		"Rule", "rule",
	)
	sectionColumns = page.Columns(
		"File", "name", "Section", "text", "Address", "hex", "Size", "number", "Code", "number",
		"Start-up code", "number", "Padding", "number",
	)
	functionColumns = page.Columns(
		"File", "name", "Function", "name", "Address", "place", "Size", "number", "Without CFI", "number",
	)
)

func newPage(files []*Coverage, failed []*Failed, unchanged []Unchanged, maker string) *pageData {
	title := "SFrame coverage of " + plural(len(files), "file")
	if len(files) == 1 {
		title = "SFrame coverage of " + Printable(files[0].File)
	}
	p := &pageData{Frame: page.NewFrame(title, maker), Several: len(files) != 1}
	for i, c := range files {
		id := ""
		if len(files) > 1 && i < maxShown {
			id = "file-" + strconv.Itoa(i+1)
		}
		p.Files = append(p.Files, newPageFile(c, id))
		p.GapsOmitted += c.Omitted
		p.FunctionsOmitted += c.Uncovered.Omitted
	}
	if p.Several {
		p.Sum = newPageFile(Sum("", files), "")
	} else {
		p.Sum = p.Files[0]
	}
	p.Shown = p.Files[:min(len(files), maxShown)]
	p.tables()
	var rows [][]string
	for _, f := range failed {
		rows = append(rows, []string{Printable(f.File), f.Error})
	}
	p.Failed = p.Data.Add(page.Table{
		ID: "failed", Caption: "Files with errors", Noun: "files", Columns: failedColumns,
	}, rows)
	rows = nil
	for _, u := range unchanged {
		rows = append(rows, []string{u.Text, strconv.Itoa(u.Files)})
	}
	p.Unchanged = p.Data.Add(page.Table{
		ID: "unchanged", Caption: "Unchanged files, by reason", Noun: "reasons", Columns: unchangedColumns, Short: true,
	}, rows)
	return p
}

func newPageFile(c *Coverage, id string) pageFile {
	f := pageFile{Coverage: c, ID: id, Split: page.NewSplit(c.Code, c.Unwindable, c.Described-c.Covered)}
	f.Chart = chart(c, f.Split)
	return f
}

// chart returns a bar chart of the reasons.
func chart(c *Coverage, code page.Split) page.Chart {
	var out []page.Bar
	for _, r := range c.Reasons {
		if !r.Loss {
			continue
		}
		out = append(out, page.Bar{
			Name: r.Name, Text: r.Text, Bytes: r.Bytes,
			Of: fmt.Sprintf("in %s of %s", plural(r.Ranges, "gap"), plural(r.Functions, "function")),
		})
	}
	return code.Chart(out)
}

// tables makes the tables.
func (p *pageData) tables() {
	first := 1
	if p.Several {
		first = 0
	}
	var reasons []string
	for _, r := range p.Sum.Coverage.Reasons {
		if r.Loss {
			reasons = append(reasons, r.Name)
		}
		p.Data.Reasons[r.Name] = r.Text
	}
	p.Data.Reasons["without"] = "code without CFI"
	var files, gaps, sections, functions [][]string
	for _, c := range p.Files {
		name := Printable(c.Coverage.File)
		for _, g := range c.Coverage.losses() {
			gaps = append(gaps, g.row(name))
		}
		for i := range c.Coverage.Uncovered.Sections {
			if s := &c.Coverage.Uncovered.Sections[i]; s.Bytes+s.Padding+s.Startup > 0 {
				sections = append(sections, sectionRow(name, s))
			}
		}
		for i := range c.Coverage.Uncovered.Functions {
			functions = append(functions, uncoveredRow(name, &c.Coverage.Uncovered.Functions[i]))
		}
	}
	worst := slices.Clone(p.Files)
	slices.SortStableFunc(worst, func(a, b pageFile) int { return cmp.Compare(b.Split.Left(), a.Split.Left()) })
	for i := range worst {
		files = append(files, worst[i].row())
	}
	p.FileTable = p.Data.Add(page.Table{
		ID: "files", Caption: "Bytes of code in each file, worst first", Noun: "files", Columns: fileColumns,
		Falling: "Not unwindable", Reasons: append(reasons, "without"),
	}, files)
	p.Gaps = p.Data.Add(page.Table{
		ID: "gaps", Caption: "Code that call frame information describes but SFrame does not", Noun: "gaps",
		Columns: gapColumns, First: first, Reasons: reasons,
	}, gaps)
	p.Sections = p.Data.Add(page.Table{
		ID: "sections", Caption: "Bytes without call frame information, by section", Noun: "sections",
		Columns: sectionColumns, First: first,
	}, sections)
	p.Functions = p.Data.Add(page.Table{
		ID: "functions", Caption: "Functions with code that has no call frame information", Noun: "functions",
		Columns: functionColumns, First: first,
	}, functions)
}

// row returns a row of the file table (fileColumns), followed by a link to the file's section, if any.
func (f *pageFile) row() []string {
	c, s, part := f.Coverage, f.Split, ""
	reason, _ := c.mainReason()
	if reason == string(convert.NoCFI) {
		reason = "without"
	}
	if f.ID != "" {
		part = "#" + f.ID
	}
	return []string{
		Printable(c.File), Share(s.Unwindable, s.Code), decimal(s.Left()), decimal(s.NotCovered), decimal(s.NoCFI),
		decimal(s.Code), decimal(c.Size), c.ABI, strconv.Itoa(c.Format),
		decimal(c.OnlyV3), reason, part,
	}
}

// row returns a row of the gap table (gapColumns), followed by the symbol.
func (g *Gap) row(file string) []string {
	return []string{
		file, g.function(), rangeOf(g.Section, g.Begin, g.End), fmt.Sprintf("%#x", g.Offset), decimal(g.End - g.Begin),
		g.Reason, Printable(g.rule()), Printable(g.Symbol),
	}
}

// sectionRow returns a row of the section table (sectionColumns).
func sectionRow(file string, s *coverage.UncoveredSection) []string {
	return []string{
		file, Printable(s.Name), fmt.Sprintf("%#x", s.Begin), decimal(s.Size), decimal(s.Bytes),
		decimal(s.Startup), decimal(s.Padding),
	}
}

// uncoveredRow returns a row of the function table (functionColumns), followed by the symbol.
func uncoveredRow(file string, f *coverage.UncoveredFunction) []string {
	return []string{
		file, Printable(f.Function), placeOf(f), decimal(f.Size), decimal(f.Bytes),
		Printable(f.Symbol),
	}
}

func decimal(n uint64) string { return strconv.FormatUint(n, 10) }

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

	"cfi2sframe/internal/page"
)

//go:embed report.html.tmpl
var pageText string

// pageTemplate is parsed when it is needed, which is rare.
var pageTemplate = sync.OnceValue(func() *template.Template {
	return page.Template(pageText, functions)
})

// HTML writes one page about the files, without references to other files: the result for each, gaps by reason, a map
// of the code, and a table of all gaps that can be sorted and filtered. Names come from files that may be hostile.
func HTML(w io.Writer, files []*Coverage) error {
	out := bufio.NewWriter(w)
	if err := pageTemplate().Execute(out, newPage(files)); err != nil {
		return err
	}
	return out.Flush()
}

// Fragments returns for each file name the URL fragment of its part on a page about the files. If the page is about one
// file, or the file has no part, the fragment is empty.
func Fragments(files []*Coverage) map[string]string {
	out := make(map[string]string)
	for i := min(len(files), maxListed) - 1; i >= 0 && len(files) > 1; i-- { // the first file of a name is last
		out[files[i].File] = "#" + partID(i)
	}
	return out
}

// partID returns the ID of the part about the file with an index.
func partID(i int) string { return "file-" + strconv.Itoa(i+1) }

// A pageOf has the data of the template.
type pageOf struct {
	page.Frame
	Several bool // or none
	Sum     pageFile
	Files   []pageFile
	Shown   []pageFile // those that have a part

	FileTable, Gaps, Functions page.Table

	GapsOmitted, FunctionsOmitted int
}

// A pageFile is one file, or the sum of all.
type pageFile struct {
	*Coverage
	ID        string
	Bars      []page.Bar
	Map       []strip
	NotDrawn  int                // sections that the map does not show
	Listed    []UncoveredSection // with code without CFI, by address
	NotListed int                // the smaller ones, if they are too many
	LeftOut   uint64             // bytes of all gaps
	Ranges    int                // all gaps
}

// The columns of the tables, in the order of the cells that the row methods return.
var (
	fileColumns = page.Columns(
		"File", "file", "ABI", "text", "Format", "number", "Described", "number", "Covered", "number",
		"Share", "number", "Left out", "number", "Without CFI", "number", ".sframe", "number",
	)
	gapColumns = page.Columns(
		"File", "name", "Function", "name", "Address", "place", "Offset", "hex", "Bytes", "number", "Reason", "reason",
		"Rule", "rule", "Source", "source", "Format 3", "text", "Cause", "text",
	)
	functionColumns = page.Columns(
		"File", "name", "Function", "name", "Address", "place", "Size", "number", "Without CFI", "number",
	)
)

func newPage(files []*Coverage) *pageOf {
	p := &pageOf{Frame: page.NewFrame("SFrame coverage"), Several: len(files) != 1}
	for i, c := range files {
		p.Files = append(p.Files, newPageFile(c, partID(i)))
		p.GapsOmitted += c.Omitted
		p.FunctionsOmitted += c.Uncovered.Omitted
	}
	if p.Several {
		p.Title += " of " + plural(len(files), "file")
		p.Sum = newPageFile(Sum("", files), "sum")
	} else {
		p.Title += " of " + Printable(files[0].File)
		p.Sum = p.Files[0]
	}
	p.Shown = p.Files[:min(len(files), maxListed)]
	p.tables(files)
	return p
}

func newPageFile(c *Coverage, id string) pageFile {
	f := pageFile{Coverage: c, ID: id, Bars: bars(c)}
	f.Map, f.NotDrawn = codeMap(c)
	some := slices.DeleteFunc(slices.Clone(c.Uncovered.Sections), func(s UncoveredSection) bool { return s.Bytes == 0 })
	f.Listed = largest(some, maxListed, func(a, b UncoveredSection) int { return cmp.Compare(a.Bytes, b.Bytes) })
	f.NotListed = len(some) - len(f.Listed)
	for i := range c.Reasons {
		f.LeftOut += c.Reasons[i].Bytes
		f.Ranges += c.Reasons[i].Ranges
	}
	return f
}

// maxListed bounds the sections in the table of a file, and the files with a part: people look at a page.
const maxListed = 1000

// bars returns the bars of the reasons, with the longest first.
func bars(c *Coverage) []page.Bar {
	reasons := slices.Clone(c.Reasons)
	slices.SortStableFunc(reasons, func(a, b Reason) int { return cmp.Compare(b.Bytes, a.Bytes) })
	var out []page.Bar
	for _, r := range reasons {
		most := reasons[0].Bytes
		out = append(out, page.Bar{
			Name: r.Name, Text: r.Text, Loss: r.Loss,
			Stays: page.Part(r.Bytes-r.Format3, most), Striped: page.Part(r.Format3, most), Size: bytesOf(r.Bytes),
			Of:    fmt.Sprintf("in %s of %s", plural(r.Ranges, "gap"), plural(r.Functions, "function")),
			Share: c.format3Share(&r),
		})
	}
	return out
}

// tables makes the tables.
func (p *pageOf) tables(files []*Coverage) {
	first := 1
	if p.Several {
		first = 0
	}
	var reasons []page.Reason
	for _, r := range p.Sum.Reasons {
		reasons = append(reasons, page.Reason{Name: r.Name, Text: r.Text})
		p.Data.Reasons[r.Name] = r.Text
	}
	var gaps, functions, list [][]string
	for i, c := range files {
		name := Printable(c.File)
		list = append(list, p.Files[i].row(name, i < maxListed))
		for i := range c.Gaps {
			gaps = append(gaps, c.Gaps[i].row(name))
		}
		for i := range c.Uncovered.Functions {
			functions = append(functions, c.Uncovered.Functions[i].row(name))
		}
	}
	p.FileTable = p.Data.Add(page.Table{
		ID: "files", Caption: "What became of each file", Noun: "files", Columns: fileColumns,
	}, list)
	p.Gaps = p.Data.Add(page.Table{
		ID: "gaps", Caption: "Code that call frame information describes and SFrame does not", Noun: "gaps",
		Columns: gapColumns, First: first, Reasons: reasons,
	}, gaps)
	p.Functions = p.Data.Add(page.Table{
		ID: "functions", Caption: "Functions of which no call frame information describes a part", Noun: "functions",
		Columns: functionColumns, First: first,
	}, functions)
}

// row returns the cells of fileColumns, and a link to the file's part if it has one.
func (f *pageFile) row(name string, hasPart bool) []string {
	part := ""
	if hasPart {
		part = "#" + f.ID
	}
	return []string{
		name, f.ABI, strconv.Itoa(f.Format), decimal(f.Described), decimal(f.Covered), Share(f.Covered, f.Described),
		decimal(f.LeftOut), decimal(f.Uncovered.Bytes), decimal(f.Size), part,
	}
}

// row returns the cells of gapColumns, and the symbol.
func (g *Gap) row(file string) []string {
	format3 := "left out"
	if g.Format3 {
		format3 = "covered"
	}
	return []string{
		file, g.function(), rangeOf(g.Section, g.Begin, g.End), fmt.Sprintf("%#x", g.Offset), decimal(g.End - g.Begin),
		g.Reason, Printable(g.rule()), g.line(), format3, Printable(g.Cause), Printable(g.Symbol),
	}
}

// row returns the cells of functionColumns, and the symbol.
func (f *UncoveredFunction) row(file string) []string {
	return []string{
		file, Printable(f.Function), f.Place(), decimal(f.Size), decimal(f.Bytes),
		Printable(f.Symbol),
	}
}

func decimal(n uint64) string { return strconv.FormatUint(n, 10) }

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
)

// The page, and what it has inlined: it has to work wherever it is copied to, without a network.
var (
	//go:embed report.html.tmpl
	pageText string
	//go:embed report.css
	pageStyle string
	//go:embed report.js
	pageScript string
)

// pageTemplate is parsed when it is needed, which is rare.
var pageTemplate = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("page").Funcs(template.FuncMap{
		"add":       func(a, b uint64) uint64 { return a + b },
		"bytes":     bytesOf,
		"digits":    digits,
		"percent":   percent,
		"plural":    plural,
		"printable": printable,
		"uint":      func(n int) uint64 { return uint64(n) },
	}).Parse(pageText))
})

// HTML writes one page about the files, which needs nothing but itself: what became of each,
// gaps by reason, a map of the code, and all gaps in a table that can be sorted and filtered.
// Names in there come from files that may be hostile.
func HTML(w io.Writer, files []*Coverage) error {
	out := bufio.NewWriter(w)
	if err := pageTemplate().Execute(out, newPage(files)); err != nil {
		return err
	}
	return out.Flush()
}

// A page is what the template shows.
type page struct {
	Title   string
	Policy  string // that lets nothing run but what is inlined
	Style   template.CSS
	Script  template.JS
	Several bool // or none
	Sum     pageFile
	Files   []pageFile

	FileTable, Gaps, Functions pageTable

	GapsOmitted, FunctionsOmitted int

	Data pageData
}

// A pageFile is one file, or the sum of all.
type pageFile struct {
	*Coverage
	ID       string
	Bars     []bar
	Map      []strip
	NotDrawn int // sections that the map leaves out
}

// A pageTable is a table that the script fills from the page's data.
type pageTable struct {
	ID, Caption string
	Noun        string // what its rows are
	Columns     []column
	First       int      // column to begin with: that of the file names is for several files only
	Reasons     []Reason // to choose from, or none
}

// A column's kind says how the script sorts and shows it.
type column struct{ Name, Kind string }

// The columns of the tables, in the order of the cells in rowData. Behind its columns a row can
// have one more cell, which is a name's symbol.
var (
	fileColumns = []column{
		{"File", "file"}, {"ABI", "text"}, {"Format", "number"}, {"Described", "number"}, {"Covered", "number"},
		{"Share", "number"}, {"Left out", "number"}, {"Without CFI", "number"}, {".sframe", "number"},
	}
	gapColumns = []column{
		{"File", "text"}, {"Function", "name"}, {"Address", "place"}, {"Offset", "hex"}, {"Bytes", "number"}, {"Reason", "reason"},
		{"Rule", "rule"}, {"Source", "source"}, {"Format 3", "text"}, {"Cause", "text"},
	}
	functionColumns = []column{
		{"File", "text"}, {"Function", "name"}, {"Address", "place"}, {"Size", "number"}, {"Without CFI", "number"},
	}
)

// pageData is what the script works on. Cells are strings: numbers of 64 bits would lose digits.
type pageData struct {
	Reasons map[string]string     `json:"reasons"` // texts, by name
	Tables  map[string][][]string `json:"tables"`  // rows of cells, by the table's ID
}

func newPage(files []*Coverage) *page {
	p := &page{
		Title: "SFrame coverage", Policy: contentPolicy, Style: template.CSS(pageStyle), Script: template.JS(pageScript),
		Several: len(files) != 1,
		Data:    pageData{Reasons: map[string]string{}, Tables: map[string][][]string{}},
	}
	for i, c := range files {
		p.Files = append(p.Files, newPageFile(c, "file-"+strconv.Itoa(i+1)))
		p.GapsOmitted += c.Omitted
		p.FunctionsOmitted += c.Uncovered.Omitted
	}
	if p.Several {
		p.Title += " of " + plural(len(files), "file")
		sum := Sum("", files)
		p.Sum = pageFile{Coverage: sum, ID: "sum", Bars: bars(sum)} // of several files there is no map
	} else {
		p.Title += " of " + printable(files[0].File)
		p.Sum = p.Files[0]
	}
	p.tables()
	p.rows(files)
	return p
}

// contentPolicy names the inlined style and script by their hashes: markup that would slip in
// with a name could neither run nor load anything. A test works them out; here that would bring cryptography into
// the program.
const contentPolicy = "default-src 'none'; style-src 'sha256-gE/o6PKlRZIGGH8n4Eg6/4R5T4TVLvxZdz7LE7mjqng='; script-src 'sha256-TsR9LqZvP4OStDkXdXlkmp6YmOeymGjKq0phNPzGghk='"

func newPageFile(c *Coverage, id string) pageFile {
	f := pageFile{Coverage: c, ID: id, Bars: bars(c)}
	f.Map, f.NotDrawn = codeMap(c)
	return f
}

// maxListed bounds the sections of a file that its table lists, and the files that have a part of
// their own: a page is to be looked at.
const maxListed = 1000

// Listed returns the sections with code without CFI, those with most of it if they are too many, by
// address.
func (f *pageFile) Listed() []UncoveredSection {
	list := slices.DeleteFunc(slices.Clone(f.Uncovered.Sections), func(s UncoveredSection) bool { return s.Bytes == 0 })
	if len(list) <= maxListed {
		return list
	}
	slices.SortStableFunc(list, func(a, b UncoveredSection) int { return cmp.Compare(b.Bytes, a.Bytes) })
	list = list[:maxListed]
	slices.SortStableFunc(list, func(a, b UncoveredSection) int { return cmp.Compare(a.Begin, b.Begin) })
	return list
}

// NotListed counts the other sections with code without CFI.
func (f *pageFile) NotListed() int {
	n := 0
	for i := range f.Uncovered.Sections {
		if f.Uncovered.Sections[i].Bytes > 0 {
			n++
		}
	}
	return max(n-maxListed, 0)
}

// Shown returns the files that have a part of their own.
func (p *page) Shown() []pageFile { return p.Files[:min(len(p.Files), maxListed)] }

// NotShown counts the other ones.
func (p *page) NotShown() int { return len(p.Files) - len(p.Shown()) }

// LeftOut is the size of all gaps.
func (f *pageFile) LeftOut() uint64 {
	var n uint64
	for i := range f.Reasons {
		n += f.Reasons[i].Bytes
	}
	return n
}

// Ranges counts all gaps.
func (f *pageFile) Ranges() int {
	var n int
	for i := range f.Reasons {
		n += f.Reasons[i].Ranges
	}
	return n
}

// A bar is a reason, with the lengths of its bar in percent.
type bar struct {
	Reason
	Stays, Format3Part string // what format 3 leaves out, and what it covers
	Format3Share       string // the latter in words
}

// bars scales the reasons to that with most bytes, which comes first.
func bars(c *Coverage) []bar {
	var most uint64
	for i := range c.Reasons {
		most = max(most, c.Reasons[i].Bytes)
	}
	var out []bar
	for _, r := range c.Reasons {
		out = append(out, bar{r, part(r.Bytes-r.Format3, most), part(r.Format3, most), c.format3Share(&r)})
	}
	slices.SortStableFunc(out, func(a, b bar) int { return cmp.Compare(b.Bytes, a.Bytes) })
	return out
}

// part returns a length in percent, for graphics.
func part(n, whole uint64) string {
	return fmt.Sprintf("%.3f%%", 100*float64(n)/float64(max(whole, 1)))
}

// tables sets up the tables.
func (p *page) tables() {
	first := 1
	if p.Several {
		first = 0
	}
	p.FileTable = pageTable{ID: "files", Caption: "What became of each file", Noun: "files", Columns: fileColumns}
	p.Gaps = pageTable{
		ID: "gaps", Caption: "Code that call frame information describes and SFrame does not", Noun: "gaps", Columns: gapColumns, First: first,
		Reasons: p.Sum.Reasons,
	}
	p.Functions = pageTable{
		ID: "functions", Caption: "Functions of which no call frame information describes a part", Noun: "functions",
		Columns: functionColumns, First: first,
	}
}

// rows fills the tables.
func (p *page) rows(files []*Coverage) {
	for _, r := range p.Sum.Reasons {
		p.Data.Reasons[r.Name] = r.Text
	}
	gaps, functions, list := [][]string{}, [][]string{}, [][]string{}
	for i, c := range files {
		name := printable(c.File)
		list = append(list, p.Files[i].row(name))
		for i := range c.Gaps {
			gaps = append(gaps, c.Gaps[i].row(name))
		}
		for i := range c.Uncovered.Functions {
			functions = append(functions, c.Uncovered.Functions[i].row(name))
		}
	}
	p.Data.Tables[p.Gaps.ID] = gaps
	p.Data.Tables[p.Functions.ID] = functions
	p.Data.Tables[p.FileTable.ID] = list
}

// row returns the cells of fileColumns.
func (f *pageFile) row(name string) []string {
	return []string{
		name, f.ABI, strconv.Itoa(f.Format), decimal(f.Described), decimal(f.Covered), percent(f.Covered, f.Described),
		decimal(f.LeftOut()), decimal(f.Uncovered.Bytes), decimal(f.Size),
	}
}

// row returns the cells of gapColumns, and the symbol.
func (g *Gap) row(file string) []string {
	name := printable(g.Function)
	if name == "" {
		name = fmt.Sprintf("function at %s%#x", inSection(g.Section), g.Begin-g.Offset)
	}
	rule, source, format3 := g.Rule, "", "left out"
	if g.Column != "" {
		rule = g.Column + " " + g.Rule
	}
	if g.Source != "" {
		source = fmt.Sprintf("%s:%d", printable(g.Source), g.Line)
	}
	if g.Format3 {
		format3 = "covered"
	}
	return []string{
		file, name, rangeOf(g.Section, g.Begin, g.End), fmt.Sprintf("%#x", g.Offset), decimal(g.End - g.Begin), g.Reason,
		printable(rule), source, format3, printable(g.Cause), printable(g.Symbol),
	}
}

// row returns the cells of functionColumns, and the symbol.
func (f *UncoveredFunction) row(file string) []string {
	return []string{
		file, printable(f.Function), rangeOf(f.Section, f.Begin, f.Begin+f.Size), decimal(f.Size), decimal(f.Bytes), printable(f.Symbol),
	}
}

func rangeOf(section string, begin, end uint64) string {
	return fmt.Sprintf("%s%#x-%#x", inSection(section), begin, end)
}

// bytesOf returns a size in words.
func bytesOf(n uint64) string {
	if n == 1 {
		return "1 byte"
	}
	return digits(n) + " bytes"
}

func decimal(n uint64) string { return strconv.FormatUint(n, 10) }

package survey

import (
	"bufio"
	"cmp"
	_ "embed"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"cfi2sframe/internal/page"
	"cfi2sframe/report"
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
	Tiles     []tile
	Files     page.Table
	NotListed string // files
	Linked    bool
	Bars      []page.Bar
	Tables    []section
}

// A tile is a figure at the top.
type tile struct{ Name, Value, Text string }

// A section has one of the tables that are in the text, too.
type section struct {
	page.Table
	Note string
}

var fileColumns = page.Columns(
	"File", "file", "ABI", "text", "Language", "text", "Compiler", "text", "Described", "number", "Lost", "number", "Share", "number", "Mostly by", "reason",
	"Lost in format 3", "number", "Without CFI", "number", "Remarks", "text",
)

// HTML writes the survey as a page that needs nothing else. Links, which may be nil, has for names of files where
// pages about them are, as URLs.
func (s *Survey) HTML(w io.Writer, links map[string]string) error {
	out := bufio.NewWriter(w)
	if err := page.Template(pageText, nil).Execute(out, s.page(links)); err != nil {
		return err
	}
	return out.Flush()
}

func (s *Survey) page(links map[string]string) *surveyPage {
	p := &surveyPage{Frame: page.NewFrame(s.title()), Heading: s.heading(), Only: s.Only(), Linked: len(links) > 0}
	p.Tiles = s.tiles()
	var reasons []page.Reason
	for _, g := range s.Total.Gaps {
		p.Data.Reasons[g.Reason] = g.Text
		if g.Ranges > 0 && g.Loss {
			reasons = append(reasons, page.Reason{Name: g.Reason, Text: g.Text})
		}
	}
	lines := s.byLoss()
	if n := len(lines) - maxFiles; n > 0 {
		p.NotListed = countOf(n, "file")
		lines = lines[:maxFiles]
	}
	var rows [][]string
	for _, l := range lines {
		rows = append(rows, l.row(links))
	}
	p.Files = p.Data.Add(page.Table{
		ID: "files", Caption: "What there is to say of each file, in format 2", Noun: "files", Columns: fileColumns, Reasons: reasons, Falling: "Lost",
	}, rows)
	p.Bars = s.bars()
	for i, t := range s.tables() {
		if !t.TextOnly {
			p.Tables = append(p.Tables, t.section("table-"+strconv.Itoa(i+1), &p.Data))
		}
	}
	return p
}

// heading says what was surveyed.
func (s *Survey) heading() string {
	var names []string
	for i := range s.roots {
		names = append(names, s.roots[i].name)
	}
	return namesOf(names)
}

// namesOf names the first of some paths.
func namesOf(paths []string) string {
	const shown = 3
	var names []string
	for _, p := range paths[:min(len(paths), shown)] {
		names = append(names, report.Printable(p))
	}
	text := strings.Join(names, ", ")
	if n := len(paths) - shown; n > 0 {
		text += " and " + countOf(n, "other path")
	}
	return text
}

// maxGroups is how many groups of shards are named.
const maxGroups = 10

// Only says of which shards the survey is, if others are missing, and is "" otherwise.
func (s *Survey) Only() string {
	var out []string
	for i, g := range s.Shards {
		if i == maxGroups {
			out = append(out, countOf(len(s.Shards)-i, "other group")+" of shards")
			break
		}
		var names []string
		for _, j := range g.Paths {
			names = append(names, s.roots[j].name)
		}
		of := s.heading()
		if g.Paths != nil {
			of = namesOf(names)
		}
		out = append(out, fmt.Sprintf("%s of %d of %s", ranges(g.Have), g.Of, of))
	}
	if len(out) == 0 {
		return ""
	}
	return "Only " + strings.Join(out, ", and ") + "."
}

func (s *Survey) tiles() []tile {
	lossy := 0
	var lost uint64
	for _, l := range s.lines {
		if n, _ := l.lost(); n > 0 {
			lossy++
			lost += n
		}
	}
	t := &s.Total
	return []tile{
		{"Files", count(t.Files), fmt.Sprintf("ELF files; %s of them have CFI", count(t.WithCFI))},
		{"Without loss", report.Share(t.Described-lost, t.Described), "of " + countOf(t.Described, "byte") + " that CFI describes"},
		{"Lost", countOf(lost, "byte"), "in " + countOf(lossy, "file")},
		{"Without CFI", countOf(t.WithoutCFI, "byte"), "of code, padding included"},
	}
}

// byLoss returns the files, first those of which most is lost.
func (s *Survey) byLoss() []*line {
	type entry struct {
		*line
		lost uint64
	}
	all := make([]entry, len(s.lines))
	for i, l := range s.lines {
		all[i].line = l
		all[i].lost, _ = l.lost()
	}
	slices.SortStableFunc(all, func(a, b entry) int { return cmp.Compare(b.lost, a.lost) })
	out := make([]*line, len(all))
	for i := range all {
		out[i] = all[i].line
	}
	return out
}

// row returns the cells of fileColumns, and where the file leads to.
func (l *line) row(links map[string]string) []string {
	row := make([]string, len(fileColumns), len(fileColumns)+1)
	row[0] = report.Printable(l.file)
	if l.abi != 0 {
		row[1] = l.abi.String()
	}
	row[2], row[3] = l.origin.language(), l.origin.compiler()
	var remarks []string
	if l.status == statusCFI {
		lost, reason := l.lost()
		row[4], row[5], row[6] = decimal(l.described), decimal(lost), report.Share(lost, max(l.described, 1))
		if lost > 0 {
			row[7] = reason.Name()
		}
		if f := l.formats[len(l.formats)-1]; f.Format != 0 {
			row[8] = decimal(f.Described - f.Covered - f.Outermost)
		}
		if l.drap {
			remarks = append(remarks, "DRAP")
		}
		if l.otherCFA {
			remarks = append(remarks, "non-SP/FP CFA")
		}
	} else {
		remarks = append(remarks, refusals[l.status].text)
		if l.message != "" {
			remarks = append(remarks, report.Printable(l.message))
		}
	}
	row[9], row[10] = decimal(l.withoutCFI), strings.Join(remarks, "; ")
	return append(row, links[l.file])
}

// bars shows the gaps of all files by reason, the largest first.
func (s *Survey) bars() []page.Bar {
	list := slices.DeleteFunc(slices.Clone(s.Total.Gaps), func(g Gap) bool { return g.Ranges == 0 })
	slices.SortStableFunc(list, func(a, b Gap) int { return cmp.Compare(b.Bytes, a.Bytes) })
	var out []page.Bar
	for _, g := range list {
		out = append(out, page.Bar{
			Name: g.Reason, Text: g.Text, Loss: g.Loss, Stays: page.Part(g.Bytes, list[0].Bytes), Striped: page.Part(0, 1), Size: countOf(g.Bytes, "byte"),
			Of: fmt.Sprintf("in %s of %s, in %s", countOf(g.Ranges, "gap"), countOf(g.Functions, "function"), countOf(g.Files, "file")),
		})
	}
	return out
}

// section returns a table for the page.
func (t *table) section(id string, d *page.Data) section {
	out := page.Table{ID: id, Caption: t.Title, Noun: "rows", Short: true}
	reasons := translate.Reasons()
	for i, c := range t.Head {
		to := page.Column{Name: c.Name, Kind: "text"}
		switch {
		case c.Number && c.Name == "":
			to = page.Column{Name: "share", Kind: "number"}
		case c.Number:
			to.Kind = "number"
		case c.Name == "" && i == 0:
			to = page.Column{Name: "part", Kind: "part"}
		case c.Name == "": // of a reason's name
			to.Name = "meaning"
		case c.Name == "function":
			to.Kind = "name"
		case c.Name == "file":
			to.Kind = "file"
		case c.Name == "reason" && len(t.Rows) > 0 && t.Head[len(t.Head)-1].Name != "":
			isReason := func(r translate.Reason) bool { return r.Name() == t.Rows[0][i] }
			if slices.ContainsFunc(reasons, isReason) {
				to.Kind = "reason"
			}
		}
		out.Columns = append(out.Columns, to)
	}
	return section{d.Add(out, t.Rows), t.Note}
}

// countOf counts things.
func countOf[T int | uint64](n T, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return report.Digits(uint64(n)) + " " + what + "s"
}

func decimal(n uint64) string { return strconv.FormatUint(n, 10) }

// A Lossy file is one of which something is lost.
type Lossy struct {
	Path    string   // on the disk
	Package bool     // it is a package
	Names   []string // in the survey: its own, or those of members of the archive or package that it is
}

// Lossy returns the files of which something is lost, first those that have most of it, as far as the page lists them.
func (s *Survey) Lossy() []Lossy {
	var out []Lossy
	at := make(map[string]int)
	for i, l := range s.byLoss() {
		if lost, _ := l.lost(); lost == 0 || i == maxFiles {
			break
		}
		j, ok := at[l.disk]
		if !ok {
			j = len(out)
			at[l.disk] = j
			out = append(out, Lossy{Path: l.disk, Package: strings.HasPrefix(l.file[len(l.disk):], "!")})
		}
		out[j].Names = append(out[j].Names, l.file)
	}
	return out
}

package survey

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"

	"cfi2sframe/report"
)

// JSON writes the comparison as a JSON object, which against.schema.json describes.
func (c *Comparison) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(c)
}

// Text writes the comparison for people.
func (c *Comparison) Text(w io.Writer) error {
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "Comparison: %s ELF files, %s of them with CFI; before %s, %s of them with CFI\n",
		count(c.New.Files), count(c.New.WithCFI), count(c.Old.Files), count(c.Old.WithCFI))
	for _, s := range []struct{ when, only string }{{"Before: ", c.Old.Only}, {"Now: ", c.New.Only}} {
		if s.only != "" {
			fmt.Fprintf(out, "%s%s\n", s.when, s.only)
		}
	}
	if c.Old.Tool != c.New.Tool {
		fmt.Fprintf(out, "Before by %s, now by %s: figures of other versions may have another meaning.\n",
			report.Printable(c.Old.Tool), report.Printable(c.New.Tool))
	}
	for _, t := range c.tables() {
		if len(t.Rows) > 0 {
			t.write(out)
		}
	}
	return out.Flush() // which has the first error
}

// tables returns the comparison for people.
func (c *Comparison) tables() []table {
	old, now := &c.Old, &c.New
	all := table{Title: "All files", Head: columnsOf("", "#before", "#now", "#change")}
	for _, r := range []struct {
		name     string
		old, now uint64
	}{
		{"functions that CFI describes", old.Functions, now.Functions},
		{"bytes that CFI describes", old.Described, now.Described},
		{"of which format 2 loses", old.Lost, now.Lost},
		{"bytes without CFI", old.WithoutCFI, now.WithoutCFI},
	} {
		all.Rows = append(all.Rows, append([]string{r.name}, three(r.old, r.now)...))
	}
	formats := table{
		Title: "Coverage by format", Note: "Of what CFI describes, that of which a stack trace loses nothing.",
		Head: columnsOf("", "#functions before", "#now", "#", "#bytes before", "#now", "#"),
	}
	for _, f := range c.Formats {
		a, b := f.Old, f.New
		formats.Rows = append(formats.Rows, []string{
			fmt.Sprintf("V%d", f.Format),
			shareOf(a.Whole, a.Functions), shareOf(b.Whole, b.Functions), signed(a.Whole, b.Whole),
			shareOf(a.Covered, a.Described), shareOf(b.Covered, b.Described), signed(a.Covered, b.Covered),
		})
	}
	gaps := table{
		Title: "Left out in format 2, by reason",
		Head: columnsOf("reason", "#files before", "#now", "#change", "#functions before", "#now", "#change",
			"#bytes before", "#now", "#change", ""),
	}
	for _, g := range c.Gaps {
		row := append([]string{report.Printable(g.Reason)}, three(g.Old.Files, g.New.Files)...)
		row = append(append(row, three(g.Old.Functions, g.New.Functions)...), three(g.Old.Bytes, g.New.Bytes)...)
		gaps.Rows = append(gaps.Rows, append(row, report.Printable(g.Text)))
	}
	abis := table{
		Title: "By ABI",
		Head: columnsOf("", "#files before", "#now", "#change", "#described before", "#now", "#change",
			"#lost before", "#now", "#change"),
	}
	for _, a := range c.ABIs {
		row := append([]string{report.Printable(a.ABI)}, three(a.Old.Files, a.New.Files)...)
		abis.Rows = append(abis.Rows, append(append(row, three(a.Old.Described, a.New.Described)...), three(a.Old.Lost, a.New.Lost)...))
	}
	files := table{
		Title: "Files", Note: "Bytes are those that format 2 loses more or less; of files that are new or gone, those that it loses of them.",
		Head: columnsOf("", "#files", "#bytes"),
	}
	files.Rows = append(files.Rows, []string{"as before", count(c.Same), "0"})
	var lists []table
	for _, l := range []struct {
		name, title string
		*FileChanges
	}{
		{"better", "Files that are better", &c.Better}, {"worse", "Files that are worse", &c.Worse},
		{"new", "New files", &c.Appeared}, {"gone", "Files that are gone", &c.Gone},
	} {
		files.Rows = append(files.Rows, []string{l.name, count(l.Files), count(l.Bytes)})
		lists = append(lists, l.table(l.title))
	}
	return append([]table{all, formats, gaps, abis, files}, lists...)
}

// table returns the first of the files.
func (c *FileChanges) table(title string) table {
	t := table{Title: title, Head: columnsOf("#bytes", "reason", "file", "")}
	if n := c.Files - uint64(len(c.Worst)); n > 0 {
		t.Note = fmt.Sprintf("Those with most bytes; there are %s more.", count(n))
	}
	for _, f := range c.Worst {
		remark := ""
		switch {
		case f.From != "" && f.To != "":
			remark = string(f.From + " before, " + f.To + " now")
		case f.From+f.To != "":
			remark = string(f.From + f.To)
		}
		if f.Was != "" {
			if remark != "" {
				remark += "; "
			}
			remark += "was " + f.Was
		}
		t.Rows = append(t.Rows, []string{count(f.Bytes), report.Printable(f.Why), report.Printable(f.File), report.Printable(remark)})
	}
	return t
}

// three returns what was, what is, and what came or went.
func three(old, now uint64) []string {
	return []string{count(old), count(now), signed(old, now)}
}

// signed returns a difference.
func signed(old, now uint64) string {
	switch {
	case now > old:
		return "+" + count(now-old)
	case now < old:
		return "-" + count(old-now)
	}
	return "0"
}

package survive

import (
	"fmt"
	"slices"
	"strings"
)

const preface = `# Tools that change linked files

Written by ` + "`scripts/survive --tools --markdown FILE`" + `, which builds the subjects, converts them, and has every tool
change both the original and the converted file.

* **yes**: what the tool makes of the converted file runs and prints what the original does; ` + "`.sframe`" + ` is still
  allocated, in a read-only segment, exactly under ` + "`PT_GNU_SFRAME`" + `, and agrees with the call frame information at
  every pc; no other allocated section is changed but in the way that the tool changes it in the original.
* **neither**: the tool refuses or breaks the original, and the converted file, too.
* **no**: the original survives the tool, and the converted file does not.
* **known**: the same, and it is known why.
* **refused**: cfi2sframe does not convert this file.
* –: the tool is not for this file.

Debug link: ` + "`objcopy --only-keep-debug`, `strip --strip-debug`, `objcopy --add-gnu-debuglink`" + `.
`

// markdown returns the table as a document.
func (t *table) markdown() string {
	var b strings.Builder
	b.WriteString(preface)
	for i, f := range t.families {
		tools := f.tools
		if i == 0 {
			tools = append([]*tool{t.tools[0]}, tools...)
		}
		fmt.Fprintf(&b, "\n## %s\n\n", f.name)
		b.WriteString(grid(t.cells(tools)))
	}
	if notes := t.notes(); len(notes) > 0 {
		b.WriteString("\n## Notes\n\n")
		for _, n := range notes {
			fmt.Fprintf(&b, "* %s\n", n)
		}
	}
	return b.String()
}

// cells are the lines of a family's table, the first with the tools' names.
func (t *table) cells(tools []*tool) [][]string {
	head := []string{"subject"}
	for _, tool := range tools {
		head = append(head, tool.String())
	}
	lines := [][]string{head}
	for _, r := range t.rows {
		line := []string{r.subject.String()}
		for _, tool := range tools {
			line = append(line, r.cell(tool))
		}
		lines = append(lines, line)
	}
	return lines
}

var words = map[verdict]string{survives: "yes", neither: "neither", fails: "**no**", known: "known", unfit: "–"}

func (r *row) cell(t *tool) string {
	if i := slices.IndexFunc(r.results, func(res *result) bool { return res.tool == t }); i >= 0 {
		return words[r.results[i].verdict]
	}
	if r.refused() {
		return "refused"
	}
	return "missing"
}

// grid aligns the columns.
func grid(lines [][]string) string {
	width := make([]int, len(lines[0]))
	for _, line := range lines {
		for i, cell := range line {
			width[i] = max(width[i], len([]rune(cell)))
		}
	}
	var b strings.Builder
	for n, line := range lines {
		for i, cell := range line {
			fmt.Fprintf(&b, "| %-*s ", width[i], cell)
		}
		b.WriteString("|\n")
		for i := 0; n == 0 && i < len(line); i++ {
			fmt.Fprintf(&b, "| %s ", strings.Repeat("-", width[i]))
		}
		if n == 0 {
			b.WriteString("|\n")
		}
	}
	return b.String()
}

// notes explain what is not a plain yes. Tools that say the same of a subject share
// one.
func (t *table) notes() []string {
	var notes []string
	for _, m := range t.missing {
		notes = append(notes, m.Error())
	}
	for _, r := range t.rows {
		if r.err != nil {
			notes = append(notes, fmt.Sprintf("%v: %v", r.subject, firstLine(r.err.Error())))
		}
		var texts []string
		tools := make(map[string][]string)
		for _, res := range r.results {
			if text := res.remark(); text != "" {
				texts = append(texts, text)
				tools[text] = append(tools[text], res.tool.String())
			}
		}
		for _, text := range texts {
			if tools[text] != nil {
				notes = append(notes, fmt.Sprintf("%v, %s: %s", r.subject, strings.Join(tools[text], ", "), text))
				delete(tools, text)
			}
		}
	}
	return notes
}

// remark is what there is to say of a result besides its verdict.
func (r *result) remark() string {
	if r.original == nil && r.converted == nil {
		return r.note
	}
	return fmt.Sprintf("original %s; converted %s", outcome(r.original), outcome(r.converted))
}

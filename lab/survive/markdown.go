package survive

import (
	"fmt"
	"slices"
	"strings"

	"cfi2sframe/lab/kit"
)

const preface = `# Tools that change linked files

Written by ` + "`scripts/survive --tools --markdown FILE`" + `, which builds the subjects, converts them, and has every tool
change both the original and the converted file.

* **yes**: what the tool makes of the converted file runs and prints what the original does; ` + "`.sframe`" + ` is still
  allocated, in a read-only segment, exactly under ` + "`PT_GNU_SFRAME`" + `, and agrees with the call frame information at
  every pc; no other allocated section is changed but in the way that the tool changes it in the original.
* **neither**: the tool refuses or breaks the original, and the converted file, too.
* **no**: the original survives the tool, and the converted file does not.
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
		head := []string{"subject"}
		for _, tool := range tools {
			head = append(head, tool.String())
		}
		lines := kit.NewTable(&b, head...)
		for _, r := range t.rows {
			cells := []any{r.subject}
			for _, tool := range tools {
				cells = append(cells, r.cell(tool))
			}
			lines.Row(cells...)
		}
	}
	if notes := t.notes(); len(notes) > 0 {
		b.WriteString("\n## Notes\n\n")
		for _, n := range notes {
			fmt.Fprintf(&b, "* %s\n", n)
		}
	}
	return b.String()
}

var words = map[verdict]string{survives: "yes", neither: "neither", fails: "**no**", unfit: "–"}

func (r *row) cell(t *tool) string {
	if i := slices.IndexFunc(r.results, func(res *result) bool { return res.tool == t }); i >= 0 {
		return words[r.results[i].verdict]
	}
	if r.refused() {
		return "refused"
	}
	return "missing"
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

package survey

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strings"

	"cfi2sframe/convert"
	"cfi2sframe/internal/outfile"
	"cfi2sframe/internal/page"
	"cfi2sframe/report"
)

// ComparisonSchema is the version of the JSON form of a Comparison, which against.schema.json describes. It changes
// as Schema does.
const ComparisonSchema = 2

// A Comparison says what is gained and lost from one survey to a later one. Sizes are in bytes of code.
type Comparison struct {
	Schema int  `json:"schema"`
	Old    Side `json:"old"`
	New    Side `json:"new"`

	// Files of packages are the same ones in another version of the package.
	Same     uint64      `json:"same"` // files that lose as much as before
	Better   FileChanges `json:"better"`
	Worse    FileChanges `json:"worse"`
	Appeared FileChanges `json:"appeared"`
	Gone     FileChanges `json:"gone"`

	heading string
	tree    place // what becomes of the code; files that are paired are where they are now
}

// A Side is one of the surveys.
type Side struct {
	Tool  string `json:"tool"`
	Only  string `json:"only,omitzero"` // in words, which shards it is of, if not all
	Total Sums   `json:"total"`
	ABIs  []Part `json:"abis,omitempty"`
}

// FileChanges are files to which the same has happened.
type FileChanges struct {
	Files uint64       `json:"files"`
	Bytes uint64       `json:"bytes"`           // of all of them
	Worst []FileChange `json:"worst,omitempty"` // by bytes, the first ones
}

// A FileChange is a file that has changed, appeared or gone.
type FileChange struct {
	File  string `json:"file"`
	Was   string `json:"was,omitzero"` // its name before, if that was another
	Bytes uint64 `json:"bytes"`        // change of the bytes lost; for new and removed files, the bytes lost
	// its status before, if that has changed: then all described bytes count
	From convert.Reason `json:"from,omitzero"`
	To   convert.Reason `json:"to,omitzero"`     // its status now, if that has changed
	Why  string         `json:"reason,omitzero"` // of most of that
}

// Against compares the survey with an earlier one in a JSON file. That can be of another version of cfi2sframe, if its
// schema is the same.
func (s *Survey) Against(name string) (*Comparison, error) {
	old, err := read(name)
	switch {
	case err != nil:
	case old.Settings != s.Settings:
		err = fmt.Errorf("made %s, but what is compared with it is made %s", old.Settings, s.Settings)
	case uint64(len(old.Files)) != old.Total.Files:
		err = fmt.Errorf("damaged: %d files, and a total of %d", len(old.Files), old.Total.Files)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", report.Printable(name), outfile.Plain(err))
	}
	return compare(old, s), nil
}

// side returns what a comparison says of a survey.
func (s *Survey) side() Side { return Side{s.Tool, s.Only(), s.Total, s.ABIs} }

// losses returns which reasons lose something. Those of another version can be unknown here.
func (s *Survey) losses() map[string]bool {
	out := make(map[string]bool)
	for _, g := range s.Total.Gaps {
		out[g.Reason] = g.Loss
	}
	return out
}

// packageNames are name_VERSION_arch.deb and name-VERSION-RELEASE.arch.rpm, with groups for name and arch.
var packageNames = []*regexp.Regexp{
	regexp.MustCompile(`(?s)^(?:.*/)?([^/_]*)_[^/_]*_([^/_]*)\.deb$`),
	regexp.MustCompile(`(?s)^(?:.*/)?([^/]*)-[^/-]*-[^/-]*\.([^/.]*)\.rpm$`),
}

// identity is equal for a file of a package and the same file in other versions of the package, wherever they are.
func identity(r *Record) string {
	pkg, member, ok := strings.Cut(r.File, "!")
	for _, name := range packageNames {
		if m := name.FindStringSubmatch(pkg); ok && m != nil {
			return strings.Join([]string{path.Ext(pkg), m[1], m[2], member}, "\x00")
		}
	}
	return r.File
}

// compare compares two surveys.
func compare(old, now *Survey) *Comparison {
	c := &Comparison{Schema: ComparisonSchema, Old: old.side(), New: now.side(), heading: now.heading(),
		tree: place{Compared: true, Open: true}}
	oldLosses, losses := old.losses(), now.losses()
	was, is := old.Files, now.Files
	// Files of the same name belong together, and of the others those of the same identity, in the order of names.
	for _, key := range []func(r *Record) string{func(r *Record) string { return r.File }, identity} {
		var pairs [][2]*Record
		pairs, was, is = pair(was, is, key)
		for _, p := range pairs {
			c.tree.add(p[1], p[1].split(), p[0].split())
			switch f, by := change(p[0], p[1], oldLosses, losses); {
			case by < 0:
				c.Better.add(f)
			case by > 0:
				c.Worse.add(f)
			default:
				c.Same++
			}
		}
	}
	for _, r := range is {
		n, reason := lost(r.Gaps, losses)
		c.tree.add(r, r.split(), page.Split{})
		c.Appeared.add(FileChange{File: r.File, Bytes: n, To: r.Status, Why: reason})
	}
	for _, r := range was {
		n, reason := lost(r.Gaps, oldLosses)
		c.tree.add(r, page.Split{}, r.split())
		c.Gone.add(FileChange{File: r.File, Bytes: n, From: r.Status, Why: reason})
	}
	return c
}

func (c *FileChanges) add(f FileChange) {
	c.Files++
	c.Bytes += f.Bytes
	addWorst(&c.Worst, f, func(a, b FileChange) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.File, b.File), cmp.Compare(a.Was, b.Was))
	})
}

// pair finds the files that have the same key in both lists, and returns the others as well.
func pair(was, is []*Record, key func(r *Record) string) (pairs [][2]*Record, left, right []*Record) {
	before := make(map[string][]*Record, len(was))
	for _, r := range was {
		before[key(r)] = append(before[key(r)], r)
	}
	paired := make(map[*Record]bool)
	for _, r := range is {
		k := key(r)
		if list := before[k]; len(list) > 0 {
			pairs = append(pairs, [2]*Record{list[0], r})
			paired[list[0]], before[k] = true, list[1:]
		} else {
			right = append(right, r)
		}
	}
	left = slices.DeleteFunc(slices.Clone(was), func(r *Record) bool { return paired[r] })
	return pairs, left, right
}

// change says what has become of a file, and in which direction: less than 0 is better.
func change(was, is *Record, oldLosses, losses map[string]bool) (FileChange, int) {
	before, _ := lost(was.Gaps, oldLosses)
	after, _ := lost(is.Gaps, losses)
	f := FileChange{File: is.File, Bytes: max(before, after) - min(before, after)}
	if was.File != is.File {
		f.Was = was.File
	}
	by := cmp.Compare(after, before)
	switch {
	case by < 0:
		_, f.Why = lost(without(was.Gaps, is.Gaps, losses), oldLosses)
	case by > 0:
		_, f.Why = lost(without(is.Gaps, was.Gaps, oldLosses), losses)
	}
	if was.Status != is.Status {
		f.From, f.To = cmp.Or(was.Status, withCFI), cmp.Or(is.Status, withCFI)
		switch {
		case is.Status == "":
			f.Bytes, f.Why, by = is.Described, "", -1
		case was.Status == "":
			f.Bytes, f.Why, by = was.Described, "", 1
		}
	}
	return f, by
}

// without returns gaps less those of others that lose something.
func without(gaps, others []Gap, losses map[string]bool) []Gap {
	out := slices.Clone(gaps)
	for i := range out {
		g := &out[i]
		for _, h := range others {
			if h.Reason == g.Reason && losses[h.Reason] {
				g.Bytes -= min(g.Bytes, h.Bytes)
			}
		}
	}
	return out
}

// ComparisonForms are the names of the forms that a Comparison has.
var ComparisonForms = []string{"text", "json", "html"}

// Write writes the comparison in the form of the given name: for people, or as against.schema.json describes.
func (c *Comparison) Write(w io.Writer, form string) error {
	switch form {
	case "text":
		return c.Text(w)
	case "html":
		return c.HTML(w, "")
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(c)
}

// Text writes the comparison for people.
func (c *Comparison) Text(w io.Writer) error {
	old, now := &c.Old, &c.New
	first := fmt.Sprintf("Comparison: %s ELF files, %s of them with CFI; before %s, %s of them with CFI",
		count(now.Total.Files), count(now.Total.WithCFI), count(old.Total.Files), count(old.Total.WithCFI))
	return writeText(w, append([]string{first}, c.notes()...), c.tables())
}

// notes says which of the surveys are not whole, or not comparable.
func (c *Comparison) notes() (lines []string) {
	old, now := &c.Old, &c.New
	if old.Only != "" {
		lines = append(lines, "Before: "+old.Only)
	}
	if now.Only != "" {
		lines = append(lines, "Now: "+now.Only)
	}
	if old.Tool != now.Tool {
		lines = append(lines, fmt.Sprintf(
			"Before by %s, now by %s: figures of other versions may have another meaning.",
			report.Printable(old.Tool), report.Printable(now.Tool)))
	}
	return lines
}

// tables returns the comparison for people.
func (c *Comparison) tables() []table {
	old, now := &c.Old.Total, &c.New.Total
	all := newTable("All files", "", "part", "#before", "#now", "#change")
	all.add(changeRow("bytes of code", old.Code, now.Code)...)
	all.add(changeRow("functions that CFI describes", old.Functions, now.Functions)...)
	all.add(changeRow("bytes that CFI describes", old.Described, now.Described)...)
	all.add(changeRow("lost by format 2", old.lost(), now.lost())...)
	all.add(changeRow("bytes without CFI", old.WithoutCFI, now.WithoutCFI)...)

	formats := newTable("Coverage by format", "Code with complete stack traces, of what CFI describes.",
		"part", "#functions before", "#now", "#", "#bytes before", "#now", "#")
	for _, v := range Formats {
		a, b := old.format(v), now.format(v)
		formats.add(fmt.Sprintf("V%d", v),
			shareOf(a.Whole, a.Functions), shareOf(b.Whole, b.Functions), signed(a.Whole, b.Whole),
			a.share(), b.share(), signed(a.Covered+a.Outermost, b.Covered+b.Outermost))
	}

	parts := newTable("Unwindable code by format", ofAllCode,
		"part", "#bytes before", "#now", "#change", "#share before", "#now")
	for _, v := range Formats {
		a, b := old.format(v).Unwindable, now.format(v).Unwindable
		parts.add(append(changeRow(fmt.Sprintf("V%d", v), a, b), shareOf(a, old.Code), shareOf(b, now.Code))...)
	}

	gaps := newTable("Left out in format 2, by reason", "",
		"reason", "#files before", "#now", "#change", "#functions before", "#now", "#change",
		"#bytes before", "#now", "#change", "meaning")
	for _, p := range both(now.Gaps, old.Gaps, func(g Gap) string { return g.Reason }) {
		is, was := p[0], p[1]
		g := cmp.Or(is, was)
		row := changeRow(g.Reason, was.Files, is.Files, was.Functions, is.Functions, was.Bytes, is.Bytes)
		gaps.add(append(row, g.Text)...)
	}

	abis := newTable("By ABI", "",
		"part", "#files before", "#now", "#change", "#described before", "#now", "#change",
		"#lost before", "#now", "#change")
	for _, p := range both(c.Old.ABIs, c.New.ABIs, func(p Part) string { return p.Name }) {
		was, is := &p[0], &p[1]
		abi := cmp.Or(is.Name, was.Name)
		abis.add(changeRow(abi, was.Files, is.Files, was.Described, is.Described, was.lost(), is.lost())...)
	}
	slices.SortFunc(abis.Rows, slices.Compare)

	files := newTable("Files",
		"Bytes are those that format 2 loses more or less; of files that are new or gone, those that it loses of them.",
		"part", "#files", "#bytes")
	files.add("as before", count(c.Same), "0")
	out := []table{parts, all, formats, gaps, abis, files}
	for _, f := range []struct {
		name, title string
		*FileChanges
	}{
		{"better", "Files that are better", &c.Better}, {"worse", "Files that are worse", &c.Worse},
		{"new", "New files", &c.Appeared}, {"gone", "Files that are gone", &c.Gone},
	} {
		out[5].add(f.name, count(f.Files), count(f.Bytes))
		out = append(out, f.table(f.title))
	}
	return out
}

// both returns the elements of two lists with the same key, in the order of a and then of b.
func both[T any](a, b []T, key func(T) string) (out [][2]T) {
	at := make(map[string]int) // indexes in out
	for side, list := range [][]T{a, b} {
		for _, v := range list {
			i, ok := at[key(v)]
			if !ok {
				i = len(out)
				at[key(v)] = i
				out = append(out, [2]T{})
			}
			out[i][side] = v
		}
	}
	return out
}

// table returns the first of the files.
func (c *FileChanges) table(title string) table {
	t := newTable(title, "", "#bytes", "reason", "file", "")
	if n := c.Files - uint64(len(c.Worst)); n > 0 {
		t.Note = fmt.Sprintf("Those with most bytes; there are %s more.", count(n))
	}
	for _, f := range c.Worst {
		var remarks []string
		switch {
		case f.From != "" && f.To != "":
			remarks = append(remarks, string(f.From+" before, "+f.To+" now"))
		case f.From+f.To != "":
			remarks = append(remarks, string(f.From+f.To))
		}
		if f.Was != "" {
			remarks = append(remarks, "was "+f.Was)
		}
		t.add(count(f.Bytes), f.Why, f.File, strings.Join(remarks, "; "))
	}
	return t
}

// changeRow returns a row with what was, what is, and what came or went, for each two numbers.
func changeRow(name string, numbers ...uint64) []string {
	row := []string{name}
	for i := 0; i < len(numbers); i += 2 {
		row = append(row, count(numbers[i]), count(numbers[i+1]), signed(numbers[i], numbers[i+1]))
	}
	return row
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

package debian

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"cfi2sframe/lab/kit"
	"cfi2sframe/report"
	"cfi2sframe/translate"
)

// tables are those of docs/debian.md, by the names that they have there.
var tables = []struct {
	name  string
	write func(io.Writer, []*system)
}{
	{"packages", packages}, {"coverage", coverage}, {"languages", languages}, {"reasons", reasons}, {"causes", causes},
	{"projects", projects}, {"fixes", fixesTable}, {"sizes", sizes}, {"refusals", refusals}, {"own", owns},
}

// update writes the tables into a document, each between a comment with its name and the comment "end".
func update(results, doc string) error {
	all, err := loadAll(results)
	if err != nil {
		return err
	}
	b, err := os.ReadFile(doc)
	if err != nil {
		return err
	}
	text := string(b)
	for _, t := range tables {
		begin := fmt.Sprintf("<!-- %s -->\n", t.name)
		before, rest, found := strings.Cut(text, begin)
		_, after, ended := strings.Cut(rest, "<!-- end -->\n")
		if !found || !ended {
			return fmt.Errorf("%s: no %sand <!-- end --> after it", doc, begin)
		}
		var table bytes.Buffer
		t.write(&table, all)
		text = before + begin + table.String() + "<!-- end -->\n" + after
	}
	return os.WriteFile(doc, []byte(text), 0o644)
}

func digits[T int | int64 | uint64](n T) string { return report.Digits(uint64(n)) }

// share is a part of a whole in percent.
func share(n, of uint64) string {
	if of == 0 {
		return "-"
	}
	return report.Share(n, of)
}

// numbers writes a row of numbers.
func numbers(t kit.Table, name string, list []uint64) {
	cells := []any{name}
	for _, n := range list {
		cells = append(cells, digits(n))
	}
	t.Row(cells...)
}

// packages also says what the checks found. The survey must have covered the same bytes as the conversion.
func packages(w io.Writer, all []*system) {
	t := kit.NewTable(w, "system", ">packages", ">with ELF files", ">bytes of .deb", ">ELF files", ">results", ">FDEs",
		">rows", ">wrong")
	var total [8]uint64
	for _, s := range all {
		var n [8]uint64
		n[0] = uint64(len(s.packages))
		for _, p := range s.packages {
			n[1] += uint64(min(p.ELF, 1))
			n[2] += uint64(p.Size)
			n[3] += uint64(p.ELF)
		}
		for _, f := range s.files {
			for _, version := range versions {
				if !f.converted(version) {
					continue
				}
				o := f.result.Outcomes[version]
				n[4]++
				n[5] += o.FDEs
				n[6] += o.FREs
				covered := f.number(fmt.Sprintf("v%d_covered", version))
				if o.Check != "" || f.number("described") != o.Described || covered != o.Covered {
					n[7]++
				}
			}
		}
		numbers(t, s.name, n[:])
		for i := range n {
			total[i] += n[i]
		}
	}
	numbers(t, "all", total[:])
}

// surveyed has sums of the survey.
type surveyed struct {
	files, withCFI     int
	described, without uint64
	traced             [4]uint64 // bytes of which a stack trace loses nothing, by version
}

func (t *surveyed) add(f *file) {
	t.files++
	t.without += f.number("without_cfi")
	if f.row["status"] != "cfi" {
		return
	}
	t.withCFI++
	t.described += f.number("described")
	for _, v := range versions {
		t.traced[v] += f.number(fmt.Sprintf("v%d_covered", v)) + f.number(fmt.Sprintf("v%d_outermost", v))
	}
}

func surveyTable(w io.Writer, what string) (row func(name string, t *surveyed)) {
	table := kit.NewTable(w, what, ">ELF files", ">with CFI", ">bytes described", ">V2", ">V3", ">bytes without CFI")
	return func(name string, t *surveyed) {
		table.Row(name, digits(t.files), digits(t.withCFI), digits(t.described), share(t.traced[2], t.described),
			share(t.traced[3], t.described), digits(t.without))
	}
}

func coverage(w io.Writer, all []*system) {
	row := surveyTable(w, "system")
	var total surveyed
	for _, s := range all {
		var one surveyed
		for _, f := range s.files {
			one.add(f)
			total.add(f)
		}
		row(s.name, &one)
	}
	row("all", &total)
}

func languages(w io.Writer, all []*system) {
	row := surveyTable(w, "language")
	by := make(map[string]*surveyed)
	for _, s := range all {
		for _, f := range s.files {
			key := f.row["languages"]
			if by[key] == nil {
				by[key] = new(surveyed)
			}
			by[key].add(f)
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(by), func(a, b string) int {
		return cmp.Or(cmp.Compare(by[b].files, by[a].files), cmp.Compare(a, b))
	}) {
		row(key, by[key])
	}
}

// A group has sums of losses that have something in common.
type group struct {
	key              [2]string
	files, functions int
	v2, v3           uint64

	last *file // that was counted
}

func (g *group) add(f *file, l *loss) {
	if g.last != f {
		g.files++
		g.last = f
	}
	g.functions += l.Functions
	g.v2 += l.V2
	g.v3 += l.V3
}

// groups sums up losses by a key, the largest sums first.
func groups(all []*system, key func(f *file, l *loss) [2]string) []*group {
	by := make(map[[2]string]*group)
	for _, s := range all {
		for _, f := range s.files {
			for i := range f.result.Losses {
				l := &f.result.Losses[i]
				k := key(f, l)
				if by[k] == nil {
					by[k] = &group{key: k}
				}
				by[k].add(f, l)
			}
		}
	}
	return slices.SortedFunc(maps.Values(by), func(a, b *group) int {
		return cmp.Or(cmp.Compare(b.v2+b.v3, a.v2+a.v3), cmp.Compare(a.key[0]+a.key[1], b.key[0]+b.key[1]))
	})
}

// longest is the length of lists.
const longest = 25

func reasons(w io.Writer, all []*system) {
	words := make(map[string]string)
	for _, r := range translate.Reasons() {
		words[r.Name()] = r.String()
	}
	t := kit.NewTable(w, "reason", "", ">files", ">bytes in V2", ">in V3")
	for _, g := range groups(all, func(_ *file, l *loss) [2]string { return [2]string{l.Reason} }) {
		t.Row(g.key[0], words[g.key[0]], digits(g.files), digits(g.v2), digits(g.v3))
	}
}

func causes(w io.Writer, all []*system) {
	t := kit.NewTable(w, "reason", "rule", ">files", ">functions", ">bytes in V2", ">in V3")
	list := groups(all, func(_ *file, l *loss) [2]string { return [2]string{l.Reason, l.Rule} })
	for _, g := range list[:min(len(list), longest)] {
		rule := g.key[1]
		if rule != "" {
			rule = "`" + strings.ReplaceAll(rule, "|", `\|`) + "`"
		}
		t.Row(g.key[0], rule, digits(g.files), digits(g.functions), digits(g.v2), digits(g.v3))
	}
}

func projects(w io.Writer, all []*system) {
	list := groups(all, func(f *file, _ *loss) [2]string { return [2]string{f.pkg.Source} })
	var v2, v3 uint64
	for _, g := range list {
		v2, v3 = v2+g.v2, v3+g.v3
	}
	t := kit.NewTable(w, "source package", ">bytes in V2", ">in V3", ">of all that V2 loses", ">V3")
	for _, g := range list[:min(len(list), longest)] {
		t.Row(g.key[0], digits(g.v2), digits(g.v3), share(g.v2, v2), share(g.v3, v3))
	}
}

// sizes compares sections.
func sizes(w io.Writer, all []*system) {
	t := kit.NewTable(w, "system", ">files", ">.eh_frame", ">.eh_frame_hdr", ">.sframe V2", ">of both", ">.sframe V3",
		">of both")
	for _, s := range all {
		var frame, hdr, v2, v3 uint64
		files := 0
		for _, f := range s.files {
			a, b := f.result.Outcomes[2], f.result.Outcomes[3]
			if !f.converted(2) || !f.converted(3) || a.EhFrame == 0 { // its CFI is elsewhere
				continue
			}
			files++
			frame, hdr, v2, v3 = frame+a.EhFrame, hdr+a.EhHdr, v2+a.SFrame, v3+b.SFrame
		}
		t.Row(s.name, digits(files), digits(frame), digits(hdr), digits(v2), share(v2, frame+hdr), digits(v3),
			share(v3, frame+hdr))
	}
}

// refusals counts the files that are not converted, by reason.
func refusals(w io.Writer, all []*system) {
	type sum struct {
		files     [4]int // by version
		described uint64
	}
	by := make(map[string]*sum)
	for _, s := range all {
		for _, f := range s.files {
			for _, version := range versions {
				if f.converted(version) {
					continue
				}
				o := f.result.Outcomes[version]
				why := cmp.Or(o.Kept, "refused: "+kind(o.Error))
				if by[why] == nil {
					by[why] = new(sum)
				}
				by[why].files[version]++
				if version == 2 {
					by[why].described += f.number("described")
				}
			}
		}
	}
	t := kit.NewTable(w, "why", ">files in V2", ">in V3", ">bytes of code that CFI describes")
	for _, why := range slices.Sorted(maps.Keys(by)) {
		t.Row(why, digits(by[why].files[2]), digits(by[why].files[3]), digits(by[why].described))
	}
}

// owns sums up the .sframe that came with files.
func owns(w io.Writer, all []*system) {
	t := kit.NewTable(w, "system", "version", ">files", ">bytes of code covered", ">of", ">files with mismatches")
	for _, s := range all {
		for version := 1; version <= 3; version++ {
			var files, wrong int
			var covered, described uint64
			for _, f := range s.files {
				own := f.result.Own
				if own == nil || own.Format != version {
					continue
				}
				files++
				covered += own.Covered
				described += own.Described
				wrong += min(len(own.Mismatches), 1)
			}
			if files > 0 {
				t.Row(s.name, fmt.Sprint("V", version), digits(files), digits(covered), digits(described), digits(wrong))
			}
		}
	}
}

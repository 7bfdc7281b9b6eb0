package debian

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"cfi2sframe/report"
)

// owns sums up the .sframe that came with files.
func owns(all []*system) [][]string {
	lines := [][]string{{"system", "version", "#files", "#packages", "#bytes of code covered", "#of", "#files with mismatches", "the first"}}
	for _, s := range all {
		by := make(map[string]map[string]bool) // packages, by version
		sums := make(map[string]*own)
		files, wrong := make(map[string]int), make(map[string]int)
		for i := range s.files {
			f := &s.files[i]
			if f.res == nil || f.res.Own == nil {
				continue
			}
			o := f.res.Own
			v := fmt.Sprintf("V%d", o.Version)
			if by[v] == nil {
				by[v], sums[v] = make(map[string]bool), new(own)
			}
			by[v][f.pkg.Folder] = true
			files[v]++
			sums[v].Covered += o.Covered
			sums[v].Described += o.Described
			if o.First != "" {
				if wrong[v]++; wrong[v] == 1 {
					sums[v].First = path.Join(f.pkg.Folder, f.name) + ": " + o.First
				}
			}
		}
		for _, v := range slices.Sorted(maps.Keys(by)) {
			t := sums[v]
			lines = append(lines, []string{
				s.name, v, digits(files[v]), digits(len(by[v])), digits(t.Covered), digits(t.Described), digits(wrong[v]), report.Printable(t.First),
			})
		}
	}
	return lines
}

// refusals counts the files that stay as they are, by reason.
func refusals(all []*system) [][]string {
	lines := [][]string{{"why", "format"}}
	for _, s := range all {
		lines[0] = append(lines[0], "#"+s.name)
	}
	lines[0] = append(lines[0], "#bytes of code that CFI describes")
	by := make(map[[2]string]map[string]int)
	described := make(map[[2]string]uint64)
	for _, s := range all {
		for i := range s.files {
			f := &s.files[i]
			for _, format := range formats {
				o := f.outcome(format)
				if o == nil || o.done() {
					continue
				}
				why := cmp.Or(o.Kept, "refused: "+kind(o.Error))
				if o.Error == "" {
					why = "kept: " + why
				}
				key := [2]string{why, fmt.Sprintf("V%d", format)}
				if by[key] == nil {
					by[key] = make(map[string]int)
				}
				by[key][s.name]++
				described[key] += f.number("described")
			}
		}
	}
	keys := slices.SortedFunc(maps.Keys(by), func(a, b [2]string) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
	for _, key := range keys {
		line := []string{key[0], key[1]}
		// One line where it is the same in both.
		if other := [2]string{key[0], "V3"}; key[1] == "V2" && maps.Equal(by[key], by[other]) && described[key] == described[other] {
			line[1] = "both"
		} else if other[1] = "V2"; key[1] == "V3" && maps.Equal(by[key], by[other]) && described[key] == described[other] {
			continue
		}
		for _, s := range all {
			line = append(line, digits(by[key][s.name]))
		}
		lines = append(lines, append(line, digits(described[key])))
	}
	return lines
}

// kind is an error without what is different in each file.
func kind(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r >= '0' && r <= '9' }), "N")
}

// examples has what is said of some files that are refused, or kept for want of room, one for each package.
func examples(all []*system) [][]string {
	lines := [][]string{{"file", "format", "why"}}
	seen := make(map[string]int)
	for _, s := range all {
		for i := range s.files {
			f := &s.files[i]
			for _, format := range formats {
				o := f.outcome(format)
				if o == nil || o.done() || o.Error == "" && !slices.Contains([]string{"no-room", "no-sframe", "no-rows"}, o.Kept) {
					continue
				}
				if key := f.pkg.Source + kind(cmp.Or(o.Error, o.Why)); seen[key] < 1 {
					seen[key]++
					lines = append(lines, []string{code(path.Join(s.name, f.pkg.Folder, f.name)), fmt.Sprintf("V%d", format), report.Printable(cmp.Or(o.Error, o.Why))})
				}
			}
		}
	}
	return lines
}

// malformed lists files of which a part of the CFI cannot be read.
func malformed(all []*system) [][]string {
	lines := [][]string{{"file", "#records", "the first"}}
	for _, s := range all {
		for i := range s.files {
			f := &s.files[i]
			if f.row["status"] == "damaged" || f.row["status"] == "unreadable" {
				lines = append(lines, []string{code(path.Join(s.name, f.pkg.Folder, f.name)), "all", report.Printable(f.row["error"])})
			} else if o := f.outcome(2); o != nil && o.Broken > 0 {
				first := ""
				if len(o.Malformed) > 0 {
					first = o.Malformed[0]
				}
				lines = append(lines, []string{code(path.Join(s.name, f.pkg.Folder, f.name)), digits(o.Broken), report.Printable(first)})
			}
		}
	}
	return lines
}

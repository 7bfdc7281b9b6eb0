package debian

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"cfi2sframe/translate"
)

func packages(all []*system) [][]string {
	lines := [][]string{{"system", "#packages", "#with ELF files", "#of source packages", "#bytes of .deb", "#files", "#ELF files", "#archives left out"}}
	var sum pkg
	var n, withELF int
	sources := make(map[string]bool)
	for _, s := range all {
		var one pkg
		own := make(map[string]bool)
		some := 0
		for _, p := range s.packages {
			one.Size += p.Size
			one.Files += p.Files
			one.ELF += p.ELF
			one.Archives += p.Archives
			if p.ELF > 0 {
				some++
				own[p.Source], sources[p.Source] = true, true
			}
		}
		lines = append(lines, []string{s.name, digits(len(s.packages)), digits(some), digits(len(own)), digits(one.Size), digits(one.Files), digits(one.ELF), digits(one.Archives)})
		n, withELF = n+len(s.packages), withELF+some
		sum.Size, sum.Files, sum.ELF, sum.Archives = sum.Size+one.Size, sum.Files+one.Files, sum.ELF+one.ELF, sum.Archives+one.Archives
	}
	return append(lines, []string{"all", digits(n), digits(withELF), digits(len(sources)), digits(sum.Size), digits(sum.Files), digits(sum.ELF), digits(sum.Archives)})
}

// checks says how many results there are, and what was found wrong with them. The survey, which writes nothing, has to have covered the
// same bytes.
func checks(all []*system) [][]string {
	lines := [][]string{{"system", "format", "#converted", "#verified, read again, as surveyed", "#bytes of code covered", "#FDEs", "#rows", "#wrong"}}
	for _, format := range formats {
		var total [5]uint64
		wrong := 0
		for _, s := range all {
			var sum [5]uint64
			bad := 0
			for i := range s.files {
				f := &s.files[i]
				o := f.outcome(format)
				if o == nil || !o.done() {
					continue
				}
				sum[0]++
				column := fmt.Sprintf("v%d_covered", format)
				if o.Check != "" || f.number("described") != o.Described || f.number(column) != o.Covered {
					bad++
				} else {
					sum[1]++
				}
				sum[2] += o.Covered
				sum[3] += uint64(o.FDEs)
				sum[4] += uint64(o.FREs)
			}
			lines = append(lines, append(append([]string{s.name, fmt.Sprintf("V%d", format)}, each(sum[:])...), digits(bad)))
			for i, n := range sum {
				total[i] += n
			}
			wrong += bad
		}
		lines = append(lines, append(append([]string{"all", fmt.Sprintf("V%d", format)}, each(total[:])...), digits(wrong)))
	}
	return lines
}

func each(list []uint64) []string {
	var out []string
	for _, n := range list {
		out = append(out, digits(n))
	}
	return out
}

// surveyed has sums of what the survey says of some files.
type surveyed struct {
	files, withCFI, functions, described, without, lost2, lost3, topmost uint64
	whole, covered, outermost, of, functionsOf                           [4]uint64 // by version
}

func (t *surveyed) add(f *file) {
	t.files++
	t.without += f.number("without_cfi")
	if f.row["status"] != "cfi" {
		return
	}
	t.withCFI++
	t.functions += f.number("functions")
	t.described += f.number("described")
	t.lost2 += f.number("lost")
	for v := 1; v <= 3; v++ {
		column := func(name string) string { return fmt.Sprintf("v%d_%s", v, name) }
		if f.row[column("covered")] == "" {
			continue // the version is not for the ABI
		}
		t.whole[v] += f.number(column("functions_covered"))
		t.covered[v] += f.number(column("covered"))
		t.outermost[v] += f.number(column("outermost"))
		t.of[v] += f.number("described")
		t.functionsOf[v] += f.number("functions")
	}
	t.topmost += f.number("v3_topmost")
	t.lost3 += f.number("described") - f.number("v3_covered") - f.number("v3_outermost")
}

func (t *surveyed) part(v int) string { return share(t.covered[v]+t.outermost[v], t.of[v]) }

func coverage(all []*system) [][]string {
	lines := [][]string{{
		"system", "ABI", "#ELF files", "#with CFI", "#functions", "#bytes described", "#V1", "#V2", "#V3",
		"#of that in topmost frames only", "#functions whole in V2", "#in V3", "#bytes without CFI",
	}}
	line := func(name, abi string, t *surveyed) []string {
		return []string{
			name, abi, digits(t.files), digits(t.withCFI), digits(t.functions), digits(t.described), t.part(1), t.part(2), t.part(3), share(t.topmost, t.of[3]),
			share(t.whole[2], t.functionsOf[2]), share(t.whole[3], t.functionsOf[3]), digits(t.without),
		}
	}
	var total surveyed
	for _, s := range all {
		by := make(map[string]*surveyed)
		for i := range s.files {
			f := &s.files[i]
			abi := cmp.Or(f.row["abi"], "none")
			if by[abi] == nil {
				by[abi] = new(surveyed)
			}
			by[abi].add(f)
			total.add(f)
		}
		for _, abi := range slices.Sorted(maps.Keys(by)) {
			lines = append(lines, line(s.name, abi, by[abi]))
		}
	}
	return append(lines, line("all", "", &total))
}

// origins sums up by language or by compiler.
func origins(all []*system, what, column string) [][]string {
	lines := [][]string{{what, "#ELF files", "#with CFI", "#bytes described", "#V2", "#V3", "#lost in V2", "#lost in V3", "#bytes without CFI"}}
	by := make(map[string]*surveyed)
	for _, s := range all {
		for i := range s.files {
			f := &s.files[i]
			key := f.row[column]
			if key == "" {
				continue
			}
			if by[key] == nil {
				by[key] = new(surveyed)
			}
			by[key].add(f)
		}
	}
	keys := slices.SortedFunc(maps.Keys(by), func(a, b string) int {
		return cmp.Or(cmp.Compare(by[b].files, by[a].files), cmp.Compare(a, b))
	})
	for _, key := range keys {
		t := by[key]
		lines = append(lines, []string{
			key, digits(t.files), digits(t.withCFI), digits(t.described), t.part(2), t.part(3), digits(t.lost2), digits(t.lost3), digits(t.without),
		})
	}
	return lines
}

// column is what a system's figures are added to in tables that are wide anyhow.
func (s *system) column() string {
	if strings.HasSuffix(s.name, "-amd64") {
		return s.name
	}
	_, arch, _ := strings.Cut(s.name, "-")
	return arch
}

// columnsOf returns the columns of some systems, in their order.
func columnsOf(all []*system) []string {
	var out []string
	for _, s := range all {
		if !slices.Contains(out, s.column()) {
			out = append(out, s.column())
		}
	}
	return out
}

func reasons(all []*system) [][]string {
	lines := [][]string{{"reason", ""}}
	for _, c := range columnsOf(all) {
		lines[0] = append(lines[0], "#"+c+": files", "#bytes in V2", "#bytes in V3")
	}
	for _, r := range translate.Reasons() {
		line := []string{r.Name(), r.String()}
		any := false
		for _, c := range columnsOf(all) {
			files := 0
			var lost [4]uint64
			for _, s := range all {
				for i := range s.files {
					some := false
					for _, format := range formats {
						if o := s.files[i].outcome(format); o != nil && s.column() == c && o.Lost[r.Name()] > 0 {
							lost[format] += o.Lost[r.Name()]
							some = true
						}
					}
					if some {
						files++
					}
				}
			}
			any = any || files > 0
			line = append(line, digits(files), digits(lost[2]), digits(lost[3]))
		}
		if any {
			lines = append(lines, line)
		}
	}
	return lines
}

// gains says what V3 has that V2 has not.
func gains(all []*system) [][]string {
	lines := [][]string{{
		"system", "#files with loss in V2", "#in V3", "#bytes lost in V2", "#in V3", "#gained", "#functions lost in part in V2", "#in V3",
	}}
	for _, s := range all {
		var files, bytes, parts [4]uint64
		for i := range s.files {
			f := &s.files[i]
			for _, format := range formats {
				if n := f.lost(format); n > 0 {
					files[format]++
					bytes[format] += n
				}
				if o := f.outcome(format); o != nil && f.row["status"] == "cfi" {
					parts[format] += f.number("functions") - f.number(fmt.Sprintf("v%d_functions_covered", format))
				}
			}
		}
		lines = append(lines, []string{
			s.name, digits(files[2]), digits(files[3]), digits(bytes[2]), digits(bytes[3]), share(bytes[2]-min(bytes[2], bytes[3]), bytes[2]),
			digits(parts[2]), digits(parts[3]),
		})
	}
	return lines
}

// without sums up code without CFI by source package.
func without(all []*system) [][]string {
	type sums struct {
		by    map[string]uint64
		files int
		total uint64
		langs map[string]uint64
	}
	by := make(map[string]*sums)
	var total uint64
	for _, s := range all {
		for i := range s.files {
			f := &s.files[i]
			n := f.number("without_cfi")
			if n == 0 {
				continue
			}
			t := by[f.pkg.Source]
			if t == nil {
				t = &sums{by: make(map[string]uint64), langs: make(map[string]uint64)}
				by[f.pkg.Source] = t
			}
			t.by[s.column()] += n
			t.langs[f.row["languages"]] += n
			t.files++
			t.total += n
			total += n
		}
	}
	lines := [][]string{{"source package", "mostly", "#files", "#of all"}}
	for _, c := range columnsOf(all) {
		lines[0] = append(lines[0], "#"+c)
	}
	keys := slices.SortedFunc(maps.Keys(by), func(a, b string) int { return cmp.Or(cmp.Compare(by[b].total, by[a].total), cmp.Compare(a, b)) })
	for _, key := range keys[:min(len(keys), worst)] {
		t := by[key]
		line := []string{key, most(t.langs), digits(t.files), share(t.total, total)}
		for _, c := range columnsOf(all) {
			line = append(line, digits(t.by[c]))
		}
		lines = append(lines, line)
	}
	return lines
}

// sizes compares sections.
func sizes(all []*system) [][]string {
	lines := [][]string{{"system", "#files", "#.eh_frame", "#.eh_frame_hdr", "#.sframe V2", "#of both", "#.sframe V3", "#of both", "#bytes of the files"}}
	for _, s := range all {
		var frame, hdr, size uint64
		var sframe [4]uint64
		files := 0
		for i := range s.files {
			f := &s.files[i]
			a, b := f.outcome(2), f.outcome(3)
			// What has its CFI elsewhere has nothing to compare.
			if a == nil || b == nil || !a.done() || !b.done() || a.EhFrame == 0 {
				continue
			}
			files++
			frame, hdr, size = frame+a.EhFrame, hdr+a.EhHdr, size+uint64(f.res.Size)
			sframe[2] += a.SFrame
			sframe[3] += b.SFrame
		}
		lines = append(lines, []string{
			s.name, digits(files), digits(frame), digits(hdr), digits(sframe[2]), share(sframe[2], frame+hdr), digits(sframe[3]), share(sframe[3], frame+hdr), digits(size),
		})
	}
	return lines
}

package debian

import (
	"cmp"
	"maps"
	"slices"
)

// A loss is what is lost in something.
type loss struct {
	v2, v3   map[string]uint64 // by column
	all2     uint64
	all3     uint64
	number   map[string]int    // of functions, by system
	reasons  map[string]uint64 // V2's and V3's bytes
	rules    map[string]uint64
	packages map[string]bool // without the system
}

func (l *loss) add(s *system, p *pkg, f *lossy) {
	l.v2[s.column()] += f.V2
	l.v3[s.column()] += f.V3
	l.all2 += f.V2
	l.all3 += f.V3
	l.number[s.name] += f.Number
	l.reasons[f.Reason] += f.V2 + f.V3
	l.rules[f.Rule] += f.V2 + f.V3
	l.packages[p.Folder] = true
}

func newLoss() *loss {
	return &loss{
		number: make(map[string]int), v2: make(map[string]uint64), v3: make(map[string]uint64), reasons: make(map[string]uint64), rules: make(map[string]uint64), packages: make(map[string]bool),
	}
}

// most returns the key of the largest value.
func most(m map[string]uint64) string {
	best := ""
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if best == "" || m[k] > m[best] {
			best = k
		}
	}
	return best
}

// worst is how long lists of the worst are.
const worst = 25

// ranked prints losses by key, the largest first.
func ranked(all []*system, by map[string]*loss, head []string, columns func(key string, l *loss) []string) [][]string {
	for _, c := range columnsOf(all) {
		head = append(head, "#"+c+": V2", "#V3")
	}
	lines := [][]string{head}
	keys := slices.SortedFunc(maps.Keys(by), func(a, b string) int {
		return cmp.Or(cmp.Compare(by[b].all2+by[b].all3, by[a].all2+by[a].all3), cmp.Compare(a, b))
	})
	for _, key := range keys[:min(len(keys), worst)] {
		l := by[key]
		line := columns(key, l)
		for _, c := range columnsOf(all) {
			line = append(line, digits(l.v2[c]), digits(l.v3[c]))
		}
		lines = append(lines, line)
	}
	return lines
}

// projects sums up what is lost by source package.
func projects(all []*system) [][]string {
	by := make(map[string]*loss)
	var total2, total3 uint64
	for _, s := range all {
		for i := range s.files {
			f := &s.files[i]
			for _, l := range f.functionsLost() {
				if by[f.pkg.Source] == nil {
					by[f.pkg.Source] = newLoss()
				}
				by[f.pkg.Source].add(s, f.pkg, &l)
				total2 += l.V2
				total3 += l.V3
			}
		}
	}
	return ranked(all, by, []string{"source package", "mostly", "#packages", "#of all that V2 loses", "#V3"}, func(key string, l *loss) []string {
		return []string{key, most(l.reasons), digits(len(l.packages)), share(l.all2, total2), share(l.all3, total3)}
	})
}

// causes sums up by reason and kind of rule.
func causes(all []*system) [][]string {
	type sums struct {
		files, functions int
		sources          map[string]bool
		v2, v3           uint64
	}
	by := make(map[[2]string]*sums)
	for _, s := range all {
		for i := range s.files {
			f := &s.files[i]
			seen := make(map[*sums]bool)
			for _, l := range f.functionsLost() {
				key := [2]string{l.Reason, l.Rule}
				if by[key] == nil {
					by[key] = &sums{sources: make(map[string]bool)}
				}
				t := by[key]
				if !seen[t] {
					seen[t] = true
					t.files++
				}
				t.functions += l.Number
				t.sources[f.pkg.Source] = true
				t.v2 += l.V2
				t.v3 += l.V3
			}
		}
	}
	lines := [][]string{{"reason", "rule", "#files", "#source packages", "#functions", "#bytes lost in V2", "#in V3"}}
	keys := slices.SortedFunc(maps.Keys(by), func(a, b [2]string) int {
		return cmp.Or(cmp.Compare(by[b].v2+by[b].v3, by[a].v2+by[a].v3), cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1]))
	})
	for _, key := range keys[:min(len(keys), worst)] {
		t := by[key]
		lines = append(lines, []string{key[0], code(key[1]), digits(t.files), digits(len(t.sources)), digits(t.functions), digits(t.v2), digits(t.v3)})
	}
	return lines
}

// functionsLost returns the functions of a file of which something is lost.
func (f *file) functionsLost() []lossy {
	if f.res == nil {
		return nil
	}
	return f.res.Functions
}

// unnamed is what functions are called that have no name, as in stripped files all have that are not exported.
const unnamed = "all without a name"

// short is a function's name without most of what a C++ compiler tells of its arguments.
func short(name string) string {
	const most = 60
	if r := []rune(name); len(r) > most {
		return string(r[:most]) + "..."
	}
	return name
}

// functions sums up by the name of the function.
func functions(all []*system) [][]string {
	by := make(map[string]*loss)
	for _, s := range all {
		for i := range s.files {
			f := &s.files[i]
			for _, l := range f.functionsLost() {
				key := unnamed
				if l.Name != "" {
					key = code(short(l.Name))
				}
				if by[key] == nil {
					by[key] = newLoss()
				}
				by[key].add(s, f.pkg, &l)
			}
		}
	}
	return ranked(all, by, []string{"function", "mostly", "rule", "#functions", "#packages"}, func(key string, l *loss) []string {
		rule := most(l.rules)
		if rule != "" {
			rule = code(rule)
		}
		n := 0 // in the system that has most
		for _, s := range all {
			n = max(n, l.number[s.name])
		}
		return []string{key, most(l.reasons), rule, digits(n), digits(len(l.packages))}
	})
}

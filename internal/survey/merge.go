package survey

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"cfi2sframe/internal/outfile"
	"cfi2sframe/report"
)

// MergeOptions say how to merge.
type MergeOptions struct {
	Tool    string // as in Options
	Partial bool   // shards may be missing
	Jobs    int    // as in Options
}

// Merge makes one survey of several in JSON files, the parts. It adds up the records of all parts as Run does, each
// file once, so that the result is that of one survey, whatever the parts and their order are. progress may be nil;
// it is called as by Run. An error means that a file is not a part of this version, that parts contradict each other,
// that shards are missing, or that ctx ended.
//
// Parts are read twice. Which files count is known when all have said which paths they are of; then files and the worst
// functions are read.
func Merge(ctx context.Context, names []string, opt MergeOptions, progress func(done, total int)) (*Survey, error) {
	m := &merger{MergeOptions: opt, index: make(map[string]int), functions: make(map[int]*worst[BadFunction])}
	m.names = slices.Compact(slices.Sorted(slices.Values(names)))
	m.heads = make([]*Survey, len(m.names))
	slots := newSlots(opt.Jobs)
	err := each(ctx, slots, len(m.names), func(part int) (err error) {
		m.heads[part], err = read(m.names[part], true)
		return m.about(part, err)
	}, nil)
	if err == nil {
		err = m.resolve()
	}
	if err == nil {
		err = each(ctx, slots, len(m.names), func(part int) error { return m.about(part, m.add(part)) }, progress)
	}
	if err != nil {
		return nil, err
	}
	return m.finish()
}

// A merger makes one survey of parts. Its indexes of paths are those of all parts together.
type merger struct {
	MergeOptions
	names []string
	heads []*Survey // of parts, without files, until their files are read

	settings Settings
	paths    []mergedPath
	index    map[string]int // of paths, by name
	groups   []*Shards

	mu    sync.Mutex
	files []mergedFile
	// The worst functions of each path that lies in others, and of all other paths under -1. With more shards, the
	// files of an inner path can become those of the outer one. Then others are the worst.
	functions map[int]*worst[BadFunction]
}

// A mergedPath is a path of some parts.
type mergedPath struct {
	Part
	whole    []int // parts that have all of it
	complete bool  // a part has all of it, or all shards are there
	source   int   // a part that this is known from
	inner    bool  // it lies in another path
	void     bool  // it lies in a path that is complete, so that it has no files
}

// A mergedFile is a file on the disk, as a part has it.
type mergedFile struct {
	place   string // where its name leads to
	path    int
	part    int
	records []*Record
}

// about adds the name of a part to an error.
func (m *merger) about(part int, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", m.name(part), outfile.Plain(err))
}

func (m *merger) name(part int) string { return report.Printable(m.names[part]) }

// resolve determines what all parts together cover.
func (m *merger) resolve() error {
	for part, h := range m.heads {
		m.settings = m.heads[0].Settings
		switch {
		case h.Tool != valid(m.Tool):
			return m.about(part, fmt.Errorf("made by %.200q; only parts of %.200q can be merged", h.Tool, m.Tool))
		case h.Settings != m.settings:
			return m.about(part, fmt.Errorf("made %s, but %s is made %s", h.Settings, m.name(0), m.settings))
		}
	}
	m.unite()
	inner, err := m.claimWhole()
	if err == nil {
		err = m.uniteShards()
	}
	if err != nil {
		return err
	}
	// Paths in others with missing shards can be complete by an earlier merge.
	for _, p := range inner {
		if q := &m.paths[m.index[p.Name]]; !q.complete {
			q.complete, q.Skipped = true, p.Skipped
		}
	}
	m.findVoid()
	return m.findMissing()
}

// String says which flags the settings come from.
func (s Settings) String() string {
	switch {
	case s.Objects && s.Packages:
		return "with --objects and --packages"
	case s.Objects:
		return "with --objects"
	case s.Packages:
		return "with --packages"
	}
	return "without --objects and --packages"
}

// unite collects the paths of all parts, by name.
func (m *merger) unite() {
	reals := make(map[string]string)
	for _, h := range m.heads {
		for i := range h.Paths {
			name, real := h.Paths[i].Name, h.Paths[i].leadsTo()
			if before, ok := reals[name]; !ok || real < before {
				reals[name] = real
			}
		}
	}
	for i, name := range slices.Sorted(maps.Keys(reals)) {
		m.index[name] = i
		m.paths = append(m.paths, mergedPath{Part: newPath(name, reals[name])})
	}
}

// claimWhole finds the paths that parts have all of. Those in paths with missing shards are returned apart: of their
// files some are below the outer path.
func (m *merger) claimWhole() (inner []*Part, err error) {
	for part, h := range m.heads {
		around := enclosing(reals(h.Paths))
		for i := range h.Paths {
			p, outer := &h.Paths[i], around(i)
			switch {
			case p.Partial || slices.ContainsFunc(outer, func(j int) bool { return !h.Paths[j].Partial }):
			case len(outer) > 0:
				inner = append(inner, p)
			default:
				q := &m.paths[m.index[p.Name]]
				q.whole = append(q.whole, part)
				if err := m.claim(q, part, p.Skipped); err != nil {
					return nil, err
				}
			}
		}
	}
	return inner, nil
}

// claim notes that all of a path is there. All that say so must agree on the files that are not examined.
func (m *merger) claim(p *mergedPath, part int, s Skipped) error {
	if p.complete && p.Skipped != s {
		return m.about(part, fmt.Errorf("the files of %s that are not examined (%s) differ from those of %s (%s)",
			report.Printable(p.Name), s, m.name(p.source), p.Skipped))
	}
	if !p.complete {
		p.complete, p.source, p.Skipped = true, part, s
	}
	return nil
}

// String says how many files were not examined.
func (s Skipped) String() string {
	return fmt.Sprintf("objects and archives: %d, archives: %d, not ELF: %d", s.Objects, s.Archives, s.Other)
}

// uniteShards collects the shards of all parts in groups that were divided together.
func (m *merger) uniteShards() error {
	groups := make(map[string]*Shards)
	for part, h := range m.heads {
		for i := range h.Shards {
			s := m.renumber(part, &h.Shards[i])
			key := fmt.Sprint(s.Of, s.Divided, s.Paths)
			if groups[key] == nil {
				groups[key] = &Shards{Paths: s.Paths, Of: s.Of, Divided: s.Divided}
			}
			if err := m.uniteGroup(groups[key], s.Parts); err != nil {
				return err
			}
		}
	}
	byPaths := func(a, b *Shards) int {
		return cmp.Or(slices.Compare(a.Paths, b.Paths), cmp.Compare(a.Of, b.Of))
	}
	m.groups = slices.SortedFunc(maps.Values(groups), func(a, b *Shards) int {
		return cmp.Or(byPaths(a, b), slices.Compare(a.numbers(), b.numbers()), cmp.Compare(a.Divided.Digest, b.Divided.Digest))
	})
	for i, g := range m.groups {
		if i > 0 && byPaths(m.groups[i-1], g) == 0 {
			other := func(h *Shards) bool { return byPaths(g, h) != 0 }
			return m.dividedApart(slices.DeleteFunc(m.groups, other))
		}
		if len(g.Parts) < g.Of {
			continue
		}
		skipped := m.skipped(g)
		for _, path := range g.Paths {
			s, ok := skipped[path]
			if !ok {
				continue
			}
			if err := m.claim(&m.paths[path], g.Parts[g.Of-1].part, s); err != nil {
				return err
			}
		}
	}
	return nil
}

// renumber returns the shards of a part with the indexes of all paths.
func (m *merger) renumber(part int, s *Shards) *Shards {
	paths := m.heads[part].Paths
	out := &Shards{Of: s.Of, Divided: s.Divided}
	for i := range paths {
		if s.Paths == nil || slices.Contains(s.Paths, i) {
			out.Paths = append(out.Paths, m.index[paths[i].Name])
		}
	}
	for _, p := range s.Parts {
		p.part, p.Skipped = part, slices.Clone(p.Skipped)
		for i := range p.Skipped {
			p.Skipped[i].Path = m.index[paths[p.Skipped[i].Path].Name]
		}
		out.Parts = append(out.Parts, p)
	}
	return out
}

// uniteGroup adds shards to a group, each once.
func (m *merger) uniteGroup(g *Shards, add []Piece) error {
	for _, p := range add {
		i, ok := slices.BinarySearchFunc(g.Parts, p, func(a, b Piece) int { return cmp.Compare(a.Shard, b.Shard) })
		if !ok {
			g.Parts = slices.Insert(g.Parts, i, p)
		} else if q := &g.Parts[i]; q.Digest != p.Digest || !slices.Equal(q.Skipped, p.Skipped) {
			return m.about(p.part, fmt.Errorf("shard %d of %d of %s differs from that in %s",
				p.Shard, g.Of, m.called(g), m.name(q.part)))
		}
	}
	return nil
}

// numbers returns the numbers of the shards.
func (s *Shards) numbers() []int {
	var out []int
	for i := range s.Parts {
		out = append(out, s.Parts[i].Shard)
	}
	return out
}

// called names the paths of a group.
func (m *merger) called(g *Shards) string {
	var names []string
	for _, i := range g.Paths {
		names = append(names, m.paths[i].Name)
	}
	return namesOf(names)
}

// dividedApart returns an error that says which shards come from which division.
func (m *merger) dividedApart(groups []*Shards) error {
	var states []string
	for _, g := range groups {
		parts := make(map[int]bool)
		for i := range g.Parts {
			parts[g.Parts[i].part] = true
		}
		in := m.name(g.Parts[0].part)
		if n := len(parts) - 1; n > 0 {
			in += " and " + countOf(n, "other")
		}
		state := fmt.Sprintf("%s of a state with %s (%s)", ranges(g.numbers()), countOf(g.Divided.Files, "file"), in)
		states = append(states, state)
	}
	return fmt.Errorf("shards of %d of %s do not fit, as names, sizes or unreadable files differ: %s; "+
		"survey all shards of one state", groups[0].Of, m.called(groups[0]), strings.Join(states, ", "))
}

// skipped adds up what the shards of a group have not examined, by path. Paths that lie in others of the group have
// no files.
func (m *merger) skipped(g *Shards) map[int]Skipped {
	var real []string
	for _, i := range g.Paths {
		real = append(real, m.paths[i].leadsTo())
	}
	around := enclosing(real)
	out := make(map[int]Skipped)
	for i, path := range g.Paths {
		if len(around(i)) == 0 {
			out[path] = Skipped{}
		}
	}
	for _, p := range g.Parts {
		for _, s := range p.Skipped {
			if sum, ok := out[s.Path]; ok {
				sum.add(s.Skipped)
				out[s.Path] = sum
			}
		}
	}
	return out
}

// findVoid finds the paths that lie in others, and that have no files because of that.
func (m *merger) findVoid() {
	first := make(map[string]int) // complete path, by where it leads to
	real := make([]string, len(m.paths))
	for i := range m.paths {
		real[i] = m.paths[i].leadsTo()
		if _, ok := first[real[i]]; m.paths[i].complete && !ok {
			first[real[i]] = i
		}
	}
	around := enclosing(real)
	for i := range m.paths {
		p := &m.paths[i]
		p.inner = len(around(i)) > 0
		j, ok := first[real[i]]
		p.void = ok && j < i
		for dir, ok := parent(real[i]); ok && !p.void; dir, ok = parent(dir) {
			_, p.void = first[dir]
		}
		if p.void {
			p.Skipped = Skipped{}
		}
	}
}

// findMissing finds the paths with missing shards, and keeps the groups that are of them.
func (m *merger) findMissing() error {
	var missing []string
	var groups []*Shards
	for _, g := range m.groups {
		needed := false
		for path, s := range m.skipped(g) {
			p := &m.paths[path]
			if p.complete || p.void {
				continue
			}
			needed = true
			p.Skipped.Objects = max(p.Skipped.Objects, s.Objects) // of several divisions
			p.Skipped.Archives = max(p.Skipped.Archives, s.Archives)
			p.Skipped.Other = max(p.Skipped.Other, s.Other)
		}
		if !needed {
			continue
		}
		for _, path := range g.Paths {
			p := &m.paths[path]
			p.Partial = !p.complete && !p.void
		}
		groups = append(groups, g)
		if len(groups) <= maxGroups {
			missing = append(missing, lacking(g.numbers(), g.Of, m.called(g)))
		}
	}
	m.groups = groups
	for i := range m.paths {
		if p := &m.paths[i]; !p.complete && !p.void && !p.Partial {
			return fmt.Errorf("%s is not complete, and no part says which shards are there", report.Printable(p.Name))
		}
	}
	if n := len(groups) - maxGroups; n > 0 {
		missing = append(missing, "so are shards of "+countOf(n, "other group"))
	}
	if len(missing) > 0 && !m.Partial {
		return fmt.Errorf("%s; add them, or use --partial", strings.Join(missing, "; "))
	}
	return nil
}

// lacking says which shards are missing.
func lacking(have []int, of int, paths string) string {
	var none []int
	for i := 1; i <= of; i++ {
		if len(have) > 0 && have[0] == i {
			have = have[1:]
		} else {
			none = append(none, i)
		}
	}
	verb := "are"
	if len(none) == 1 {
		verb = "is"
	}
	return fmt.Sprintf("%s of %d of %s %s missing", ranges(none), of, paths, verb)
}

// maxRanges is how many ranges of shards are named.
const maxRanges = 20

// ranges names shards.
func ranges(list []int) string {
	what := "shards "
	if len(list) == 1 {
		what = "shard "
	}
	var out []string
	for i := 0; i < len(list); {
		if len(out) == maxRanges {
			out = append(out, countOf(len(list)-i, "other"))
			break
		}
		end := i + 1
		for end < len(list) && list[end] == list[end-1]+1 {
			end++
		}
		if end-i < 3 { // two are not a range
			end = i + 1
			out = append(out, fmt.Sprint(list[i]))
		} else {
			out = append(out, fmt.Sprintf("%d to %d", list[i], list[end-1]))
		}
		i = end
	}
	if n := len(out) - 1; n > 0 {
		return what + strings.Join(out[:n], ", ") + " and " + out[n]
	}
	return what + out[0]
}

// add adds the files of a part.
func (m *merger) add(part int) error {
	s, err := read(m.names[part], false)
	if err != nil {
		return err
	}
	h := m.heads[part]
	m.heads[part] = nil
	sameName := func(a, b Part) bool { return a.Name == b.Name }
	if s.Settings != h.Settings || !slices.EqualFunc(s.Paths, h.Paths, sameName) {
		return errors.New("settings come after other fields, or the file has changed meanwhile")
	}
	if err := s.check(); err != nil {
		return err
	}
	functions := make(map[string][]BadFunction) // by the name of their file on the disk
	for _, f := range s.WorstFunctions {
		disk := diskName(f.File, f.Disk)
		functions[disk] = append(functions[disk], f)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := 0; i < len(s.Files); {
		r := s.Files[i]
		disk, end := r.disk(), i+1
		for r.Disk > 0 && end < len(s.Files) && s.Files[end].Disk == r.Disk && s.Files[end].disk() == disk {
			end++
		}
		path := m.index[s.Paths[r.Path].Name]
		f := mergedFile{m.paths[path].place(disk), path, part, s.Files[i:end]}
		m.files = append(m.files, f)
		for ; i < end; i++ {
			s.Files[i].Path = path
		}
		for seq, fn := range functions[disk] {
			fn.path, fn.place, fn.seq = path, f.place, seq
			m.addFunction(fn)
		}
	}
	return nil
}

func (m *merger) addFunction(f BadFunction) {
	p, class := &m.paths[f.path], -1
	switch {
	case p.void:
		return
	case p.inner:
		class = f.path
	}
	if m.functions[class] == nil {
		m.functions[class] = &worst[BadFunction]{cmp: byLoss}
	}
	m.functions[class].add(f)
}

// finish takes each file once, and adds all up.
func (m *merger) finish() (*Survey, error) {
	slices.SortFunc(m.files, func(a, b mergedFile) int {
		return cmp.Or(cmp.Compare(a.place, b.place), cmp.Compare(a.part, b.part))
	})
	s := &Survey{Tool: valid(m.Tool), Settings: m.settings}
	pathOf := make(map[string]int) // of the files with the worst functions, by place
	for _, w := range m.functions {
		for _, f := range w.list {
			pathOf[f.place] = -1
		}
	}
	for begin, end := 0, 0; begin < len(m.files); begin = end {
		for end = begin + 1; end < len(m.files) && m.files[end].place == m.files[begin].place; {
			end++
		}
		f, err := m.once(m.files[begin:end])
		if err != nil {
			return nil, err
		}
		if m.paths[f.path].void {
			continue
		}
		s.Files = append(s.Files, f.records...)
		if _, ok := pathOf[f.place]; ok {
			pathOf[f.place] = f.path
		}
	}
	for _, w := range m.functions {
		for _, f := range w.list {
			if pathOf[f.place] == f.path {
				s.WorstFunctions = append(s.WorstFunctions, f)
			}
		}
	}
	slices.SortFunc(s.WorstFunctions, func(a, b BadFunction) int { return byLoss(&a, &b) })
	for i := range m.paths {
		s.Paths = append(s.Paths, m.paths[i].Part)
	}
	for _, g := range m.groups {
		g.Have = g.numbers()
		if len(g.Paths) == len(m.paths) {
			g.Paths = nil
		}
		s.Shards = append(s.Shards, *g)
	}
	s.sum()
	return s, nil
}

// once returns a file that parts have as that of the outermost path. They must have the same records of it.
func (m *merger) once(same []mergedFile) (mergedFile, error) {
	var none mergedFile
	out := same[0]
	for i, f := range same {
		switch {
		case i > 0 && f.part == same[i-1].part:
			return none, m.about(f.part, fmt.Errorf("%s is listed twice", f.name()))
		case !slices.EqualFunc(f.records, same[0].records, sameContents):
			return none, m.about(f.part, fmt.Errorf("%s differs from that in %s", f.name(), m.name(same[0].part)))
		case cmp.Or(cmp.Compare(m.depth(f), m.depth(out)), cmp.Compare(f.path, out.path)) < 0:
			out = f
		}
		if i > 0 && f.path == same[i-1].path {
			continue
		}
		for _, part := range m.paths[f.path].whole {
			byPart := func(g mergedFile, part int) int { return cmp.Compare(g.part, part) }
			if _, ok := slices.BinarySearchFunc(same, part, byPart); !ok {
				return none, m.about(f.part, fmt.Errorf("%s is not in %s, which has all of %s",
					f.name(), m.name(part), report.Printable(m.paths[f.path].Name)))
			}
		}
	}
	return out, nil
}

func (f *mergedFile) name() string { return report.Printable(f.records[0].disk()) }

func (m *merger) depth(f mergedFile) int { return depth(m.paths[f.path].leadsTo()) }

// sameContents reports whether two records are equal but for the name of the file on the disk.
func sameContents(a, b *Record) bool {
	x, y := *a, *b
	x.File, y.File = x.File[len(x.disk()):], y.File[len(y.disk()):]
	x.RawFile, x.Disk, x.Path = y.RawFile, y.Disk, y.Path
	return reflect.DeepEqual(x, y)
}

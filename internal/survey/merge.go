package survey

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
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

// Merge makes one survey of several, of which files have the JSON form. It is the same whatever their order. What is in more than
// one of them counts once. progress may be nil; it is called as that of Run is. An error means that one of the files is none of
// this version, that two of them contradict one another, that shards are missing, or that ctx ended.
//
// The files are read twice: first what they are of, and when it is known what all together are of, the rest.
func Merge(ctx context.Context, names []string, opt MergeOptions, progress func(done, total int)) (*Survey, error) {
	if opt.Jobs <= 0 {
		opt.Jobs = runtime.GOMAXPROCS(0)
	}
	m := &merger{opt: opt, paths: make(map[string]int32), groups: make(map[string]*group)}
	m.names = slices.Compact(slices.Sorted(slices.Values(names)))
	if err := inOrder(ctx, len(m.names), opt.Jobs, m.readHead, m.addHead); err != nil {
		return nil, err
	}
	if err := m.resolve(); err != nil {
		return nil, err
	}
	done := 0
	err := inOrder(ctx, len(m.names), opt.Jobs, m.readBody, func(i int, b *partBody) error {
		m.addBody(i, b)
		if done++; progress != nil {
			progress(done, len(m.names))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return m.finish()
}

// A merger makes a Survey of several.
type merger struct {
	opt   MergeOptions
	names []string // of files, which are the parts
	parts []mergedPart
	Settings
	paths  map[string]int32 // by name, what parts say of them
	roots  []root           // of all parts, by name when it is known which there are
	groups map[string]*group

	// What is known when all heads are: by path.
	nest     *nest
	complete []bool // there is a part with all of it, or are all shards
	void     []bool // it lies in one that is complete, or leads to the same place as one before it
	covered  []bool // it lies in one
	depth    []int  // how many folders its place lies in

	lines     []*line
	functions map[int32]*worst[BadFunction] // by path, of those that lie in others; -1 for all others
}

// A mergedPart is one of the surveys.
type mergedPart struct {
	paths []partPath
}

// A partPath is what a part says of a path.
type partPath struct {
	id      int32 // index of the root
	all     bool  // everything below it is in the part
	inner   bool  // it lies in another one
	files   int   // on the disk
	skipped Skipped
}

// A group are the shards that some paths were divided into together.
type group struct {
	paths   []int32
	of      int
	divided Division
	have    map[int]*piece
}

// A piece is a shard.
type piece struct {
	part    int
	digest  string
	skipped map[int32]Skipped
}

// about says which part an error is about.
func (m *merger) about(i int, err error) error {
	return fmt.Errorf("%s: %w", report.Printable(m.names[i]), outfile.Plain(err))
}

// open calls read with what reads one of the parts.
func (m *merger) open(i int, read func(d *decoder) error) error {
	f, err := openPart(m.names[i])
	if err != nil {
		return m.about(i, err)
	}
	defer f.Close()
	if err := read(newDecoder(f, true)); err != nil {
		return m.about(i, err)
	}
	return nil
}

func (m *merger) readHead(i int) (*partHead, error) {
	var h *partHead
	err := m.open(i, func(d *decoder) error {
		h = &d.head
		return d.readHead()
	})
	return h, err
}

// addHead adds what a part is of.
func (m *merger) addHead(i int, h *partHead) error {
	if h.tool != valid(m.opt.Tool) {
		return m.about(i, fmt.Errorf("made by %s; %s was expected, as figures of other versions may have another meaning", quoted(h.tool), quoted(m.opt.Tool)))
	}
	if i == 0 {
		m.Settings = h.Settings
	} else if h.Settings != m.Settings {
		return m.about(i, fmt.Errorf("made %s; the same was expected as of %s, which is made %s", h.Settings, report.Printable(m.names[0]), m.Settings))
	}
	var p mergedPart
	var reals []string
	for j := range h.paths {
		name := unraw(h.paths[j].Name, h.paths[j].RawName)
		real := cmp.Or(unraw(h.paths[j].Real, h.paths[j].RawReal), name)
		if j > 0 && name <= m.roots[p.paths[j-1].id].name {
			return m.about(i, fmt.Errorf("paths, element %d: %s is not sorted by name", j+1, report.Printable(name)))
		}
		if err := h.paths[j].Skipped.check(); err != nil {
			return m.about(i, fmt.Errorf("paths, element %d: %w", j+1, err))
		}
		id, ok := m.paths[name]
		if !ok {
			id = int32(len(m.roots))
			m.paths[name] = id
			m.roots = append(m.roots, root{name: name, real: real})
		}
		m.roots[id].real = min(m.roots[id].real, real)
		p.paths = append(p.paths, partPath{id: id, skipped: h.paths[j].Skipped})
		reals = append(reals, real)
	}
	n := newNest(reals)
	for j := range p.paths {
		q := &p.paths[j]
		q.all = !h.paths[j].Partial
		for k := range n.around(j) {
			q.inner = true
			q.all = q.all && h.paths[k].Partial // or else the part has nothing to say of it
		}
	}
	for j := range h.shards {
		ids, err := h.shards[j].check(&p)
		if err == nil {
			err = m.addShards(i, &p, ids, &h.shards[j])
		} else {
			err = fmt.Errorf("shards, element %d: %w", j+1, err)
		}
		if err != nil {
			return m.about(i, err)
		}
	}
	m.parts = append(m.parts, p)
	return nil
}

// String says of the settings what flags they come from.
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

func quoted(tool string) string { return fmt.Sprintf("%.200q", tool) }

// check returns an error if there are numbers that nothing can have.
func (s Skipped) check() error {
	if lo, hi := min(s.Objects, s.Archives, s.Other), max(s.Objects, s.Archives, s.Other); lo < 0 || hi > maxNumber {
		return fmt.Errorf("skipped: %+v; numbers from 0 to %d were expected", s, maxNumber)
	}
	return nil
}

// check returns an error if the shards are none, and otherwise the paths that they are of.
func (s *Shards) check(p *mergedPart) ([]int32, error) {
	var ids []int32
	for _, j := range s.Paths {
		if j < 0 || j >= len(p.paths) {
			return nil, fmt.Errorf("path %d of %d", j, len(p.paths))
		}
		ids = append(ids, p.paths[j].id)
	}
	if s.Paths == nil {
		for j := range p.paths {
			ids = append(ids, p.paths[j].id)
		}
	}
	if s.Of < 2 || s.Of > maxShards || len(s.Parts) == 0 || len(s.Parts) != len(s.Have) {
		return nil, fmt.Errorf("%d of %d shards, with parts for %d; 2 to %d with one each were expected", len(s.Have), s.Of, len(s.Parts), maxShards)
	}
	if err := s.Divided.check(); err != nil {
		return nil, err
	}
	for k := range s.Parts {
		from := &s.Parts[k]
		if from.Shard != s.Have[k] || from.Shard < 1 || from.Shard > s.Of || k > 0 && from.Shard <= s.Have[k-1] {
			return nil, fmt.Errorf("shard %d of %d is not known, or out of order", from.Shard, s.Of)
		}
		for _, sk := range from.Skipped {
			if err := sk.Skipped.check(); err != nil {
				return nil, err
			}
			if sk.Path < 0 || sk.Path >= len(p.paths) {
				return nil, fmt.Errorf("path %d of %d", sk.Path, len(p.paths))
			}
		}
	}
	return ids, nil
}

// addShards adds what a part has of a group of shards of the given paths.
func (m *merger) addShards(i int, p *mergedPart, ids []int32, s *Shards) error {
	var key strings.Builder
	fmt.Fprint(&key, s.Of, " ", s.Divided)
	for _, id := range ids {
		fmt.Fprintf(&key, " %d", id)
	}
	g := m.groups[key.String()]
	if g == nil {
		g = &group{paths: ids, of: s.Of, divided: s.Divided, have: make(map[int]*piece)}
		m.groups[key.String()] = g
	}
	for k := range s.Parts {
		from := &s.Parts[k]
		to := &piece{part: i, digest: from.Digest, skipped: make(map[int32]Skipped)}
		for _, sk := range from.Skipped {
			to.skipped[p.paths[sk.Path].id] = sk.Skipped
		}
		if old := g.have[from.Shard]; old != nil && (old.digest != to.digest || !maps.Equal(old.skipped, to.skipped)) {
			return fmt.Errorf("shard %d of %d of %s has other contents than in %s; the same were expected",
				from.Shard, s.Of, m.called(ids), report.Printable(m.names[old.part]))
		} else if old == nil {
			g.have[from.Shard] = to
		}
	}
	return nil
}

// called names paths, of which there may be many.
func (m *merger) called(ids []int32) string {
	var names []string
	for _, id := range ids {
		names = append(names, m.roots[id].name)
	}
	slices.Sort(names)
	return namesOf(names)
}

// resolve finds out what all parts together are of.
func (m *merger) resolve() error {
	m.sortRoots()
	groups := m.sortedGroups()
	if err := m.divideAlike(groups); err != nil {
		return err
	}
	n := len(m.roots)
	m.nest = newNest(reals(m.roots))
	m.complete, m.void, m.covered, m.depth = make([]bool, n), make([]bool, n), make([]bool, n), make([]int, n)
	source := make([]int, n) // the part that has said first what is skipped
	agree := func(id int32, part int, s Skipped) error {
		r := &m.roots[id]
		if m.complete[id] && r.skipped != s {
			return m.about(part, fmt.Errorf("other files of %s are not examined (%s) than in %s (%s); the same were expected",
				report.Printable(r.name), s, report.Printable(m.names[source[id]]), r.skipped))
		}
		if !m.complete[id] {
			m.complete[id], r.skipped, source[id] = true, s, part
		}
		return nil
	}
	for i := range m.parts {
		for j := range m.parts[i].paths {
			if p := &m.parts[i].paths[j]; p.all && !p.inner {
				if err := agree(p.id, i, p.skipped); err != nil {
					return err
				}
			}
		}
	}
	for _, g := range groups {
		if len(g.have) < g.of {
			continue
		}
		for id, s := range g.skipped(m) {
			if err := agree(id, g.last(), s); err != nil {
				return err
			}
		}
	}
	// What lies in another path, of which shards are missing, can have been complete before.
	for i := range m.parts {
		for j := range m.parts[i].paths {
			if p := &m.parts[i].paths[j]; p.all && p.inner && !m.complete[p.id] {
				m.complete[p.id], m.roots[p.id].skipped = true, p.skipped
			}
		}
	}
	// Of paths that lead to the same place not only the first can be complete: a part that has another one has nothing else to say of
	// what leads there, or lies in there.
	whole := make(map[string]int) // the first of those that are complete
	for i := range m.roots {
		if _, ok := whole[m.roots[i].real]; m.complete[i] && !ok {
			whole[m.roots[i].real] = i
		}
	}
	for i := range m.roots {
		for range m.nest.around(i) {
			m.covered[i] = true
		}
		j, ok := whole[m.roots[i].real]
		m.void[i] = ok && j < i
		for dir, ok := parent(m.roots[i].real); ok; dir, ok = parent(dir) {
			m.depth[i]++
			if _, ok := whole[dir]; ok {
				m.void[i] = true
			}
		}
		if m.void[i] {
			m.roots[i].skipped = Skipped{}
		}
	}
	return m.keepGroups(groups)
}

// String says how many files were not examined.
func (s Skipped) String() string {
	return fmt.Sprintf("objects and archives: %d, archives: %d, not ELF: %d", s.Objects, s.Archives, s.Other)
}

// sortRoots sorts the paths by name.
func (m *merger) sortRoots() {
	order := make([]int32, len(m.roots))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int { return cmp.Compare(m.roots[a].name, m.roots[b].name) })
	to := make([]int32, len(order))
	roots := make([]root, len(order))
	for i, old := range order {
		to[old], roots[i] = int32(i), m.roots[old]
	}
	m.roots = roots
	for i := range m.parts {
		for j := range m.parts[i].paths {
			p := &m.parts[i].paths[j]
			p.id = to[p.id]
		}
	}
	for _, g := range m.groups {
		for i := range g.paths {
			g.paths[i] = to[g.paths[i]]
		}
		for _, p := range g.have {
			skipped := make(map[int32]Skipped)
			for id, s := range p.skipped {
				skipped[to[id]] = s
			}
			p.skipped = skipped
		}
	}
	m.paths = nil
}

// sortedGroups returns the groups in an order that does not depend on that of the parts. Where there are several divisions of the same
// paths, the one with most shards is first.
func (m *merger) sortedGroups() []*group {
	return slices.SortedFunc(maps.Values(m.groups), func(a, b *group) int {
		if c := cmp.Or(slices.Compare(a.paths, b.paths), cmp.Compare(a.of, b.of)); c != 0 {
			return c
		}
		return cmp.Or(cmp.Compare(len(b.have), len(a.have)), slices.Compare(a.shards(), b.shards()),
			cmp.Compare(a.divided.Files, b.divided.Files), cmp.Compare(a.divided.Digest, b.divided.Digest))
	})
}

// divideAlike returns an error if shards of the same paths, and of as many, come from several divisions.
func (m *merger) divideAlike(groups []*group) error {
	for i, most := range groups {
		var others []*group
		for _, g := range groups[i+1:] {
			if g.of != most.of || !slices.Equal(g.paths, most.paths) {
				break
			}
			others = append(others, g)
		}
		if len(others) == 0 {
			continue
		}
		also := ""
		if n := len(others) - 1; n > 0 {
			also = ", and others from " + countOf(n, "more division")
		}
		return fmt.Errorf("%s a division of %s, and %s another one, of %s%s; the same names and sizes, and the same that can be read, "+
			"were expected, or else files can be in no shard: survey again what was made of another state",
			m.from(others[0], fmt.Sprintf(" of %d of %s", most.of, m.called(most.paths))), countOf(uint64(others[0].divided.Files), "file"),
			m.from(most, ""), countOf(uint64(most.divided.Files), "file"), also)
	}
	return nil
}

// from names the shards that are there, of some paths, and says which parts have them.
func (m *merger) from(g *group, of string) string {
	have := g.shards()
	parts := make(map[int]bool)
	for _, p := range g.have {
		parts[p.part] = true
	}
	in, verb := report.Printable(m.names[g.have[have[0]].part]), "are"
	if n := len(parts) - 1; n > 0 {
		in += " and " + countOf(n, "other")
	}
	if len(have) == 1 {
		verb = "is"
	}
	return fmt.Sprintf("%s%s (%s) %s from", ranges(have), of, in, verb)
}

// shards returns the numbers of those that are there.
func (g *group) shards() []int { return slices.Sorted(maps.Keys(g.have)) }

// last returns the part that the last of the shards is in.
func (g *group) last() int { return g.have[g.shards()[len(g.have)-1]].part }

// skipped returns what the shards that are there have not examined, for each path that does not lie in another one of them.
func (g *group) skipped(m *merger) map[int32]Skipped {
	var real []string
	for _, id := range g.paths {
		real = append(real, m.roots[id].real)
	}
	out := make(map[int32]Skipped)
	for i, outer := range covers(real) {
		if outer >= 0 {
			continue
		}
		var sum Skipped
		for _, p := range g.have {
			sum.add(p.skipped[g.paths[i]])
		}
		out[g.paths[i]] = sum
	}
	return out
}

// keepGroups keeps the groups of which shards are missing.
func (m *merger) keepGroups(groups []*group) error {
	var missing []string
	m.groups = nil
	known := make([]bool, len(m.roots))
	kept := make(map[string]*group)
	for i, g := range groups {
		needed := false
		skipped := g.skipped(m)
		for id := range skipped {
			needed = needed || !m.complete[id] && !m.void[id]
		}
		if !needed {
			continue
		}
		kept[fmt.Sprint(i)] = g
		if len(kept) <= maxGroups {
			missing = append(missing, lacking(g.shards(), g.of, m.called(g.paths)))
		}
		for _, id := range g.paths {
			known[id] = true
		}
		for id, s := range skipped {
			if r := &m.roots[id]; !m.complete[id] && !m.void[id] {
				r.skipped = r.skipped.larger(s)
			}
		}
	}
	m.groups = kept
	for i := range m.roots {
		if m.complete[i] || m.void[i] {
			continue
		}
		if !known[i] {
			return fmt.Errorf("%s is not complete, and no part says of which shards it has something", report.Printable(m.roots[i].name))
		}
		m.roots[i].partial = true
	}
	if n := len(kept) - maxGroups; n > 0 {
		missing = append(missing, "so are shards of "+countOf(n, "other group"))
	}
	if len(missing) > 0 && !m.opt.Partial {
		return fmt.Errorf("%s; all were expected, or --partial", strings.Join(missing, "; "))
	}
	return nil
}

// larger returns the larger numbers of both.
func (s Skipped) larger(t Skipped) Skipped {
	return Skipped{max(s.Objects, t.Objects), max(s.Archives, t.Archives), max(s.Other, t.Other)}
}

// lacking says which shards are missing.
func lacking(have []int, of int, paths string) string {
	var none []int
	for i, next := 1, 0; i <= of; i++ {
		if next < len(have) && have[next] == i {
			next++
		} else {
			none = append(none, i)
		}
	}
	text, verb := ranges(none), "are"
	if len(none) == 1 {
		verb = "is"
	}
	return fmt.Sprintf("%s of %d of %s %s missing", text, of, paths, verb)
}

// ranges names shards.
func ranges(list []int) string {
	const shown = 20
	var out []string
	left := 0
	for i := 0; i < len(list); {
		j := i
		for j+1 < len(list) && list[j+1] == list[j]+1 {
			j++
		}
		if j == i+1 { // two are no range
			j = i
		}
		switch {
		case len(out) == shown:
			left += j - i + 1
		case j == i:
			out = append(out, fmt.Sprint(list[i]))
		default:
			out = append(out, fmt.Sprintf("%d to %d", list[i], list[j]))
		}
		i = j + 1
	}
	if left > 0 {
		out = append(out, countOf(left, "other"))
	}
	what := "shards "
	if len(list) == 1 {
		what = "shard "
	}
	if n := len(out); n > 1 {
		out[n-2] += " and " + out[n-1]
		out = out[:n-1]
	}
	return what + strings.Join(out, ", ")
}

func (m *merger) readBody(i int) (*partBody, error) {
	var b *partBody
	err := m.open(i, func(d *decoder) error {
		var err error
		if b, err = d.readAll(); err != nil {
			return err
		}
		paths := m.parts[i].paths
		same := len(d.head.paths) == len(paths)
		for j := 0; same && j < len(paths); j++ {
			same = unraw(d.head.paths[j].Name, d.head.paths[j].RawName) == m.roots[paths[j].id].name
		}
		if !same || d.head.Settings != m.Settings {
			return errors.New("it is another file than before, or its fields are in no order; it was expected to stay")
		}
		return nil
	})
	return b, err
}

// addBody adds the files of a part.
func (m *merger) addBody(i int, b *partBody) {
	paths := m.parts[i].paths
	for _, l := range b.lines {
		p := &paths[l.path]
		if l.seq == 0 {
			p.files++
		}
		l.path, l.part = p.id, int32(i)
	}
	m.lines = append(m.lines, b.lines...)
	if m.functions == nil {
		m.functions = make(map[int32]*worst[BadFunction])
	}
	for _, f := range b.functions {
		f.path = paths[f.path].id
		if m.void[f.path] { // the outer path has it, or it is another name of what that has
			continue
		}
		f.place = m.roots[f.path].place(f.disk)
		class := int32(-1)
		if m.covered[f.path] {
			class = f.path
		}
		w := m.functions[class]
		if w == nil {
			w = &worst[BadFunction]{max: defaultWorst, cmp: byRank}
			m.functions[class] = w
		}
		w.add(f)
	}
}

// byRank puts first the function of which most is lost.
func byRank(a, b *BadFunction) int {
	return cmp.Or(cmp.Compare(b.Lost, a.Lost), cmp.Compare(a.place, b.place), cmp.Compare(a.rank, b.rank))
}

// key is what a file on the disk is told from others by: where its name leads to.
func (m *merger) key(l *line) string { return m.roots[l.path].place(l.disk) }

// finish takes each file once, and adds all up.
func (m *merger) finish() (*Survey, error) {
	slices.SortFunc(m.lines, func(a, b *line) int {
		return cmp.Or(cmp.Compare(m.key(a), m.key(b)), cmp.Compare(a.part, b.part), cmp.Compare(a.seq, b.seq))
	})
	s := newSurvey(m.roots, Options{Settings: m.Settings, Tool: m.opt.Tool})
	taken := make(map[string]int32) // path of those that lie in others
	met := make([]int, len(m.roots))
	for begin := 0; begin < len(m.lines); {
		end := begin + 1
		for key := m.key(m.lines[begin]); end < len(m.lines) && m.key(m.lines[end]) == key; {
			end++
		}
		own, err := m.once(m.lines[begin:end], met)
		if err != nil {
			return nil, err
		}
		begin = end
		path := own[0].path
		if m.void[path] {
			continue
		}
		s.lines = append(s.lines, own...)
		if len(m.functions) > 1 {
			taken[own[0].disk] = path
		}
	}
	if err := m.whole(met); err != nil {
		return nil, err
	}
	m.lines = nil
	for class, w := range m.functions {
		for _, f := range w.kept {
			if path, ok := taken[f.disk]; class < 0 || ok && path == f.path {
				s.WorstFunctions = append(s.WorstFunctions, f)
			}
		}
	}
	slices.SortFunc(s.WorstFunctions, func(a, b BadFunction) int { return byRank(&a, &b) })
	for _, g := range m.sortedGroups() {
		s.Shards = append(s.Shards, g.form(len(m.roots)))
	}
	s.sum()
	return s, nil
}

// once returns the lines of a file that count: those of the outermost path. met counts the files that parts have of each path.
func (m *merger) once(all []*line, met []int) ([]*line, error) {
	var own []*line
	paths := make([]int32, 0, 1)
	for begin := 0; begin < len(all); {
		end := begin + 1
		for end < len(all) && all[end].part == all[begin].part {
			end++
		}
		these := all[begin:end]
		begin = end
		l := these[0]
		if !slices.Contains(paths, l.path) {
			paths = append(paths, l.path)
			met[l.path]++
		}
		if these[len(these)-1].seq != int32(len(these)-1) {
			return nil, m.about(int(l.part), fmt.Errorf("%s is there twice", report.Printable(l.disk)))
		}
		if own == nil {
			own = these
			continue
		}
		if !slices.EqualFunc(own, these, (*line).same) {
			return nil, m.about(int(l.part), fmt.Errorf("%s has other contents than in %s; the same were expected",
				report.Printable(l.disk), report.Printable(m.names[own[0].part])))
		}
		if m.outer(l.path, own[0].path) {
			own = these
		}
	}
	return own, nil
}

// outer reports whether a file that two paths lead to counts for the first of them, as that is the outer one.
func (m *merger) outer(a, b int32) bool {
	if m.void[a] != m.void[b] {
		return m.void[b]
	}
	return cmp.Or(cmp.Compare(m.depth[a], m.depth[b]), cmp.Compare(a, b)) < 0
}

// whole returns an error if a part that has all of a path lacks files that another one has.
func (m *merger) whole(met []int) error {
	for i := range m.parts {
		for _, p := range m.parts[i].paths {
			if !p.all || p.inner || p.files == met[p.id] {
				continue
			}
			has := make(map[string]bool)
			for _, l := range m.lines {
				if l.part == int32(i) {
					has[m.key(l)] = true
				}
			}
			for _, l := range m.lines {
				if l.path == p.id && !has[m.key(l)] {
					return m.about(int(l.part), fmt.Errorf("%s is not in %s, which has all of %s; the same files were expected",
						report.Printable(l.disk), report.Printable(m.names[i]), report.Printable(m.roots[p.id].name)))
				}
			}
		}
	}
	return nil
}

// form returns the JSON form of a group, where there are so many paths.
func (g *group) form(paths int) Shards {
	s := Shards{Of: g.of, Divided: g.divided, Have: g.shards()}
	if len(g.paths) < paths {
		for _, id := range g.paths {
			s.Paths = append(s.Paths, int(id))
		}
	}
	for _, n := range s.Have {
		from := g.have[n]
		p := Piece{Shard: n, Digest: from.digest}
		for _, id := range slices.Sorted(maps.Keys(from.skipped)) {
			p.Skipped = append(p.Skipped, PathSkipped{int(id), from.skipped[id]})
		}
		s.Parts = append(s.Parts, p)
	}
	return s
}

// inOrder calls work with 0 to n-1, for several at a time, and take with what it returns, one after the other. It stops with the
// first error.
func inOrder[T any](ctx context.Context, n, jobs int, work func(i int) (T, error), take func(i int, v T) error) error {
	type result struct {
		v   T
		err error
	}
	ctx, cancel := context.WithCancel(ctx)
	next := make(chan chan result, jobs) // the results, in order
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		defer close(next)
		for i := 0; i < n; i++ {
			c := make(chan result, 1)
			select {
			case next <- c: // which waits while there are enough
			case <-ctx.Done():
				return
			}
			wg.Go(func() {
				v, err := work(i)
				c <- result{v, err}
			})
		}
	})
	for i := 0; i < n; i++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		c, ok := <-next
		if !ok {
			return ctx.Err()
		}
		r := <-c
		if r.err != nil {
			return r.err
		}
		if err := take(i, r.v); err != nil {
			return err
		}
	}
	return nil
}

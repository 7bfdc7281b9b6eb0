package survey

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"cfi2sframe/internal/outfile"
	"cfi2sframe/report"
)

// MergeOptions say how to merge.
type MergeOptions struct {
	Tool    string // as in Options
	Partial bool   // shards may be missing
	Jobs    int    // as in Options
}

// Merge makes one survey of several in JSON files, the parts. It takes the records of all parts, each file once, and
// adds them up as Run does: the result does not depend on the parts and their order. progress is called as by Run.
// An error means that a file is not a part of this version, that parts contradict each other, that shards are missing,
// or that ctx ended.
func Merge(ctx context.Context, names []string, opt MergeOptions, progress func(done, total int)) (*Survey, error) {
	m := &merger{MergeOptions: opt, names: slices.Compact(slices.Sorted(slices.Values(names)))}
	parts := make([]*Survey, len(m.names))
	err := each(ctx, newGroup(opt.Jobs), len(m.names), func(part int) (err error) {
		parts[part], err = read(m.names[part])
		return m.about(part, err)
	}, progress)
	if err == nil {
		err = m.resolve(parts)
	}
	for part, s := range parts {
		if err == nil {
			err = m.about(part, m.add(part, s))
		}
	}
	if err != nil {
		return nil, err
	}
	return m.finish()
}

// A merger makes one survey of parts. Its indexes of paths are those of all parts together.
type merger struct {
	MergeOptions
	names  []string
	survey Survey
	paths  []mergedPath
	index  map[string]int // of paths, by name
	files  []mergedFile
}

// A mergedPath says what parts have of a path.
type mergedPath struct {
	files    bool  // some part has files of it
	complete bool  // a part has all of it, or all shards are there
	source   int   // a part that this is known from
	whole    []int // parts that have all of it
	covered  bool  // it lies in a complete path, which has its files
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
func (m *merger) resolve(parts []*Survey) error {
	m.survey = Survey{Schema: Schema, Tool: valid(m.Tool), Settings: parts[0].Settings}
	for part, h := range parts {
		switch {
		case h.Tool != m.survey.Tool:
			return m.about(part, fmt.Errorf("made by %.200q; only parts of %.200q can be merged", h.Tool,
				m.survey.Tool))
		case h.Settings != m.survey.Settings:
			return m.about(part, fmt.Errorf("made %s, but %s is made %s", h.Settings, m.name(0), m.survey.Settings))
		}
	}
	m.unite(parts)
	var pieces []Piece
	for part, h := range parts {
		around := enclosing(reals(h.Paths))
		for i, p := range h.Paths {
			if len(around(i)) > 0 || p.Partial {
				continue
			}
			path := m.index[p.Name]
			m.paths[path].whole = append(m.paths[path].whole, part)
			if err := m.complete(path, part, p.Skipped); err != nil {
				return err
			}
		}
		for _, p := range h.Shards {
			pieces = append(pieces, m.renumber(part, h.Paths, p))
		}
	}
	if err := m.uniteShards(pieces); err != nil {
		return err
	}
	return m.cover()
}

// unite collects the paths of all parts, by name.
func (m *merger) unite(parts []*Survey) {
	reals := make(map[string]string)
	for _, h := range parts {
		for _, p := range h.Paths {
			if before, ok := reals[p.Name]; !ok || p.leadsTo() < before {
				reals[p.Name] = p.leadsTo()
			}
		}
	}
	m.index = make(map[string]int)
	for i, name := range slices.Sorted(maps.Keys(reals)) {
		m.index[name] = i
		m.survey.Paths = append(m.survey.Paths, newPath(name, reals[name]))
	}
	m.paths = make([]mergedPath, len(reals))
}

// renumber returns a piece with the indexes of all paths.
func (m *merger) renumber(part int, paths []Part, p Piece) Piece {
	out := Piece{Shard: p.Shard, Digest: p.Digest, Skipped: make(map[int]Skipped), part: part}
	for _, i := range p.Paths {
		out.Paths = append(out.Paths, m.index[paths[i].Name])
	}
	for i, s := range p.Skipped {
		out.Skipped[m.index[paths[i].Name]] = s
		m.paths[m.index[paths[i].Name]].files = true
	}
	return out
}

// complete notes that all of a path is there. All that say so must agree on the files that are not examined.
func (m *merger) complete(path, part int, s Skipped) error {
	p, sums := &m.paths[path], &m.survey.Paths[path]
	if p.complete && sums.Skipped != s {
		return m.about(part, fmt.Errorf("the files of %s that are not examined (%s) differ from those of %s (%s)",
			report.Printable(sums.Name), s, m.name(p.source), sums.Skipped))
	}
	p.files, p.complete, p.source, sums.Skipped = true, true, part, s
	return nil
}

// uniteShards finds complete groups of shards, and keeps the others. Each shard counts once.
func (m *merger) uniteShards(pieces []Piece) error {
	slices.SortFunc(pieces, func(a, b Piece) int {
		return cmp.Or(slices.Compare(a.Paths, b.Paths), cmp.Compare(a.Of, b.Of), cmp.Compare(a.Index, b.Index),
			cmp.Compare(a.part, b.part))
	})
	same := func(a, b Piece) bool { return a.Shard == b.Shard && slices.Equal(a.Paths, b.Paths) }
	for i := 1; i < len(pieces); i++ {
		a, b := &pieces[i-1], &pieces[i]
		if same(*a, *b) && (a.Digest != b.Digest || !maps.Equal(a.Skipped, b.Skipped)) {
			return m.about(b.part, fmt.Errorf("shard %d of %d of %s differs from that in %s",
				b.Index, b.Of, pathNames(m.survey.Paths, b.Paths), m.name(a.part)))
		}
	}
	for _, g := range groups(slices.CompactFunc(pieces, same)) {
		if len(g) < g[0].Of {
			m.survey.Shards = append(m.survey.Shards, g...)
			continue
		}
		for path, s := range sumSkipped(g) {
			if err := m.complete(path, g[len(g)-1].part, s); err != nil {
				return err
			}
		}
	}
	return nil
}

// sumSkipped adds up what shards have not examined.
func sumSkipped(g []Piece) map[int]Skipped {
	out := maps.Clone(g[0].Skipped)
	for _, p := range g[1:] {
		for path, s := range p.Skipped {
			sum := out[path]
			sum.add(s)
			out[path] = sum
		}
	}
	return out
}

// cover finds the paths that lie in complete paths, and the missing shards of the others.
func (m *merger) cover() error {
	around := enclosing(reals(m.survey.Paths))
	complete := func(i int) bool { return m.paths[i].complete }
	for i := range m.paths {
		p := &m.paths[i]
		if p.covered = slices.ContainsFunc(around(i), complete); p.covered {
			m.survey.Paths[i].Skipped = Skipped{}
		}
	}
	incomplete := groups(m.survey.Shards)
	m.survey.Shards = nil
	var gaps []string
	for _, g := range incomplete {
		needed := false
		for path, s := range sumSkipped(g) {
			if p := &m.paths[path]; !p.complete && !p.covered {
				needed = true
				m.survey.Paths[path].Skipped = s
			}
		}
		if !needed {
			continue
		}
		for _, path := range g[0].Paths {
			m.survey.Paths[path].Partial = !m.paths[path].complete && !m.paths[path].covered
		}
		m.survey.Shards = append(m.survey.Shards, g...)
		gaps = append(gaps, missing(g, m.survey.Paths))
	}
	if len(gaps) > 0 && !m.Partial {
		return errors.New("missing: " + enumerate(gaps, 10, "path") + "; add them, or use --partial")
	}
	for i, p := range m.paths {
		if outer := around(i); p.files && !p.covered && len(outer) > 0 {
			return fmt.Errorf("%s lies in %s, which has missing shards; add them, or merge the two apart",
				report.Printable(m.survey.Paths[i].Name), report.Printable(m.survey.Paths[outer[0]].Name))
		}
	}
	return nil
}

// add adds the files of a part.
func (m *merger) add(part int, s *Survey) error {
	if err := s.check(); err != nil {
		return err
	}
	for i := 0; i < len(s.Files); {
		r, end := s.Files[i], i+1
		for r.Disk > 0 && end < len(s.Files) && s.Files[end].Disk == r.Disk && s.Files[end].disk() == r.disk() {
			end++
		}
		path := m.index[s.Paths[r.Path].Name]
		m.files = append(m.files, mergedFile{m.survey.Paths[path].place(r.disk()), path, part, s.Files[i:end]})
		for ; i < end; i++ {
			s.Files[i].Path = path
		}
	}
	of := make(map[string]int) // how many functions of the same file on the disk are before
	for _, f := range s.WorstFunctions {
		f.Path = m.index[s.Paths[f.Path].Name]
		disk := diskName(f.File, f.Disk)
		f.place, f.seq = m.survey.Paths[f.Path].place(disk), of[disk]
		of[disk]++
		if !m.paths[f.Path].covered {
			addFunction(&m.survey.WorstFunctions, f)
		}
	}
	return nil
}

// finish takes each file once, and adds all up.
func (m *merger) finish() (*Survey, error) {
	slices.SortFunc(m.files, func(a, b mergedFile) int {
		return cmp.Or(cmp.Compare(a.place, b.place), cmp.Compare(a.part, b.part))
	})
	for len(m.files) > 0 {
		n := 1
		for n < len(m.files) && m.files[n].place == m.files[0].place {
			n++
		}
		records, err := m.once(m.files[:n])
		if err != nil {
			return nil, err
		}
		m.survey.Files = append(m.survey.Files, records...)
		m.files = m.files[n:]
	}
	m.survey.sum()
	return &m.survey, nil
}

// once returns the records of a file, or none if its path is covered. Parts must have the same records of it.
func (m *merger) once(same []mergedFile) ([]*Record, error) {
	out := -1
	for i, f := range same {
		switch {
		case i > 0 && f.part == same[i-1].part:
			return nil, m.about(f.part, fmt.Errorf("%s is listed twice", f.name()))
		case !slices.EqualFunc(f.records, same[0].records, sameContents):
			return nil, m.about(f.part, fmt.Errorf("%s differs from that in %s", f.name(), m.name(same[0].part)))
		case out < 0 && !m.paths[f.path].covered:
			out = i
		}
	}
	if out < 0 {
		return nil, nil
	}
	f := &same[out]
	for _, part := range m.paths[f.path].whole {
		if !slices.ContainsFunc(same, func(g mergedFile) bool { return g.part == part }) {
			return nil, m.about(f.part, fmt.Errorf("%s is not in %s, which has all of %s",
				f.name(), m.name(part), report.Printable(m.survey.Paths[f.path].Name)))
		}
	}
	return f.records, nil
}

func (f *mergedFile) name() string { return report.Printable(f.records[0].disk()) }

// sameContents reports whether two records are equal but for the name of the file on the disk.
func sameContents(a, b *Record) bool {
	x, y := *a, *b
	x.File, y.File = x.File[len(x.disk()):], y.File[len(y.disk()):]
	x.Disk, x.Path = y.Disk, y.Path
	return reflect.DeepEqual(x, y)
}

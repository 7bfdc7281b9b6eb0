package survey

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"cfi2sframe/internal/page"
	"cfi2sframe/report"
)

// A place is a directory, a package or a file in the tree of a page.
type place struct {
	Name     string
	Files    int
	Now, Was page.Split // of all files below
	Compared bool       // Was counts
	Open     bool
	Below    []*place // the worst first, and the sum of the others

	weight uint64 // orders places: bytes that cannot be unwound, or that have changed, in each file
	below  map[string]*place
}

const (
	maxDepth  = 32  // of directories; deeper ones are one
	maxBelow  = 20  // places that are listed below each
	leastPart = 500 // places with less than this part of the weight of all are not divided
)

// split says what becomes of the code of a file in the detailed version.
func (r *Record) split() page.Split {
	lost, _ := r.lost()
	return page.NewSplit(r.Code, formatOf(r.Formats, detailed).Unwindable, lost)
}

// add adds a file, unless it has no code. Of a file that was not in one of the surveys, that Split is empty.
func (p *place) add(r *Record, now, was page.Split) {
	if now.Code+was.Code == 0 {
		return
	}
	weight := max(was.Left(), now.Left()) - min(was.Left(), now.Left())
	disk := r.disk()
	names := strings.SplitAfterN(disk, "/", maxDepth)
	if inner := r.File[len(disk):]; strings.HasPrefix(inner, "!") {
		names[len(names)-1] += "!"
		names = append(names, strings.SplitAfterN(inner[1:], "/", maxDepth)...)
	} else if inner != "" {
		names = append(names, inner)
	}
	for i := 0; ; i++ {
		p.Files++
		p.Now.Add(now)
		p.Was.Add(was)
		p.weight += weight
		if i == len(names) {
			return
		}
		next := p.below[names[i]]
		if next == nil {
			next = &place{Name: report.Printable(names[i]), Compared: p.Compared}
			if p.below == nil {
				p.below = make(map[string]*place)
			}
			p.below[names[i]] = next
		}
		p = next
	}
}

// list fills in Below, also of places with at least some weight. A directory that has one directory only is listed
// together with it. If places are compared, those without a change are not listed.
func (p *place) list(least uint64) {
	for len(p.below) == 1 {
		only := slices.Collect(maps.Values(p.below))[0]
		if only.below == nil {
			break
		}
		p.Name, p.below = p.Name+only.Name, only.below
	}
	all := slices.SortedFunc(maps.Values(p.below), func(a, b *place) int {
		return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(b.Now.Code, a.Now.Code), cmp.Compare(a.Name, b.Name))
	})
	others := place{Compared: p.Compared}
	for i, q := range all {
		if i < maxBelow && (q.weight > 0 || !p.Compared) {
			p.Below = append(p.Below, q)
			if q.weight >= least {
				q.list(least)
			}
			continue
		}
		others.Files += q.Files
		others.Now.Add(q.Now)
		others.Was.Add(q.Was)
	}
	if n := len(all) - len(p.Below); n > 0 {
		others.Name = countOf(n, "other")
		p.Below = append(p.Below, &others)
	}
}

package survey

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"cfi2sframe/internal/page"
	"cfi2sframe/report"
)

// A place is a directory or a file in the tree of a page.
type place struct {
	Name  string
	Files int
	Code  page.Split // of all files below
	Open  bool
	Below []*place // the worst first, and the sum of the others

	below map[string]*place
}

const (
	maxDepth  = 32  // of directories; deeper ones are one
	maxBelow  = 20  // places that are listed below each
	leastPart = 500 // places with less than this part of the bytes that cannot be unwound are not divided
)

// split says what becomes of the code of a file in the detailed version.
func (r *Record) split() page.Split {
	lost, _ := r.lost()
	return page.NewSplit(r.Code, formatOf(r.Formats, detailed).Unwindable, lost)
}

// add adds a file, unless it has no code.
func (p *place) add(r *Record, code page.Split) {
	if code.Code == 0 {
		return
	}
	disk := r.disk()
	names := strings.SplitAfterN(disk, "/", maxDepth)
	if inner := r.File[len(disk):]; inner != "" {
		names = append(names, inner)
	}
	for i := 0; ; i++ {
		p.Files++
		p.Code.Add(code)
		if i == len(names) {
			return
		}
		next := p.below[names[i]]
		if next == nil {
			next = &place{Name: report.Printable(names[i])}
			if p.below == nil {
				p.below = make(map[string]*place)
			}
			p.below[names[i]] = next
		}
		p = next
	}
}

// list fills in Below, also of places with at least so many bytes that cannot be unwound. A directory that has one directory only is listed
// together with it.
func (p *place) list(least uint64) {
	for len(p.below) == 1 {
		only := slices.Collect(maps.Values(p.below))[0]
		if only.below == nil {
			break
		}
		p.Name, p.below = p.Name+only.Name, only.below
	}
	all := slices.SortedFunc(maps.Values(p.below), func(a, b *place) int {
		return cmp.Or(cmp.Compare(b.Code.Left(), a.Code.Left()), cmp.Compare(b.Code.Code, a.Code.Code), cmp.Compare(a.Name, b.Name))
	})
	others := place{}
	for i, q := range all {
		if i < maxBelow {
			p.Below = append(p.Below, q)
			if q.Code.Left() >= least {
				q.list(least)
			}
			continue
		}
		others.Files += q.Files
		others.Code.Add(q.Code)
	}
	if n := len(all) - len(p.Below); n > 0 {
		others.Name = countOf(n, "other")
		p.Below = append(p.Below, &others)
	}
}

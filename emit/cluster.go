package emit

import (
	"math/rand/v2"
	"slices"

	"cfi2sframe/sframe"
)

// A cluster is a sequence of rows that are always used together and may occur anywhere in the code.
type cluster struct {
	row, rows   uint32 // index of the first row in Builder.refs, and number of rows
	size        uint32 // size of the rows in bytes, without their start addresses
	span        uint32 // distance from the start of the first row to the start of the last
	starts      uint32 // sum of the rows' distances from the start of the first row
	first, last uint32 // indexes in Builder.forms, for the first and the last row
	rest        uint32 // the cluster without its first row
}

// A place is the position of a cluster in a run or chain.
type place struct {
	gap     uint32 // distance from the start of the previous place; 0 at the start of the run or chain
	cluster uint32
}

// rowsOf returns the rows of a cluster.
func (b *Builder) rowsOf(cluster uint32) []sframe.Ref {
	c := &b.clusters[cluster]
	return b.refs[c.row:][:c.rows]
}

// align returns the number of rows in the first cluster: all rows if all is set, otherwise up to maxRows rows that
// start less than minGap bytes apart. It makes their starts relative to that of the first row.
func align(rows []sframe.Ref, all bool) int {
	n, start := 0, rows[0].Start
	for last := start; n < len(rows) && (n < maxRows && rows[n].Start-last < minGap || all); n++ {
		last = rows[n].Start
		rows[n].Start -= start
	}
	return n
}

// cluster returns the index of the cluster that consists of the given rows. Their starts must be relative to that of
// the first row.
func (b *Builder) cluster(rows []sframe.Ref) uint32 {
	hash := uint64(0)
	for _, e := range rows {
		hash = (hash ^ uint64(e.Start)<<32 ^ uint64(e.Row)) * hashFactor
	}
	i, ok := b.hashes[hash]
	for ; ok; i, ok = b.hashes[hash] {
		if slices.Equal(b.rowsOf(i), rows) {
			return i
		}
		hash++
	}
	i = uint32(len(b.clusters))
	b.hashes[hash] = i
	last := rows[len(rows)-1]
	c := cluster{
		row: uint32(len(b.refs)), rows: uint32(len(rows)), span: last.Start, first: rows[0].Row, last: last.Row,
	}
	for _, e := range rows {
		c.size += uint32(len(b.forms[e.Row]))
		c.starts += e.Start
	}
	b.refs = append(b.refs, rows...)
	b.clusters = append(b.clusters, c)
	return i
}

// addRest adds a cluster of all rows but the first of the given cluster, and stores its index in the field rest.
func (b *Builder) addRest(cluster uint32) {
	if c := &b.clusters[cluster]; c.rest == 0 && c.rows > 1 {
		rest := slices.Clone(b.rowsOf(cluster)[1:])
		rest = rest[:align(rest, true)]
		b.clusters[cluster].rest = b.cluster(rest)
	}
}

// hashFactor is odd, so no bits are lost in products. It is random, so a hostile file cannot contain many rows with the
// same hash. Its value does not affect the section.
var hashFactor = rand.Uint64() | 1

// merge adds the functions of another Builder.
func (b *Builder) merge(p *Builder) {
	forms := make([]uint32, len(p.forms))
	for i, form := range p.forms {
		forms[i] = b.form(form)
	}
	clusters := make([]uint32, len(p.clusters))
	for i := 1; i < len(clusters); i++ {
		b.rows = append(b.rows[:0], p.rowsOf(uint32(i))...)
		for j := range b.rows {
			b.rows[j].Row = forms[b.rows[j].Row]
		}
		clusters[i] = b.cluster(b.rows)
	}
	for i, c := range p.clusters {
		if c.rest > 0 {
			b.clusters[clusters[i]].rest = clusters[c.rest]
		}
	}
	firstPlace, firstRun := uint32(len(b.places)), uint32(len(b.runs))
	b.places = slices.Grow(b.places, len(p.places))
	b.runs, b.uses = slices.Grow(b.runs, len(p.runs)), slices.Grow(b.uses, len(p.uses))
	for _, e := range p.places {
		b.places = append(b.places, place{e.gap, clusters[e.cluster]})
	}
	for _, r := range p.runs {
		r.first += firstPlace
		r.class = b.class(p.classes[r.class], p.classes[r.class].Flexible)
		b.runs = append(b.runs, r)
	}
	for _, u := range p.uses {
		u.run += firstRun
		b.uses = append(b.uses, u)
	}
}

package emit

import (
	"cmp"
	"encoding/binary"
	"slices"

	"cfi2sframe/sframe"
)

// Functions that follow each other without a gap are gathered into one run, up to so many of them and
// so many rows: readers go through the rows of an FDE one after the other.
const (
	maxGathered = 16
	maxTogether = 48 // rows
)

// gather returns one Builder for all parts. Its uses are in the order of their addresses, equal runs are one, and
// functions that nothing lies between are one run if an FDE can describe them together. None of this depends
// on how the functions are divided into parts.
func gather(parts []*Builder) *Builder {
	g := gatherer{
		b:     &Builder{opt: parts[0].opt, codec: parts[0].codec, layout: parts[0].layout},
		parts: parts, forms: make([][]uint32, len(parts)), alone: make([][]uint32, len(parts)), runs: make(map[string]uint32),
	}
	type forms struct {
		form [2]form
		long [2]string
	}
	numbers := make(map[forms]uint32)
	var all []partUse
	for i, p := range parts {
		for row := range p.forms[0] {
			var f forms
			for t := range f.form {
				f.form[t], f.long[t] = p.forms[t][row], string(p.long[t][row])
			}
			n, ok := numbers[f]
			if !ok {
				n = uint32(len(numbers))
				numbers[f] = n
				for t := range f.form {
					g.b.forms[t], g.b.long[t] = append(g.b.forms[t], f.form[t]), append(g.b.long[t], p.long[t][row])
				}
			}
			g.forms[i] = append(g.forms[i], n)
		}
		g.alone[i] = make([]uint32, len(p.runs))
		for _, u := range p.uses {
			all = append(all, partUse{u, i})
		}
	}
	byStart := func(x, y partUse) int { return cmp.Compare(x.start, y.start) }
	if !slices.IsSortedFunc(all, byStart) {
		slices.SortStableFunc(all, byStart)
	}
	for len(all) > 0 {
		n := g.together(all)
		g.add(all[:n])
		all = all[n:]
	}
	return g.b
}

// A gatherer does the work of gather.
type gatherer struct {
	b     *Builder
	parts []*Builder
	forms [][]uint32        // of each part, from its forms to all
	alone [][]uint32        // of each part, from its runs to those of b, plus 1, where a use is one
	runs  map[string]uint32 // of b, by what they say
	key   []byte
}

// A partUse is a use of a part's run.
type partUse struct {
	use
	part int
}

func (g *gatherer) run(u *partUse) *run { return &g.parts[u.part].runs[u.run] }

// together returns how many of the first uses become one.
func (g *gatherer) together(all []partUse) int {
	first := g.run(&all[0])
	if first.pcMask {
		return 1
	}
	rows, size := first.num, uint64(all[0].size)
	n := 1
	for ; n < min(len(all), maxGathered); n++ {
		next, u := g.run(&all[n]), &all[n]
		rows += next.num
		size += uint64(u.size)
		if u.start != all[0].start+size-uint64(u.size) || rows > maxTogether || size != uint64(uint32(size)) || next.fde(0, 0) != first.fde(0, 0) {
			break
		}
	}
	return n
}

// add adds uses that become one.
func (g *gatherer) add(uses []partUse) {
	last := &uses[len(uses)-1]
	u := use{start: uses[0].start, size: uint32(last.start + uint64(last.size) - uses[0].start)}
	known := new(uint32)
	if len(uses) == 1 {
		known = &g.alone[last.part][last.run]
	}
	if *known == 0 {
		*known = g.addRun(uses) + 1
	}
	u.run = *known - 1
	g.b.runs[u.run].uses++
	g.b.uses = append(g.b.uses, u)
}

// addRun returns the run that uses have together, which is added if it is not there yet.
func (g *gatherer) addRun(uses []partUse) uint32 {
	b := g.b
	r := *g.run(&uses[0])
	r = run{row: uint32(len(b.rows)), pcMask: r.pcMask, keyB: r.keyB, signal: r.signal, flexible: r.flexible, repSize: r.repSize}
	size := 0
	for i := range uses {
		p, u := g.parts[uses[i].part], g.run(&uses[i])
		from := uint32(uses[i].start-uses[0].start) - u.base
		for _, e := range p.rows[u.row : u.row+u.num] {
			e = sframe.Ref{Start: from + e.Start, Row: g.forms[uses[i].part][e.Row]}
			if n := len(b.rows); n == int(r.row) || b.rows[n-1].Row != e.Row {
				b.rows = append(b.rows, e)
				size += sframe.Addr4.Size() + int(b.form(e.Row, r.flexible).size)
			}
		}
	}
	r.num = uint32(len(b.rows)) - r.row
	r.whole = r.pcMask || size <= b.layout.FDESize // as addRun of a Builder says
	g.key = append(g.key[:0], r.class(), r.repSize)
	for _, e := range b.rows[r.row:] {
		g.key = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(g.key, e.Start), e.Row)
	}
	n, ok := g.runs[string(g.key)]
	if ok {
		b.rows = b.rows[:r.row]
		return n
	}
	n = uint32(len(b.runs))
	g.runs[string(g.key)] = n
	b.runs = append(b.runs, r)
	return n
}

// class returns what FDEs with rows of the run have in common, but for the size of blocks.
func (r *run) class() (c uint8) {
	for i, is := range [...]bool{r.pcMask, r.keyB, r.signal, r.flexible} {
		if is {
			c |= 1 << i
		}
	}
	return c
}

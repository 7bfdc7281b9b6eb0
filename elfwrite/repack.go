package elfwrite

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"slices"

	"cfi2sframe/elffile"
)

// smallHole is the cost at which the search for a cheaper packing ends. It must be less than the size of .dynamic:
// patchelf --set-rpath moves .dynamic to unused space even if that is not writable.
const smallHole = 384

// headPrice is the extra cost, in bytes, of moving .dynstr or .interp rather than other sections. patchelf --set-rpath
// reuses the space of all sections up to .dynstr for .dynamic, or space in the head if .dynstr is elsewhere. The
// position of .interp cannot be restored: linkers place it first, or after the build-id.
const headPrice = 4 << 10

// maxChoices is the number of units for which both the head and the new segment are tried: .interp, and nine sections
// that dynamic entries locate.
const maxChoices = 10

// A room is a way to free bytes after the program headers.
type room struct {
	units  []*unit        // all units that move, including those from an earlier run
	spaces []elffile.Span // space in the head
	unused elffile.Span   // bytes after the table that do not move; to be cleared
}

// A packing divides units between the segment of the program headers, the head, and the new segment.
type packing struct {
	kept   []place // in the head
	moved  []*unit // in the new segment
	unused elffile.Span
	cost   uint64 // cost of moving units to the new segment: their size in bytes, plus any headPrice
}

// rooms calls fn with ways to free bytes after the program headers, until fn returns true: with as few movable
// sections as possible, then with one more, and so on. The bytes in tail, which follow the head, can be used as well.
// The error tells why no more sections can move.
func (p *Program) rooms(t *table, tail elffile.Span, fn func(*room) bool) error {
	if p.head == nil {
		return errors.New("no loaded segment contains the table")
	}
	begin, end, headEnd := p.oldTable().End, t.end(), fileSpan(p.head).End
	units := slices.Clip(p.returned)
	for at := begin; ; {
		next := min(p.next(at), headEnd)
		limit := next
		if next == headEnd { // all bytes up to the end of the segment may be free
			limit = max(next, tail.End)
		}
		free := p.isPadding(span(at, next))
		if (at > begin || limit > next) && limit >= end && free {
			w := &room{units: units, spaces: []elffile.Span{span(end, limit), tail}, unused: span(begin, next)}
			if fn(w) {
				return nil
			}
		}
		switch {
		case next == headEnd:
			return fmt.Errorf("the segment ends at file offset %#x", next)
		case !free:
			return p.errUnknownAt(at)
		case len(units) == maxUnits:
			return fmt.Errorf("more than %d sections would have to move", maxUnits)
		}
		u, err := p.unit(next, p.head, t.progs)
		if err != nil {
			return err
		}
		units = append(units, u)
		at = u.End
	}
}

// errUnknownAt returns the error for bytes of unknown purpose at a file offset.
func (p *Program) errUnknownAt(off uint64) error {
	if len(p.f.Sections) == 0 {
		return fmt.Errorf("without section headers, the bytes at file offset %#x cannot move", off)
	}
	return fmt.Errorf("bytes at file offset %#x belong to no section", off)
}

// repack frees bytes after the program headers by moving the units that occupy them: within the head, to the bytes in
// tail after it (the head grows), or to the new segment. At most the given number of bytes move to the new segment.
func (p *Program) repack(t *table, tail elffile.Span, most uint64) error {
	var best *packing
	err := p.rooms(t, tail, func(r *room) bool {
		best = cheaper(best, r.cheapest(p.head))
		return best != nil && best.cost <= smallHole
	})
	switch {
	case best == nil:
	case best.cost > most:
		err = fmt.Errorf("%d bytes would have to move", best.cost)
	default:
		t.packing = *best
		return nil
	}
	return fmt.Errorf("%w for %d more program headers: %w", ErrNoRoom, len(t.progs)+newHeaders-len(p.f.Progs), err)
}

// cheaper returns the packing that costs less, or the first. Either may be nil.
func cheaper(a, b *packing) *packing {
	if a == nil || b != nil && b.cost < a.cost {
		return b
	}
	return a
}

// cheapest returns the cheapest packing, or nil if the space in the head never suffices.
func (r *room) cheapest(head *elf.Prog64) *packing {
	n := 0
	for _, u := range r.units {
		if u.hasChoice() && n < maxChoices {
			n++
		}
	}
	var best *packing
	for choice := range uint(1) << n {
		best = cheaper(best, r.pack(head, choice))
	}
	return best
}

// hasChoice reports whether the unit can be placed either in the head or in the new segment. Notes always stay in the
// head.
func (u *unit) hasChoice() bool { return !u.returned && !u.notes }

// pack moves units to the new segment: those in choice, a bit set, and those that an earlier run moved. It places the
// other units into the spaces, in order. If they do not fit, it returns nil.
func (r *room) pack(head *elf.Prog64, choice uint) *packing {
	w, spaces := packing{unused: r.unused}, slices.Clone(r.spaces)
	for _, u := range r.units {
		moves := u.returned
		if u.hasChoice() {
			moves = choice&1 != 0
			choice >>= 1
		}
		if moves {
			w.moved = append(w.moved, u)
			w.cost += u.price()
			continue
		}
		at, ok := u.placeIn(head, spaces)
		if !ok {
			return nil
		}
		w.kept = append(w.kept, at)
	}
	return &w
}

// price is the cost of moving the unit to the new segment. Units that an earlier run moved are already in that segment.
func (u *unit) price() uint64 {
	switch {
	case u.returned:
		return 0
	case u.located == nil || u.located.tag == elf.DT_STRTAB: // .interp or .dynstr
		return u.Size() + headPrice
	}
	return u.Size()
}

// shrinkTable removes the headers of the old .sframe. Units of an earlier run return to the head, where linkers place
// them: after the table, without gaps, in the order of their headers. If they do not fit, all of them stay in their
// segment.
func (p *Program) shrinkTable() *table {
	t := p.newTable()
	if len(p.returned) == 0 || len(p.f.Sections) == 0 {
		return t
	}
	found := false
	_ = p.rooms(t, elffile.Span{}, func(r *room) bool {
		if r.unused.End < fileSpan(p.head).End && p.belongsAfter(r.units, r.unused.End) {
			return false
		}
		w := packing{unused: r.unused}
		for _, u := range linkerOrder(r.units) {
			at, ok := u.placeIn(p.head, r.spaces)
			if !ok {
				return false
			}
			w.kept = append(w.kept, at)
		}
		// Linkers leave no gap before the next section except for alignment. If there is a larger gap, the next section
		// has moved as well.
		i, end := p.headerAt(r.unused.End), p.head.Vaddr+(r.spaces[0].Begin-p.head.Off)
		whole := i < 0 || elffile.AlignUp(end, elffile.ValidAlign(p.f.Sections[i].Addralign)) == p.f.Sections[i].Addr
		if whole || !found {
			t.packing, found = w, true
		}
		return whole
	})
	return t
}

// belongsAfter reports whether a unit that returns to the head belongs after the section at file offset off in the
// head. Headers of sections located by dynamic entries keep their order.
func (p *Program) belongsAfter(units []*unit, off uint64) bool {
	i := p.headerAt(off)
	returns := func(u *unit) bool { return u.returned && u.located != nil && u.section > i }
	return slices.ContainsFunc(units, returns)
}

// linkerOrder returns the units in the order in which linkers place them, which is that of the section headers. Units
// of .interp and of notes that an earlier run moved come first, because moving them also changed the order of their
// headers.
func linkerOrder(units []*unit) []*unit {
	rank := func(u *unit) int {
		if u.returned && u.located == nil {
			return -1
		}
		return u.section
	}
	byRank := func(a, b *unit) int { return cmp.Compare(rank(a), rank(b)) }
	return slices.SortedStableFunc(slices.Values(units), byRank)
}

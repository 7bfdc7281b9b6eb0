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

// A packing is a way to free bytes after the program headers.
type packing struct {
	units  []*unit        // all units that move, including those from an earlier run
	spaces []elffile.Span // space in the head
	unused elffile.Span   // bytes after the table that do not move
	choice uint           // bit set of the units that move to the new segment
	cost   uint64         // cost of moving these units: their size in bytes, plus any headPrice
}

// packings calls fn with ways to free bytes after the program headers, until fn returns true: with as few movable
// sections as possible, then with one more, and so on. The bytes in tail, which follow the head, can be used as well.
// The error tells why no more sections can move.
func (p *program) packings(t *table, tail elffile.Span, fn func(*packing) bool) error {
	if p.head == nil {
		return errors.New("no loaded segment contains the table")
	}
	begin, end, headEnd := p.oldTable().End, t.end(), fileSpan(p.head).End
	units := slices.Clone(p.returned)
	for at := begin; ; {
		next := min(p.next(at), headEnd)
		limit := next
		if next == headEnd { // all bytes up to the end of the segment may be free
			limit = max(next, tail.End)
		}
		free := p.isPadding(span(at, next))
		if (at > begin || limit > next) && limit >= end && free {
			w := &packing{units: units, spaces: []elffile.Span{span(end, limit), tail}, unused: span(begin, next)}
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
func (p *program) errUnknownAt(off uint64) error {
	if len(p.f.Sections) == 0 {
		return fmt.Errorf("without section headers, the bytes at file offset %#x cannot move", off)
	}
	return fmt.Errorf("bytes at file offset %#x belong to no section", off)
}

// repack frees bytes after the program headers by moving the units that occupy them: within the head, to the bytes in
// tail after it (the head grows), or to the new segment. At most the given number of bytes move to the new segment.
func (p *program) repack(t *table, tail elffile.Span, most uint64) error {
	var best *packing
	err := p.packings(t, tail, func(w *packing) bool {
		if w.choose(p.head) && (best == nil || w.cost < best.cost) {
			best = w
		}
		return best != nil && best.cost <= smallHole
	})
	switch {
	case best == nil:
	case best.cost > most:
		err = fmt.Errorf("%d bytes would have to move", best.cost)
	default:
		best.pack(p.head)
		t.units, t.unused = best.units, best.unused
		return nil
	}
	return fmt.Errorf("%w for %d more program headers: %w", ErrNoRoom, len(t.progs)+newHeaders-len(p.f.Progs), err)
}

// choose selects the units that move to the new segment: of all sets that leave enough space for the remaining units,
// the cheapest. It reports whether such a set exists.
func (w *packing) choose(head *elf.Prog64) bool {
	n := 0
	for _, u := range w.units {
		if u.hasChoice() && n < maxChoices {
			n++
		}
	}
	found, best := false, packing{}
	for w.choice = range uint(1) << n {
		if w.pack(head) && (!found || w.cost < best.cost) {
			found, best = true, *w
		}
	}
	w.choice, w.cost = best.choice, best.cost
	return found
}

// hasChoice reports whether the unit can be placed either in the head or in the new segment. Notes always stay in the
// head.
func (u *unit) hasChoice() bool { return !u.returned && !u.notes }

// pack places the units into the spaces, in order. It skips units that an earlier run moved, and units in choice. It
// reports whether all other units fit.
func (w *packing) pack(head *elf.Prog64) bool {
	spaces, choice := slices.Clone(w.spaces), w.choice
	w.cost = 0
	for _, u := range w.units {
		moves := u.returned
		if u.hasChoice() {
			moves = choice&1 != 0
			choice >>= 1
		}
		switch {
		case moves:
			u.inHead = false
			w.cost += u.price()
		case !u.placeIn(head, spaces):
			return false
		}
	}
	return true
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

// restore moves the units of an earlier run back to the head, where linkers place them: after the table, without gaps,
// in the order of their headers. If they do not fit, all of them stay in their segment.
func (p *program) restore(t *table) {
	var best *packing
	_ = p.packings(t, elffile.Span{}, func(w *packing) bool {
		if w.unused.End < fileSpan(p.head).End && p.belongsAfter(w.units, w.unused.End) {
			return false
		}
		w.units = linkerOrder(w.units)
		end, ok := w.putBack(p.head)
		if !ok {
			return false
		}
		// Linkers leave no gap before the next section except for alignment. If there is a larger gap, the next section
		// has moved as well.
		i := p.headerAt(w.unused.End)
		whole := i < 0 || elffile.AlignUp(end, elffile.ValidAlign(p.f.Sections[i].Addralign)) == p.f.Sections[i].Addr
		if whole || best == nil {
			best = w
		}
		return whole
	})
	if best == nil {
		for _, u := range t.units {
			u.inHead = false // set by attempts for the first units
		}
		return
	}
	best.putBack(p.head)
	t.units, t.unused = best.units, best.unused
}

// putBack places all units in the head, and returns the address of their end. It reports whether they fit.
func (w *packing) putBack(head *elf.Prog64) (end uint64, ok bool) {
	spaces := slices.Clone(w.spaces)
	for _, u := range w.units {
		if !u.placeIn(head, spaces) {
			return 0, false
		}
	}
	return head.Vaddr + (spaces[0].Begin - head.Off), true
}

// belongsAfter reports whether a unit that returns to the head belongs after the section at file offset off in the
// head. Headers of sections located by dynamic entries keep their order.
func (p *program) belongsAfter(units []*unit, off uint64) bool {
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

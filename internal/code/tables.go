package code

import (
	"encoding/binary"
	"slices"

	"cfi2sframe/internal/insn"
)

// A jumpTable holds the targets of an indirect jump.
type jumpTable struct {
	value    value
	targets  []uint64
	first    []uint64 // those with an index below maxFirst
	computed bool     // the jump is to an address of code plus an unknown number
}

const (
	maxDistance = 1 << 16 // between a jump and its targets, in bytes
	maxEntries  = 2048
	maxFirst    = 4 // number of leading entries that may be invalid: hand-written code may index from 1
)

// targets reads the table for the jump at pc. The table ends at the first entry that is not a target, or at an address
// to which code refers. Zero distances are not targets; they fill unused entries.
func (w *flow) targets(pc uint64, v value) (out, first []uint64) {
	size, base := int(v.reg&entrySize), uint64(0)
	if v.kind == target {
		base = uint64(w.sites[v.site].at)
	}
	table := uint64(int64(v.off))
	if v.reg&multiplied != 0 {
		return w.multiples(table, base, v), nil
	}
	if size == 1 {
		return nil, nil
	}
	b := w.Data(table, size*maxEntries)
	end := len(b)
	if i, _ := slices.BinarySearch(w.refs, table+1); i < len(w.refs) {
		end = int(min(uint64(end), w.refs[i]-table))
	}
	for i := 0; (i+1)*size <= end; i++ {
		var to uint64
		switch e := b[i*size:]; size {
		case 8:
			to = binary.LittleEndian.Uint64(e)
		case 4:
			to = base + uint64(int32(binary.LittleEndian.Uint32(e)))
		case 2:
			to = base + uint64(binary.LittleEndian.Uint16(e))
			if v.reg&backward != 0 {
				to = 2*base - to
			}
		}
		switch {
		case to == base && w.isCode(base): // an unused entry
		case to != base && (size == 8 || to+maxDistance-pc <= 2*maxDistance) && !w.never[to] && w.isPlausible(to):
			if len(out) == 0 { // if indexes start at i, references to the next table are i entries too low
				end = min(end+i*size, len(b))
			}
			if size == 8 && w.goes(to) == tail { // a table of functions, after which other tables follow
				return nil, nil
			}
			if out = append(out, to); i < maxFirst {
				first = append(first, to)
			}
		case i >= maxFirst:
			return sorted(out), first
		}
	}
	return sorted(out), first
}

// multiples reads a table of distances in instructions. The compiler knows the number of entries, and all are targets.
func (w *flow) multiples(table, base uint64, v value) (out []uint64) {
	size, n := int(v.reg&entrySize), int(w.sites[v.site].entries)
	b := w.Data(table, size*n)
	if len(b) < size*n || !w.isCode(base) {
		return nil
	}
	for ; len(b) > 0; b = b[size:] {
		var word [4]byte
		copy(word[:], b[:size])
		d := int64(binary.LittleEndian.Uint32(word[:]))
		if unused := 64 - 8*size; v.reg&negative != 0 {
			d = d << unused >> unused
		}
		to := base + uint64(4*d)
		if w.never[to] || !w.isPlausible(to) {
			return nil
		}
		out = append(out, to)
	}
	return sorted(out)
}

// extends reports whether two values are targets of the same table, of which v may have more entries.
func (w *flow) extends(v, old value) bool {
	if v.kind != target || old.kind != target || v.reg != old.reg || v.off != old.off {
		return false
	}
	p, q := w.sites[v.site], w.sites[old.site]
	return p.at == q.at && p.entries > q.entries && q.entries > 0
}

// excludesOthers excludes the first entries of tables that lead to other functions, if some entries do not and the
// function has no rows or goes on in other functions. It reports whether there are any. Hand-written code that indexes
// from 2 shares these entries with the preceding table. Code that may be a label is not examined again.
func (w *flow) excludesOthers() (found bool) {
	if x := w.finished; x.odd == 0 && len(x.cross) == 0 || w.body.trust >= loose {
		return false
	}
	for pc, t := range w.tables {
		if !slices.ContainsFunc(t.targets, func(to uint64) bool { return !w.isBetween(pc, to) }) {
			continue
		}
		for _, to := range t.first {
			if !w.isBetween(pc, to) {
				break
			}
			w.exclude(to)
			found = true
		}
	}
	return found
}

// isBetween reports whether a function starts between two addresses: an aligned address that is referred to.
func (f *finder) isBetween(pc, to uint64) bool {
	for at := (min(pc, to) + 16) &^ 15; at <= max(pc, to) && f.isCode(at); at += 16 {
		_, refers := slices.BinarySearch(f.refs, at)
		if (refers || f.hasMarks(at, enters)) && f.mayStart(at) {
			return true
		}
	}
	return false
}

// maxPlausible bounds the number of instructions that are decoded to judge a target.
const maxPlausible = 64

// isPlausible reports whether the code at pc decodes up to an instruction that does not fall through, or to code
// already reached. Code that starts with a jump through a register is not plausible: it belongs to another table.
func (f *finder) isPlausible(pc uint64) bool {
	if !f.isInStep(pc) {
		return false
	}
	if in, ok := f.decode(pc); ok && in.Op == insn.JumpReg {
		return false
	}
	for range maxPlausible {
		m := f.mark(pc)
		switch {
		case m == nil:
			return false
		case *m&begins != 0:
			return true
		case *m&inside != 0:
			return false
		}
		in, ok := f.decode(pc)
		if !ok {
			return false
		}
		if in.Op.Leaves() {
			return true
		}
		pc += uint64(in.Size)
	}
	return true
}

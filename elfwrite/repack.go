package elfwrite

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"math"
	"slices"

	"cfi2sframe/elffile"
	"cfi2sframe/sframe"
)

// A unit is a part of the file that moves as a whole: a section, or the sections of a PT_NOTE.
type unit struct {
	elffile.Span        // in the old file
	addr         uint64 // in the old image
	align        uint64
	section      int     // index of its first section, or -1
	returned     bool    // an earlier run moved it to a segment that is laid out anew
	located      *dynTag // leads here; nil for .interp and notes
	notes        bool    // a PT_NOTE leads to it
	buildID      bool
	inHead       bool   // is in the segment of the program headers
	off          uint64 // in the new file
	newAddr      uint64

	distances []uint64 // file offsets of contents of notes that count from themselves
}

func (u *unit) size() uint64 { return u.End - u.Begin }

// maxUnits is how many units may move. One or two do in practice.
const maxUnits = 64

// unitAt returns the unit that a part of the old file lies in, or nil.
func (p *planner) unitAt(s elffile.Span) *unit {
	i := slices.IndexFunc(p.units, func(u *unit) bool { return s.Begin < s.End && u.Contains(s) })
	if i < 0 {
		return nil
	}
	return p.units[i]
}

// smallHole is how many bytes may move to the new segment without a search for fewer. They must be fewer than .dynamic
// has: patchelf --set-rpath moves that to unused space although it is not writable.
const smallHole = 384

// headPrice is how many bytes more of others move to spare .dynstr and .interp. patchelf --set-rpath uses the space of
// all sections up to .dynstr, or space in the head if that is elsewhere, for .dynamic. The place of .interp cannot be
// restored: linkers have it first, or after the build-id.
const headPrice = 4 << 10

// A packing is a way to free bytes after the program headers.
type packing struct {
	units  int            // how many of them are packed anew
	moved  uint64         // bytes that go to the new segment
	mask   uint           // which units go there, of those of the head that are no notes
	spaces []elffile.Span // for those that stay
	zeros  elffile.Span
}

// repack frees bytes after the program header table by moving the units there, in the head and to the bytes tail after
// it, by which it grows. At most the given number of bytes go to the new segment.
func (p *planner) repack(tail elffile.Span, most uint64) error {
	before, after := p.table()
	best := packing{moved: math.MaxUint64}
	err := p.search(&best, before, after, tail)
	if best.moved < math.MaxUint64 {
		err = nil
		if best.moved > most {
			err = fmt.Errorf("%d bytes would have to move", best.moved)
		}
	}
	if err != nil {
		return fmt.Errorf("%w for %d more program headers: %w", ErrNoRoom, len(p.progs)+newHeaders-len(p.f.Progs), err)
	}
	p.units = p.units[:best.units]
	p.pack(&best)
	if p.remove && best.moved > 0 { // lld may have left space for a program header
		later := best
		later.spaces = slices.Clone(best.spaces)
		later.spaces[0].Begin += (best.spaces[0].End - p.headEnd(after.End)) &^ (tableAlign - 1)
		if moved, ok := p.pack(&later); !ok || moved > 0 {
			p.pack(&best)
		}
	}
	p.zeros = append(p.zeros, best.zeros)
	if end := p.headEnd(after.End); end > fileSpan(&p.f.Progs[p.head]).End {
		p.grown = end
	}
	return nil
}

// search finds the best packing of the first units after the program header table, and adds these to the units. It
// returns why there cannot be more of them.
func (p *planner) search(best *packing, before, after, tail elffile.Span) error {
	if p.head < 0 {
		return errors.New("no loaded segment holds the table")
	}
	head := &p.f.Progs[p.head]
	for at := before.End; best.moved > smallHole; {
		next := min(p.next(at), fileSpan(head).End)
		whole := next == fileSpan(head).End // the segment could be free up to its end
		limit := next
		if whole {
			limit = max(next, tail.End)
		}
		free := p.free(span(at, next))
		if (at > before.End || limit > next) && limit >= after.End && free && (whole || !p.belongsAfter(next)) {
			p.choose(best, packing{units: len(p.units), spaces: []elffile.Span{span(after.End, limit), tail},
				zeros: span(before.End, next)})
		}
		switch {
		case whole:
			return fmt.Errorf("the segment ends at file offset %#x", next)
		case !free:
			return p.unknown(at)
		case len(p.units) == maxUnits:
			return fmt.Errorf("more than %d sections would have to move", maxUnits)
		}
		u, err := p.unit(next, head)
		if err != nil {
			return err
		}
		p.units = append(p.units, u)
		at = u.End
	}
	return nil
}

// unknown is the error for bytes at a file offset that may be anything.
func (p *planner) unknown(off uint64) error {
	if len(p.f.Sections) == 0 {
		return fmt.Errorf("without section headers it is not known what may move at file offset %#x", off)
	}
	return fmt.Errorf("bytes at file offset %#x belong to no section", off)
}

// belongsAfter reports whether a unit that returns to the head belongs after the section at a file offset there.
// Headers of sections that dynamic entries locate keep their order.
func (p *planner) belongsAfter(off uint64) bool {
	i := p.headerAt(off)
	returns := func(u *unit) bool { return u.returned && u.located != nil && u.section > i }
	return p.remove && slices.ContainsFunc(p.units, returns)
}

// linkerOrder returns the units as linkers order them: by their headers. Only .interp and notes have other headers in
// the new segment; they come first.
func (p *planner) linkerOrder() []*unit {
	rank := func(u *unit) int {
		if u.returned && u.located == nil {
			return -1
		}
		return u.section
	}
	byRank := func(a, b *unit) int { return cmp.Compare(rank(a), rank(b)) }
	return slices.SortedStableFunc(slices.Values(p.units), byRank)
}

// maxChoices is how many units are tried both ways, in the head and in the new segment: .interp, and nine sections that
// dynamic entries locate.
const maxChoices = 10

// choose finds the units that go to the new segment, with the fewest bytes, and makes that the best way if it is
// better.
func (p *planner) choose(best *packing, way packing) {
	choices := 0
	for _, u := range p.units {
		if !u.returned && !u.notes && !p.remove && choices < maxChoices {
			choices++
		}
	}
	for way.mask = range uint(1) << choices {
		if moved, ok := p.pack(&way); ok && moved < best.moved {
			*best = way
			best.moved = moved
		}
	}
}

// headEnd returns where in the new file the table, which ends at an offset, and the units that stay with it end.
func (p *planner) headEnd(table uint64) uint64 {
	end := table
	for _, u := range p.units {
		if u.inHead {
			end = max(end, u.off+u.size())
		}
	}
	return end
}

// headerAt returns the index of the section at the given file offset, or -1.
func (p *planner) headerAt(off uint64) int {
	return slices.IndexFunc(p.f.Sections, func(s elffile.Section) bool {
		return s.Off == off && s.HasBytes() && s.Size > 0
	})
}

// thingAt returns the section at the given file offset; in a file without section headers, the contents of PT_INTERP or
// of a PT_NOTE as if it were one.
func (p *planner) thingAt(off uint64) (elffile.Section, bool) {
	if i := p.headerAt(off); i >= 0 {
		return p.f.Sections[i], true
	}
	if len(p.f.Sections) > 0 {
		return elffile.Section{}, false
	}
	for i := range p.f.Progs {
		h := &p.f.Progs[i]
		types := map[elf.ProgType]elf.SectionType{elf.PT_INTERP: elf.SHT_PROGBITS, elf.PT_NOTE: elf.SHT_NOTE}
		if t, ok := types[elf.ProgType(h.Type)]; ok && h.Off == off && h.Filesz > 0 {
			return elffile.Section{Name: elf.ProgType(h.Type).String(), Section64: elf.Section64{
				Type: uint32(t), Flags: uint64(elf.SHF_ALLOC), Addr: h.Vaddr, Off: h.Off, Size: h.Filesz,
				Addralign: h.Align,
			}}, true
		}
	}
	return elffile.Section{}, false
}

// unit returns the movable unit that begins at a file offset, in the given segment.
func (p *planner) unit(off uint64, load *elf.Prog64) (*unit, error) {
	s, ok := p.thingAt(off)
	if !ok {
		return nil, p.unknown(off)
	}
	u := &unit{Span: sectionSpan(&s), addr: s.Addr, align: elffile.ValidAlign(s.Addralign), section: p.headerAt(off)}
	if err := p.checkUnit(u, &s, load); err != nil {
		return nil, fmt.Errorf("%s at file offset %#x cannot be moved: %w", s.Name, off, err)
	}
	return u, nil
}

// checkUnit completes the unit u that begins with a section. It returns an error if code may have its address.
func (p *planner) checkUnit(u *unit, s *elffile.Section, load *elf.Prog64) error {
	const fixed = elf.SHF_WRITE | elf.SHF_EXECINSTR | elf.SHF_TLS
	if u.align > p.page || !s.Alloc() || elf.SectionFlag(s.Flags)&fixed != 0 || s.Addr-load.Vaddr != s.Off-load.Off {
		return errNotFound
	}
	switch {
	case p.isInterp(u.Span):
	case elf.SectionType(s.Type) == elf.SHT_NOTE:
		if err := p.noteUnit(u); err != nil {
			return err
		}
	default:
		for i := range p.tags {
			t := &p.tags[i]
			if t.value != s.Addr {
				continue
			}
			if !t.movable || t.size != 0 && t.size != s.Size {
				return errNotFound
			}
			u.located = t
		}
		if u.located == nil {
			return errNotFound
		}
	}
	if err := p.checkHeaders(u, true); err != nil {
		return err
	}
	return p.refersTo(span(u.addr, u.addr+u.size()))
}

// errNotFound is why most sections stay.
var errNotFound = errors.New("code finds it by its address, not by a header or a dynamic entry")

// checkHeaders returns an error if headers or dynamic entries lead into u. Those of its parts may, if it moves with
// them.
func (p *planner) checkHeaders(u *unit, moves bool) error {
	for _, t := range p.tags {
		if t.value-u.addr < u.size() && !(u.located != nil && t.entry == u.located.entry) {
			return fmt.Errorf("dynamic entry %d leads into it", t.entry)
		}
	}
	for i := range p.f.Progs {
		h := &p.f.Progs[i]
		switch t := elf.ProgType(h.Type); t {
		case elf.PT_LOAD, elf.PT_PHDR, elf.PT_NULL, elf.ProgType(sframe.PTGNUSFrame):
		default:
			if h.Filesz > 0 && fileSpan(h).Overlaps(u.Span) && !(moves && u.located == nil && u.Contains(fileSpan(h))) {
				return fmt.Errorf("program header %d (%v) overlaps it", i, t)
			}
		}
	}
	for i := range p.f.Sections {
		s := &p.f.Sections[i]
		part := i == u.section || moves && u.Contains(sectionSpan(s))
		if s.HasBytes() && s.Size > 0 && sectionSpan(s).Overlaps(u.Span) && !part {
			return fmt.Errorf("section %d (%s) overlaps it", i, s.Name)
		}
	}
	return nil
}

func (p *planner) isInterp(s elffile.Span) bool {
	h := p.f.Prog(elf.PT_INTERP)
	return h != nil && fileSpan(h) == s
}

// pack puts the units into the spaces, in their order: all if .sframe is removed, or else all but those of an earlier
// segment and those that the mask names. It returns how many bytes go to the new segment for that, and reports whether
// the others fit.
func (p *planner) pack(way *packing) (moved uint64, ok bool) {
	head, spaces := &p.f.Progs[p.head], slices.Clone(way.spaces)
	ok = true
	if p.remove {
		for _, u := range p.linkerOrder() {
			ok = u.put(head, spaces) && ok
		}
		// Linkers leave no bytes before the next section but for its alignment. If some are left, it has moved as well.
		end := head.Vaddr + (spaces[0].Begin - head.Off)
		if i := p.headerAt(spaces[0].End); i >= 0 {
			if s := &p.f.Sections[i]; elffile.AlignUp(end, elffile.ValidAlign(s.Addralign)) != s.Addr {
				moved = smallHole + 1
			}
		}
		return moved, ok
	}
	mask := way.mask
	for _, u := range p.units {
		u.inHead = false
		if u.returned {
			continue
		}
		moves := !u.notes && mask&1 != 0
		if !u.notes {
			mask >>= 1
		}
		if !moves {
			ok = u.put(head, spaces) && ok
			continue
		}
		if moved += u.size(); u.located == nil || u.located.tag == elf.DT_STRTAB {
			moved += headPrice
		}
	}
	return moved, ok
}

// put puts a unit into the first of the spaces, which are in the segment head of the new file, that is large enough. It
// reports whether one is, and for the build-id, in the first page.
func (u *unit) put(head *elf.Prog64, spaces []elffile.Span) bool {
	u.inHead = false
	for i := range spaces {
		addr := elffile.AlignUp(head.Vaddr+(spaces[i].Begin-head.Off), u.align)
		off := head.Off + (addr - head.Vaddr)
		if end := off + u.size(); end <= spaces[i].End {
			u.inHead, u.off, u.newAddr = true, off, addr
			spaces[i].Begin = end
			return !u.buildID || end <= firstPage
		}
	}
	return false
}

// A dynTag is a dynamic entry whose value is an address.
type dynTag struct {
	entry   uint64 // index in the dynamic table
	tag     elf.DynTag
	value   uint64
	movable bool   // it locates a section that may move
	size    uint64 // that another entry gives the section there, or 0
}

// movable maps the dynamic tags that locate sections to the tags of their sizes. Nothing else leads to these sections.
var movable = map[elf.DynTag]elf.DynTag{
	elf.DT_GNU_HASH: 0,
	elf.DT_HASH:     0,
	elf.DT_SYMTAB:   0,
	elf.DT_STRTAB:   elf.DT_STRSZ,
	elf.DT_VERSYM:   0,
	elf.DT_VERNEED:  0,
	elf.DT_VERDEF:   0,
	elf.DT_RELA:     elf.DT_RELASZ,
	dtRELR:          dtRELRSZ,
}

const (
	dtRELRSZ = elf.DynTag(35)
	dtRELR   = elf.DynTag(36)

	maxDynamic = 1 << 20 // bytes of all dynamic entries
)

// fixedTags are the other tags whose values are addresses. A section that one of them points into does not move.
var fixedTags = []elf.DynTag{
	elf.DT_PLTGOT, elf.DT_INIT, elf.DT_FINI, elf.DT_REL, elf.DT_JMPREL, elf.DT_INIT_ARRAY, elf.DT_FINI_ARRAY,
	elf.DT_PREINIT_ARRAY, elf.DT_SYMTAB_SHNDX, elf.DT_TLSDESC_PLT, elf.DT_TLSDESC_GOT, elf.DT_GNU_CONFLICT,
	elf.DT_GNU_LIBLIST, elf.DT_CONFIG, elf.DT_DEPAUDIT, elf.DT_AUDIT, elf.DT_MOVETAB, elf.DT_SYMINFO,
	dtAndroidREL, dtAndroidRELA, dtAndroidRELR,
}

// dynamicEntries calls fn for the dynamic entries up to DT_NULL, with their indexes.
func dynamicEntries(f *elffile.File, fn func(i uint64, tag elf.DynTag, value uint64)) error {
	h := f.Prog(elf.PT_DYNAMIC)
	if h == nil {
		return nil
	}
	if h.Filesz > maxDynamic {
		return fmt.Errorf("PT_DYNAMIC at file offset %#x: %d bytes; at most %d are accepted",
			h.Off, h.Filesz, maxDynamic)
	}
	b, err := f.ReadAt("PT_DYNAMIC", h.Off, h.Filesz)
	if err != nil {
		return err
	}
	for i := uint64(0); len(b) >= elffile.DynSize; i, b = i+1, b[elffile.DynSize:] {
		tag := elf.DynTag(f.Order.Uint64(b))
		if tag == elf.DT_NULL {
			break
		}
		fn(i, tag, f.Order.Uint64(b[elffile.DynValue:]))
	}
	return nil
}

// dynamicValues returns the values of the dynamic entries by their tags.
func dynamicValues(f *elffile.File) (map[elf.DynTag]uint64, error) {
	values := make(map[elf.DynTag]uint64)
	err := dynamicEntries(f, func(_ uint64, tag elf.DynTag, value uint64) { values[tag] = value })
	return values, err
}

// dynamicTags returns the entries that are addresses.
func dynamicTags(f *elffile.File) ([]dynTag, error) {
	sizes, err := dynamicValues(f)
	if err != nil {
		return nil, err
	}
	var tags []dynTag
	err = dynamicEntries(f, func(i uint64, tag elf.DynTag, value uint64) {
		if size, ok := movable[tag]; ok || slices.Contains(fixedTags, tag) {
			tags = append(tags, dynTag{i, tag, value, ok, sizes[size]})
		}
	})
	return tags, err
}

// dynamic adjusts the dynamic entries of moved sections.
func (p *planner) dynamic() {
	h := p.f.Prog(elf.PT_DYNAMIC)
	for _, u := range p.units {
		if u.located == nil {
			continue
		}
		value := make([]byte, 8)
		p.f.Order.PutUint64(value, u.newAddr)
		off := p.newOff(h.Off) + u.located.entry*elffile.DynSize + elffile.DynValue
		p.patches = append(p.patches, patch{off, value})
	}
}

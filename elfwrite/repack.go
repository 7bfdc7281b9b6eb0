package elfwrite

import (
	"debug/elf"
	"fmt"
	"slices"

	"cfi2sframe/internal/elffile"
	"cfi2sframe/sframe"
)

// A unit is a part of the head of the file that moves as a whole: a section, or
// the sections of a PT_NOTE.
type unit struct {
	span           // in the old file
	addr    uint64 // in the old image
	align   uint64
	small   bool   // .interp or notes, which are put back where they fit
	id      bool   // holds the build-id
	dynamic bool   // a dynamic entry points here
	entry   uint64 // the index of that entry
	stays   bool   // in the head, if elsewhere than before
	to      uint64 // in the new file
	toAddr  uint64
}

// maxUnits is how many units may move at most. It takes one or two in practice.
const maxUnits = 64

// unitAt returns the unit that the given part of the old file lies in, or nil.
func (p *planner) unitAt(s span) *unit {
	if s.begin == s.end {
		return nil
	}
	for _, u := range p.units {
		if u.contains(s) {
			return u
		}
	}
	return nil
}

// repack makes room behind the program header table by moving what is there.
func (p *planner) repack() error {
	before, after := p.table()
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("no room for %d more program headers: %s", len(p.progs)+2-len(p.f.Progs), fmt.Sprintf(format, args...))
	}
	if p.head < 0 {
		return refuse("no loaded segment holds the table")
	}
	tags, err := p.dynamicTags()
	if err != nil {
		return err
	}
	at := before.end
	for {
		next := p.next(at)
		if next == fileSpan(&p.f.Progs[p.head]).end {
			return refuse("the segment ends at file offset %#x", next)
		}
		if !p.unused(span{at, next}) {
			if len(p.f.Sections) == 0 {
				return refuse("without section headers it is not known what may move at file offset %#x", at)
			}
			return refuse("there are bytes at file offset %#x that belong to no section", at)
		}
		u, err := p.unit(next, &p.f.Progs[p.head], tags)
		if err != nil {
			return refuse("%v", err)
		}
		if len(p.units) == maxUnits {
			return refuse("more than %d sections would have to move", maxUnits)
		}
		p.units = append(p.units, u)
		at = u.end
		limit := p.next(at)
		if limit >= after.end && p.unused(span{at, limit}) && p.pack(&p.f.Progs[p.head], span{after.end, limit}) {
			p.zeros = append(p.zeros, span{before.end, limit})
			return nil
		}
	}
}

// thingAt returns the section at the given file offset; in a file without section headers, the
// contents of PT_INTERP or of a PT_NOTE as if it were one.
func (p *planner) thingAt(off uint64) (elffile.Section, bool) {
	i := slices.IndexFunc(p.f.Sections, func(s elffile.Section) bool {
		return s.Off == off && s.HasBytes() && s.Size > 0
	})
	if i >= 0 {
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
				Type: uint32(t), Flags: uint64(elf.SHF_ALLOC), Addr: h.Vaddr, Off: h.Off, Size: h.Filesz, Addralign: h.Align,
			}}, true
		}
	}
	return elffile.Section{}, false
}

// unit returns the movable unit that begins at the given file offset, in the given
// segment.
func (p *planner) unit(off uint64, load *elf.Prog64, tags []dynTag) (*unit, error) {
	s, ok := p.thingAt(off)
	if !ok && len(p.f.Sections) == 0 {
		return nil, fmt.Errorf("without section headers it is not known what may move at file offset %#x", off)
	}
	if !ok {
		return nil, fmt.Errorf("there is no section at file offset %#x, where something is", off)
	}
	u := &unit{span: sectionSpan(&s), addr: s.Addr, align: validAlign(s.Addralign)}
	fixed := fmt.Errorf("%s at file offset %#x cannot be moved", s.Name, off)
	if u.align > p.page || !s.Alloc() || s.Flags&uint64(elf.SHF_WRITE|elf.SHF_EXECINSTR|elf.SHF_TLS) != 0 || s.Addr-load.Vaddr != s.Off-load.Off {
		return nil, fixed
	}
	switch t := elf.SectionType(s.Type); {
	case p.isInterp(u.span):
		u.small = true
	case t == elf.SHT_NOTE:
		if !p.noteUnit(u) {
			return nil, fixed
		}
	default:
		for _, t := range tags {
			if t.value != s.Addr {
				continue
			}
			if !t.movable || t.size != 0 && t.size != s.Size {
				return nil, fixed
			}
			u.dynamic, u.entry = true, t.entry
		}
		if !u.dynamic {
			return nil, fixed
		}
	}
	// Nothing else may point into what moves.
	for _, t := range tags {
		if t.value >= u.addr && t.value-u.addr < u.end-u.begin && !(u.dynamic && t.entry == u.entry) {
			return nil, fixed
		}
	}
	for i := range p.f.Progs {
		h := &p.f.Progs[i]
		switch elf.ProgType(h.Type) {
		case elf.PT_LOAD, elf.PT_PHDR, elf.PT_NULL:
			continue
		}
		own := u.small && u.contains(fileSpan(h))
		if h.Type == sframe.PTGNUSFrame {
			continue // is replaced, or goes
		}
		if h.Filesz > 0 && fileSpan(h).overlaps(u.span) && !own {
			return nil, fixed
		}
	}
	for i := range p.f.Sections {
		if s := &p.f.Sections[i]; s.HasBytes() && s.Size > 0 && sectionSpan(s).overlaps(u.span) && !u.contains(sectionSpan(s)) {
			return nil, fixed
		}
	}
	return u, nil
}

func (p *planner) isInterp(s span) bool {
	h := p.f.Prog(elf.PT_INTERP)
	return h != nil && fileSpan(h) == s
}

// noteUnit widens u, a note section, to the PT_NOTEs and the PT_GNU_PROPERTY that
// it is in, and reports whether they consist of notes only.
func (p *planner) noteUnit(u *unit) bool {
	u.small = true
	found := false
	for grew, rounds := true, 0; grew; rounds++ {
		if rounds == maxUnits {
			return false
		}
		grew = false
		for i := range p.f.Progs {
			h := &p.f.Progs[i]
			if t := elf.ProgType(h.Type); t != elf.PT_NOTE && t != elf.PT_GNU_PROPERTY || !fileSpan(h).overlaps(u.span) {
				continue
			}
			found = true
			if h.Off < u.begin {
				return false // reaches back over what has been decided on already
			}
			u.align = max(u.align, min(validAlign(h.Align), 16))
			if h.Off+h.Filesz > u.end {
				u.end = h.Off + h.Filesz
				grew = true
			}
		}
	}
	for i := range p.f.Sections {
		s := &p.f.Sections[i]
		if !s.HasBytes() || s.Size == 0 || !sectionSpan(s).overlaps(u.span) {
			continue
		}
		if elf.SectionType(s.Type) != elf.SHT_NOTE {
			return false
		}
	}
	u.id = p.hasBuildID(u.span)
	return found
}

// hasBuildID reports whether a build-id is among the notes there (ELF gABI, "Note
// Section"; its type NT_GNU_BUILD_ID is 3).
func (p *planner) hasBuildID(s span) bool {
	b, err := p.f.ReadAt("notes", s.begin, s.end-s.begin)
	if err != nil {
		return false
	}
	// Notes begin on multiples of 4 or 8; the name tells.
	for ; len(b) >= 16; b = b[4:] {
		if p.f.Order.Uint32(b) == 4 && p.f.Order.Uint32(b[8:]) == 3 && string(b[12:16]) == "GNU\x00" {
			return true
		}
	}
	return false
}

// pack puts the small units back into the room, which is in the segment head of the
// new file, the build-id first, and reports whether that one is where it has to be.
func (p *planner) pack(head *elf.Prog64, room span) bool {
	at := room.begin
	put := func(u *unit) {
		u.stays = false
		addr := alignUp(head.Vaddr+(at-head.Off), u.align)
		off := head.Off + (addr - head.Vaddr)
		if size := u.end - u.begin; off+size <= room.end {
			u.stays, u.to, u.toAddr = true, off, addr
			at = off + size
		}
	}
	for _, u := range p.units {
		if u.id {
			if put(u); !u.stays || at > firstPage {
				return false
			}
		}
	}
	for _, u := range p.units {
		if u.small && !u.id {
			put(u)
		}
	}
	return true
}

// A dynTag is a dynamic entry whose value is an address.
type dynTag struct {
	entry   uint64 // index in the dynamic table
	value   uint64
	movable bool
	size    uint64 // that another entry gives the section there, or 0
}

// movable maps the dynamic tags that locate sections to the tags of their sizes.
// These sections are reached through the tag only.
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

	dynSize    = 16      // bytes of a dynamic entry
	maxDynamic = 1 << 20 // bytes of all of them
)

// fixedTags are the other tags whose values are addresses. A section that one of
// them points into does not move.
var fixedTags = []elf.DynTag{
	elf.DT_PLTGOT, elf.DT_INIT, elf.DT_FINI, elf.DT_REL, elf.DT_JMPREL, elf.DT_INIT_ARRAY, elf.DT_FINI_ARRAY,
	elf.DT_PREINIT_ARRAY, elf.DT_SYMTAB_SHNDX, elf.DT_TLSDESC_PLT, elf.DT_TLSDESC_GOT, elf.DT_GNU_CONFLICT,
	elf.DT_GNU_LIBLIST, elf.DT_CONFIG, elf.DT_DEPAUDIT, elf.DT_AUDIT, elf.DT_MOVETAB, elf.DT_SYMINFO,
}

// dynamicTags returns the entries that are addresses: those with movable set
// locate sections that may move.
func (p *planner) dynamicTags() ([]dynTag, error) {
	h := p.f.Prog(elf.PT_DYNAMIC)
	if h == nil {
		return nil, nil
	}
	if h.Filesz > maxDynamic {
		return nil, fmt.Errorf("PT_DYNAMIC at file offset %#x: %d bytes; at most %d are accepted", h.Off, h.Filesz, maxDynamic)
	}
	b, err := p.f.ReadAt("PT_DYNAMIC", h.Off, h.Filesz)
	if err != nil {
		return nil, err
	}
	var tags []dynTag
	sizes := make(map[elf.DynTag]uint64)
	var kinds []elf.DynTag
	for i := uint64(0); len(b) >= dynSize; i, b = i+1, b[dynSize:] {
		tag, value := elf.DynTag(p.f.Order.Uint64(b)), p.f.Order.Uint64(b[8:])
		if tag == elf.DT_NULL {
			break
		}
		sizes[tag] = value
		_, moves := movable[tag]
		if moves || slices.Contains(fixedTags, tag) {
			tags, kinds = append(tags, dynTag{entry: i, value: value, movable: moves}), append(kinds, tag)
		}
	}
	for i, tag := range kinds {
		tags[i].size = sizes[movable[tag]]
	}
	return tags, nil
}

// dynamic adjusts the dynamic entries of moved sections.
func (p *planner) dynamic() {
	h := p.f.Prog(elf.PT_DYNAMIC)
	for _, u := range p.units {
		if !u.dynamic {
			continue
		}
		value := make([]byte, 8)
		p.f.Order.PutUint64(value, u.toAddr)
		p.patches = append(p.patches, patch{p.newOff(h.Off) + u.entry*dynSize + 8, value})
	}
}

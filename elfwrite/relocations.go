package elfwrite

import (
	"bytes"
	"cmp"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"cfi2sframe/elffile"
)

// A relocForm is a form that relocations have in a file.
type relocForm uint8

const (
	formRELA    relocForm = iota // with addends
	formREL                      // with addends in the places
	formRELR                     // places of R_*_RELATIVE, addends in the places (ELF gABI)
	formAndroid                  // with or without addends, packed (Android's APS2)
	formEmitted                  // with addends, applied by a linker (--emit-relocs)
)

// A relocTable is where relocations are in the file.
type relocTable struct {
	span
	form relocForm
}

// Section types and dynamic tags of relocations that debug/elf does not know.
const (
	shtRELR        = elf.SectionType(19)
	shtCREL        = elf.SectionType(0x40000014)
	shtAndroidREL  = elf.SectionType(0x60000001)
	shtAndroidRELA = elf.SectionType(0x60000002)
	shtAndroidRELR = elf.SectionType(0x6fffff00)

	dtAndroidREL    = elf.DynTag(0x6000000f)
	dtAndroidRELSZ  = elf.DynTag(0x60000010)
	dtAndroidRELA   = elf.DynTag(0x60000011)
	dtAndroidRELASZ = elf.DynTag(0x60000012)
	dtAndroidRELR   = elf.DynTag(0x6fffe000)
	dtAndroidRELRSZ = elf.DynTag(0x6fffe001)
)

// relocSections are the forms by section type.
var relocSections = map[elf.SectionType]relocForm{
	elf.SHT_RELA: formRELA, elf.SHT_REL: formREL, shtRELR: formRELR, shtAndroidRELR: formRELR,
	shtAndroidREL: formAndroid, shtAndroidRELA: formAndroid,
}

// relocTags are the dynamic tags of relocations, those of their sizes, and the forms. That of DT_JMPREL is another
// entry's value.
var relocTags = []struct {
	tag, size elf.DynTag
	form      relocForm
}{
	{elf.DT_RELA, elf.DT_RELASZ, formRELA}, {elf.DT_REL, elf.DT_RELSZ, formREL},
	{elf.DT_JMPREL, elf.DT_PLTRELSZ, formRELA},
	{dtRELR, dtRELRSZ, formRELR}, {dtAndroidRELR, dtAndroidRELRSZ, formRELR},
	{dtAndroidREL, dtAndroidRELSZ, formAndroid}, {dtAndroidRELA, dtAndroidRELASZ, formAndroid},
}

// tables finds all relocations of loaded contents, once.
func (s *scan) tables() ([]relocTable, error) {
	tables, err := s.dynamicTables()
	if err != nil {
		return nil, err
	}
	for i := range s.f.Sections {
		form, ok, err := s.sectionForm(i)
		if err != nil {
			return nil, err
		}
		if ok {
			tables = append(tables, relocTable{sectionSpan(&s.f.Sections[i]), form})
		}
	}
	slices.SortFunc(tables, func(a, b relocTable) int {
		return cmp.Or(cmp.Compare(a.form, b.form), cmp.Compare(a.begin, b.begin))
	})
	once := tables[:0]
	for _, t := range tables {
		last := &relocTable{}
		if len(once) > 0 {
			last = &once[len(once)-1]
		}
		switch {
		case t.begin >= t.end:
		case last.form != t.form || t.begin >= last.end:
			once = append(once, t)
		case (t.begin-last.begin)%t.form.size() != 0:
			return nil, fmt.Errorf("relocations at file offset %#x overlap others", t.begin)
		default:
			last.end = max(last.end, t.end)
		}
	}
	return once, nil
}

// sectionForm returns the form of the relocations in a section, and whether they are of what is loaded.
func (s *scan) sectionForm(i int) (relocForm, bool, error) {
	f := s.f
	r := &f.Sections[i]
	t := elf.SectionType(r.Type)
	form, ok := relocSections[t]
	if t == shtCREL && r.Alloc() {
		return 0, false, fmt.Errorf("section %d (%s) has relocations in a form that is not known (SHT_CREL)", i, r.Name)
	}
	if r.Alloc() || !ok && t != shtCREL {
		return form, ok && r.HasBytes(), nil
	}
	// Those of a linker are about one section.
	if int(r.Info) >= len(f.Sections) || !f.Sections[r.Info].Alloc() {
		return 0, false, nil
	}
	isSymtab := func(s elffile.Section) bool { return elf.SectionType(s.Type) == elf.SHT_SYMTAB }
	symtab := slices.IndexFunc(f.Sections, isSymtab)
	if form != formRELA || !ok || symtab < 0 || int(r.Link) != symtab {
		return 0, false, fmt.Errorf("section %d (%s) has relocations of type %v with symbols in section %d; "+
			"SHT_RELA and %d were expected", i, r.Name, t, r.Link, symtab)
	}
	s.emitted = true
	return formEmitted, true, nil
}

// dynamicTables finds the relocations that dynamic entries locate.
func (s *scan) dynamicTables() ([]relocTable, error) {
	values, err := dynamicValues(s.f)
	if err != nil {
		return nil, err
	}
	var tables []relocTable
	for _, t := range relocTags {
		tag, size := t.tag, values[t.size]
		if size == 0 {
			continue
		}
		form := t.form
		if tag == elf.DT_JMPREL && elf.DynTag(values[elf.DT_PLTREL]) == elf.DT_REL {
			form = formREL
		}
		off, ok := s.f.FileOffset(values[tag], size)
		if !ok {
			return nil, fmt.Errorf("%v leads to %d bytes of relocations at address %#x, which no loaded segment holds",
				tag, size, values[tag])
		}
		tables = append(tables, relocTable{span{off, off + size}, form})
	}
	return tables, nil
}

// Sizes in bytes of the other relocations: a place and its info word, and an entry of DT_RELR, which is one word.
const (
	relSize  = 16
	wordSize = 8
)

// size returns the size of an entry in bytes; that of packed ones is 1.
func (f relocForm) size() uint64 {
	switch f {
	case formRELA, formEmitted:
		return elffile.RelaSize
	case formREL:
		return relSize
	case formRELR:
		return wordSize
	}
	return 1
}

// maxPacked is how many bytes packed relocations have at most, which are read as a whole.
const maxPacked = 64 << 20

// table marks what the relocations of a table refer to. It reads a part of them at a time.
func (s *scan) table(t *relocTable) error {
	size := t.form.size()
	const entries = 1 << 11 // that are read at a time: what is read stays in the processor's cache
	chunk := size * entries
	if t.form == formAndroid {
		if chunk = t.end - t.begin; chunk > maxPacked {
			return fmt.Errorf("packed relocations of %d bytes; at most %d are accepted", chunk, maxPacked)
		}
	}
	b := make([]byte, min(chunk, t.end-t.begin))
	var relr relrPlaces
	for at := t.begin; at < t.end; at += uint64(len(b)) {
		b = b[:min(chunk, t.end-at)]
		if err := s.f.ReadInto("relocations", b, at); err != nil {
			return err
		}
		var err error
		switch t.form {
		case formRELA:
			s.rela(b)
		case formEmitted:
			s.emittedRela(b)
		case formREL:
			for e := b; len(e) >= int(size) && err == nil; e = e[size:] {
				err = s.inPlace(s.f.Order.Uint64(e), s.f.Order.Uint64(e[elffile.RelaInfo:]))
			}
		case formRELR:
			for e := b; len(e) >= int(size) && err == nil; e = e[size:] {
				err = relr.next(s.f.Order.Uint64(e), func(place uint64) error { return s.inPlace(place, s.baseInfo()) })
			}
		case formAndroid:
			err = s.android(b)
		}
		if err != nil {
			return fmt.Errorf("relocations at file offset %#x: %w", t.begin, err)
		}
	}
	return nil
}

// rela marks the places and targets of relocations with addends.
func (s *scan) rela(b []byte) {
	if s.f.Order != binary.LittleEndian {
		o := s.f.Order
		for ; len(b) >= elffile.RelaSize; b = b[elffile.RelaSize:] {
			s.one(o.Uint64(b), o.Uint64(b[elffile.RelaInfo:]), o.Uint64(b[elffile.RelaAddend:]))
		}
		return
	}
	// There can be a million of them, and to call the methods of an interface takes longer.
	o := binary.LittleEndian
	for ; len(b) >= elffile.RelaSize; b = b[elffile.RelaSize:] {
		place, info, addend := o.Uint64(b), o.Uint64(b[elffile.RelaInfo:]), o.Uint64(b[elffile.RelaAddend:])
		if info>>32 > 0 || s.has(place) || s.has(addend) {
			s.one(place, info, addend)
		}
	}
}

// one marks the place and the target of a dynamic relocation.
func (s *scan) one(place, info, addend uint64) {
	if s.has(place) {
		s.mark(place, place)
	}
	if target, ok := s.target(s.dynsyms, info, addend); ok && s.has(target) {
		s.mark(target, target)
	}
}

// target returns the address that a relocation stands for, if it does, by the values of symbols.
func (s *scan) target(values []uint64, info, addend uint64) (uint64, bool) {
	sym := info >> 32
	if sym == 0 {
		return addend, slices.Contains(s.arch.Relative, uint32(info))
	}
	if sym >= uint64(len(values)) || values[sym] == noValue {
		return 0, false
	}
	return values[sym] + addend, true
}

// bias is how many bytes the addend of a relocation of an instruction can be from the address: it counts from the
// field, and the instruction from its end or start.
const bias = 8

// emittedRela marks the places and targets of relocations that a linker applied.
func (s *scan) emittedRela(b []byte) {
	for ; len(b) >= elffile.RelaSize; b = b[elffile.RelaSize:] {
		o := s.f.Order
		place, info, addend := o.Uint64(b), o.Uint64(b[elffile.RelaInfo:]), o.Uint64(b[elffile.RelaAddend:])
		if uint32(info) == 0 { // R_*_NONE
			continue
		}
		s.mark(place, place)
		if target, ok := s.target(s.symbols, info, addend); ok {
			s.mark(target-min(target, bias), target+min(math.MaxUint64-target, bias))
		}
	}
}

// inPlace marks the place and the target of a relocation whose addend is in its place.
func (s *scan) inPlace(place, info uint64) error {
	b := s.loaded(place, wordSize)
	if b == nil {
		return fmt.Errorf("the place %#x of one is not in the file, or they are in no order", place)
	}
	s.one(place, info, s.f.Order.Uint64(b))
	return nil
}

// baseInfo is the info word of R_*_RELATIVE.
func (s *scan) baseInfo() uint64 { return uint64(s.arch.Relative[0]) }

// loaded returns n bytes, few, from an address on, or nil if the file does not have them. It reads more at a time.
func (s *scan) loaded(addr, n uint64) []byte {
	has := func() bool {
		return addr >= s.nearAt && n <= uint64(len(s.nearby)) && addr-s.nearAt <= uint64(len(s.nearby))-n
	}
	// Places in order are read once. Others may need more, but only a few times the file; small files do not matter.
	const times, anyRead = 4, 16 << 20
	if !has() && (s.read > times*s.f.Size+anyRead || !s.readNear(addr) || !has()) {
		return nil
	}
	return s.nearby[addr-s.nearAt:][:n]
}

// readNear reads bytes around an address.
func (s *scan) readNear(addr uint64) bool {
	const most = 64 << 10
	s.nearby = s.nearby[:0]
	for i := range s.f.Progs {
		h := &s.f.Progs[i]
		if elf.ProgType(h.Type) != elf.PT_LOAD || addr < h.Vaddr || addr-h.Vaddr >= h.Filesz {
			continue
		}
		from := (addr - h.Vaddr) &^ (most/2 - 1) // of the segment
		b := slices.Grow(s.nearby, most)[:min(h.Filesz-from, most)]
		if s.f.ReadInto("loaded bytes", b, h.Off+from) != nil {
			return false
		}
		s.nearAt, s.nearby, s.read = h.Vaddr+from, b, s.read+uint64(len(b))
		return true
	}
	return false
}

// relrPlaces is the state of decoding a table of relative relocations.
type relrPlaces struct{ base uint64 }

// next calls fn with the places of an entry: one address, or bits for the 63 words after the last one.
func (r *relrPlaces) next(entry uint64, fn func(place uint64) error) error {
	if entry&1 == 0 {
		r.base = entry + wordSize
		return fn(entry)
	}
	for i := uint64(0); entry > 1; i++ {
		if entry >>= 1; entry&1 != 0 {
			if err := fn(r.base + i*wordSize); err != nil {
				return err
			}
		}
	}
	r.base += 63 * wordSize
	return nil
}

// Flags of a group of packed relocations.
const (
	groupedByInfo   = 1
	groupedByOffset = 2
	groupedByAddend = 4
	groupHasAddend  = 8
)

var errPacked = errors.New("they are not in the form APS2")

// android marks the places and targets of packed relocations. A group begins with what its relocations share. Offsets
// and addends are differences to the ones before.
func (s *scan) android(b []byte) error {
	b, ok := bytes.CutPrefix(b, []byte("APS2"))
	if !ok {
		return errPacked
	}
	next := func() uint64 {
		var v uint64
		v, b, ok = sleb(b, ok)
		return v
	}
	left, place := next(), next()
	if left > s.f.Size/4 { // each of them fills in some bytes
		return errPacked
	}
	var addend uint64
	for ok && left > 0 {
		n, flags := next(), next()
		var step, info uint64
		if flags&groupedByOffset != 0 {
			step = next()
		}
		if flags&groupedByInfo != 0 {
			info = next()
		}
		switch {
		case flags&groupHasAddend == 0:
			addend = 0
		case flags&groupedByAddend != 0:
			addend += next()
		}
		if n == 0 || n > left {
			return errPacked
		}
		for i := uint64(0); i < n && ok; i++ {
			if flags&groupedByOffset == 0 {
				step = next()
			}
			if flags&groupedByInfo == 0 {
				info = next()
			}
			if flags&(groupHasAddend|groupedByAddend) == groupHasAddend {
				addend += next()
			}
			place += step
			if flags&groupHasAddend != 0 {
				s.one(place, info, addend)
			} else if err := s.inPlace(place, info); err != nil {
				return err
			}
		}
		left -= n
	}
	if !ok {
		return errPacked
	}
	return nil
}

// sleb decodes a signed LEB128 number, unless ok is false already.
func sleb(b []byte, ok bool) (uint64, []byte, bool) {
	var v uint64
	for i := 0; ok && i < len(b) && i < 10; i++ {
		v |= uint64(b[i]&0x7f) << (7 * i)
		if b[i]&0x80 == 0 {
			if b[i]&0x40 != 0 && i < 9 {
				v |= math.MaxUint64 << (7 * (i + 1))
			}
			return v, b[i+1:], true
		}
	}
	return 0, nil, false
}

package elfwrite

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"cfi2sframe/elffile"
)

// A relocForm is a format of relocations.
type relocForm uint8

const (
	formRELA        relocForm = iota // with addends
	formREL                          // with addends in the relocated fields
	formRELR                         // addresses of R_*_RELATIVE fields, which contain the addends (ELF gABI)
	formEmitted                      // with addends, applied by a linker (--emit-relocs)
	formUnsupported                  // CREL, or packed (Android's APS2)
)

// A relocTable is a range of the file that contains relocations.
type relocTable struct {
	elffile.Span
	form relocForm
}

// Section types and dynamic tags of relocations that debug/elf does not define.
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

// relocSections maps section types to formats.
var relocSections = map[elf.SectionType]relocForm{
	elf.SHT_RELA: formRELA, elf.SHT_REL: formREL, shtRELR: formRELR, shtAndroidRELR: formRELR,
	shtCREL: formUnsupported, shtAndroidREL: formUnsupported, shtAndroidRELA: formUnsupported,
}

// relocTags lists the dynamic tags of relocations and of their sizes, and the formats. DT_PLTREL overrides the format
// of DT_JMPREL.
var relocTags = []struct {
	tag, size elf.DynTag
	form      relocForm
}{
	{elf.DT_RELA, elf.DT_RELASZ, formRELA}, {elf.DT_REL, elf.DT_RELSZ, formREL},
	{elf.DT_JMPREL, elf.DT_PLTRELSZ, formRELA},
	{dtRELR, dtRELRSZ, formRELR}, {dtAndroidRELR, dtAndroidRELRSZ, formRELR},
	{dtAndroidREL, dtAndroidRELSZ, formUnsupported}, {dtAndroidRELA, dtAndroidRELASZ, formUnsupported},
}

// findTables finds all relocations that apply to loaded contents.
func (s *scan) findTables() ([]relocTable, error) {
	tables, err := s.dynamicTables()
	if err != nil {
		return nil, err
	}
	located := tables
	for i := range s.f.Sections {
		form, ok, err := s.sectionForm(i)
		if err != nil {
			return nil, err
		}
		t := relocTable{sectionSpan(&s.f.Sections[i]), form}
		known := func(d relocTable) bool { return d.form == form && d.Contains(t.Span) }
		if ok && !slices.ContainsFunc(located, known) {
			tables = append(tables, t)
		}
	}
	return tables, nil
}

// sectionForm returns the format of the relocations in a section, and whether they apply to loaded contents.
func (s *scan) sectionForm(i int) (relocForm, bool, error) {
	f := s.f
	r := &f.Sections[i]
	t := elf.SectionType(r.Type)
	form, ok := relocSections[t]
	if !ok {
		return 0, false, nil
	}
	if r.Alloc() {
		if form == formUnsupported {
			return 0, false, fmt.Errorf("section %d (%s) has unsupported relocations of type %#x",
				i, r.Name, r.Type)
		}
		return form, true, nil
	}
	// Relocations kept by a linker apply to one section.
	if int(r.Info) >= len(f.Sections) || !f.Sections[r.Info].Alloc() {
		return 0, false, nil
	}
	if symtab := symtabOf(f); form != formRELA || int(r.Link) != symtab {
		return 0, false, fmt.Errorf("section %d (%s) has relocations of type %v with symbols in section %d, "+
			"not SHT_RELA with symbols in section %d", i, r.Name, t, r.Link, symtab)
	}
	s.emitted = true
	return formEmitted, true, nil
}

// dynamicTables finds the relocations located by dynamic entries.
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
		if form == formUnsupported {
			return nil, fmt.Errorf("dynamic entry %#x refers to packed relocations, which are not supported", int(tag))
		}
		off, ok := s.f.FileOffset(values[tag], size)
		if !ok {
			return nil, fmt.Errorf("%v refers to %d bytes of relocations at address %#x, "+
				"which are not in a loaded segment", tag, size, values[tag])
		}
		tables = append(tables, relocTable{span(off, off+size), form})
	}
	return tables, nil
}

// Sizes in bytes of other relocations: an address and an info word, and an entry of DT_RELR, which is one word.
const (
	relSize  = 16
	wordSize = 8
)

// size returns the size of an entry in bytes.
func (f relocForm) size() uint64 {
	switch f {
	case formREL:
		return relSize
	case formRELR:
		return wordSize
	}
	return elffile.RelaSize
}

// scanCost is the budget cost per byte of relocations or symbols.
const scanCost = 1

// markTable marks the fields and targets of the relocations in a table.
func (s *scan) markTable(t *relocTable) error {
	size := t.form.size()
	if err := s.f.Budget().Spend(scanCost, t.Size()); err != nil {
		return err
	}
	var base uint64 // address of the next bitmap of DT_RELR
	return s.f.ReadTable("relocations", t.Begin, t.Size(), size, func(b []byte, _ uint64) (err error) {
		s.swap(b)
		for ; uint64(len(b)) >= size && err == nil; b = b[size:] {
			switch place := word(b, 0); t.form {
			case formRELA:
				s.markRelocation(s.dynsyms, place, word(b, 1), word(b, 2), 0)
			case formEmitted:
				if info := word(b, 1); uint32(info) != 0 { // R_*_NONE
					s.markRelocation(s.symbols, place, info, word(b, 2), bias)
				}
			case formREL:
				err = s.markInPlace(place, word(b, 1))
			case formRELR:
				base, err = s.relr(base, place)
			}
		}
		if err != nil {
			return fmt.Errorf("relocations at file offset %#x: %w", t.Begin, err)
		}
		return nil
	})
}

// swap converts words to little-endian. Calling Order for each word takes 2 % of a conversion.
func (s *scan) swap(b []byte) {
	if s.f.Order.Uint16([]byte{0, 1}) != 1 {
		return
	}
	for ; len(b) >= wordSize; b = b[wordSize:] {
		slices.Reverse(b[:wordSize])
	}
}

// word returns the i-th little-endian word of b.
func word(b []byte, i int) uint64 { return binary.LittleEndian.Uint64(b[i*wordSize:]) }

// markRelocation marks the field and the target of a relocation, given the values of symbols. The target may be
// off by up to bias bytes.
func (s *scan) markRelocation(values []uint64, place, info, addend, bias uint64) {
	s.mark(place, place)
	if target, ok := s.target(values, info, addend); ok {
		s.mark(target-min(target, bias), target+min(math.MaxUint64-target, bias))
	}
}

// target returns the target address of a relocation, if it has one, given the values of symbols.
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

// bias is the maximum distance in bytes between the symbol plus addend of a relocation and the address to which the
// instruction refers: the addend is relative to the field, but the operand to the end or start of the instruction.
const bias = 8

// markInPlace marks the field and the target of a relocation whose addend is in the field.
func (s *scan) markInPlace(place, info uint64) error {
	b := s.words.Read(s.f, place, wordSize)
	if b == nil {
		return fmt.Errorf("the field at %#x is not in the file, or the relocations are not sorted", place)
	}
	s.markRelocation(s.dynsyms, place, info, s.f.Order.Uint64(b), 0)
	return nil
}

// relr marks the fields and targets of an entry of DT_RELR: one address, or a bitmap of the 63 words starting at base.
// It returns the base of the next entry.
func (s *scan) relr(base, entry uint64) (uint64, error) {
	info := uint64(s.arch.Relative[0])
	if entry&1 == 0 {
		return entry + wordSize, s.markInPlace(entry, info)
	}
	for i := range uint64(63) {
		if entry>>(i+1)&1 == 0 {
			continue
		}
		if err := s.markInPlace(base+i*wordSize, info); err != nil {
			return 0, err
		}
	}
	return base + 63*wordSize, nil
}

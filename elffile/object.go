package elffile

import (
	"debug/elf"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"sort"

	"cfi2sframe/internal/arch"
)

// Limits and alignments of the addresses that are assigned in an object.
const (
	firstBase = 1 << 28               // larger than any offset in a CFI section
	baseGap   = 256                   // keeps code from running into the next section
	minAlign  = 16                    // default alignment of code on most machines
	maxAlign  = 1 << 16               // largest page size
	lastBase  = firstBase + 1<<31 - 1 // distances fit in 32 bits, as in the linked file
)

// AlignUp rounds v up to a multiple of align, a power of two.
func AlignUp(v, align uint64) uint64 { return (v + align - 1) &^ (align - 1) }

// ValidAlign returns the alignment from a header, or 1 if it is not a power of two.
func ValidAlign(align uint64) uint64 {
	if bits.OnesCount64(align) != 1 {
		return 1
	}
	return align
}

// assignBases assigns addresses to code and then to .eh_frame.
func (f *File) assignBases() error {
	next := uint64(firstBase)
	for _, wanted := range []func(*Section) bool{
		func(s *Section) bool { return s.Flags&uint64(elf.SHF_EXECINSTR) != 0 },
		func(s *Section) bool { return s.Name == ".eh_frame" },
	} {
		for i, s := range Each(f.Sections) {
			if !s.Alloc() || !s.HasBytes() || s.Base != 0 || !wanted(s) {
				continue
			}
			align := max(ValidAlign(s.Addralign), minAlign)
			if align > maxAlign {
				align = minAlign
			}
			s.Base = AlignUp(next+baseGap, align)
			if s.Size > lastBase || s.Base > lastBase-s.Size {
				return errorf("section header table", f.Shoff,
					"code and CFI exceed 2 GiB at section %d (%s)",
					i, s.Name)
			}
			next = s.Base + s.Size
			f.based = append(f.based, i)
		}
	}
	return nil
}

// TakeBases gives the code sections of f, the debug file of an object, the addresses of the object's code sections, in
// the same order. Sections of a debug file may be SHT_NOBITS.
func (f *File) TakeBases(object []Section) {
	f.based = nil
	for i, s := range Each(f.Sections) {
		s.Base = 0
		if s.Alloc() && s.Flags&uint64(elf.SHF_EXECINSTR) != 0 && len(object) > 0 {
			if s.Base, object = object[0].Base, object[1:]; s.Base > 0 {
				f.based = append(f.based, i)
			}
		}
	}
}

// SectionAt returns the index of the object's section that contains an address, or 0.
func (f *File) SectionAt(addr uint64) int {
	i := sort.Search(len(f.based), func(i int) bool { return f.Sections[f.based[i]].Base > addr }) - 1
	if i < 0 {
		return 0
	}
	if s := &f.Sections[f.based[i]]; addr-s.Base >= s.Size {
		return 0
	}
	return f.based[i]
}

// IsObject reports whether the file is a relocatable object.
func (f *File) IsObject() bool { return elf.Type(f.Type) == elf.ET_REL }

// ReadRelocated is like ReadUncompressed, but applies relocations if the file is an object.
func (f *File) ReadRelocated(s *Section) ([]byte, error) {
	b, err := f.ReadUncompressed(s)
	if err != nil || !f.IsObject() {
		return b, err
	}
	if err := f.findRelocations(); err != nil {
		return nil, err
	}
	for _, i := range f.relas[s] {
		if err := f.applyRelocations(b, s, &f.Sections[i]); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// shtCREL is the type of a section with compact relocations, which package elf does not define (LLVM, --crel).
const shtCREL elf.SectionType = 0x40000014

// findRelocations fills f.relas.
func (f *File) findRelocations() error {
	if f.relas != nil {
		return nil
	}
	f.relas = make(map[*Section][]int)
	var total uint64
	for i, r := range Each(f.Sections) {
		if t := elf.SectionType(r.Type); t != elf.SHT_RELA && t != elf.SHT_REL && t != shtCREL ||
			uint64(r.Info) >= uint64(len(f.Sections)) {
			continue
		}
		if err := f.addSize(&total, r, "relocation sections"); err != nil {
			return err
		}
		f.relas[&f.Sections[r.Info]] = append(f.relas[&f.Sections[r.Info]], i)
	}
	return nil
}

// applyRelocations applies the relocations in r to the contents b of s.
func (f *File) applyRelocations(b []byte, s, r *Section) error {
	where := "section " + r.Name
	switch elf.SectionType(r.Type) {
	case elf.SHT_REL:
		return errorf(where, r.Off, "relocations without addends (SHT_REL) are not supported")
	case shtCREL:
		return errorf(where, r.Off, "compact relocations (SHT_CREL) are not supported; assemble without --crel")
	}
	symbols, err := f.symbolPlaces(int(r.Link))
	if err != nil {
		return err
	}
	return f.ReadTable(where, r.Off, r.Size, RelaSize, func(table []byte, off uint64) error {
		for rela := range slices.Chunk(table, RelaSize) {
			if err := f.relocate(b, s, rela, symbols); err != nil {
				return errorf(where, off, "%v", err)
			}
			off += RelaSize
		}
		return nil
	})
}

// symbolPlaces holds the addresses and the sections of a table's symbols.
type symbolPlaces struct {
	values   []uint64
	sections []int32
}

// symbolPlaces returns the addresses and the sections of the symbols in a table. It reads each table once.
func (f *File) symbolPlaces(table int) (*symbolPlaces, error) {
	if table >= len(f.Sections) || elf.SectionType(f.Sections[table].Type) != elf.SHT_SYMTAB {
		return nil, errorf("section header table", f.Shoff,
			"relocations refer to section %d, which is not a symbol table", table)
	}
	if p, ok := f.places[table]; ok {
		return p, nil
	}
	s := &f.Sections[table]
	if s.Size > maxContent {
		return nil, errorf("section "+s.Name, s.Off, "%d bytes exceed the limit of %d", s.Size, maxContent)
	}
	if err := f.addSize(&f.placesOf, s, "symbol tables"); err != nil {
		return nil, err
	}
	n := s.Size / SymSize
	p := &symbolPlaces{values: make([]uint64, 0, n), sections: make([]int32, 0, n)}
	err := f.symbols(table, func(_ *Section, sym Symbol) {
		p.values, p.sections = append(p.values, sym.Value), append(p.sections, int32(sym.Section))
	})
	if err != nil {
		return nil, err
	}
	if f.places == nil {
		f.places = make(map[int]*symbolPlaces)
	}
	f.places[table] = p
	return p, nil
}

// target returns the value of a symbol plus addend for a relocation of s: an address in a section with a Base, or an
// offset in s itself, which records of .debug_frame use to refer to each other. Otherwise it returns 0, which is not
// the address of any code.
func (f *File) target(s *Section, value uint64, section int32, addend uint64) uint64 {
	t := &f.Sections[section]
	v := value + addend
	if section == 0 || t.Base == 0 && t != s || v-t.Base > t.Size {
		return 0
	}
	return v
}

// relocate applies the relocation at the start of rela to the contents b of s.
func (f *File) relocate(b []byte, s *Section, rela []byte, symbols *symbolPlaces) error {
	off, info, addend := f.Order.Uint64(rela), f.Order.Uint64(rela[RelaInfo:]), f.Order.Uint64(rela[RelaAddend:])
	sym, typ := info>>32, uint32(info)
	if typ == 0 { // R_*_NONE on every machine
		return nil
	}
	field, ok := f.fields[typ]
	if !ok {
		return fmt.Errorf("unknown relocation type %d at %s+%#x", typ, s.Name, off)
	}
	if n := uint64(len(b)); off > n || uint64(field.Size) > n-off {
		return fmt.Errorf("relocation at %s+%#x is past the end of the section (%d bytes)", s.Name, off, n)
	}
	if sym >= uint64(len(symbols.values)) {
		return fmt.Errorf("relocation at %s+%#x uses symbol %d, but the table has only %d", s.Name, off, sym,
			len(symbols.values))
	}
	v := f.target(s, symbols.values[sym], symbols.sections[sym], addend)
	if field.PCRel {
		v -= s.Base + off
	}
	if field.Size == 4 {
		fits := v <= math.MaxUint32
		if field.PCRel || field.Signed {
			fits = int64(v) == int64(int32(v))
		}
		if !fits {
			return fmt.Errorf("relocation at %s+%#x: %#x does not fit in 4 bytes", s.Name, off, v)
		}
		f.Order.PutUint32(b[off:], uint32(v))
	} else {
		f.Order.PutUint64(b[off:], v)
	}
	return nil
}

// Moves returns the alignment that linkers and loaders preserve when they move the code at an address: a power of two,
// or 0 if the address is fixed. Linkers preserve the alignment of an object's sections, and loaders preserve page
// alignment.
func (f *File) Moves(addr uint64) uint64 {
	switch elf.Type(f.Type) {
	case elf.ET_EXEC:
		return 0
	case elf.ET_REL:
		if len(f.Sections) == 0 {
			return 1
		}
		s := &f.Sections[f.SectionAt(addr)]
		// The assigned address may be less aligned than the section will be, and loaders preserve only page alignment.
		return min(ValidAlign(s.Addralign), arch.MinPage, max(1, s.Base&-s.Base))
	}
	return arch.MinPage
}

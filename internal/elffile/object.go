package elffile

import (
	"debug/elf"
	"fmt"
)

// Relocatable objects have no addresses yet. New gives those sections that call frame
// information is about an address each (Section.Base), as a linker would, so that
// everything behind it can speak of addresses; ReadRelocated puts these addresses
// into contents.
const (
	firstBase = 1 << 16   // 0 would mean discarded code
	baseGap   = 256       // between sections: nothing reaches from one into the next
	lastBase  = 1<<31 - 1 // distances fit 32 bits
)

// assignBases gives addresses to code, then to .eh_frame, and at last to .sframe: what
// the others get does not depend on whether there is one.
func (f *File) assignBases() error {
	next := uint64(firstBase)
	for _, wanted := range []func(*Section) bool{
		func(s *Section) bool { return s.Flags&uint64(elf.SHF_EXECINSTR) != 0 },
		func(s *Section) bool { return s.Name == ".eh_frame" },
		func(s *Section) bool { return s.Name == ".sframe" },
	} {
		for i := range f.Sections {
			s := &f.Sections[i]
			if !s.Alloc() || !s.HasBytes() || s.Base != 0 || !wanted(s) {
				continue
			}
			align := max(s.Addralign, 16)
			if align > 1<<16 || align&(align-1) != 0 {
				align = 16
			}
			s.Base = (next + baseGap + align - 1) &^ (align - 1)
			if s.Size > lastBase || s.Base > lastBase-s.Size {
				return errorf("section header table", f.Shoff, "sections of code and CFI of more than 2 GiB, up to section %d (%s)", i, s.Name)
			}
			next = s.Base + s.Size
		}
	}
	return nil
}

// IsObject reports whether the file is a relocatable object.
func (f *File) IsObject() bool { return elf.Type(f.Type) == elf.ET_REL }

// RelaSize is the size in bytes of a relocation with an addend.
const RelaSize = 24

// A field is what a relocation type fills in.
type field struct {
	size  int  // in bytes: 4 or 8
	pcrel bool // counts from the field's own address
}

// relocations are the types in sections that the linker does not load as code (psABI of
// each machine).
var relocations = map[elf.Machine]map[uint32]field{
	elf.EM_X86_64: {
		uint32(elf.R_X86_64_64): {8, false}, uint32(elf.R_X86_64_PC64): {8, true},
		uint32(elf.R_X86_64_32): {4, false}, uint32(elf.R_X86_64_32S): {4, false}, uint32(elf.R_X86_64_PC32): {4, true},
	},
	elf.EM_AARCH64: {
		uint32(elf.R_AARCH64_ABS64): {8, false}, uint32(elf.R_AARCH64_PREL64): {8, true},
		uint32(elf.R_AARCH64_ABS32): {4, false}, uint32(elf.R_AARCH64_PREL32): {4, true},
	},
	elf.EM_S390: {
		uint32(elf.R_390_64): {8, false}, uint32(elf.R_390_PC64): {8, true},
		uint32(elf.R_390_32): {4, false}, uint32(elf.R_390_PC32): {4, true},
	},
}

// PCRelType returns the relocation type of a field of size bytes, 4 or 8, that counts from
// its own address, and whether the machine has one.
func PCRelType(m elf.Machine, size int) (uint32, bool) {
	for t, f := range relocations[m] {
		if f == (field{size, true}) {
			return t, true
		}
	}
	return 0, false
}

// ReadRelocated is ReadUncompressed with the relocations applied if the file is an object.
// Symbols that are in no section with a Base have the value 0.
func (f *File) ReadRelocated(s *Section) ([]byte, error) {
	b, err := f.ReadUncompressed(s)
	if err != nil || !f.IsObject() {
		return b, err
	}
	var total uint64
	for i := range f.Sections {
		r := &f.Sections[i]
		t := elf.SectionType(r.Type)
		if t != elf.SHT_RELA && t != elf.SHT_REL || uint64(r.Info) >= uint64(len(f.Sections)) || &f.Sections[r.Info] != s {
			continue
		}
		where := "section " + r.Name
		if t == elf.SHT_REL {
			return nil, errorf(where, r.Off, "relocations without addends (SHT_REL); SHT_RELA was expected")
		}
		if total += r.Size; total > f.Size {
			return nil, errorf(where, r.Off, "relocations overlap, having more than the %d bytes of the file", f.Size)
		}
		rela, err := f.ReadSection(r)
		if err != nil {
			return nil, err
		}
		values, err := f.symbolValues(int(r.Link))
		if err != nil {
			return nil, err
		}
		for n := 0; len(rela) >= RelaSize; n, rela = n+1, rela[RelaSize:] {
			if err := f.relocate(b, s, rela, values); err != nil {
				return nil, errorf(where, r.Off+uint64(n)*RelaSize, "%v", err)
			}
		}
	}
	return b, nil
}

// symbolValues returns the values of a symbol table's symbols, section bases included.
func (f *File) symbolValues(table int) ([]uint64, error) {
	if table >= len(f.Sections) || elf.SectionType(f.Sections[table].Type) != elf.SHT_SYMTAB {
		return nil, errorf("section header table", f.Shoff, "relocations refer to section %d for their symbols, which is no symbol table", table)
	}
	if values, ok := f.values[table]; ok {
		return values, nil
	}
	s := &f.Sections[table]
	if s.Size > maxContent {
		return nil, errorf("section "+s.Name, s.Off, "%d bytes; at most %d are accepted", s.Size, maxContent)
	}
	var values []uint64
	err := f.symbols(table, func(_ *Section, sym Symbol) {
		if sym.Section == 0 || f.Sections[sym.Section].Base == 0 {
			values = append(values, 0)
			return
		}
		values = append(values, sym.Value)
	})
	if err != nil {
		return nil, err
	}
	if f.values == nil {
		f.values = make(map[int][]uint64)
	}
	f.values[table] = values
	return values, nil
}

// relocate applies the relocation at the start of rela to the contents b of s.
func (f *File) relocate(b []byte, s *Section, rela []byte, values []uint64) error {
	off, info, addend := f.Order.Uint64(rela), f.Order.Uint64(rela[8:]), f.Order.Uint64(rela[16:])
	sym, typ := info>>32, uint32(info)
	if typ == 0 { // none, on every machine
		return nil
	}
	what, ok := relocations[elf.Machine(f.Machine)][typ]
	if !ok {
		return fmt.Errorf("relocation type %d of %s+%#x is not known there", typ, s.Name, off)
	}
	if n := uint64(len(b)); off > n || uint64(what.size) > n-off {
		return fmt.Errorf("relocation of %s+%#x does not fit the section's %d bytes", s.Name, off, n)
	}
	if sym >= uint64(len(values)) {
		return fmt.Errorf("relocation of %s+%#x by symbol %d; there are %d", s.Name, off, sym, len(values))
	}
	v := values[sym] + addend
	if what.pcrel {
		v -= s.Base + off
	}
	if what.size == 4 {
		f.Order.PutUint32(b[off:], uint32(v))
	} else {
		f.Order.PutUint64(b[off:], v)
	}
	return nil
}

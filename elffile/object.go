package elffile

import (
	"debug/elf"
	"fmt"
	"math"
	"sort"

	"cfi2sframe/sframe"
)

// Relocatable objects have no addresses yet. New gives those sections that call frame
// information is about an address each (Section.Base), as a linker would, so that
// everything after it can speak of addresses; ReadRelocated puts these addresses
// into contents.
const (
	firstBase = 1 << 28               // no offset in a section of CFI, which are smaller, is taken for one
	baseGap   = 256                   // between sections: nothing reaches from one into the next
	minAlign  = 16                    // what code has by default on most machines
	maxAlign  = 1 << 16               // the largest pages; more costs room, and means nothing before it is linked
	lastBase  = firstBase + 1<<31 - 1 // distances fit 32 bits, as they have to when the object is linked
)

// assignBases gives addresses to code, then to .eh_frame, and at last to .sframe: what
// the others get does not depend on whether there is one.
func (f *File) assignBases() error {
	next := uint64(firstBase)
	for _, wanted := range []func(*Section) bool{
		func(s *Section) bool { return s.Flags&uint64(elf.SHF_EXECINSTR) != 0 },
		func(s *Section) bool { return s.Name == ".eh_frame" },
		func(s *Section) bool { return sframe.IsHeader(s.Name, s.Type) },
	} {
		for i := range f.Sections {
			s := &f.Sections[i]
			if !s.Alloc() || !s.HasBytes() || s.Base != 0 || !wanted(s) {
				continue
			}
			align := max(s.Addralign, minAlign)
			if align > maxAlign || align&(align-1) != 0 {
				align = minAlign
			}
			s.Base = (next + baseGap + align - 1) &^ (align - 1)
			if s.Size > lastBase || s.Base > lastBase-s.Size {
				return errorf("section header table", f.Shoff, "sections of code and CFI of more than 2 GiB, up to section %d (%s)", i, s.Name)
			}
			next = s.Base + s.Size
			f.based = append(f.based, i)
		}
	}
	return nil
}

// SectionAt returns the index of the section of an object that an address is in, or 0.
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

// ReadRelocated is ReadUncompressed with the relocations applied if the file is an object.
func (f *File) ReadRelocated(s *Section) ([]byte, error) { return f.relocated(s, false) }

// ReadDebug is ReadRelocated for debug information. It refers to addresses of code, and to other
// sections of debug information by offsets in them. Relocations of types that are not known, such
// as those by thread-local variables, are left out.
func (f *File) ReadDebug(s *Section) ([]byte, error) { return f.relocated(s, true) }

// relocated is ReadRelocated, or with debug ReadDebug.
func (f *File) relocated(s *Section, debug bool) ([]byte, error) {
	b, err := f.ReadUncompressed(s)
	if err != nil || !f.IsObject() {
		return b, err
	}
	if err := f.findRelocations(); err != nil {
		return nil, err
	}
	for _, i := range f.relas[s] {
		if err := f.applyRelocations(b, s, &f.Sections[i], debug); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// findRelocations notes which sections have relocations of which.
func (f *File) findRelocations() error {
	if f.relas != nil {
		return nil
	}
	f.relas = make(map[*Section][]int)
	var total uint64
	for i := range f.Sections {
		r := &f.Sections[i]
		if t := elf.SectionType(r.Type); t != elf.SHT_RELA && t != elf.SHT_REL || uint64(r.Info) >= uint64(len(f.Sections)) {
			continue
		}
		if r.Size > f.Size || total > f.Size-r.Size {
			return errorf("section "+r.Name, r.Off, "relocations overlap, having more than the %d bytes of the file", f.Size)
		}
		total += r.Size
		f.relas[&f.Sections[r.Info]] = append(f.relas[&f.Sections[r.Info]], i)
	}
	return nil
}

// applyRelocations applies the relocations in r to the contents b of s, of debug information or
// not. It reads a part of them at a time.
func (f *File) applyRelocations(b []byte, s, r *Section, debug bool) error {
	const chunk = 1 << 15 // relocations that are read at a time
	where := "section " + r.Name
	if elf.SectionType(r.Type) == elf.SHT_REL {
		return errorf(where, r.Off, "relocations without addends (SHT_REL); SHT_RELA was expected")
	}
	symbols, err := f.symbolPlaces(int(r.Link))
	if err != nil {
		return err
	}
	num := r.Size / RelaSize
	for first := uint64(0); first < num; first += chunk {
		n := min(num-first, chunk)
		rela, err := f.ReadAt(where, r.Off+first*RelaSize, n*RelaSize)
		if err != nil {
			return err
		}
		for i := range n {
			if err := f.relocate(b, s, rela[i*RelaSize:], symbols, debug); err != nil {
				return errorf(where, r.Off+(first+i)*RelaSize, "%v", err)
			}
		}
	}
	return nil
}

// symbolPlaces are where the symbols of a table are: their values, bases of sections
// included, and their sections.
type symbolPlaces struct {
	values   []uint64
	sections []int32
}

// symbolPlaces returns the places of a symbol table's symbols.
func (f *File) symbolPlaces(table int) (*symbolPlaces, error) {
	if table >= len(f.Sections) || elf.SectionType(f.Sections[table].Type) != elf.SHT_SYMTAB {
		return nil, errorf("section header table", f.Shoff, "relocations refer to section %d for their symbols, which is no symbol table", table)
	}
	if p, ok := f.places[table]; ok {
		return p, nil
	}
	s := &f.Sections[table]
	if s.Size > maxContent {
		return nil, errorf("section "+s.Name, s.Off, "%d bytes; at most %d are accepted", s.Size, maxContent)
	}
	if f.placesOf += s.Size; f.placesOf > f.Size {
		return nil, errorf("section "+s.Name, s.Off, "symbol tables overlap, having more than the %d bytes of the file", f.Size)
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

// target returns what a relocation of s by a symbol stands for: an address in a section
// that has one, or an offset in s itself, by which the records of .debug_frame refer to
// each other. All else is 0: it must not be taken for an address of some code.
func (f *File) target(s *Section, value uint64, section int32, addend uint64) uint64 {
	t := &f.Sections[section]
	v := value + addend
	if section == 0 || t.Base == 0 && t != s || v-t.Base > t.Size {
		return 0
	}
	return v
}

// relocate applies the relocation at the start of rela to the contents b of s.
func (f *File) relocate(b []byte, s *Section, rela []byte, symbols *symbolPlaces, debug bool) error {
	off, info, addend := f.Order.Uint64(rela), f.Order.Uint64(rela[RelaInfo:]), f.Order.Uint64(rela[RelaAddend:])
	sym, typ := info>>32, uint32(info)
	if typ == 0 { // none, on every machine
		return nil
	}
	what, ok := f.fields[typ]
	if !ok && debug {
		return nil
	}
	if !ok {
		return fmt.Errorf("relocation type %d of %s+%#x is not known there", typ, s.Name, off)
	}
	if n := uint64(len(b)); off > n || uint64(what.Size) > n-off {
		return fmt.Errorf("relocation of %s+%#x does not fit the section's %d bytes", s.Name, off, n)
	}
	if sym >= uint64(len(symbols.values)) {
		return fmt.Errorf("relocation of %s+%#x by symbol %d; there are %d", s.Name, off, sym, len(symbols.values))
	}
	v := symbols.values[sym] + addend
	if !debug {
		v = f.target(s, symbols.values[sym], symbols.sections[sym], addend)
	}
	if what.PCRel {
		v -= s.Base + off
	}
	if what.Size == 4 {
		fits := v <= math.MaxUint32
		if what.PCRel || what.Signed {
			fits = int64(v) == int64(int32(v))
		}
		if !fits {
			return fmt.Errorf("relocation of %s+%#x by %#x does not fit 4 bytes", s.Name, off, v)
		}
		f.Order.PutUint32(b[off:], uint32(v))
	} else {
		f.Order.PutUint64(b[off:], v)
	}
	return nil
}

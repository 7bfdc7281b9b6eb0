package elfwrite

import (
	"debug/elf"
	"errors"
	"fmt"
	"strings"

	"cfi2sframe/arch"
	"cfi2sframe/elffile"
	"cfi2sframe/sframe"
)

const relaName = ".rela" + sframe.SectionName

// An Object says what a relocatable object needs beside the contents of .sframe.
type Object struct {
	Type      elf.SectionType // of .sframe
	StartSize int             // of a start address, in bytes
	Starts    []Start         // in the order of the relocations
}

// A Start is a start address that the linker fills in.
type Start struct {
	Off  uint64 // of the field in .sframe, in bytes
	Addr uint64 // that it stands for, in terms of elffile.Section.Base
}

// PlanObject finds the layout of the relocatable object f with an .sframe of size bytes
// and its relocations, as GNU as writes them. Both sections come last, so that no
// section gets another index.
func PlanObject(f *elffile.File, size uint64, o Object, opt Options) (l *Layout, err error) {
	defer readWhole(f, &l, &err)
	p, err := newObject(f, size)
	if err != nil {
		return nil, err
	}
	if p.old > 0 && !opt.Force {
		return nil, ErrExists
	}
	rela, symtab, err := p.relocations(&o)
	if err != nil {
		return nil, err
	}
	names, at, err := p.names(false)
	if err != nil {
		return nil, err
	}
	p.off = alignUp(p.cut, sectionAlign)
	relaOff := alignUp(p.off+size, tableAlign)
	p.patches = append(p.patches, patch{relaOff, rela})

	sec := p.slot(p.old)
	*sec = elf.Section64{
		Name: at + uint32(len(".rela")), Type: uint32(o.Type), Flags: uint64(elf.SHF_ALLOC),
		Off: p.off, Size: size, Addralign: sectionAlign,
	}
	index := p.old
	if index == 0 {
		index = len(p.sections) - 1
	}
	*p.slot(p.oldRela) = elf.Section64{
		Name: at, Type: uint32(elf.SHT_RELA), Flags: uint64(elf.SHF_INFO_LINK), Off: relaOff, Size: uint64(len(rela)),
		Link: uint32(symtab), Info: uint32(index), Addralign: tableAlign, Entsize: elffile.RelaSize,
	}
	p.finish(names, relaOff+uint64(len(rela)))
	return p.Layout, nil
}

// Unchanged returns the layout that a relocatable object has already.
func Unchanged(f *elffile.File) *Layout {
	return &Layout{f: f, phoff: f.Phoff, progs: f.Progs, shoff: f.Shoff, shstrndx: uint32(f.Shstrndx), copies: []extent{{0, 0, f.Size}}}
}

// planObjectRemoval finds the layout of an object without .sframe and its relocations.
// Where these are not the last sections, empty headers stay in their place: indexes of
// sections are all over an object.
func planObjectRemoval(f *elffile.File) (*Layout, error) {
	if old, err := f.SFrame(); err != nil {
		return nil, err
	} else if old.Section == 0 {
		return nil, ErrNone // whatever else may be odd about it
	}
	p, err := newObject(f, 0)
	if err != nil {
		return nil, err
	}
	for _, gone := range []int{p.old, p.oldRela} {
		if gone == 0 {
			continue
		}
		if err := p.release(gone); err != nil {
			return nil, err
		}
		p.sections[gone] = elf.Section64{}
	}
	for n := len(p.sections) - 1; n == p.old || n == p.oldRela && n > 0; n-- {
		p.sections = p.sections[:n]
	}
	names, _, err := p.names(true)
	if err != nil {
		return nil, err
	}
	p.finish(names, p.cut)
	return p.Layout, nil
}

// object is the work of PlanObject.
type object struct {
	*Layout
	old, oldRela int    // section indexes of an .sframe that is there and of its relocations, or 0
	cut          uint64 // end of the contents that stay
	known        uint64 // end of all that the headers know of
}

func newObject(f *elffile.File, size uint64) (*object, error) {
	if len(f.Sections) == 0 || f.Shstrndx == 0 {
		return nil, errors.New("relocatable object without section headers or names")
	}
	if len(f.Progs) > 0 {
		return nil, fmt.Errorf("relocatable object with %d program headers", len(f.Progs))
	}
	if err := checkSections(f); err != nil {
		return nil, err
	}
	// A name that the end of the table cuts off would go on in what is added there.
	names := &f.Sections[f.Shstrndx]
	if n := names.Size; n > 0 {
		last, err := f.ReadAt("section name table", names.Off+n-1, 1)
		if err != nil {
			return nil, err
		}
		if last[0] != 0 {
			return nil, fmt.Errorf("section name table at file offset %#x, %d bytes, does not end in a zero", names.Off, n)
		}
	}
	p := &object{Layout: &Layout{f: f, Size: size}}
	if err := p.findOld(); err != nil {
		return nil, err
	}
	p.cut = elffile.HeaderSize
	p.known = headersOf(f).end
	p.sections = make([]elf.Section64, len(f.Sections))
	for i := range f.Sections {
		s := &f.Sections[i]
		p.sections[i] = s.Section64
		if !s.HasBytes() {
			continue
		}
		if s.Off < elffile.HeaderSize && s.Size > 0 {
			return nil, fmt.Errorf("section %d (%s) at file offset %#x overlaps the ELF header", i, s.Name, s.Off)
		}
		p.known = max(p.known, s.Off+s.Size)
		if i != f.Shstrndx && i != p.old && i != p.oldRela {
			p.cut = max(p.cut, s.Off+s.Size)
		}
	}
	return p, nil
}

// findOld finds an .sframe that is there already, and its relocations.
func (p *object) findOld() error {
	f := p.f
	old, err := f.SFrame()
	i := old.Section
	if i == 0 {
		return err
	}
	s := &f.Sections[i]
	t := elf.SectionType(s.Type)
	if s.Name != sframe.SectionName || s.Type != sframe.SHTGNUSFrame && t != elf.SHT_PROGBITS {
		return fmt.Errorf("section %d is %q of type %v; .sframe of type SHT_PROGBITS or %#x was expected", i, s.Name, t, sframe.SHTGNUSFrame)
	}
	if s.Flags&^uint64(elf.SHF_WRITE) != uint64(elf.SHF_ALLOC) || i == f.Shstrndx {
		return fmt.Errorf("section %d (%s) has the flags %v and cannot be replaced; %v alone was expected", i, s.Name, elf.SectionFlag(s.Flags), elf.SHF_ALLOC)
	}
	p.old = i
	for i := range f.Sections {
		s := &f.Sections[i]
		if t := elf.SectionType(s.Type); t != elf.SHT_RELA && t != elf.SHT_REL || int(s.Info) != p.old {
			continue
		}
		if p.oldRela > 0 || elf.SectionType(s.Type) != elf.SHT_RELA || s.Flags&^uint64(elf.SHF_INFO_LINK) != 0 || i == f.Shstrndx {
			return fmt.Errorf("section %d (%s) has relocations of .sframe; one section of type SHT_RELA was expected", i, s.Name)
		}
		p.oldRela = i
	}
	return nil
}

// release makes sure that nothing refers to a section that is to be removed. Its own symbol, which ld -r and
// objcopy write for each section, becomes an empty one if nothing refers to that either: indexes of symbols
// are all over an object, too.
func (p *object) release(gone int) error {
	f := p.f
	for i := range f.Sections {
		s := &f.Sections[i]
		if i != p.oldRela && i != p.old && int(s.Link) == gone {
			return fmt.Errorf("section %d (%s) refers to section %d (%s), which can therefore not be removed", i, s.Name, gone, f.Sections[gone].Name)
		}
	}
	var own, others int
	var table *elffile.Section
	var sym elffile.Symbol
	err := f.Symbols(elf.SHT_SYMTAB, func(t *elffile.Section, s elffile.Symbol) {
		switch {
		case s.Section != gone:
		case s.Info == uint8(elf.STB_LOCAL)<<4|uint8(elf.STT_SECTION) && own == 0:
			own, table, sym = 1, t, s
		default:
			others++
		}
	})
	if err != nil {
		return err
	}
	if others > 0 {
		return fmt.Errorf("a symbol refers to section %d (%s), which can therefore not be removed", gone, f.Sections[gone].Name)
	}
	if own == 0 {
		return nil
	}
	return p.clearSymbol(table, sym.Index)
}

// clearSymbol empties a symbol that nothing refers to but relocations of .sframe.
func (p *object) clearSymbol(table *elffile.Section, index uint32) error {
	f := p.f
	link := 0
	for &f.Sections[link] != table {
		link++
	}
	var total uint64
	for i := range f.Sections {
		s := &f.Sections[i]
		if int(s.Link) != link || i == p.oldRela {
			continue
		}
		if total += s.Size; s.HasBytes() && total > f.Size {
			return fmt.Errorf("section %d (%s): what refers to symbols overlaps, having more than the %d bytes of the file", i, s.Name, f.Size)
		}
		used, err := p.refers(s, index)
		if err != nil {
			return err
		}
		if used {
			return fmt.Errorf("section %d (%s) refers to symbol %d, that of %s, which can therefore not be removed", i, s.Name, index, sframe.SectionName)
		}
	}
	p.patches = append(p.patches, patch{table.Off + uint64(index)*elffile.SymSize, make([]byte, elffile.SymSize)})
	if wide := f.SymbolIndexes(link); wide > 0 {
		p.patches = append(p.patches, patch{f.Sections[wide].Off + 4*uint64(index), make([]byte, 4)})
	}
	return nil
}

// refers reports whether a section, of those that refer to symbols, does so to the one with an index.
func (p *object) refers(s *elffile.Section, index uint32) (bool, error) {
	size := uint64(elffile.RelaSize)
	switch elf.SectionType(s.Type) {
	case elf.SHT_GROUP: // which has the name of the symbol
		return s.Info == index, nil
	case elf.SHT_REL:
		size = elffile.RelaAddend
	case elf.SHT_RELA:
	default:
		return false, nil
	}
	const chunk = 1 << 15 // relocations that are read at a time
	num := s.Size / size
	for first := uint64(0); first < num; first += chunk {
		b, err := p.f.ReadAt("section "+s.Name, s.Off+first*size, min(num-first, chunk)*size)
		if err != nil {
			return false, err
		}
		for ; len(b) > 0; b = b[size:] {
			if p.f.Order.Uint64(b[elffile.RelaInfo:])>>32 == uint64(index) {
				return true, nil
			}
		}
	}
	return false, nil
}

// slot returns the header with the given index, or a new one for 0.
func (p *object) slot(index int) *elf.Section64 {
	if index == 0 {
		p.sections = append(p.sections, elf.Section64{})
		index = len(p.sections) - 1
	}
	return &p.sections[index]
}

// names returns the section name table, and where .rela.sframe is in it. The name .sframe
// is its end.
func (p *object) names(remove bool) ([]byte, uint32, error) {
	s := &p.f.Sections[p.f.Shstrndx]
	names, err := p.f.ReadSection(s)
	if err != nil {
		return nil, 0, err
	}
	if i := strings.Index(string(names), "\x00"+relaName+"\x00"); i >= 0 {
		if end := i + 1 + len(relaName) + 1; remove && end == len(names) && !p.named(uint32(i+1)) {
			names = names[:i+1]
		}
		return names, uint32(i + 1), nil
	}
	if remove {
		return names, 0, nil
	}
	if len(names) == 0 { // it ends in a zero otherwise
		names = append(names, 0)
	}
	return append(names, relaName+"\x00"...), uint32(len(names)), nil
}

// named reports whether a section that stays has its name at or after an offset, or
// symbols may have.
func (p *object) named(off uint32) bool {
	for i := range p.sections {
		if s := &p.sections[i]; s.Name >= off || s.Link == uint32(p.f.Shstrndx) {
			return true
		}
	}
	return false
}

// finish lays out what follows the contents, from the given offset on.
func (p *object) finish(names []byte, at uint64) {
	f := p.f
	p.copies = []extent{{0, 0, p.cut}}
	s := &p.sections[f.Shstrndx]
	s.Off, s.Size = at, uint64(len(names))
	p.patches = append(p.patches, patch{at, names})
	p.shoff = alignUp(at+uint64(len(names)), tableAlign)
	p.shstrndx = uint32(f.Shstrndx)
	p.index = make([]uint32, len(f.Sections))
	for i := range p.index {
		p.index[i] = uint32(i)
	}
	p.copies = append(p.copies, extent{p.known, p.shoff + uint64(len(p.sections))*elffile.SectionSize, f.Size - p.known})
}

// relocations returns the contents of .rela.sframe, and the index of the symbol table
// that they refer to.
func (p *object) relocations(o *Object) ([]byte, int, error) {
	f := p.f
	m := elf.Machine(f.Machine)
	a := arch.Of(m)
	if a == nil {
		return nil, 0, fmt.Errorf("machine %v is not supported", m)
	}
	typ, ok := a.PCRelType(o.StartSize)
	if !ok {
		return nil, 0, fmt.Errorf("machine %v has no relocation of %d bytes that is known", m, o.StartSize)
	}
	symtab, anchors, err := p.anchors()
	if err != nil {
		return nil, 0, err
	}
	rela := make([]byte, 0, len(o.Starts)*elffile.RelaSize)
	for _, s := range o.Starts {
		i := f.SectionAt(s.Addr)
		if i == 0 {
			return nil, 0, fmt.Errorf("function at %#x is in no section", s.Addr)
		}
		a, ok := anchors[i]
		if !ok {
			return nil, 0, fmt.Errorf("section %d (%s) has no local symbol that relocations could refer to", i, f.Sections[i].Name)
		}
		b := make([]byte, elffile.RelaSize)
		f.Order.PutUint64(b, s.Off)
		f.Order.PutUint64(b[elffile.RelaInfo:], uint64(a.Index)<<32|uint64(typ))
		f.Order.PutUint64(b[elffile.RelaAddend:], s.Addr-a.Value)
		rela = append(rela, b...)
	}
	return rela, symtab, nil
}

// anchors returns for each section a symbol by which relocations can refer to it, and the
// index of the symbol table. It has to be a local one, best of all the section's own: the
// linker may take another object's function for a global one.
func (p *object) anchors() (int, map[int]elffile.Symbol, error) {
	f := p.f
	symtab := 0
	for i := range f.Sections {
		if elf.SectionType(f.Sections[i].Type) == elf.SHT_SYMTAB && symtab == 0 {
			symtab = i
		}
	}
	anchors := make(map[int]elffile.Symbol)
	err := f.Symbols(elf.SHT_SYMTAB, func(table *elffile.Section, s elffile.Symbol) {
		if table != &f.Sections[symtab] || s.Section == 0 || elf.SymBind(s.Info>>4) != elf.STB_LOCAL {
			return
		}
		typ := elf.SymType(s.Info & 0xf)
		if _, ok := anchors[s.Section]; ok && typ != elf.STT_SECTION || typ == elf.STT_TLS || typ == elf.STT_FILE {
			return
		}
		anchors[s.Section] = s
	})
	return symtab, anchors, err
}

package elfwrite

import (
	"debug/elf"
	"errors"
	"fmt"
	"slices"

	"cfi2sframe/elffile"
	"cfi2sframe/emit"
	"cfi2sframe/internal/arch"
	"cfi2sframe/sframe"
)

const relaName = ".rela" + sframe.SectionName

// An Object describes the .sframe of a relocatable object, apart from its contents.
type Object struct {
	Type      elf.SectionType // type of .sframe
	StartSize int             // size of a start address in bytes
	Starts    []emit.Start    // in the order of the relocations
	Module    bool            // the object is loaded as is, not linked with others
}

// PlanObject returns the layout of the relocatable object f with an .sframe of size bytes and its relocations, in the
// form that GNU as emits. Both sections come last, so section indexes do not change.
func PlanObject(f *elffile.File, size uint64, o Object, opt Options) (*Layout, error) {
	p, err := newObject(f, size)
	if err != nil {
		return nil, err
	}
	if p.section > 0 && !opt.Force {
		return nil, ErrExists
	}
	rela, symtab, err := p.relocations(&o)
	if err != nil {
		return nil, err
	}
	names, name, err := p.names(relaName, false, p.isOld)
	if err != nil {
		return nil, err
	}
	end, known := p.contentEnds(elffile.HeaderSize, p.isOld)
	p.off = elffile.AlignUp(end, sectionAlign)
	relaOff := elffile.AlignUp(p.off+size, tableAlign)
	p.copies = []extent{{0, 0, end}}
	p.patches = append(p.patches, patch{relaOff, rela})
	order := oldOrder(p.f)
	if p.section == 0 {
		p.section = len(order)
		order = append(order, p.section)
	}
	if p.rela == 0 {
		p.rela = len(order)
		order = append(order, p.rela)
	}
	p.setSections(order, 0, func(i int) elf.Section64 {
		switch i {
		case p.section:
			s := p.sectionHeader(name + uint32(len(".rela")))
			s.Type = uint32(o.Type)
			return s
		case p.rela:
			return elf.Section64{
				Name: name, Type: uint32(elf.SHT_RELA), Flags: uint64(elf.SHF_INFO_LINK),
				Off: relaOff, Size: uint64(len(rela)),
				Link: uint32(symtab), Info: uint32(p.section), Addralign: tableAlign, Entsize: elffile.RelaSize,
			}
		}
		return f.Sections[i].Section64
	})
	p.setHeaders(p.setNames(names, relaOff+uint64(len(rela))), known)
	return p.Layout, nil
}

// Unchanged returns the current layout of a file.
func Unchanged(f *elffile.File) *Layout {
	return &Layout{
		f: f, phoff: f.Phoff, progs: f.Progs, shoff: f.Shoff, shstrndx: uint32(f.Shstrndx),
		copies: []extent{{0, 0, f.Size}},
	}
}

// planObjectRemoval returns the layout of an object without .sframe and its relocations. If these are not the last
// sections, empty headers replace them, so section indexes do not change.
func planObjectRemoval(f *elffile.File) (*Layout, error) {
	if old, err := FindSFrame(f); err != nil {
		return nil, err
	} else if old.Section == 0 {
		return nil, ErrNone // even if the rest of the file is unsupported
	}
	p, err := newObject(f, 0)
	if err != nil {
		return nil, err
	}
	for i := range f.Sections {
		if p.isOld(i) {
			if err := p.checkUnused(i); err != nil {
				return nil, err
			}
		}
	}
	names, _, err := p.names(relaName, true, p.isOld)
	if err != nil {
		return nil, err
	}
	order := oldOrder(p.f)
	for p.isOld(order[len(order)-1]) {
		order = order[:len(order)-1]
	}
	p.setSections(order, 0, func(i int) elf.Section64 {
		if p.isOld(i) {
			return elf.Section64{}
		}
		return f.Sections[i].Section64
	})
	end, known := p.contentEnds(elffile.HeaderSize, p.isOld)
	p.copies = []extent{{0, 0, end}}
	p.setHeaders(p.setNames(names, end), known)
	return p.Layout, nil
}

// An object computes the layout of a relocatable object.
type object struct {
	*Layout
	section, rela int // indexes of .sframe and of its relocations, or 0
}

func newObject(f *elffile.File, size uint64) (*object, error) {
	if f.Shstrndx == 0 {
		return nil, errors.New("relocatable object without section headers or names")
	}
	if len(f.Progs) > 0 {
		return nil, fmt.Errorf("relocatable object with %d program headers", len(f.Progs))
	}
	if err := checkSections(f); err != nil {
		return nil, err
	}
	for i, s := range elffile.Each(f.Sections) {
		if s.HasBytes() && s.Off < elffile.HeaderSize && s.Size > 0 {
			return nil, fmt.Errorf("section %d (%s) at file offset %#x overlaps the ELF header", i, s.Name, s.Off)
		}
	}
	p := &object{Layout: &Layout{f: f, Size: size}}
	return p, p.findOld()
}

// isOld reports whether a section is the old .sframe or contains its relocations.
func (p *object) isOld(i int) bool { return i > 0 && (i == p.section || i == p.rela) }

// findOld finds an existing .sframe and its relocations.
func (p *object) findOld() error {
	f := p.f
	old, err := FindSFrame(f)
	i := old.Section
	if i == 0 {
		return err
	}
	s := &f.Sections[i]
	t := elf.SectionType(s.Type)
	if s.Name != sframe.SectionName || s.Type != sframe.SHTGNUSFrame && t != elf.SHT_PROGBITS {
		return fmt.Errorf("section %d is %q of type %v, not .sframe of type SHT_PROGBITS or %#x",
			i, s.Name, t, sframe.SHTGNUSFrame)
	}
	if s.Flags&^uint64(elf.SHF_WRITE) != uint64(elf.SHF_ALLOC) || i == f.Shstrndx {
		return fmt.Errorf("section %d (%s) cannot be replaced: its flags are %v, not %v",
			i, s.Name, elf.SectionFlag(s.Flags), elf.SHF_ALLOC)
	}
	p.section = i
	for i, s := range elffile.Each(f.Sections) {
		if t := elf.SectionType(s.Type); t != elf.SHT_RELA && t != elf.SHT_REL || int(s.Info) != p.section {
			continue
		}
		if p.rela > 0 || elf.SectionType(s.Type) != elf.SHT_RELA || s.Flags&^uint64(elf.SHF_INFO_LINK) != 0 ||
			i == f.Shstrndx {
			return fmt.Errorf("section %d (%s) relocates .sframe; only a single section of type SHT_RELA is supported",
				i, s.Name)
		}
		p.rela = i
	}
	return nil
}

// checkUnused returns an error if something refers to a section that is to be removed. Its section symbol, which ld -r
// and objcopy add for each section, is cleared if nothing uses it.
func (p *object) checkUnused(section int) error {
	f := p.f
	inUse := func(what string) error {
		return fmt.Errorf("section %d (%s) cannot be removed: %s", section, f.Sections[section].Name, what)
	}
	for i, s := range elffile.Each(f.Sections) {
		if !p.isOld(i) && int(s.Link) == section {
			return inUse(fmt.Sprintf("section %d (%s) refers to it", i, s.Name))
		}
	}
	var table *elffile.Section
	var symbols []elffile.Symbol
	err := f.Symbols(elf.SHT_SYMTAB, func(t *elffile.Section, s elffile.Symbol) {
		if s.Section == section && len(symbols) < 2 {
			table, symbols = t, append(symbols, s)
		}
	})
	if err != nil || len(symbols) == 0 {
		return err
	}
	symbol := symbols[0].Index
	if len(symbols) > 1 || symbols[0].Info != elf.ST_INFO(elf.STB_LOCAL, elf.STT_SECTION) {
		return inUse("a symbol refers to it")
	}
	symtab := slices.IndexFunc(f.Sections, func(s elffile.Section) bool { return s.Section64 == table.Section64 })
	for i, s := range elffile.Each(f.Sections) {
		if int(s.Link) != symtab || p.isOld(i) {
			continue
		}
		if used, err := p.usesSymbol(s, symbol); err != nil {
			return err
		} else if used {
			return inUse(fmt.Sprintf("section %d (%s) refers to its symbol %d", i, s.Name, symbol))
		}
	}
	p.patches = append(p.patches, patch{table.Off + uint64(symbol)*elffile.SymSize, make([]byte, elffile.SymSize)})
	if wide := f.SymbolIndexes(symtab); wide > 0 {
		p.patches = append(p.patches, patch{f.Sections[wide].Off + 4*uint64(symbol), make([]byte, 4)})
	}
	return nil
}

// usesSymbol reports whether section s refers to the symbol with the given index.
func (p *object) usesSymbol(s *elffile.Section, symbol uint32) (bool, error) {
	sizes := map[elf.SectionType]int{elf.SHT_REL: relSize, elf.SHT_RELA: elffile.RelaSize}
	size := sizes[elf.SectionType(s.Type)]
	if size == 0 { // sh_info of a section group is its signature symbol
		return elf.SectionType(s.Type) == elf.SHT_GROUP && s.Info == symbol, nil
	}
	if err := p.f.Budget().Spend(scanCost, s.Size); err != nil { // sections may overlap
		return false, err
	}
	b, err := p.f.ReadSection(s)
	for ; len(b) >= size; b = b[size:] {
		if p.f.Order.Uint64(b[elffile.RelaInfo:])>>32 == uint64(symbol) {
			return true, nil
		}
	}
	return false, err
}

// relocations returns the contents of .rela.sframe and the index of its symbol table.
func (p *object) relocations(o *Object) (rela []byte, symtab int, err error) {
	f := p.f
	m := elf.Machine(f.Machine)
	a := arch.Of(m)
	if a == nil {
		return nil, symtab, fmt.Errorf("machine %v is not supported", m)
	}
	typ, ok := a.PCRelType(o.StartSize)
	if !ok {
		return nil, symtab, fmt.Errorf("machine %v: no known pc-relative relocation of %d bytes", m, o.StartSize)
	}
	symtab, anchors, err := p.anchors(o.Module)
	if err != nil {
		return nil, symtab, err
	}
	for _, s := range o.Starts {
		i := f.SectionAt(s.Addr)
		if i == 0 {
			return nil, symtab, fmt.Errorf("function at %#x is in no section", s.Addr)
		}
		a, ok := anchors[i]
		if !ok {
			return nil, symtab, fmt.Errorf("section %d (%s) has no local symbol for relocations",
				i, f.Sections[i].Name)
		}
		b := make([]byte, elffile.RelaSize)
		f.Order.PutUint64(b, s.Off)
		f.Order.PutUint64(b[elffile.RelaInfo:], uint64(a.Index)<<32|uint64(typ))
		f.Order.PutUint64(b[elffile.RelaAddend:], s.Addr-a.Value)
		rela = append(rela, b...)
	}
	return rela, symtab, nil
}

// symtabOf returns the index of the first SHT_SYMTAB, or -1.
func symtabOf(f *elffile.File) int {
	isSymtab := func(s elffile.Section) bool { return elf.SectionType(s.Type) == elf.SHT_SYMTAB }
	return slices.IndexFunc(f.Sections, isSymtab)
}

// anchors returns, for each section, a symbol to which relocations can refer, and the index of the symbol table. The
// symbol must be local, preferably the section symbol: the linker may resolve a global symbol to another object's
// function. In a module, any symbol will do.
func (p *object) anchors(module bool) (int, map[int]elffile.Symbol, error) {
	f := p.f
	symtab := max(symtabOf(f), 0)
	anchors := make(map[int]elffile.Symbol)
	err := f.Symbols(elf.SHT_SYMTAB, func(table *elffile.Section, s elffile.Symbol) {
		if table != &f.Sections[symtab] || s.Section == 0 || elf.SymBind(s.Info>>4) != elf.STB_LOCAL && !module {
			return // local symbols come first
		}
		typ := elf.SymType(s.Info & 0xf)
		if _, ok := anchors[s.Section]; ok && typ != elf.STT_SECTION || typ == elf.STT_TLS || typ == elf.STT_FILE {
			return
		}
		anchors[s.Section] = s
	})
	return symtab, anchors, err
}

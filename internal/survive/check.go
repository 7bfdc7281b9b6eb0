package main

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"cfi2sframe/cfi"
	"cfi2sframe/internal/elffile"
	"cfi2sframe/sframe"
	"cfi2sframe/verify"
)

// placed returns an error unless .sframe is where stack tracers look for it: in a
// read-only segment, exactly under PT_GNU_SFRAME.
func placed(f *elffile.File) (*elffile.Section, error) {
	s := f.Section(".sframe")
	if s == nil {
		return nil, errors.New(".sframe is gone")
	}
	if !s.Alloc() {
		return nil, errors.New(".sframe is not SHF_ALLOC any more")
	}
	gnu := f.Prog(elf.ProgType(sframe.PTGNUSFrame))
	if gnu == nil {
		return nil, errors.New("PT_GNU_SFRAME is gone")
	}
	if s.Addr != gnu.Vaddr || s.Off != gnu.Off || s.Size != gnu.Filesz || s.Size != gnu.Memsz {
		return nil, fmt.Errorf("PT_GNU_SFRAME has addresses %#x to %#x, and .sframe %#x to %#x",
			gnu.Vaddr, gnu.Vaddr+gnu.Memsz, s.Addr, s.Addr+s.Size)
	}
	load, err := loadOf(f, s)
	if err != nil {
		return nil, err
	}
	if access := elf.ProgFlag(load.Flags) & (elf.PF_R | elf.PF_W | elf.PF_X); access != elf.PF_R {
		return nil, fmt.Errorf("the PT_LOAD of .sframe is %v", access)
	}
	return s, nil
}

// loadOf returns the PT_LOAD that has the section, and an error if there is none or if
// the PT_LOADs contradict each other.
func loadOf(f *elffile.File, s *elffile.Section) (*elf.Prog64, error) {
	var load *elf.Prog64
	var end uint64
	for i := range f.Progs {
		p := &f.Progs[i]
		if elf.ProgType(p.Type) != elf.PT_LOAD {
			continue
		}
		if p.Vaddr < end {
			return nil, fmt.Errorf("the PT_LOAD at %#x overlaps the one before", p.Vaddr)
		}
		end = p.Vaddr + p.Memsz
		if p.Align > 1 && p.Off%p.Align != p.Vaddr%p.Align {
			return nil, fmt.Errorf("the PT_LOAD at %#x cannot be mapped from file offset %#x", p.Vaddr, p.Off)
		}
		if s.Addr >= p.Vaddr && s.Addr+s.Size <= p.Vaddr+p.Filesz && s.Off-p.Off == s.Addr-p.Vaddr {
			load = p
		}
	}
	if load == nil {
		return nil, errors.New(".sframe is not in a PT_LOAD")
	}
	return load, nil
}

// verified compares .sframe with the CFI, which is that of the original: some tools
// take .debug_frame away. It returns how much code is described.
func verified(f *elffile.File, s *elffile.Section, table *cfi.Table) (uint64, error) {
	b, err := f.ReadSection(s)
	if err != nil {
		return 0, err
	}
	d, err := sframe.Decode(b, s.Addr)
	if err != nil {
		return 0, err
	}
	res, err := verify.Check(table, d, f)
	if err != nil {
		return 0, err
	}
	if res.Total > 0 {
		return 0, fmt.Errorf("%d mismatches of SFrame and CFI, the first at %v", res.Total, res.Mismatches[0])
	}
	return res.Covered + res.Stubs, nil
}

// A content is what an allocated section has, in terms that do not depend on where
// sections are.
type content struct {
	size uint64
	text string // the bytes; of symbols and dynamic entries, what they refer to
}

// contents are the allocated sections of a file but .sframe, by name. A name's second
// section has #1 behind it, and so on.
func contents(f *elffile.File) (map[string]content, error) {
	all := make(map[string]content)
	for i := range f.Sections {
		s := &f.Sections[i]
		if !s.Alloc() || s.Name == ".sframe" {
			continue
		}
		c := content{size: s.Size}
		if s.HasBytes() {
			b, err := f.ReadSection(s)
			if err != nil {
				return nil, err
			}
			c.text = meaning(f, s, b)
		}
		name := s.Name
		for n := 1; ; n++ {
			if _, there := all[name]; !there {
				break
			}
			name = fmt.Sprint(s.Name, "#", n)
		}
		all[name] = c
	}
	return all, nil
}

func meaning(f *elffile.File, s *elffile.Section, b []byte) string {
	switch elf.SectionType(s.Type) {
	case elf.SHT_DYNAMIC:
		return entries(f, b)
	case elf.SHT_DYNSYM, elf.SHT_SYMTAB:
		return symbols(f, b)
	}
	return string(b)
}

// entries are dynamic entries with section names in place of addresses.
func entries(f *elffile.File, b []byte) string {
	var text bytes.Buffer
	for ; len(b) >= 16; b = b[16:] {
		tag, value := elf.DynTag(f.Order.Uint64(b)), f.Order.Uint64(b[8:])
		i := slices.IndexFunc(f.Sections, func(s elffile.Section) bool {
			return s.Alloc() && s.Addr == value && value != 0 && s.Size > 0
		})
		if i >= 0 {
			fmt.Fprintln(&text, tag, f.Sections[i].Name)
		} else {
			fmt.Fprintln(&text, tag, value)
		}
	}
	return text.String()
}

// symbols are symbols with names in place of section indexes, and values that count
// from their sections.
func symbols(f *elffile.File, b []byte) string {
	var text bytes.Buffer
	for ; len(b) >= elffile.SymSize; b = b[elffile.SymSize:] {
		var sym elf.Sym64
		if _, err := binary.Decode(b, f.Order, &sym); err != nil {
			return err.Error()
		}
		section := fmt.Sprint(sym.Shndx)
		if n := int(sym.Shndx); 0 < n && n < len(f.Sections) {
			section = f.Sections[n].Name
			sym.Value -= f.Sections[n].Addr
		}
		fmt.Fprintln(&text, sym.Name, sym.Info, sym.Other, section, sym.Value, sym.Size)
	}
	return text.String()
}

// A change is a tool's file before and after.
type change struct{ before, after map[string]content }

// differs reports whether the tool changed a section, made it or took it away.
func (c change) differs(name string) bool {
	x, before := c.before[name]
	y, after := c.after[name]
	return before != after || x != y
}

// compare returns an error for a section that the tool changed in the converted file,
// but not in the original in the same way.
func compare(original, converted change) error {
	for _, side := range []map[string]content{converted.before, converted.after} {
		for name := range side {
			if !converted.differs(name) {
				continue
			}
			if !original.differs(name) {
				return fmt.Errorf("section %s was changed, which it was not in the original", name)
			}
			if original.after[name] != converted.after[name] {
				return fmt.Errorf("section %s was changed in another way than in the original", name)
			}
		}
	}
	return nil
}

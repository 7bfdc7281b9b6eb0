package survive

import (
	"debug/elf"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
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
	res, err := verify.Check(table, d, f, verify.Options{Keep: 100})
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
	text string // the bytes; of symbols and dynamic entries, a line for each
	list bool   // there are lines
}

// contents are the allocated sections of a file but .sframe, by name. A name's second
// section has #1 after it, and so on.
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
			c.text, c.list = meaning(f, s, b)
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

func meaning(f *elffile.File, s *elffile.Section, b []byte) (text string, list bool) {
	switch elf.SectionType(s.Type) {
	case elf.SHT_DYNAMIC:
		return entries(f, b), true
	case elf.SHT_DYNSYM, elf.SHT_SYMTAB:
		return symbols(f, b), true
	}
	return string(b), false
}

// entries are dynamic entries with section names in place of addresses.
func entries(f *elffile.File, b []byte) string {
	var text strings.Builder
	for ; len(b) >= 16; b = b[16:] {
		tag, value := elf.DynTag(f.Order.Uint64(b)), f.Order.Uint64(b[8:])
		i := slices.IndexFunc(f.Sections, func(s elffile.Section) bool {
			return s.Alloc() && s.Addr == value && value != 0 && s.Size > 0
		})
		if i >= 0 {
			fmt.Fprintf(&text, "%v %s\n", tag, f.Sections[i].Name)
		} else {
			fmt.Fprintf(&text, "%v %#x\n", tag, value)
		}
	}
	return text.String()
}

// symbols are symbols with names in place of section indexes, and values that count
// from their sections.
func symbols(f *elffile.File, b []byte) string {
	var text strings.Builder
	for i := 0; len(b) >= elffile.SymSize; i, b = i+1, b[elffile.SymSize:] {
		value, index := f.Order.Uint64(b[8:]), f.Order.Uint16(b[6:])
		section := elf.SectionIndex(index).String()
		if n := int(index); 0 < n && n < len(f.Sections) {
			section = f.Sections[n].Name
			value -= f.Sections[n].Addr
		}
		fmt.Fprintf(&text, "symbol %d in %s%+#x (name %d, info %d, other %d, size %d)\n",
			i, section, int64(value), f.Order.Uint32(b), b[4], b[5], f.Order.Uint64(b[16:]))
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
	names := slices.Collect(maps.Keys(converted.before))
	names = slices.AppendSeq(names, maps.Keys(converted.after))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if !converted.differs(name) {
			continue
		}
		if !original.differs(name) {
			return fmt.Errorf("section %s is changed, which that of the original is not%s", name, first(converted.before[name], converted.after[name]))
		}
		if x, y := original.after[name], converted.after[name]; x != y {
			return fmt.Errorf("section %s does not become what that of the original does%s", name, first(x, y))
		}
	}
	return nil
}

// first describes the first difference between two lists.
func first(x, y content) string {
	if !x.list || !y.list {
		return ""
	}
	a, b := strings.Split(x.text, "\n"), strings.Split(y.text, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf(": %s, expected %s", b[i], a[i])
		}
	}
	return fmt.Sprintf(": %d entries, expected %d", len(b), len(a))
}

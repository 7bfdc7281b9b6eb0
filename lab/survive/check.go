package survive

import (
	"debug/elf"
	"errors"
	"fmt"
	"slices"
	"strings"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/linked"
	"cfi2sframe/sframe"
	"cfi2sframe/verify"
)

// placed returns an error unless .sframe is where stack tracers look for it: in a read-only segment, exactly under
// PT_GNU_SFRAME.
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
	if access := elf.ProgFlag(load.Flags) & (elf.PF_R | elf.PF_W | elf.PF_X); access != elf.PF_R {
		return nil, fmt.Errorf("the PT_LOAD of .sframe is %v", access)
	}
	return s, nil
}

// checked returns an error unless the .sframe of a file is in its place and agrees with the CFI of the original: some
// tools remove .debug_frame. It returns the bytes of code that are described.
func checked(f *elffile.File, table *cfi.Table) (uint64, error) {
	s, err := placed(f)
	if err != nil {
		return 0, err
	}
	b, err := f.ReadSection(s)
	if err != nil {
		return 0, err
	}
	d, err := sframe.Decode(b, s.Addr)
	if err != nil {
		return 0, err
	}
	res, err := verify.Check(table, d, f, verify.Options{Keep: 1})
	if err != nil {
		return 0, err
	}
	if res.Total > 0 {
		return 0, fmt.Errorf("%d mismatches of SFrame and CFI, the first at %v", res.Total, res.Mismatches[0])
	}
	return res.Covered + res.Stubs, nil
}

// contents returns the allocated sections of a file but .sframe, by name, in terms that do not depend on where sections
// are. A name's second section has #1 after it, and so on.
func contents(path string) (map[string]string, error) {
	f, err := linked.Open(path)
	if err != nil {
		return nil, err
	}
	all := make(map[string]string)
	for i := range f.Sections {
		s := &f.Sections[i]
		if !s.Alloc() || s.Name == ".sframe" {
			continue
		}
		text := fmt.Sprintf("%d bytes", s.Size)
		if s.HasBytes() {
			b, err := f.ReadSection(s)
			if err != nil {
				return nil, err
			}
			switch elf.SectionType(s.Type) {
			case elf.SHT_DYNAMIC:
				text = entries(f, b)
			case elf.SHT_DYNSYM, elf.SHT_SYMTAB:
				text = symbols(f, b)
			default:
				text = string(b)
			}
		}
		name := s.Name
		for n := 1; all[name] != ""; n++ {
			name = fmt.Sprint(s.Name, "#", n)
		}
		all[name] = text + "\n"
	}
	return all, nil
}

// entries prints dynamic entries with section names instead of addresses.
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

// symbols prints symbols with section names instead of indexes, and values that count from their sections.
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

// A change is the sections of a file before and after a tool. A missing section is "".
type change struct{ before, after map[string]string }

// compare returns an error for a section that the tool changes in the converted file, but not in the original in the
// same way.
func compare(original, converted change) error {
	for _, sections := range []map[string]string{converted.before, converted.after} {
		for name := range sections {
			now := converted.after[name]
			switch {
			case converted.before[name] == now:
			case original.before[name] == original.after[name]:
				return fmt.Errorf("section %s is changed, but not in the original", name)
			case original.after[name] != now:
				return fmt.Errorf("section %s becomes another than in the original", name)
			}
		}
	}
	return nil
}

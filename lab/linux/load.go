package linux

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"cfi2sframe/cfi"
	"cfi2sframe/lab/kit"
	"cfi2sframe/sframe"
)

// A loaded file holds the .sframe and the CFI as they are in a kernel's memory.
type loaded struct {
	section *sframe.Section
	table   *cfi.Table
}

// load loads a module at arbitrary addresses, or reads a linked kernel, whose .sframe is between two symbols.
func load(b []byte, symbols string) (*loaded, error) {
	e, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	var data, frames []byte
	var addr uint64
	if e.Type == elf.ET_REL {
		m := &module{File: e, addrs: make([]uint64, len(e.Sections))}
		m.layOut(rand.New(rand.NewPCG(uint64(len(b)), 1)))
		if data, addr, err = m.contents(".sframe", true); err == nil {
			frames, _, err = m.contents(".debug_frame", false)
		}
	} else {
		if data, addr, err = bytesBetween(e, symbols); err == nil {
			frames, err = e.Section(".debug_frame").Data()
		}
	}
	if err != nil {
		return nil, err
	}
	l := &loaded{}
	if l.section, err = sframe.Decode(data, addr); err != nil {
		return nil, err
	}
	l.section = l.section.Sorted() // as the kernel does for modules
	l.table, err = cfi.Parse(e.Machine, e.ByteOrder, cfi.Section{Source: cfi.DebugFrame, Data: frames})
	return l, err
}

// compare compares the section's rows with the CFI at every pc.
func (l *loaded) compare() (kit.Rows, error) {
	for _, d := range l.section.FDEs() {
		if d.PCMask {
			return kit.Rows{}, fmt.Errorf("a PC-mask FDE at %#x", d.Start)
		}
	}
	return kit.CompareRows(l.table, l.section, nil)
}

// bytesBetween returns the bytes between two symbols (START:END), and their address.
func bytesBetween(e *elf.File, symbols string) ([]byte, uint64, error) {
	first, last, _ := strings.Cut(symbols, ":")
	var begin, end uint64
	all, err := e.Symbols()
	for _, s := range all {
		switch s.Name {
		case first:
			begin = s.Value
		case last:
			end = s.Value
		}
	}
	for _, p := range e.Progs {
		if err == nil && p.Type == elf.PT_LOAD && begin >= p.Vaddr && begin < end && end <= p.Vaddr+p.Filesz {
			b := make([]byte, end-begin)
			_, err := p.ReadAt(b, int64(begin-p.Vaddr))
			return b, begin, err
		}
	}
	return nil, 0, fmt.Errorf("no segment contains %s, %#x to %#x: %w", symbols, begin, end, err)
}

// A module is a kernel module with assigned addresses.
type module struct {
	*elf.File
	addrs []uint64 // of sections
}

// layOut assigns addresses to the allocated sections. Sections of one kind (text, read-only data or data, for
// initialization or not) are adjacent; the kinds are in random order (layout_sections, move_module in kernel/module).
func (m *module) layOut(rnd *rand.Rand) {
	const space, page = 0xffffffffa0000000, 0x1000 // where amd64 kernels load modules
	kinds := make(map[string][]int)
	for i, s := range m.Sections {
		if s.Flags&elf.SHF_ALLOC != 0 {
			kind := fmt.Sprint(strings.HasPrefix(s.Name, ".init"), s.Flags&(elf.SHF_EXECINSTR|elf.SHF_WRITE))
			kinds[kind] = append(kinds[kind], i)
		}
	}
	next := uint64(space)
	names := slices.Sorted(maps.Keys(kinds))
	rnd.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for _, kind := range names {
		next += page * (1 + rnd.Uint64N(256))
		for _, i := range kinds[kind] {
			align := max(m.Sections[i].Addralign, 1)
			m.addrs[i] = (next + align - 1) &^ (align - 1)
			next = m.addrs[i] + m.Sections[i].Size
		}
		next = (next + page - 1) &^ (page - 1)
	}
}

// contents returns the relocated contents of a section and its address. If the kernel loads the section, relocations
// that its module loader would reject are errors.
func (m *module) contents(name string, loads bool) ([]byte, uint64, error) {
	i := slices.IndexFunc(m.Sections, func(s *elf.Section) bool { return s.Name == name })
	if i < 0 {
		return nil, 0, fmt.Errorf("no section %s", name)
	}
	if loads != (m.addrs[i] != 0) {
		return nil, 0, fmt.Errorf("section %s is at address %#x", name, m.addrs[i])
	}
	data, err := m.Sections[i].Data()
	if err != nil {
		return nil, 0, err
	}
	symbols, err := m.Symbols()
	if err != nil {
		return nil, 0, err
	}
	for _, s := range m.Sections {
		if s.Type != elf.SHT_RELA || int(s.Info) != i {
			continue
		}
		table, err := s.Data()
		if err != nil {
			return nil, 0, err
		}
		for rela := range slices.Chunk(table, 24) {
			if err := m.relocate(data, m.addrs[i], rela, symbols, loads); err != nil {
				return nil, 0, fmt.Errorf("section %s: %w", name, err)
			}
		}
	}
	return data, m.addrs[i], nil
}

// relocate applies a relocation to data at an address, like apply_relocate_add of x86 and arm64.
func (m *module) relocate(data []byte, addr uint64, rela []byte, symbols []elf.Symbol, loads bool) error {
	le := binary.LittleEndian
	off, info, addend := le.Uint64(rela), le.Uint64(rela[8:]), le.Uint64(rela[16:])
	symbol := symbols[info>>32-1]
	value := m.addrs[symbol.Section] + symbol.Value + addend
	place := data[off:]
	switch typ := uint32(info); {
	case m.Machine == elf.EM_X86_64 && typ == uint32(elf.R_X86_64_PC64),
		m.Machine == elf.EM_AARCH64 && typ == uint32(elf.R_AARCH64_PREL64):
		if le.Uint64(place) != 0 { // x86: "Invalid relocation target, existing value is nonzero"
			return fmt.Errorf("relocation at offset %#x: the field is not zero", off)
		}
		le.PutUint64(place, value-(addr+off))
	case loads:
		return fmt.Errorf("relocation at offset %#x has type %d", off, typ)
	case m.Machine == elf.EM_X86_64 && typ == uint32(elf.R_X86_64_64),
		m.Machine == elf.EM_AARCH64 && typ == uint32(elf.R_AARCH64_ABS64):
		le.PutUint64(place, value)
	case m.Machine == elf.EM_X86_64 && typ == uint32(elf.R_X86_64_32),
		m.Machine == elf.EM_AARCH64 && typ == uint32(elf.R_AARCH64_ABS32):
		le.PutUint32(place, uint32(value))
	default:
		return fmt.Errorf("relocation at offset %#x has unsupported type %d", off, typ)
	}
	return nil
}

// Package image compares an ELF file before and after .sframe was added to it.
package image

import (
	"bytes"
	"cmp"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"slices"

	"cfi2sframe/elffile"
	"cfi2sframe/sframe"
)

// Compare returns an error unless
//   - every allocated section of the old file is in the new file, with the same contents, and at the same address
//     unless it may move;
//   - every byte that the old file loads after its headers is loaded by the new file at the same address;
//   - the dynamic entries are the same, except those of moved sections;
//   - sections that are not loaded are the same, and refer to the same sections;
//   - the program headers are where loaders look for them, if they were there before;
//   - programs that find their notes through their ELF header in memory still find them;
//   - .sframe is inside a read-only PT_LOAD, PT_GNU_SFRAME is the same range, and no segments overlap. An .sframe that
//     a linker emitted may stay in a segment with code.
//
// In a relocatable object, every section is unchanged and has the same index.
func Compare(before, after *elffile.File) error {
	if before.IsObject() {
		return objects(before, after)
	}
	if err := Contents(before, after); err != nil {
		return err
	}
	return Segment(after, before.Prog(elf.ProgType(sframe.PTGNUSFrame)))
}

// Contents is like Compare but does not check .sframe: it is for files from which .sframe was removed.
func Contents(before, after *elffile.File) error {
	moved, err := sections(before, after)
	if err != nil {
		return err
	}
	if err := dynamic(before, after, moved); err != nil {
		return err
	}
	if tableLoaded(before) && !tableLoaded(after) {
		return fmt.Errorf("the program headers are not at the load address plus e_phoff")
	}
	if err := runtimeNotes(before, after); err != nil {
		return err
	}
	return loads(before, after, moved)
}

// objects compares objects. Section names may move, and numbers too large for the ELF header are in section header 0.
func objects(before, after *elffile.File) error {
	if len(after.Sections) < len(before.Sections) || after.Shstrndx != before.Shstrndx {
		return fmt.Errorf("%d sections, names in section %d, instead of %d and %d", len(after.Sections), after.Shstrndx,
			len(before.Sections), before.Shstrndx)
	}
	for i := 1; i < len(before.Sections); i++ {
		s, t := &before.Sections[i], &after.Sections[i]
		x, y := s.Section64, t.Section64
		if y.Off = x.Off; i == before.Shstrndx {
			y.Size = min(y.Size, x.Size)
		}
		if x != y || s.Name != t.Name {
			return fmt.Errorf("section %d (%s) has a different header", i, s.Name)
		}
		if !s.HasBytes() {
			continue
		}
		if a := elffile.ValidAlign(s.Addralign); s.Off%a == 0 && t.Off%a != 0 {
			return fmt.Errorf("section %s is at file offset %#x, not aligned to %d", s.Name, t.Off, t.Addralign)
		}
		if err := compareBytes(before, after, s.Off, t.Off, s.Size); err != nil {
			return fmt.Errorf("section %s: %w", s.Name, err)
		}
	}
	return nil
}

// tableLoaded reports whether the program headers are in memory at the load address plus
// e_phoff, where Linux before 5.18 and qemu-user say that they are (AT_PHDR).
func tableLoaded(f *elffile.File) bool {
	load := f.Prog(elf.PT_LOAD)
	if load == nil {
		return false
	}
	off, ok := f.FileOffset(load.Vaddr-load.Off+f.Phoff, uint64(len(f.Progs))*elffile.ProgSize)
	return ok && off == f.Phoff
}

// runtimeNotes expects that code still finds the notes of the old file if it walks from the ELF header in memory
// (__ehdr_start) to the program headers, and then, by file offset, to the notes, as compiler-rt's profile writer does.
func runtimeNotes(before, after *elffile.File) error {
	i := slices.IndexFunc(before.Progs, func(h elf.Prog64) bool {
		return elf.ProgType(h.Type) == elf.PT_LOAD && h.Off == 0 && h.Filesz > 0
	})
	if i < 0 {
		return nil
	}
	header := before.Progs[i].Vaddr
	old, err := notesFrom(before, header)
	if err != nil {
		return nil // the old file's program headers are not loaded
	}
	found, err := notesFrom(after, header)
	if err != nil {
		return fmt.Errorf("notes found through the ELF header at %#x: %w", header, err)
	}
	for _, n := range found {
		if !slices.Contains(old, n) {
			return fmt.Errorf("the ELF header at %#x leads to the note %q, which is not in the old file", header, n)
		}
	}
	var property []byte // may be the only reference to its note
	if h := after.Prog(elf.PT_GNU_PROPERTY); h != nil {
		if property, err = after.ReadAt("PT_GNU_PROPERTY", h.Off, h.Filesz); err != nil {
			return err
		}
	}
	for _, n := range old {
		if !slices.Contains(found, n) && !bytes.HasPrefix(property, []byte(n)) {
			return fmt.Errorf("the ELF header at %#x no longer leads to the note %q", header, n)
		}
	}
	return nil
}

// notesFrom returns the notes that can be found in memory through the ELF header. Crashpad's notes contain addresses
// relative to the notes, so they are returned without their contents.
func notesFrom(f *elffile.File, header uint64) ([]string, error) {
	h, err := memory[elf.Header64](f, header, elffile.HeaderSize)
	if err != nil {
		return nil, err
	}
	progs, err := memory[elf.Prog64](f, header+h[0].Phoff, uint64(h[0].Phnum)*elffile.ProgSize)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, p := range progs {
		if elf.ProgType(p.Type) != elf.PT_NOTE {
			continue
		}
		b, err := memory[byte](f, header+p.Off, p.Filesz)
		if err != nil {
			return nil, err
		}
		list, err := notes(b, f.Order, max(4, p.Align))
		if err != nil {
			return nil, fmt.Errorf("PT_NOTE at %#x: %w", p.Off, err)
		}
		all = append(all, list...)
	}
	return all, nil
}

// notes returns two strings for each note: its header and name, and its contents.
func notes(b []byte, order binary.ByteOrder, align uint64) (all []string, err error) {
	const words = 12 // sizes and type
	up := func(n uint64) uint64 { return (n + align - 1) / align * align }
	for len(b) > 0 {
		if len(b) < words {
			return nil, fmt.Errorf("truncated note")
		}
		name := words + uint64(order.Uint32(b))
		begin, size := up(name), uint64(order.Uint32(b[4:]))
		if begin+size > uint64(len(b)) {
			return nil, fmt.Errorf("truncated note of %d bytes", begin+size)
		}
		contents := b[begin:][:size]
		if bytes.HasPrefix(b[words:], []byte("Crashpad")) {
			contents = nil
		}
		all = append(all, string(b[:name])+string(contents))
		b = b[min(up(begin+size), uint64(len(b))):]
	}
	return all, nil
}

// A move holds a section's old and new address.
type move struct{ from, to uint64 }

// sections compares all sections except .sframe and the section names, and returns the moves of loaded sections.
func sections(before, after *elffile.File) ([]move, error) {
	var moved []move
	counterpart := pairs(before, after)
	for i := range before.Sections {
		s, t := &before.Sections[i], counterpart[i]
		loaded := s.Alloc()
		if isSFrame(s) || !loaded && (i == 0 || i == before.Shstrndx) {
			continue
		}
		if t == nil {
			return nil, fmt.Errorf("section %s is missing", s.Name)
		}
		// In a program interpreter (ld.so), .bss is in the file, and the last section extends to the end of its page.
		filled := loaded && elf.SectionType(s.Type) == elf.SHT_NOBITS && elf.SectionType(t.Type) == elf.SHT_PROGBITS
		grown := loaded && t.Size > s.Size && s.Flags&uint64(elf.SHF_WRITE) != 0 && (t.Addr+t.Size)%4096 == 0
		if filled || grown {
			b, err := after.ReadSection(t)
			if err != nil {
				return nil, err
			}
			if !filled {
				b = b[s.Size:]
			}
			if len(bytes.Trim(b, "\x00")) > 0 {
				return nil, fmt.Errorf("section %s is not all zeros", s.Name)
			}
		}
		if !filled && s.Type != t.Type || !grown && s.Size != t.Size || s.Entsize != t.Entsize ||
			s.Flags != t.Flags || s.Addralign != t.Addralign || link(before, s) != link(after, t) {
			return nil, fmt.Errorf("section %s has a different header", s.Name)
		}
		old, now, align := s.Addr, t.Addr, elffile.ValidAlign(s.Addralign)
		if !loaded {
			old, now, align = s.Off, t.Off, min(align, 4096)
		}
		if old%align == 0 && now%align != 0 {
			return nil, fmt.Errorf("section %s is at %#x, not aligned to %d", s.Name, now, t.Addralign)
		}
		if loaded && s.Addr != t.Addr {
			moved = append(moved, move{s.Addr, t.Addr})
		}
		if !s.HasBytes() {
			continue
		}
		if loaded && t.Size > 0 {
			if off, ok := after.FileOffset(t.Addr, t.Size); !ok || off != t.Off {
				return nil, fmt.Errorf("section %s is not loaded at the address in its header", s.Name)
			}
		}
		if err := contents(before, after, s, t); err != nil {
			return nil, fmt.Errorf("section %s: %w", s.Name, err)
		}
	}
	return moved, nil
}

// contents compares the contents of a section, except section indexes.
func contents(before, after *elffile.File, s, t *elffile.Section) error {
	switch typ := elf.SectionType(s.Type); {
	case typ == elf.SHT_DYNAMIC, isDynamic(before, s), typ == elf.SHT_SYMTAB_SHNDX:
		return nil // dynamic compares the entries
	case typ == elf.SHT_DYNSYM, typ == elf.SHT_SYMTAB:
		return symbols(before, after, s, t)
	case s.Name == ".note.crashpad.info" && s.Size >= 8: // ends with a relative address
		return compareBytes(before, after, s.Off, t.Off, s.Size-8)
	case typ == elf.SHT_RELA && !s.Alloc():
		x, y := int(s.Info), int(t.Info)
		if x < len(before.Sections) && (y >= len(after.Sections) || before.Sections[x].Name != after.Sections[y].Name) {
			return fmt.Errorf("it relocates a different section")
		}
	}
	return compareBytes(before, after, s.Off, t.Off, s.Size)
}

// isDynamic reports whether a section is the dynamic table, whatever its type.
func isDynamic(f *elffile.File, s *elffile.Section) bool {
	h := f.Prog(elf.PT_DYNAMIC)
	return h != nil && h.Off == s.Off
}

func isSFrame(s *elffile.Section) bool { return s.Type == sframe.SHTGNUSFrame || s.Name == ".sframe" }

// pairs maps each section of before to its counterpart in after: sections with equal names keep their order.
func pairs(before, after *elffile.File) []*elffile.Section {
	named := make(map[string][]*elffile.Section)
	for i := range after.Sections {
		s := &after.Sections[i]
		named[s.Name] = append(named[s.Name], s)
	}
	out := make([]*elffile.Section, len(before.Sections))
	for i := range before.Sections {
		if list := named[before.Sections[i].Name]; len(list) > 0 {
			out[i], named[before.Sections[i].Name] = list[0], list[1:]
		}
	}
	return out
}

func link(f *elffile.File, s *elffile.Section) string {
	if int(s.Link) < len(f.Sections) {
		return f.Sections[s.Link].Name
	}
	return fmt.Sprint(s.Link)
}

// read reads the records of a table at a file offset.
func read[T any](f *elffile.File, off, size uint64) ([]T, error) {
	b, err := f.ReadAt("table", off, size)
	if err != nil {
		return nil, err
	}
	out := make([]T, len(b)/binary.Size(*new(T)))
	_, err = binary.Decode(b, f.Order, out)
	return out, err
}

// memory reads the records of type T in size bytes of memory at addr.
func memory[T any](f *elffile.File, addr, size uint64) ([]T, error) {
	off, ok := f.FileOffset(addr, size)
	if !ok {
		return nil, fmt.Errorf("%d bytes at %#x are not loaded", size, addr)
	}
	return read[T](f, off, size)
}

// compareBytes compares n bytes of both files.
func compareBytes(a, b *elffile.File, offA, offB, n uint64) error {
	x, err := a.ReadAt("before", offA, n)
	if err != nil {
		return err
	}
	y, err := b.ReadAt("after", offB, n)
	if err == nil && !bytes.Equal(x, y) {
		err = fmt.Errorf("contents differ between file offsets %#x and %#x", offA, offA+n)
	}
	return err
}

// symbols compares two symbol tables by the names of the symbols' sections.
func symbols(before, after *elffile.File, s, t *elffile.Section) error {
	x, err := read[elf.Sym64](before, s.Off, s.Size)
	if err != nil {
		return err
	}
	y, err := read[elf.Sym64](after, t.Off, t.Size)
	if err != nil {
		return err
	}
	for i, a := range x {
		b := y[i]
		p, q := int(a.Shndx), int(b.Shndx)
		if p > 0 && p < len(before.Sections) {
			from := &before.Sections[p]
			if isSFrame(from) {
				continue
			}
			if q >= len(after.Sections) || from.Name != after.Sections[q].Name {
				return fmt.Errorf("symbol %d is in a different section", i)
			}
			if a.Value-from.Addr <= from.Size { // inside the section, or at its end
				a.Value += after.Sections[q].Addr - from.Addr
			}
		} else if p != q {
			return fmt.Errorf("symbol %d has a different section index", i)
		}
		if a.Shndx = b.Shndx; a != b {
			return fmt.Errorf("symbol %d differs", i)
		}
	}
	return nil
}

// dynamic compares dynamic entries.
func dynamic(before, after *elffile.File, moved []move) error {
	x, y := before.Prog(elf.PT_DYNAMIC), after.Prog(elf.PT_DYNAMIC)
	if x == nil && y == nil {
		return nil
	}
	if x == nil || y == nil || x.Vaddr != y.Vaddr || x.Filesz != y.Filesz || x.Memsz != y.Memsz || x.Flags != y.Flags {
		return fmt.Errorf("PT_DYNAMIC differs: %+v, %+v", x, y)
	}
	a, err := read[elf.Dyn64](before, x.Off, x.Filesz)
	if err != nil {
		return err
	}
	b, err := read[elf.Dyn64](after, y.Off, y.Filesz)
	if err != nil {
		return err
	}
	for i := range a {
		v, w := a[i].Val, b[i].Val
		if a[i].Tag != b[i].Tag || v != w && !slices.Contains(moved, move{v, w}) {
			return fmt.Errorf("dynamic entry %v, %#x, is now %v, %#x", elf.DynTag(a[i].Tag), v, elf.DynTag(b[i].Tag), w)
		}
	}
	return nil
}

// loads compares the bytes of the segments, except headers, moved sections and tables that change.
func loads(before, after *elffile.File, moved []move) error {
	head := before.Phoff + uint64(len(before.Progs))*elffile.ProgSize
	for _, m := range moved {
		for i := range before.Sections {
			if s := &before.Sections[i]; s.Addr == m.from && s.Alloc() {
				head = max(head, s.Off+s.Size)
			}
		}
	}
	type span struct{ begin, end uint64 }
	skip := []span{
		{0, head + 2*elffile.ProgSize}, // headers that are added
		{before.Shoff, before.Shoff + uint64(len(before.Sections))*elffile.SectionSize}, // written elsewhere
	}
	for i := range before.Sections {
		s := &before.Sections[i]
		switch elf.SectionType(s.Type) {
		case elf.SHT_DYNAMIC, elf.SHT_DYNSYM, elf.SHT_SYMTAB, sframe.SHTGNUSFrame:
			skip = append(skip, span{s.Off, s.Off + s.Size})
		}
	}
	for i := range before.Progs {
		// The file may have no sections.
		if p := &before.Progs[i]; p.Type == sframe.PTGNUSFrame || elf.ProgType(p.Type) == elf.PT_DYNAMIC {
			skip = append(skip, span{p.Off, p.Off + p.Filesz})
		}
	}
	slices.SortFunc(skip, func(a, b span) int { return cmp.Compare(a.begin, b.begin) })
	for i := range before.Progs {
		p := &before.Progs[i]
		if elf.ProgType(p.Type) != elf.PT_LOAD {
			continue
		}
		at := p.Off
		for _, s := range append(skip, span{p.Off + p.Filesz, p.Off + p.Filesz}) {
			if end := min(s.begin, p.Off+p.Filesz); end > at {
				off, ok := after.FileOffset(p.Vaddr+(at-p.Off), end-at)
				if !ok {
					return fmt.Errorf("file offsets %#x to %#x are no longer loaded", at, end)
				}
				if err := compareBytes(before, after, at, off, end-at); err != nil {
					return err
				}
			}
			at = max(at, min(s.end, p.Off+p.Filesz))
		}
	}
	return nil
}

// Segment checks that .sframe is in a read-only segment, and has PT_GNU_SFRAME's range. Old is its old segment or nil.
func Segment(f *elffile.File, old *elf.Prog64) error {
	gnu := f.Prog(elf.ProgType(sframe.PTGNUSFrame))
	if gnu == nil {
		return fmt.Errorf("no PT_GNU_SFRAME")
	}
	inside := false
	progs := slices.Clone(f.Progs)
	if f.Prog(elf.PT_INTERP) == nil { // segments may be in any order
		slices.SortStableFunc(progs, func(a, b elf.Prog64) int { return cmp.Compare(a.Vaddr, b.Vaddr) })
	}
	var end uint64
	for i := range progs {
		p := &progs[i]
		if elf.ProgType(p.Type) != elf.PT_LOAD {
			continue
		}
		if p.Vaddr < end {
			return fmt.Errorf("PT_LOAD at %#x overlaps another PT_LOAD", p.Vaddr)
		}
		if p.Align > 1 && p.Off%p.Align != p.Vaddr%p.Align {
			return fmt.Errorf("PT_LOAD at %#x: offset and address differ modulo %#x", p.Vaddr, p.Align)
		}
		end = p.Vaddr + p.Memsz
		if gnu.Vaddr >= p.Vaddr && gnu.Vaddr+gnu.Memsz <= p.Vaddr+p.Filesz {
			flags := elf.ProgFlag(p.Flags) & (elf.PF_R | elf.PF_W | elf.PF_X)
			kept := old != nil && gnu.Vaddr == old.Vaddr
			inside = (flags == elf.PF_R || kept && flags == elf.PF_R|elf.PF_X) && gnu.Off-p.Off == gnu.Vaddr-p.Vaddr
		}
	}
	if !inside {
		return fmt.Errorf("PT_GNU_SFRAME is not inside a read-only PT_LOAD")
	}
	if len(f.Sections) == 0 {
		return nil
	}
	s := f.Section(".sframe")
	if s == nil || s.Type != sframe.SHTGNUSFrame || s.Flags != uint64(elf.SHF_ALLOC) || s.Addralign != 8 ||
		s.Addr != gnu.Vaddr || s.Off != gnu.Off || s.Size != gnu.Filesz || gnu.Filesz != gnu.Memsz || s.Addr%8 != 0 {
		return fmt.Errorf("section .sframe and PT_GNU_SFRAME are different ranges")
	}
	return nil
}

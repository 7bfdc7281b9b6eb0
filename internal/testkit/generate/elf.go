package generate

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"slices"

	"cfi2sframe/elffile"
)

// A File is an ELF file.
type File struct {
	Bytes    []byte
	Machine  *Machine
	Object   bool
	Headers  bool // it has section headers
	CFI      *CFI // .eh_frame, or nil
	Debug    *CFI // .debug_frame, or nil
	Text     []string
	fakeText []Range // where the sections of code are in the CFI of an object
}

// Rows returns what the file says of its code, at the addresses that x, the file as it is read, has it at.
func (f *File) Rows(x *elffile.File) []Row {
	var out []Row
	if f.CFI != nil {
		out = f.CFI.Rows()
	}
	if f.Debug != nil {
		out = fill(out, f.Debug.Rows())
	}
	if !f.Object {
		return out
	}
	for i := range out {
		for j, r := range f.fakeText {
			if out[i].Begin >= r.Begin && out[i].Begin < r.End {
				move := x.Section(f.Text[j]).Base - r.Begin
				out[i].Begin += move
				out[i].End += move
				break
			}
		}
	}
	return out
}

// fill returns the rows a, and of the rows b what those do not describe.
func fill(a, b []Row) []Row {
	out := slices.Clone(a)
	for _, r := range b {
		begin := r.Begin
		add := func(end uint64) {
			if begin < end {
				p := r
				p.Begin, p.End = begin, end
				out = append(out, p)
			}
		}
		for i := range a {
			if a[i].End > begin && a[i].Begin < r.End {
				add(a[i].Begin)
				begin = max(begin, a[i].End)
			}
		}
		add(r.End)
	}
	slices.SortFunc(out, func(a, b Row) int {
		if a.Begin < b.Begin {
			return -1
		}
		return 1
	})
	return out
}

// At returns the row of sorted rows that holds for pc, or nil.
func At(rows []Row, pc uint64) *Row {
	i, ok := slices.BinarySearchFunc(rows, pc, func(r Row, pc uint64) int {
		switch {
		case r.End <= pc:
			return -1
		case r.Begin > pc:
			return 1
		}
		return 0
	})
	if !ok {
		return nil
	}
	return &rows[i]
}

// A section is one in the making.
type section struct {
	elf.Section64
	name string
	data []byte
}

// A builder makes a file.
type builder struct {
	s        *Source
	m        *Machine
	f        *File
	b        []byte // the file so far
	sections []section
	progs    []elf.Prog64
	symbols  []byte
	strings  []byte
	dynamic  []elf.Dyn64
	slot     uint64 // of the first pointer that others lead to, from the begin of the segment
}

// bases are where segments begin, from the first one's address.
const (
	textBase = 0x20000
	dataBase = 0x80000
	roBase   = 0x40000
)

// NewFile makes a file, linked or an object.
func NewFile(s *Source) *File {
	m := &Machines[s.N(len(Machines))]
	f := &File{Machine: m, Headers: true}
	b := &builder{s: s, m: m, f: f, symbols: make([]byte, elffile.SymSize), strings: []byte{0}}
	b.sections = []section{{}}
	if s.Rarely(4) {
		f.Object = true
		b.object()
	} else {
		b.linked()
	}
	return f
}

// write encodes a value of fixed size.
func (b *builder) write(v any) []byte {
	var out bytes.Buffer
	_ = binary.Write(&out, b.m.Order, v) // a buffer takes everything
	return out.Bytes()
}

func (b *builder) align(n int) {
	for len(b.b)%n != 0 {
		b.b = append(b.b, 0)
	}
}

// add appends a section with its contents, and returns its index. The address follows from that of the segment,
// which begins at the given difference from file offsets; none for what is not loaded.
func (b *builder) add(name string, typ elf.SectionType, flags elf.SectionFlag, align uint64, diff uint64, data []byte) int {
	b.align(int(align))
	x := section{name: name, data: data}
	x.Type, x.Flags, x.Addralign = uint32(typ), uint64(flags), align
	x.Off, x.Size = uint64(len(b.b)), uint64(len(data))
	if flags&elf.SHF_ALLOC != 0 && !b.f.Object {
		x.Addr = x.Off + diff
	}
	if typ == elf.SHT_NOBITS {
		x.Size, data = 64, nil
	}
	b.b = append(b.b, data...)
	b.sections = append(b.sections, x)
	return len(b.sections) - 1
}

// symbol appends a symbol, and returns its index.
func (b *builder) symbol(name string, typ elf.SymType, bind elf.SymBind, shndx int, value, size uint64) int {
	x := elf.Sym64{Info: elf.ST_INFO(bind, typ), Shndx: uint16(shndx), Value: value, Size: size}
	if name != "" {
		x.Name = uint32(len(b.strings))
		b.strings = append(append(b.strings, name...), 0)
	}
	b.symbols = append(b.symbols, b.write(&x)...)
	return len(b.symbols)/elffile.SymSize - 1
}

// prog appends a program header for n bytes of the file.
func (b *builder) prog(typ elf.ProgType, flags elf.ProgFlag, off, diff, n, align uint64) {
	b.progs = append(b.progs, elf.Prog64{
		Type: uint32(typ), Flags: uint32(flags), Off: off, Vaddr: off + diff, Paddr: off + diff, Filesz: n, Memsz: n, Align: align,
	})
}

// code returns ranges for sections of code at an address, 64 bytes and more each.
func (b *builder) code(addr uint64) []Range {
	var out []Range
	for i := range 1 + b.s.N(2) {
		size := uint64(256 + 16*b.s.N(128))
		out = append(out, Range{addr, addr + size})
		addr += size + uint64(b.s.N(2))*256 + uint64(i)
		addr = (addr + 15) &^ 15
	}
	return out
}

var textNames = []string{".text", ".text.cold"}

// frames makes the CFI.
func (b *builder) frames(text []Range) {
	f, s := b.f, b.s
	kind := s.N(4) // mostly .eh_frame alone
	if kind != 3 {
		f.CFI = NewCFI(s, b.m, false, f.Object, text)
	}
	if kind >= 2 {
		f.Debug = NewCFI(s, b.m, true, f.Object, text)
	}
}

// linked makes a linked file.
func (b *builder) linked() {
	s, f := b.s, b.f
	page := one[uint64](s, 0x1000, 0x10000)
	b.slot = page + 0x1000 // behind .dynamic, wherever in its page that begins
	base := one[uint64](s, 0, 0x400000, 0x1000000)
	kind := elf.ET_DYN
	if base != 0 {
		kind = elf.ET_EXEC
	}
	isDynamic := kind == elf.ET_DYN || s.N(2) == 0
	b.b = make([]byte, elffile.HeaderSize+16*elffile.ProgSize)
	spare := one(s, 0, 2, 0, 1, 0)
	alloc := elf.SHF_ALLOC
	first := base // the difference between addresses and file offsets in the first segment
	note := func(name string, typ uint32, desc []byte) []byte {
		out := b.write([]uint32{uint32(len(name) + 1), uint32(len(desc)), typ})
		out = append(append(out, name...), 0)
		for len(out)%4 != 0 {
			out = append(out, 0)
		}
		return append(out, desc...)
	}
	var extra []elf.Prog64 // after the segments that are loaded
	keep := func(typ elf.ProgType, flags elf.ProgFlag, i int) {
		x := &b.sections[i]
		extra = append(extra, elf.Prog64{Type: uint32(typ), Flags: uint32(flags), Off: x.Off, Vaddr: x.Addr, Paddr: x.Addr, Filesz: x.Size, Memsz: x.Size, Align: x.Addralign})
	}
	headersEnd := len(b.b) // what the headers really take is known at the end
	if isDynamic && s.N(2) == 0 {
		i := b.add(".interp", elf.SHT_PROGBITS, alloc, 1, first, []byte("/lib/ld.so.1\x00"))
		x := &b.sections[i]
		b.progs = append(b.progs, elf.Prog64{Type: uint32(elf.PT_INTERP), Flags: uint32(elf.PF_R), Off: x.Off, Vaddr: x.Addr, Paddr: x.Addr, Filesz: x.Size, Memsz: x.Size, Align: 1})
	}
	if s.N(2) == 0 {
		keep(elf.PT_NOTE, elf.PF_R, b.add(".note.gnu.build-id", elf.SHT_NOTE, alloc, 4, first, note("GNU", 3, bytes.Repeat([]byte{0xb1}, 20))))
	}
	if s.Rarely(3) {
		i := b.add(".note.gnu.property", elf.SHT_NOTE, alloc, 8, first, note("GNU", 5, b.write([]uint32{0xc0000002, 4, 3, 0})))
		keep(elf.PT_NOTE, elf.PF_R, i)
		keep(elf.PT_GNU_PROPERTY, elf.PF_R, i)
	}
	if s.Rarely(4) {
		keep(elf.PT_NOTE, elf.PF_R, b.add(".note.own", elf.SHT_NOTE, alloc, 4, first, note("Own", 7, s.Bytes(8))))
	}
	dyn := func(tag elf.DynTag, v uint64) { b.dynamic = append(b.dynamic, elf.Dyn64{Tag: int64(tag), Val: v}) }
	if isDynamic {
		b.tables(first, dyn)
	} else if s.N(2) == 0 {
		b.add(".rela.plt", elf.SHT_RELA, alloc|elf.SHF_INFO_LINK, 8, first, make([]byte, 24))
		b.sections[len(b.sections)-1].Entsize = elffile.RelaSize
	}
	firstEnd := uint64(len(b.b))

	// The code.
	segment := func(at uint64) (begin, diff uint64) {
		if s.N(2) == 0 {
			b.align(0x1000)
		} else {
			b.align(16)
		}
		begin = uint64(len(b.b))
		return begin, base + at + begin%page - begin
	}
	textOff, textDiff := segment(textBase)
	text := b.code(textOff + textDiff)
	b.frames(text)
	var textSections []int
	for i, r := range text {
		for uint64(len(b.b))+textDiff < r.Begin {
			b.b = append(b.b, 0)
		}
		f.Text = append(f.Text, textNames[i])
		textSections = append(textSections, b.add(textNames[i], elf.SHT_PROGBITS, alloc|elf.SHF_EXECINSTR, 16, textDiff, make([]byte, r.End-r.Begin)))
	}
	textEnd := uint64(len(b.b))

	// What is only read.
	roOff, roDiff := segment(roBase)
	b.add(".rodata", elf.SHT_PROGBITS, alloc, 8, roDiff, s.Bytes(16))
	dataAddr := base + dataBase // of the next segment, as far as that is known
	slot := dataAddr + b.slot
	if f.CFI != nil {
		hdr := b.add(".eh_frame_hdr", elf.SHT_PROGBITS, alloc, 4, roDiff, make([]byte, 8))
		b.align(8)
		addr := uint64(len(b.b)) + roDiff
		frames, _ := f.CFI.Encode(Layout{Addr: addr, Text: text[0].Begin, GOT: slot, Slot: slot})
		frames = append(frames, 0, 0, 0, 0)
		i := b.add(".eh_frame", elf.SHT_PROGBITS, alloc, 8, roDiff, frames)
		h := &b.sections[hdr]
		copy(b.b[h.Off:], append([]byte{1, 0x1b, 0xff, 0xff}, b.write(uint32(b.sections[i].Addr-h.Addr-4))...))
		keep(elf.PT_GNU_EH_FRAME, elf.PF_R, hdr)
	}
	roEnd := uint64(len(b.b))

	// What is written.
	dataOff, dataDiff := segment(dataBase)
	if isDynamic {
		var list bytes.Buffer
		dyn(elf.DT_NULL, 0)
		_ = binary.Write(&list, b.m.Order, b.dynamic)
		i := b.add(".dynamic", elf.SHT_DYNAMIC, alloc|elf.SHF_WRITE, 8, dataDiff, list.Bytes())
		b.sections[i].Entsize = elffile.DynSize
		for j := range b.sections {
			if b.sections[j].name == ".dynstr" {
				b.sections[i].Link = uint32(j)
			}
		}
		keep(elf.PT_DYNAMIC, elf.PF_R|elf.PF_W, i)
	}
	for uint64(len(b.b))+dataDiff < slot {
		b.b = append(b.b, 0)
	}
	var slots []byte
	if f.CFI != nil {
		for _, v := range f.CFI.Slots {
			slots = b.m.Order.AppendUint64(slots, v)
		}
	}
	b.add(".got", elf.SHT_PROGBITS, alloc|elf.SHF_WRITE, 8, dataDiff, append(slots, make([]byte, 8)...))
	dataEnd := uint64(len(b.b))
	bss := uint64(0)
	if s.N(2) == 0 {
		bss = 64
		b.add(".bss", elf.SHT_NOBITS, alloc|elf.SHF_WRITE, 8, dataDiff, nil)
	}

	// Program headers.
	if s.N(2) == 0 {
		b.progs = append([]elf.Prog64{{Type: uint32(elf.PT_PHDR), Flags: uint32(elf.PF_R), Off: elffile.HeaderSize, Vaddr: base + elffile.HeaderSize, Paddr: base + elffile.HeaderSize, Align: 8}}, b.progs...)
	}
	b.prog(elf.PT_LOAD, elf.PF_R, 0, first, firstEnd, page)
	b.prog(elf.PT_LOAD, elf.PF_R|elf.PF_X, textOff, textDiff, textEnd-textOff, page)
	b.prog(elf.PT_LOAD, elf.PF_R, roOff, roDiff, roEnd-roOff, page)
	b.prog(elf.PT_LOAD, elf.PF_R|elf.PF_W, dataOff, dataDiff, dataEnd-dataOff, page)
	b.progs[len(b.progs)-1].Memsz += bss
	b.progs = append(b.progs, extra...)
	b.progs = append(b.progs, elf.Prog64{Type: uint32(elf.PT_GNU_STACK), Flags: uint32(elf.PF_R | elf.PF_W), Align: 16})
	if s.Rarely(4) {
		b.progs = append(b.progs, elf.Prog64{Type: uint32(elf.PT_NULL)})
	}
	if elf.ProgType(b.progs[0].Type) == elf.PT_PHDR {
		b.progs[0].Filesz = uint64(len(b.progs)) * elffile.ProgSize
		b.progs[0].Memsz = b.progs[0].Filesz
	}
	table := b.write(b.progs)
	copy(b.b[elffile.HeaderSize:], table)
	if used := elffile.HeaderSize + len(table); spare < 2 {
		// As a linker does it there is no room behind the headers: something that nobody knows of takes it.
		for i := used + spare*elffile.ProgSize; i < headersEnd; i++ {
			b.b[i] = 0xee
		}
	}

	// What is not loaded.
	b.add(".comment", elf.SHT_PROGBITS, elf.SHF_MERGE|elf.SHF_STRINGS, 1, 0, []byte("made\x00"))
	if f.Debug != nil {
		frames, _ := f.Debug.Encode(Layout{})
		b.add(".debug_frame", elf.SHT_PROGBITS, 0, 8, 0, frames)
	}
	if s.N(4) > 0 || f.CFI == nil { // else it is stripped
		for i, c := range []*CFI{f.CFI, f.Debug} {
			if c == nil {
				continue
			}
			for j := range c.FDEs {
				fde := &c.FDEs[j]
				for k, r := range text {
					if fde.Start >= r.Begin && fde.Start < r.End {
						b.symbol(fmt.Sprintf("f%d_%d", i, j), elf.STT_FUNC, elf.STB_LOCAL, textSections[k], fde.Start, fde.Size)
					}
				}
			}
		}
		b.symtab()
	}
	f.Headers = s.N(8) < 7 || f.CFI == nil || f.Debug != nil || f.CFI.needsSections()
	b.end(kind, base+text0(text))
}

// needsSections reports whether an address counts from a section, which only section headers tell of.
func (c *CFI) needsSections() bool {
	return slices.ContainsFunc(c.CIEs, func(d CIE) bool { return d.Encoding&0x70 == encText || d.Encoding&0x70 == encData })
}

func text0(text []Range) uint64 { return text[0].Begin & 0xffff }

// tables adds what the loader reads.
func (b *builder) tables(diff uint64, dyn func(elf.DynTag, uint64)) {
	s := b.s
	alloc := elf.SHF_ALLOC
	names := []byte("\x00lib.so\x00one\x00two\x00")
	symbols := b.write([]elf.Sym64{
		{}, {Name: 8, Info: elf.ST_INFO(elf.STB_GLOBAL, elf.STT_FUNC)}, {Name: 12, Info: elf.ST_INFO(elf.STB_GLOBAL, elf.STT_FUNC), Shndx: uint16(elf.SHN_ABS), Value: 4},
	})
	addr := func(i int) uint64 { return b.sections[i].Addr }
	kinds := s.N(3) // one hash table, or the other one, or both
	var tables []int
	if kinds != 1 {
		var h []byte
		words := []uint64{1, 3, 1, 0, 2, 0} // a bucket, a chain of the symbols
		for _, v := range words {
			if b.m.HashWord == 8 {
				h = b.m.Order.AppendUint64(h, v)
			} else {
				h = b.m.Order.AppendUint32(h, uint32(v))
			}
		}
		i := b.add(".hash", elf.SHT_HASH, alloc, 8, diff, h)
		b.sections[i].Entsize = uint64(b.m.HashWord)
		dyn(elf.DT_HASH, addr(i))
		tables = append(tables, i)
	}
	if kinds != 0 {
		// One bucket with the symbol two, whose hash is that of GNU's function.
		hash := uint32(5381)
		for _, c := range []byte("two") {
			hash = hash*33 + uint32(c)
		}
		h := b.write([]uint32{1, 2, 1, 6})
		h = append(h, b.write([]uint64{^uint64(0)})...)
		h = append(h, b.write([]uint32{2, hash | 1})...)
		i := b.add(".gnu.hash", elf.SHT_GNU_HASH, alloc, 8, diff, h)
		dyn(elf.DT_GNU_HASH, addr(i))
		tables = append(tables, i)
	}
	sym := b.add(".dynsym", elf.SHT_DYNSYM, alloc, 8, diff, symbols)
	b.sections[sym].Entsize, b.sections[sym].Info = elffile.SymSize, 1
	str := b.add(".dynstr", elf.SHT_STRTAB, alloc, 1, diff, names)
	b.sections[sym].Link = uint32(str)
	for _, i := range tables {
		b.sections[i].Link = uint32(sym)
	}
	dyn(elf.DT_SYMTAB, addr(sym))
	dyn(elf.DT_SYMENT, elffile.SymSize)
	dyn(elf.DT_STRTAB, addr(str))
	dyn(elf.DT_STRSZ, uint64(len(names)))
	dyn(elf.DT_SONAME, 1)
	if s.N(3) > 0 {
		var list []elf.Rela64
		for i := range 1 + s.N(3) {
			list = append(list, elf.Rela64{Off: dataBase + b.slot + 8*uint64(i), Info: uint64(b.m.Relative), Addend: int64(textBase)})
		}
		data := b.write(list)
		i := b.add(".rela.dyn", elf.SHT_RELA, alloc, 8, diff, data)
		b.sections[i].Entsize, b.sections[i].Link = elffile.RelaSize, uint32(sym)
		dyn(elf.DT_RELA, addr(i))
		dyn(elf.DT_RELASZ, uint64(len(data)))
		dyn(elf.DT_RELAENT, elffile.RelaSize)
	}
}

func (b *builder) symtab() {
	i := b.add(".symtab", elf.SHT_SYMTAB, 0, 8, 0, b.symbols)
	b.sections[i].Entsize, b.sections[i].Info = elffile.SymSize, uint32(len(b.symbols)/elffile.SymSize)
	b.sections[i].Link = uint32(b.add(".strtab", elf.SHT_STRTAB, 0, 1, 0, b.strings))
}

// end writes the section names and the headers.
func (b *builder) end(kind elf.Type, entry uint64) {
	names := []byte{0}
	for i := range b.sections {
		if x := &b.sections[i]; x.name != "" {
			x.Name = uint32(len(names))
			names = append(append(names, x.name...), 0)
		}
	}
	h := elf.Header64{
		Type: uint16(kind), Machine: uint16(b.m.Elf), Version: 1, Ehsize: elffile.HeaderSize, Entry: entry,
	}
	if len(b.progs) > 0 {
		h.Phoff, h.Phentsize, h.Phnum = elffile.HeaderSize, elffile.ProgSize, uint16(len(b.progs))
	}
	if b.f.Headers {
		name := uint32(len(names))
		names = append(names, ".shstrtab\x00"...)
		i := b.add(".shstrtab", elf.SHT_STRTAB, 0, 1, 0, names)
		b.sections[i].Name = name
		b.align(8)
		h.Shoff, h.Shentsize, h.Shnum, h.Shstrndx = uint64(len(b.b)), elffile.SectionSize, uint16(len(b.sections)), uint16(i)
		for i := range b.sections {
			b.b = append(b.b, b.write(&b.sections[i].Section64)...)
		}
	}
	copy(h.Ident[:], elf.ELFMAG)
	h.Ident[elf.EI_CLASS], h.Ident[elf.EI_VERSION], h.Ident[elf.EI_DATA] = byte(elf.ELFCLASS64), 1, byte(elf.ELFDATA2LSB)
	if b.m.Order.Uint16([]byte{0, 1}) == 1 {
		h.Ident[elf.EI_DATA] = byte(elf.ELFDATA2MSB)
	}
	copy(b.b, b.write(&h))
	b.f.Bytes = b.b
}

// object makes a relocatable object.
func (b *builder) object() {
	f := b.f
	b.b = make([]byte, elffile.HeaderSize)
	const fake = 0x100000 // far enough from address 0, and from each other
	for i, r := range b.code(0) {
		size := r.End - r.Begin
		f.fakeText = append(f.fakeText, Range{uint64(i+1) * fake, uint64(i+1)*fake + size})
	}
	b.frames(f.fakeText)
	var symbols []uint32
	for i, r := range f.fakeText {
		f.Text = append(f.Text, textNames[i])
		x := b.add(textNames[i], elf.SHT_PROGBITS, elf.SHF_ALLOC|elf.SHF_EXECINSTR, 16, 0, make([]byte, r.End-r.Begin))
		symbols = append(symbols, uint32(b.symbol("", elf.STT_SECTION, elf.STB_LOCAL, x, 0, 0)))
	}
	b.add(".data", elf.SHT_PROGBITS, elf.SHF_ALLOC|elf.SHF_WRITE, 8, 0, b.s.Bytes(8))
	var relas []int
	frames := func(name string, flags elf.SectionFlag, c *CFI) {
		if c == nil {
			return
		}
		data, relocs := c.Encode(Layout{})
		i := b.add(name, elf.SHT_PROGBITS, flags, 8, 0, data)
		var list []elf.Rela64
		for _, r := range relocs {
			for j, text := range f.fakeText {
				if r.Target < text.Begin || r.Target >= text.End {
					continue
				}
				typ := b.m.Abs64
				if r.PCRel && r.Size == 8 {
					typ = b.m.PC64
				} else if r.PCRel {
					typ = b.m.PC32
				}
				list = append(list, elf.Rela64{Off: r.Off, Info: uint64(symbols[j])<<32 | uint64(typ), Addend: int64(r.Target - text.Begin)})
			}
		}
		r := b.add(".rela"+name, elf.SHT_RELA, elf.SHF_INFO_LINK, 8, 0, b.write(list))
		b.sections[r].Entsize, b.sections[r].Info = elffile.RelaSize, uint32(i)
		relas = append(relas, r)
	}
	frames(".eh_frame", elf.SHF_ALLOC, f.CFI)
	frames(".debug_frame", 0, f.Debug)
	b.symtab()
	for _, r := range relas {
		b.sections[r].Link = uint32(len(b.sections) - 2)
	}
	b.end(elf.ET_REL, 0)
}

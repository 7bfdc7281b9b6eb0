package elfwrite

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/image"
	"cfi2sframe/sframe"
)

// TestInterruptedCopy ends the context before the copy begins, which notices that after its
// first part.
func TestInterruptedCopy(t *testing.T) {
	const size = 24 << 20
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l := &Layout{copies: []extent{{0, 0, size}}}
	dst, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer dst.Close()
	if err := l.Write(ctx, dst, bytes.NewReader(make([]byte, size)), nil); err != context.Canceled {
		t.Errorf("error is %v", err)
	}
	if info, err := dst.Stat(); err != nil || info.Size() >= size {
		t.Errorf("%d of %d bytes were copied, error %v", info.Size(), size, err)
	}
}

// TestUnchanged writes an object that has program headers, which is odd but no reason to lose
// them.
func TestUnchanged(t *testing.T) {
	old := read(t, "plt")
	binary.LittleEndian.PutUint16(old[16:], uint16(elf.ET_REL))
	f := elftest.Parse(t, old)
	if !f.IsObject() || len(f.Progs) == 0 {
		t.Fatalf("type %d, %d program headers", f.Type, len(f.Progs))
	}
	if !bytes.Equal(write(t, Unchanged(f), old, nil), old) {
		t.Error("it was changed")
	}
}

// setProg changes a program header of a file.
func setProg(t *testing.T, b []byte, i int, change func(*elf.Prog64)) {
	t.Helper()
	f := elftest.Parse(t, b)
	p := f.Progs[i]
	change(&p)
	var buf bytes.Buffer
	if err := binary.Write(&buf, f.Order, &p); err != nil {
		t.Fatal(err)
	}
	copy(b[f.Phoff+uint64(i)*elffile.ProgSize:], buf.Bytes())
}

func progIndex(t *testing.T, f *elffile.File, typ elf.ProgType) int {
	t.Helper()
	for i := range f.Progs {
		if elf.ProgType(f.Progs[i].Type) == typ {
			return i
		}
	}
	t.Fatalf("no %v", typ)
	return -1
}

// TestFront has a static executable, whose head cannot move: everything moves up by a page, and the notes go into it, so
// that the build-id is in the first page.
func TestFront(t *testing.T) {
	old := read(t, "static")
	before, after := elftest.Parse(t, old), elftest.Parse(t, add(t, old, content(100), Options{}))
	load, first := after.Progs[0], before.Progs[0]
	if load.Off != 0 || load.Vaddr != first.Vaddr-4096 || load.Filesz != first.Filesz+4096 ||
		after.Phoff != elffile.HeaderSize {
		t.Errorf("first PT_LOAD %+v, program headers at %#x", load, after.Phoff)
	}
	// What may be found through __ehdr_start is still there.
	off, ok := after.FileOffset(first.Vaddr, elffile.HeaderSize)
	if b, err := after.ReadAt("old header", off, elffile.HeaderSize); !ok || err != nil ||
		!bytes.Equal(b, old[:elffile.HeaderSize]) {
		t.Errorf("at %#x is not the old ELF header; error %v", first.Vaddr, err)
	}
}

// TestSectionNames expects the original bytes of a library by lld, which has the section names before other sections.
func TestSectionNames(t *testing.T) {
	const source = ".globl f, g, h\nf: g: h: .cfi_startproc\nret\n.cfi_endproc\n.data\n.quad 1\n"
	old := assembled(t, source, "ld.lld", "-shared", "--eh-frame-hdr")
	if f := elftest.Parse(t, old); f.Section(".shstrtab").Off >= f.Section(".strtab").Off {
		t.Error("the section names come last")
	}
	if _, without := roundTrip(t, "lld", old, 1000, 1000); !bytes.Equal(without, old) {
		t.Errorf("%d bytes become %d", len(old), len(without))
	}
}

// TestLinkersSection replaces an .sframe as GNU ld puts it, in the middle of a segment: in
// its place if that is large enough, else elsewhere.
func TestLinkersSection(t *testing.T) {
	old := read(t, "prologue")
	f := elftest.Parse(t, old)
	// .eh_frame becomes one.
	var index int
	for i := range f.Sections {
		if f.Sections[i].Name == ".eh_frame" {
			index = i
		}
	}
	s := f.Sections[index]
	binary.LittleEndian.PutUint16(old[s.Off:], sframe.Magic)
	binary.LittleEndian.PutUint32(old[f.Shoff+uint64(index)*elffile.SectionSize+4:], sframe.SHTGNUSFrame)
	setProg(t, old, progIndex(t, f, elf.PT_GNU_EH_FRAME), func(p *elf.Prog64) {
		*p = elf.Prog64{Type: sframe.PTGNUSFrame, Off: s.Off, Vaddr: s.Addr, Filesz: s.Size, Memsz: s.Size}
	})
	for _, size := range []int{int(s.Size), 40, 200, 217, 1001, 4000} {
		b := add(t, old, content(size), Options{Force: true})
		after := elftest.Parse(t, b)
		n := 0
		for i := range after.Sections {
			if after.Sections[i].Type == sframe.SHTGNUSFrame {
				n++
				s2 := &after.Sections[i]
				if (s2.Off == s.Off) != (size <= int(s.Size)) {
					t.Errorf("%d bytes: .sframe at %#x, the old one with %d bytes at %#x", size, s2.Off, s.Size, s.Off)
				}
			}
		}
		if n != 1 {
			t.Errorf("%d bytes: %d sections", size, n)
		}
		if got := b[s.Off:][:s.Size]; size == 4000 && len(bytes.Trim(got, "\x00")) > 0 {
			t.Error("the old section's bytes are still there")
		}
	}
	without := elftest.Parse(t, remove(t, old))
	if without.Prog(elf.ProgType(sframe.PTGNUSFrame)) != nil || len(without.Progs) != len(f.Progs)-1 ||
		len(without.Sections) != len(f.Sections)-1 {
		t.Errorf("%d program headers and %d sections are left of %d and %d", len(without.Progs), len(without.Sections),
			len(f.Progs), len(f.Sections))
	}
}

// TestManySections has more sections than a symbol's field can number, and symbols in the
// last of them.
func TestManySections(t *testing.T) {
	old := read(t, "prologue")
	f := elftest.Parse(t, old)
	const many = 70000
	var symtab int
	for i := range f.Sections {
		if elf.SectionType(f.Sections[i].Type) == elf.SHT_SYMTAB {
			symtab = i
		}
	}
	sym := &f.Sections[symtab]
	num := sym.Size / elffile.SymSize
	sections := make([]elf.Section64, 0, many)
	for i := range f.Sections {
		sections = append(sections, f.Sections[i].Section64)
	}
	for len(sections) < many-1 {
		sections = append(sections, elf.Section64{Type: uint32(elf.SHT_PROGBITS), Off: sym.Off, Size: 1})
	}
	b := bytes.Clone(old)
	indexes := uint64(len(b))
	sections = append(sections, elf.Section64{Type: uint32(elf.SHT_SYMTAB_SHNDX), Link: uint32(symtab), Off: indexes,
		Size: 4 * num, Entsize: 4, Addralign: 4})
	b = append(b, make([]byte, 4*num)...)
	b = append(b, make([]byte, -len(b)&7)...)
	// The last symbol is in the last section but one, and the name table's index does not
	// fit the ELF header either.
	binary.LittleEndian.PutUint32(b[indexes+4*(num-1):], many-2)
	binary.LittleEndian.PutUint16(b[sym.Off+(num-1)*elffile.SymSize+6:], uint16(elf.SHN_XINDEX))
	sections[many-2] = sections[f.Shstrndx]
	sections[0].Size, sections[0].Link = many, many-2
	binary.LittleEndian.PutUint64(b[40:], uint64(len(b)))
	binary.LittleEndian.PutUint16(b[60:], 0)
	binary.LittleEndian.PutUint16(b[62:], uint16(elf.SHN_XINDEX))
	var table bytes.Buffer
	if err := binary.Write(&table, binary.LittleEndian, sections); err != nil {
		t.Fatal(err)
	}
	b = append(b, table.Bytes()...)
	out := add(t, b, content(100), Options{})
	after := elftest.Parse(t, out)
	if len(after.Sections) != many+1 || after.Section(".sframe") != &after.Sections[many] || after.Shstrndx != many-2 {
		t.Errorf("%d sections, names in %d", len(after.Sections), after.Shstrndx)
	}
	if err := image.Compare(elftest.Parse(t, b), after); err != nil {
		t.Error(err)
	}
	last := 0
	if err := after.Symbols(elf.SHT_SYMTAB,
		func(_ *elffile.Section, s elffile.Symbol) { last = s.Section }); err != nil || last != many-2 {
		t.Errorf("the last symbol is in section %d, want %d (error %v)", last, many-2, err)
	}
	// Sections after one that is removed move down, and symbols with them.
	without := elftest.Parse(t, remove(t, out))
	if err := without.Symbols(elf.SHT_SYMTAB,
		func(_ *elffile.Section, s elffile.Symbol) { last = s.Section }); err != nil || last != many-2 ||
		len(without.Sections) != many {
		t.Errorf("the last symbol is in section %d of %d, want %d (error %v)", last, len(without.Sections), many-2, err)
	}
}

package elfwrite

import (
	"bytes"
	"debug/elf"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/sframe"
)

// TestCases converts files with one peculiarity each. Loaded contents must not change.
func TestCases(t *testing.T) {
	payload := []byte("PK\x03\x04 an archive whose readers search from the end of the file")
	// PT_GNU_STACK and PT_GNU_RELRO become reusable entries.
	spare := func(typ elf.ProgType) func(*elftest.Patcher) {
		return func(p *elftest.Patcher) {
			p.Prog(p.Segment(elf.PT_GNU_STACK, 0), typ, 0, 0, 0)
			p.Prog(p.Segment(elf.PT_GNU_RELRO, 0), typ, 0, 0, 0)
		}
	}
	filler := func(c string) func(*elftest.Patcher) {
		return func(p *elftest.Patcher) {
			h := p.Section(".interp")
			copy(p.B[p.U64(h+elftest.ShOff):], strings.Repeat(c, int(p.U64(h+elftest.ShSize))))
			p.Put64(h+elftest.ShSize, 0)
			p.Prog(p.Segment(elf.PT_INTERP, 0), unknownType, 0, 0, 0)
		}
	}
	nothingMoves := func(before, after *elffile.File, _ []byte) bool {
		return len(after.Progs) == len(before.Progs) && after.Section(".interp").Off == before.Section(".interp").Off
	}
	emptyOld := func(typ elf.SectionType, size uint64) func(*elftest.Patcher) {
		return func(p *elftest.Patcher) {
			p.AddSection(".sframe", uint64(elf.SHF_ALLOC), nil)
			h := p.Section(".sframe")
			p.Put32(h+elftest.ShType, uint32(typ))
			p.Put64(h+elftest.ShAddr, 0x5000)
			p.Put64(h+elftest.ShSize, size)
		}
	}
	oneSection := func(_, after *elffile.File, _ []byte) bool {
		n := 0
		for i := range after.Sections {
			if after.Sections[i].Name == ".sframe" {
				n++
			}
		}
		return n == 1 && after.Section(".sframe").Type == sframe.SHTGNUSFrame
	}
	const loaded, headers = 0x600, 16 * elffile.SectionSize // unused bytes between code and data of the fixture alloca
	for _, tt := range []struct {
		name, file string
		change     func(*elftest.Patcher)
		check      func(before, after *elffile.File, b []byte) bool
	}{
		{"unused entries", "prologue", spare(elf.PT_NULL), nothingMoves},
		{"a stale PT_GNU_SFRAME", "prologue", spare(elf.ProgType(sframe.PTGNUSFrame)), nothingMoves},
		{"bytes at the end of the file", "prologue", func(p *elftest.Patcher) { p.B = append(p.B, payload...) },
			func(_, after *elffile.File, b []byte) bool {
				return bytes.HasSuffix(b, payload) && oldHeaders(after).End == uint64(len(b)-len(payload))
			}},
		{"many symbols", "alloca", func(p *elftest.Patcher) {
			h := p.Section(".symtab")
			p.Contents(".symtab", bytes.Repeat(p.B[p.U64(h+elftest.ShOff):][:p.U64(h+elftest.ShSize)], 300))
		}, nil},
		{"the filler of patchelf 0.14", "alloca", filler("X"), nil},
		{"the filler of patchelf 0.18", "alloca", filler("Z"), nil},
		{"an alignment that an inserted page violates", "static", func(p *elftest.Patcher) {
			p.Put64(p.Segment(elf.PT_LOAD, 0)+elftest.PhAlign, 2<<20)
		}, nil},
		{"a segment without contents at the file offset of the head", "static", func(p *elftest.Patcher) {
			h := p.Segment(elf.PT_GNU_STACK, 0)
			p.Prog(h, elf.PT_LOAD, 0, 0x500000, 0)
			p.Put64(h+elftest.PhMemsz, 0x100)
			p.Put64(h+elftest.PhAlign, 0x1000)
		}, func(_, after *elffile.File, _ []byte) bool { // the page is part of the head
			return slices.ContainsFunc(after.Progs, func(h elf.Prog64) bool {
				return h.Off == 0x1000 && h.Vaddr == 0x500000 && h.Filesz == 0 && h.Memsz == 0x100
			})
		}},
		{"PT_PHDR of an executable", "static", replaceStack(elf.PT_PHDR, 0x40, 0x400040, 6*elffile.ProgSize),
			func(_, after *elffile.File, _ []byte) bool {
				h, at := after.Prog(elf.PT_PHDR), after.Progs[0].Vaddr+elffile.HeaderSize
				return at == 0x3ff040 && h.Off == elffile.HeaderSize && h.Vaddr == at && h.Paddr == at
			}},
		{"a head that cannot move", "static", func(p *elftest.Patcher) {
			p.SectionIn(elf.SHT_NOBITS, elf.SHF_ALLOC|elf.SHF_WRITE, 0x1008, 0x402008, 8)
		}, func(before, after *elffile.File, b []byte) bool { // everything moves up by a page, even the offset of .bss
			load, first, bss := after.Progs[0], before.Progs[0], after.Sections[11]
			header, err := before.ReadAt("header", 0, elffile.HeaderSize) // is still at __ehdr_start
			return err == nil && bytes.Equal(b[0x1000:][:len(header)], header) && load.Off == 0 &&
				load.Vaddr == first.Vaddr-0x1000 && load.Filesz == first.Filesz+0x1000 &&
				after.Phoff == elffile.HeaderSize && after.Prog(elf.PT_GNU_STACK).Off == 0 &&
				bss.Addr == 0x402008 && bss.Off == 0x2008
		}},
		{"loaded section headers", "alloca", func(p *elftest.Patcher) {
			n := int(p.U16(elftest.EhShnum)) * elffile.SectionSize
			if n > headers || len(bytes.Trim(p.B[loaded:][:headers], "\x00")) > 0 {
				t.Fatal("no space for section headers")
			}
			copy(p.B[loaded:], p.B[p.Header(0):][:n])
			p.Put64(elftest.EhShoff, loaded)
		}, func(_, after *elffile.File, b []byte) bool { // they are cleared
			return after.Shoff >= 0x1000 && len(bytes.Trim(b[loaded:][:headers], "\x00")) == 0
		}},
		{"a section with an out-of-range name", "alloca", func(p *elftest.Patcher) {
			p.Put32(p.Section(".eh_frame_hdr"), uint32(p.U64(p.Section(".shstrtab")+elftest.ShSize)))
		}, func(before, after *elffile.File, _ []byte) bool { // the section must not be named .sframe
			i := slices.IndexFunc(after.Sections, func(s elffile.Section) bool { return s.Addr == 0x420 })
			return after.Sections[i].Name == "" && oneSection(before, after, nil)
		}},
		{"an empty section in a section that moves", "alloca", func(p *elftest.Patcher) {
			p.SectionIn(elf.SHT_PROGBITS, elf.SHF_ALLOC, 0x240, 0x240, 0)
		}, func(_, after *elffile.File, _ []byte) bool {
			return slices.ContainsFunc(after.Sections, func(s elffile.Section) bool { return s.Addr == 0x240 })
		}},
		{"an empty .sframe", "alloca", emptyOld(elf.SectionType(sframe.SHTGNUSFrame), 0), oneSection},
		{"an .sframe without contents", "alloca", emptyOld(elf.SHT_NOBITS, 16), oneSection},
	} {
		old := patched(t, tt.file, tt.change)
		b := add(t, old, content(1000), Options{Force: true})
		before, after := elftest.Parse(t, old), elftest.Parse(t, b)
		if tt.check != nil && !tt.check(before, after, b) {
			t.Errorf("%s: sections %+v, segments %+v", tt.name, after.Sections, after.Progs)
		}
	}
}

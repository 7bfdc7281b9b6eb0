package elfwrite

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/sframe"
)

// TestRefusedFiles expects errors for inconsistent and unsupported files.
func TestRefusedFiles(t *testing.T) {
	moreProgs := func(p *elftest.Patcher, n int) {
		p.ManyProgs(n, func(_, off int) { p.Put32(off, uint32(unknownType)) })
	}
	manyEntries := func(p *elftest.Patcher) {
		off := p.Append(make([]byte, 1<<20+16))
		h := p.Segment(elf.PT_DYNAMIC, 0)
		p.Put64(h+elftest.PhOff, uint64(off))
		p.Put64(h+elftest.PhFilesz, 1<<20+16)
	}
	// The loaded contents of this file end at 0x1000, where .symtab, section 10, starts.
	for _, tt := range []struct {
		name   string
		change func(*elftest.Patcher)
		want   string
	}{
		{"relocatable", func(p *elftest.Patcher) { p.Put16(16, uint16(elf.ET_REL)) }, "ELF type ET_REL"},
		{"overlapping segments", func(p *elftest.Patcher) { p.Put64(p.LastLoad()+elftest.PhVaddr, 0x10) },
			"overlaps the previous segment"},
		{"segment outside the file", func(p *elftest.Patcher) { p.Put64(p.LastLoad()+elftest.PhOff, 1<<40) },
			"do not fit in the file"},
		{"segment across the end of the file", func(p *elftest.Patcher) {
			setSize(p, p.LastLoad(), uint64(len(p.B)))
		}, "do not fit in the file"},
		{"address space used up", func(p *elftest.Patcher) {
			h := p.LastLoad()
			p.Put64(h+elftest.PhMemsz, 1<<64-4096-p.U64(h+elftest.PhVaddr)+1)
		}, "no addresses left"},
		{"no section headers", bare, "references to it are unknown: without section headers, the symbols are unknown"},
		{"no dynamic entries", func(p *elftest.Patcher) { p.Put32(p.Segment(elf.PT_DYNAMIC, 0), uint32(unknownType)) },
			"cannot be moved"},
		{"bytes of no section", func(p *elftest.Patcher) { // truncate .interp, which comes first, by 4 bytes
			h, s := p.Segment(elf.PT_INTERP, 0), p.Section(".interp")+elftest.ShSize
			p.Put64(s, p.U64(s)-4)
			setSize(p, h, p.U64(s))
		}, "belong to no section"},
		{"machine", func(p *elftest.Patcher) { p.Put16(18, uint16(elf.EM_386)) }, "machine EM_386 is not supported"},
		{"no names", func(p *elftest.Patcher) { p.Put16(elftest.EhShstrndx, 0) },
			"no section name table (e_shstrndx is 0)"},
		{"misplaced PT_PHDR", func(p *elftest.Patcher) { p.Put64(p.Segment(elf.PT_PHDR, 0)+elftest.PhOff, 0x80) },
			"program header 0: PT_PHDR at file offset 0x80, but the program headers are at 0x40"},
		{"nothing loaded", func(p *elftest.Patcher) {
			for range 2 {
				p.Put32(p.Segment(elf.PT_LOAD, 0), uint32(unknownType))
			}
		}, "no loaded segment (PT_LOAD)"},
		{"segments of a library out of order", func(p *elftest.Patcher) {
			p.Put32(p.Segment(elf.PT_INTERP, 0), uint32(elf.PT_NULL))
			h := p.Segment(elf.PT_LOAD, 0)
			p.Put64(h+elftest.PhVaddr, p.U64(h+elftest.PhVaddr)+1<<32)
		}, "out of order"},
		{"segments out of order", func(p *elftest.Patcher) {
			first := p.Segment(elf.PT_LOAD, 0)
			second := p.Segment(elf.PT_LOAD, 1)
			b := bytes.Clone(p.B[first:][:elffile.ProgSize])
			copy(p.B[first:], p.B[second:][:elffile.ProgSize])
			copy(p.B[second:], b)
		}, "program header 3: segment at 0x0 overlaps the previous segment or is out of order"},
		{"section outside the file", func(p *elftest.Patcher) { p.Put64(p.Section(".strtab")+elftest.ShOff, 1<<63) },
			"section 11 (.strtab): 75 bytes at file offset 0x8000000000000000 do not fit"},
		{"table after the loaded contents", func(p *elftest.Patcher) { moreProgs(p, 1) },
			"is after 0x1000, where loaded bytes end"},
		{"section across the end", func(p *elftest.Patcher) { p.Put64(p.Section(".symtab")+elftest.ShOff, 0xff8) },
			"section 10 (.symtab) at file offset 0xff8, 240 bytes, crosses 0x1000, where loaded bytes end"},
		{"segment across the end", replaceStack(unknownType, 0xff8, 0, 16),
			"program header 7 at file offset 0xff8, 16 bytes, crosses 0x1000, where loaded bytes end"},
		{"too many dynamic entries", manyEntries,
			"PT_DYNAMIC at file offset 0x14f8: 1048592 bytes exceed the limit of 1048576"},
		{"too many dynamic entries, bare", func(p *elftest.Patcher) {
			manyEntries(p)
			bare(p)
		}, "exceed the limit of 1048576"},
		{"two PT_GNU_SFRAME", func(p *elftest.Patcher) {
			for _, typ := range []elf.ProgType{elf.PT_PHDR, elf.PT_GNU_RELRO} {
				p.Prog(p.Segment(typ, 0), elf.ProgType(sframe.PTGNUSFrame), 0x448, 0x448, 8)
			}
		}, "program headers 0 and 8 are both PT_GNU_SFRAME, but a file may have only one"},
		{"many program headers, bare", func(p *elftest.Patcher) {
			moreProgs(p, 65500+23)
			bare(p)
		}, "65532 program headers: storing the number of two more requires a section header"},
		{"no room after the table's segment", func(p *elftest.Patcher) {
			// The segment ends with the table, and the next byte is in use.
			setSize(p, p.Segment(elf.PT_LOAD, 0), 0x238)
		}, "no room for 2 more program headers: the segment ends at file offset 0x238"},
		{"table in no segment", func(p *elftest.Patcher) {
			h := p.Segment(elf.PT_LOAD, 0)
			p.Put64(h+elftest.PhOff, 0x100)
			p.Put64(h+elftest.PhVaddr, 0x100)
			setSize(p, h, 0x3bc)
		}, "no loaded segment contains the table"},
	} {
		refused(t, tt.name, patched(t, "alloca", tt.change), 1000, tt.want)
	}
	refused(t, "one page left", patched(t, "alloca", func(p *elftest.Patcher) {
		h := p.LastLoad()
		p.Put64(h+elftest.PhMemsz, 1<<64-4097-p.U64(h+elftest.PhVaddr))
	}), 5000, "no addresses left")
	if _, err := Plan(elftest.Parse(t, read(t, "alloca")), 1000, Options{}); err != nil {
		t.Errorf("without a change: %v", err)
	}
}

// TestFixed adds headers and dynamic entries that refer to the first section after the program headers, which would
// otherwise move: .interp in one file, the build-id in the other.
func TestFixed(t *testing.T) {
	const interp = 0x238 // file offset and address
	note := func(change func(p *elftest.Patcher, prog, section int)) func(*elftest.Patcher) {
		return func(p *elftest.Patcher) { change(p, p.Segment(elf.PT_NOTE, 0), p.Section(".note.gnu.build-id")) }
	}
	const id = 0x1c8 // offset of the build-id in rareg.so; .gnu.hash is at 0x1f0
	for _, tt := range []struct {
		name, file string
		change     func(*elftest.Patcher)
		want       string
	}{
		{"a program header", "alloca", replaceStack(unknownType, interp+24, interp+24, 8),
			fmt.Sprintf(".interp at file offset 0x238 cannot be moved: program header 7 (%v) overlaps it",
				unknownType)},
		{"a section", "alloca", func(p *elftest.Patcher) {
			p.SectionIn(elf.SHT_PROGBITS, elf.SHF_ALLOC, interp+16, interp+16, 16)
		}, ".interp at file offset 0x238 cannot be moved: section 13 () overlaps it"},
		{"a dynamic entry", "alloca", replaceDebug(elf.DT_FINI, interp+4),
			".interp at file offset 0x238 cannot be moved: dynamic entry 5 points into it"},
		{"a dynamic entry for a fixed section", "alloca", replaceDebug(elf.DT_PLTGOT, 0x278),
			".gnu.hash at file offset 0x278 cannot be moved: " +
				"code refers to it by address, not through a header or a dynamic entry"},
		{"no section", "alloca", func(p *elftest.Patcher) { p.Put64(p.Section(".interp")+elftest.ShSize, 0) },
			"bytes at file offset 0x238 belong to no section"},
		{"writable", "alloca", func(p *elftest.Patcher) {
			p.Put64(p.Section(".interp")+elftest.ShFlags, uint64(elf.SHF_ALLOC|elf.SHF_WRITE))
		}, ".interp at file offset 0x238 cannot be moved: code refers to it by address"},
		{"no PT_NOTE", "rareg.so", note(func(p *elftest.Patcher, h, s int) { p.Prog(h, elf.PT_GNU_STACK, 0, 0, 0) }),
			"no PT_NOTE contains it; code may refer to it in another way"},
		{"a PT_NOTE that begins before", "rareg.so",
			note(func(p *elftest.Patcher, h, s int) { p.Put64(h+elftest.PhOff, id-8) }),
			"PT_NOTE at file offset 0x1c0 starts before it"},
		{"a PT_NOTE with other contents", "rareg.so", note(func(p *elftest.Patcher, h, s int) { setSize(p, h, 0x50) }),
			"its PT_NOTE includes .gnu.hash of type SHT_GNU_HASH"},
		{"a section name for linker-defined symbols", "rareg.so", note(func(p *elftest.Patcher, h, s int) {
			names := int(p.U64(p.Section(".shstrtab") + elftest.ShOff))
			copy(p.B[names+int(p.U32(s)):], "_note_gnu_build_id")
		}), "code can refer to section _note_gnu_build_id through linker-defined __start_ and __stop_ symbols"},
		{"sections overlap", "rareg.so",
			note(func(p *elftest.Patcher, h, s int) { p.SectionIn(elf.SHT_NOTE, elf.SHF_ALLOC, id+12, id+12, 12) }),
			"it contains more than notes"},
		{"bytes after it", "rareg.so", note(func(p *elftest.Patcher, h, s int) {
			p.B[id+0x25] = 1
			setSize(p, h, 0x28)
		}), "bytes in its PT_NOTE belong to no section"},
		{"bytes in between", "rareg.so", note(func(p *elftest.Patcher, h, s int) {
			p.Put32(p.Section(".gnu.hash")+elftest.ShType, uint32(elf.SHT_NOTE))
			p.B[id+0x25] = 1
			setSize(p, h, 0x50)
		}), "it contains more than notes"},
		{"a name that is not terminated", "rareg.so", note(func(p *elftest.Patcher, h, s int) { p.Put32(id, 0xffff) }),
			"it contains more than notes"},
		{"half a note after it", "rareg.so", note(func(p *elftest.Patcher, h, s int) {
			p.Put64(s+elftest.ShSize, 0x28)
			setSize(p, h, 0x28)
		}), "it contains more than notes"},
		{"an application's note", "rareg.so", note(func(p *elftest.Patcher, h, s int) { copy(p.B[id+12:], "App") }),
			`the program may read its note "App" of type 0x3`},
		{"a truncated Crashpad note", "rareg.so", crashpadNote(4),
			`its note "Crashpad" of type 0x4f464e49 has 4 bytes, not 8`},
	} {
		refused(t, tt.name, patched(t, tt.file, tt.change), 1000, tt.want)
	}
}

// TestFixedTags adds a dynamic entry that points into a section that would otherwise move, for each tag with an address
// that is not updated when a section moves (ELF gABI, "Dynamic Section"; GNU's and Android's elf.h). The same entry
// after DT_NULL must be ignored.
func TestFixedTags(t *testing.T) {
	const (
		androidREL, androidRELA, androidRELR = 0x6000000f, 0x60000011, 0x6fffe000
		tlsdescPLT, tlsdescGOT               = 0x6ffffef6, 0x6ffffef7
	)
	for _, tag := range []elf.DynTag{
		elf.DT_PLTGOT, elf.DT_INIT, elf.DT_FINI, elf.DT_REL, elf.DT_JMPREL, elf.DT_INIT_ARRAY, elf.DT_FINI_ARRAY,
		elf.DT_PREINIT_ARRAY,
		elf.DT_SYMTAB_SHNDX, elf.DT_GNU_CONFLICT, elf.DT_GNU_LIBLIST, elf.DT_CONFIG, elf.DT_DEPAUDIT, elf.DT_AUDIT,
		elf.DT_MOVETAB,
		elf.DT_SYMINFO, tlsdescPLT, tlsdescGOT, androidREL, androidRELA, androidRELR,
	} {
		refused(t, tag.String(), patched(t, "alloca", replaceDebug(tag, 0x23c)), 1000,
			".interp at file offset 0x238 cannot be moved: dynamic entry 5 points into it")
		ended := patched(t, "alloca", func(p *elftest.Patcher) {
			off := dynamicEntry(p, elf.DT_NULL) + elffile.DynSize
			if elf.DynTag(p.U64(off)) != elf.DT_NULL {
				t.Fatal("there is no space after DT_NULL")
			}
			p.Put64(off, uint64(tag))
			p.Put64(off+8, 0x23c)
		})
		if _, err := Plan(elftest.Parse(t, ended), 1000, Options{}); err != nil {
			t.Errorf("%v after DT_NULL: %v", tag, err)
		}
	}
}

// crashpadNote replaces the build-id in rareg.so with a Crashpad note with contents of the given size. Contents of the
// valid size, eight bytes, are an offset relative to their own address.
func crashpadNote(size uint32) func(*elftest.Patcher) {
	contents := binary.LittleEndian.AppendUint64(nil, 0x1000)[:size]
	return replaceNote(9, crashpad.typ, "Crashpad\x00\x00\x00\x00", contents)
}

// replaceNote replaces the build-id in rareg.so with a note.
func replaceNote(nameSize, typ uint32, name string, contents []byte) func(*elftest.Patcher) {
	return func(p *elftest.Patcher) {
		const at = 0x1c8
		clear(p.B[at:][:0x24])
		n := copy(p.B[at:], elftest.Note(nameSize, uint32(len(contents)), typ, name, contents))
		h := p.Section(".note.gnu.build-id")
		p.Put64(h+elftest.ShSize, uint64(n))
		p.Put64(h+48, 1) // sh_addralign; readers align to 4 bytes nevertheless
		setSize(p, p.Segment(elf.PT_NOTE, 0), uint64(n))
	}
}

// TestHeaderNotes moves notes that their readers find through headers: those of the generic ABI and of
// https://uapi-group.org/specifications (FDO), and Go's and Android's.
func TestHeaderNotes(t *testing.T) {
	for _, n := range []struct {
		name string
		typ  uint32
	}{
		{"GNU", 1}, {"GNU", 5}, {"FDO", 0xcafe1a7e}, {"FDO", 0x407c0c0a}, {"Go\x00", 4}, {"Android", 1}, {"Android", 4},
	} {
		size := uint32(len(strings.TrimRight(n.name, "\x00")) + 1)
		old := patched(t, "rareg.so", replaceNote(size, n.typ, n.name+"\x00", []byte("1234")))
		with, _ := roundTrip(t, fmt.Sprint(n), old, 1000, 100)
		if s := elftest.Parse(t, with).Section(".note.gnu.build-id"); s.Off == 0x1c8 {
			t.Errorf("%v: the note has not moved", n)
		}
	}
}

// TestDistance moves a note that contains an offset relative to its own address. The target address must not change.
func TestDistance(t *testing.T) {
	const name = ".note.crashpad.info"
	old := patched(t, "rareg.so", func(p *elftest.Patcher) {
		crashpadNote(8)(p)
		h := p.Section(".shstrtab")
		names := p.B[p.U64(h+elftest.ShOff):][:p.U64(h+elftest.ShSize)]
		p.Put32(p.Section(".note.gnu.build-id"), uint32(len(names)))
		p.Contents(".shstrtab", append(bytes.Clone(names), name+"\x00"...))
	})
	before := elftest.Parse(t, old)
	b := add(t, old, content(1000), Options{})
	after := elftest.Parse(t, b)
	meant := func(f *elffile.File, b []byte) (place, target uint64) {
		s := f.Section(name)
		return s.Addr, s.Addr + 24 + binary.LittleEndian.Uint64(b[s.Off+24:])
	}
	was, want := meant(before, old)
	is, got := meant(after, b)
	if is == was || got != want {
		t.Errorf("the note moves from %#x to %#x, and its target from %#x to %#x", was, is, want, got)
	}
}

// TestOldRefused expects errors for an .sframe that is malformed, or to which something refers.
func TestOldRefused(t *testing.T) {
	converted := add(t, read(t, "alloca"), content(1000), Options{})
	s := elftest.Parse(t, converted).Section(".sframe")
	for _, tt := range []struct {
		name   string
		change func(*elftest.Patcher)
		want   string
	}{
		{"no magic number", func(p *elftest.Patcher) { p.Put16(int(s.Off), 0x1234) },
			"it starts with 34 12 instead of the magic number 0xdee2"},
		{"a program header", replaceStack(unknownType, s.Off+8, s.Addr+8, 4),
			fmt.Sprintf("(%v) overlaps it", unknownType)},
		{"a section", func(p *elftest.Patcher) {
			p.SectionIn(elf.SHT_PROGBITS, elf.SHF_ALLOC, s.Off+s.Size-1, s.Addr+s.Size-1, 1)
		}, "section 14 () overlaps it"},
		{"a dynamic entry", replaceDebug(elf.DT_INIT, s.Addr+s.Size-1), "dynamic entry 5 points into it"},
		{"the entry point", func(p *elftest.Patcher) { p.Put64(elftest.EhEntry, s.Addr) },
			fmt.Sprintf("it contains the entry point %#x", s.Addr)},
	} {
		p := elftest.Patch(t.Fatalf, converted)
		tt.change(p)
		where := fmt.Sprintf(".sframe at file offset %#x, 1000 bytes, cannot be replaced or removed: ", s.Off)
		refused(t, tt.name, p.B, 500, where)
		refused(t, tt.name, p.B, 500, tt.want)
		if l, err := PlanRemoval(elftest.Parse(t, p.B)); err == nil || l != nil ||
			!strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s, removed: error is %v, want %q", tt.name, err, tt.want)
		}
	}
	p := elftest.Patch(t.Fatalf, converted)
	p.ManyProgs(1, func(_, off int) { p.Put32(off, uint32(unknownType)) })
	if l, err := PlanRemoval(elftest.Parse(t, p.B)); l != nil || !strings.Contains(fmt.Sprint(err), "is after 0x1000") {
		t.Errorf("with the table after the loaded contents: error %v", err)
	}
	p = elftest.Patch(t.Fatalf, converted)
	p.Put64(p.Section(".sframe")+elftest.ShSize, 1)
	refused(t, "one byte", p.B, 500, "it starts with e2 instead of the magic number 0xdee2")
	p = elftest.Patch(t.Fatalf, converted)
	p.Put64(elftest.EhEntry, s.Addr+s.Size)
	p.SectionIn(elf.SHT_PROGBITS, elf.SHF_ALLOC, s.Off+8, s.Addr+8, 0)
	if _, err := PlanRemoval(elftest.Parse(t, p.B)); err != nil {
		t.Errorf("with the entry point after it, and an empty section in it: %v", err)
	}
}

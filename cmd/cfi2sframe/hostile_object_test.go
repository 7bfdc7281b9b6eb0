package main

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/long"
	"cfi2sframe/sframe"
)

// TestHostileObjects has relocatable objects that no assembler makes.
func TestHostileObjects(t *testing.T) {
	const pc32 = uint32(elf.R_X86_64_PC32)
	for _, tt := range []struct {
		name   string
		make   func(o *elftest.Object)
		patch  func(p *elftest.Patcher)
		data   func() []byte
		args   []string
		status int
		want   string
		long   bool // it takes long
	}{
		{name: "nothing wrong", make: func(o *elftest.Object) {}, want: "describes (64 of "},
		{name: "s390x", data: func() []byte { return elftest.BigObject(elf.EM_S390, uint32(elf.R_390_PC32)).Bytes() },
			want: "describes (64 of "},
		{name: "aarch64, big-endian", data: func() []byte {
			return elftest.BigObject(elf.EM_AARCH64,
				uint32(elf.R_AARCH64_PREL32)).Bytes()
		}, want: "describes (64 of "},
		{name: "amd64, big-endian", data: func() []byte { return elftest.BigObject(elf.EM_X86_64, pc32).Bytes() },
			status: 1, want: "ABI"},
		{name: "format 1", make: func(o *elftest.Object) {}, args: []string{"--format", "1"}, status: 1,
			want: "format"},
		{name: "format 3", make: func(o *elftest.Object) {}, args: []string{"--format", "3"}, want: "describes (64 of "},

		// Symbol tables.
		{name: "relocations without symbols", make: func(o *elftest.Object) { o.Sections[elftest.ObjRela].Link = 0 },
			status: 1, want: "symbol"},
		{name: "symbol names in nothing",
			make: func(o *elftest.Object) { o.Sections[elftest.ObjSymtab].Link = 1 << 31 }, want: "describes (64 of "},
		{name: "no symbol table", make: func(o *elftest.Object) { o.Sections[elftest.ObjSymtab].Type = uint32(elf.SHT_PROGBITS) }, status: 1, want: "symbol"},
		{name: "symbol table without bytes",
			make: func(o *elftest.Object) { o.At(elftest.ObjSymtab, math.MaxUint64, math.MaxUint64) }, status: 1,
			want: ".symtab"},
		{name: "only global symbols", make: func(o *elftest.Object) {
			o.Symbols[elffile.SymSize+
				4] = elf.ST_INFO(elf.STB_GLOBAL, elf.STT_FUNC)
		}, status: 1, want: "no local symbol"},
		{name: "only weak symbols", make: func(o *elftest.Object) {
			o.Symbols[elffile.SymSize+
				4] = elf.ST_INFO(elf.STB_WEAK, elf.STT_FUNC)
		}, status: 1, want: "no local symbol"},
		{name: "only a TLS symbol", make: func(o *elftest.Object) {
			o.Symbols[elffile.SymSize+
				4] = elf.ST_INFO(elf.STB_LOCAL, elf.STT_TLS)
		}, status: 1, want: "no local symbol"},
		{name: "sh_info of the symbols 2^32-1",
			make: func(o *elftest.Object) { o.Sections[elftest.ObjSymtab].Info = math.MaxUint32 }, want: "describes (64 of "},
		{name: "symbol value 2^64-1", make: func(o *elftest.Object) { binary.LittleEndian.PutUint64(o.Symbols[elffile.SymSize+8:], math.MaxUint64) }, want: "unchanged: the CFI describes no code"},
		{name: "symbol value far behind its section", make: func(o *elftest.Object) {
			o.Code(".text.other", 64)
			binary.LittleEndian.PutUint64(o.Symbols[elffile.SymSize+8:], 64+256)
		}, want: "describes (64 of "},
		{name: "symbol absolute, where the code seems to be", make: func(o *elftest.Object) {
			binary.LittleEndian.PutUint16(o.Symbols[elffile.SymSize+6:], uint16(elf.SHN_ABS))
			binary.LittleEndian.PutUint64(o.Sections[elftest.ObjRela].Data[16:], 0x10100)
		}, want: "unchanged: the CFI describes no code"},
		{name: "symbol undefined, the code seems to be at its addend", make: func(o *elftest.Object) {
			o.FDE(0, 0x10100, 64)
			o.Sections[elftest.ObjRela].Data = o.Sections[elftest.ObjRela].Data[elffile.RelaSize:]
			o.Sections[elftest.ObjFrame].Data[8+20+8] = 0
		}, want: "unchanged: the CFI describes no code"},
		{name: "SHN_XINDEX with a table", make: func(o *elftest.Object) {
			binary.LittleEndian.PutUint16(o.Symbols[elffile.SymSize+6:], uint16(elf.SHN_XINDEX))
			o.Sections[o.Add(".symtab_shndx", elf.SHT_SYMTAB_SHNDX, 0,
				[]byte{0, 0, 0, 0, elftest.ObjText, 0, 0, 0})].Link = elftest.ObjSymtab
		}, want: "describes (64 of "},

		// Relocations.
		{name: "relocation of unknown type", make: func(o *elftest.Object) { o.Rela(elftest.ObjRela, 0, 1, 0x1234, 0) },
			status: 1, want: "relocation type 4660 of .eh_frame+0x0"},
		{name: "relocation misaligned", make: func(o *elftest.Object) {
			o.Rela(elftest.ObjRela, 3, 0,
				uint32(elf.R_X86_64_32), 0)
		}, want: "describes (64 of "},
		{name: "relocation misaligned, over the CIE's length and id",
			make: func(o *elftest.Object) { o.Rela(elftest.ObjRela, 1, 1, uint32(elf.R_X86_64_64), 0) }, status: 1,
			want: "no CFI that can be used"},
		{name: "relocation of the CIE's id",
			make: func(o *elftest.Object) { o.Rela(elftest.ObjRela, 4, 1, uint32(elf.R_X86_64_64), 0) }, status: 1,
			want: "no CFI that can be used"},
		{name: "relocation of the FDE's length",
			make: func(o *elftest.Object) { o.Rela(elftest.ObjRela, 20, 1, uint32(elf.R_X86_64_32), 0) }, status: 1,
			want: ".eh_frame"},
		{name: "relocation with an addend of 2^63",
			make: func(o *elftest.Object) {
				binary.LittleEndian.PutUint64(o.Sections[elftest.ObjRela].Data[16:],
					1<<63)
			}, want: "unchanged: the CFI describes no code"},
		{name: "relocation into the next section", make: func(o *elftest.Object) {
			o.Code(".text.other", 64)
			binary.LittleEndian.PutUint64(o.Sections[elftest.ObjRela].Data[16:], 64+256)
		}, want: "describes (64 of "},
		{name: "relocations that contradict each other", make: func(o *elftest.Object) {
			o.Code(".text.other", 64)
			o.Rela(elftest.ObjRela, 20+8, 2, pc32, 0)
		}, want: " covers "},

		// Sections.
		{name: "no section headers", make: func(o *elftest.Object) {},
			patch: func(p *elftest.Patcher) { p.Put64(elftest.EhShoff, 0); p.Put16(elftest.EhShnum, 0) },
			want:  "unchanged: no CFI"},
		{name: "section names without an end", make: func(o *elftest.Object) {}, patch: func(p *elftest.Patcher) {
			h := p.Section(".shstrtab")
			p.B[p.U64(h+elftest.ShOff)+p.U64(h+elftest.ShSize)-1] = 'x'
		}, want: "describes (64 of "},
		{name: "no section names", make: func(o *elftest.Object) { o.Header.Shstrndx = 0 },
			want: "unchanged: no CFI"},
		{name: "section names shared with symbols", make: func(o *elftest.Object) {
			o.Header.Shstrndx = elftest.ObjNames
			o.Sections[elftest.ObjSymtab].Link = elftest.ObjNames
		}, want: "describes (64 of "},
		{name: "section names in .text", make: func(o *elftest.Object) { o.Header.Shstrndx = elftest.ObjText },
			want: "unchanged: no CFI"},
		{name: "a program header", make: func(o *elftest.Object) {}, patch: func(p *elftest.Patcher) {
			p.Put64(elftest.EhPhoff, uint64(p.Append(make([]byte, elffile.ProgSize))))
			p.Put16(elftest.EhPhnum, 1)
			p.Put16(elftest.EhPhentsize, elffile.ProgSize)
		}, status: 1, want: "relocatable object with 1 program headers"},
		{name: "e_phoff without headers", make: func(o *elftest.Object) { o.Header.Phoff = math.MaxUint64 },
			want: "describes (64 of "},
		{name: "a first section that is one", make: func(o *elftest.Object) {
			o.Sections[0].Section64 = elf.Section64{Type: uint32(elf.SHT_PROGBITS),
				Flags: uint64(elf.SHF_ALLOC | elf.SHF_EXECINSTR)}
			o.At(0, 64, 1<<40)
		}, want: "describes (64 of "},
		{name: "a section over the ELF header",
			make: func(o *elftest.Object) { o.At(o.Add(".comment", elf.SHT_PROGBITS, 0, nil), 0, 100) }, status: 1,
			want: "section 7 (.comment) at file offset 0x0 overlaps the ELF header"},
		{name: "sh_addr in an object", make: func(o *elftest.Object) { o.Sections[elftest.ObjText].Addr = 1 << 40 },
			want: "describes (64 of "},
		{name: "sh_addralign 2^63", make: func(o *elftest.Object) { o.Sections[elftest.ObjText].Addralign = 1 << 63 },
			want: "describes (64 of "},
		{name: "sh_addralign 3", make: func(o *elftest.Object) { o.Sections[elftest.ObjText].Addralign = 3 },
			want: "describes (64 of "},
		{name: "code past the end", make: func(o *elftest.Object) { o.At(elftest.ObjText, 1<<40, 64) }, status: 1,
			want: "section 1 (.text): 64 bytes at file offset 0x10000000000 do not fit"},
		{name: "3 GiB of code in one section", make: func(o *elftest.Object) { o.At(elftest.ObjText, 64, 3<<30) },
			status: 1, want: "code and CFI have more than 2 GiB, up to section 1 (.text)"},
		{name: "20,000 sections of the same megabyte", make: func(o *elftest.Object) {
			o.Sections[elftest.ObjText].Data = make([]byte, 1<<20)
			for range 20_000 {
				o.At(o.Add(".text", elf.SHT_PROGBITS, elf.SHF_ALLOC|elf.SHF_EXECINSTR, nil), 64, 1<<20)
			}
		}, status: 1, want: "code and CFI have more than 2 GiB"},
		{name: "sections of code that overlap in the file", make: func(o *elftest.Object) {
			i := o.Code(".text.same", 64)
			o.At(i, 64, 64)
		}, want: "describes (128 of "},
		{name: "code without bytes", make: func(o *elftest.Object) { o.Sections[elftest.ObjText].Type = uint32(elf.SHT_NOBITS) }, want: "unchanged: the CFI describes no code"},
		{name: "code that is not loaded",
			make: func(o *elftest.Object) { o.Sections[elftest.ObjText].Flags = uint64(elf.SHF_EXECINSTR) },
			want: "unchanged: the CFI describes no code"},
		{name: "function beyond its section", make: func(o *elftest.Object) { o.FDE(1, 32, 1<<20) },
			want: "but the executable code there ends at"},
		{name: "function over two sections", make: func(o *elftest.Object) {
			o.Code(".text.other", 4096)
			o.FDE(1, 0, 2048)
		}, want: "but the executable code there ends at"},

		// CFI.
		{name: "several .eh_frame", make: func(o *elftest.Object) {
			text := o.Add(".text.other", elf.SHT_PROGBITS, elf.SHF_ALLOC|elf.SHF_EXECINSTR, make([]byte, 32))
			frame := o.Add(".eh_frame", elf.SHT_PROGBITS, elf.SHF_ALLOC, nil)
			rela := o.RelaOf(".rela.eh_frame", frame)
			o.CIE(frame)
			o.FDEIn(frame, rela, uint32(o.Symbol(elf.STB_LOCAL, elf.STT_SECTION, uint16(text), 0)), 0, 32)
		}, want: "describes (96 of "},
		{name: ".eh_frame of nothing", make: func(o *elftest.Object) {
			o.At(elftest.ObjFrame, 64,
				0)
			o.Sections[elftest.ObjRela].Data = nil
		}, want: "unchanged: the CFI describes no code"},
		{name: ".eh_frame without bytes",
			make: func(o *elftest.Object) { o.Sections[elftest.ObjFrame].Type = uint32(elf.SHT_NOBITS) },
			want: "unchanged: no CFI"},
		{name: ".eh_frame past the end", make: func(o *elftest.Object) { o.At(elftest.ObjFrame, 1<<40, 100) },
			status: 1, want: "section .eh_frame at file offset 0x10000000000: 100 bytes do not fit"},
		{name: ".eh_frame compressed", make: func(o *elftest.Object) {
			s := &o.Sections[elftest.ObjFrame]
			s.Data = elftest.Compressed(elf.COMPRESS_ZLIB, 1<<20, s.Data)
			s.Flags |= uint64(elf.SHF_COMPRESSED)
		}, status: 1, want: "section .eh_frame at file offset"},
		{name: ".eh_frame code, too", make: func(o *elftest.Object) { o.Sections[elftest.ObjFrame].Flags |= uint64(elf.SHF_EXECINSTR) }, want: "describes (64 of "},
		{name: ".eh_frame not loaded", make: func(o *elftest.Object) { o.Sections[elftest.ObjFrame].Flags = 0 },
			want: "describes (64 of "},
		{name: ".eh_frame and .debug_frame compressed together to nothing", make: func(o *elftest.Object) {
			o.Add(".debug_frame", elf.SHT_PROGBITS, elf.SHF_COMPRESSED,
				elftest.Compressed(elf.COMPRESS_ZSTD, 1<<27, nil))
		}, status: 1, want: "section .debug_frame at file offset"},

		// An .sframe that is there.
		{name: ".sframe there", make: func(o *elftest.Object) {
			o.Add(".sframe", elf.SHT_PROGBITS, elf.SHF_ALLOC,
				make([]byte, 32))
		}, status: 1, want: "the file has an .sframe section already; --update or --force replaces it"},
		{name: ".sframe there, replaced",
			make: func(o *elftest.Object) { o.Add(".sframe", elf.SHT_PROGBITS, elf.SHF_ALLOC, make([]byte, 32)) },
			args: []string{"--force"}, want: "describes (64 of "},
		{name: ".sframe there without bytes, replaced",
			make: func(o *elftest.Object) { o.Add(".sframe", elf.SHT_NOBITS, elf.SHF_ALLOC, make([]byte, 32)) },
			args: []string{"--force"}, status: 1, want: `section 7 is ".sframe" of type SHT_NOBITS`},
		{name: ".sframe that is code, replaced", make: func(o *elftest.Object) {
			o.Add(".sframe", elf.SHT_PROGBITS, elf.SHF_ALLOC|elf.SHF_EXECINSTR, make([]byte, 32))
		}, args: []string{"--force"}, status: 1,
			want: "section 7 (.sframe) cannot be replaced: its flags are SHF_ALLOC+SHF_EXECINSTR"},
		{name: ".sframe that the CFI describes, replaced", make: func(o *elftest.Object) {
			o.Code(".sframe", 32)
		}, args: []string{"--force"}, status: 1, want: "sframe"},
		{name: ".sframe not loaded", make: func(o *elftest.Object) {
			o.Add(".sframe", elf.SHT_PROGBITS, 0,
				make([]byte, 32))
		}, args: []string{"--force"}, status: 1, want: "section 7 (.sframe) cannot be replaced: its flags are 0x0"},
		{name: ".sframe not loaded, removed",
			make: func(o *elftest.Object) { o.Add(".sframe", elf.SHT_PROGBITS, 0, make([]byte, 32)) },
			args: []string{"remove"}, status: 1, want: "section 7 (.sframe) cannot be replaced: its flags are 0x0"},
		{name: ".sframe there, and nothing that could be in it", make: func(o *elftest.Object) {
			s := &o.Sections[elftest.ObjFrame]
			s.Data = bytes.ReplaceAll(s.Data, elftest.Sound, []byte{0x0c, 2, 8, 0x90, 1}) // CFA rcx+8
			o.Add(".sframe", elf.SHT_PROGBITS, elf.SHF_ALLOC, make([]byte, 32))
		}, status: 1, want: "the file has an .sframe section already; --update or --force replaces it"},
		{name: ".sframe there, and nothing that could be in it, replaced", make: func(o *elftest.Object) {
			s := &o.Sections[elftest.ObjFrame]
			s.Data = bytes.ReplaceAll(s.Data, elftest.Sound, []byte{0x0c, 2, 8, 0x90, 1})
			o.Add(".sframe", elf.SHT_PROGBITS, elf.SHF_ALLOC, make([]byte, 32))
		}, args: []string{"--force", "--format", "2"}, want: "describes (0 of "},
		{name: "two .sframe, replaced", make: func(o *elftest.Object) {
			o.Add(".sframe", elf.SHT_PROGBITS, elf.SHF_ALLOC, make([]byte, 32))
			o.Add(".sframe", elf.SHT_PROGBITS, elf.SHF_ALLOC, make([]byte, 32))
		}, args: []string{"--force"}, status: 1, want: ".sframe"},
		{name: "two .sframe, removed", make: func(o *elftest.Object) {
			o.Add(".sframe", elf.SHT_PROGBITS, elf.SHF_ALLOC, make([]byte, 32))
			o.Add(".sframe", elf.SHT_PROGBITS, elf.SHF_ALLOC, make([]byte, 32))
		}, args: []string{"remove"}, status: 1, want: ".sframe"},
		{name: ".sframe of another name, removed", make: func(o *elftest.Object) {
			o.Add(".frames", elf.SectionType(sframe.SHTGNUSFrame), elf.SHF_ALLOC, make([]byte, 32))
		}, args: []string{"remove"}, status: 1, want: `section 7 is ".frames" of type`},
		{name: ".sframe of another name, replaced", make: func(o *elftest.Object) {
			o.Add(".frames", elf.SectionType(sframe.SHTGNUSFrame), elf.SHF_ALLOC, make([]byte, 32))
		}, args: []string{"--force"}, status: 1, want: `section 7 is ".frames" of type`},
		{name: ".sframe with two sections of relocations, replaced", make: func(o *elftest.Object) {
			i := o.Add(".sframe", elf.SHT_PROGBITS, elf.SHF_ALLOC, make([]byte, 32))
			for range 2 {
				o.Rela(o.RelaOf(".rela.sframe", i), 0, 1, pc32, 0)
			}
		}, args: []string{"--force"}, status: 1, want: ".sframe"},
		{name: ".sframe with two sections of relocations, removed", make: func(o *elftest.Object) {
			i := o.Add(".sframe", elf.SHT_PROGBITS, elf.SHF_ALLOC, make([]byte, 32))
			for range 2 {
				o.Rela(o.RelaOf(".rela.sframe", i), 0, 1, pc32, 0)
			}
		}, args: []string{"remove"}, status: 1, want: ".sframe"},
		{name: ".sframe with relocations without addends, replaced", make: func(o *elftest.Object) {
			i := o.Add(".sframe", elf.SHT_PROGBITS, elf.SHF_ALLOC, make([]byte, 32))
			o.Sections[o.RelaOf(".rel.sframe", i)].Type = uint32(elf.SHT_REL)
		}, args: []string{"--force"}, status: 1, want: ".sframe"},
		{name: ".sframe with relocations that also are the symbols", make: func(o *elftest.Object) {
			o.Add(".sframe", elf.SHT_PROGBITS, elf.SHF_ALLOC, make([]byte, 32))
			o.Sections[elftest.ObjRela].Info = uint32(len(o.Sections) - 1)
		}, args: []string{"remove"}, want: "removed"},
		{name: ".sframe that a symbol is in, removed", make: func(o *elftest.Object) {
			i := o.Add(".sframe", elf.SHT_PROGBITS, elf.SHF_ALLOC, make([]byte, 32))
			o.Symbol(elf.STB_LOCAL, elf.STT_OBJECT, uint16(i), 0)
		}, args: []string{"remove"}, status: 1, want: "section 7 (.sframe) cannot be removed: a symbol refers to it"},
		{name: ".sframe that its own symbol is in, removed", make: func(o *elftest.Object) {
			i := o.Add(".sframe", elf.SHT_PROGBITS, elf.SHF_ALLOC, make([]byte, 32))
			o.Symbol(elf.STB_LOCAL, elf.STT_SECTION, uint16(i), 0)
		}, args: []string{"remove"}, want: "removed"},
		{name: ".sframe in a section group, removed", make: func(o *elftest.Object) {
			i := o.Add(".sframe", elf.SHT_PROGBITS, elf.SHF_ALLOC|elf.SHF_GROUP, make([]byte, 32))
			o.Add(".group", elf.SHT_GROUP, 0, []byte{1, 0, 0, 0, byte(i), 0, 0, 0})
		}, args: []string{"remove"}, status: 1, want: "group"},
		{name: ".sframe in a section group, replaced", make: func(o *elftest.Object) {
			i := o.Add(".sframe", elf.SHT_PROGBITS, elf.SHF_ALLOC|elf.SHF_GROUP, make([]byte, 32))
			o.Add(".group", elf.SHT_GROUP, 0, []byte{1, 0, 0, 0, byte(i), 0, 0, 0})
		}, args: []string{"--force"}, status: 1, want: "group"},
		{name: "code in a section group", make: func(o *elftest.Object) {
			i := o.Code(".text.f", 32)
			o.Sections[i].Flags |= uint64(elf.SHF_GROUP)
			o.Add(".group", elf.SHT_GROUP, 0, []byte{1, 0, 0, 0, byte(i), 0, 0, 0})
		}, want: "describes (96 of "},
		{name: "section group of odd size, with members that are not there", make: func(o *elftest.Object) {
			o.Add(".group", elf.SHT_GROUP, 0, []byte{1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 9})
		}, want: "describes (64 of "},
		{name: ".sframe that other sections refer to, removed", make: func(o *elftest.Object) {
			i := o.Add(".sframe", elf.SHT_PROGBITS, elf.SHF_ALLOC, make([]byte, 32))
			o.Sections[o.Add(".meta", elf.SHT_PROGBITS, elf.SHF_ALLOC|elf.SHF_LINK_ORDER,
				make([]byte, 32))].Link = uint32(i)
		}, args: []string{"remove"}, status: 1, want: ".sframe"},
		{name: "the section names are .sframe, removed", make: func(o *elftest.Object) {
			o.Sections[elftest.ObjNames].Type = sframe.SHTGNUSFrame
		}, args: []string{"remove"}, status: 1, want: `section 6 is ".shstrtab" of type`},
		{name: "the section names are .sframe, replaced", make: func(o *elftest.Object) {
			o.Sections[elftest.ObjNames].Type = sframe.SHTGNUSFrame
		}, args: []string{"--force"}, status: 1, want: `section 6 is ".shstrtab" of type`},
		{name: "the symbols are .sframe, replaced", make: func(o *elftest.Object) {
			o.Sections[elftest.ObjFrame].Type = sframe.SHTGNUSFrame
		}, args: []string{"--force"}, status: 1, want: ".eh_frame"},
		{name: "bytes behind the section headers", make: func(o *elftest.Object) { o.Tail = []byte("behind") },
			want: "describes (64 of "},
		{name: "no .sframe, removed", make: func(o *elftest.Object) { o.Tail = []byte("behind") },
			args: []string{"remove"}},

		// Much of something.
		{name: "70,000 sections of code", long: true, data: func() []byte { return manyCode(70_000).Bytes() },
			want: "describes (1,120,064 of "},
		{name: "70,000 sections of code, with gaps", long: true, data: func() []byte {
			o := manyCode(70_000)
			s := &o.Sections[elftest.ObjFrame]
			s.Data = bytes.ReplaceAll(s.Data, []byte{0x41, 0x0e, 16}, []byte{0x41, 0x0d, 2}) // CFA rcx
			return o.Bytes()
		}, args: []string{"--format", "2"}, want: "not covered"},
		{name: "60,000 sections .eh_frame", long: true, make: func(o *elftest.Object) {
			at := len(o.Sections[elftest.ObjFrame].Data)
			for range 60_000 {
				o.At(o.Add(".eh_frame", elf.SHT_PROGBITS, elf.SHF_ALLOC, nil), 64+64, uint64(at))
			}
		}, want: "describes (64 of "},
		{name: "60,000 relocation sections of one section", make: func(o *elftest.Object) {
			for range 20_000 {
				o.Rela(elftest.ObjRela, 20+8, 1, pc32, 0)
			}
			n := uint64(len(o.Sections[elftest.ObjRela].Data))
			for range 60_000 {
				o.At(o.RelaOf(".rela.eh_frame", elftest.ObjFrame), 0x100, n)
			}
		}, status: 1, want: "relocation sections overlap"},
		{name: "a million relocations of one field", long: true, make: func(o *elftest.Object) {
			s := &o.Sections[elftest.ObjRela]
			s.Data = bytes.Repeat(s.Data, 1_000_000)
		}, want: "describes (64 of "},
		{name: "30,000 sections .eh_frame with overlapping relocations", make: func(o *elftest.Object) {
			at := uint64(len(o.Sections[elftest.ObjFrame].Data))
			o.Sections[elftest.ObjRela].Data = bytes.Repeat(o.Sections[elftest.ObjRela].Data, 40_000)
			n := uint64(len(o.Sections[elftest.ObjRela].Data))
			for range 30_000 {
				i := o.Add(".eh_frame", elf.SHT_PROGBITS, elf.SHF_ALLOC, nil)
				o.At(i, 64+64, at)
				o.At(o.RelaOf(".rela.eh_frame", i), 64+64+48, n)
			}
		}, status: 1, want: "relocation sections overlap"},
		{name: "20,000 symbol tables of a megabyte", make: func(o *elftest.Object) {
			at := uint64(len(o.Sections[elftest.ObjFrame].Data))
			for range 40_000 {
				o.Symbol(elf.STB_LOCAL, elf.STT_SECTION, elftest.ObjText, 0)
			}
			for range 20_000 {
				i := o.Add(".eh_frame", elf.SHT_PROGBITS, elf.SHF_ALLOC, nil)
				o.At(i, 64+64, at)
				tab := o.Add(".symtab", elf.SHT_SYMTAB, 0, nil)
				o.At(tab, 64+64+48+24, uint64(len(o.Symbols)))
				r := o.RelaOf(".rela.eh_frame", i)
				o.Sections[r].Link = uint32(tab)
				o.At(r, 64+64+48, 24)
			}
		}, status: 1, want: "symbol tables overlap"},
		{name: "a million symbols", long: true, make: func(o *elftest.Object) {
			for range 1_000_000 {
				o.Symbols = append(o.Symbols, o.Symbols[elffile.SymSize:2*elffile.SymSize]...)
			}
		}, want: "describes (64 of "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.long {
				long.Test(t)
			}
			var b []byte
			if tt.data != nil {
				b = tt.data()
			} else {
				o := elftest.NewObject()
				tt.make(o)
				b = o.Bytes()
			}
			if tt.patch != nil {
				p := elftest.Patch(t.Fatalf, b)
				tt.patch(p)
				b = p.B
			}
			o := convertHostile(t, t.TempDir(), b, tt.args...)
			o.expect(t, tt.status, tt.want)
		})
	}
}

// manyCode returns an object with n more sections of code, with a function of 16 bytes in
// each.
func manyCode(n int) *elftest.Object {
	o := elftest.NewObject()
	code := make([]byte, 16)
	shndx := make([]byte, 8, 4*n+8)
	for i := range n {
		index := o.Add(fmt.Sprintf(".text.f%d", i), elf.SHT_PROGBITS, elf.SHF_ALLOC|elf.SHF_EXECINSTR, code)
		section := uint16(index)
		if index >= int(elf.SHN_LORESERVE) {
			section = uint16(elf.SHN_XINDEX)
		}
		o.FDE(uint32(o.Symbol(elf.STB_LOCAL, elf.STT_SECTION, section, 0)), 0, 16)
		shndx = binary.LittleEndian.AppendUint32(shndx, uint32(index))
	}
	o.Sections[o.Add(".symtab_shndx", elf.SHT_SYMTAB_SHNDX, 0, shndx)].Link = elftest.ObjSymtab
	return o
}

// expect checks the exit status, and that something is printed.
func (o *outcome) expect(t *testing.T, status int, want string) {
	t.Helper()
	if o.status != status || !strings.Contains(o.stderr, want) {
		t.Errorf("exit status %d; want %d\n%.2000s\nwhich should contain %q", o.status, status, o.stderr, want)
	}
}

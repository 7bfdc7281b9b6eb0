package elfwrite

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/arch"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/image"
)

// addRelocations gives a file a section of relocations, that a linker has kept or loaders apply.
func addRelocations(p *elftest.Patcher, typ elf.SectionType, flags elf.SectionFlag, link, info int, entries []byte) {
	p.SectionIn(typ, flags, uint64(p.Append(entries)), 0, uint64(len(entries)))
	h := p.Header(int(p.U16(elftest.EhShnum)) - 1)
	p.Put32(h+elftest.ShLink, uint32(link))
	p.Put32(h+elftest.ShInfo, uint32(info))
}

// TestKeptRelocations has relocations that a linker has kept. One is about .gnu.hash, which stays
// then, and nothing else would be enough, but where the relocation is about something else.
func TestKeptRelocations(t *testing.T) {
	const (
		text, symtab = 6, 10        // sections
		leaf, leafAt = 3, 0x3a7     // a symbol, and its value
		hash, dynsym = 0x278, 0x2b8 // where .gnu.hash begins and ends
		code         = 0x3b0        // a place in .text
		pc32         = elf.R_X86_64_PC32
		refers       = ".gnu.hash at file offset 0x278 cannot be moved: a symbol or a relocation refers to it, and so may code"
		// What is meant can be as far as that from what the relocation says, and in what comes before.
		before = ".note.gnu.build-id at file offset 0x254 cannot be moved: a symbol or a relocation refers to it, and so may code"
	)
	le := binary.LittleEndian
	one := func(place uint64, sym uint32, typ elf.R_X86_64, addend uint64) []byte {
		return rela(le, place, sym, uint32(typ), addend)
	}
	to := func(target int) uint64 { return uint64(target - leafAt) } // the addend, by the symbol
	for _, tt := range []struct {
		name       string
		typ        elf.SectionType
		link, info int
		entries    []byte
		want       string // the error, or "" if it moves
	}{
		{"to its start", elf.SHT_RELA, symtab, text, one(code, leaf, elf.R_X86_64_64, to(hash)), before},
		{"in it", elf.SHT_RELA, symtab, text, one(code, leaf, elf.R_X86_64_64, to(hash+bias)), refers},
		{"to its last byte", elf.SHT_RELA, symtab, text, one(code, leaf, elf.R_X86_64_64, to(dynsym-1)), refers},
		{"from the end of the field", elf.SHT_RELA, symtab, text, one(code, leaf, pc32, to(hash-4)), before},
		{"before all of it", elf.SHT_RELA, symtab, text, one(code, leaf, pc32, to(0x200)), ""},
		{"far behind it", elf.SHT_RELA, symtab, text, one(code, leaf, pc32, to(0x1f30)), ""},
		{"a place in it", elf.SHT_RELA, symtab, text, one(hash+8, leaf, pc32, 0), refers},
		{"none", elf.SHT_RELA, symtab, text, one(hash, leaf, elf.R_X86_64_NONE, to(hash)), ""},
		{"of the last of two", elf.SHT_RELA, symtab, text,
			slices.Concat(one(code, leaf, pc32, 0), one(code, leaf, elf.R_X86_64_64, to(hash+bias))), refers},
		{"in what is not loaded", elf.SHT_RELA, symtab, symtab, one(0, leaf, elf.R_X86_64_64, to(hash)), ""},
		{"in no section", elf.SHT_RELA, symtab, 1000, one(0, leaf, elf.R_X86_64_64, to(hash)), ""},
		{"with other symbols", elf.SHT_RELA, 4, text, one(code, leaf, pc32, 0),
			"it is not known what refers to it: section 13 () has relocations of type SHT_RELA with symbols in section 4, which are not SHT_RELA with those in section 10"},
		{"without addends", elf.SHT_REL, symtab, text, one(code, leaf, pc32, 0)[:16],
			"it is not known what refers to it: section 13 () has relocations of type SHT_REL with symbols in section 10, which are not SHT_RELA with those in section 10"},
	} {
		b := patched(t, "alloca", func(p *elftest.Patcher) {
			addRelocations(p, tt.typ, 0, tt.link, tt.info,
				tt.entries)
		})
		if tt.want != "" {
			refused(t, tt.name, b, 1000, tt.want)
			continue
		}
		f := elftest.Parse(t, add(t, b, content(1000), Options{}))
		if f.Section(".gnu.hash").Addr == hash {
			t.Errorf("%s: it has not moved", tt.name)
		}
		if err := image.Compare(elftest.Parse(t, b), f); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	for name, b := range map[string][]byte{
		"section 13 () has relocations of type 0x40000014, which are not supported": patched(t, "alloca",
			func(p *elftest.Patcher) {
				addRelocations(p, shtCREL, elf.SHF_ALLOC, 4, 0, make([]byte, 8))
			}),
		"section 13 () has relocations of type 0x60000002, which are not supported": patched(t, "alloca",
			func(p *elftest.Patcher) {
				addRelocations(p, shtAndroidRELA, elf.SHF_ALLOC, 4, 0, make([]byte, 8))
			}),
		"dynamic entry 0x60000011 leads to packed relocations, which are not supported": patched(t, "pltlib.so",
			func(p *elftest.Patcher) {
				p.Put64(dynamicEntry(p, elf.DT_JMPREL), uint64(dtAndroidRELA))
				p.Put64(dynamicEntry(p, elf.DT_PLTRELSZ), uint64(dtAndroidRELASZ))
			}),
	} {
		refused(t, name, b, 1000, name)
	}
}

// TestRelocationTables marks the places and targets of relocations whose addends are in their places, by
// the address and by a symbol.
func TestRelocationTables(t *testing.T) {
	// The first words of .dynamic of this file, which are given addresses in their place.
	const place, other = 0x1f40, 0x1f48
	b := patched(t, "rareg.so", func(p *elftest.Patcher) {
		off := 0xf40 // of .dynamic
		p.Put64(off, 0x1f0)
		p.Put64(off+8, 0x218)
	})
	le := binary.LittleEndian
	entry := func(place uint64, sym uint32, typ elf.R_X86_64) []byte {
		return rela(le, place, sym, uint32(typ), 0)[:16]
	}
	for _, tt := range []struct {
		name    string
		form    relocForm
		entries []byte
		want    []uint64
	}{
		{"relative", formREL, entry(place, 0, elf.R_X86_64_RELATIVE), []uint64{place, 0x1f0}},
		{"two", formREL, slices.Concat(entry(place, 0, elf.R_X86_64_RELATIVE), entry(other, 0, elf.R_X86_64_RELATIVE)),
			[]uint64{place, other, 0x1f0, 0x218}},
		{"by a symbol", formREL, entry(other, 1, elf.R_X86_64_64), []uint64{other, 0x1000 + 0x218}},
		{"by an undefined symbol", formREL, entry(other, 2, elf.R_X86_64_64), []uint64{other}},
		{"by a symbol that is not there", formREL, entry(other, 99, elf.R_X86_64_64), []uint64{other}},
	} {
		f := elftest.Parse(t, b)
		var r references
		var parts []elffile.Span
		for at := uint64(0); at < 0x3000; at += 8 {
			parts = append(parts, span(at, at+8))
		}
		r.cut(parts)
		s := scan{references: &r, f: f, arch: arch.Of(elf.EM_X86_64), dynsyms: []uint64{noValue, 0x1000, noValue}}
		s.f = elftest.Parse(t, append(bytes.Clone(b), tt.entries...))
		if err := s.table(&relocTable{span(uint64(len(b)), uint64(len(b)+len(tt.entries))), tt.form}); err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		var got []uint64
		for i, hit := range r.hit {
			if hit {
				got = append(got, r.cuts[i])
			}
		}
		slices.Sort(tt.want)
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %#x is marked; want %#x", tt.name, got, tt.want)
		}
	}
	f := elftest.Parse(t, b)
	s := scan{references: &references{}, f: f, arch: arch.Of(elf.EM_X86_64)}
	entries := entry(1<<40, 0, elf.R_X86_64_RELATIVE)
	s.f = elftest.Parse(t, append(bytes.Clone(b), entries...))
	err := s.table(&relocTable{span(uint64(len(b)), uint64(len(b)+len(entries))), formREL})
	want := fmt.Sprintf("relocations at file offset %#x: the place 0x10000000000 of one is not in the file", len(b))
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error is %v, want %q", err, want)
	}
}

// TestDynamicREL expects relocations of DT_JMPREL to be of the form that DT_PLTREL says.
func TestDynamicREL(t *testing.T) {
	for value, want := range map[elf.DynTag]relocForm{elf.DT_RELA: formRELA, elf.DT_REL: formREL} {
		b := patched(t, "pltlib.so", func(p *elftest.Patcher) {
			p.Put64(dynamicEntry(p, elf.DT_PLTREL)+8,
				uint64(value))
		})
		s := scan{references: &references{}, f: elftest.Parse(t, b), arch: arch.Of(elf.EM_X86_64)}
		got, err := s.dynamicTables()
		if err != nil || !slices.Equal(got, []relocTable{{span(0x308, 0x308+24), want}}) {
			t.Errorf("%v: %+v, error %v", value, got, err)
		}
	}
}

// TestBareSymbolErrors expects errors of files without section headers whose symbols cannot be counted, or are
// not there. Nothing gives way then.
func TestBareSymbolErrors(t *testing.T) {
	set := func(tag elf.DynTag, value uint64) func(*elftest.Patcher) {
		return func(p *elftest.Patcher) { p.Put64(dynamicEntry(p, tag)+8, value) }
	}
	const hash = 0x278 // of .gnu.hash, with words for the numbers of buckets, symbols without hash, and the filter's
	for _, tt := range []struct {
		name   string
		change func(*elftest.Patcher)
		want   string
	}{
		{"no hash table", func(p *elftest.Patcher) { p.Put64(dynamicEntry(p, elf.DT_GNU_HASH), uint64(elf.DT_DEBUG)) },
			"no hash table tells the number of symbols"},
		{"a hash table elsewhere", set(elf.DT_GNU_HASH, 1<<40),
			"hash table at address 0x10000000000: word 0 is not in the file"},
		{"an old one elsewhere", func(p *elftest.Patcher) {
			off := dynamicEntry(p, elf.DT_DEBUG)
			p.Put64(off, uint64(elf.DT_HASH))
			p.Put64(off+8, 1<<40)
		}, "hash table at address 0x10000000000: word 1 is not in the file"},
		{"many buckets", func(p *elftest.Patcher) { p.Put32(hash, math.MaxUint32) },
			"hash table at address 0x278: word"},
		{"a chain without an end", func(p *elftest.Patcher) { p.Put32(hash+16+8*int(p.U32(hash+8)), 1<<30) },
			"hash table at address 0x278: word"},
		{"symbols elsewhere", set(elf.DT_SYMTAB, 1<<40),
			"DT_SYMTAB leads to 8 symbols at address 0x10000000000, which no loaded segment holds"},
		{"dynamic entries", func(p *elftest.Patcher) {
			p.Append(make([]byte, 1<<21))
			p.Put64(p.Segment(elf.PT_DYNAMIC, 0)+elftest.PhFilesz, 1<<21)
		}, "at most 1048576 are accepted"},
	} {
		b := patched(t, "alloca", func(p *elftest.Patcher) { tt.change(p); bare(p) })
		s := scan{references: &references{}, f: elftest.Parse(t, b), arch: arch.Of(elf.EM_X86_64)}
		if err := s.allSymbols(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error is %v, want %q", tt.name, err, tt.want)
		}
	}
}

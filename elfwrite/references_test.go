package elfwrite

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/arch"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/image"
	"cfi2sframe/internal/testkit/must"
)

// TestSymbolInSection places a symbol in each section that would otherwise move. The section must stay: a different
// layout is found, or the error reports the reason.
func TestSymbolInSection(t *testing.T) {
	old := read(t, "alloca")
	p := must.Get(NewProgram(elftest.Parse(t, old), Options{}))(t)
	for _, name := range []string{".interp", ".note.gnu.build-id", ".gnu.hash", ".dynsym", ".dynstr"} {
		s := p.f.Section(name)
		for value, want := range map[uint64]bool{s.Addr: true, s.Addr + s.Size - 1: true, s.Addr - 1: false} {
			b := bytes.Clone(old)
			setSymbol(t, b, value, 6, elf.STT_OBJECT)
			r := newReferences(elftest.Parse(t, b), p.parts(), nil)
			if err := r.checkRange(span(s.Addr, s.Addr+s.Size)); errors.Is(err, errReferred) != want {
				t.Errorf("%s, symbol at %#x: error %v", name, value, err)
			}
		}
	}
	for _, name := range []string{"alloca", "rareg.so"} {
		old := read(t, name)
		before := elftest.Parse(t, old)
		plain := elftest.Parse(t, add(t, old, content(100), Options{}))
		tried := 0
		for i := range before.Sections {
			s := &before.Sections[i]
			if !s.Alloc() || plain.Section(s.Name).Addr == s.Addr {
				continue
			}
			tried++
			for _, tt := range []struct {
				what    string
				value   uint64
				section int
				typ     elf.SymType
				stays   bool
			}{
				{"object at its start", s.Addr, i, elf.STT_OBJECT, true},
				{"object at its last byte", s.Addr + s.Size - 1, i, elf.STT_OBJECT, true},
				{"label at its end", s.Addr + s.Size, i, elf.STT_NOTYPE, true},
				{"label of a different section", s.Addr, before.Shstrndx, elf.STT_NOTYPE, true},
				{"section", s.Addr, i, elf.STT_SECTION, false},
				{"__ehdr_start", 0, i, elf.STT_NOTYPE, false},
			} {
				b := bytes.Clone(old)
				setSymbol(t, b, tt.value, tt.section, tt.typ)
				l, err := Plan(elftest.Parse(t, b), 100, Options{})
				if err != nil {
					if !tt.stays || !strings.Contains(err.Error(), s.Name+" at file offset") &&
						!strings.Contains(err.Error(), "refers to it") {
						t.Errorf("%s, %s, %s: %v", name, s.Name, tt.what, err)
					}
					continue
				}
				f := elftest.Parse(t, write(t, l, b, content(100)))
				if err := image.Compare(elftest.Parse(t, b), f); err != nil {
					t.Errorf("%s, %s, %s: %v", name, s.Name, tt.what, err)
				}
				if stays := f.Section(s.Name).Addr == s.Addr; stays != tt.stays {
					t.Errorf("%s, %s, %s: it stays: %t; want the opposite", name, s.Name, tt.what, stays)
				}
			}
		}
		if tried < 2 {
			t.Errorf("%s: only %d sections would move", name, tried)
		}
	}
}

// addRelocations adds a section of dynamic relocations if flags contains SHF_ALLOC, otherwise of relocations that a
// linker kept (--emit-relocs).
func addRelocations(p *elftest.Patcher, typ elf.SectionType, flags elf.SectionFlag, link, info int, entries []byte) {
	p.SectionIn(typ, flags, uint64(p.Append(entries)), 0, uint64(len(entries)))
	h := p.Header(int(p.U16(elftest.EhShnum)) - 1)
	p.Put32(h+elftest.ShLink, uint32(link))
	p.Put32(h+elftest.ShInfo, uint32(info))
}

// TestKeptRelocations adds relocations kept by a linker. A relocation to .gnu.hash prevents it from moving, and moving
// other sections does not suffice.
func TestKeptRelocations(t *testing.T) {
	const (
		text, symtab = 6, 10        // section indexes
		leaf, leafAt = 3, 0x3a7     // symbol index and value
		hash, dynsym = 0x278, 0x2b8 // start and end of .gnu.hash
		code         = 0x3b0        // an address in .text
		pc32         = elf.R_X86_64_PC32
		referred     = "a symbol or a relocation refers to it, so code may do the same"
		refers       = ".gnu.hash at file offset 0x278 cannot be moved: " + referred
		// The target may be up to bias bytes away, and thus in the preceding section.
		before = ".note.gnu.build-id at file offset 0x254 cannot be moved: " + referred
	)
	le := binary.LittleEndian
	one := func(place uint64, sym uint32, typ elf.R_X86_64, addend uint64) []byte {
		return rela(le, place, sym, uint32(typ), addend)
	}
	to := func(target int) uint64 { return uint64(target - leafAt) } // addend for a relocation against leaf
	for _, tt := range []struct {
		name       string
		typ        elf.SectionType
		link, info int
		entries    []byte
		want       string // error, or "" if the section moves
	}{
		{"to its start", elf.SHT_RELA, symtab, text, one(code, leaf, elf.R_X86_64_64, to(hash)), before},
		{"in it", elf.SHT_RELA, symtab, text, one(code, leaf, elf.R_X86_64_64, to(hash+bias)), refers},
		{"to its last byte", elf.SHT_RELA, symtab, text, one(code, leaf, elf.R_X86_64_64, to(dynsym-1)), refers},
		{"from the end of the field", elf.SHT_RELA, symtab, text, one(code, leaf, pc32, to(hash-4)), before},
		{"before all of it", elf.SHT_RELA, symtab, text, one(code, leaf, pc32, to(0x200)), ""},
		{"far after it", elf.SHT_RELA, symtab, text, one(code, leaf, pc32, to(0x1f30)), ""},
		{"a field in it", elf.SHT_RELA, symtab, text, one(hash+8, leaf, pc32, 0), refers},
		{"R_X86_64_NONE", elf.SHT_RELA, symtab, text, one(hash, leaf, elf.R_X86_64_NONE, to(hash)), ""},
		{"the last of two", elf.SHT_RELA, symtab, text,
			slices.Concat(one(code, leaf, pc32, 0), one(code, leaf, elf.R_X86_64_64, to(hash+bias))), refers},
		{"in a section that is not loaded", elf.SHT_RELA, symtab, symtab, one(0, leaf, elf.R_X86_64_64, to(hash)), ""},
		{"in no section", elf.SHT_RELA, symtab, 1000, one(0, leaf, elf.R_X86_64_64, to(hash)), ""},
		{"with a different symbol table", elf.SHT_RELA, 4, text, one(code, leaf, pc32, 0),
			"references to it are unknown: section 13 () has relocations of type SHT_RELA with symbols in section 4, " +
				"not SHT_RELA with symbols in section 10"},
		{"without addends", elf.SHT_REL, symtab, text, one(code, leaf, pc32, 0)[:16],
			"references to it are unknown: section 13 () has relocations of type SHT_REL with symbols in section 10, " +
				"not SHT_RELA with symbols in section 10"},
	} {
		b := patched(t, "alloca", func(p *elftest.Patcher) {
			addRelocations(p, tt.typ, 0, tt.link, tt.info, tt.entries)
		})
		if tt.want != "" {
			refused(t, tt.name, b, 1000, tt.want)
			continue
		}
		f := elftest.Parse(t, add(t, b, content(1000), Options{}))
		if f.Section(".gnu.hash").Addr == hash {
			t.Errorf("%s: it has not moved", tt.name)
		}
	}
	for name, b := range map[string][]byte{
		"section 13 () has unsupported relocations of type 0x40000014": patched(t, "alloca", func(p *elftest.Patcher) {
			addRelocations(p, shtCREL, elf.SHF_ALLOC, 4, 0, make([]byte, 8))
		}),
		"section 13 () has unsupported relocations of type 0x60000002": patched(t, "alloca", func(p *elftest.Patcher) {
			addRelocations(p, shtAndroidRELA, elf.SHF_ALLOC, 4, 0, make([]byte, 8))
		}),
		"references to it are unknown: DT_JMPREL refers to 1099511627776 bytes": patched(t, "plt",
			func(p *elftest.Patcher) { p.Put64(dynamicEntry(p, elf.DT_PLTRELSZ)+8, 1<<40) }),
		"dynamic entry 0x60000011 refers to packed relocations, which are not supported": patched(t, "pltlib.so",
			func(p *elftest.Patcher) {
				p.Put64(dynamicEntry(p, elf.DT_JMPREL), uint64(dtAndroidRELA))
				p.Put64(dynamicEntry(p, elf.DT_PLTRELSZ), uint64(dtAndroidRELASZ))
			}),
	} {
		refused(t, name, b, 1000, name)
	}
}

// TestRelocationTables marks the fields and targets of relocations with explicit and implicit addends (RELA, REL), with
// and without a symbol, and encoded as DT_RELR (ELF gABI: an address, or 63 bits for the words after it).
func TestRelocationTables(t *testing.T) {
	// The first words of .dynamic in this file are overwritten with addresses; the following words already contain
	// addresses.
	const place, other, dynamic = 0x1f40, 0x1f48, 0xf40
	const header = 0x40 // address of a word of a program header, which is not an address
	for _, order := range []elftest.Order{binary.LittleEndian, binary.BigEndian} {
		b := patched(t, "rareg.so", func(p *elftest.Patcher) { clear(p.B[dynamic:][:0x90]) })
		order.PutUint64(b[header+64*8:], 0x218)
		for i := range 16 {
			order.PutUint64(b[dynamic+8*i:], []uint64{0x1f0, 0x218, 0x300}[min(i, 2)])
		}
		entry := func(place uint64, sym uint32, typ elf.R_X86_64, addend uint64) []byte {
			return rela(order, place, sym, uint32(typ), addend)
		}
		rel := func(place uint64, sym uint32, typ elf.R_X86_64) []byte { return entry(place, sym, typ, 0)[:relSize] }
		words := func(all ...uint64) (b []byte) {
			for _, w := range all {
				b = order.AppendUint64(b, w)
			}
			return b
		}
		outside := "the field at 0x10000000000 is not in the file, or the relocations are not sorted"
		for _, tt := range []struct {
			name    string
			form    relocForm
			entries []byte
			want    []uint64
			err     string
		}{
			{"relative", formRELA, entry(place, 0, elf.R_X86_64_RELATIVE, 0x400), []uint64{0x400, place}, ""},
			{"from code", formEmitted, entry(place, 1, elf.R_X86_64_PC32, ^uint64(0xfff)), []uint64{0, 8, place}, ""},
			{"from code, without effect", formEmitted, entry(place, 1, elf.R_X86_64_NONE, 0x40), nil, ""},
			{"a number", formRELA, entry(place, 0, elf.R_X86_64_DTPOFF64, 0x400), []uint64{place}, ""},
			{"by a symbol", formRELA, entry(place, 1, elf.R_X86_64_64, 0x40), []uint64{0x1040, place}, ""},
			{"relative, in place", formREL, rel(place, 0, elf.R_X86_64_RELATIVE), []uint64{0x1f0, place}, ""},
			{"two", formREL, slices.Concat(rel(place, 0, elf.R_X86_64_RELATIVE), rel(other, 0, elf.R_X86_64_RELATIVE)),
				[]uint64{0x1f0, 0x218, place, other}, ""},
			{"by a symbol, in place", formREL, rel(other, 1, elf.R_X86_64_64), []uint64{0x1000 + 0x218, other}, ""},
			{"by an undefined symbol", formREL, rel(other, 2, elf.R_X86_64_64), []uint64{other}, ""},
			{"by a missing symbol", formREL, rel(other, 99, elf.R_X86_64_64), []uint64{other}, ""},
			{"outside", formREL, rel(1<<40, 0, elf.R_X86_64_RELATIVE), nil, outside},
			{"an address", formRELR, words(other), []uint64{0x218, other}, ""},
			{"bits for the words after it", formRELR, words(place, 1|1<<1|1<<4),
				[]uint64{0x1f0, 0x218, 0x300, place, other, place + 32}, ""},
			{"bits after bits", formRELR, words(header, 1, 1|1<<1), []uint64{header, 0x218, header + 64*8}, ""},
			{"an address outside", formRELR, words(1 << 40), nil, outside},
		} {
			b := append(bytes.Clone(b), tt.entries...)
			var r references
			var parts []elffile.Span
			for at := uint64(0); at < 0x3000; at += 8 {
				parts = append(parts, span(at, at+8))
			}
			r.cut(parts)
			f := elftest.Parse(t, b)
			f.Order = order
			s := scan{references: &r, f: f, arch: arch.Of(elf.EM_X86_64), dynsyms: []uint64{noValue, 0x1000, noValue}}
			s.symbols = s.dynsyms
			err := s.markTable(&relocTable{span(uint64(len(b)-len(tt.entries)), uint64(len(b))), tt.form})
			if (err != nil) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: error %v, want %q", tt.name, err, tt.err)
			}
			var got []uint64
			for i, hit := range r.hit {
				if hit {
					got = append(got, r.cuts[i])
				}
			}
			if err == nil && !slices.Equal(got, tt.want) {
				t.Errorf("%v, %s: %#x is marked; want %#x", order, tt.name, got, tt.want)
			}
		}
	}
}

// TestDynamicREL expects the relocations of DT_JMPREL to have the format given by DT_PLTREL.
func TestDynamicREL(t *testing.T) {
	for value, want := range map[elf.DynTag]relocForm{elf.DT_RELA: formRELA, elf.DT_REL: formREL} {
		b := patched(t, "pltlib.so", func(p *elftest.Patcher) {
			p.Put64(dynamicEntry(p, elf.DT_PLTREL)+8, uint64(value))
		})
		s := scan{references: &references{}, f: elftest.Parse(t, b), arch: arch.Of(elf.EM_X86_64)}
		got, err := s.dynamicTables()
		if err != nil || !slices.Equal(got, []relocTable{{span(0x308, 0x308+24), want}}) {
			t.Errorf("%v: %+v, error %v", value, got, err)
		}
		// The section .rela.plt is at the same place, and has type SHT_RELA.
		if all, err := s.findTables(); err != nil || len(all) != 1+int(want) {
			t.Errorf("%v: %+v, error %v", value, all, err)
		}
	}
}

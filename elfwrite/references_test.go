package elfwrite

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/arch"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/image"
	"cfi2sframe/internal/testkit/peer"
)

// TestSymbolInSection has a symbol in each of the sections that give way otherwise. They stay,
// and another way is found, or the reason is told.
func TestSymbolInSection(t *testing.T) {
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
				{"label of another section", s.Addr, before.Shstrndx, elf.STT_NOTYPE, true},
				{"object in what is not loaded", s.Addr, before.Shstrndx, elf.STT_OBJECT, false},
				{"section", s.Addr, i, elf.STT_SECTION, false},
				{"TLS offset", s.Addr, i, elf.STT_TLS, false},
				{"number", s.Addr, int(elf.SHN_ABS), elf.STT_NOTYPE, false},
				{"undefined", s.Addr, 0, elf.STT_NOTYPE, false},
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
			t.Errorf("%s: %d sections give way", name, tried)
		}
	}
}

// TestRelocationForms compares the places and targets of relocations in all forms that dynamic
// linkers know with what llvm-readelf decodes.
func TestRelocationForms(t *testing.T) {
	const source = `
static int numbers[600];
int *const steady[] = {&numbers[1], &numbers[2], &numbers[3], &numbers[4], &numbers[5], &numbers[6]};
struct { int *a; long n; int *b; } scattered[40] = {{&numbers[7], 1, &numbers[8]}, {&numbers[9], 2, 0}, [39] = {0, 3, &numbers[599]}};
extern int outer; int *undefined = &outer; extern int own; int own = 7; int *named = &own; int *behind = &own + 5;
int *value(int i) { return steady[i]; }
`
	dir := t.TempDir()
	path := filepath.Join(dir, "lib.c")
	if err := os.WriteFile(path, []byte(source), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ cc, forms string }{
		{"clang-23 --target=x86_64-linux-gnu", "none relr"},
		{"clang-23 --target=aarch64-linux-gnu", "none relr"},
		{"clang-23 --target=aarch64_be-linux-gnu", "none relr"},
	} {
		dir := peer.Run(t, "sid", tt.cc+" -O2 -fPIC -c lib.c -o lib.o\nfor f in "+tt.forms+`; do
			ld.lld-23 -shared --pack-dyn-relocs=$f lib.o -o $f.so
			llvm-readelf-23 -rW $f.so >$f.relocs
		done`, path)
		for _, form := range strings.Fields(tt.forms) {
			b, err := os.ReadFile(filepath.Join(dir, form+".so"))
			if err != nil {
				t.Fatal(err)
			}
			listed, err := os.ReadFile(filepath.Join(dir, form+".relocs"))
			if err != nil {
				t.Fatal(err)
			}
			f := elftest.Parse(t, b)
			want := relocated(t, f, string(listed))
			got := marked(t, f)
			if len(want) < 20 || !slices.Equal(got, want) {
				t.Errorf("%s, %s: places and targets are\n%#x; llvm-readelf has\n%#x", tt.cc, form, got, want)
			}
		}
	}
}

// marked returns the words of the image that symbols do not name and relocations are about.
func marked(t *testing.T, f *elffile.File) []uint64 {
	t.Helper()
	var r references
	var parts []elffile.Span
	for i := range f.Progs {
		if h := &f.Progs[i]; elf.ProgType(h.Type) == elf.PT_LOAD {
			for at := h.Vaddr &^ 7; at < h.Vaddr+h.Memsz; at += 4 {
				parts = append(parts, span(at, at+4))
			}
		}
	}
	r.cut(parts)
	s := scan{references: &r, f: f, arch: arch.Of(elf.Machine(f.Machine))}
	tables, err := s.tables()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.allSymbols(); err != nil {
		t.Fatal(err)
	}
	clear(r.hit) // of the symbols; only what they are worth was wanted
	for i := range tables {
		if err := s.table(&tables[i]); err != nil {
			t.Fatal(err)
		}
	}
	var words []uint64
	for i, hit := range r.hit {
		if hit {
			words = append(words, r.cuts[i])
		}
	}
	return words
}

// relocated returns the places and targets that llvm-readelf lists.
func relocated(t *testing.T, f *elffile.File, listed string) []uint64 {
	t.Helper()
	line := regexp.MustCompile(`^([0-9a-f]{16}) +[0-9a-f]{16} +(R_\S+) +(?:([0-9a-f]{16}) +(\S+) *([+-]) *([0-9a-f]+)|([0-9a-f]+))?`)
	relr := regexp.MustCompile(`^(?:[0-9a-f]{4}:  [0-9a-f]{16}| {23}) ([0-9a-f]{16})`)
	words := make(map[uint64]bool)
	number := func(s string) uint64 {
		v, err := strconv.ParseUint(s, 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, text := range strings.Split(listed, "\n") {
		m := line.FindStringSubmatch(text)
		if r := relr.FindStringSubmatch(text); r != nil {
			m = append(r, make([]string, 6)...)
		}
		if m == nil {
			continue
		}
		place := number(m[1])
		words[place&^3] = true
		switch {
		case m[3] != "" && number(m[3]) != 0:
			words[(number(m[3])+number(m[6]))&^3] = true
		case m[3] != "": // undefined
		case m[7] != "":
			words[number(m[7])&^3] = true
		default: // the addend is in the place
			off, ok := f.FileOffset(place, 8)
			if !ok {
				t.Fatalf("%#x is not in the file", place)
			}
			b, err := f.ReadAt("word", off, 8)
			if err != nil {
				t.Fatal(err)
			}
			words[f.Order.Uint64(b)&^3] = true
		}
	}
	var sorted []uint64
	for w := range words {
		sorted = append(sorted, w)
	}
	slices.Sort(sorted)
	return sorted
}

// TestManyRelocations decodes tables of relocations in places that are far apart, or that are no
// places at all, in the time that it takes to read the file some times.
func TestManyRelocations(t *testing.T) {
	const size = 6 << 20
	b := make([]byte, size)
	h := elf.Header64{
		Type: uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: 1, Ehsize: elffile.HeaderSize,
		Phoff: elffile.HeaderSize, Phentsize: elffile.ProgSize, Phnum: 1,
	}
	copy(h.Ident[:], elf.ELFMAG+"\x02\x01\x01")
	var head bytes.Buffer
	for _, v := range []any{&h, &elf.Prog64{Type: uint32(elf.PT_LOAD), Filesz: size, Memsz: size}} {
		if err := binary.Write(&head, binary.LittleEndian, v); err != nil {
			t.Fatal(err)
		}
	}
	copy(b, head.Bytes())
	const begin = 4096
	for name, entry := range map[string]func(i int) uint64{
		"bits":               func(i int) uint64 { return []uint64{0, 1<<64 - 1}[min(i, 1)] },
		"both ends in turns": func(i int) uint64 { return uint64(i%2*(size-16)) &^ 1 },
		"nowhere":            func(i int) uint64 { return 1 << 40 },
	} {
		for i := range (size - begin) / 8 {
			binary.LittleEndian.PutUint64(b[begin+8*i:], entry(i))
		}
		f := elftest.Parse(t, b)
		r := references{}
		r.cut([]elffile.Span{span(64, 128)})
		s := scan{references: &r, f: f, arch: arch.Of(elf.EM_X86_64)}
		start := time.Now()
		err := s.table(&relocTable{span(begin, size), formRELR})
		if err == nil || !strings.Contains(err.Error(), "not in the file, or they are in no order") {
			t.Errorf("%s: error is %v", name, err)
		}
		if d := time.Since(start); d > 20*time.Second {
			t.Errorf("%s: it takes %v", name, d)
		}
	}
}

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
		"it is not known what refers to it: DT_JMPREL leads to 1099511627776 bytes": patched(t, "plt",
			func(p *elftest.Patcher) { p.Put64(dynamicEntry(p, elf.DT_PLTRELSZ)+8, 1<<40) }),
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

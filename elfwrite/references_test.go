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

// TestUnknownRelocations has a table of relocations that is not where the dynamic entries say.
// What refers to sections is not known then, and nothing gives way.
func TestUnknownRelocations(t *testing.T) {
	b := read(t, "plt")
	dyn := elftest.Parse(t, b).Prog(elf.PT_DYNAMIC)
	set := map[elf.DynTag]uint64{elf.DT_PLTRELSZ: 1 << 40}
	for off := dyn.Off; off < dyn.Off+dyn.Filesz; off += elffile.DynSize {
		if v, ok := set[elf.DynTag(binary.LittleEndian.Uint64(b[off:]))]; ok {
			binary.LittleEndian.PutUint64(b[off+8:], v)
			delete(set, elf.DT_PLTRELSZ)
		}
	}
	if len(set) > 0 {
		t.Fatal("there is no DT_PLTRELSZ")
	}
	want := fmt.Sprintf("it is not known what refers to it: DT_JMPREL leads to %d bytes", 1<<40)
	if _, err := Plan(elftest.Parse(t, b), 100, Options{}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error is %v; want %q", err, want)
	}
}

// TestBareSymbols expects as many dynamic symbols without section headers as with them, and the
// same values, with both kinds of hash tables.
func TestBareSymbols(t *testing.T) {
	files := make(map[string][]byte)
	allFixtures(t, func(name string, b []byte) { files[name] = b })
	source := filepath.Join(t.TempDir(), "lib.c")
	if err := os.WriteFile(source, []byte("int a; int b(void) { return a; } int c(void) { return b(); } extern int d; int *e(void) { return &d; }"), 0o666); err != nil {
		t.Fatal(err)
	}
	dir := peer.Run(t, "sid", `for a in x86_64 s390x; do for h in sysv gnu; do
		$a-linux-gnu-gcc-16 -shared -fPIC -nostdlib -Wl,--hash-style=$h lib.c -o $a.$h; $a-linux-gnu-gcc-16 -shared -fPIC -nostdlib -Wl,--hash-style=$h -x c /dev/null -o $a.$h.empty
	done; done`, source)
	for _, name := range []string{"x86_64.sysv", "x86_64.gnu", "s390x.sysv", "s390x.gnu"} {
		for _, name := range []string{name, name + ".empty"} {
			b, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			files[name] = b
		}
	}
	tried := 0
	for name, b := range files {
		f := elftest.Parse(t, b)
		if f.Prog(elf.PT_DYNAMIC) == nil {
			continue
		}
		tried++
		machine := arch.Of(elf.Machine(f.Machine))
		full, bare := scan{references: &references{}, f: f, arch: machine},
			scan{references: &references{}, arch: machine}
		if err := full.allSymbols(); err != nil {
			t.Fatal(err)
		}
		b = bytes.Clone(b)
		clear(b[40:48]) // e_shoff
		clear(b[60:64]) // e_shnum, e_shstrndx
		bare.f = elftest.Parse(t, b)
		if err := bare.allSymbols(); err != nil || !slices.Equal(bare.dynsyms, full.dynsyms) {
			t.Errorf("%s: %d symbols, error %v:\n%#x\nexpected %d:\n%#x", name, len(bare.dynsyms), err, bare.dynsyms,
				len(full.dynsyms), full.dynsyms)
		}
	}
	if tried < 20 {
		t.Errorf("%d files have dynamic symbols", tried)
	}
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

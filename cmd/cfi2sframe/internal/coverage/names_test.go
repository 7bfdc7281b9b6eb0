package coverage

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/translate"
)

// A symbol is an entry for a symbol table.
type symbol struct {
	name        string
	typ         elf.SymType
	section     elf.SectionIndex
	value, size uint64
}

// withSymbols returns the file in data with the given symbols and no others.
func withSymbols(t *testing.T, data []byte, symbols []symbol) *elffile.File {
	t.Helper()
	f := elftest.Parse(t, data)
	data = bytes.Clone(data)
	names := []byte{0}
	var table bytes.Buffer
	table.Write(make([]byte, elffile.SymSize))
	for _, s := range symbols {
		sym := elf.Sym64{Name: uint32(len(names)), Info: byte(s.typ), Shndx: uint16(s.section), Value: s.value,
			Size: s.size}
		must.Do(t, binary.Write(&table, f.Order, sym))
		names = append(append(names, s.name...), 0)
	}
	for i := range f.Sections {
		h := f.Sections[i].Section64
		switch elf.SectionType(h.Type) {
		case elf.SHT_DYNSYM:
			h.Type = uint32(elf.SHT_PROGBITS)
		case elf.SHT_SYMTAB:
			h.Off, h.Size = uint64(len(data)), uint64(table.Len())
			data = append(data, table.Bytes()...)
		case elf.SHT_STRTAB:
			if f.Sections[i].Name != ".strtab" {
				continue
			}
			h.Off, h.Size = uint64(len(data)), uint64(len(names))
			data = append(data, names...)
		}
		var header bytes.Buffer
		must.Do(t, binary.Write(&header, f.Order, h))
		copy(data[f.Shoff+uint64(i)*elffile.SectionSize:], header.Bytes())
	}
	return elftest.Parse(t, data)
}

// TestNames checks which of the surrounding symbols names a gap that starts 4 bytes into a function.
func TestNames(t *testing.T) {
	const (
		fn, ifunc, none = elf.STT_FUNC, elf.STT_GNU_IFUNC, elf.STT_NOTYPE
		text, data      = 6, 9 // sections of the fixtures
	)
	type file struct {
		name             string
		start, size, gap uint64
	}
	amd64 := file{"amd64/fprules", 0x490, 18, 0x494} // fp_register
	arm := file{"aarch64/fponly", 0x4006bc, 16, 0x4006c0}
	for _, tt := range []struct {
		name    string
		file    file
		symbols func(f file) []symbol
		want    string
		offset  uint64 // of the gap
	}{
		{"nothing", amd64, func(f file) []symbol { return nil }, "", 4},
		{"a label at the gap", amd64, func(f file) []symbol {
			return []symbol{{"label", none, text, f.gap, 0}, {"function", fn, text, f.start, f.size},
				{"later", none, text, f.gap, 0}}
		}, "function", 4},
		{"a label with a size at the gap", amd64, func(f file) []symbol {
			return []symbol{{"label", none, text, f.gap, 4}, {"function", fn, text, f.start, f.size}}
		}, "function", 4},
		{"an absolute symbol at the gap", amd64, func(f file) []symbol {
			return []symbol{{"function", fn, text, f.start, f.size}, {"absolute", none, elf.SHN_ABS, f.gap, 4}}
		}, "function", 4},
		{"absolute symbols only", amd64, func(f file) []symbol {
			return []symbol{{"a", none, elf.SHN_ABS, f.start, f.size}, {"b", fn, elf.SHN_ABS, f.start, f.size},
				{"c", fn, elf.SHN_COMMON, f.start, f.size}}
		}, "", 4},
		{"symbols of data only", amd64, func(f file) []symbol {
			return []symbol{{"a", none, data, f.start, f.size}, {"b", fn, data, f.start, f.size}}
		}, "", 4},
		{"symbols of other types only", amd64, func(f file) []symbol {
			return []symbol{{"a", elf.STT_SECTION, text, f.start, f.size},
				{"b", elf.STT_FILE, elf.SHN_ABS, f.start, f.size}, {"c", elf.STT_TLS, text, f.start, f.size},
				{"d", elf.STT_OBJECT, text, f.start, f.size}}
		}, "", 4},
		{"labels only", amd64, func(f file) []symbol {
			return []symbol{{"start", none, text, f.start, 0}, {"label", none, text, f.gap, 0}}
		}, "start", 4},
		{"functions without a size, and labels", amd64, func(f file) []symbol {
			return []symbol{{"label", none, text, f.gap, 0}, {"function", fn, text, f.start, 0},
				{"start", none, text, f.start, f.size}}
		}, "function", 4},
		{"a function within a function", amd64, func(f file) []symbol {
			return []symbol{{"inner", fn, text, f.start, f.size}, {"outer", fn, text, f.start - 16, 64}}
		}, "inner", 4},
		{"a function that ends before the gap", amd64, func(f file) []symbol {
			return []symbol{{"before", fn, text, f.start - 16, 16}, {"start", none, text, f.start, 0}}
		}, "start", 4},
		{"an indirect function", amd64, func(f file) []symbol {
			return []symbol{{"start", none, text, f.start, f.size}, {"indirect", ifunc, text, f.start, f.size},
				{"label", none, text, f.gap, 0}}
		}, "indirect", 4},
		{"a function that begins after its FDE's start", amd64, func(f file) []symbol {
			return []symbol{{"later", fn, text, f.gap + 1, 4}}
		}, "later", 4},
		{"a dollar on amd64", amd64, func(f file) []symbol { return []symbol{{"$x", none, text, f.start, 0}} }, "$x",
			4},
		// ELF for the Arm 64-bit Architecture, "Mapping symbols".
		{"mapping symbols", arm, func(f file) []symbol {
			return []symbol{{"$x", none, text, f.gap, 0}, {"function", fn, text, f.start, f.size},
				{"$d", none, text, f.gap, 0}}
		}, "function", 4},
		{"mapping symbols only", arm, func(f file) []symbol {
			return []symbol{{"$x", none, text, f.start, 0}, {"$d.12", none, text, f.gap, 0},
				{"$x.name", none, text, f.gap, 0}}
		}, "", 4},
		{"mapping symbols and a label", arm, func(f file) []symbol {
			return []symbol{{"$x", none, text, f.gap, 0}, {"start", none, text, f.start, 0},
				{"$x", none, text, f.start, 0}}
		}, "start", 4},
		{"no mapping symbol", arm, func(f file) []symbol { return []symbol{{"$xyz", none, text, f.start, 0}} },
			"$xyz", 4},
	} {
		b := testfile.Read(t, "../../../../testdata/bin/"+tt.file.name)
		f := withSymbols(t, b, tt.symbols(tt.file))
		gaps, functions, _ := gapsOf(t, f)
		i := slices.IndexFunc(gaps, func(g translate.Gap) bool { return g.Begin == tt.file.gap })
		if i < 0 {
			t.Errorf("%s: no gap at %#x: %+v", tt.name, tt.file.gap, gaps)
			continue
		}
		if fn := functions[i]; fn.Name != tt.want || tt.file.gap-fn.Begin != tt.offset {
			t.Errorf("%s: %s+%#x, want %s+%#x", tt.name, fn.Name, tt.file.gap-fn.Begin, tt.want, tt.offset)
		}
	}
}

// TestNamesBounded expects no more names to be read than the limits allow.
func TestNamesBounded(t *testing.T) {
	f := elftest.Parse(t, fixture(t, "drap2.so"))
	var refs []nameRef
	functionSymbols([]*elffile.File{f}, func(p nameRef, s elffile.Symbol) {
		if elf.SectionType(p.table.Type) == elf.SHT_SYMTAB {
			refs = append(refs, p)
		}
	})
	n := namesOf(f)
	n.unread = len("leaf") + len("realign_rbx")
	var got []string
	for _, i := range []int{0, 1, 2, 1, 0} { // leaf, realign_rbx and realign_alloca, according to readelf
		got = append(got, n.name(refs[i]).name)
	}
	if s := strings.Join(got, " "); s != "leaf realign_rbx  realign_rbx leaf" || n.Omitted != 1 {
		t.Errorf("names %s, %d are omitted", s, n.Omitted)
	}
	// c++filt prints f(int, int ...). Demangling time grows faster than the length of the name.
	for length, want := range map[int]bool{maxMangled: true, maxMangled + 1: false} {
		symbol := "_Z1f" + strings.Repeat("i", length-len("_Z1f"))
		if name := demangledName(symbol).name; strings.HasPrefix(name, "f(int") != want || !want && name != symbol {
			t.Errorf("%d bytes become %q", length, name[:20])
		}
	}
}

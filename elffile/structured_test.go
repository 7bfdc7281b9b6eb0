package elffile_test

import (
	"bytes"
	"debug/elf"
	"errors"
	"slices"
	"testing"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/choice"
	"cfi2sframe/internal/testkit/generate"
)

// FuzzStructured generates a file and, if damage is not 0, overwrites some bytes. The result must agree with Go's
// debug/elf, and errors must have a location.
func FuzzStructured(f *testing.F) {
	for seed := range uint64(60) {
		f.Add(choice.Seeded(seed, 200), uint64(0))
		f.Add(choice.Seeded(seed, 200), generate.Damage(seed))
	}
	f.Fuzz(func(t *testing.T, choices []byte, damage uint64) {
		if len(choices) > 4096 {
			return
		}
		b := generate.NewFile(choice.From(choices)).Bytes
		if damage != 0 {
			b = generate.Damaged(b, damage)
		}
		x, err := elffile.New(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			var e *elffile.Error
			if damage == 0 || !errors.As(err, &e) || e.Where == "" && !errors.Is(err, elffile.ErrNotELF) &&
				!errors.Is(err, elffile.Err32Bit) {
				t.Errorf("error %v", err)
			}
			return
		}
		peer, err := elf.NewFile(bytes.NewReader(b))
		if err != nil {
			if damage == 0 {
				t.Fatal(err)
			}
			peer = nil // debug/elf also rejects damaged names and compression headers
		}
		if peer != nil {
			compare(t, x, peer)
		}
		for i := range x.Sections {
			s := &x.Sections[i]
			if s.Size < 1<<16 {
				_, _ = x.ReadUncompressed(s)
			}
			got, err := x.ReadSection(s)
			if err != nil || !s.HasBytes() {
				if damage == 0 && err != nil && s.HasBytes() {
					t.Error(err)
				}
				continue
			}
			if s.Off > uint64(len(b)) || s.Size > uint64(len(b))-s.Off || !bytes.Equal(got, b[s.Off:][:s.Size]) {
				t.Errorf("section %d has %d bytes that differ from those at file offset %#x", i, len(got), s.Off)
			}
		}
		checkOffsets(t, x)
		for _, s := range []struct {
			typ  elf.SectionType
			read func() ([]elf.Symbol, error)
		}{{elf.SHT_SYMTAB, func() ([]elf.Symbol, error) { return peer.Symbols() }},
			{elf.SHT_DYNSYM, func() ([]elf.Symbol, error) { return peer.DynamicSymbols() }}} {
			var got []elf.Symbol
			err := x.Symbols(s.typ, func(table *elffile.Section, s elffile.Symbol) {
				got = append(got, elf.Symbol{Name: x.SymbolName(table, s.Name), Info: s.Info, Other: s.Other,
					Section: elf.SectionIndex(s.Section), Value: s.Value, Size: s.Size})
				if damage == 0 && int(s.Index) != len(got)-1 {
					t.Errorf("symbol %d has index %d", len(got)-1, s.Index)
				}
			})
			if err != nil || peer == nil || x.IsObject() || damage != 0 {
				if err != nil && damage == 0 {
					t.Error(err)
				}
				continue
			}
			want, err := s.read()
			if errors.Is(err, elf.ErrNoSymbols) {
				want = nil
			} else if err != nil {
				t.Fatal(err)
			}
			if len(got) > len(want) {
				got = got[1:] // the null symbol
			}
			for i := range want {
				w := &want[i]
				*w = elf.Symbol{
					Name: w.Name, Info: w.Info, Other: w.Other, Section: w.Section, Value: w.Value, Size: w.Size,
				}
				if w.Section >= elf.SHN_LORESERVE {
					w.Section = 0
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("symbols of type %v: %+v; want %+v", s.typ, got, want)
			}
		}
	})
}

// checkOffsets looks up addresses at the boundaries of segments, and compares the file offsets with those that a linear
// search finds.
func checkOffsets(t *testing.T, x *elffile.File) {
	t.Helper()
	for i := range x.Progs {
		p := &x.Progs[i]
		for _, at := range []uint64{p.Vaddr - 1, p.Vaddr, p.Vaddr + p.Filesz/2, p.Vaddr + p.Filesz} {
			for _, n := range []uint64{0, 1, p.Filesz / 2, p.Filesz/2 + 1, p.Filesz} {
				var want uint64
				holds := false
				for _, p := range x.Progs {
					if elf.ProgType(p.Type) == elf.PT_LOAD && !holds && at >= p.Vaddr && n <= p.Filesz &&
						at-p.Vaddr <= p.Filesz-n && p.Off+at-p.Vaddr <= x.Size && n <= x.Size-(p.Off+at-p.Vaddr) {
						want, holds = p.Off+at-p.Vaddr, true
					}
				}
				if off, ok := x.FileOffset(at, n); ok != holds || off != want {
					t.Fatalf("FileOffset(%#x, %d) = %#x, %t with %+v; want %#x, %t", at, n, off, ok, x.Progs, want,
						holds)
				}
			}
		}
	}
}

// compare compares the headers with those read by debug/elf.
func compare(t *testing.T, x *elffile.File, peer *elf.File) {
	t.Helper()
	if len(x.Progs) != len(peer.Progs) || len(x.Sections) != len(peer.Sections) {
		t.Fatalf("%d program and %d section headers; want %d and %d", len(x.Progs), len(x.Sections),
			len(peer.Progs), len(peer.Sections))
	}
	if elf.Machine(x.Machine) != peer.Machine || elf.Type(x.Type) != peer.Type || x.Entry != peer.Entry {
		t.Errorf("machine %d, type %d, entry %#x; want %d, %d and %#x", x.Machine, x.Type, x.Entry,
			peer.Machine, peer.Type, peer.Entry)
	}
	for i, w := range peer.Progs {
		p := &x.Progs[i]
		if elf.ProgType(p.Type) != w.Type || p.Off != w.Off || p.Vaddr != w.Vaddr || p.Filesz != w.Filesz ||
			p.Memsz != w.Memsz || elf.ProgFlag(p.Flags) != w.Flags || p.Align != w.Align {
			t.Errorf("program header %d is %+v; want %+v", i, *p, w.ProgHeader)
		}
	}
	for i, w := range peer.Sections {
		s := &x.Sections[i]
		if i == 0 {
			continue // holds fields that do not fit in the ELF header
		}
		if s.Name != w.Name || elf.SectionType(s.Type) != w.Type || s.Off != w.Offset || s.Addr != w.Addr ||
			s.Section64.Size != w.FileSize && !s.Compressed() ||
			elf.SectionFlag(s.Flags) != w.Flags || s.Link != w.Link || s.Info != w.Info {
			t.Errorf("section %d is %+v; want %+v", i, *s, w.SectionHeader)
		}
	}
}

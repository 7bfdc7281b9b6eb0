package elfwrite

import (
	"debug/elf"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/arch"
)

// references records the addresses to which symbols and relocations refer. A part of the file that contains such an
// address cannot move, because code that refers to it is not rewritten. Parts are movable sections, notes and the bytes
// after the program headers.
type references struct {
	cuts []uint64 // sorted start and end addresses of parts
	hit  []bool   // by cut: something refers to an address before the next cut
	err  error    // error from the scan

	begin, end uint64                   // range of the code and all parts
	code       elffile.Span             // range of the code
	refers     func(first, last uint64) // called for references to code, or nil
}

// checkRange returns an error if something may refer to addresses in s.
func (r *references) checkRange(s elffile.Span) error {
	if r.err != nil {
		return fmt.Errorf("references to it are unknown: %w", r.err)
	}
	for i := max(r.cutAt(s.Begin), 0); i < len(r.cuts) && r.cuts[i] < s.End; i++ {
		if r.hit[i] {
			return errReferred
		}
	}
	return nil
}

var errReferred = errors.New("a symbol or a relocation refers to it, so code may do the same")

// cutAt returns the index of the last cut at or before an address, or -1.
func (r *references) cutAt(addr uint64) int {
	return sort.Search(len(r.cuts), func(i int) bool { return r.cuts[i] > addr }) - 1
}

// mark records a reference to some address in [first, last]. It is inlined because most references are to data, which
// it ignores.
func (r *references) mark(first, last uint64) {
	if last >= r.begin && first < r.end {
		r.markPart(first, last)
	}
}

// markPart is like mark, but for addresses that may be in code or in a part.
func (r *references) markPart(first, last uint64) {
	r.markCode(first, last)
	for i := max(r.cutAt(first), 0); i < len(r.cuts) && r.cuts[i] <= last; i++ {
		r.hit[i] = true
	}
}

// checkUnreferenced returns an error if something may refer to addresses in s, a range of the old file. The first call
// scans the file.
func (p *Program) checkUnreferenced(s elffile.Span) error {
	if p.refs == nil {
		p.refs = newReferences(p.f, p.parts(), p.refers)
	}
	return p.refs.checkRange(s)
}

// parts returns the address ranges for which checkUnreferenced may be called.
func (p *Program) parts() []elffile.Span {
	f := p.f
	var parts []elffile.Span
	add := func(addr, size uint64) { parts = append(parts, span(addr, addr+size)) }
	if h := p.head; h != nil {
		add(h.Vaddr+(p.oldTable().End-h.Off), newHeaders*elffile.ProgSize)
	}
	located := make(map[uint64]bool)
	for _, t := range p.tags {
		located[t.value] = t.movable
	}
	for _, s := range elffile.Each(f.Sections) {
		if s.Alloc() && s.HasBytes() && s.Size > 0 &&
			(elf.SectionType(s.Type) == elf.SHT_NOTE || located[s.Addr] || p.isInterp(sectionSpan(s))) {
			add(s.Addr, s.Size)
		}
	}
	for _, h := range elffile.Each(f.Progs) {
		switch elf.ProgType(h.Type) {
		case elf.PT_NOTE, elf.PT_INTERP, elf.PT_GNU_PROPERTY:
			add(h.Vaddr, h.Filesz)
		}
	}
	return parts
}

// cut sets the cuts to the starts and ends of the parts.
func (r *references) cut(parts []elffile.Span) {
	for _, s := range parts {
		if s.Begin < s.End {
			r.cuts = append(r.cuts, s.Begin, s.End)
		}
	}
	slices.Sort(r.cuts)
	r.cuts = slices.Compact(r.cuts)
	r.hit = make([]bool, len(r.cuts))
	r.begin, r.end = r.code.Begin, r.code.End
	if n := len(r.cuts); n > 0 {
		r.begin, r.end = min(r.begin, r.cuts[0]), max(r.end, r.cuts[n-1])
	}
}

// newReferences finds the references to the given parts of f. It also calls refers for each reference to the code of f.
func newReferences(f *elffile.File, parts []elffile.Span, refers func(first, last uint64)) *references {
	r := &references{code: codeOf(f), refers: refers}
	r.cut(parts)
	r.err = r.scan(f)
	return r
}

// scan scans the symbols and relocations of f.
func (r *references) scan(f *elffile.File) error {
	s := scan{
		references: r, f: f, arch: arch.Of(elf.Machine(f.Machine)),
		words: elffile.Window{Cost: scanCost}, // most relocations are sorted
	}
	tables, err := s.findTables()
	if err != nil {
		return err
	}
	if err := s.allSymbols(); err != nil {
		return err
	}
	for _, t := range tables {
		if err := s.markTable(&t); err != nil {
			return err
		}
	}
	return nil
}

// A scan finds references.
type scan struct {
	*references
	f       *elffile.File
	arch    *arch.Arch
	emitted bool // the linker kept relocations of sections (--emit-relocs)
	// The values of the symbols in SHT_DYNSYM, and in SHT_SYMTAB if relocations were kept; noValue if a symbol is not
	// an address in the file.
	dynsyms, symbols []uint64
	words            elffile.Window
	names            int // number of symbol names read
}

// noValue is the value of a symbol that is not an address in the file.
const noValue = math.MaxUint64

// errBare is the error for dynamic symbols in a file without section headers: only hash tables tell how many symbols
// there are.
var errBare = errors.New("without section headers, the symbols are unknown")

// allSymbols marks the parts that contain the address of a symbol, or that end at such an address.
func (s *scan) allSymbols() error {
	if len(s.f.Sections) == 0 && s.f.Prog(elf.PT_DYNAMIC) != nil {
		return errBare
	}
	var err error
	if s.dynsyms, err = s.symbolTables(elf.SHT_DYNSYM, true); err == nil {
		s.symbols, err = s.symbolTables(elf.SHT_SYMTAB, s.emitted)
	}
	return err
}

// symbolTables is like allSymbols, but for tables of a single type. If needed is set, it returns the values of the
// symbols in the first table, because relocations refer to them.
func (s *scan) symbolTables(t elf.SectionType, needed bool) ([]uint64, error) {
	var first *elffile.Section
	var values []uint64
	err := s.f.Symbols(t, func(table *elffile.Section, sym elffile.Symbol) {
		if first == nil {
			if first = table; needed {
				values = make([]uint64, 0, table.Size/elffile.SymSize)
			}
		}
		v := s.value(&sym)
		if needed && table == first {
			values = append(values, v)
		}
		if v == noValue || elf.SymType(sym.Info&0xf) == elf.STT_SECTION {
			return
		}
		// A symbol at the end of a section does not belong to the next section.
		if o := &s.f.Sections[sym.Section]; sym.Section > 0 && o.Size > 0 && v == o.Addr+o.Size {
			v--
		}
		s.markCode(v, v)
		if i := s.cutAt(v); i >= 0 && i+1 < len(s.cuts) && !s.hit[i] && !s.harmless(table, &sym) {
			s.hit[i] = true
		}
	})
	return values, err
}

// value returns the value of a symbol if it is an address in the file, or noValue.
func (s *scan) value(sym *elffile.Symbol) uint64 {
	switch elf.SymType(sym.Info & 0xf) {
	case elf.STT_TLS, elf.STT_FILE:
		return noValue
	case elf.STT_OBJECT: // clang's coverage records are not loaded
		if i := sym.Section; i > 0 && !s.f.Sections[i].Alloc() {
			return noValue
		}
	}
	// Absolute values are numbers, which can be addresses only in a file with fixed addresses.
	fixed := elf.SectionIndex(sym.Shndx) == elf.SHN_ABS && elf.Type(s.f.Type) == elf.ET_EXEC
	if sym.Section == 0 && !fixed {
		return noValue
	}
	return sym.Value
}

// harmless reports whether no code uses a symbol: AArch64's mapping symbols ($x, $d), and __abi_tag, which glibc's
// start files define for the ABI note.
func (s *scan) harmless(table *elffile.Section, sym *elffile.Symbol) bool {
	const most = 1 << 16 // limit on the number of names read; usually, there are one or two
	if s.names++; elf.SymBind(sym.Info>>4) != elf.STB_LOCAL || s.names > most {
		return false
	}
	name := s.f.SymbolName(table, sym.Name)
	return name == "__abi_tag" || elf.SymType(sym.Info&0xf) == elf.STT_NOTYPE && strings.HasPrefix(name, "$")
}

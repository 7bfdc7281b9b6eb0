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

// references are the addresses that symbols and relocations refer to. A part of the file that has one cannot move,
// because code that refers to it is not rewritten. Movable sections, notes and the bytes after the program headers are
// such parts.
type references struct {
	cuts []uint64 // addresses where parts begin or end, sorted
	hit  []bool   // something refers to an address from this cut to the next one
	err  error    // of the scan

	begin, end uint64                   // of the code and all parts
	code       elffile.Span             // in which references are to code
	refers     func(first, last uint64) // is called for these, or nil
}

// to returns an error if something may refer to the addresses.
func (r *references) to(s elffile.Span) error {
	if r.err != nil {
		return fmt.Errorf("it is not known what refers to it: %w", r.err)
	}
	for i := max(r.at(s.Begin), 0); i < len(r.cuts) && r.cuts[i] < s.End; i++ {
		if r.hit[i] {
			return errReferred
		}
	}
	return nil
}

var errReferred = errors.New("a symbol or a relocation refers to it, and so may code")

// at returns the index of the part that an address is in, or -1 before the first one.
func (r *references) at(addr uint64) int {
	return sort.Search(len(r.cuts), func(i int) bool { return r.cuts[i] > addr }) - 1
}

// mark notes a reference to one of the addresses from first to last. Most are to data.
func (r *references) mark(first, last uint64) {
	if last >= r.begin && first < r.end {
		r.markPart(first, last)
	}
}

// markPart is mark for addresses that may be in code or in a part.
func (r *references) markPart(first, last uint64) {
	r.markCode(first, last)
	if n := len(r.cuts); n == 0 || last < r.cuts[0] || first >= r.cuts[n-1] {
		return
	}
	for i := max(r.at(first), 0); i < len(r.cuts) && r.cuts[i] <= last; i++ {
		r.hit[i] = true
	}
}

// refersTo returns an error if something may refer to the addresses of the old file, which is scanned once.
func (p *program) refersTo(s elffile.Span) error {
	if p.refs == nil {
		p.refs = newReferences(p.f, p.parts(), p.refers)
	}
	return p.refs.to(s)
}

// parts returns the address ranges that refersTo is asked for.
func (p *program) parts() []elffile.Span {
	f := p.f
	var parts []elffile.Span
	add := func(addr, size uint64) { parts = append(parts, span(addr, addr+size)) }
	if h := p.head; h != nil {
		add(h.Vaddr+(p.oldTable().End-h.Off), newHeaders*elffile.ProgSize)
	}
	located := make(map[uint64]bool)
	for _, t := range p.tags {
		located[t.value] = t.movable || located[t.value]
	}
	for i := range f.Sections {
		s := &f.Sections[i]
		if s.Alloc() && s.HasBytes() && s.Size > 0 &&
			(elf.SectionType(s.Type) == elf.SHT_NOTE || located[s.Addr] || p.isInterp(sectionSpan(s))) {
			add(s.Addr, s.Size)
		}
	}
	for i := range f.Progs {
		h := &f.Progs[i]
		switch elf.ProgType(h.Type) {
		case elf.PT_NOTE, elf.PT_INTERP, elf.PT_GNU_PROPERTY:
			add(h.Vaddr, h.Filesz)
		}
	}
	return parts
}

// cut makes parts of ranges.
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

// newReferences finds the references to the parts of f, and calls refers for those to its code.
func newReferences(f *elffile.File, parts []elffile.Span, refers func(first, last uint64)) *references {
	r := &references{code: codeOf(f), refers: refers}
	r.cut(parts)
	r.err = r.scan(f)
	return r
}

// scan looks through the symbols and relocations of f.
func (r *references) scan(f *elffile.File) error {
	s := scan{references: r, f: f, arch: arch.Of(elf.Machine(f.Machine))}
	tables, err := s.tables()
	if err != nil {
		return err
	}
	if err := s.allSymbols(); err != nil {
		return err
	}
	for _, t := range tables {
		if err := s.table(&t); err != nil {
			return err
		}
	}
	return nil
}

// A scan looks for references.
type scan struct {
	*references
	f       *elffile.File
	arch    *arch.Arch
	emitted bool // a linker emitted relocations of sections (--emit-relocs)
	// The values of the symbols of SHT_DYNSYM, and of SHT_SYMTAB if relocations were emitted; noValue for those that
	// are no addresses in the file.
	dynsyms, symbols []uint64
	nearby           []byte // the bytes from file offset nearAt on, as far as they were read
	nearAt           uint64
	names            int // of symbols that were read
}

// noValue is the value of a symbol that is no address in the file.
const noValue = math.MaxUint64

// errBare is the error for dynamic symbols without section headers: only hash tables tell their number.
var errBare = errors.New("without section headers, the symbols are not known")

// allSymbols marks what symbols are in, or at the end of.
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

// symbolTables is allSymbols for the tables of one type. If values are needed, it returns those of the symbols of the
// first table, which relocations are with.
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
		// What is at the end of a section is not in the next one.
		if o := &s.f.Sections[sym.Section]; sym.Section > 0 && o.Size > 0 && v == o.Addr+o.Size {
			v--
		}
		s.markCode(v, v)
		if i := s.at(v); i >= 0 && i+1 < len(s.cuts) && !s.hit[i] && !s.harmless(table, &sym) {
			s.hit[i] = true
		}
	})
	return values, err
}

// value returns the value of a symbol if that is an address in the file, or noValue.
func (s *scan) value(sym *elffile.Symbol) uint64 {
	switch elf.SymType(sym.Info & 0xf) {
	case elf.STT_TLS, elf.STT_FILE:
		return noValue
	case elf.STT_OBJECT: // clang's records of coverage are in no segment
		if i := int(sym.Section); i > 0 && i < len(s.f.Sections) && !s.f.Sections[i].Alloc() {
			return noValue
		}
	}
	// Absolute values are numbers. They can be addresses only where these are fixed.
	fixed := elf.SectionIndex(sym.Shndx) == elf.SHN_ABS && elf.Type(s.f.Type) == elf.ET_EXEC
	if sym.Section == 0 && !fixed {
		return noValue
	}
	return sym.Value
}

// harmless reports whether no code uses a symbol: assemblers for AArch64 tell data from code by some, and glibc's start
// files have one for the ABI note.
func (s *scan) harmless(table *elffile.Section, sym *elffile.Symbol) bool {
	const most = 1 << 16 // names; one or two in practice
	if s.names++; elf.SymBind(sym.Info>>4) != elf.STB_LOCAL || s.names > most {
		return false
	}
	name := s.f.SymbolName(table, sym.Name)
	return name == "__abi_tag" || elf.SymType(sym.Info&0xf) == elf.STT_NOTYPE && strings.HasPrefix(name, "$")
}

package report

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"sort"
	"strings"

	"github.com/ianlancetaylor/demangle"
	"github.com/therootcompany/xz"

	"cfi2sframe/cfi"
	"cfi2sframe/internal/elffile"
	"cfi2sframe/translate"
)

// A funcName is a function symbol.
type funcName struct {
	name  string
	start uint64
	size  uint64
}

// What is spent on names at most: symbols of hostile files cover everything, and
// have names that end nowhere.
const (
	maxNameSteps = 1 << 26 // pairs of a symbol and a gap
	maxNameBytes = 16 << 20
	maxMini      = 64 << 20 // bytes of .gnu_debugdata, decompressed
	maxDict      = 64 << 20 // of its dictionary
)

// A place is where the name of a symbol is.
type place struct {
	file  *elffile.File
	table *elffile.Section
	name  uint32
}

// symbolFiles returns the files whose symbols name functions: the file, what it holds in
// .gnu_debugdata, and its debug file if there is one.
func symbolFiles(f, debug *elffile.File) []*elffile.File {
	files := []*elffile.File{f}
	if mini, err := miniDebug(f); err == nil && mini != nil {
		files = append(files, mini) // a damaged one costs names, not the report
	}
	if debug != nil {
		files = append(files, debug)
	}
	return files
}

// miniDebug returns the ELF file in .gnu_debugdata, which has the symbols that are not
// dynamic (GDB manual, "Debugging information in a special section").
func miniDebug(f *elffile.File) (*elffile.File, error) {
	s := f.Section(".gnu_debugdata")
	if s == nil || !s.HasBytes() {
		return nil, nil
	}
	b, err := f.ReadSection(s)
	if err != nil {
		return nil, err
	}
	r, err := xz.NewReader(bytes.NewReader(b), maxDict)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(r, maxMini+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxMini {
		return nil, fmt.Errorf(".gnu_debugdata has more than %d bytes when decompressed", maxMini)
	}
	return elffile.New(bytes.NewReader(data), int64(len(data)))
}

// functionSymbols calls fn for every symbol that can be a function's: of a function, or without a
// type, as labels of hand-written code are, and in a section of code.
func functionSymbols(files []*elffile.File, fn func(place, elffile.Symbol)) {
	for _, f := range files {
		for _, t := range []elf.SectionType{elf.SHT_SYMTAB, elf.SHT_DYNSYM} {
			// A damaged symbol table costs names, not the report.
			_ = f.Symbols(t, func(table *elffile.Section, s elffile.Symbol) {
				if (isFunction(s) || elf.SymType(s.Info&0xf) == elf.STT_NOTYPE) && s.Name != 0 &&
					s.Section != 0 && f.Sections[s.Section].Flags&uint64(elf.SHF_EXECINSTR) != 0 {
					fn(place{f, table, s.Name}, s)
				}
			})
		}
	}
}

// isFunction reports whether the symbol has the type of a function.
func isFunction(s elffile.Symbol) bool {
	t := elf.SymType(s.Info & 0xf)
	return t == elf.STT_FUNC || t == elf.STT_GNU_IFUNC
}

// A rank says how well a symbol names the function that a gap is in. A function that encloses the
// gap's first byte does so best, and any function or label there better than none.
type rank uint8

const (
	unrelated  rank = iota
	labelLater      // behind the FDE's start, where signal trampolines begin: unwinders look up the pc before a return address
	labelAtGap      // where the gap begins
	functionLater
	labelAtStart // where the FDE begins
	labelAround
	functionAtGap // without a size, or it would be around
	functionAtStart
	functionAround
)

// rankOf returns the rank for a gap of a symbol that can be a function's.
func rankOf(s *elffile.Symbol, function bool, g *translate.Gap) rank {
	label, ranked := unrelated, unrelated
	switch fn := g.Function; {
	case s.Value <= g.Begin && g.Begin-s.Value < s.Size:
		label, ranked = labelAround, functionAround
	case s.Value == fn.Begin:
		label, ranked = labelAtStart, functionAtStart
	case s.Value == g.Begin:
		label, ranked = labelAtGap, functionAtGap
	case s.Value > fn.Begin && s.Value < fn.End:
		label, ranked = labelLater, functionLater
	}
	if function {
		return ranked
	}
	return label
}

// A nameReader reads the names of symbols.
type nameReader struct {
	known map[place]string
	room  int
}

func newNameReader() *nameReader { return &nameReader{make(map[place]string), maxNameBytes} }

// read returns a name, or "" if there is none or too much was read before.
func (n *nameReader) read(p place) string {
	if p.table == nil {
		return ""
	}
	name, ok := n.known[p]
	if !ok && n.room > 0 {
		name = p.file.SymbolName(p.table, p.name)
		n.known[p] = name
		n.room -= len(name)
	}
	return name
}

// mapping reports whether the name is that of a mapping symbol, which says that code or data begins
// here, and not what (ELF for the Arm 64-bit Architecture, "Mapping symbols").
func (n *nameReader) mapping(p place) bool {
	if elf.Machine(p.file.Machine) != elf.EM_AARCH64 {
		return false
	}
	kind, _, _ := strings.Cut(n.read(p), ".")
	return kind == "$x" || kind == "$d"
}

// functionNames finds the symbol of each gap's function. The gaps are sorted by
// address. Where there is none, the start is that of the CFI function.
func functionNames(files []*elffile.File, gaps []translate.Gap) []funcName {
	names := make([]funcName, len(gaps))
	places := make([]place, len(gaps))
	ranks := make([]rank, len(gaps))
	for i := range gaps {
		names[i].start = gaps[i].Function.Begin
	}
	r := newNameReader()
	steps := maxNameSteps
	functionSymbols(files, func(p place, s elffile.Symbol) {
		size, function := max(s.Size, 1), isFunction(s) // hand-written code often gives no size
		for i := sort.Search(len(gaps), func(i int) bool { return gaps[i].End > s.Value }); i < len(gaps); i++ {
			g := &gaps[i]
			if steps--; g.Function.Begin >= s.Value+size || steps < 0 {
				break // and so are the gaps that follow
			}
			rank, start := rankOf(&s, function, g), s.Value
			if rank == labelLater || rank == functionLater {
				start = g.Function.Begin
			}
			n := &names[i]
			if rank == unrelated || rank < ranks[i] || rank == ranks[i] && (start < n.start || start == n.start && s.Size <= n.size) {
				continue
			}
			if !function && r.mapping(p) {
				break
			}
			places[i], ranks[i], n.start, n.size = p, rank, start, s.Size
		}
	})
	for i, p := range places {
		names[i].name = r.read(p)
	}
	return names
}

// A Range is a range of addresses, End excluded.
type Range struct{ Begin, End uint64 }

// A Location says where an address is.
type Location struct {
	Function string // demangled; the section, if no symbol names the function; or ""
	Offset   uint64 // in there, in bytes
}

// Locate names the functions that ranges of code, sorted by address, begin in. The debug
// file may be nil.
func Locate(f, debug *elffile.File, ranges []Range) []Location {
	gaps := make([]translate.Gap, len(ranges))
	for i, r := range ranges {
		gaps[i] = translate.Gap{Function: &cfi.Function{Begin: r.Begin, End: r.End}, Begin: r.Begin, End: r.End}
	}
	out := make([]Location, len(ranges))
	for i, n := range functionNames(symbolFiles(f, debug), gaps) {
		if n.name == "" {
			out[i] = inCode(f, ranges[i].Begin)
			continue
		}
		out[i].Function, _ = demangled(n.name)
		out[i].Offset = ranges[i].Begin - n.start
	}
	return out
}

// inCode returns the section of code that an address is in.
func inCode(f *elffile.File, addr uint64) Location {
	for _, s := range codeSections(f) {
		if addr >= s.Begin && addr-s.Begin < s.Size {
			return Location{s.Name, addr - s.Begin}
		}
	}
	return Location{"", addr}
}

// maxMangled is how long a name may be to be demangled, in bytes: the time that takes
// grows faster than the length.
const maxMangled = 4096

// demangled returns a symbol's name as the source has it, for C++ and Rust, and the mangled
// name; that is "" for others, whose name stays.
func demangled(symbol string) (name, mangled string) {
	if len(symbol) > maxMangled {
		return symbol, ""
	}
	if name = demangle.Filter(symbol, demangle.MaxLength(14)); name == symbol {
		return name, ""
	}
	return name, symbol
}

package report

import (
	"bytes"
	"debug/elf"
	"sort"
	"strings"

	"cfi2sframe/arch"
	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/unxz"
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
	maxNameBytes = 8 << 20
	maxMini      = 64 << 20 // bytes of .gnu_debugdata, decompressed
	maxDict      = 64 << 20 // of its dictionaries
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
	r, err := unxz.NewReader(b, maxDict)
	if err != nil {
		return nil, err
	}
	data, err := f.Unpack("section .gnu_debugdata", s.Off, r, maxMini)
	if err != nil {
		return nil, err
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
	unnamed    rank = iota
	labelLater      // after the FDE's start, where signal trampolines begin: unwinders look up the pc before a return address
	labelAtGap      // where the gap begins
	functionLater
	labelAtStart // where the FDE begins
	labelAround
	functionAtGap // without a size, or it would be around
	functionAtStart
	functionAround
)

// A candidate is the symbol that names something best so far.
type candidate struct {
	funcName
	place
	rank rank
}

// better reports whether a symbol that begins at start names it better: by its rank, and of those
// with the same one if it begins later or is larger.
func (c *candidate) better(rank rank, start, size uint64) bool {
	return rank > c.rank || rank == c.rank && (start > c.start || start == c.start && size > c.size)
}

// A nameReader reads the names of symbols.
type nameReader struct {
	known   map[place]string
	room    int
	omitted int // names that were not read for want of room
}

func newNameReader() *nameReader {
	return &nameReader{known: make(map[place]string), room: maxNameBytes}
}

// read returns a name, or "" if there is none or too much was read before.
func (n *nameReader) read(p place) string {
	if p.table == nil {
		return ""
	}
	name, ok := n.known[p]
	if !ok && n.room <= 0 {
		n.omitted++
	} else if !ok {
		name = p.file.SymbolName(p.table, p.name)
		n.known[p] = name
		n.room -= len(name)
	}
	return name
}

// mapping reports whether the name is that of a mapping symbol, which says that code or data begins
// here, and not what (ELF for the Arm 64-bit Architecture, "Mapping symbols").
func (n *nameReader) mapping(p place) bool {
	if a := arch.Of(elf.Machine(p.file.Machine)); a == nil || !a.MappingSymbols {
		return false
	}
	kind, _, _ := strings.Cut(n.read(p), ".")
	return kind == "$x" || kind == "$d"
}

// functionNames finds the symbol of each gap's function. The gaps are sorted by
// address. Where there is none, the start is that of the CFI function. What could not be found is
// noted in words.
func functionNames(files []*elffile.File, gaps []translate.Gap, words *namer) []funcName {
	byGap := make([]candidate, len(gaps))       // by symbols around a gap's start
	byFDE := make([]candidate, 0, len(gaps))    // by symbols at the start of an FDE, or after that
	fdes := make([]*cfi.Function, 0, len(gaps)) // of the latter
	of := make([]int, len(gaps))                // index of the gap's FDE
	for i := range gaps {
		if fn := gaps[i].Function; i == 0 || fn != gaps[i-1].Function {
			fdes, byFDE = append(fdes, fn), append(byFDE, candidate{})
		}
		of[i] = len(fdes) - 1
	}
	r := newNameReader()
	steps := maxNameSteps
	functionSymbols(files, func(p place, s elffile.Symbol) {
		around, atGap, atStart, later := functionAround, functionAtGap, functionAtStart, functionLater
		if !isFunction(s) {
			around, atGap, atStart, later = labelAround, labelAtGap, labelAtStart, labelLater
		}
		offer := func(c *candidate, rank rank, start uint64) {
			if steps--; c.better(rank, start, s.Size) && (isFunction(s) || !r.mapping(p)) {
				c.rank, c.place, c.start, c.size = rank, p, start, s.Size
			}
		}
		// Gaps that begin in it, or with a symbol without a size where it does.
		i := sort.Search(len(gaps), func(i int) bool { return gaps[i].Begin >= s.Value })
		for ; i < len(gaps) && gaps[i].Begin-s.Value < max(s.Size, 1) && steps > 0; i++ {
			if s.Size > 0 {
				offer(&byGap[i], around, s.Value)
			} else {
				offer(&byGap[i], atGap, s.Value)
			}
		}
		// FDEs that it begins in.
		i = sort.Search(len(fdes), func(i int) bool { return fdes[i].End > s.Value })
		for ; i < len(fdes) && fdes[i].Begin <= s.Value && steps > 0; i++ {
			if s.Value == fdes[i].Begin {
				offer(&byFDE[i], atStart, fdes[i].Begin)
			} else {
				offer(&byFDE[i], later, fdes[i].Begin)
			}
		}
	})
	names := make([]funcName, len(gaps))
	for i := range gaps {
		best := &byGap[i]
		if c := &byFDE[of[i]]; c.rank >= best.rank {
			best = c
		}
		if best.rank == unnamed {
			best.start = gaps[i].Function.Begin
		}
		names[i] = best.funcName
		names[i].name = r.read(best.place)
	}
	words.omitted += r.omitted
	words.tangled = words.tangled || steps <= 0
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
	names, code := newNamer(NewRoom()), codeSections(f)
	for i, n := range functionNames(symbolFiles(f, debug), gaps, names) {
		name, _ := names.names(n.name)
		if name == "" {
			out[i] = inCode(code, ranges[i].Begin)
			continue
		}
		out[i] = Location{name, ranges[i].Begin - n.start}
	}
	return out
}

// A Place says for people where a function is.
type Place struct {
	Function string // as the source has it, or "" if no symbol names it
	Symbol   string // the mangled name, if it is another
	Section  string // in a relocatable object, what Begin counts from
	Begin    uint64 // address
}

// Places finds the functions that gaps, by address, are in, as the list of gaps names them.
func Places(f *elffile.File, gaps []translate.Gap) []Place {
	out := make([]Place, len(gaps))
	names := newNamer(NewRoom())
	for i, n := range functionNames(symbolFiles(f, nil), gaps, names) {
		p := &out[i]
		p.Function, p.Symbol = names.names(n.name)
		section, base := sectionOf(f, n.start)
		p.Section, p.Begin = section, n.start-base
	}
	return out
}

// inCode returns the section that an address is in, of the sections of code by address.
func inCode(code []UncoveredSection, addr uint64) Location {
	i := sort.Search(len(code), func(i int) bool { return code[i].Begin > addr }) - 1
	if i >= 0 && addr-code[i].Begin < code[i].Size {
		return Location{code[i].Name, addr - code[i].Begin}
	}
	return Location{"", addr}
}

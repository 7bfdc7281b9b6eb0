package report

import (
	"bytes"
	"debug/elf"
	"sort"

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
	maxNameBytes = 8 << 20
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
	data, err := f.Unpack("section .gnu_debugdata", s.Off, r, maxMini)
	if err != nil {
		return nil, err
	}
	return elffile.New(bytes.NewReader(data), int64(len(data)))
}

// functionSymbols calls fn for every symbol that can be a function's.
func functionSymbols(files []*elffile.File, fn func(place, elffile.Symbol)) {
	for _, f := range files {
		for _, t := range []elf.SectionType{elf.SHT_SYMTAB, elf.SHT_DYNSYM} {
			// A damaged symbol table costs names, not the report.
			_ = f.Symbols(t, func(table *elffile.Section, s elffile.Symbol) {
				switch elf.SymType(s.Info & 0xf) {
				case elf.STT_FUNC, elf.STT_GNU_IFUNC, elf.STT_NOTYPE:
				default:
					return
				}
				if s.Shndx != 0 && s.Name != 0 {
					fn(place{f, table, s.Name}, s)
				}
			})
		}
	}
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

// functionNames finds the symbol of each gap's function. The gaps are sorted by
// address. Where there is none, the start is that of the CFI function. What could not be found is
// noted in words.
func functionNames(files []*elffile.File, gaps []translate.Gap, words *namer) []funcName {
	names := make([]funcName, len(gaps))
	places := make([]place, len(gaps))
	for i := range gaps {
		names[i].start = gaps[i].Function.Begin
	}
	steps := maxNameSteps
	functionSymbols(files, func(p place, s elffile.Symbol) {
		size := max(s.Size, 1) // hand-written code often gives none
		for i := sort.Search(len(gaps), func(i int) bool { return gaps[i].End > s.Value }); i < len(gaps); i++ {
			g := &gaps[i]
			if steps--; g.Function.Begin >= s.Value+size || steps < 0 {
				break // and so are the gaps that follow
			}
			start := s.Value
			inside := g.Begin >= start && g.Begin-start < size || g.Function.Begin == start
			if !inside && places[i].table == nil && start > g.Function.Begin && start < g.Function.End {
				// Unwinders look up the pc before a return address, so the FDE of
				// a signal trampoline begins before the function.
				inside, start = true, g.Function.Begin
			}
			better := places[i].table == nil || start > names[i].start || start == names[i].start && s.Size > names[i].size
			if inside && better {
				places[i], names[i].start, names[i].size = p, start, s.Size
			}
		}
	})
	r := newNameReader()
	for i, p := range places {
		names[i].name = r.read(p)
	}
	words.omitted += r.omitted
	words.tangled = words.tangled || steps < 0
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

// inCode returns the section that an address is in, of the sections of code by address.
func inCode(code []UncoveredSection, addr uint64) Location {
	i := sort.Search(len(code), func(i int) bool { return code[i].Begin > addr }) - 1
	if i >= 0 && addr-code[i].Begin < code[i].Size {
		return Location{code[i].Name, addr - code[i].Begin}
	}
	return Location{"", addr}
}

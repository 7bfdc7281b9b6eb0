// Package coverage measures how much code a file has, finds code that no CFI describes, and names functions.
package coverage

import (
	"cmp"
	"debug/elf"
	"errors"
	"regexp"
	"slices"
	"sort"
	"strings"

	"github.com/ianlancetaylor/demangle"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/arch"
	"cfi2sframe/translate"
)

// Bounds for hostile files, with overlapping symbols and extremely long names.
const (
	maxNameSteps = 1 << 26  // pairs of a symbol and a gap to compare
	maxNameBytes = 8 << 20  // total bytes of the names in a list
	maxMangled   = 4096     // bytes of a name to demangle, which takes superlinear time
	maxLocated   = 16 << 20 // total bytes of the names that Locate returns
)

// A nameRef locates the name of a symbol in a file.
type nameRef struct {
	file  *elffile.File
	table *elffile.Section
	name  uint32
}

// symbolFiles returns the files whose symbols name functions: the file, and its debug file if it is not nil.
func symbolFiles(f, debug *elffile.File) []*elffile.File {
	if debug == nil {
		return []*elffile.File{f}
	}
	return []*elffile.File{f, debug}
}

// functionSymbols calls fn for every symbol that may name a function: a symbol of type STT_FUNC, or a label without a
// type in a section of code, as in handwritten assembly.
func functionSymbols(files []*elffile.File, fn func(nameRef, elffile.Symbol)) {
	for _, f := range files {
		for _, t := range []elf.SectionType{elf.SHT_SYMTAB, elf.SHT_DYNSYM} {
			// If the symbol table is damaged, the report lacks names.
			_ = f.Symbols(t, func(table *elffile.Section, s elffile.Symbol) {
				if (isFunction(s) || elf.SymType(s.Info&0xf) == elf.STT_NOTYPE) && s.Name != 0 &&
					s.Section != 0 && f.Sections[s.Section].Flags&uint64(elf.SHF_EXECINSTR) != 0 {
					fn(nameRef{f, table, s.Name}, s)
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

// Names reads and demangles the names of functions.
type Names struct {
	Omitted int  // names omitted because of the limits
	Tangled bool // names are missing because symbols overlap too much

	files  []*elffile.File
	limit  *int // remaining bytes of names
	known  map[nameRef]funcName
	unread int // remaining bytes of names to read for a list
}

// NewNames returns the names of the functions of a file. Names of up to limit bytes are returned, and subtracted from
// the limit. The debug file may be nil.
func NewNames(f, debug *elffile.File, limit *int) *Names {
	return &Names{files: symbolFiles(f, debug), limit: limit, known: make(map[nameRef]funcName)}
}

// A Function is a function that contains a gap.
type Function struct {
	Name   string // demangled, or "" if no symbol names it
	Symbol string // the mangled name, if different
	Begin  uint64 // address
}

// Of returns the function that contains each gap. If no symbol names the function, it begins with the FDE. The gaps
// must be sorted by address.
func (n *Names) Of(gaps []translate.Gap) []Function {
	functions := make([]Function, len(gaps))
	names, starts := functionNames(n.files, gaps, n)
	for i := range functions {
		functions[i] = Function{names[i].name, names[i].symbol, starts[i]}
	}
	return functions
}

// A funcName is the demangled name of a function, and its mangled name if that differs. If no symbol names the
// function, or a limit is exceeded, name and symbol are "".
type funcName struct{ name, symbol string }

// name returns the name of a symbol.
func (n *Names) name(p nameRef) funcName {
	if p.table == nil {
		return funcName{}
	}
	f, ok := n.known[p]
	if !ok && n.unread > 0 {
		f = demangledName(p.file.SymbolName(p.table, p.name))
		n.known[p] = f
		n.unread -= len(cmp.Or(f.symbol, f.name))
		ok = true
	}
	if !ok || f.name != "" && *n.limit <= 0 {
		n.Omitted++
		return funcName{}
	}
	*n.limit -= len(cmp.Or(f.symbol, f.name)) + len(f.name)
	return f
}

// demangledName returns the demangled name of a symbol.
func demangledName(symbol string) funcName {
	if len(symbol) <= maxMangled {
		if name := demangle.Filter(symbol, demangle.MaxLength(14)); name != symbol {
			return funcName{name, symbol}
		}
	}
	return funcName{name: symbol}
}

// isMapping reports whether the name is that of a mapping symbol, which marks the start of code or data (ELF for the
// Arm 64-bit Architecture, "Mapping symbols").
func (p nameRef) isMapping() bool {
	if a := arch.Of(elf.Machine(p.file.Machine)); a == nil || !a.MappingSymbols {
		return false
	}
	kind, _, _ := strings.Cut(p.shortName(), ".")
	return kind == "$x" || kind == "$d"
}

// shortName truncates long names.
func (p nameRef) shortName() string {
	if int(p.table.Link) >= len(p.file.Sections) {
		return ""
	}
	s := &p.file.Sections[p.table.Link]
	if !s.HasBytes() || uint64(p.name) >= s.Size {
		return ""
	}
	b := make([]byte, min(32, s.Size-uint64(p.name)))
	if p.file.ReadInto("section "+s.Name, b, s.Off+uint64(p.name)) != nil {
		return ""
	}
	text, _, _ := strings.Cut(string(b), "\x00")
	return text
}

// A candidate is a symbol that may name the function of a gap.
type candidate struct {
	nameRef
	rank        int    // how well the symbol names the function, or 0 if not at all
	start, size uint64 // of the function
}

// candidateFor ranks a symbol as the name of the function that contains a gap. Functions rank above labels, with
// one exception: a function that starts inside the FDE, and neither contains the gap nor starts there, ranks below
// labels that contain the gap or start where the FDE starts. The FDE of a signal trampoline
// starts before its symbol, because unwinders look up the pc before a return address.
func candidateFor(s elffile.Symbol, g *translate.Gap) candidate {
	fde := g.Function
	c := candidate{start: s.Value, size: s.Size}
	var label, function int
	switch {
	case s.Value <= g.Begin && g.Begin-s.Value < s.Size:
		label, function = 5, 8
	case s.Value == fde.Begin:
		label, function = 4, 7
	case s.Value == g.Begin && s.Size == 0:
		label, function = 2, 6
	case s.Value > fde.Begin && s.Value < fde.End:
		label, function = 1, 3
		c.start = fde.Begin
	}
	c.rank = label
	if isFunction(s) {
		c.rank = function
	}
	return c
}

// compare orders candidates by rank, then start, then size.
func (c *candidate) compare(d *candidate) int {
	return cmp.Or(cmp.Compare(c.rank, d.rank), cmp.Compare(c.start, d.start), cmp.Compare(c.size, d.size))
}

// functionNames returns the name and start of each gap's function. If no symbol names the function, the start is that
// of the FDE. The gaps must be sorted by address.
func functionNames(files []*elffile.File, gaps []translate.Gap, names *Names) ([]funcName, []uint64) {
	best := make([]candidate, len(gaps))
	steps := maxNameSteps
	functionSymbols(files, func(p nameRef, s elffile.Symbol) {
		// Visit the gaps of the FDE that the symbol starts in, and the gaps that it encloses.
		i := sort.Search(len(gaps), func(i int) bool { return gaps[i].Function.End > s.Value })
		for ; i < len(gaps) && steps > 0; i++ {
			g := &gaps[i]
			if g.Function.Begin > s.Value && g.Begin-s.Value >= s.Size {
				break
			}
			steps--
			c := candidateFor(s, g)
			if c.nameRef = p; c.compare(&best[i]) > 0 && (isFunction(s) || !p.isMapping()) {
				best[i] = c
			}
		}
	})
	names.Tangled = names.Tangled || steps <= 0
	names.unread = maxNameBytes
	out, starts := make([]funcName, len(gaps)), make([]uint64, len(gaps))
	for i, c := range best {
		if c.rank == 0 {
			c.start = gaps[i].Function.Begin
		}
		out[i], starts[i] = names.name(c.nameRef), c.start
	}
	return out, starts
}

// A Location is an address relative to its function or section.
type Location struct {
	Function string // demangled; the section, if no symbol names the function; or ""
	Offset   uint64 // from the function's start
}

// Locate returns the location of the start of each range of code. The ranges must be sorted by address; debug may be
// nil.
func Locate(f, debug *elffile.File, ranges []elffile.Span) []Location {
	gaps := make([]translate.Gap, len(ranges))
	for i, r := range ranges {
		gaps[i] = translate.Gap{Function: &cfi.Function{Begin: r.Begin, End: r.End}, Begin: r.Begin, End: r.End}
	}
	out := make([]Location, len(ranges))
	code := codeOf(f)
	limit := maxLocated
	for i, fn := range NewNames(f, debug, &limit).Of(gaps) {
		r := ranges[i]
		if out[i] = (Location{fn.Name, r.Begin - fn.Begin}); out[i].Function == "" {
			out[i] = locationIn(code, r.Begin)
		}
	}
	return out
}

// locationIn returns the location of an address relative to the range of code that contains it.
func locationIn(code []elffile.CodeRange, addr uint64) Location {
	i := sort.Search(len(code), func(i int) bool { return code[i].End > addr })
	if i < len(code) && code[i].Has(addr) {
		return Location{code[i].Name, addr - code[i].Begin}
	}
	return Location{"", addr}
}

// Bounds on the search for a function by name, in bytes. Demangling a byte takes much longer than reading it.
const (
	maxFound      = 1 << 30
	perName       = 256
	unterminated  = 64 << 10
	demangledByte = 256
	writtenByte   = 16
)

// Find returns the functions with the given name, which may be mangled, or demangled with or without parameters. Labels
// have no size. The debug file may be nil.
func Find(f, debug *elffile.File, name string) ([]elffile.Span, error) {
	var found []elffile.Span
	unread := maxFound
	path, _, _ := strings.Cut(name, "(")
	// Identifiers also occur in the mangled name, except perhaps those of template arguments.
	identifiers, arguments := regexp.MustCompile(`[A-Za-z_][A-Za-z_0-9]*`), regexp.MustCompile(`<.*>`)
	word := "" // part of the mangled name; "" for operators
	if words := identifiers.FindAllString(arguments.ReplaceAllString(path, ""), -1); words != nil &&
		!slices.Contains(words, "operator") {
		word = words[len(words)-1]
	}
	options := []demangle.Option{demangle.MaxLength(14)}
	if path == name {
		options = append(options, demangle.NoParams)
	}
	functionSymbols(symbolFiles(f, debug), func(p nameRef, s elffile.Symbol) {
		if unread <= 0 {
			return
		}
		symbol := p.file.SymbolName(p.table, p.name)
		unread -= len(symbol) + perName
		if symbol == "" {
			unread -= unterminated
		}
		same := symbol == name
		if !same && len(symbol) <= maxMangled && strings.Contains(symbol, word) &&
			(strings.HasPrefix(symbol, "_Z") || strings.HasPrefix(symbol, "_R")) {
			text := demangle.Filter(symbol, options...)
			unread -= demangledByte*len(symbol) + writtenByte*len(text)
			same = text == name
		}
		if same {
			found = append(found, elffile.Span{Begin: s.Value, End: s.Value + s.Size})
		}
	})
	if unread <= 0 && found == nil {
		return nil, errors.New("the symbol table has too many bytes of names to search; use an address")
	}
	slices.SortFunc(found, func(a, b elffile.Span) int {
		return cmp.Or(cmp.Compare(a.Begin, b.Begin), cmp.Compare(b.End, a.End))
	})
	return slices.CompactFunc(found, func(a, b elffile.Span) bool { return a.Begin == b.Begin }), nil
}

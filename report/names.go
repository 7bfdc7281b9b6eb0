package report

import (
	"bytes"
	"cmp"
	"debug/elf"
	"errors"
	"regexp"
	"slices"
	"sort"
	"strings"

	"github.com/ianlancetaylor/demangle"

	"github.com/mikelolasagasti/xz"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/arch"
	"cfi2sframe/translate"
)

// Bounds for hostile files, whose symbols cover everything and have names that end nowhere.
const (
	maxNameSteps = 1 << 26  // pairs of a symbol and a gap
	maxNameBytes = 8 << 20  // of a list
	maxMini      = 64 << 20 // bytes of .gnu_debugdata, decompressed
	maxXZ        = 64 << 20 // bytes of its dictionary
	maxMangled   = 4096     // bytes of a name that is demangled: the time grows faster than the length
)

// A place is where the name of a symbol is.
type place struct {
	file  *elffile.File
	table *elffile.Section
	name  uint32
}

// symbolFiles returns the files whose symbols name functions: the file, the file in its .gnu_debugdata, and its debug
// file if it is not nil.
func symbolFiles(f, debug *elffile.File) []*elffile.File {
	mini, err := miniDebug(f)
	if err != nil {
		mini = nil // which costs names, not the report
	}
	return slices.DeleteFunc([]*elffile.File{f, mini, debug}, func(f *elffile.File) bool { return f == nil })
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
	r, err := xz.NewReader(bytes.NewReader(b), maxXZ)
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

// A namer reads and demangles the names of symbols.
type namer struct {
	limits    *Limits
	texts     map[place]string
	demangled map[string]string
	unread    int  // bytes of names that may still be read for a list
	omitted   int  // names that the limits do not allow
	tangled   bool // symbols cover too many gaps; some were not looked at
}

func newNamer(limits *Limits) *namer {
	return &namer{limits: limits, texts: make(map[place]string), demangled: make(map[string]string)}
}

// read returns the name of a symbol, or "" if there is none or too much was read before.
func (n *namer) read(p place) string {
	if p.table == nil {
		return ""
	}
	text, ok := n.texts[p]
	if !ok && n.unread <= 0 {
		n.omitted++
	} else if !ok {
		text = p.file.SymbolName(p.table, p.name)
		n.texts[p] = text
		n.unread -= len(text)
	}
	return text
}

// names returns a symbol's name as the source has it. For C++ and Rust it also returns the mangled name, otherwise "".
// It returns "" twice if the limits do not allow the name.
func (n *namer) names(symbol string) (name, mangled string) {
	if n.limits.names <= 0 && symbol != "" {
		n.omitted++
		return "", ""
	}
	name, ok := n.demangled[symbol]
	if !ok {
		if name = symbol; len(symbol) <= maxMangled {
			name = demangle.Filter(symbol, demangle.MaxLength(14))
		}
		n.demangled[symbol] = name
	}
	n.limits.names -= len(symbol) + len(name)
	if name == symbol {
		return name, ""
	}
	return name, symbol
}

// notes returns which names are missing, for Coverage.Notes.
func (n *namer) notes() []string {
	var out []string
	if n.omitted > 0 {
		out = append(out, "names of "+plural(n.omitted, "function")+", because all names together are too long")
	}
	if n.tangled {
		out = append(out, "names of some functions, because symbols overlap too much")
	}
	return out
}

// mapping reports whether the name is that of a mapping symbol, which says that code or data begins
// here, and not what (ELF for the Arm 64-bit Architecture, "Mapping symbols").
func (n *namer) mapping(p place) bool {
	if a := arch.Of(elf.Machine(p.file.Machine)); a == nil || !a.MappingSymbols {
		return false
	}
	kind, _, _ := strings.Cut(n.read(p), ".")
	return kind == "$x" || kind == "$d"
}

// A relation says where a symbol is relative to a gap and its FDE, by the ranks of a label and of a function there.
type relation struct{ label, function int }

// The FDE of a signal trampoline begins before its symbol, as unwinders look up the pc before a return address.
var (
	afterStart = relation{1, 3} // after the FDE's start
	atGap      = relation{2, 6} // where the gap begins; with a size the symbol would be around
	atStart    = relation{4, 7} // where the FDE begins
	around     = relation{5, 8} // it encloses the gap's first byte
)

// A candidate is the best symbol so far that names a function.
type candidate struct {
	place
	rank        int // 0 if there is no symbol
	start, size uint64
}

// compare compares symbols by how well they name the function: by rank, then the one that begins later, then by size.
func (c *candidate) compare(d *candidate) int {
	return cmp.Or(cmp.Compare(c.rank, d.rank), cmp.Compare(c.start, d.start), cmp.Compare(c.size, d.size))
}

// A funcName is the name of a function, as namer.names returns it, and where it begins.
type funcName struct {
	name, symbol string
	start        uint64
}

// functionNames finds the symbol of each gap's function. The gaps are sorted by address. Without a symbol the name is
// "" and the start that of the FDE.
func functionNames(files []*elffile.File, gaps []translate.Gap, names *namer) []funcName {
	type fde struct {
		*cfi.Function
		best candidate // at its start, or after that
	}
	byGap := make([]candidate, len(gaps)) // around a gap's start
	fdes, fdeOf := make([]fde, 0, len(gaps)), make([]int, len(gaps))
	for i := range gaps {
		if fn := gaps[i].Function; i == 0 || fn != gaps[i-1].Function {
			fdes = append(fdes, fde{Function: fn})
		}
		fdeOf[i] = len(fdes) - 1
	}
	names.unread = maxNameBytes
	steps := maxNameSteps
	functionSymbols(files, func(p place, s elffile.Symbol) {
		offer := func(c *candidate, where relation, start uint64) {
			steps--
			rank := where.label
			if isFunction(s) {
				rank = where.function
			}
			d := candidate{p, rank, start, s.Size}
			if d.compare(c) > 0 && (isFunction(s) || !names.mapping(p)) {
				*c = d
			}
		}
		// Gaps that begin in it, or with a symbol without a size where it does.
		i := sort.Search(len(gaps), func(i int) bool { return gaps[i].Begin >= s.Value })
		where := around
		if s.Size == 0 {
			where = atGap
		}
		for ; i < len(gaps) && gaps[i].Begin-s.Value < max(s.Size, 1) && steps > 0; i++ {
			offer(&byGap[i], where, s.Value)
		}
		// FDEs that it begins in.
		i = sort.Search(len(fdes), func(i int) bool { return fdes[i].End > s.Value })
		for ; i < len(fdes) && fdes[i].Begin <= s.Value && steps > 0; i++ {
			if where = afterStart; s.Value == fdes[i].Begin {
				where = atStart
			}
			offer(&fdes[i].best, where, fdes[i].Begin)
		}
	})
	out := make([]funcName, len(gaps))
	for i := range gaps {
		best := byGap[i]
		if c := fdes[fdeOf[i]].best; c.rank >= best.rank {
			best = c
		}
		if best.rank == 0 {
			best.start = gaps[i].Function.Begin
		}
		out[i].start = best.start
		out[i].name, out[i].symbol = names.names(names.read(best.place))
	}
	names.tangled = names.tangled || steps <= 0
	return out
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
	code := codeSections(f)
	for i, n := range functionNames(symbolFiles(f, debug), gaps, newNamer(NewLimits())) {
		if out[i] = (Location{n.name, ranges[i].Begin - n.start}); n.name == "" {
			out[i] = inCode(code, ranges[i].Begin)
		}
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

// Bounds on the search for a function by its name, in bytes. In time, a byte that is demangled counts for many that are
// read.
const (
	maxFound      = 1 << 30
	perName       = 256
	unterminated  = 64 << 10
	demangledByte = 256
	writtenByte   = 16
)

// The identifiers of a function are also in its mangled name, but those of template arguments may not be.
var (
	identifiers = regexp.MustCompile(`[A-Za-z_][A-Za-z_0-9]*`)
	arguments   = regexp.MustCompile(`<.*>`)
)

// Find returns the addresses of the functions of a name, mangled or as the source has it, with or without parameters.
// The debug file may be nil.
func Find(f, debug *elffile.File, name string) ([]uint64, error) {
	var found []uint64
	unread := maxFound
	path, _, _ := strings.Cut(name, "(")
	word := "" // of the mangled name; of operators, none is known
	if words := identifiers.FindAllString(arguments.ReplaceAllString(path, ""), -1); words != nil &&
		!slices.Contains(words, "operator") {
		word = words[len(words)-1]
	}
	options := []demangle.Option{demangle.MaxLength(14)}
	if path == name {
		options = append(options, demangle.NoParams)
	}
	functionSymbols(symbolFiles(f, debug), func(p place, s elffile.Symbol) {
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
			found = append(found, s.Value)
		}
	})
	if unread <= 0 && found == nil {
		return nil, errors.New("the names of all symbols are too long to search; use an address")
	}
	slices.Sort(found)
	return slices.Compact(found), nil
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
	for i, n := range functionNames(symbolFiles(f, nil), gaps, newNamer(NewLimits())) {
		section, begin := sectionRelative(f, n.start)
		out[i] = Place{n.name, n.symbol, section, begin}
	}
	return out
}

package survey

import (
	"bufio"
	"bytes"
	"debug/elf"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"cfi2sframe/elffile"
)

// originOf returns the languages that a file was written in, and its compilers, such as "gcc 14", both sorted, as far
// as it tells. Damaged data tells nothing. C and assembler are listed only alone.
//
// Distributions strip .comment, so that the compilers of most files are unknown. The start files of the C library and
// of the compiler have a .comment: GCC is named beside clang or rustc in most files that have all three.
func originOf(f *elffile.File) (languages, compilers []string) {
	t := newTraces(f)
	t.clues()
	t.names()
	t.sourceFiles()
	// C leaves no marks: it is what made the file if nothing else is known to have.
	switch {
	case len(t.languages) > 0:
	case t.sources.c:
		t.languages["C"] = true
	case t.sources.assembler:
		t.languages["assembler"] = true
	case t.named || len(t.compilers) > 0:
		t.languages["C"] = true
	}
	versions := slices.Sorted(maps.Keys(t.compilers))
	maps.DeleteFunc(t.compilers, func(name string, _ bool) bool { // without a version beside one with it
		return slices.ContainsFunc(versions, func(v string) bool { return strings.HasPrefix(v, name+" ") })
	})
	return slices.Sorted(maps.Keys(t.languages)), slices.Sorted(maps.Keys(t.compilers))
}

// traces are what was found in a file.
type traces struct {
	file      *elffile.File
	unread    uint64 // bytes that may still be read: sections of a hostile file may overlap
	languages map[string]bool
	compilers map[string]bool
	named     bool // a symbol has a name
	sources   struct{ c, assembler bool }
}

func newTraces(f *elffile.File) *traces {
	return &traces{file: f, unread: f.Size, languages: make(map[string]bool), compilers: make(map[string]bool)}
}

// A clue is a text that compilers or libraries leave in a section. Its group is the version by which people know the
// compiler: of LLVM, and of GCC since 5, the first number.
type clue struct {
	section  string
	pattern  *regexp.Regexp
	compiler string
	language string // if it is for that only
}

var clues = []clue{
	// Vendors put their name before clang's. The parenthesis of GCC names its vendor, and may contain others.
	{".comment", regexp.MustCompile(`(?:^|\x00)GCC: \([^\x00]*?\) ([5-9]|[1-9]\d|\d\.\d+)`), "gcc", ""},
	{".comment", regexp.MustCompile(`(?:^|\x00)rustc version (\d+\.\d+)`), "rustc", "Rust"},
	{".comment", regexp.MustCompile(`(?:^|\W)clang version (\d+)\.\d`), "clang", ""},
	{".comment", regexp.MustCompile(`(?:^|\W)flang(?:-new)? version (\d+)\.\d`), "flang", "Fortran"},
	{".comment", regexp.MustCompile(`(?:^|\x00)ldc version (\d+\.\d+)`), "ldc", "D"},
	{".comment", regexp.MustCompile(`(?:^|\x00)GHC (\d+\.\d+)`), "ghc", "Haskell"},
	{".comment", regexp.MustCompile(`(?:^|\x00)zig (\d+\.\d+)`), "zig", "Zig"},
	{".comment", regexp.MustCompile(`(?:^|\W)Swift version (\d+\.\d+)`), "swift", "Swift"},
	// Since Go 1.18: a magic, flags (2 if strings follow), 16 bytes, and the version after its length.
	{".go.buildinfo", regexp.MustCompile(`(?s)^. Go buildinf:.[\x02\x03].{16}.go(\d+\.\d+)`), "go", "Go"},
	{".fpcdata", regexp.MustCompile(`^FPC (\d+\.\d+)`), "fpc", "Pascal"},
	// The paths of Rust's library in messages about panics: /usr/src/rustc-1.85.0/library/core/src/..., or with the
	// commit in the place of the version where Rust's own build made it.
	{".rodata", regexp.MustCompile(`rustc(?:-(\d+\.\d+)[^/\x00]{0,20}|/[0-9a-f]{40})/library/`), "rustc", "Rust"},
	// What Haskell's runtime system says of itself when it fails.
	{".rodata", regexp.MustCompile(`\(GHC version %s for %s\)`), "ghc", "Haskell"},
}

// maxClue is the length of clues in large sections, in bytes.
const maxClue = 80

// sectionLanguages are the languages whose tools make sections of these names. They stay when a program is stripped.
var sectionLanguages = map[string]string{
	".go.buildinfo": "Go", ".gopclntab": "Go", ".note.go.buildid": "Go", ".fpcdata": "Pascal",
}

// clues looks for clues in sections.
func (t *traces) clues() {
	for i := range t.file.Sections {
		s := &t.file.Sections[i]
		if language := sectionLanguages[s.Name]; language != "" {
			t.languages[language] = true
		}
		name := s.Name
		if strings.HasPrefix(name, ".rodata.") {
			name = ".rodata"
		}
		some := slices.DeleteFunc(slices.Clone(clues), func(c clue) bool { return c.section != name })
		if len(some) == 0 || name == ".rodata" && t.languages["Go"] {
			continue
		}
		r := t.reader(s)
		for err := error(nil); err == nil; {
			var b []byte
			b, err = r.Peek(chunk)
			for _, c := range some {
				t.find(b, c)
			}
			r.Discard(max(0, len(b)-maxClue)) // what begins there comes again
		}
	}
	if t.languages["Go"] {
		t.compilers["go"] = true
	}
}

func (t *traces) find(b []byte, c clue) {
	for _, m := range c.pattern.FindAllSubmatch(b, -1) {
		if c.language != "" {
			t.languages[c.language] = true
		}
		version := bytes.Join(m[1:], nil) // if the pattern has a group for it
		t.compilers[strings.TrimSpace(c.compiler+" "+string(version))] = true
	}
}

// marks are how names in symbol tables begin that compilers of a language make, or whose libraries they call. The
// tables also name the libraries that a file needs.
var marks = byFirst([]mark{
	{"libgnat-", "Ada"}, {"libgnarl-", "Ada"}, {"__gnat_", "Ada"},
	{"__gxx_personality_", "C++"}, {"libstdc++.so", "C++"}, {"libc++.so", "C++"},
	{"libgphobos.so", "D"}, {"libphobos2-", "D"}, {"libdruntime-", "D"}, {"_d_run_main", "D"},
	{"libgfortran.so", "Fortran"}, {"_gfortran_", "Fortran"}, {"_FortranA", "Fortran"}, {"libflang_rt", "Fortran"},
	{"libgo.so", "Go"}, {"__go_init_main", "Go"},
	{"libHS", "Haskell"}, {"stg_ap_", "Haskell"}, {"hs_init_ghc", "Haskell"},
	{"objc_msg_lookup", "Objective-C"}, {"__objc_class_name_", "Objective-C"}, {"._OBJC_CLASS_", "Objective-C"},
	{"caml_startup__", "OCaml"},
	{"FPC_", "Pascal"}, {"SYSTEM_$$_", "Pascal"},
	{"rust_eh_personality", "Rust"}, {"__rust_", "Rust"},
	{"$s10Foundation", "Swift"}, {"libswiftCore.so", "Swift"},
})

type mark struct{ prefix, language string }

// byFirst sorts marks by their first byte, so that few are compared with each name.
func byFirst(all []mark) (by [256][]mark) {
	for _, m := range all {
		by[m.prefix[0]] = append(by[m.prefix[0]], m)
	}
	return by
}

var (
	// rustV0 is Rust's newer mangling: a path that begins in a crate, which has a hash.
	rustV0 = regexp.MustCompile(`^_R[NIMXY].*Cs[0-9A-Za-z]*_\d`)
	// rustHash ends a name of Rust's older mangling, which looks like that of C++. What LLVM appends comes after it.
	rustHash = regexp.MustCompile(`17h[0-9a-f]{16}E(?:$|\.)`)
)

// languageOf returns the language that a name tells, or "".
func languageOf(name []byte) string {
	if len(name) < 3 {
		return ""
	}
	switch c := name[2]; {
	case string(name[:2]) == "_Z":
		if bytes.Contains(name, []byte("17h")) && rustHash.Match(name) { // the former is much faster
			return "Rust"
		}
		return "C++"
	case string(name[:2]) == "_R" && rustV0.Match(name):
		return "Rust"
	case string(name[:2]) == "_D" && c >= '1' && c <= '9':
		return "D"
	case bytes.HasPrefix(name, []byte("caml")) && len(name) > 4 && name[4] >= 'A' && name[4] <= 'Z':
		return "OCaml"
	case bytes.HasPrefix(name, []byte("__")) && bytes.Contains(name, []byte("_MOD_")):
		return "Fortran"
	}
	for _, m := range marks[name[0]] {
		if p := m.prefix; len(name) >= len(p) && string(name[:len(p)]) == p {
			return m.language
		}
	}
	return ""
}

// names looks at the string tables of the symbol tables.
func (t *traces) names() {
	for i := range t.file.Sections {
		s := &t.file.Sections[i]
		kind := elf.SectionType(s.Type)
		if kind != elf.SHT_SYMTAB && kind != elf.SHT_DYNSYM || int(s.Link) >= len(t.file.Sections) {
			continue
		}
		t.strings(&t.file.Sections[s.Link], func(name []byte) {
			t.named = true
			if l := languageOf(name); l != "" {
				t.languages[l] = true
			}
		})
	}
}

// suffixes are those of source files that compilers name in symbols of type STT_FILE.
var suffixes = map[string]string{
	"adb": "Ada", "cc": "C++", "cpp": "C++", "cxx": "C++", "d": "D",
	"f": "Fortran", "f90": "Fortran", "F90": "Fortran", "pas": "Pascal", "pp": "Pascal",
}

// startFiles are in every program: those of the compiler and of the C library.
var startFiles = []string{"crtstuff.c", "init.c", "static-reloc.c", "elf-init.c"}

// sourceFiles looks at the names of source files that symbol tables have.
func (t *traces) sourceFiles() {
	// What a damaged table lacks tells nothing.
	_ = t.file.Symbols(elf.SHT_SYMTAB, func(table *elffile.Section, sym elffile.Symbol) {
		if elf.ST_TYPE(sym.Info) != elf.STT_FILE {
			return
		}
		name := t.file.SymbolName(table, sym.Name)
		switch suffix := name[strings.LastIndexByte(name, '.')+1:]; suffix {
		case name: // without a suffix
		case "c":
			t.sources.c = t.sources.c || !slices.Contains(startFiles, name)
		case "S", "s", "asm":
			t.sources.assembler = true
		default:
			if l := suffixes[suffix]; l != "" {
				t.languages[l] = true
			}
		}
	})
}

// strings calls fn for each string in a section that ends with a NUL, except empty ones. One that is longer than a
// chunk comes in pieces.
func (t *traces) strings(s *elffile.Section, fn func([]byte)) {
	r := t.reader(s)
	for {
		b, err := r.ReadSlice(0)
		if err != nil && err != bufio.ErrBufferFull {
			return
		}
		if b = bytes.TrimSuffix(b, []byte{0}); len(b) > 0 {
			fn(b)
		}
	}
}

// chunk is how much is read at a time, in bytes.
const chunk = 1 << 18

// reader returns a reader of the contents of a section, or of nothing.
func (t *traces) reader(s *elffile.Section) *bufio.Reader {
	size := s.Size
	if !s.HasBytes() || s.Compressed() || size > t.unread || s.Off > t.file.Size-size {
		size = 0
	}
	t.unread -= size
	r := io.NewSectionReader(t.file.Contents(), int64(s.Off), int64(size))
	return bufio.NewReaderSize(r, int(min(size+1, chunk)))
}

package survey

import (
	"bytes"
	"cmp"
	"debug/elf"
	"encoding/binary"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"cfi2sframe/elffile"
)

// Languages.
const (
	langAda       = "Ada"
	langAssembler = "assembler"
	langC         = "C"
	langCxx       = "C++"
	langD         = "D"
	langFortran   = "Fortran"
	langGo        = "Go"
	langHaskell   = "Haskell"
	langObjC      = "Objective-C"
	langOCaml     = "OCaml"
	langPascal    = "Pascal"
	langRust      = "Rust"
	langSwift     = "Swift"
	langZig       = "Zig"
)

// originOf returns the languages that a file was written in, and its compilers, such as "gcc 14", both sorted, as far
// as it tells: by .comment, names in its symbol tables, the sections of Go and the source paths in Rust's messages.
// Damaged data tells nothing. C and assembler are listed only alone.
//
// Distributions strip .comment, so that the compilers of most files are unknown. The start files of the C library and
// of the compiler have a .comment: GCC is named beside clang or rustc in most files that have all three.
func originOf(f *elffile.File) (languages, compilers []string) {
	t := traces{file: f, room: f.Size, languages: make(map[string]bool), compilers: make(map[string]bool)}
	t.comment()
	t.golang()
	t.pascal()
	t.names()
	t.sourceFiles()
	if !t.languages[langGo] {
		t.constants()
	}
	return t.origin()
}

// traces are what was found in a file.
type traces struct {
	file      *elffile.File
	room      uint64 // bytes that may still be read: sections of a hostile file may overlap
	languages map[string]bool
	compilers map[string]bool
	named     bool // there are names of symbols that the linker did not make up
	sources   struct{ c, assembler bool }
}

func (t *traces) origin() (languages, compilers []string) {
	// C leaves no marks: it is what made the file if nothing else is known to have.
	switch {
	case len(t.languages) > 0:
	case t.sources.c:
		t.languages[langC] = true
	case t.sources.assembler:
		t.languages[langAssembler] = true
	case t.named || len(t.compilers) > 0:
		t.languages[langC] = true
	}
	return slices.Sorted(maps.Keys(t.languages)), slices.Sorted(maps.Keys(t.compilers))
}

// maxComment is how much of .comment is looked at, in bytes. One of thousands of objects has a line
// for each different compiler only.
const maxComment = 1 << 16

// comment looks at what compilers write into .comment.
func (t *traces) comment() {
	s := t.file.Section(".comment")
	if s == nil || !s.HasBytes() || s.Compressed() {
		return
	}
	b, err := t.file.ReadAt("section .comment", s.Off, min(s.Size, maxComment))
	if err != nil {
		return
	}
	for text := range bytes.SplitSeq(b, []byte{0}) {
		name, language := compilerOf(string(text))
		if name != "" {
			t.compilers[name] = true
		}
		if language != "" {
			t.languages[language] = true
		}
	}
}

// What compilers write. Vendors put their name before clang's.
var comments = []struct {
	pattern  *regexp.Regexp
	name     string
	language string // if it is for that only
}{
	// The parenthesis is of who built it, and may have others in it; nothing that follows the version does.
	{regexp.MustCompile(`^GCC: \(.*?\) (\d+\.\d+)`), "gcc", ""},
	{regexp.MustCompile(`^rustc version (\d+\.\d+)`), "rustc", langRust},
	{regexp.MustCompile(`(?:^|\W)clang version (\d+\.\d+)`), "clang", ""},
	{regexp.MustCompile(`(?:^|\W)flang(?:-new)? version (\d+\.\d+)`), "flang", langFortran},
	{regexp.MustCompile(`^ldc version (\d+\.\d+)`), "ldc", langD},
	{regexp.MustCompile(`^GHC (\d+\.\d+)`), "ghc", langHaskell},
	{regexp.MustCompile(`^zig (\d+\.\d+)`), "zig", langZig},
	{regexp.MustCompile(`(?:^|\W)Swift version (\d+\.\d+)`), "swift", langSwift},
}

// compilerOf returns the compiler that a line of .comment names, such as "gcc 14", and its language, if it
// has one only. Lines of linkers name none.
func compilerOf(text string) (name, language string) {
	for i := range comments {
		if m := comments[i].pattern.FindStringSubmatch(text); m != nil {
			return comments[i].name + " " + release(comments[i].name, m[1]), comments[i].language
		}
	}
	return "", ""
}

// release returns the part of a compiler's version by which people know it: of GCC since 5 and of
// LLVM the first number.
func release(compiler, version string) string {
	major, _, _ := strings.Cut(version, ".")
	n, _ := strconv.Atoi(major)
	if compiler == "clang" || compiler == "flang" || compiler == "gcc" && n >= 5 {
		return major
	}
	return version
}

// golang looks for the sections of Go's own linker. They stay when a program is stripped.
func (t *traces) golang() {
	info := t.file.Section(".go.buildinfo")
	if info == nil && t.file.Section(".gopclntab") == nil && t.file.Section(".note.go.buildid") == nil {
		return
	}
	t.languages[langGo] = true
	t.compilers[cmp.Or(t.goVersion(info), "go")] = true
}

// goVersion returns what .go.buildinfo says since Go 1.18: a magic, flags of which 2 says that strings follow
// at offset 32, and there the version with its length in front, as a varint.
func (t *traces) goVersion(s *elffile.Section) string {
	const magic, flags, at, inline = "\xff Go buildinf:", 15, 32, 2
	if s == nil || !s.HasBytes() {
		return ""
	}
	b, err := t.file.ReadAt("section .go.buildinfo", s.Off, min(s.Size, 256))
	if err != nil || len(b) < at || !bytes.HasPrefix(b, []byte(magic)) || b[flags]&inline == 0 {
		return ""
	}
	n, skip := binary.Uvarint(b[at:])
	if b = b[at+max(skip, 0):]; skip <= 0 || n > uint64(len(b)) {
		return ""
	}
	if m := goVersion.FindSubmatch(b[:n]); m != nil {
		return "go " + string(m[1])
	}
	return ""
}

var goVersion = regexp.MustCompile(`^go(\d+\.\d+)`)

// pascal looks for the section in which Free Pascal says who it is.
func (t *traces) pascal() {
	s := t.file.Section(".fpcdata")
	if s == nil || !s.HasBytes() {
		return
	}
	t.languages[langPascal] = true
	b, err := t.file.ReadAt("section .fpcdata", s.Off, min(s.Size, 256))
	if m := pascalVersion.FindSubmatch(b); err == nil && m != nil {
		t.compilers["fpc "+string(m[1])] = true
	}
}

var pascalVersion = regexp.MustCompile(`^FPC (\d+\.\d+)`)

// marks are how names in symbol tables begin that compilers of a language make, or whose libraries
// they call. Libraries are there as well: names of those that a file needs are among those of its symbols.
var marks = byFirst([]mark{
	{"libgnat-", langAda}, {"libgnarl-", langAda}, {"__gnat_", langAda},
	{"__gxx_personality_", langCxx}, {"libstdc++.so", langCxx}, {"libc++.so", langCxx},
	{"libgphobos.so", langD}, {"libphobos2-", langD}, {"libdruntime-", langD}, {"_d_run_main", langD},
	{"libgfortran.so", langFortran}, {"_gfortran_", langFortran}, {"_FortranA", langFortran}, {"libflang_rt", langFortran},
	{"libgo.so", langGo}, {"__go_init_main", langGo},
	{"libHS", langHaskell}, {"stg_ap_", langHaskell}, {"hs_init_ghc", langHaskell},
	{"objc_msg_lookup", langObjC}, {"__objc_class_name_", langObjC}, {"._OBJC_CLASS_", langObjC},
	{"caml_startup__", langOCaml},
	{"FPC_", langPascal}, {"SYSTEM_$$_", langPascal},
	{"rust_eh_personality", langRust}, {"__rust_", langRust},
	{"$s10Foundation", langSwift}, {"libswiftCore.so", langSwift},
})

type mark struct{ prefix, language string }

// byFirst sorts marks by their first byte, so that few are compared with each name.
func byFirst(all []mark) (by [256][]mark) {
	for _, m := range all {
		by[m.prefix[0]] = append(by[m.prefix[0]], m)
	}
	return by
}

// languageOf returns the language that a name tells, or "".
func languageOf(name []byte) string {
	if len(name) < 3 {
		return ""
	}
	switch c := name[2]; {
	case string(name[:2]) == "_Z":
		if isRust(name) {
			return langRust
		}
		return langCxx
	case string(name[:2]) == "_R" && rustV0.Match(name):
		return langRust
	case string(name[:2]) == "_D" && c >= '1' && c <= '9':
		return langD
	case bytes.HasPrefix(name, []byte("caml")) && len(name) > 4 && name[4] >= 'A' && name[4] <= 'Z':
		return langOCaml
	case bytes.HasPrefix(name, []byte("__")) && bytes.Contains(name, []byte("_MOD_")):
		return langFortran
	}
	for _, m := range marks[name[0]] {
		if p := m.prefix; len(name) >= len(p) && string(name[:len(p)]) == p {
			return m.language
		}
	}
	return ""
}

// rustV0 is Rust's newer mangling: a path that begins in a crate, which has a hash.
var rustV0 = regexp.MustCompile(`^_R[NIMXY].*Cs[0-9A-Za-z]*_\d`)

// isRust tells Rust's older mangling from that of C++, which it looks like: a hash of 16 digits ends it,
// as the innermost name. What LLVM appends comes after that.
func isRust(name []byte) bool {
	return bytes.Contains(name, []byte("17h")) && rustHash.Match(name) // the former is much faster
}

var rustHash = regexp.MustCompile(`17h[0-9a-f]{16}E(?:$|\.)`)

// names looks at the string tables of the symbol tables.
func (t *traces) names() {
	for i := range t.file.Sections {
		s := &t.file.Sections[i]
		switch elf.SectionType(s.Type) {
		case elf.SHT_SYMTAB, elf.SHT_DYNSYM:
		default:
			continue
		}
		if int(s.Link) >= len(t.file.Sections) {
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
	"adb": langAda, "cc": langCxx, "cpp": langCxx, "cxx": langCxx, "d": langD,
	"f": langFortran, "f90": langFortran, "F90": langFortran, "pas": langPascal, "pp": langPascal,
}

// maxSources is how many source files are looked at.
const maxSources = 1 << 16

// sourceFiles looks at the names of source files that symbol tables have.
func (t *traces) sourceFiles() {
	n := 0
	// What a damaged table lacks tells nothing.
	_ = t.file.Symbols(elf.SHT_SYMTAB, func(table *elffile.Section, sym elffile.Symbol) {
		if elf.ST_TYPE(sym.Info) == elf.STT_FILE && n < maxSources {
			n++
			t.source(t.file.SymbolName(table, sym.Name))
		}
	})
}

func (t *traces) source(name string) {
	dot := strings.LastIndexByte(name, '.')
	if dot < 0 {
		return
	}
	switch suffix := name[dot+1:]; suffix {
	case "c":
		// In every program: start files of the compiler, and of the C library.
		switch name {
		case "crtstuff.c", "init.c", "static-reloc.c", "elf-init.c":
		default:
			t.sources.c = true
		}
	case "S", "s", "asm":
		t.sources.assembler = true
	default:
		if l := suffixes[suffix]; l != "" {
			t.languages[l] = true
		}
	}
}

// strings calls fn for each string in a section that ends with a NUL, but for the empty ones. One
// longer than a chunk comes in pieces.
func (t *traces) strings(s *elffile.Section, fn func([]byte)) {
	t.read(s, func(b []byte) int {
		done := 0
		for {
			i := bytes.IndexByte(b[done:], 0)
			if i < 0 {
				break
			}
			if i > 0 {
				fn(b[done : done+i])
			}
			done += i + 1
		}
		if done == 0 && len(b) == chunk {
			fn(b)
			return len(b)
		}
		return done
	})
}

// chunk is how much is read at a time, in bytes.
const chunk = 1 << 18

// read calls fn with what is in a section, a chunk at a time. Fn returns how much of it is done with: the rest comes
// again, with more after it.
func (t *traces) read(s *elffile.Section, fn func(b []byte) (done int)) {
	if !s.HasBytes() || s.Compressed() || s.Size > t.room || s.Off > t.file.Size-s.Size {
		return
	}
	t.room -= s.Size
	buf := make([]byte, min(s.Size, chunk))
	kept := 0
	for off := uint64(0); off < s.Size; {
		n := min(uint64(len(buf)-kept), s.Size-off)
		if m, err := t.file.Contents().ReadAt(buf[kept:kept+int(n)], int64(s.Off+off)); err != nil && err != io.EOF || m < int(n) {
			return
		}
		off += n
		b := buf[:kept+int(n)]
		done := fn(b)
		kept = copy(buf, b[done:])
		if kept == len(buf) {
			kept = 0 // nothing to do with it
		}
	}
}

// needles are what constants are searched for: what says in full who made the file begins so.
var needles = []struct {
	text     string
	pattern  *regexp.Regexp
	language string
	compiler string // followed by the match of the pattern
}{
	// The paths of Rust's library in messages about panics: /usr/src/rustc-1.85.0/library/core/src/..., or with the
	// commit in the place of the version where Rust's own build made it.
	{"rustc", regexp.MustCompile(`^rustc(?:-(\d+\.\d+)[^/\x00]*|/[0-9a-f]{40})/library/`), langRust, "rustc"},
	// What Haskell's runtime system says of itself when it fails.
	{"(GHC version ", regexp.MustCompile(`^\(GHC version %s for %s\)()`), langHaskell, "ghc"},
}

// constants looks at strings that libraries of languages keep.
func (t *traces) constants() {
	for i := range t.file.Sections {
		s := &t.file.Sections[i]
		if s.Name != ".rodata" && !strings.HasPrefix(s.Name, ".rodata.") {
			continue
		}
		t.read(s, func(b []byte) int {
			const most = 64 // bytes that a pattern looks at
			for i := range needles {
				n := &needles[i]
				for at := 0; ; at += len(n.text) {
					j := bytes.Index(b[at:], []byte(n.text))
					if j < 0 {
						break
					}
					at += j
					if m := n.pattern.FindSubmatch(b[at:min(len(b), at+most)]); m != nil {
						t.languages[n.language] = true
						t.compiler(n.compiler, string(m[1]))
					}
				}
			}
			return max(0, len(b)-most) // what begins there comes again
		})
	}
}

// compiler adds a compiler of which the version may not be known.
func (t *traces) compiler(name, version string) {
	if version != "" {
		t.compilers[name+" "+version] = true
		return
	}
	for c := range t.compilers {
		if strings.HasPrefix(c, name+" ") {
			return
		}
	}
	t.compilers[name] = true
}

package survey

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/elftest"
)

// TestComments has lines of .comment as they are in files of distributions and of upstream builds.
func TestComments(t *testing.T) {
	for text, want := range map[string][2]string{
		"GCC: (Debian 14.2.0-19) 14.2.0":                                            {"gcc 14", ""},
		"GCC: (GNU) 8.5.0 20210514 (Red Hat 8.5.0-28)":                              {"gcc 8", ""},
		"GCC: (GNU) 4.8.5 20150623 (Red Hat 4.8.5-44)":                              {"gcc 4.8", ""},
		"GCC: (crosstool-NG 1.24.0 (with a (patch))) 11.2.0":                        {"gcc 11", ""},
		"Debian clang version 19.1.7 (3)":                                           {"clang 19", ""},
		"clang version 15.0.0 (https://github.com/llvm/llvm-project.git)":           {"clang 15", ""},
		"Android (7155654, based on r399163b1) clang version 11.0.5":                {"clang 11", ""},
		"flang-new version 19.1.7":                                                  {"flang 19", "Fortran"},
		"rustc version 1.85.0 (4d91de4e4 2025-02-17) (built from a source tarball)": {"rustc 1.85", "Rust"},
		"ldc version 1.40.0":                                                        {"ldc 1.40", "D"},
		"GHC 9.6.6":                                                                 {"ghc 9.6", "Haskell"},
		"zig 0.13.0":                                                                {"zig 0.13", "Zig"},
		"Linker: LLD 22.1.2 (/checkout/src/llvm-project/llvm 1cb4e3833c1919c2e6fb579a23ac0e2b22587b7e)": {},
		"mold 2.37.1 (compatible with GNU ld)":                                                          {},
		"":                                                                                              {},
	} {
		tr := newTraces(elftest.Parse(t, sound(t)))
		for _, c := range clues {
			if c.section == ".comment" {
				tr.find([]byte(text), c)
				tr.find([]byte("mold 2.37.1\x00"+text+"\x00"), c)
			}
		}
		name := strings.Join(slices.Collect(maps.Keys(tr.compilers)), " + ")
		language := strings.Join(slices.Collect(maps.Keys(tr.languages)), " + ")
		if name != want[0] || language != want[1] {
			t.Errorf("%q: compiler %q, language %q, want %q and %q", text, name, language, want[0], want[1])
		}
	}
}

// TestLanguageOf has names that these compilers have made.
func TestLanguageOf(t *testing.T) {
	for name, want := range map[string]string{
		"_ZNSt6vectorIiSaIiEE17_M_realloc_insertEN9__gnu_cxx17__normal_iteratorIPiS1_EEOi": "C++",
		"_ZTV3foo":             "C++",
		"__gxx_personality_v0": "C++",
		"_ZN4core3fmt9Formatter9write_str17h1f9b0b0f0c8d0a11E":                                 "Rust",
		"_ZN4core3ptr42drop_in_place$LT$alloc..string..String$GT$17h0123456789abcdefE.llvm.12": "Rust",
		"_ZN3foo17h0123456789abcdegE":                                                          "C++", // g is no digit
		"_RNvCsfLfy6EI15iL_7___rustc10rust_panic":                                              "Rust",
		"_RINvNtCs1234_4core3ptr13drop_in_placeNtB4_6StringEB2_":                               "Rust",
		"_RNG_seed":                       "",
		"_D3std5stdio4File":               "D",
		"_DYNAMIC":                        "",
		"_Dx":                             "",
		"camlStdlib__List__map_123":       "OCaml",
		"caml_alloc_string":               "", // which stubs in C call
		"caml_startup__code_begin":        "OCaml",
		"__iso_c_binding_MOD_c_f_pointer": "Fortran",
		"_gfortran_st_write":              "Fortran",
		"libgfortran.so.5":                "Fortran",
		"dgemm_":                          "",
		"__gnat_rcheck_CE_Overflow_Check": "Ada",
		"main":                            "",
		"_Z":                              "",
		"Z":                               "",
	} {
		if got := languageOf([]byte(name)); got != want {
			t.Errorf("%s: %q; want %q", name, got, want)
		}
	}
}

// originRecord returns a record with the origin of a file.
func originRecord(f *elffile.File) *Record {
	languages, compilers := originOf(f)
	return &Record{Languages: languages, Compilers: compilers}
}

func originOfFile(t *testing.T, name string) *Record {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return originRecord(elftest.Parse(t, b))
}

// built compiles a source file and returns the program, or skips the test where there is no such compiler.
func built(t *testing.T, source, text string, command ...string) string {
	t.Helper()
	if _, err := exec.LookPath(command[0]); err != nil {
		t.Skipf("%s is missing", command[0])
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, source), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(command[0], append(command[1:], "-o", "prog", source)...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOOS=linux", "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", command, err, out)
	}
	return filepath.Join(dir, "prog")
}

// output returns the first line that a command prints.
func output(t *testing.T, command ...string) string {
	t.Helper()
	out, err := exec.Command(command[0], command[1:]...).Output()
	if err != nil {
		t.Fatalf("%v: %v", command, err)
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return line
}

// stripped returns a copy without symbols and without what debhelper's dh_strip takes besides.
func stripped(t *testing.T, prog string) string {
	t.Helper()
	if _, err := exec.LookPath("strip"); err != nil {
		t.Skip("strip is missing")
	}
	if out, err := exec.Command("strip", "--remove-section=.comment", "--remove-section=.note", "-o", prog+".stripped",
		prog).CombinedOutput(); err != nil {
		t.Fatalf("strip: %v\n%s", err, out)
	}
	return prog + ".stripped"
}

func expect(t *testing.T, what string, got *Record, language, compiler string) {
	t.Helper()
	if got.language() != language {
		t.Errorf("%s: language %s; want %s", what, got.language(), language)
	}
	if compiler != "" && !strings.Contains(" + "+got.compiler()+" + ", " + "+compiler+" + ") {
		t.Errorf("%s: compilers %s do not include %s", what, got.compiler(), compiler)
	}
}

// TestOriginsOfPrograms compiles programs in several languages, and asks the compilers for their versions.
func TestOriginsOfPrograms(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("compilers elsewhere make no ELF files")
	}
	t.Run("C", func(t *testing.T) {
		prog := built(t, "a.c", "#include <stdio.h>\nint main(void) { return puts(\"hello\") < 0; }\n", "gcc")
		expect(t, "gcc", originOfFile(t, prog), "C", "gcc "+output(t, "gcc", "-dumpversion"))
		got := originOfFile(t, stripped(t, prog))
		expect(t, "gcc, stripped", got, "C", unknown)
	})
	t.Run("clang", func(t *testing.T) {
		prog := built(t, "a.c", "int main(void) { return 0; }\n", "clang")
		expect(t, "clang", originOfFile(t, prog), "C",
			"clang "+strings.Split(output(t, "clang", "-dumpversion"), ".")[0])
	})
	t.Run("C++", func(t *testing.T) {
		prog := built(t, "a.cc", "#include <iostream>\nint main() { std::cout << 1; }\n", "g++")
		expect(t, "g++", originOfFile(t, prog), "C++", "gcc "+output(t, "g++", "-dumpversion"))
		expect(t, "g++, stripped", originOfFile(t, stripped(t, prog)), "C++", unknown)
	})
	t.Run("Fortran", func(t *testing.T) {
		prog := built(t, "a.f90", "program a\nprint *, 1\nend program a\n", "gfortran")
		expect(t, "gfortran", originOfFile(t, prog), "Fortran", "gcc "+output(t, "gfortran", "-dumpversion"))
		expect(t, "gfortran, stripped", originOfFile(t, stripped(t, prog)), "Fortran", unknown)
	})
	t.Run("Rust", func(t *testing.T) {
		prog := built(t, "a.rs", "fn main() { println!(\"{}\", std::env::args().nth(1).unwrap()); }\n", "rustc")
		version := strings.Fields(output(t, "rustc", "--version"))[1]
		expect(t, "rustc", originOfFile(t, prog), "Rust", "rustc "+version[:strings.LastIndexByte(version, '.')])
		// What is left are paths. Those of Rust's own builds have a commit in the place of the version.
		expect(t, "rustc, stripped", originOfFile(t, stripped(t, prog)), "Rust", "")
	})
	t.Run("Go", func(t *testing.T) {
		prog := built(t, "a.go", "package main\n\nfunc main() { println(1) }\n", "go", "build")
		version := strings.TrimPrefix(output(t, "go", "env", "GOVERSION"), "go")
		version = strings.Join(strings.SplitN(version, ".", 3)[:2], ".")
		expect(t, "go", originOfFile(t, prog), "Go", "go "+version)
		expect(t, "go, stripped", originOfFile(t, stripped(t, prog)), "Go", "go "+version)
	})
}

// TestOriginsOfFixtures expects assembled files to tell nothing but what their symbols do.
func TestOriginsOfFixtures(t *testing.T) {
	files, err := filepath.Glob("../../testdata/bin/*/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("no fixtures: %v", err)
	}
	for _, name := range files {
		if got := originOfFile(t, name); got.compiler() != unknown {
			t.Errorf("%s: compilers %s; want none", name, got.compiler())
		}
	}
}

// TestOriginOfDebian has files of Debian that no compiler here makes, if packages are unpacked there by
// scripts/lab debian.
func TestOriginOfDebian(t *testing.T) {
	const trees = "/var/cache/cfi2sframe-debian-survey/trees/trixie-amd64"
	for name, want := range map[string][2]string{
		"pandoc/usr/bin/pandoc":                                                    {"Haskell", "ghc"},
		"shellcheck/usr/bin/shellcheck":                                            {"Haskell", "ghc"},
		"fp-compiler-3.2.2/usr/lib/x86_64-linux-gnu/fpc/3.2.2/ppcx64":              {"Pascal", "fpc 3.2"},
		"hugo/usr/bin/hugo":                                                        {"Go", ""},
		"ripgrep/usr/bin/rg":                                                       {"Rust", "rustc 1.85"},
		"unison-2.53/usr/bin/unison-2.53":                                          {"OCaml", unknown},
		"libgnat-14/usr/lib/x86_64-linux-gnu/libgnat-14.so":                        {"Ada", unknown},
		"tilix/usr/bin/tilix":                                                      {"D", unknown},
		"liblapack3/usr/lib/x86_64-linux-gnu/lapack/liblapack.so.3.12.1":           {"Fortran", unknown},
		"coreutils/usr/bin/ls":                                                     {"C", unknown},
		"libstdlib-ocaml/usr/lib/x86_64-linux-gnu/ocaml/5.3.0/libasmrun_shared.so": {"C", unknown},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := os.Stat(filepath.Join(trees, name)); err != nil {
				t.Skip("scripts/lab debian unpack makes it")
			}
			expect(t, name, originOfFile(t, filepath.Join(trees, name)), want[0], want[1])
		})
	}
}

// TestOriginsAddUp surveys programs of two languages, and expects the sums to be those of the files, and to be the same
// when the survey was read from its JSON form.
func TestOriginsAddUp(t *testing.T) {
	dir := t.TempDir()
	prog := built(t, "a.go", "package main\n\nfunc main() { println(1) }\n", "go", "build")
	for name, from := range map[string]string{"go": prog, "asm": "../../testdata/bin/amd64/prologue",
		"other": "../../testdata/bin/s390x/plt"} {
		b, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s := run(t, Options{Tool: "tool"}, dir)
	for what, list := range map[string][]Part{"languages": s.Languages, "compilers": s.Compilers} {
		var files, described uint64
		for i := range list {
			files += list[i].Files
			described += list[i].Described
		}
		if files != 3 || described != s.Total.Described || len(list) != 2 {
			t.Errorf("%s: %d parts of %d files and %d bytes; want 2 of 3 and %d", what, len(list), files,
				described, s.Total.Described)
		}
	}
	if i := slices.IndexFunc(s.Languages, func(p Part) bool { return p.Name == "Go" }); i < 0 ||
		s.Languages[i].Files != 1 {
		t.Errorf("languages %+v; want one file of Go", s.Languages)
	}

	parts := t.TempDir()
	var whole bytes.Buffer
	if err := s.JSON(&whole); err != nil {
		t.Fatal(err)
	}
	part := filepath.Join(parts, "part.json")
	if err := os.WriteFile(part, whole.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	merged, err := Merge(t.Context(), []string{part}, MergeOptions{Tool: "tool"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, form := range []string{"json", "csv", "text", "html"} {
		var want, got bytes.Buffer
		if err := s.Write(&want, form); err != nil {
			t.Fatal(err)
		}
		if err := merged.Write(&got, form); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Bytes(), want.Bytes()) {
			t.Errorf("%s: not the same after merging", form)
		}
		if !bytes.Contains(got.Bytes(), []byte("Go")) {
			t.Errorf("%s: Go is not named", form)
		}
	}
}

// TestOriginOfDamage looks at files with bytes that are wrong, and expects nothing but an end. Sections that overlap
// are not read more often than the file is large.
func TestOriginOfDamage(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, name := range []string{"amd64/plt", "s390x/plt", "aarch64/pltlib.so"} {
		fixture, err := os.ReadFile("../../testdata/bin/" + name)
		if err != nil {
			t.Fatal(err)
		}
		for range 3000 {
			b := bytes.Clone(fixture)
			for range 1 + random.IntN(20) {
				b[random.IntN(len(b))] = byte(random.Uint32())
			}
			if f, err := elffile.New(bytes.NewReader(b), int64(len(b))); err == nil {
				originOf(f)
			}
		}
	}
	fixture, err := os.ReadFile("../../testdata/bin/amd64/plt")
	if err != nil {
		t.Fatal(err)
	}
	f := elftest.Parse(t, fixture)
	names := *f.Section(".dynsym")
	tr := newTraces(f)
	read := 0
	for range 1000 {
		tr.strings(&f.Sections[names.Link], func(b []byte) { read += len(b) })
	}
	if read == 0 || read > len(fixture) {
		t.Errorf("%d bytes of names were read of a file of %d", read, len(fixture))
	}
}

// TestOriginOfStrings finds what lies across the borders of the pieces that are read.
func TestOriginOfStrings(t *testing.T) {
	const path = "/usr/src/rustc-1.85.0/library/core/src/panicking.rs"
	fixture, err := os.ReadFile("../../testdata/bin/amd64/plt")
	if err != nil {
		t.Fatal(err)
	}
	// The contents of .text are as good as any: the section is called .rodata here.
	for _, at := range []int{0, 1, chunk - len(path), chunk - 40, chunk - 25, chunk - 18, chunk - 16, chunk - 1, chunk,
		2*chunk - 30, 3*chunk - len(path)} {
		text := bytes.Repeat([]byte("rust"), 3*chunk/4)
		copy(text[at:], path)
		p := elftest.Patch(t.Fatalf, fixture)
		h := p.Section(".eh_frame_hdr")
		off := uint64(len(p.B))
		p.Put64(h+elftest.ShOff, off)
		p.Put64(h+elftest.ShSize, uint64(len(text)))
		p.B = append(p.B, text...)
		f := elftest.Parse(t, p.B)
		f.Section(".eh_frame_hdr").Name = ".rodata"
		if got := originRecord(f); got.language() != "Rust" || got.compiler() != "rustc 1.85" {
			t.Errorf("path at %#x: %s by %s; want Rust by rustc 1.85", at, got.language(), got.compiler())
		}
	}
}

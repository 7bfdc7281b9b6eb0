package readers

import (
	"bytes"
	"cmp"
	"context"
	"debug/elf"
	"embed"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"cfi2sframe/convert"
	"cfi2sframe/internal/files"
	"cfi2sframe/lab/kit"
	"cfi2sframe/sframe"
)

//go:embed c
var sources embed.FS

// A glibc is a C library that was built to read .sframe, in the root folder of a system.
type glibc struct {
	root    string // of the system
	scratch string // folder inside it, by its path there
	samples int
	table   kit.Table
}

// inside runs a command in the system, with nothing in the environment but PATH and LC_ALL, for three minutes at most.
func (g *glibc) inside(args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "chroot", append([]string{g.root}, args...)...)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return out, fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, tail(out))
	}
	return out, nil
}

func tail(b []byte) []byte { return b[max(0, len(b)-2000):] }

// A variant is a way to have sections for glibc's own files and for the program.
type variant struct {
	name    string
	libc    convert.Options // of libc.so.6, ld.so and the other libraries
	own     bool            // these keep the section that GNU as and ld wrote
	program convert.Options
	// nothing says that this glibc does not read the format, so that there are no chains without libgcc.
	nothing bool
}

var (
	v2      = convert.Options{Version: sframe.V2}
	v2pcrel = convert.Options{Version: sframe.V2, PCRel: true}
	v2off   = convert.Options{Version: sframe.V2, Share: convert.ShareOff}
	v2bare  = convert.Options{Version: sframe.V2, NoPadding: true}
	v3      = convert.Options{Version: sframe.V3}
)

var variants = []variant{
	{name: "--for glibc", libc: v2, program: v2},
	{name: "--for glibc, libraries as GNU wrote them", own: true, program: v2},
	{name: "--format 2 --pcrel", libc: v2pcrel, program: v2pcrel},
	{name: "--format 2 --share=off", libc: v2off, program: v2off},
	{name: "--format 2 --padding=off", libc: v2bare, program: v2bare},
	{name: "--format 3", libc: v3, program: v3, nothing: true},
}

// limits are the scenes in which glibc or V2 cannot do it, and the cause. One that comes out equal fails the run: what is
// known of it has changed then.
var limits = map[string]cause{
	"realigned stack":           noForm,
	"call that does not return": afterCall, // no padding follows
	"__chk_fail":                afterCall, // and none those of glibc and libstdc++ that GCC takes for cold
	"std::terminate":            afterCall,
	"jump to nowhere":           noObject,
	"makecontext":               noCFI, // it ends in a function that nothing calls, and FP is not 0
}

// padded are the scenes in which a return address lies in the padding after a function.
var padded = []string{
	"abort", "__stack_chk_fail", "throw", "Rust panic",
	"on_exit", "atexit", "std::atexit", "destructor of a static object",
}

// excuses are why a sample need not be equal.
var excuses = []cause{noObject, noCFI, noForm, afterCall, longer}

// A place is an address in a file, or in none.
type place struct {
	file   string
	offset uint64
}

// A pair are two chains that are not equal.
type pair struct{ backtrace, dwarf []place }

func (p pair) String() string {
	return fmt.Sprintf("\n  backtrace: %v\n  DWARF: %v", p.backtrace, p.dwarf)
}

func (p place) String() string { return fmt.Sprintf("%s+%#x", p.file, p.offset) }

// A scene is a place of which a program compares the chains once.
type scene struct {
	name    string
	frames  int
	verdict string
	pair    pair // if they are not equal
}

// A sampled is what a profiling timer found.
type sampled struct {
	name        string
	all, failed int
	pairs       []pair
}

// An outcome is what a program printed.
type outcome struct {
	scenes  []scene
	samples []sampled
	libgcc  string
}

var (
	sceneLine  = regexp.MustCompile(`^(\S.*) (\d+) (equal|nothing|differs)$`)
	sampleLine = regexp.MustCompile(`^samples (.*): (\d+), not equal (\d+)$`)
	chainLine  = regexp.MustCompile(`^  (backtrace|DWARF):(.*)$`)
)

func parseOutcome(out []byte) (*outcome, error) {
	var o outcome
	var backtrace []place
	inSamples := false
	for line := range strings.Lines(string(out)) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "libgcc_s: "):
			o.libgcc = strings.TrimPrefix(line, "libgcc_s: ")
		case sampleLine.MatchString(line):
			m := sampleLine.FindStringSubmatch(line)
			s := sampled{name: m[1]}
			s.all, _ = strconv.Atoi(m[2])
			s.failed, _ = strconv.Atoi(m[3])
			o.samples, inSamples = append(o.samples, s), true
		case sceneLine.MatchString(line):
			m := sceneLine.FindStringSubmatch(line)
			n, _ := strconv.Atoi(m[2])
			o.scenes, inSamples = append(o.scenes, scene{name: m[1], frames: n, verdict: m[3]}), false
		case chainLine.MatchString(line):
			m := chainLine.FindStringSubmatch(line)
			chain, err := parseChain(m[2])
			if err != nil {
				return nil, err
			}
			switch {
			case m[1] == "backtrace":
				backtrace = chain
			case inSamples:
				s := &o.samples[len(o.samples)-1]
				s.pairs = append(s.pairs, pair{backtrace, chain})
			case len(o.scenes) > 0:
				o.scenes[len(o.scenes)-1].pair = pair{backtrace, chain}
			}
		default:
			return nil, fmt.Errorf("the program says %q", line)
		}
	}
	return &o, nil
}

func parseChain(text string) (chain []place, err error) {
	for _, word := range strings.Fields(text) {
		file, number, _ := strings.Cut(word, "+")
		if name := strings.TrimPrefix(word, "libstdc++"); name != word { // which has the sign in its name
			_, number, _ = strings.Cut(name, "+")
			file = strings.TrimSuffix(word, "+"+number)
		}
		offset, err := strconv.ParseUint(number, 0, 64)
		if err != nil {
			return nil, fmt.Errorf("chain %q: %w", text, err)
		}
		chain = append(chain, place{file, offset})
	}
	return chain, nil
}

// A program is a test program, and how it is run.
type program struct {
	name    string
	file    string
	compile string // makes the file, with gcc
	libgcc  string // what backtrace() has to fall back to
	cxx     bool
	static  bool
	scenes  int // that it has
}

// In a process without libgcc_s.so.1, backtrace() looks for it by dlopen each time, SFrame or not, and so must not be
// called in signal handlers that interrupt anything: there is one for these which finds nothing.
const (
	noLibgcc     = "none can be loaded"
	emptyLibgcc  = "its unwinder finds nothing"
	staticLibgcc = "its unwinder is replaced"
)

// Frames are found by SP or by FP, as the compiler was told. The start files and archives of a static program are those
// of the glibc under test.
var programs = []program{
	{name: "C", file: "C", compile: gcc + "-O2 -static-libgcc -Wl,-z,lazy,-E chain.c -o C -lm", libgcc: noLibgcc, scenes: 36},
	{name: "C, interrupted", file: "C", libgcc: emptyLibgcc, scenes: 36},
	{
		name: "C, -O0 -z now", file: "C-O0", libgcc: noLibgcc, scenes: 36,
		compile: gcc + "-O0 -static-libgcc -Wl,-z,now,-E chain.c -o C-O0 -lm",
	},
	{
		name: "C, frame pointers, interrupted", file: "C-fp", libgcc: emptyLibgcc, scenes: 36,
		compile: gcc + "-O2 -fno-omit-frame-pointer -fcf-protection=full -static-libgcc -Wl,-z,lazy,-E chain.c -o C-fp -lm",
	},
	{
		name: "C, static, interrupted", file: "C-static", libgcc: staticLibgcc, static: true, scenes: 33,
		compile: gcc + "-O2 -DSTATIC -static -Wl,--wrap=_Unwind_Backtrace -B/opt/binutils/ -B/opt/glibc/lib/ " +
			"-L/opt/glibc/lib chain.c -o C-static -lm",
	},
	{
		name: "C++", file: "C++", libgcc: emptyLibgcc, cxx: true, scenes: 20,
		compile: "g++-16 -O2 -static-libgcc -Wl,-z,lazy,-E chainxx.cc -L. -lrust -o C++",
	},
}

// gcc protects functions that ask for it from damage to the stack.
const gcc = "gcc-16 -fstack-protector-explicit "

// loaded are the libraries that programs load.
var loaded = []program{
	{file: "library.so", compile: "gcc-16 -O2 -shared -fPIC -Wl,-z,lazy chainlib.c -o library.so"},
	{file: "librust.so", compile: "rustc -O --crate-type cdylib last.rs -o librust.so"},
}

// libraryNames are the files of glibc under test, in /opt/glibc/lib of the system.
var libraryNames = []string{"ld-linux-x86-64.so.2", "libc.so.6"}

func runGlibc(root string, samples int) error {
	start := time.Now()
	scratch, err := os.MkdirTemp(filepath.Join(root, "tmp"), "cfi2sframe-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	if err := os.Chmod(scratch, 0o755); err != nil {
		return err
	}
	g := &glibc{root: root, scratch: "/tmp/" + filepath.Base(scratch), samples: samples}
	for _, name := range []string{"chain.c", "chainlib.c", "chainxx.cc", "last.h", "last.rs"} {
		b, err := sources.ReadFile("c/" + name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(scratch, name), b, 0o666); err != nil {
			return err
		}
	}
	for _, p := range append(loaded, programs...) {
		if _, err := g.inside("sh", "-ec", "cd "+g.scratch+"\n"+p.compile); err != nil {
			return err
		}
	}
	var errs []error
	g.table = kit.NewTable(os.Stdout, "sections", "program", ">scenes", ">of these equal", ">frames", ">samples", ">of these equal", "libgcc_s", "why the others are not")
	for i := range variants {
		errs = append(errs, g.variant(&variants[i]))
	}
	fmt.Printf("%.0f s\n", time.Since(start).Seconds())
	return errors.Join(errs...)
}

// variant runs all programs with the sections of a variant.
func (g *glibc) variant(v *variant) error {
	dir := filepath.Join(g.root, g.scratch)
	// What is under test: files of the glibc, and a library of ours.
	libs := filepath.Join(dir, "libs")
	if err := os.RemoveAll(libs); err != nil {
		return err
	}
	if err := os.Mkdir(libs, 0o755); err != nil {
		return err
	}
	for _, name := range libraryNames {
		in, out := filepath.Join(g.root, "opt/glibc/lib", name), filepath.Join(libs, name)
		if err := g.section(in, out, v.libc, v.own); err != nil {
			return err
		}
	}
	// The system's libm is of the same release.
	system := filepath.Join(g.root, "usr/lib/x86_64-linux-gnu")
	ours := []string{filepath.Join(system, "libm.so.6")}
	for _, l := range loaded {
		ours = append(ours, filepath.Join(dir, l.file))
	}
	for _, in := range ours {
		if err := g.section(in, filepath.Join(libs, filepath.Base(in)), v.program, false); err != nil {
			return err
		}
	}
	// C++ has its library, and a libgcc whose unwinder finds nothing.
	cxx := filepath.Join(dir, "cxx")
	if err := os.RemoveAll(cxx); err != nil {
		return err
	}
	if err := os.Mkdir(cxx, 0o755); err != nil {
		return err
	}
	if err := g.section(filepath.Join(system, "libstdc++.so.6"), filepath.Join(cxx, "libstdc++.so.6"), v.program, false); err != nil {
		return err
	}
	libgcc := filepath.Join(cxx, "libgcc_s.so.1")
	if err := g.section(filepath.Join(system, "libgcc_s.so.1"), libgcc, v.program, false); err != nil {
		return err
	}
	if err := breakFunction(libgcc, "_Unwind_Backtrace"); err != nil {
		return err
	}
	var errs []error
	for i := range programs {
		if err := g.program(v, &programs[i]); err != nil {
			errs = append(errs, fmt.Errorf("glibc, %s, %s: %w", v.name, programs[i].name, err))
		}
	}
	return errors.Join(errs...)
}

// section copies a file with a section of the given form, or with the one that it has.
func (g *glibc) section(in, out string, opt convert.Options, own bool) error {
	in, err := filepath.EvalSymlinks(in)
	if err != nil {
		return err
	}
	if !own {
		opt.Force = true
		_, err := files.Convert(context.Background(), in, out, files.Options{Options: opt, NoSync: true})
		return err
	}
	b, err := os.ReadFile(in)
	if err != nil {
		return err
	}
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		return err
	}
	if s, err := sframe.FromELF(f); err != nil {
		return fmt.Errorf("%s: %w", in, err)
	} else if s.Version != sframe.V2 {
		return fmt.Errorf("%s has a section of %v; V2 was expected, which this glibc reads", in, s.Version)
	}
	return os.WriteFile(out, b, 0o755)
}

// breakFunction has a function of a library do nothing but return _URC_END_OF_STACK.
func breakFunction(path, name string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		return err
	}
	syms, err := f.DynamicSymbols()
	if err != nil {
		return err
	}
	i := slices.IndexFunc(syms, func(s elf.Symbol) bool { return s.Name == name })
	if i < 0 {
		return fmt.Errorf("%s has no %s", path, name)
	}
	const code = "\xb8\x05\x00\x00\x00\xc3" // mov $5, %eax; ret
	for _, p := range f.Progs {
		if at := syms[i].Value; p.Type == elf.PT_LOAD && at >= p.Vaddr && at+uint64(len(code)) <= p.Vaddr+p.Filesz {
			copy(b[p.Off+at-p.Vaddr:], code)
			return os.WriteFile(path, b, 0o755)
		}
	}
	return fmt.Errorf("%s is not in a segment of %s", name, path)
}

// program runs one program, and judges what it prints.
func (g *glibc) program(v *variant, p *program) error {
	dir := filepath.Join(g.root, g.scratch)
	// C++ throws nothing where chains cannot be had: it is for formats that glibc reads.
	if p.cxx && v.nothing {
		return nil
	}
	opt := v.program
	if err := g.section(filepath.Join(dir, p.file), filepath.Join(dir, "run"), opt, false); err != nil {
		return err
	}
	in := func(name string) string { return g.scratch + "/" + name }
	samples := g.samples
	switch {
	case p.libgcc == noLibgcc:
		samples = 0
	case v.nothing:
		samples = min(samples, 10)
	}
	var args []string
	path := in("libs")
	if p.libgcc == emptyLibgcc {
		path += ":" + in("cxx")
	}
	if !p.static {
		args = []string{in("libs/ld-linux-x86-64.so.2"), "--inhibit-cache", "--library-path", path}
	}
	args = append(args, in("run"))
	if !p.cxx {
		library := in("libs/library.so")
		if p.static {
			library = "-"
		}
		args = append(args, library, strconv.Itoa(samples))
	}
	out, err := g.inside(args...)
	if err != nil {
		return err
	}
	o, err := parseOutcome(out)
	if err != nil {
		return err
	}
	ex := explainer{files: make(map[string]*explained), folders: []string{filepath.Join(dir, "libs"), filepath.Join(dir, "cxx"), dir}}
	return o.judge(g.table, v, p, &ex)
}

// judge prints what came out, and returns what is not as it should be.
func (o *outcome) judge(table kit.Table, v *variant, p *program, ex *explainer) error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(o.scenes) != p.scenes {
		fail("%d scenes; %d were expected", len(o.scenes), p.scenes)
	}
	if want := map[string]string{noLibgcc: "none", emptyLibgcc: "there"}[p.libgcc]; o.libgcc != want && !p.cxx {
		fail("libgcc_s.so.1 is %q; %q was expected", o.libgcc, want)
	}
	equal, frames := 0, 0
	causes := make(map[cause]int)
	// Those of other people's sections are explained only, and so is everything where the format is not read.
	judged := !v.own && !v.nothing
	for i := range o.scenes {
		s := &o.scenes[i]
		if s.verdict == "equal" {
			equal++
			frames += s.frames
		}
		limit, limited := limits[s.name]
		if v.program.NoPadding && slices.Contains(padded, s.name) {
			limit, limited = afterCall, true
		}
		switch {
		case v.nothing && s.verdict != "nothing":
			fail("%s: %s; nothing was expected", s.name, s.verdict)
		case v.nothing:
		case s.verdict == "equal" && limited && judged:
			fail("%s: equal; it was not to be because of: %s", s.name, limit)
		case s.verdict == "equal":
		default:
			why, err := ex.explain(s.pair)
			if err != nil {
				fail("%s: %w", s.name, err)
			}
			causes[why]++
			if why == "" || judged && (!limited || why != limit) {
				fail("%s: %s, because of: %s%v", s.name, s.verdict, cmp.Or(why, "nothing that is known"), s.pair)
			}
		}
	}
	all, same := 0, 0
	for _, s := range o.samples {
		all += s.all
		same += s.all - s.failed
		if v.nothing && s.failed != s.all {
			fail("samples %s: of %d, %d have a chain", s.name, s.all, s.all-s.failed)
		}
		if v.nothing {
			continue
		}
		if len(s.pairs) != s.failed {
			fail("samples %s: %d are not equal, and %d are printed", s.name, s.failed, len(s.pairs))
		}
		for _, pair := range s.pairs {
			why, err := ex.explain(pair)
			if err != nil {
				fail("samples %s: %w", s.name, err)
			}
			causes[why]++
			if why == "" || judged && !slices.Contains(excuses, why) {
				fail("samples %s: not equal, because of: %s%v", s.name, cmp.Or(why, "nothing that is known"), pair)
			}
		}
	}
	if !p.cxx && len(o.samples) != 2 {
		fail("%d lines about samples; 2 were expected", len(o.samples))
	}
	var why []string
	for _, c := range slices.Sorted(maps.Keys(causes)) {
		why = append(why, fmt.Sprintf("%d %s", causes[c], c))
	}
	table.Row(v.name, p.name, len(o.scenes), equal, frames, all, same, p.libgcc, strings.Join(why, "; "))
	return errors.Join(errs...)
}

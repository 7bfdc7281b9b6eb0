package main

import (
	"bytes"
	"context"
	"debug/elf"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"cfi2sframe/convert"
	"cfi2sframe/sframe"
)

//go:embed c
var sources embed.FS

// A glibc is a C library that was built to read .sframe, in the root folder of a system.
type glibc struct {
	root    string // of the system
	scratch string // folder inside it, by its path there
	samples int
}

// inside runs a command in the system, with nothing in the environment but PATH and LC_ALL.
func (g *glibc) inside(args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
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
	v2max   = convert.Options{Version: sframe.V2, Share: convert.ShareMax}
	v3      = convert.Options{Version: sframe.V3}
)

var variants = []variant{
	{name: "--for glibc", libc: v2, program: v2},
	{name: "--for glibc, libraries as GNU wrote them", own: true, program: v2},
	{name: "--format 2 --pcrel", libc: v2pcrel, program: v2pcrel},
	{name: "--format 2 --share=max", libc: v2max, program: v2max},
	{name: "--format 3", libc: v3, program: v3, nothing: true},
}

// limits are the scenes in which glibc or V2 cannot do it, with what backtrace() gives without libgcc. One that comes out
// equal fails the run: what is known of it has changed then.
var limits = map[string]string{
	"realigned stack":           "nothing", // V2 has no form for it
	"call that does not return": "differs", // glibc looks up the return address, not one less
}

// A scene is a line that a program prints.
type scene struct {
	name    string
	frames  int
	verdict string
	chains  string // if they are not equal
}

var sceneLine = regexp.MustCompile(`^(\S.*) (\d+) (equal|nothing|differs)$`)
var sampleLine = regexp.MustCompile(`^samples (.*): (\d+), differs (\d+), nothing (\d+)$`)

// A sampled is what a profiling timer found.
type sampled struct {
	name              string
	all, wrong, empty int
	chains            string
}

// An outcome is what a program printed.
type outcome struct {
	scenes    []scene
	samples   []sampled
	libgcc    string
	fallbacks string
}

func parseOutcome(out []byte) *outcome {
	var o outcome
	var chains *string
	for line := range strings.Lines(string(out)) {
		line = strings.TrimRight(line, "\n")
		if m := sampleLine.FindStringSubmatch(line); m != nil {
			s := sampled{name: m[1]}
			s.all, _ = strconv.Atoi(m[2])
			s.wrong, _ = strconv.Atoi(m[3])
			s.empty, _ = strconv.Atoi(m[4])
			o.samples = append(o.samples, s)
			chains = &o.samples[len(o.samples)-1].chains
		} else if m := sceneLine.FindStringSubmatch(line); m != nil {
			n, _ := strconv.Atoi(m[2])
			o.scenes = append(o.scenes, scene{name: m[1], frames: n, verdict: m[3]})
			chains = &o.scenes[len(o.scenes)-1].chains
		} else if strings.HasPrefix(line, "  ") && chains != nil {
			*chains += "\n" + line
		} else if rest, ok := strings.CutPrefix(line, "libgcc_s: "); ok {
			o.libgcc = rest
		} else if rest, ok := strings.CutPrefix(line, "fallbacks: "); ok {
			o.fallbacks = rest
		}
	}
	return &o
}

// A program is a test program, and how it is run.
type program struct {
	name    string
	compile string // with gcc, in the scratch folder
	args    []string
	cxx     bool // it needs libgcc_s, of which _Unwind_Backtrace is made to die
	static  bool
	scenes  int // that it has
}

// Frames are found by SP or by FP, as the compiler was told. The start files and archives of a static program are those
// of the glibc under test.
var programs = []program{
	{name: "C", compile: "gcc-16 -O2 -static-libgcc -Wl,-z,lazy,-E chain.c -o C -lm", scenes: 33},
	{name: "C-O0", compile: "gcc-16 -O0 -static-libgcc -Wl,-z,now,-E chain.c -o C-O0 -lm", scenes: 33},
	{name: "C-fp", compile: "gcc-16 -O2 -fno-omit-frame-pointer -fcf-protection=full -static-libgcc -Wl,-z,lazy,-E chain.c -o C-fp -lm", scenes: 33},
	{name: "C-static", compile: "gcc-16 -O2 -DSTATIC -static -Wl,--wrap=_Unwind_Backtrace -B/opt/binutils/ -B/opt/glibc/lib/ -L/opt/glibc/lib chain.c -o C-static -lm", static: true, scenes: 30},
	{name: "C++", compile: "g++-16 -O2 -static-libgcc -Wl,-z,lazy,-E chainxx.cc -o C++", cxx: true, scenes: 17},
}

// libraryNames are the files of glibc under test, in /opt/glibc/lib of the system.
var libraryNames = []string{"ld-linux-x86-64.so.2", "libc.so.6", "libm.so.6"}

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
	for _, name := range []string{"chain.c", "chainlib.c", "chainxx.cc"} {
		b, err := sources.ReadFile("c/" + name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(scratch, name), b, 0o666); err != nil {
			return err
		}
	}
	script := "cd " + g.scratch + "\ngcc-16 -O2 -shared -fPIC -Wl,-z,lazy chainlib.c -o library.so\n"
	for _, p := range programs {
		script += p.compile + "\n"
	}
	if _, err := g.inside("sh", "-ec", script); err != nil {
		return err
	}
	var errs []error
	fmt.Println("| sections | program | scenes | of these equal | frames | samples | of these equal | without libgcc |")
	fmt.Println("| --- | --- | ---: | ---: | ---: | ---: | ---: | --- |")
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
	if err := g.section(filepath.Join(dir, "library.so"), filepath.Join(libs, "library.so"), v.program, false); err != nil {
		return err
	}
	// C++ has its library, and a libgcc whose unwinder dies.
	cxx := filepath.Join(dir, "cxx")
	if err := os.RemoveAll(cxx); err != nil {
		return err
	}
	if err := os.Mkdir(cxx, 0o755); err != nil {
		return err
	}
	lib := filepath.Join(g.root, "usr/lib/x86_64-linux-gnu")
	if err := g.section(filepath.Join(lib, "libstdc++.so.6"), filepath.Join(cxx, "libstdc++.so.6"), v.program, false); err != nil {
		return err
	}
	deadly := filepath.Join(cxx, "libgcc_s.so.1")
	if err := g.section(filepath.Join(lib, "libgcc_s.so.1"), deadly, v.program, false); err != nil {
		return err
	}
	if err := breakFunction(deadly, "_Unwind_Backtrace"); err != nil {
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
		_, err := convert.File(context.Background(), in, out, convert.FileOptions{Options: opt, NoSync: true})
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

// breakFunction has a function of a library die.
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
	for _, p := range f.Progs {
		if at := syms[i].Value; p.Type == elf.PT_LOAD && at >= p.Vaddr && at+2 <= p.Vaddr+p.Filesz {
			copy(b[p.Off+at-p.Vaddr:], "\x0f\x0b") // ud2
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
	if err := g.section(filepath.Join(dir, p.name), filepath.Join(dir, "run"), opt, false); err != nil {
		return err
	}
	in := func(name string) string { return g.scratch + "/" + name }
	samples := g.samples
	if v.nothing {
		samples = min(samples, 10)
	}
	var args []string
	path := in("libs")
	if p.cxx {
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
	o := parseOutcome(out)
	return o.judge(v, p)
}

// judge prints what came out, and returns what is not as it should be.
func (o *outcome) judge(v *variant, p *program) error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(o.scenes) != p.scenes {
		fail("%d scenes; %d were expected", len(o.scenes), p.scenes)
	}
	how := "none can be loaded"
	switch {
	case p.static:
		how = "its unwinder is replaced"
		if (o.fallbacks == "0") == v.nothing {
			fail("%s calls of the unwinder that backtrace() falls back to", o.fallbacks)
		}
	case p.cxx:
		how = "its unwinder dies"
	case o.libgcc != "none":
		fail("libgcc_s.so.1 is %q; none was expected", o.libgcc)
	}
	equal, frames := 0, 0
	for _, s := range o.scenes {
		want := "equal"
		if l, ok := limits[s.name]; ok {
			want = l
		}
		if v.nothing {
			want = "nothing"
		}
		if s.verdict != want {
			fail("%s: %s; %s was expected%s", s.name, s.verdict, want, s.chains)
		}
		if s.verdict == "equal" {
			equal++
			frames += s.frames
		}
	}
	all, same := 0, 0
	for _, s := range o.samples {
		all += s.all
		same += s.all - s.wrong - s.empty
		if wrong := s.all - s.empty; !v.nothing && s.wrong+s.empty > 0 || v.nothing && wrong > 0 {
			fail("samples %s: of %d, %d differ and %d are empty%s", s.name, s.all, s.wrong, s.empty, s.chains)
		}
	}
	if !p.cxx && len(o.samples) != 2 {
		fail("%d lines about samples; 2 were expected", len(o.samples))
	}
	fmt.Printf("| %s | %s | %d | %d | %d | %d | %d | %s |\n", v.name, p.name, len(o.scenes), equal, frames, all, same, how)
	return errors.Join(errs...)
}

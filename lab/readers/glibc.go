package readers

import (
	"cmp"
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

	"cfi2sframe/lab/kit"
)

//go:embed c
var sources embed.FS

// A glibc is a C library that was built to read .sframe, in the root directory of a system.
type glibc struct {
	tool    string // cfi2sframe
	root    string // of the system
	scratch string // directory inside it, by its path there
	samples int
	table   kit.Table
}

// inside runs a command in the system, with PATH and LC_ALL as its environment, for up to three minutes.
func (g *glibc) inside(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "chroot", append([]string{g.root}, args...)...)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, out[max(0, len(out)-2000):])
	}
	return string(out), nil
}

// variants are flags by which the program, glibc and the other libraries are converted.
var variants = []string{"--for glibc", "--format 2 --pcrel", bare, unread}

const (
	bare   = "--format 2 --padding=off"
	unread = "--format 3" // this glibc does not read it, so that there are no chains without libgcc
)

// limits are the scenes that cannot be equal, and why. An equal one fails the run: then glibc has changed.
var limits = map[string]string{
	"realigned stack":           "V2 has no form for its CFI",
	"call that does not return": "no padding follows it",
	"__chk_fail":                "no padding follows cold code of glibc",
	"std::terminate":            "no padding follows cold code of libstdc++",
	"jump to nowhere":           "the code is in no file",
	"makecontext":               "it ends in a function that nothing calls, and FP is not 0",
}

// padded are the scenes with a return address in the padding after a function.
var padded = []string{
	"abort", "__stack_chk_fail", "throw", "Rust panic",
	"on_exit", "atexit", "std::atexit", "destructor of a static object",
}

// A program is a test program, and how it is run.
type program struct {
	name    string
	file    string
	compile string // makes the file
	libgcc  string // that backtrace() can use without SFrame
	args    string // before the number of samples, which is "" without them
	scenes  int    // that it has
}

// If libgcc_s.so.1 is missing, backtrace() tries dlopen each time, which a signal handler must not do. So programs that
// are interrupted have one that finds nothing.
const (
	noLibgcc     = "none"
	emptyLibgcc  = "there"
	staticLibgcc = "" // its unwinder is replaced
)

// gcc protects functions that ask for it from damage to the stack.
const gcc = "gcc-16 -fstack-protector-explicit -Wl,-E "

// Frames are found by SP or by FP, as the compiler was told. The start files and archives of a static program are those
// of the glibc under test.
var programs = []program{
	{"C", "C", gcc + "-O2 -static-libgcc -Wl,-z,lazy chain.c -o C -lm", noLibgcc, "library", 36},
	{"C, interrupted", "C", ":", emptyLibgcc, "library", 36},
	{"C, -O0 -z now", "C-O0", gcc + "-O0 -static-libgcc -Wl,-z,now chain.c -o C-O0 -lm", noLibgcc, "library", 36},
	{"C, frame pointers, interrupted", "C-fp", gcc + "-O2 -fno-omit-frame-pointer -fcf-protection=full " +
		"-static-libgcc -Wl,-z,lazy chain.c -o C-fp -lm", emptyLibgcc, "library", 36},
	{"C, static, interrupted", "C-static", gcc + "-O2 -DSTATIC -static -Wl,--wrap=_Unwind_Backtrace " +
		"-B/opt/binutils/ -B/opt/glibc/lib/ -L/opt/glibc/lib chain.c -o C-static -lm", staticLibgcc, "-", 33},
	{"C++", "C++", "g++-16 -O2 -static-libgcc -Wl,-z,lazy,-E chainxx.cc -L. -lrust -o C++", emptyLibgcc, "", 20},
}

// loaded makes the libraries that programs load.
const loaded = `gcc-16 -O2 -shared -fPIC -Wl,-z,lazy chainlib.c -o library.so
rustc -O --crate-type cdylib last.rs -o librust.so`

func runGlibc(root string, samples int) error {
	scratch, err := os.MkdirTemp(filepath.Join(root, "tmp"), "cfi2sframe-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	if err := os.Chmod(scratch, 0o755); err != nil {
		return err
	}
	g := &glibc{filepath.Join(scratch, "cfi2sframe"), root, "/tmp/" + filepath.Base(scratch), samples, kit.Table{}}
	if err := errors.Join(kit.BuildProduct(g.tool), os.CopyFS(scratch, sources)); err != nil {
		return err
	}
	script := "cd " + g.scratch + "\ncp c/* .\n" + loaded
	for _, p := range programs {
		script += "\n" + p.compile
	}
	if _, err := g.inside("sh", "-ec", script); err != nil {
		return err
	}
	g.table = kit.NewTable(os.Stdout, "sections", "program", ">scenes", ">equal", ">samples", ">equal")
	var errs []error
	for _, flags := range variants {
		errs = append(errs, g.variant(flags))
	}
	return errors.Join(errs...)
}

// variant runs all programs with the sections of a variant.
func (g *glibc) variant(flags string) error {
	dir := filepath.Join(g.root, g.scratch)
	system := filepath.Join(g.root, "usr/lib/x86_64-linux-gnu")
	libs, empty := filepath.Join(dir, "libs"), filepath.Join(dir, "empty")
	for _, made := range []string{libs, empty} {
		if err := cmp.Or(os.RemoveAll(made), os.Mkdir(made, 0o755)); err != nil {
			return err
		}
	}
	// The system's libm is of the same release.
	for _, in := range []string{
		filepath.Join(g.root, "opt/glibc/lib/ld-linux-x86-64.so.2"), filepath.Join(g.root, "opt/glibc/lib/libc.so.6"),
		filepath.Join(system, "libm.so.6"), filepath.Join(system, "libstdc++.so.6"),
		filepath.Join(dir, "library.so"), filepath.Join(dir, "librust.so"),
	} {
		if err := g.convert(flags, in, filepath.Join(libs, filepath.Base(in))); err != nil {
			return err
		}
	}
	libgcc := filepath.Join(empty, "libgcc_s.so.1")
	if err := g.convert(flags, filepath.Join(system, "libgcc_s.so.1"), libgcc); err != nil {
		return err
	}
	if err := breakFunction(libgcc, "_Unwind_Backtrace"); err != nil {
		return err
	}
	var errs []error
	for i := range programs {
		p := &programs[i]
		if p.name == "C++" && flags == unread {
			continue
		}
		if err := g.program(flags, p); err != nil {
			errs = append(errs, fmt.Errorf("glibc, %s, %s: %w", flags, p.name, err))
		}
	}
	return errors.Join(errs...)
}

// convert converts a file.
func (g *glibc) convert(flags, in, out string) error {
	r, err := kit.Convert(g.tool, in, out, append(strings.Fields(flags), "--force")...)
	if err == nil && r.Why != "" {
		err = fmt.Errorf("%s: %s", in, r.Why)
	}
	return err
}

// breakFunction makes a function of a library return _URC_END_OF_STACK.
func breakFunction(path, name string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	e, err := elf.NewFile(f)
	if err != nil {
		return err
	}
	syms, err := e.DynamicSymbols()
	if err != nil {
		return err
	}
	const code = "\xb8\x05\x00\x00\x00\xc3" // mov $5, %eax; ret
	for _, s := range syms {
		for _, p := range e.Progs {
			if s.Name == name && p.Type == elf.PT_LOAD && s.Value >= p.Vaddr && s.Value < p.Vaddr+p.Filesz {
				_, err := f.WriteAt([]byte(code), int64(p.Off+s.Value-p.Vaddr))
				return err
			}
		}
	}
	return fmt.Errorf("%s has no %s", path, name)
}

// program runs one program, and judges its output.
func (g *glibc) program(flags string, p *program) error {
	dir := filepath.Join(g.root, g.scratch)
	if err := g.convert(flags, filepath.Join(dir, p.file), filepath.Join(dir, "run")); err != nil {
		return err
	}
	in := func(name string) string { return g.scratch + "/" + name }
	args := []string{in("run")}
	if p.libgcc != staticLibgcc {
		path := in("libs")
		if p.libgcc == emptyLibgcc {
			path += ":" + in("empty")
		}
		args = []string{in("libs/ld-linux-x86-64.so.2"), "--inhibit-cache", "--library-path", path, in("run")}
	}
	if p.args != "" {
		samples := g.samples
		if flags == unread {
			samples = min(samples, 10)
		}
		if p.libgcc == noLibgcc {
			samples = 0
		}
		library := p.args
		if library == "library" {
			library = in("libs/library.so")
		}
		args = append(args, library, strconv.Itoa(samples))
	}
	out, err := g.inside(args...)
	if err != nil {
		return err
	}
	return judge(g.table, flags, p, out)
}

var (
	sceneLine  = regexp.MustCompile(`^(\S.*) \d+ (equal|nothing|differs)$`)
	sampleLine = regexp.MustCompile(`^samples .*: (\d+), not equal (\d+)$`)
)

// judge writes a row about the output of a program, and returns what is wrong.
func judge(table kit.Table, flags string, p *program, out string) error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	var scenes, equal, samples, failed, sampleLines int
	wrong := false // chains follow scenes and samples that are not equal
	for line := range strings.Lines(out) {
		line = strings.TrimSuffix(line, "\n")
		if m := sampleLine.FindStringSubmatch(line); m != nil {
			all, _ := strconv.Atoi(m[1])
			n, _ := strconv.Atoi(m[2])
			samples, failed, sampleLines, wrong = samples+all, failed+n, sampleLines+1, false
		} else if m := sceneLine.FindStringSubmatch(line); m != nil {
			scenes++
			name, verdict := m[1], m[2]
			if verdict == "equal" {
				equal++
			}
			limit := limits[name]
			if flags == bare && slices.Contains(padded, name) {
				limit = "padding is not covered"
			}
			switch {
			case flags == unread:
				wrong = verdict != "nothing"
			case limit != "":
				wrong = verdict == "equal"
			default:
				wrong = verdict != "equal"
			}
			if wrong {
				fail("%s; limit %q", line, limit)
			}
		} else if strings.HasPrefix(line, "  ") {
			if wrong {
				fail("%s", line)
			}
		} else if name, ok := strings.CutPrefix(line, "libgcc_s: "); !ok || name != p.libgcc {
			fail("unexpected output: %q", line)
		}
	}
	if scenes != p.scenes {
		fail("%d scenes, want %d", scenes, p.scenes)
	}
	if p.args != "" && sampleLines != 2 {
		fail("%d lines about samples, want 2", sampleLines)
	}
	// The rest are interrupted in code without CFI, or in CFI that V2 has no form for: _dl_runtime_resolve of ld.so.
	if flags == unread && failed < samples || flags != unread && failed*50 > samples {
		fail("%d of %d samples are not equal", failed, samples)
	}
	table.Row(flags, p.name, scenes, equal, samples, samples-failed)
	return errors.Join(errs...)
}

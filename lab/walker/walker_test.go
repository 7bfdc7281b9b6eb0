package walker

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/long"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/lab/kit"
	"cfi2sframe/sframe"
)

const (
	header   = "../../walker/sframe_walker.h"
	process  = "../../walker/sframe_process.h"
	readme   = "../../walker/README.md"
	fixtures = "../../testdata/bin"
)

// product is the path of cfi2sframe.
var product string

func TestMain(m *testing.M) { os.Exit(kit.Tests(m, &product)) }

// compile builds a program from directory c with one of this machine's compilers.
func compile(t *testing.T, name string, command ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), strings.TrimSuffix(name, ".c"))
	args := append(command[1:len(command):len(command)], "-std=c11", "-I", filepath.Dir(header),
		filepath.Join("c", name), "-o", out)
	must.Do(t, kit.Run("", append([]string{peer.Look(t, command[0])}, args...)...))
	return out
}

// sections returns the sections of all fixtures in all forms, sorted and unsorted.
func sections(t *testing.T, rnd *rand.Rand) (list []*section) {
	t.Helper()
	files := must.Get(kit.ELFFiles(fixtures))(t)
	out := filepath.Join(t.TempDir(), "out")
	for _, path := range files {
		for _, form := range Forms {
			if form == "--format 1" && strings.Contains(path, "s390x") { // V1 does not support it
				continue
			}
			convertTo(t, path, out, strings.Fields(form)...)
			s := must.Get(readSection(out))(t)
			s.name = path + " by " + form
			list = append(list, s, s.unsortedCopy(t, rnd))
		}
	}
	return list
}

// withTrailer returns the section followed by other bytes, which GNU ld may leave in PT_GNU_SFRAME.
func (s *section) withTrailer() *section {
	return &section{s.name + " and more", append(s.data[:len(s.data):len(s.data)], 0, 0, 0xff, 1, 2, 3), s.addr}
}

// movedCopy returns the section and its code at a different address, where repeated blocks start at other pcs.
func (s *section) movedCopy() *section { return &section{s.name + ", moved", s.data, s.addr + 4} }

// checkLookups checks that lookups by the walker and by package sframe have the same results in all sections.
func checkLookups(t *testing.T, list []*section, command ...string) {
	t.Helper()
	must.Do(t, compare(list, command...))
}

func TestLookups(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	list := sections(t, rnd)
	for _, s := range list[:len(list):len(list)] {
		list = append(list, s.withTrailer(), s.movedCopy())
	}
	checkLookups(t, list, compile(t, "query.c", "cc", "-O2"))
}

// TestEmpty adds more and more functions of size 0 at the address of a function with code. To limit the time of lookups
// in malicious sections, the walker skips at most 64 such functions in sorted sections, and then finds no row. It
// searches unsorted sections linearly, and always finds the row.
func TestEmpty(t *testing.T) {
	const bound = 64
	begin, addr := uint64(0x1000), uint64(0x8000)
	program := compile(t, "query.c", "cc", "-O2")
	c := must.Get(sframe.NewCodec(sframe.V2, sframe.AMD64Little))(t)
	row := sframe.Row{CFA: sframe.Rule{Base: sframe.SP, Offset: 8}}
	fre, _ := c.AppendRow(c.AppendStart(nil, 0, sframe.Addr1), &row, false)
	for _, test := range []struct {
		flags  sframe.Flags
		num    uint32
		at     uint64 // offset of the empty functions from the start of the function with code
		hidden bool
	}{
		{sframe.FDESorted, 1, 0, false}, {sframe.FDESorted, bound, 0, false}, {sframe.FDESorted, bound + 1, 0, true},
		{sframe.FDESorted, 10_000, 0, true}, {0, bound, 0, false}, {0, bound + 1, 0, false}, {0, 1000, 0, false},
		{sframe.FDESorted, 1, 4, false}, {sframe.FDESorted, 3, 4, false}, {0, 3, 4, false},
	} {
		fdes := c.AppendFDE(nil, &sframe.FDE{Start: begin, Size: 16}, begin-addr, &sframe.List{Num: 1})
		for range test.num {
			start := begin + test.at
			fdes = c.AppendFDE(fdes, &sframe.FDE{Start: start}, start-addr, &sframe.List{Off: uint32(len(fre))})
		}
		data := c.AppendHeader(nil, &sframe.Header{
			Flags: test.flags, NumFDEs: test.num + 1, NumFREs: 1, FRELen: uint32(len(fre)), FREOff: uint32(len(fdes)),
		})
		// Package sframe sorts all FDEs first, and always finds the function with code.
		s := &section{fmt.Sprintf("flags %#x, %d empty functions", test.flags, test.num),
			append(append(data, fdes...), fre...), addr}
		err := compare([]*section{s}, program)
		hidden := err != nil && strings.Contains(err.Error(), fmt.Sprintf("the walker returns status %d,", sfwNoRow))
		if hidden != test.hidden || (err != nil) != hidden {
			t.Errorf("%s: hidden %v; want %v: %v", s.name, hidden, test.hidden, err)
		}
	}
}

// TestDamaged expects equal results for damaged sections, and no reads outside of them.
func TestDamaged(t *testing.T) {
	sanitized := compile(t, "query.c", "cc", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
	rnd := rand.New(rand.NewPCG(5, 6))
	rounds := long.Pick(t, 10, 40)
	var list []*section
	sound, wrong := 0, 0
	for _, s := range sections(t, rnd) {
		for range rounds {
			d := s.damagedCopy(rnd)
			if _, err := sframe.Decode(d.data, d.addr); err == nil {
				sound++
			} else {
				wrong++
			}
			list = append(list, d)
		}
	}
	if sound < rounds || wrong < rounds {
		t.Errorf("%d damaged sections can be decoded, and %d cannot; want many of both", sound, wrong)
	}
	checkLookups(t, list, sanitized)
}

// TestCache expects repeated walks to use the cache for all lookups, entries of other generations to be ignored, and
// dlopen and dlclose to start new generations.
func TestCache(t *testing.T) {
	out, err := exec.Command(compile(t, "cache.c", "cc", "-O1", "-fsanitize=address,undefined")).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestOtherHosts runs the walker on aarch64 and on s390x, which is big-endian.
func TestOtherHosts(t *testing.T) {
	list := sections(t, rand.New(rand.NewPCG(7, 8)))
	for _, machine := range []string{"aarch64", "s390x"} {
		dir := peer.Run(t, "sid", machine+"-linux-gnu-gcc-16 -std=c11 -O2 -static query.c -o query", header,
			"c/query.c")
		emulator := peer.Tool(t, "sid", "qemu-"+machine)(filepath.Join(dir, "query"))
		checkLookups(t, list, emulator.Args...)
	}
}

// Compiler flags for warnings, and programs that use all functions of the core and of sframe_process.h.
const (
	warnings = "-std=c11 -Wall -Wextra -Wconversion -pedantic -Werror"
	uses     = `#include "sframe_walker.h"
enum sfw_how walk(const struct sfw_space *m, struct sfw_regs *r, struct sfw_frame *f,
	enum sfw_how *end, struct sfw_row *row);
enum sfw_how walk(const struct sfw_space *m, struct sfw_regs *r, struct sfw_frame *f,
	enum sfw_how *end, struct sfw_row *row) {
	struct sfw_section s;
	if (sfw_open(&s, m, 100, 0) == SFW_OK && sfw_check(&s) == SFW_OK && sfw_step(&s, r, m) == SFW_SFRAME)
		sfw_walk(m, r, f, 10, end);
	return sfw_lookup(m, 100, 0, 1, row);
}
`
	inProcess = `#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "sframe_process.h"
size_t walk(struct sfw_process *p, struct sfw_cache *c, const void *context, struct sfw_frame *f, enum sfw_how *end);
size_t walk(struct sfw_process *p, struct sfw_cache *c, const void *context, struct sfw_frame *f, enum sfw_how *end) {
	struct sfw_regs r;
	c->generation = sfw_generation();
	p->cache = c;
	sfw_regs_here(&r);
	sfw_regs_of_context(&r, context);
	return sfw_process_walk(p, &r, f, 10, end);
}
`
)

// TestCompilers expects no compiler warnings, and no undefined symbols in the core.
func TestCompilers(t *testing.T) {
	dir := t.TempDir()
	files := []string{header, filepath.Join(dir, "core.c"), filepath.Join(dir, "process.c"), process}
	testfile.Write(t, files[1], uses)
	testfile.Write(t, files[2], inProcess)
	for _, c := range []struct{ suite, command string }{
		{"", "gcc-12"},
		{"", "clang-14"},
		{"", "aarch64-linux-gnu-gcc-12"},
		{"trixie", "gcc-14"},
		{"sid", "gcc-16"},
		{"sid", "aarch64-linux-gnu-gcc-16"},
		{"sid", "s390x-linux-gnu-gcc-16"},
		{"sid", "clang-23"},
		{"sid", "clang-23 --target=aarch64-linux-gnu"},
		{"sid", "clang-23 --target=s390x-linux-gnu"},
		{"sid", "g++-16 -x c++ -std=c++20"},
	} {
		if c.suite == "" {
			peer.Look(t, c.command)
		}
		flags := strings.TrimPrefix(warnings, "-std=c11 ")
		standard := "-std=c11"
		if strings.Contains(c.command, "c++") {
			standard = ""
		}
		levels := []string{"-O0", "-O2"}
		if c.command == "gcc-16" || c.command == "clang-23" {
			levels = append(levels, "-O1", "-O3", "-Os")
		}
		var script strings.Builder
		for _, level := range levels {
			fmt.Fprintf(&script, "%s %s %s %s -ffreestanding -c core.c -o core.o\n", c.command, standard, flags, level)
			fmt.Fprintf(&script, "test -z \"$(nm -u core.o)\" || { nm -u core.o; exit 1; }\n")
		}
		fmt.Fprintf(&script, "%s %s %s -O2 -c process.c -o process.o\n", c.command, standard, flags)
		peer.Run(t, c.suite, script.String(), files...)
	}
}

// convertTo converts a file.
func convertTo(t *testing.T, in, out string, flags ...string) {
	t.Helper()
	if r, err := kit.Convert(product, in, out, append(flags, "--force")...); err != nil || r.Kept != "" {
		t.Fatalf("%s: %v %s", in, err, r.Kept)
	}
}

// format returns the flag for a version.
func format(v sframe.Version) string { return fmt.Sprint("--format=", int(v)) }

// withLibraries returns a directory with the converted program and converted copies of the system libraries it needs.
func withLibraries(t *testing.T, program string, version sframe.Version) string {
	t.Helper()
	const libs = "/lib/x86_64-linux-gnu"
	dir := t.TempDir()
	for _, l := range []string{"libc.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2"} {
		convertTo(t, peer.File(t, filepath.Join(libs, l)), filepath.Join(dir, l), format(version))
	}
	convertTo(t, program, filepath.Join(dir, filepath.Base(program)), format(version))
	return dir
}

// commandIn returns a command that runs a program in the directory with the libraries there.
func commandIn(dir, program string) *exec.Cmd {
	return exec.Command(filepath.Join(dir, "ld-linux-x86-64.so.2"), "--library-path", dir, filepath.Join(dir, program))
}

// wantPlaces expects the output of process.c: the words that can be read in the middle one of three pages, then the
// result of each walk.
func wantPlaces(t *testing.T, name string, version sframe.Version, out string) {
	t.Helper()
	want := "probe 0: 0 0 0 0 0 0 0\nprobe 1: 0 0 1 1 1 0 0\n"
	for _, place := range []string{
		"leaf", "qsort", "alloca", "aligned", "here", "nested", "nested info", "nested leaf",
	} {
		// With V3, walks reach the outermost frame. With V1 and V2 they end at _start, for which these versions have no
		// row, or on amd64 in the function that aligns its stack, which they cannot express.
		says, end, start := "equal", sfwNoRow, 1
		switch {
		case strings.Contains(name, "s390x") && place == "nested":
			says = "the peer repeats a frame" // because of the CFI in the vDSO of QEMU 11.1; the kernel's is correct
		case name == "" && version < sframe.V3 && place == "aligned":
			says, start = "the begin", 0
		}
		if version >= sframe.V3 {
			end = sfwOutermost
		}
		want += fmt.Sprintf("%s: %s, end %d, start %d\n", place, says, end, start)
	}
	if want += "interrupts: equal\n"; out != want {
		t.Errorf("%s %v: got\n%s\nexpected\n%s", name, version, out, want)
	}
}

// TestProcess walks stacks in signal handlers, with sections of each version and converted libraries, and compares the
// results with those of _Unwind_Backtrace (the peer).
func TestProcess(t *testing.T) {
	program := compile(t, "process.c", "gcc", "-O2")
	for _, version := range sframe.Versions() {
		out := must.Run(t, commandIn(withLibraries(t, program, version), filepath.Base(program)))
		wantPlaces(t, "", version, string(out))
	}
	// Without sections, walks end in the first frame.
	out, err := exec.Command(program).CombinedOutput()
	if err != nil || !strings.Contains(string(out), fmt.Sprintf("qsort: the begin, end %d, start 0", sfwNoSection)) {
		t.Errorf("not converted: %v\n%s", err, out)
	}
}

// TestOtherProcesses repeats TestProcess with static and dynamic programs on aarch64, with signed return addresses, and
// on s390x. On these machines, no section describes the kernel's signal frames: the walker recognises trampolines by
// their instructions.
func TestOtherProcesses(t *testing.T) {
	for _, m := range []struct{ machine, flags, ldso string }{
		{"aarch64", "-mbranch-protection=standard", "ld-linux-aarch64.so.1"},
		{"s390x", "", "ld64.so.1"},
	} {
		gcc := m.machine + "-linux-gnu-gcc-16 -std=c11 -O2 " + m.flags
		dir := peer.Run(t, "sid", "mkdir lib\n"+gcc+" process.c -o dynamic\n"+gcc+" -static process.c -o static",
			header, process, "c/process.c")
		libs := filepath.Join(peer.Root(t, "sid"), "usr", m.machine+"-linux-gnu", "lib")
		for _, version := range []sframe.Version{sframe.V2, sframe.V3} {
			for _, l := range []string{"libc.so.6", "libgcc_s.so.1", m.ldso} {
				convertTo(t, filepath.Join(libs, l), filepath.Join(dir, "lib", l), format(version))
			}
			for _, program := range []string{"static", "dynamic"} {
				converted := filepath.Join(dir, program+".sframe")
				convertTo(t, filepath.Join(dir, program), converted, format(version))
				out := must.Run(t, peer.Tool(t, "sid", "qemu-"+m.machine)("-L", dir, converted))
				wantPlaces(t, m.machine+", "+program, version, string(out))
			}
		}
	}
}

// TestReadme compiles the example, and runs it.
func TestReadme(t *testing.T) {
	_, code, ok := strings.Cut(string(testfile.Read(t, readme)), "```c\n")
	code, _, closed := strings.Cut(code, "```\n")
	if !ok || !closed {
		t.Fatal("no example")
	}
	dir := t.TempDir()
	path, program := filepath.Join(dir, "example.c"), filepath.Join(dir, "example")
	testfile.Write(t, path, code)
	cc := peer.Look(t, "cc") + " " + warnings + " -O2 -I " + filepath.Dir(header)
	must.Do(t, kit.Run("", append(strings.Fields(cc), path, "-o", program)...))
	dir = withLibraries(t, program, sframe.V3)
	out := must.Get(commandIn(dir, filepath.Base(program)).Output())(t)
	// The chain leads from raise in libc through main to _start.
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if n := len(lines); n < 6 || lines[n-1] != fmt.Sprintf("%d frames, end %d", n-1, sfwOutermost) {
		t.Errorf("the example prints\n%s", out)
	}
}

// TestFuzz runs the fuzzer for a few seconds.
func TestFuzz(t *testing.T) {
	peer.Look(t, "clang")
	const runs = "300000"
	out, err := exec.Command("../sh/fuzz-walker", runs).CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 2 {
		peer.Missing(t, strings.TrimSpace(string(out)))
	}
	if err != nil || !strings.Contains(string(out), "stat::number_of_executed_units: "+runs) {
		t.Errorf("%v\n%s", err, out)
	}
}

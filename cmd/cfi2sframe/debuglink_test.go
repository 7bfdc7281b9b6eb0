package main

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/long"
	"cfi2sframe/internal/testkit/peer"
)

// linkedSource has a function in which a debugger stops.
const linkedSource = `#include <stdio.h>
__attribute__((noinline)) int twice(int n) { printf("twice %d\n", n); return n * 2; }
#ifndef LIB
int main(int argc, char **argv) { return twice(argc + 20) > 40 ? 0 : 1; }
#endif
`

// A scene is a program whose debug information is split off.
type scene struct {
	*testing.T
	dir string
}

// newScene makes one by commands of the shell.
func newScene(t *testing.T, commands string) *scene {
	t.Helper()
	s := &scene{t, t.TempDir()}
	if err := os.WriteFile(filepath.Join(s.dir, "prog.c"), []byte(linkedSource), 0o666); err != nil {
		t.Fatal(err)
	}
	s.sh(commands)
	return s
}

// sh runs a command of the shell in the folder, and returns what it said.
func (s *scene) sh(command string) string {
	s.Helper()
	cmd := exec.Command("sh", "-ec", command)
	cmd.Dir = s.dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.Fatalf("%s: %v\n%s", command, err, out)
	}
	return string(out)
}

// convert runs the command in the folder, and expects the status.
func (s *scene) convert(status int, args ...string) string {
	s.Helper()
	s.Chdir(s.dir)
	var out bytes.Buffer
	if got := run(context.Background(), args, &out, &out); got != status {
		s.Fatalf("%q: status %d, %d expected: %s", args, got, status, &out)
	}
	return out.String()
}

func (s *scene) read(name string) []byte {
	s.Helper()
	b, err := os.ReadFile(filepath.Join(s.dir, name))
	if err != nil {
		s.Fatal(err)
	}
	return b
}

const (
	byObjcopy = `objcopy --only-keep-debug prog prog.debug; strip --strip-unneeded prog; objcopy --add-gnu-debuglink=prog.debug prog`
	byEu      = `eu-strip -f prog.debug prog`
)

// TestDebugLinkUpdate has gdb and eu-unstrip put together what was split before it was converted.
func TestDebugLinkUpdate(t *testing.T) {
	for _, tool := range []string{"gcc", "gdb", "objcopy", "eu-strip", "eu-unstrip"} {
		peer.Look(t, tool)
	}
	for _, tt := range []struct {
		name, build, split string
		long               bool // it takes long, and is like another one
	}{
		{"PIE, objcopy", "gcc -g -O1 -o prog prog.c", byObjcopy, false},
		{"PIE, eu-strip", "gcc -g -O1 -o prog prog.c", byEu, true},
		{"static, objcopy", "gcc -g -O1 -static -o prog prog.c", byObjcopy, true},
		{"static, eu-strip", "gcc -g -O1 -static -o prog prog.c", byEu, false},
		{"compressed", "gcc -g -O1 -gz=zlib -o prog prog.c", byObjcopy, true},
		{"no build-id", "gcc -g -O1 -Wl,--build-id=none -o prog prog.c", byObjcopy, false},
		{"gold", "gcc -g -O1 -fuse-ld=gold -o prog prog.c", byObjcopy, true},
		{"lld", "gcc -g -O1 -fuse-ld=lld -o prog prog.c", byEu, true},
		{"shared library", "gcc -g -O1 -shared -fPIC -DLIB -o prog prog.c", byObjcopy, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.long {
				long.Test(t)
			}
			if strings.Contains(tt.build, "lld") {
				peer.Look(t, "ld.lld")
			}
			s := newScene(t, tt.build+"; cp prog whole; "+tt.split)
			s.sh("mkdir before; cp -p prog prog.debug before")
			s.check("before", "before/prog", "before/prog.debug")

			s.sh("touch -d 2001-02-03 prog.debug; chmod 640 prog.debug")
			said := s.convert(exitDone, "--debug-link-update", "prog.debug", "--in-place", "prog")
			if !strings.Contains(said, "debug file prog.debug has the new headers") {
				t.Errorf("said %q", said)
			}
			if mode := s.sh("stat -c %a prog.debug"); mode != "640\n" {
				t.Errorf("mode %s", mode)
			}
			s.check("after", "prog", "prog.debug")
			s.convert(exitDone, "check", "-q", "prog")

			prog, debug, stat := s.read("prog"), s.read("prog.debug"), s.sh("stat -c '%i %Y' prog.debug")
			s.convert(exitDone, "-q", "--force", "--debug-link-update", "auto", "--in-place", "prog")
			if !bytes.Equal(prog, s.read("prog")) || !bytes.Equal(debug, s.read("prog.debug")) ||
				stat != s.sh("stat -c '%i %Y' prog.debug") {
				t.Error("once more makes a difference")
			}

			s.convert(exitDone, "-q", "--force", "--format", "3", "--debug-link-update", "prog.debug",
				"--in-place", "prog")
			s.check("format 3", "prog", "prog.debug")
			s.convert(exitDone, "remove", "-q", "--debug-link-update", "prog.debug", "--in-place", "prog")
			if strings.Contains(s.sh("readelf -SW prog prog.debug"), ".sframe") {
				t.Error(".sframe is still there")
			}
			s.check("removed", "prog", "prog.debug")
		})
	}
}

var symbolLine = regexp.MustCompile(`^ *\d+: ([0-9a-f]+) +(\S+) +(\S+) +(\S+) +\S+ +(\S+)(?: (\S+))?`)

// symbols returns the symbols of the .symtab of a file, by name, with what is not about headers that move.
func (s *scene) symbols(file string) []string {
	s.Helper()
	sections := make(map[string]string) // names, by index
	for _, m := range regexp.MustCompile(`(?m)^ *\[ *(\d+)\] (\S+)`).FindAllStringSubmatch(s.sh("readelf -SW "+file),
		-1) {
		sections[m[1]] = m[2]
	}
	var out []string
	for line := range strings.Lines(s.sh("readelf -sW " + file)) {
		m := symbolLine.FindStringSubmatch(line)
		if m == nil || m[3] == "SECTION" {
			continue
		}
		section, value := m[5], m[1]
		if name := sections[section]; name != "" {
			section = name
		}
		if strings.HasPrefix(section, ".note") { // they move, and so does what is in them
			value = "moves"
		}
		if m[6] != "" {
			out = append(out, fmt.Sprint(m[6], " ", value, " ", m[2], " ", m[3], " ", m[4], " ", section))
		}
	}
	slices.Sort(out)
	return out
}

// check has gdb and elfutils put a program and its debug file together.
func (s *scene) check(when, prog, debug string) {
	s.Helper()
	const lines = "readelf --debug-dump=decodedline %s 2>/dev/null | grep -E '^prog.c +[0-9]' || true"
	want := s.sh(fmt.Sprintf(lines, "whole"))
	if got := s.sh(fmt.Sprintf(lines, debug)); strings.Count(want, "\n") < 3 || got != want {
		s.Errorf("%s: lines\n%s\nexpected\n%s", when, got, want)
	}
	if got, want := s.symbols(debug), s.symbols("before/prog.debug"); !slices.Equal(got, want) {
		s.Errorf("%s: symbols\n%s\nexpected\n%s", when, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if s.sh("readelf -n 2>/dev/null "+prog) != s.sh("readelf -n 2>/dev/null "+debug) && when != "before" {
		s.Errorf("%s: notes\n%s\nand\n%s", when, s.sh("readelf -n 2>/dev/null "+prog),
			s.sh("readelf -n 2>/dev/null "+debug))
	}
	if when != "before" {
		s.headers(when, prog, debug)
	}
	run := "-ex 'break twice' -ex run -ex bt"
	library := strings.HasPrefix(s.Name(), "TestDebugLinkUpdate/shared")
	if library {
		run = ""
	}
	said := s.sh("gdb -nx -batch -ex 'info line twice' " + run + " " + prog)
	if strings.Contains(said, "warning") || strings.Contains(said, "not found") ||
		!strings.Contains(said, `Line 2 of "prog.c" starts`) ||
		!library && !regexp.MustCompile(`(?m)^#1 .* in main .* at prog.c:4$`).MatchString(said) {
		s.Errorf("%s: gdb says\n%s", when, said)
	}
	s.sh(fmt.Sprintf("rm -f joined; eu-unstrip %s %s -o joined", prog, debug))
	if got := s.sh(fmt.Sprintf(lines, "joined")); got != want {
		s.Errorf("%s: lines of the joined file\n%s", when, got)
	}
	if !library {
		if out := s.sh("./joined a"); out != "twice 22\n" {
			s.Errorf("%s: the joined file says %q", when, out)
		}
	}
}

// TestDebugLinkRefused has outputs that are also the debug file: nothing changes.
func TestDebugLinkRefused(t *testing.T) {
	for _, tool := range []string{"gcc", "objcopy", "eu-strip"} {
		peer.Look(t, tool)
	}
	s := newScene(t, "gcc -g -O1 -o prog prog.c; "+byObjcopy+"; gcc -g -O2 -o other prog.c")
	before := s.sh("sha256sum *")
	for _, tt := range []struct {
		args, want string
	}{
		{"--debug-link-update prog.debug --dry-run prog", "--debug-link-update requires -o or --in-place"},
		{"--debug-link-update prog.debug --in-place prog other",
			"2 input files with one debug file; use --debug-link-update auto"},
		{"--debug-link-update prog.debug prog -o -",
			"--debug-link-update cannot be combined with standard output"},
		{"--debug-link-update prog.debug prog -o ./prog.debug",
			"--debug-link-update prog.debug is also the output"},
		{"--debug-link-update prog.debug --report json --report-file prog.debug --in-place prog",
			"--report-file prog.debug is also the debug file"},
		{"--debug-link-update auto --report json --report-file ./prog.debug --in-place prog",
			"--report-file ./prog.debug is also the debug file"},
		{"--debug-file auto prog -o prog.debug", "-o prog.debug is also the debug file"},
		{"--debug-link-update auto prog -o prog.debug", "-o prog.debug is also the debug file"},
		{"--debug-file auto --report json --report-file prog.debug --dry-run other prog",
			"--report-file prog.debug is also the debug file"},
	} {
		if said := s.convert(exitUsage, append([]string{"--report", "none"},
			strings.Fields(tt.args)...)...); !strings.Contains(said, tt.want) {
			t.Errorf("%s: %q, %q expected", tt.args, said, tt.want)
		}
		if after := s.sh("sha256sum *"); after != before {
			t.Fatalf("%s: files changed", tt.args)
		}
	}
}

// headers expects both files to have the same segments, the notes among them, and the same loaded sections, and that
// symbols of sections are where these are.
func (s *scene) headers(when, prog, debug string) {
	s.Helper()
	var files [2]*elf.File
	for i, name := range []string{prog, debug} {
		f, err := elf.Open(filepath.Join(s.dir, name))
		if err != nil {
			s.Fatal(err)
		}
		defer f.Close()
		files[i] = f
	}
	p, d := files[0], files[1]
	if len(p.Progs) != len(d.Progs) {
		s.Fatalf("%s: %d segments, %d expected", when, len(d.Progs), len(p.Progs))
	}
	for i, h := range p.Progs {
		got := d.Progs[i]
		if got.Type != h.Type || got.Vaddr != h.Vaddr || got.Memsz != h.Memsz || got.Flags != h.Flags {
			s.Errorf("%s: segment %d is %+v, %+v expected", when, i, got.ProgHeader, h.ProgHeader)
		}
		if h.Type == elf.PT_NOTE {
			want, _ := io.ReadAll(h.Open())
			if b, err := io.ReadAll(got.Open()); err != nil || !bytes.Equal(b, want) {
				s.Errorf("%s: notes at %#x are %x, %x expected (%v)", when, h.Vaddr, b, want, err)
			}
		}
	}
	loaded := func(f *elf.File) []string {
		var out []string
		for _, sec := range f.Sections {
			if sec.Flags&elf.SHF_ALLOC != 0 {
				out = append(out, fmt.Sprintf("%s %#x %#x", sec.Name, sec.Addr, sec.Size))
			}
		}
		return out
	}
	if got, want := loaded(d), loaded(p); !slices.Equal(got, want) {
		s.Errorf("%s: loaded sections %q, %q expected", when, got, want)
	}
	symbols, err := d.Symbols()
	if err != nil && !errors.Is(err, elf.ErrNoSymbols) { // eu-strip leaves those of static programs where they are
		s.Fatal(err)
	}
	for _, sym := range symbols {
		if int(sym.Section) < len(d.Sections) && elf.ST_TYPE(sym.Info) == elf.STT_SECTION &&
			sym.Value != d.Sections[sym.Section].Addr {
			s.Errorf("%s: the symbol of section %s is at %#x, not %#x", when, d.Sections[sym.Section].Name, sym.Value,
				d.Sections[sym.Section].Addr)
		}
	}
}

package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/long"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/testfile"
)

// linkedSource contains a function in which a debugger stops.
const linkedSource = `#include <stdio.h>
__attribute__((noinline)) int twice(int n) { printf("twice %d\n", n); return n * 2; }
#ifndef LIB
int main(int argc, char **argv) { return twice(argc + 20) > 40 ? 0 : 1; }
#endif
`

// A scene is a directory with a program and its separate debug file.
type scene struct {
	*testing.T
	dir string
}

// newScene makes a scene with shell commands.
func newScene(t *testing.T, commands string) *scene {
	t.Helper()
	s := &scene{t, t.TempDir()}
	testfile.Write(t, filepath.Join(s.dir, "prog.c"), linkedSource)
	s.sh(commands)
	return s
}

// sh runs a shell command in the directory and returns its output.
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

// convert runs cfi2sframe in the directory and expects the status.
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
	return testfile.Read(s, filepath.Join(s.dir, name))
}

const (
	byObjcopy = `objcopy --only-keep-debug prog prog.debug; strip --strip-unneeded prog
		objcopy --add-gnu-debuglink=prog.debug prog`
	byEu = `eu-strip -f prog.debug prog`
)

// TestDebugLinkUpdate expects gdb and eu-unstrip to match a program with debug information that was split off before
// the conversion.
func TestDebugLinkUpdate(t *testing.T) {
	for _, tool := range []string{"gcc", "gdb", "objcopy", "eu-strip", "eu-unstrip", "eu-addr2line"} {
		peer.Look(t, tool)
	}
	for _, tt := range []struct {
		name, build, split string
		long               bool // slow, and similar to another case
	}{
		{"PIE, objcopy", "gcc -g -O1 -o prog prog.c", byObjcopy, false},
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
			if !strings.Contains(said, "headers of debug file prog.debug updated") {
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
				t.Error("a second update makes a difference")
			}

			s.convert(exitDone, "remove", "-q", "--debug-link-update", "prog.debug", "--in-place", "prog")
			if strings.Contains(s.sh("readelf -SW prog prog.debug"), ".sframe") {
				t.Error(".sframe is still present")
			}
			s.check("removed", "prog", "prog.debug")
		})
	}
}

// check expects gdb and elfutils to read a program and its debug file.
func (s *scene) check(when, prog, debug string) {
	s.Helper()
	const lines = "readelf --debug-dump=decodedline %s 2>/dev/null | grep -E '^prog.c +[0-9]' || true"
	want := s.sh(fmt.Sprintf(lines, "whole"))
	if got := s.sh(fmt.Sprintf(lines, debug)); strings.Count(want, "\n") < 3 || got != want {
		s.Errorf("%s: lines\n%s\nexpected\n%s", when, got, want)
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
		s.Errorf("%s: gdb prints\n%s", when, said)
	}
	// elfutils finds a different function in a static program that was converted without its debug file.
	const place = "eu-addr2line -f -e %s $(nm whole | sed -n 's/^\\([0-9a-f]*\\) T twice$/0x\\1/p')"
	if got := s.sh(fmt.Sprintf(place, prog)); !strings.HasPrefix(got, "twice\n") || !strings.Contains(got, "prog.c:2") {
		s.Errorf("%s: eu-addr2line prints %q", when, got)
	}
	s.sh(fmt.Sprintf("rm -f joined; eu-unstrip %s %s -o joined", prog, debug))
	if got := s.sh(fmt.Sprintf(lines, "joined")); got != want {
		s.Errorf("%s: lines of the joined file\n%s", when, got)
	}
	if !library {
		if out := s.sh("./joined a"); out != "twice 22\n" {
			s.Errorf("%s: the joined file prints %q", when, out)
		}
	}
}

package clients

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/lab/kit"
)

// TestQuick compares the stacks that all clients find in sqlite3, and expects SFrame to have a row for each frame.
func TestQuick(t *testing.T) {
	for _, name := range []string{"gcc", "make", "sqlite3"} {
		peer.Look(t, name)
	}
	for _, c := range clients {
		peer.File(t, c.preload)
	}
	out := must.Run(t, exec.Command("../../scripts/backtrace", "--quick"))
	for _, c := range clients {
		want := regexp.MustCompile(regexp.QuoteMeta("| "+c.name+" | sqlite3 | ") +
			`[1-9]\d{4,} \| \d{5,} \| 0 \| 0 \| `)
		if !c.timed && !want.Match(out) {
			t.Errorf("no %s in\n%s", want, out)
		}
	}
}

// TestOutside compares stacks found in signal handlers with those of a copy of libgcc's unwinder. None may be shorter.
func TestOutside(t *testing.T) {
	for _, name := range []string{"gcc", "g++", "make"} {
		peer.Look(t, name)
	}
	out, err := exec.Command("../../scripts/backtrace", "--outside", "--quick", "--only", "8 threads").CombinedOutput()
	if err != nil || !regexp.MustCompile(`8 threads \| 1 \| [1-9]\d* \| [1-9]\d* \| 0 \| 0 \| `).Match(out) {
		t.Errorf("%v\n%s", err, out)
	}
}

// liar implements backtrace() and omits its own frame. Some of its stacks have a wrong fifth frame, or end there.
const liar = `#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
int backtrace(void **pcs, int size) {
	int (*libc)(void **, int) = (int (*)(void **, int))dlsym(dlopen("libc.so.6", RTLD_LAZY), "backtrace");
	int n = libc(pcs, size) - 1;
	memmove(pcs, pcs + 1, n * sizeof *pcs);
	if (getenv("LIE") != NULL)
		pcs[4] = (char *)pcs[4] + 1;
	return getenv("CUT") != NULL ? 4 : n;
}
`

// TestCompare expects compare.c to notice wrong stacks.
func TestCompare(t *testing.T) {
	peer.Look(t, "gcc")
	peer.File(t, debianLib+"libunwind.so.8")
	dir := t.TempDir()
	source := filepath.Join(dir, "liar.c")
	testfile.Write(t, source, liar)
	build := func(args ...string) {
		must.Do(t, kit.Run("", append([]string{"gcc"}, args...)...))
	}
	program, compare := filepath.Join(dir, "program"), filepath.Join(dir, "compare.so")
	lies := filepath.Join(dir, "liar.so")
	build("-O2", "c/glibc.c", "-o", program)
	build("-O2", "-shared", "-fPIC", "c/compare.c", "-o", compare)
	build("-O2", "-shared", "-fPIC", source, "-o", lies)
	for _, c := range []struct {
		env            string
		differ, behind uint64
	}{{"NONE", 0, 0}, {"LIE", 1, 0}, {"CUT", 0, 1}} {
		out := filepath.Join(dir, "out"+c.env)
		cmd := exec.Command(program, "5", "0")
		cmd.Env = append(os.Environ(), "COMPARE_OUT="+out, c.env+"=1",
			"LD_PRELOAD="+strings.Join([]string{compare, lies, "libunwind.so.8", "libgcc_s.so.1"}, ":"))
		must.Run(t, cmd)
		r := &counts{n: make(map[string]uint64)}
		must.Do(t, r.addFile(out))
		n := r.n
		if n["stacks"] != 1 || n["tally differ"] != c.differ || n["tally behind"] != c.behind || n["tally ahead"] != 0 {
			t.Errorf("%s: got %+v", c.env, r)
		}
		lines := r.explain()
		if len(lines) != len(r.tallies) || len(lines) > 0 && !strings.HasSuffix(lines[0], " in down") {
			t.Errorf("%s: explained as %q", c.env, lines)
		}
	}
}

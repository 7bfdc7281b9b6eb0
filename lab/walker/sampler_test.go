package walker

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/lab/kit"
	"cfi2sframe/sframe"
)

// TestSampler samples nested.c with the example, preloaded and linked, on glibc and on musl, and expects most samples
// in the functions that use the time.
func TestSampler(t *testing.T) {
	const (
		sampler = "../../walker/examples/sampler.c"
		nested  = "c/nested.c"
		musl    = "/usr/lib/x86_64-linux-musl/libc.so"
	)
	for _, test := range []struct {
		cc     string
		linked bool
	}{{"gcc", false}, {"gcc", true}, {"musl-gcc", false}, {"musl-gcc", true}} {
		t.Run(fmt.Sprintf("%s, linked %v", test.cc, test.linked), func(t *testing.T) {
			work := t.TempDir()
			program, library := filepath.Join(work, "nested"), filepath.Join(work, "sampler.so")
			build := func(flags ...string) {
				cc := strings.Fields(peer.Look(t, test.cc) + " " + warnings + " -O2")
				must.Do(t, kit.Run("", append(cc, flags...)...))
			}
			var env []string
			out := filepath.Join(work, "out")
			if test.linked {
				build("-rdynamic", sampler, nested, "-o", program)
				env = []string{"SAMPLER_OUT=" + out}
			} else {
				build("-shared", "-fPIC", sampler, "-o", library)
				build("-rdynamic", nested, "-o", program)
				env = []string{"LD_PRELOAD=" + library}
			}
			var cmd *exec.Cmd
			if test.cc == "gcc" {
				cmd = commandIn(withLibraries(t, program, sframe.V3), "nested")
			} else { // the C library is also the dynamic linker, and has no CFI
				dir := t.TempDir()
				libc, converted := filepath.Join(dir, "libc.so"), filepath.Join(dir, "nested")
				convertTo(t, peer.File(t, musl), libc, "--infer")
				convertTo(t, program, converted, "--infer")
				cmd = exec.Command(libc, converted)
			}
			cmd.Env = append(os.Environ(), env...)
			text := must.Get(cmd.CombinedOutput())(t)
			if test.linked {
				text = testfile.Read(t, out)
			}
			wantNested(t, string(text))
		})
	}
}

// wantNested expects about 70 samples in the main thread of nested.c, with whole stacks, and 30 in the other thread. No
// row describes the start of musl's threads.
func wantNested(t *testing.T, text string) {
	t.Helper()
	var all, main, worker, whole int
	for line := range strings.Lines(text) {
		space := strings.LastIndexByte(line, ' ')
		var n int
		if _, err := fmt.Sscan(line[space+1:], &n); space < 0 || err != nil {
			t.Fatalf("not a folded stack: %q", line)
		}
		all += n
		stack := ";" + line[:space] + ";"
		if !strings.HasPrefix(stack, ";[end") {
			whole += n
		}
		if strings.Contains(stack, ";main;outer;inner;") {
			main += n
		}
		if strings.Contains(stack, ";worker;outer;inner;") {
			worker += n
		}
	}
	if all < 30 || main < all/2 || worker < all/10 || main+worker < all*9/10 || whole < main*9/10 {
		t.Errorf("%d samples, %d in main, %d in worker, %d reach the outermost frame\n%s",
			all, main, worker, whole, text)
	}
}

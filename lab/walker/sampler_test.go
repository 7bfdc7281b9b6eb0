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

// TestProfiler walks as a profiler does, with separate sections, while files are loaded and unloaded.
func TestProfiler(t *testing.T) {
	for _, cc := range []string{"gcc", "gcc -fsanitize=address,undefined", "gcc -fsanitize=thread",
		"clang -fsanitize=thread", "musl-gcc"} {
		t.Run(cc, func(t *testing.T) {
			dir := t.TempDir()
			program := filepath.Join(dir, "profiler")
			words := strings.Fields(cc)
			build := func(args ...string) {
				peer.Look(t, words[0])
				args = append(args, "-O2", "-fno-omit-frame-pointer", "-mno-omit-leaf-frame-pointer", "-Wl,--build-id")
				must.Do(t, kit.Run("", append(words[:len(words):len(words)], args...)...))
			}
			build(append(strings.Fields(warnings), "-I", filepath.Dir(header), "c/profiler.c", "-o", program)...)
			files := []string{program}
			for _, size := range []string{"32", "96", "160"} {
				plugin := filepath.Join(dir, size+".so")
				build("-shared", "-fPIC", "-fno-sanitize=all", "-DSIZE="+size, "../backtrace/c/plugin.c", "-o", plugin)
				files = append(files, plugin)
			}
			sections := filepath.Join(dir, "sections")
			must.Do(t, kit.Run("", append([]string{product, "detach", "-q", "-o", sections}, files...)...))
			cmd := exec.Command(program, files[1:]...)
			cmd.Env = append(os.Environ(), "SFRAME_PATH="+sections)
			const all = "main: whole\nthreads: whole\nlookups: whole\nloaded: whole\nunmapped: early\n"
			want := all
			if words[0] == "musl-gcc" { // has no _dl_find_object
				want = strings.Replace(all, "loaded: whole\n", "", 1)
			}
			if out, err := cmd.CombinedOutput(); err != nil || string(out) != want {
				t.Errorf("%v\n%sexpected\n%s", err, out, want)
			}
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

// Package backtrace tests walker/backtrace.c: traces of unmodified programs are compared with those of libgcc, libc and
// libunwind in the same process.
package backtrace

import (
	"bytes"
	"cmp"
	"context"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"cfi2sframe/convert"
	"cfi2sframe/internal/files"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/sframe"
)

const (
	library = "libsframe-backtrace.so"
	libs    = "/lib/x86_64-linux-gnu"
	loader  = "ld-linux-x86-64.so.2"
	strict  = " -Wall -Wextra -Werror"
	// The Makefile's flags for the library.
	flags  = " -std=gnu11 -O2 -fPIC -fvisibility=hidden"
	shared = flags + " -shared -Wl,-z,now,-z,nodelete,-z,initfirst"
	code   = " backtrace.c libunwind.c files.c"
)

// sources returns all files that the tests compile.
func sources(t testing.TB) []string {
	t.Helper()
	list, err := filepath.Glob("c/*")
	if err != nil || len(list) == 0 {
		t.Fatal(err)
	}
	return append(list, librarySources(t)...)
}

// librarySources returns the source files of the library.
func librarySources(t testing.TB) []string {
	t.Helper()
	list, err := filepath.Glob("../../walker/*.[ch]")
	if err != nil || len(list) == 0 {
		t.Fatal(err)
	}
	return list
}

// builtLibrary holds the library for this machine, once a test has built it.
var builtLibrary []byte

// build compiles programs for this machine in a directory that contains the library.
func build(t testing.TB, commands ...string) string {
	t.Helper()
	peer.Look(t, "gcc")
	peer.File(t, filepath.Join(libs, "libgcc_s.so.1"))
	if builtLibrary == nil {
		dir := peer.Run(t, "", "gcc"+shared+strict+code+" -o "+library, librarySources(t)...)
		builtLibrary = testfile.Read(t, filepath.Join(dir, library))
	}
	dir := peer.Run(t, "", "", sources(t)...)
	must.Do(t, os.WriteFile(filepath.Join(dir, library), builtLibrary, 0o777))
	peer.Again(t, "", dir, strings.Join(commands, "\n"))
	return dir
}

const (
	traces  = "gcc -std=gnu11 -O2" + strict + " traces.c -o traces -pthread"
	plugins = "gcc -O2 -fPIC -shared -DSIZE=32 plugin.c -o one.so\ngcc -O2 -fPIC -shared -DSIZE=96 plugin.c -o two.so"
)

// convertAll writes converted copies of files into a directory.
func convertAll(t testing.TB, to string, version sframe.Version, paths ...string) {
	t.Helper()
	must.Do(t, os.MkdirAll(to, 0o777))
	for _, p := range paths {
		opt := files.Options{Work: files.Add(convert.Options{Version: version, Force: true}, "")}
		must.Get(files.Convert(context.Background(), p, filepath.Join(to, filepath.Base(p)), opt))(t)
	}
}

// systemLibraries returns the paths of the libraries that all programs need, and of those with the given names.
func systemLibraries(names ...string) []string {
	var list []string
	for _, name := range append(names, "libc.so.6", "libgcc_s.so.1", loader) {
		list = append(list, filepath.Join(libs, name))
	}
	return list
}

// run runs a program with the library, and with the other libraries from a directory, or the system's if that is "".
func run(t testing.TB, dir, libraries string, env []string, command ...string) string {
	t.Helper()
	preload := filepath.Join(dir, library)
	var cmd *exec.Cmd
	if libraries != "" {
		cmd = exec.Command(filepath.Join(libraries, loader), append([]string{
			"--library-path", libraries, "--preload", preload}, command...)...)
	} else {
		cmd = exec.Command(command[0], command[1:]...)
		env = append([]string{"LD_PRELOAD=" + preload}, env...)
	}
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	return string(must.Run(t, cmd))
}

// placeNames lists the situations in which traces.c captures traces if it loads no plugins.
var placeNames = []string{
	"first", "a call", "another call", "qsort", "deep", "alloca", "aligned", "n: handler", "in a handler in a handler",
	"alternate stack",
	"first in a thread, on an alternate stack", "thread", "coroutine", "between coroutines", "handler in a coroutine",
	"alternate stack in a coroutine", "on two stacks", "after fork",
}

// wantPlaces expects the traces captured at each place to be equal.
func wantPlaces(t *testing.T, name, out string, plugins ...string) {
	t.Helper()
	var want []string
	for _, place := range append(append(slices.Clone(placeNames), plugins...), "last") {
		want = append(want, place+": equal")
	}
	if got := strings.Split(strings.TrimSpace(out), "\n"); !slices.Equal(got, want) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, out, strings.Join(want, "\n"))
	}
}

// TestTraces runs programs, libraries and plugins with and without sections, in each combination that matters. Plugins
// loaded at the addresses of unloaded plugins show whether cached rows of the latter are dropped.
func TestTraces(t *testing.T) {
	dir := build(t, traces, plugins)
	inDir := func(names ...string) (list []string) {
		for _, name := range names {
			list = append(list, filepath.Join(dir, name))
		}
		return list
	}
	again := []string{"plugin 0, first", "plugin 1, at the same address", "plugin 2, at the same address"}
	for _, version := range []sframe.Version{sframe.V2, sframe.V3} {
		all := filepath.Join(dir, "all"+strconv.Itoa(int(version)))
		convertAll(t, all, version, append(systemLibraries(), inDir("traces", "one.so", "two.so")...)...)
		converted := func(name string) string { return filepath.Join(all, name) }
		for _, c := range []struct{ name, libraries, program, first, second string }{
			{"all", all, converted("traces"), converted("one.so"), converted("two.so")},
			{"program", "", converted("traces"), "./one.so", "./two.so"},
			{"libraries", all, "./traces", "./one.so", "./two.so"},
			{"one plugin", all, converted("traces"), converted("one.so"), "./two.so"},
			{"none", "", "./traces", "./one.so", "./two.so"},
		} {
			// A trace ends in interrupted code without a row, such as _start in V2.
			var env []string
			if version == sframe.V2 || c.name != "all" {
				env = []string{"SHORT=1"}
			}
			out := run(t, dir, c.libraries, env, c.program, c.first, c.second, c.first)
			// Files of different sizes may be loaded at different addresses.
			out = regexp.MustCompile(`(plugin [12], )first`).ReplaceAllString(out, "${1}at the same address")
			wantPlaces(t, fmt.Sprint(version, " ", c.name), out, again...)
		}
		if version == sframe.V2 { // V2 cannot describe the outermost frame
			continue
		}
		out := run(t, dir, all, []string{"SFRAME_BACKTRACE=sframe"}, converted("traces"))
		for _, place := range placeNames {
			if !strings.Contains(place, "coroutine") && !strings.Contains(out, place+": equal\n") {
				t.Errorf("with SFrame only: %s: got\n%s", place, out)
			}
		}
	}
}

// runWithStats runs a program with statistics, and returns its output and the numbers for a file.
func runWithStats(t *testing.T, dir, libraries string, env []string, file string, command ...string,
) (out string, by, others int) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "stats")
	out = run(t, dir, libraries, append(env, "SFRAME_BACKTRACE_STATS="+path), command...)
	b := testfile.Read(t, path)
	for line := range strings.Lines(string(b)) {
		var name string
		if n, _ := fmt.Sscan(line, &by, &others, &name); n == 3 && filepath.Base(name) == file {
			return out, by, others
		}
	}
	t.Fatalf("no %s in\n%s", file, b)
	return "", 0, 0
}

// writeSeparate writes the files' sections into a directory, as files named by build-id.
func writeSeparate(t testing.TB, store string, paths ...string) {
	t.Helper()
	for _, p := range paths {
		opt := files.Options{Work: files.Detach(true, convert.Options{Version: sframe.V3}, ""), Detach: true,
			ByBuildID: true}
		must.Get(files.Convert(context.Background(), p, store, opt))(t)
	}
}

// TestSeparate expects the library to use sections in separate files, but not those with a different build-id.
func TestSeparate(t *testing.T) {
	dir := build(t, traces+" -Wl,--build-id", plugins)
	store := filepath.Join(dir, "store")
	writeSeparate(t, store, append(systemLibraries(), filepath.Join(dir, "traces"))...)
	env := []string{"SFRAME_PATH=" + filepath.Join(dir, "none") + "::" + store}
	out, by, others := runWithStats(t, dir, "", env, "traces", "./traces")
	wantPlaces(t, "separate", out)
	if by < 1000 || others > 1 { // the last frame of the first trace may come from libgcc
		t.Errorf("%d frames found with SFrame, %d otherwise; want all with SFrame", by, others)
	}
	// Matching sections, but with a different build-id.
	list, err := filepath.Glob(filepath.Join(store, ".build-id", "*", "*.sframe"))
	if err != nil || len(list) != len(systemLibraries())+1 {
		t.Fatal(list, err)
	}
	for _, p := range list {
		name := filepath.Base(filepath.Dir(p)) + strings.TrimSuffix(filepath.Base(p), ".sframe")
		id := must.Get(hex.DecodeString(name))(t)
		b := testfile.Read(t, p)
		at := bytes.Index(b, id)
		if at < 0 {
			t.Fatalf("%s has no build-id %s", p, name)
		}
		b[at+len(id)-1]++
		testfile.Write(t, p, b)
	}
	testfile.Write(t, list[0], "\x7fELF and no more")
	out, by, others = runWithStats(t, dir, "", append(env, "SHORT=1"), "traces", "./traces")
	wantPlaces(t, "other build-ids", out)
	if by != 0 || others < 1000 {
		t.Errorf("%d frames found with SFrame, %d otherwise; want none with SFrame", by, others)
	}
}

// TestModes expects traces to end at files without a section, or to continue there with the frame pointer.
func TestModes(t *testing.T) {
	dir := build(t, "gcc -std=gnu11 -O2 -fno-omit-frame-pointer"+strict+" traces.c -o traces -pthread")
	out := run(t, dir, "", []string{"SFRAME_BACKTRACE=sframe"}, "./traces")
	if !strings.Contains(out, "deep: frame 1 of 1 and ") {
		t.Errorf("without DWARF:\n%s", out)
	}
	// libc has no frame pointers: main is the last frame that is certain.
	out = run(t, dir, "", []string{"SFRAME_BACKTRACE=fp"}, "./traces")
	m := regexp.MustCompile(`deep: frame (\d+) of`).FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("with the frame pointer:\n%s", out)
	}
	if n, err := strconv.Atoi(m[1]); err != nil || n < 1000 {
		t.Errorf("with the frame pointer, %d frames are correct; want more than 1,000", n)
	}
	out = run(t, dir, "", []string{"SFRAME_BACKTRACE=other"}, "/bin/true")
	if out != "sframe-backtrace: SFRAME_BACKTRACE=other is unknown; use dwarf, fp or sframe\n" {
		t.Errorf("unknown mode: %q", out)
	}
}

// TestSecure expects set-user-ID programs to ignore the environment.
func TestSecure(t *testing.T) {
	if os.Getuid() != 0 {
		peer.Missing(t, "making set-user-ID programs requires root")
	}
	dir := build(t, traces+" -L. -Wl,--no-as-needed -l:"+library+" -Wl,-rpath,$PWD")
	dir = must.Get(filepath.EvalSymlinks(dir))(t)
	stats := filepath.Join(dir, "stats")
	for _, mode := range []os.FileMode{0o755, 0o755 | os.ModeSetuid} {
		program := filepath.Join(dir, "traces")
		must.Do(t, os.Chown(program, 65534, 65534))
		must.Do(t, os.Chmod(dir, 0o777))
		must.Do(t, os.Chmod(program, mode))
		cmd := exec.Command(program)
		cmd.Env = []string{"SFRAME_BACKTRACE=sframe", "SFRAME_BACKTRACE_STATS=" + stats, "LD_LIBRARY_PATH=" + dir}
		out, err := cmd.CombinedOutput()
		_, statErr := os.Stat(stats)
		secure := mode&os.ModeSetuid != 0
		if err != nil || strings.Contains(string(out), "deep: equal") != secure || (statErr != nil) != secure {
			t.Errorf("%v: %v, statistics %v\n%s", mode, err, statErr, out)
		}
		_ = os.Remove(stats)
	}
}

// TestStatic links the archive with the flags of pkg-config, also before and after programs that call one of its
// functions, or none.
func TestStatic(t *testing.T) {
	for _, machine := range []string{"", "aarch64", "s390x"} {
		suite, gcc := "", "gcc"
		if machine != "" {
			suite, gcc = "sid", machine+"-linux-gnu-gcc-16"
		} else {
			peer.Look(t, gcc)
		}
		script := gcc + flags + strict + " -DSFRAME_BACKTRACE_WRAP -c" + code + "\n" +
			"ar rcs libsframe-backtrace.a" + strings.ReplaceAll(code, ".c", ".o") + "\n" + gcc + " -std=gnu11 -O2" +
			strict + " -DSTATIC -static traces.c -o traces -pthread " + staticFlags(t) + "\n"
		for _, call := range []string{"0", "backtrace(0, 0)"} {
			script += "echo 'int backtrace(void **, int); int main(void) { return " + call + "; }' >one.c\n" +
				gcc + " -static " + staticFlags(t) + " one.c -o one\n" +
				gcc + " -static one.c " + staticFlags(t) + " -o one\n"
		}
		dir := peer.Run(t, suite, script, sources(t)...)
		convertAll(t, filepath.Join(dir, "converted"), sframe.V3, filepath.Join(dir, "traces"))
		for _, program := range []string{"traces", "converted/traces"} {
			cmd := exec.Command(filepath.Join(dir, program))
			if machine != "" {
				cmd = peer.Tool(t, suite, "qemu-"+machine)(cmd.Path)
			}
			if program == "traces" {
				cmd.Env = append(os.Environ(), "SHORT=1")
			}
			wantPlaces(t, machine+" "+program, string(must.Run(t, cmd)))
		}
	}
}

// staticFlags returns the flags that pkg-config prints for static programs, with the archive in the current directory.
func staticFlags(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "sframe-backtrace.pc")
	testfile.Write(t, file, testfile.Read(t, "../../walker/sframe-backtrace.pc.in"))
	return strings.TrimSpace(string(must.Run(t, exec.Command(peer.Look(t, "pkg-config"), "--define-variable=libdir=.",
		"--static", "--libs", file))))
}

// TestLibunwind compares traces and cursors with those of libunwind and libgcc.
func TestLibunwind(t *testing.T) {
	peer.File(t, "/usr/include/x86_64-linux-gnu/libunwind.h")
	dir := build(t, "gcc -std=gnu11 -O2 -rdynamic"+strict+" cursors.c -o program -lunwind")
	all := filepath.Join(dir, "all")
	needed := systemLibraries("libunwind.so.8", "liblzma.so.5")
	convertAll(t, all, sframe.V3, append(needed, filepath.Join(dir, "program"))...)
	for _, c := range []struct{ libraries, program string }{
		{all, filepath.Join(all, "program")}, {"", filepath.Join(all, "program")}, {all, "./program"},
		{"", "./program"},
	} {
		var env []string
		if c.libraries == "" || c.program == "./program" {
			env = []string{"SHORT=1"}
		}
		if out := run(t, dir, c.libraries, env, c.program); out != "done\n" {
			t.Errorf("%s with libraries of %q:\n%s", c.program, c.libraries, out)
		}
	}
}

// TestCursorStatistics compares the statistics of a program's frames with the steps that the program counts.
func TestCursorStatistics(t *testing.T) {
	peer.File(t, "/usr/include/x86_64-linux-gnu/libunwind.h")
	dir := build(t, "gcc -std=gnu11 -O2 -fno-optimize-sibling-calls"+strict+" steps.c -o steps -lunwind")
	all := filepath.Join(dir, "all")
	convertAll(t, all, sframe.V3, append(systemLibraries("libunwind.so.8", "liblzma.so.5"),
		filepath.Join(dir, "steps"))...)
	for _, libraries := range []string{all, ""} {
		program := filepath.Join(cmp.Or(libraries, dir), "steps")
		out, by, others := runWithStats(t, dir, libraries, nil, "steps", program)
		steps, err := strconv.Atoi(strings.TrimSpace(out))
		want := [2]int{steps, 0}
		if libraries == "" {
			want = [2]int{0, steps}
		}
		if got := [2]int{by, others}; err != nil || steps < 40 || got != want {
			t.Errorf("libraries of %q: %v frames by SFrame and otherwise; want %v", libraries, got, want)
		}
	}
}

// TestExceptions expects all destructors to run, and all exceptions to be caught.
func TestExceptions(t *testing.T) {
	peer.Look(t, "g++")
	dir := build(t, "g++ -O2"+strict+" throw.cc -o throw -pthread")
	all := filepath.Join(dir, "all")
	program := filepath.Join(dir, "throw")
	needed := append(systemLibraries("libm.so.6"), "/usr/lib/x86_64-linux-gnu/libstdc++.so.6")
	convertAll(t, all, sframe.V3, append(needed, program)...)
	for _, libraries := range []string{all, ""} {
		if out := run(t, dir, libraries, nil, program); out != "42000 42000 42000 42000, traces: some\n" {
			t.Errorf("libraries of %q: %s", libraries, out)
		}
	}
}

// edges is the command that compiles edges.c.
const edges = "gcc -std=gnu11 -O2" + strict + " edges.c -o edges -pthread -Wl,--build-id"

// TestOtherMachines runs the same programs, and the cases of edges.c that depend on the machine, on aarch64 (with
// signed return addresses) and on s390x.
func TestOtherMachines(t *testing.T) {
	for _, m := range []struct{ machine, flags, loader string }{
		{"aarch64", " -mbranch-protection=standard", "ld-linux-aarch64.so.1"}, {"s390x", "", "ld64.so.1"},
	} {
		gcc := m.machine + "-linux-gnu-gcc-16" + m.flags
		script := strings.ReplaceAll(traces+"\n"+plugins+"\n"+edges, "gcc ", gcc+" ") + "\n" + gcc + shared + strict +
			code + " -o " + library
		dir := peer.Run(t, "sid", script, sources(t)...)
		from := filepath.Join(peer.Root(t, "sid"), "usr", m.machine+"-linux-gnu", "lib")
		for _, name := range []string{"libc.so.6", "libgcc_s.so.1", m.loader} {
			convertAll(t, filepath.Join(dir, "lib"), sframe.V3, filepath.Join(from, name))
		}
		convertAll(t, filepath.Join(dir, "all"), sframe.V3, filepath.Join(dir, "traces"), filepath.Join(dir, "one.so"),
			filepath.Join(dir, "two.so"))
		for _, program := range []string{"all", "."} {
			short := ""
			if program != "all" {
				short = "1"
			}
			arguments := []string{"-L", dir, "-E", "LD_PRELOAD=" + filepath.Join(dir, library), "-E", "SHORT=" + short,
				filepath.Join(dir, program, "traces")}
			for _, name := range []string{"one.so", "two.so", "one.so"} {
				arguments = append(arguments, filepath.Join(dir, program, name))
			}
			out := must.Run(t, peer.Tool(t, "sid", "qemu-"+m.machine)(arguments...))
			text := regexp.MustCompile(`(plugin [12], )first`).ReplaceAllString(string(out), "${1}at the same address")
			wantPlaces(t, m.machine+" "+program, text, "plugin 0, first", "plugin 1, at the same address",
				"plugin 2, at the same address")
		}

		store := filepath.Join(dir, "store")
		writeSeparate(t, store, filepath.Join(dir, "edges"), filepath.Join(from, "libc.so.6"),
			filepath.Join(from, "libgcc_s.so.1"), filepath.Join(from, m.loader))
		names := []string{"begin", "interrupted", "calls", "errno", "stack", "changing", "freed", "overflow",
			"contexts", "epilogue"}
		for _, name := range names {
			if name == "contexts" && m.machine == "s390x" {
				continue // libgcc's trace does not end
			}
			t.Run(m.machine+" "+name, func(t *testing.T) {
				path := store
				if name == "interrupted" {
					path = ""
				}
				out, err := peer.Tool(t, "sid", "qemu-"+m.machine)("-L", filepath.Dir(from), "-E", "SFRAME_PATH="+path,
					"-E", "LD_PRELOAD="+filepath.Join(dir, library), filepath.Join(dir, "edges"), name).CombinedOutput()
				if err != nil || string(out) != "ok\n" {
					t.Errorf("%v\n%s", err, out)
				}
			})
		}
	}
}

// TestEdges runs the cases in edges.c: signal handlers, sandboxes, constructors and files that change. The cases
// "begin", "calls", "stack", "sandbox", "truncated", "contexts" and "epilogue" require that all files have sections.
func TestEdges(t *testing.T) {
	dir := build(t, edges, plugins)
	store := filepath.Join(dir, "store")
	writeSeparate(t, store, append(systemLibraries(), filepath.Join(dir, "edges"))...)
	convertAll(t, filepath.Join(dir, "all"), sframe.V3, filepath.Join(dir, "one.so"), filepath.Join(dir, "two.so"))
	all := []string{"SFRAME_PATH=" + store}
	for _, c := range []struct {
		name string
		env  []string
	}{
		{"begin", all}, {"interrupted", nil}, {"calls", all}, {"errno", nil}, {"errno", all}, {"stack", all},
		{"outermost", nil}, {"sandbox", all}, {"changing", nil}, {"changing", all}, {"overflow", all},
		{"freed", all}, {"replaced", all}, {"forked", all}, {"contexts", all}, {"registered", all},
		{"registered", nil}, {"unloaded", all}, {"stopped", all}, {"stopped", nil},
		{"epilogue", all},
		{"truncated", all}, // the last, because it destroys the sections
	} {
		t.Run(c.name, func(t *testing.T) {
			command := []string{"./edges", c.name}
			if c.name == "replaced" || c.name == "forked" || c.name == "unloaded" {
				command = append(command, "all/one.so", "all/two.so", "all/one.so")
			}
			if c.name == "truncated" {
				paths, err := filepath.Glob(filepath.Join(store, ".build-id", "*", "*.sframe"))
				if err != nil || len(paths) < 4 {
					t.Fatal(paths, err)
				}
				for _, p := range paths {
					must.Do(t, os.Chmod(p, 0o644)) // not mapped
				}
				command = append(command, paths...)
			}
			if out := run(t, dir, "", c.env, command...); out != "ok\n" {
				t.Error(out)
			}
		})
	}
}

// readVDSO returns the file that the kernel maps into each process.
func readVDSO(t *testing.T) []byte {
	t.Helper()
	for line := range strings.Lines(string(testfile.Read(t, "/proc/self/maps"))) {
		var begin, end int64
		if !strings.HasSuffix(line, "[vdso]\n") {
			continue
		}
		must.Get(fmt.Sscanf(line, "%x-%x", &begin, &end))(t)
		memory := must.Get(os.Open("/proc/self/mem"))(t)
		defer memory.Close()
		b := make([]byte, end-begin)
		must.Get(memory.ReadAt(b, begin))(t)
		return b
	}
	t.Fatal("no vDSO")
	return nil
}

// TestStacks runs the cases in stacks.c: handlers that interrupt code on stacks that the C library does not know.
func TestStacks(t *testing.T) {
	dir := build(t, "gcc -std=gnu11 -O2"+strict+" stacks.c -o stacks -pthread",
		"gcc -std=gnu11 -O2 -fno-omit-frame-pointer"+strict+" stacks.c -o pointers -pthread")
	store := filepath.Join(dir, "store")
	vdso := filepath.Join(dir, "vdso.so")
	testfile.Write(t, vdso, string(readVDSO(t)))
	writeSeparate(t, store, append(systemLibraries(), filepath.Join(dir, "stacks"), vdso)...)
	for _, name := range []string{
		"raised", "large", "cloned", "fiber", "inside", "nested", "restorer", "recovered", "smashed",
		"vdso", "damaged", "unmapped", "refused",
	} {
		if out := run(t, dir, "", []string{"SFRAME_PATH=" + store}, "./stacks", name); out != "ok\n" {
			t.Errorf("%s: %s", name, out)
		}
	}
	if out := run(t, dir, "", []string{"SFRAME_BACKTRACE=fp"}, "./pointers", "pointers"); out != "ok\n" {
		t.Errorf("frame pointers: %s", out)
	}
}

// TestEdgesWithASan runs cases of edges.c that must not read unmapped memory, with the library linked into the program.
func TestEdgesWithASan(t *testing.T) {
	dir := build(t, strings.Replace(edges, "edges.c", "edges.c"+code, 1)+
		" -g -fno-sanitize-recover=all -fsanitize=address,undefined", plugins)
	store := filepath.Join(dir, "store")
	writeSeparate(t, store, append(systemLibraries("libasan.so.8"), filepath.Join(dir, "edges"))...)
	convertAll(t, filepath.Join(dir, "all"), sframe.V3, filepath.Join(dir, "one.so"), filepath.Join(dir, "two.so"))
	for _, name := range []string{"overflow", "freed", "replaced", "contexts", "epilogue", "unloaded", "registered"} {
		out := run(t, dir, "", []string{"LD_PRELOAD=", "ASAN_OPTIONS=detect_leaks=0", "SFRAME_PATH=" + store},
			"./edges", name, "all/one.so", "all/two.so", "all/one.so")
		if !strings.HasSuffix(out, "ok\n") {
			t.Errorf("%s: %s", name, out)
		}
	}
}

// TestManyFiles loads 600 copies of a plugin, each with its own build-id and separate file.
func TestManyFiles(t *testing.T) {
	dir := build(t, edges, "gcc -O2 -fPIC -shared -DSIZE=32 plugin.c -o 0.so -Wl,--build-id=0x12345678")
	store := filepath.Join(dir, "store")
	writeSeparate(t, store, append(systemLibraries(), filepath.Join(dir, "edges"), filepath.Join(dir, "0.so"))...)
	id := []byte{0x12, 0x34, 0x56, 0x78}
	path := filepath.Join(store, ".build-id", "12", "345678.sframe")
	section, plugin := testfile.Read(t, path), testfile.Read(t, filepath.Join(dir, "0.so"))
	if info := must.Get(os.Stat(path))(t); info.Mode() != 0o444 {
		t.Errorf("%s has mode %v", path, info.Mode())
	}
	command := []string{"./edges", "many", "./0.so"}
	for i := range 600 {
		other := binary.BigEndian.AppendUint16([]byte{0x12, 0x34}, uint16(i))
		name, file := fmt.Sprintf("./%d.so", i+1), filepath.Join(filepath.Dir(path), fmt.Sprintf("34%04x.sframe", i))
		must.Do(t, os.WriteFile(filepath.Join(dir, name), bytes.Replace(plugin, id, other, 1), 0o777))
		must.Do(t, os.WriteFile(file, bytes.Replace(section, id, other, 1), 0o444))
		command = append(command, name)
	}
	env := []string{"SFRAME_PATH=" + store, "SFRAME_BACKTRACE=sframe"}
	if out := run(t, dir, "", env, command...); out != "ok\n" {
		t.Error(out)
	}
	if out, by, others := runWithStats(t, dir, "", env, "600.so", command...); out != "ok\n" || by == 0 || others > 0 {
		t.Errorf("%d frames by SFrame, %d otherwise: %s", by, others, out)
	}
}

// TestStore puts other files in place of the program's section: a FIFO, a file with misaligned program headers, and the
// section of a different program with the same build-id. The library must use none of them, and the program must not
// fail.
func TestStore(t *testing.T) {
	id := " -Wl,--build-id=0x1234abcd"
	dir := build(t, edges+id, strings.Replace(edges, "-o edges", "-o other -fno-omit-frame-pointer -O1", 1)+id)
	store := filepath.Join(dir, "store")
	writeSeparate(t, store, append(systemLibraries(), filepath.Join(dir, "edges"))...)
	path := filepath.Join(store, ".build-id", "12", "34abcd.sframe")
	good := testfile.Read(t, path)
	env := []string{"SFRAME_PATH=" + store}
	frames := func(program string) (by, others int) {
		out, by, others := runWithStats(t, dir, "", env, program, "./"+program, "same")
		if out != "ok\n" {
			t.Errorf("%s: %s", program, out)
		}
		return by, others
	}
	if by, others := frames("edges"); by == 0 || others > 0 {
		t.Errorf("the section is not used: %d frames found with SFrame, %d otherwise", by, others)
	}
	if by, _ := frames("other"); by > 0 {
		t.Errorf("%d frames found with the section of another program", by)
	}
	misaligned := slices.Clone(good)
	misaligned[32]++ // e_phoff
	testfile.Write(t, path, misaligned)
	if by, _ := frames("edges"); by > 0 {
		t.Errorf("%d frames found with a section with misaligned headers", by)
	}
	must.Do(t, os.Remove(path))
	must.Do(t, syscall.Mkfifo(path, 0o666))
	if by, _ := frames("edges"); by > 0 {
		t.Errorf("%d frames found with a FIFO", by)
	}
}

// TestNotes loads a library whose notes are not loaded into memory.
func TestNotes(t *testing.T) {
	dir := build(t, plugins)
	path := filepath.Join(dir, "one.so")
	b := testfile.Read(t, path)
	f := must.Get(elf.NewFile(bytes.NewReader(b)))(t)
	const headers, size, vaddr = 64, 56, 16
	for i, p := range f.Progs {
		if p.Type == elf.PT_NOTE {
			binary.LittleEndian.PutUint64(b[headers+i*size+vaddr:], 1<<40)
		}
	}
	must.Do(t, os.WriteFile(path, b, 0o777))
	preload := "LD_PRELOAD=" + filepath.Join(dir, library) + ":" + path
	if out := run(t, dir, "", []string{preload, "SFRAME_PATH=" + dir}, "/bin/echo", "ok"); out != "ok\n" {
		t.Error(out)
	}
}

// TestStress runs threads, timers, dlopen, dlclose and fork for a second, or for SFRAME_STRESS seconds. The library is
// linked into programs built with sanitizers. With many threads, TSan takes minutes to fork.
func TestStress(t *testing.T) {
	seconds := os.Getenv("SFRAME_STRESS")
	if seconds == "" {
		seconds = "1"
	}
	sanitize := "gcc -std=gnu11 -O2 -g" + strict + " stress.c" + code +
		" -pthread -fno-sanitize-recover=all -fsanitize="
	dir := build(t, "gcc -std=gnu11 -O2"+strict+" stress.c -o stress -pthread", plugins,
		sanitize+"address,undefined -o address", sanitize+"thread -o thread")
	all, store := filepath.Join(dir, "all"), filepath.Join(dir, "store")
	list := systemLibraries()
	writeSeparate(t, store, list...)
	for _, name := range []string{"stress", "address", "thread", "one.so", "two.so"} {
		list = append(list, filepath.Join(dir, name))
	}
	convertAll(t, all, sframe.V3, list...)
	alone := []string{"LD_PRELOAD=", "SFRAME_PATH=" + store, "SHORT=1"}
	for _, c := range []struct {
		name, program, libraries, plugins, threads string
		env                                        []string
	}{
		{"converted", "stress", all, all, "1200", nil}, {"program", "stress", "", dir, "100", []string{"SHORT=1"}},
		{"ASan", "address", "", all, "100", alone}, {"TSan", "thread", "", all, "8", alone},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := run(t, dir, c.libraries, c.env, filepath.Join(all, c.program), seconds, c.threads,
				filepath.Join(c.plugins, "one.so"), filepath.Join(c.plugins, "two.so"))
			t.Log(out)
			if !strings.HasSuffix(out, "done\n") || strings.Contains(out, "are shorter") {
				t.Error(out)
			}
		})
	}
}

// TestCompilers expects no warnings. The other tests compile with this machine's gcc, and with gcc-16 for other
// machines.
func TestCompilers(t *testing.T) {
	for _, c := range []struct{ suite, command string }{
		{"", "clang"}, {"sid", "gcc-16"}, {"sid", "clang-23"}, {"sid", "clang-23 --target=aarch64-linux-gnu"},
		{"sid", "clang-23 --target=s390x-linux-gnu"},
	} {
		if c.suite == "" {
			peer.Look(t, c.command)
		}
		script := ""
		for _, define := range []string{"", " -DSFRAME_BACKTRACE_WRAP"} {
			script += c.command + flags + strict + define + " -c" + code + "\n"
		}
		peer.Run(t, c.suite, script, librarySources(t)...)
	}
}

package survive

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"cfi2sframe/lab/kit"
)

// A choice is one value of an axis: a name, and the flags of the compiler.
type choice struct{ name, flags string }

// axes span the matrix. The flags of the first are for compiling as well.
var axes = [][]choice{
	{
		{"clang profile", "clang -fprofile-instr-generate"},
		{"clang coverage", "clang -fprofile-instr-generate -fcoverage-mapping"},
		{"gcc coverage", "gcc --coverage"},
		{"XRay", "clang -fxray-instrument -fxray-instruction-threshold=1"},
		{"clang address", "clang -fsanitize=address -DADDRESS"},
		{"gcc address", "gcc -fsanitize=address -DADDRESS"},
		{"clang undefined", "clang -fsanitize=undefined -DUNDEFINED"},
		{"gcc undefined", "gcc -fsanitize=undefined -DUNDEFINED"},
		{"clang thread", "clang -fsanitize=thread -DTHREAD"},
		{"gcc thread", "gcc -fsanitize=thread -DTHREAD"},
		{"clang leak", "clang -fsanitize=leak -DLEAK"},
		{"gcc leak", "gcc -fsanitize=leak -DLEAK"},
	},
	{{"ld", "-fuse-ld=bfd"}, {"gold", "-fuse-ld=gold"}, {"lld", "-fuse-ld=lld"}, {"mold", "-fuse-ld=mold"}},
	{
		{"build-id", "-Wl,--build-id=sha1"},
		{"no build-id", "-Wl,--build-id=none"},
		{"no build-id, GNU hash", "-Wl,--build-id=none -Wl,--hash-style=gnu"},
	},
	{
		{"4 KiB", "-Wl,-z,max-page-size=0x1000"},
		{"64 KiB", "-Wl,-z,max-page-size=0x10000"},
		{"2 MiB", "-Wl,-z,max-page-size=0x200000"},
	},
	{{"PIE", "-pie"}, {"static PIE", "-static-pie"}, {"static", "-static -no-pie"}, {"dynamic", "-no-pie"}},
}

// A combination has a choice of each axis, by number.
type combination [5]int

func (c combination) choice(axis int) choice { return axes[axis][c[axis]] }

func (c combination) String() string {
	var names []string
	for axis := range c {
		names = append(names, c.choice(axis).name)
	}
	return strings.Join(names, ", ")
}

// pairwise returns combinations with each pair of choices of two axes, and one that has failed once.
func pairwise() []combination {
	list := []combination{{0, 3, 2, 1, 0}}
	for i := range axes[0] {
		for j := range axes[4] {
			list = append(list, combination{i, (i + j) % 4, (i + 2*j) % 3, (i/4 + j) % 3, j})
		}
	}
	return list
}

// A matrix runs programs with the runtimes of compilers, linked in many ways. Each has to do the same when it is
// converted, and when the section is removed again.
type matrix struct {
	dir, cfi2sframe string
	objects         sync.Map // functions that compile once, by the command

	mu     sync.Mutex
	counts map[string]*count // by the names of choices
}

// run tries combinations with all pairs of choices.
func (m *matrix) run(jobs int) error {
	if err := copySources(m.dir); err != nil {
		return err
	}
	m.counts = make(map[string]*count)
	for _, choices := range axes {
		for _, c := range choices {
			m.counts[c.name] = new(count)
		}
	}
	_ = kit.Each(jobs, pairwise(), func(_ int, c combination) error {
		// What cannot be linked in one way is tried as PIE: its other pairs count.
		if !m.try(c) && c[4] != 0 {
			c[4] = 0
			m.try(c)
		}
		return nil
	})
	var err error
	table := kit.NewTable(os.Stdout, "choice", ">the same", ">no program", ">fail")
	for _, choices := range axes {
		for _, c := range choices {
			n := m.counts[c.name]
			table.Row(c.name, n.survive, n.neither, n.fail)
			if n.fail > 0 || n.survive == 0 {
				err = kit.ErrFound
			}
		}
	}
	return err
}

// try compares the program of a combination, counts the outcome, and reports whether there is a program.
func (m *matrix) try(c combination) bool {
	err := m.compare(c)
	var original error
	if errors.Is(err, errNoProgram) {
		original = err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	what := ""
	for axis := range c {
		what = m.counts[c.choice(axis).name].add(original, err)
	}
	if err != nil {
		fmt.Printf("%-8s%v: %v\n", what, c, err)
	}
	return original == nil
}

// errNoProgram is returned if there is nothing to convert.
var errNoProgram = errors.New("no program")

// compare builds a program, runs it, converts it, and removes the section.
func (m *matrix) compare(c combination) error {
	dir, err := os.MkdirTemp(m.dir, "runtime-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	object, err := m.compile(c)
	if err != nil {
		return err
	}
	prog := filepath.Join(dir, "prog")
	var flags []string
	for axis := range c {
		flags = append(flags, strings.Fields(c.choice(axis).flags)...)
	}
	link := append(flags, object, object+".notes.o", "-o", prog, "-pthread") // the first flag names the compiler
	var exit *exec.ExitError
	out, err := command(dir, os.Environ(), link...)
	switch {
	case errors.As(err, &exit) && exit.Exited():
		return fmt.Errorf("%w: %s", errNoProgram, reason(out))
	case err != nil:
		return err
	}
	before, err := observe(dir)
	if err != nil {
		return fmt.Errorf("%w: the original does not run: %w", errNoProgram, err)
	}
	for _, step := range []struct {
		name string
		args []string
	}{{"converted", []string{"-q"}}, {"with the section removed", []string{"remove", "-q"}}} {
		args := append([]string{m.cfi2sframe}, step.args...)
		if _, err := command(dir, os.Environ(), append(args, "--in-place", prog)...); err != nil {
			return fmt.Errorf("cfi2sframe %s: %w", strings.Join(step.args, " "), err)
		}
		after, err := observe(dir)
		if err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		if what := before.difference(after); what != "" {
			return fmt.Errorf("%s: %s", step.name, what)
		}
	}
	return nil
}

// compile compiles the program for a combination, once for all that need the same object, and returns its path.
func (m *matrix) compile(c combination) (string, error) {
	pic := "-fPIE"
	if strings.Contains(c.choice(4).flags, "-no-pie") {
		pic = "-fno-pie"
	}
	once, _ := m.objects.LoadOrStore(c.choice(0).flags+pic, sync.OnceValues(func() (string, error) {
		object := filepath.Join(m.dir, strings.ReplaceAll(c.choice(0).name, " ", "-")+pic+".o")
		return object, shell("", m.dir, "gcc -O2 -g "+pic+" -c -o "+object+".notes.o notes.c\n"+
			c.choice(0).flags+" -O2 -g "+pic+" -c -o "+object+" runtimes.c")
	}))
	return once.(func() (string, error))()
}

// An observation is the status and the output of a run, and the files that it writes, by name.
type observation map[string]string

// observe runs dir/prog, at the same addresses each time: some are in files.
func observe(dir string) (observation, error) {
	out := filepath.Join(dir, "out")
	if err := os.RemoveAll(out); err != nil {
		return nil, err
	}
	if err := os.Mkdir(out, 0o777); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "setarch", "--addr-no-randomize", filepath.Join(dir, "prog"))
	cmd.Dir = out
	cmd.Env = append(os.Environ(), "LC_ALL=C",
		"LLVM_PROFILE_FILE="+out+"/profile", "GCOV_PREFIX="+out, "GCOV_PREFIX_STRIP=99",
		"XRAY_OPTIONS=patch_premain=true xray_mode=xray-basic xray_logfile_base="+out+"/xray",
		"XRAY_BASIC_OPTIONS=func_duration_threshold_us=0",
		"ASAN_OPTIONS=symbolize=0", "UBSAN_OPTIONS=symbolize=0:print_stacktrace=1",
		"TSAN_OPTIONS=symbolize=0", "LSAN_OPTIONS=symbolize=0")
	said, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if ctx.Err() != nil || err != nil && !errors.As(err, &exit) {
		return nil, cmp.Or(ctx.Err(), err)
	}
	text := strings.ReplaceAll(string(said), dir, "DIR")
	for _, v := range variable {
		text = v.pattern.ReplaceAllString(text, v.with)
	}
	o := observation{"status": cmd.ProcessState.String(), "output": text}
	err = filepath.WalkDir(out, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		name, _, isLog := strings.Cut(d.Name(), ".")
		switch {
		case isLog && strings.HasPrefix(name, "xray"): // a number follows
			b = xrayRecords(b)
		case name == "profile":
			b = profile(b)
		default:
			name = d.Name()
		}
		o[name] = string(b)
		return err
	})
	if err == nil && exit != nil && !exit.Exited() {
		err = fmt.Errorf("%v: %s", exit, firstLine(text))
	}
	return o, err
}

// variable matches what sanitizers print differently in each run.
var variable = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`==\d+==|pid=\d+|tid=\d+`), "ID"},
	{regexp.MustCompile(`([^+])0x[0-9a-f]+`), "${1}ADDRESS"}, // what follows + counts from the start of a file
}

// xrayRecords returns the kinds and functions of the records in a log of XRay's basic mode: times, processors and
// threads differ each time.
func xrayRecords(b []byte) []byte {
	const header, record = 32, 32
	var out bytes.Buffer
	for i := header; i+record <= len(b); i += record {
		r := b[i : i+record]
		fmt.Fprintf(&out, "%x %x %x\n", r[:2], r[3:4], r[4:8])
	}
	return out.Bytes()
}

// profile returns a profile of clang without addresses: the kernel loads a larger static PIE somewhere else.
func profile(b []byte) []byte {
	for i := 0; i+8 <= len(b); i += 8 {
		if word := binary.LittleEndian.Uint64(b[i:]); word >= 0x7ff0_0000_0000 && word < 0x8000_0000_0000 {
			clear(b[i : i+8])
		}
	}
	return b
}

// difference describes the first difference of another run, or returns "".
func (o observation) difference(other observation) string {
	for _, name := range slices.Sorted(maps.Keys(o)) {
		now, ok := other[name]
		switch {
		case !ok:
			return name + " is missing"
		case now != o[name]:
			at := 0
			for at < min(len(now), len(o[name])) && now[at] == o[name][at] {
				at++
			}
			show := func(s string) string { return fmt.Sprintf("%q", s[max(at-20, 0):min(at+60, len(s))]) }
			return fmt.Sprintf("%s differs at byte %d: %s, was %s", name, at, show(now), show(o[name]))
		}
	}
	if len(other) > len(o) {
		return fmt.Sprintf("%d files, were %d", len(other), len(o))
	}
	return ""
}

// reason returns why a linker makes no program: the first line that is neither a warning nor the compiler's.
func reason(out string) string {
	for line := range strings.Lines(out) {
		if !strings.Contains(line, "warning: ") && !strings.Contains(line, "in function") {
			return firstLine(line)
		}
	}
	return firstLine(out)
}

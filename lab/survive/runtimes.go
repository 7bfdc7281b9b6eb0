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

// combinations are all of them.
func combinations() []combination {
	all := []combination{{}}
	for axis, choices := range axes {
		var next []combination
		for _, c := range all {
			for i := range choices {
				c[axis] = i
				next = append(next, c)
			}
		}
		all = next
	}
	return all
}

// A pair is two choices of two axes.
type pair struct{ axis1, choice1, axis2, choice2 int }

func (c combination) pairs() (all []pair) {
	for i := range c {
		for j := range i {
			all = append(all, pair{j, c[j], i, c[i]})
		}
	}
	return all
}

// maxTries is how many combinations with a pair are tried of those that cannot be built.
const maxTries = 4

// pairwise returns few combinations, none of them in tried, for all pairs that no program has yet. A pair of combinations
// that cannot be built is given up after some tries.
func pairwise(all []combination, tried map[combination]*trial) (some []combination) {
	covered, tries := make(map[pair]bool), make(map[pair]int)
	for c, t := range tried {
		for _, p := range c.pairs() {
			tries[p]++
			covered[p] = covered[p] || t.verdict != unfit || tries[p] >= maxTries
		}
	}
	chosen := make(map[combination]bool)
	for {
		var best combination
		most := 0
		for _, c := range all {
			n := 0
			for _, p := range c.pairs() {
				if !covered[p] {
					n++
				}
			}
			if n > most && tried[c] == nil && !chosen[c] {
				best, most = c, n
			}
		}
		if most == 0 {
			return some
		}
		chosen[best] = true
		some = append(some, best)
		for _, p := range best.pairs() {
			covered[p] = true
		}
	}
}

// A trial is what came of a combination: survives, fails, or unfit if there is no program that runs, and why.
type trial struct {
	verdict verdict
	why     string
}

// A matrix is the programs with runtimes of compilers, all linked in many ways. Each has to do the same when it is
// converted, and when the section is removed again.
type matrix struct {
	*workshop
	objects sync.Map // functions that compile once, by the command
}

// runtimes tries all combinations, or few that have all pairs of choices.
func (w *workshop) runtimes(ctx context.Context, quick bool, jobs int) error {
	m := &matrix{workshop: w}
	all, tried := combinations(), make(map[combination]*trial)
	var mu sync.Mutex
	for todo := all; len(todo) > 0; {
		if quick {
			if todo = pairwise(all, tried); len(tried) == 0 {
				todo = append(todo, formerFailures...)
			}
		}
		err := kit.Each(jobs, todo, func(_ int, c combination) error {
			if ctx.Err() != nil {
				return nil
			}
			t := m.try(ctx, c)
			mu.Lock()
			defer mu.Unlock()
			tried[c] = t
			if t.verdict == fails {
				fmt.Printf("%-8s%v: %s\n", fails, c, t.why)
			}
			return nil
		})
		if err := cmp.Or(ctx.Err(), err); err != nil {
			return err
		}
		if !quick {
			break
		}
	}
	return summarize(tried)
}

// formerFailures are combinations of more than two choices that crashed once.
var formerFailures = []combination{{0, 3, 2, 1, 0}}

// summarize prints counts, and why combinations were not built.
func summarize(tried map[combination]*trial) error {
	reasons := make(map[string]int)
	var err error
	for axis, choices := range axes {
		for i, choice := range choices {
			count := make(map[verdict]int)
			for c, t := range tried {
				if c[axis] == i {
					count[t.verdict]++
				}
			}
			fmt.Printf("%-22s %4d the same, %d fail, %d have no program\n",
				choice.name+":", count[survives], count[fails], count[unfit])
			if count[survives] == 0 {
				fmt.Printf("%-8s%s: no program was compared\n", fails, choice.name)
			}
			if count[fails] > 0 || count[survives] == 0 {
				err = kit.ErrFound
			}
		}
	}
	for c, t := range tried {
		if t.verdict == unfit {
			reasons[c.choice(0).name+", "+c.choice(4).name+": "+t.why]++
		}
	}
	for _, why := range slices.Sorted(maps.Keys(reasons)) {
		fmt.Printf("no program: %d of %s\n", reasons[why], why)
	}
	return err
}

// errNoProgram is returned if there is nothing to convert.
var errNoProgram = errors.New("no program")

// try builds a program, runs it, converts it, and removes the section.
func (m *matrix) try(ctx context.Context, c combination) *trial {
	err := m.compare(ctx, c)
	switch {
	case err == nil:
		return &trial{verdict: survives}
	case errors.Is(err, errNoProgram):
		return &trial{unfit, strings.TrimPrefix(err.Error(), errNoProgram.Error()+": ")}
	}
	return &trial{fails, err.Error()}
}

func (m *matrix) compare(ctx context.Context, c combination) error {
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
	link := []string{object, object + ".notes.o", "-o", prog, "-pthread"}
	for axis := range c {
		link = append(link, strings.Fields(c.choice(axis).flags)...)
	}
	// The first axis names the compiler.
	compiler := strings.Fields(c.choice(0).flags)[0]
	link = slices.DeleteFunc(link, func(word string) bool { return word == compiler })
	var exit *exec.ExitError
	out, err := command(dir, append([]string{compiler}, link...))
	switch {
	case errors.As(err, &exit) && exit.Exited():
		return fmt.Errorf("%w: %s", errNoProgram, reason(out, err))
	case err != nil:
		return fmt.Errorf("%s: %w", compiler, err)
	}
	before, err := observe(ctx, dir)
	if err != nil {
		return fmt.Errorf("%w: the original does not run: %w", errNoProgram, err)
	}
	for _, step := range []struct {
		name string
		flag []string
	}{{"converted", nil}, {"with the section removed", []string{"--remove"}}} {
		out, err := command(dir, append(append([]string{m.cfi2sframe, "-q"}, step.flag...), "--in-place", prog))
		if err != nil {
			return fmt.Errorf("cfi2sframe %s: %w", strings.Join(step.flag, " "), withOutput(err, out))
		}
		after, err := observe(ctx, dir)
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
		object := m.path(strings.ReplaceAll(c.choice(0).name, " ", "-") + pic + ".o")
		return object, m.shell("gcc -O2 -g " + pic + " -c -o " + object + ".notes.o notes.c\n" +
			c.choice(0).flags + " -O2 -g " + pic + " -c -o " + object + " runtimes.c")
	}))
	return once.(func() (string, error))()
}

// An observation is what can be seen of a run: how it ends, what it prints, and what it leaves in files, by names.
type observation map[string]string

// maxTime bounds a run.
const maxTime = time.Minute

// observe runs dir/prog. Addresses do not change from run to run, as some are in files.
func observe(ctx context.Context, dir string) (observation, error) {
	out := filepath.Join(dir, "out")
	if err := os.RemoveAll(out); err != nil {
		return nil, err
	}
	if err := os.Mkdir(out, 0o777); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, maxTime)
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

// variable is what sanitizers print that is another one in each run.
var variable = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`==\d+==|pid=\d+|tid=\d+`), "ID"},
	{regexp.MustCompile(`([^+])0x[0-9a-f]+`), "${1}ADDRESS"}, // what follows + counts from the start of a file
}

// xrayRecords returns the kinds and functions of the records in a log of XRay in its basic mode: times, processors and
// threads are others each time.
func xrayRecords(b []byte) []byte {
	const header, record = 32, 32
	var out bytes.Buffer
	for i := header; i+record <= len(b); i += record {
		r := b[i : i+record]
		fmt.Fprintf(&out, "%x %x %x\n", r[:2], r[3:4], r[4:8])
	}
	return out.Bytes()
}

// profile returns a profile of clang with the addresses of a static PIE counted from the first one: the kernel loads a
// larger file somewhere else.
func profile(b []byte) []byte {
	const lowest, highest = 0x7ff0_0000_0000, 0x8000_0000_0000
	var first uint64
	for i := 0; i+8 <= len(b); i += 8 {
		word := binary.LittleEndian.Uint64(b[i:])
		if word < lowest || word >= highest {
			continue
		}
		if first == 0 {
			first = word
		}
		binary.LittleEndian.PutUint64(b[i:], word-first)
	}
	return b
}

// difference says what is different in another run, or "".
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

// places are what differs between messages of linkers that are about the same.
var places = regexp.MustCompile(`\S*/|0x[0-9a-f]+`)

// reason is why a linker makes no program: the first line that is neither a warning nor the compiler's.
func reason(out string, err error) string {
	for line := range strings.Lines(out) {
		if !strings.Contains(line, "warning: ") && !strings.Contains(line, "in function") {
			return places.ReplaceAllString(firstLine(line), "")
		}
	}
	return err.Error()
}

// Package sample walks stacks under a profiler's conditions: in handlers of SIGPROF, at 10 kHz, in programs of the
// system and in some that are made for it (exceptions in C++, threads, Rust, Go), which are converted with all of their
// libraries, libc and ld.so. Each handler compares walker/sframe_walker.h with _Unwind_Backtrace from there, and
// measures both.
//
// Usage: scripts/lab sample [--samples N] [--versions V,...] [--only NAME,...] [--clock timer|itimer]
//
//	[--period DURATION] [--markdown FILE] [--quick]
//
// The converted files are put over the system's in a mount namespace of each run; nothing of the system is changed. The
// sampler is preloaded, or linked with static programs. Needs root, an overlay file system, go, gcc and g++; programs
// that are not installed are left out and named. With --quick, 3,000 samples of two programs are taken.
//
// Exits with 1 if chains differ in what both find, if less than 99.9 % of the samples in C and C++ programs in V3 (with
// --quick 99.5 %) reach the start, or, without --quick, if a frame takes more than a third of what it takes
// _Unwind_Backtrace.
package sample

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"cfi2sframe/convert"
	"cfi2sframe/internal/files"
	"cfi2sframe/lab/kit"
	"cfi2sframe/sframe"
)

// Why a walk ended: enum sfw_how.
const (
	outermost   = 4
	zero        = 5
	noSection   = 6
	noRegister  = 10
	numReasons  = 13
	rootPercent = 99.9 // of the samples in C and C++ programs have to reach the start
	someQuick   = 99.5 // the same where there are few, of which more are taken while a program starts
)

// longest is how long a run may take.
const longest = 15 * time.Minute

var ends = [numReasons]string{
	outermost: "outermost", zero: "return address 0", noSection: "no section", 7: "no row", 8: "bad section", 9: "memory that cannot be read",
	noRegister: "a register that is not known", 11: "a caller's frame that is not above", 12: "too many frames",
}

// A result is what the sampler has counted.
type result struct {
	counts  map[string]float64
	tallies []tally
	files   []string // with code, that the process had
	runs    int
}

// A tally is samples of one kind at one place.
type tally struct {
	kind         string
	end          int
	count        uint64
	offset       uint64
	ours, theirs uint64
	file         string // "" for the program
}

func (r *result) n(name string) float64 { return r.counts[name] }

// percent returns a count as a share of the samples.
func (r *result) percent(name string) float64 {
	return 100 * r.counts[name] / max(r.counts["samples"], 1)
}

// add adds the counts of another run. Medians are weighed by its samples.
func (r *result) add(o *result) {
	n, m := r.counts["samples"], o.counts["samples"]
	for name, v := range o.counts {
		if strings.HasSuffix(name, "ns") {
			r.counts[name] = (r.counts[name]*n + v*m) / max(n+m, 1)
		} else {
			r.counts[name] += v
		}
	}
	r.tallies = append(r.tallies, o.tallies...)
	r.files = o.files
	r.runs++
}

// parse reads what the sampler has written.
func parse(in io.Reader) (*result, error) {
	r := &result{counts: make(map[string]float64), runs: 1}
	seen := make(map[string]bool)
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		line := lines.Text()
		fields := strings.Fields(line)
		switch {
		case len(fields) == 2:
			v, err := strconv.ParseFloat(fields[1], 64)
			if err != nil {
				return nil, fmt.Errorf("line %q: %w", line, err)
			}
			r.counts[fields[0]] = v
		case fields[0] == "end":
			v, err := strconv.ParseFloat(fields[2], 64)
			if err != nil {
				return nil, fmt.Errorf("line %q: %w", line, err)
			}
			r.counts["end "+fields[1]] = v
		case fields[0] == "tally":
			var t tally
			if _, err := fmt.Sscanf(line, "tally %s %d %d %v %v %v", &t.kind, &t.end, &t.count, &t.offset, &t.ours, &t.theirs); err != nil {
				return nil, fmt.Errorf("line %q: %w", line, err)
			}
			if len(fields) > 7 {
				t.file = fields[7]
			}
			r.tallies = append(r.tallies, t)
		case len(fields) == 6 && strings.Contains(fields[1], "x") && strings.HasPrefix(fields[5], "/") && !seen[fields[5]]:
			seen[fields[5]] = true
			r.files = append(r.files, fields[5])
		}
	}
	if r.counts["samples"] == 0 {
		return nil, errors.New("there are no samples")
	}
	return r, lines.Err()
}

// A lab is where programs are sampled.
type lab struct {
	dir     string
	sampler string // the library
	clock   string
	period  time.Duration
	upper   map[sframe.Version]string // where a version's converted files are, by the names of the originals
	files   map[sframe.Version]map[string]*binary
}

// convert puts converted files over the originals, for a version.
func (l *lab) convert(v sframe.Version, paths []string) error {
	for _, f := range paths {
		if l.files[v][f] != nil {
			continue
		}
		b := &binary{path: f}
		l.files[v][f] = b
		out := filepath.Join(l.upper[v], f)
		if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
			return err
		}
		opt := files.Options{Options: convert.Options{Version: v, Force: true}, NoSync: true}
		res, err := files.Convert(context.Background(), f, out, opt)
		if err != nil {
			b.err = err
			continue
		}
		b.coverage = res.Coverage[0]
		if err := b.load(out); err != nil {
			return fmt.Errorf("%s: %w", f, err)
		}
	}
	return nil
}

// inside mounts the converted files over the system's, in a mount namespace of its own, and runs a command there.
const inside = `mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
mount --rbind /proc "$1/root/proc"
mount --rbind /dev "$1/root/dev"
root=$1/root
shift
exec chroot "$root" "$@"`

// sample runs a subject until there are so many samples: as it is for version 0, or converted.
func (l *lab) sample(s *subject, v sframe.Version, samples int) (*result, error) {
	all := &result{counts: make(map[string]float64)}
	for all.n("samples") < float64(samples) {
		out := filepath.Join(l.dir, "out")
		env := append([]string{"env", "SAMPLE_OUT=" + out, fmt.Sprint("SAMPLE_MAX=", samples-int(all.n("samples"))),
			"SAMPLE_CLOCK=" + l.clock, fmt.Sprint("SAMPLE_PERIOD=", l.period.Nanoseconds())}, s.env...)
		if !s.static {
			env = append(env, "LD_PRELOAD="+l.sampler)
		}
		args := append(env, s.command...)
		if v != 0 {
			base := filepath.Dir(l.upper[v])
			args = append([]string{"unshare", "-m", "sh", "-ec", inside, "sh", base}, args...)
			out = filepath.Join(l.upper[v], out)
		}
		_ = os.Remove(out)
		ctx, cancel := context.WithTimeout(context.Background(), longest)
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		began := time.Now()
		failed := cmd.Run()
		cancel()
		f, err := os.Open(out)
		if err != nil {
			return nil, fmt.Errorf("%s: %v, %w\n%s", s.name, failed, err, stderr.String())
		}
		r, err := parse(f)
		f.Close()
		if err != nil || failed != nil {
			return nil, fmt.Errorf("%s: %w after %v\n%s", s.name, errors.Join(failed, err), time.Since(began), stderr.String())
		}
		if s.zero {
			r.counts["root"] += r.counts[fmt.Sprint("end ", zero)]
		}
		all.add(r)
	}
	return all, nil
}

// explain says for each sample that is not whole, or not the same in both chains, where and why, and how many.
func (l *lab) explain(s *subject, v sframe.Version, r *result) []string {
	reasons := make(map[string]uint64)
	for _, t := range r.tallies {
		path := t.file
		if path == "" {
			path = s.command[0]
		}
		b := l.files[v][path]
		if real, err := filepath.EvalSymlinks(path); b == nil && err == nil {
			b = l.files[v][real]
		}
		what := map[string]string{
			"behind": "ends first", "ahead": "goes on where _Unwind_Backtrace ends", "differ": "DIFFERS", "no-root": "both end",
			"lost": "_Unwind_Backtrace does not find the code that was interrupted", "crashed": "_Unwind_Backtrace crashes",
		}[t.kind]
		switch {
		case strings.HasPrefix(path, "linux-vdso"):
			what += " in the kernel's vDSO, which has no section"
		case t.file == "?":
			what += " in code of no file"
		case b == nil:
			what += " in " + path
		case b.err != nil:
			what += fmt.Sprintf(" in %s, which cannot be converted (%v)", short(path), b.err)
		default:
			what += fmt.Sprintf(" in %s, %s: %s", short(path), b.name(t.offset-1), b.why(t.end, t.offset))
		}
		if t.kind == "no-root" && t.ours != 0 {
			what += "; what both find as its caller is in no file"
		}
		if t.kind == "differ" {
			what += fmt.Sprintf("; %#x, and %#x there", t.ours, t.theirs)
		}
		reasons[what] += t.count
	}
	var lines []string
	for _, what := range slices.SortedFunc(maps.Keys(reasons), func(a, b string) int {
		return cmp.Or(cmp.Compare(reasons[b], reasons[a]), cmp.Compare(a, b))
	}) {
		lines = append(lines, fmt.Sprintf("%d: %s", reasons[what], what))
	}
	return lines
}

// settings are what the command line says.
type settings struct {
	samples  int
	quick    bool
	only     []string
	versions []int
	clock    string
	period   time.Duration
	markdown string
}

// Command returns the subcommand.
func Command() *kit.Command {
	var o settings
	c := kit.New("sample", "", 0, 0)
	c.IntVar(&o.samples, "samples", 100000, "take `N` of each program in each version")
	c.BoolVar(&o.quick, "quick", false, "take 3,000 samples of two programs in version 3")
	c.StringSliceVar(&o.only, "only", nil, "sample the programs with these `NAMES`; all if there are none")
	c.IntSliceVar(&o.versions, "versions", []int{3, 2}, "sample the programs with these `VERSIONS` of SFrame")
	c.StringVar(&o.clock, "clock", "timer", "source of signals: timer (one for each thread) or itimer")
	c.DurationVar(&o.period, "period", 100*time.Microsecond, "from one sample to the next")
	c.StringVar(&o.markdown, "markdown", "", "write the table to `FILE`, too")
	c.Run = func([]string) error {
		if o.clock != "timer" && o.clock != "itimer" {
			return fmt.Errorf("--clock %q is not timer or itimer", o.clock)
		}
		if o.quick {
			o.samples, o.versions = 3000, []int{3}
			if len(o.only) == 0 {
				o.only = []string{"python3", "exceptions (C++)"}
			}
		}
		bad, err := run(&o)
		if err == nil && len(bad) > 0 {
			err = errors.New(strings.Join(bad, "\n"))
		}
		return err
	}
	return c
}

// setUp makes the sampler, and a folder for each version.
func setUp(o *settings) (*lab, error) {
	if os.Getuid() != 0 {
		return nil, errors.New("root is missing, to put converted libraries over the system's in a mount namespace")
	}
	dir, err := os.MkdirTemp("", "sample-")
	if err != nil {
		return nil, err
	}
	l := &lab{
		dir: dir, sampler: filepath.Join(dir, "sample.so"), clock: o.clock, period: o.period,
		upper: make(map[sframe.Version]string), files: make(map[sframe.Version]map[string]*binary),
	}
	for _, v := range o.versions {
		base := filepath.Join(dir, fmt.Sprint("v", v))
		for _, sub := range []string{"upper", "work", "root"} {
			if err := os.MkdirAll(filepath.Join(base, sub), 0o755); err != nil {
				return l, err
			}
		}
		l.upper[sframe.Version(v)] = filepath.Join(base, "upper")
		l.files[sframe.Version(v)] = make(map[string]*binary)
	}
	gcc := func(args ...string) error {
		args = append([]string{"-O2", "-std=gnu11", "-fvisibility=hidden", "-Iwalker", "lab/sample/c/sample.c"}, args...)
		if b, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("gcc: %w\n%s", err, b)
		}
		return nil
	}
	return l, errors.Join(
		gcc("-shared", "-fPIC", "-Wl,-z,now", "-lgcc_s", "-o", l.sampler),
		gcc("-DSAMPLE_STATIC", "-c", "-o", filepath.Join(dir, "sample.o")))
}

// sources copies what is compiled: Go does not compile what is in a folder with C files, or in a repository's.
func (l *lab) sources() (string, error) {
	src := filepath.Join(l.dir, "src")
	if err := os.MkdirAll(src, 0o755); err != nil {
		return "", err
	}
	for from, to := range map[string]string{"throw.cc": "throw.cc", "threads.c": "threads.c", "work.rs": "work.rs", "gowork/main.go.txt": "main.go"} {
		b, err := os.ReadFile(filepath.Join("lab/sample/c", from))
		if err == nil {
			err = os.WriteFile(filepath.Join(src, to), b, 0o666)
		}
		if err != nil {
			return "", err
		}
	}
	return src, nil
}

// whole samples a subject of which all files are converted: it may load more of them later than in the run before.
func (l *lab) whole(s *subject, v sframe.Version, files []string, samples int) (*result, error) {
	for {
		if err := l.convert(v, files); err != nil {
			return nil, err
		}
		r, err := l.sample(s, v, samples)
		if err != nil || !slices.ContainsFunc(r.files, func(f string) bool { return l.files[v][f] == nil }) {
			return r, err
		}
		files = r.files
	}
}

// run samples all subjects, and returns what is not as it has to be.
func run(o *settings) (bad []string, err error) {
	l, err := setUp(o)
	if l != nil {
		defer os.RemoveAll(l.dir)
	}
	if err != nil {
		return nil, err
	}
	src, err := l.sources()
	if err != nil {
		return nil, err
	}
	repo, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	var t table
	for i := range subjects {
		s := &subjects[i]
		if len(o.only) > 0 && !slices.Contains(o.only, s.name) {
			continue
		}
		if err := s.prepare(l.dir, src, repo, filepath.Join(l.dir, "sample.o")); err != nil {
			fmt.Fprintf(os.Stderr, "sample: %s is left out: %v\n", s.name, err)
			t.missing = append(t.missing, s.name)
			continue
		}
		plain, err := l.sample(s, 0, max(o.samples/20, 500))
		if err != nil {
			return nil, err
		}
		for _, v := range o.versions {
			version := sframe.Version(v)
			r, err := l.whole(s, version, plain.files, o.samples)
			if err != nil {
				return nil, err
			}
			row := row{subject: s, version: v, plain: plain, result: r, why: l.explain(s, version, r)}
			bad = append(bad, row.bad(o.quick)...)
			t.rows = append(t.rows, row)
			fmt.Println(row.text())
			for i, why := range row.why {
				if i == 15 {
					fmt.Printf("    and %d more\n", len(row.why)-i)
					break
				}
				fmt.Println("   ", why)
			}
		}
	}
	if len(t.rows) == 0 {
		return nil, errors.New("nothing was sampled")
	}
	if o.markdown != "" {
		err = os.WriteFile(o.markdown, []byte(t.markdown()), 0o666)
	}
	return bad, err
}

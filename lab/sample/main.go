// Package sample walks stacks as profilers do: in handlers of SIGPROF, at 10 kHz, in programs of the system and in some
// that are built here (exceptions in C++, threads, Rust, Go). They are converted with all of their libraries, libc and
// ld.so. Each handler compares walker/sframe_walker.h with _Unwind_Backtrace, and measures both.
//
// A mount namespace has the converted files instead of the system's, which are unchanged. The sampler is preloaded, or
// linked with static programs. This needs root, an overlay file system, go, gcc and g++; missing programs are named.
//
// Fails if chains differ in frames that both find, if less than 99.9 % of the samples in C and C++ programs in V3 reach
// the start (with --quick 99.5 %; of those in Go 95 %), or, without --quick, if a frame takes more than a third of its
// time by _Unwind_Backtrace.
package sample

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"cfi2sframe/lab/kit"
)

// longest bounds a run.
const longest = 15 * time.Minute

// A lab is where programs are sampled.
type lab struct {
	dir  string
	done map[string]bool // copies of files in the directories of versions
}

func (l *lab) tool() string          { return filepath.Join(l.dir, "cfi2sframe") }
func (l *lab) sampler() string       { return filepath.Join(l.dir, "sample.so") }
func (l *lab) base(v int) string     { return filepath.Join(l.dir, fmt.Sprint(v)) }
func (l *lab) upper(v int) string    { return filepath.Join(l.base(v), "upper") }
func (l *lab) sources() string       { return filepath.Join(l.dir, "src") }
func (l *lab) staticSampler() string { return filepath.Join(l.dir, "sample.o") }

// Command returns the subcommand.
func Command() *kit.Command {
	c := kit.New("sample", "", 0, 0)
	samples := c.Int("samples", 100000, "take `N` of each program in each version")
	quick := c.Bool("quick", false, "take 3,000 samples of two programs in version 3")
	only := c.StringSlice("only", nil, "sample the programs with these `NAMES`")
	versions := c.IntSlice("versions", []int{3, 2}, "sample the programs with these `VERSIONS` of SFrame")
	c.Run = func([]string) error {
		if *quick {
			*samples, *versions = 3000, []int{3}
			if len(*only) == 0 {
				*only = []string{"perl", "exceptions (C++)"}
			}
		}
		if os.Getuid() != 0 {
			return errors.New("root is needed, for a mount namespace with the converted libraries")
		}
		dir, err := os.MkdirTemp("", "sample-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		l := &lab{dir, make(map[string]bool)}
		for _, v := range *versions {
			for _, sub := range []string{"upper", "work", "root"} {
				if err := os.MkdirAll(filepath.Join(l.base(v), sub), 0o755); err != nil {
					return err
				}
			}
		}
		if err := l.build(); err != nil {
			return err
		}
		return l.run(*only, *versions, *samples, *quick)
	}
	return c
}

// build makes the sampler, and copies the sources.
func (l *lab) build() error {
	for _, args := range [][]string{
		{"-shared", "-fPIC", "-Wl,-z,now", "-lgcc_s", "-o", l.sampler()},
		{"-DSAMPLE_STATIC", "-c", "-o", l.staticSampler()},
	} {
		args = append(args, "-O2", "-std=gnu11", "-fvisibility=hidden", "-Iwalker", "lab/sample/c/sample.c")
		if b, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("gcc: %w\n%s", err, b)
		}
	}
	return errors.Join(kit.BuildProduct(l.tool()), kit.CopySources("lab/sample/c", l.sources(), "gowork/main.go"))
}

// ends are those of enum sfw_how.
var ends = []string{
	4: "outermost", zero: "return address 0", "no section", "no row", "bad section", "unreadable memory",
	"an unknown register", "a caller's frame that is not above", "too many frames",
}

// zero is the end of a walk at a return address of 0.
const zero = 5

// most is the number of explanations of a result.
const most = 15

// run samples all subjects.
func (l *lab) run(only []string, versions []int, samples int, quick bool) error {
	table := kit.NewTable(os.Stdout, "program", "", ">samples", ">differ", ">ends first",
		">reach the start", ">`_Unwind_Backtrace`", ">frames", ">ns per frame", ">with a cache", ">`_Unwind_Backtrace`")
	var bad, reasons []string
	none := true
	for _, s := range subjects {
		if len(only) > 0 && !slices.Contains(only, s.name) {
			continue
		}
		if err := s.prepare(l); err != nil {
			reasons = append(reasons, fmt.Sprintf("%s is missing: %v", s.name, err))
			continue
		}
		none = false
		plain, err := l.sample(&s, 0, max(samples/20, 500))
		if err != nil {
			return err
		}
		for _, v := range versions {
			r, err := l.whole(&s, v, plain.Files, samples)
			if err != nil {
				return err
			}
			n := r.N
			table.Row(s.name, fmt.Sprint("V", v), n["samples"], n["differ"], n["behind"], percent(r, "root"),
				percent(r, "peer-root"), fmt.Sprintf("%.1f", n["frames"]/n["samples"]), fmt.Sprintf("%.0f", n["ns"]),
				fmt.Sprintf("%.0f (%.2f)", n["cache-ns"], n["cache-ns"]/n["peer-ns"]), fmt.Sprintf("%.0f", n["peer-ns"]))
			name := fmt.Sprintf("%s, V%d: ", s.name, v)
			for _, why := range s.wrong(r, v, quick) {
				bad = append(bad, name+why)
			}
			lines := r.Explain(s.command[0], ends)
			for _, why := range lines[:min(len(lines), most)] {
				reasons = append(reasons, name+why)
			}
		}
	}
	fmt.Println(strings.Join(reasons, "\n"))
	if none {
		bad = append(bad, "no program was sampled")
	}
	if len(bad) > 0 {
		return errors.New(strings.Join(bad, "\n"))
	}
	return nil
}

// percent returns a count as a share of the samples.
func percent(r *kit.Counts, name string) string {
	return fmt.Sprintf("%.3f %%", 100*r.N[name]/r.N["samples"])
}

// wrong returns what a result fails by.
func (s *subject) wrong(r *kit.Counts, v int, quick bool) (bad []string) {
	n := r.N
	if n["differ"] > 0 || n["cache-differs"] > 0 {
		bad = append(bad, fmt.Sprintf("%.0f chains differ in frames that both find, %.0f with a cache",
			n["differ"], n["cache-differs"]))
	}
	least := 0.999
	switch {
	case s.zero:
		least = 0.95 // Go has gaps where it changes its stack
	case quick:
		least = 0.995 // more of the samples are of the program's start
	}
	if (s.c || s.zero) && v == 3 && n["root"] < least*n["samples"] {
		bad = append(bad, fmt.Sprintf("%s of the samples reach the start; less than %v", percent(r, "root"), least))
	}
	if !quick && s.c && n["cache-ns"]*3 > n["peer-ns"] {
		bad = append(bad, fmt.Sprintf("a frame takes %.0f ns, more than a third of _Unwind_Backtrace's time", n["cache-ns"]))
	}
	return bad
}

// whole samples a subject with all of its files converted: it may load more of them than in the run before.
func (l *lab) whole(s *subject, v int, files []string, samples int) (*kit.Counts, error) {
	for {
		for _, f := range files {
			out := filepath.Join(l.upper(v), f)
			l.done[out] = true
			if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
				return nil, err
			}
			if _, err := kit.Convert(l.tool(), f, out, "--force", "--format", fmt.Sprint(v)); err != nil {
				fmt.Fprintf(os.Stderr, "lab sample: %v\n", err)
			}
		}
		r, err := l.sample(s, v, samples)
		if err != nil {
			return nil, err
		}
		files = slices.DeleteFunc(r.Files, func(f string) bool { return l.done[filepath.Join(l.upper(v), f)] })
		if len(files) == 0 {
			return r, nil
		}
	}
}

// inside mounts the converted files over the system's, in the mount namespace, and runs a command there.
const inside = `mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
mount --rbind /proc "$1/root/proc"
mount --rbind /dev "$1/root/dev"
root=$1/root
shift
exec chroot "$root" "$@"`

// sample runs a subject until it has the samples: the original for version 0, or converted.
func (l *lab) sample(s *subject, v, samples int) (*kit.Counts, error) {
	all := &kit.Counts{N: make(map[string]float64)}
	for all.N["samples"] < float64(samples) {
		out := filepath.Join(l.dir, "out")
		left := fmt.Sprint("SAMPLE_MAX=", samples-int(all.N["samples"]))
		args := append([]string{"env", "SAMPLE_OUT=" + out, left}, s.env...)
		if !s.static {
			args = append(args, "LD_PRELOAD="+l.sampler())
		}
		args = append(args, s.command...)
		if v != 0 {
			args = append([]string{"unshare", "-m", "sh", "-ec", inside, "sh", l.base(v)}, args...)
			out = filepath.Join(l.upper(v), out)
		}
		_ = os.Remove(out)
		ctx, cancel := context.WithTimeout(context.Background(), longest)
		said, failed := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
		cancel()
		r, err := kit.ReadCounts(out)
		if err = errors.Join(failed, err); err == nil && r.N["samples"] == 0 {
			err = errors.New("no samples")
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", s.name, err, said)
		}
		if s.zero {
			// Without a row for runtime.goexit that says so, the return address 0 is where a goroutine begins.
			r.N["root"] += r.N[fmt.Sprint("end ", zero)] + r.N["outermost"]
		}
		all.Add(r)
	}
	return all, nil
}

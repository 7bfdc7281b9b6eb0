// Package sample walks stacks as profilers do: in handlers of SIGPROF, at 10 kHz, in programs of the system and in some
// that are built here (exceptions in C++, threads, Rust, Go). They are converted with all of their libraries, libc and
// ld.so. Each handler compares walker/sframe_walker.h with _Unwind_Backtrace, and measures both.
//
// A mount namespace has the converted files instead of the system's, which are unchanged. The sampler is preloaded, or
// linked with static programs. This needs root, an overlay file system, go, gcc and g++; missing programs are named.
//
// Fails if chains differ in frames that both find, if less than 99.9 % of the samples in C and C++ programs in V3 reach
// the start (with --quick 99.5 %; of those in Go 95 %), or, without --quick, if a frame takes more than a third of its time by
// _Unwind_Backtrace.
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

	"cfi2sframe/convert"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/files"
	"cfi2sframe/internal/testkit/linked"
	"cfi2sframe/lab/kit"
	"cfi2sframe/sframe"
)

// longest bounds a run.
const longest = 15 * time.Minute

// A lab is where programs are sampled.
type lab struct {
	dir   string
	files map[sframe.Version]map[string]*elffile.File // originals, by path; nil if not converted
}

func (l *lab) sampler() string               { return filepath.Join(l.dir, "sample.so") }
func (l *lab) base(v sframe.Version) string  { return filepath.Join(l.dir, v.String()) }
func (l *lab) upper(v sframe.Version) string { return filepath.Join(l.base(v), "upper") }
func (l *lab) sources() string               { return filepath.Join(l.dir, "src") }
func (l *lab) staticSampler() string         { return filepath.Join(l.dir, "sample.o") }

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
				*only = []string{"python3", "exceptions (C++)"}
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
		l := &lab{dir, make(map[sframe.Version]map[string]*elffile.File)}
		for _, v := range *versions {
			version := sframe.Version(v)
			l.files[version] = make(map[string]*elffile.File)
			for _, sub := range []string{"upper", "work", "root"} {
				if err := os.MkdirAll(filepath.Join(l.base(version), sub), 0o755); err != nil {
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
	return kit.CopySources("lab/sample/c", l.sources(), "gowork/main.go")
}

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
			version, name := sframe.Version(v), fmt.Sprintf("%s, V%d", s.name, v)
			r, err := l.whole(&s, version, plain.files, samples)
			if err != nil {
				return err
			}
			table.Row(s.name, fmt.Sprint("V", v), r.n("samples"), r.n("differ"), r.n("behind"),
				fmt.Sprintf("%.3f %%", r.percent("root")), fmt.Sprintf("%.3f %%", r.percent("peer-root")),
				fmt.Sprintf("%.1f", r.n("frames")/max(r.n("samples"), 1)),
				fmt.Sprintf("%.0f", r.n("ns")), fmt.Sprintf("%.0f (%.2f)", r.n("cache-ns"), r.ratio()),
				fmt.Sprintf("%.0f", r.n("peer-ns")))
			for _, why := range r.wrong(&s, version, quick) {
				bad = append(bad, name+": "+why)
			}
			for _, why := range explain(&s, l.files[version], r) {
				reasons = append(reasons, name+": "+why)
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

// wrong returns what a result fails by.
func (r *result) wrong(s *subject, v sframe.Version, quick bool) (bad []string) {
	if n := r.n("differ"); n > 0 {
		bad = append(bad, fmt.Sprintf("%.0f chains differ in frames that both find", n))
	}
	if n := r.n("cache-differs"); n > 0 {
		bad = append(bad, fmt.Sprintf("%.0f chains differ with a cache", n))
	}
	least := 99.9
	switch {
	case s.zero:
		least = 95 // Go has gaps where it changes its stack
	case quick:
		least = 99.5 // more of the samples are of the program's start
	}
	if got := r.percent("root"); (s.c || s.zero) && v == sframe.V3 && got < least {
		bad = append(bad, fmt.Sprintf("%.3f %% of the samples reach the start; less than %v %%", got, least))
	}
	if !quick && s.c && r.ratio() > 1./3 {
		bad = append(bad, fmt.Sprintf("a frame takes %.2f of _Unwind_Backtrace's time, not a third", r.ratio()))
	}
	return bad
}

// whole samples a subject with all of its files converted: it may load more of them than in the run before.
func (l *lab) whole(s *subject, v sframe.Version, files []string, samples int) (*result, error) {
	for {
		for _, f := range files {
			if err := l.convert(v, f); err != nil {
				return nil, fmt.Errorf("%s: %w", f, err)
			}
		}
		r, err := l.sample(s, v, samples)
		if err != nil {
			return nil, err
		}
		files = slices.DeleteFunc(r.files, func(f string) bool { _, ok := l.files[v][f]; return ok })
		if len(files) == 0 {
			return r, nil
		}
	}
}

// convert adds a converted file to those of a version, once.
func (l *lab) convert(v sframe.Version, path string) error {
	if _, ok := l.files[v][path]; ok {
		return nil
	}
	out := filepath.Join(l.upper(v), path)
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	opt := files.Options{Options: convert.Options{Version: v, Force: true}, NoSync: true}
	f, err := linked.Open(path)
	if err != nil {
		return err
	}
	if _, err := files.Convert(context.Background(), path, out, opt); err != nil {
		fmt.Fprintf(os.Stderr, "lab sample: %s: %v\n", path, err)
		f = nil
	}
	l.files[v][path] = f
	return nil
}

// inside mounts the converted files over the system's, in the mount namespace, and runs a command there.
const inside = `mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
mount --rbind /proc "$1/root/proc"
mount --rbind /dev "$1/root/dev"
root=$1/root
shift
exec chroot "$root" "$@"`

// sample runs a subject until it has the samples: the original for version 0, or converted.
func (l *lab) sample(s *subject, v sframe.Version, samples int) (*result, error) {
	all := &result{counts: make(map[string]float64)}
	for all.n("samples") < float64(samples) {
		out := filepath.Join(l.dir, "out")
		left := fmt.Sprint("SAMPLE_MAX=", samples-int(all.n("samples")))
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
		f, err := os.Open(out)
		if err != nil {
			return nil, fmt.Errorf("%s: %v, %w\n%s", s.name, failed, err, said)
		}
		r, err := parse(f)
		f.Close()
		if err = errors.Join(failed, err); err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", s.name, err, said)
		}
		if s.zero {
			// Without a row for runtime.goexit that says so, the return address 0 is where a goroutine begins.
			r.counts["root"] += r.n(fmt.Sprint("end ", zero)) + r.n("outermost")
		}
		all.add(r)
	}
	return all, nil
}

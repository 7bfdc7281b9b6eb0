// Package clients runs Debian's own clients of backtrace(), _Unwind_Backtrace and libunwind with their DWARF unwinder
// and with libsframe-backtrace.so: heap and CPU profilers in sqlite3, cc1 and python3, and programs that take stacks in a
// loop. scripts/backtrace builds what it needs.
//
// It measures processor time. Runs take turns, so that other load affects them equally, and medians are printed. The
// slow-down is the time that the profiler adds to the program; allocators' profilers are compared with the allocator.
// Then each stack of each client is compared with the DWARF unwinder's in the same process, and differences are
// explained.
package clients

import (
	"bytes"
	"cmp"
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

// A lab is where clients run.
type lab struct {
	dir, sources string
	library, run string // libsframe-backtrace.so, sframe-run
	cache        string // with the sections
	compare      string // the library that compares
	rounds       int
	measured     bool     // a tracer was measured
	bad          []string // what the command fails by
}

// Command returns the subcommand.
func Command() *kit.Command {
	c := kit.New("clients", "", 0, 0)
	var l lab
	c.StringVar(&l.library, "library", "", "`FILE` of libsframe-backtrace.so")
	c.StringVar(&l.run, "run", "", "`FILE` of sframe-run")
	c.IntVar(&l.rounds, "rounds", 7, "runs of each command")
	count := c.Int("count", 0, "compare `N` stacks of each client, instead of those of one run, and measure nothing")
	quick := c.Bool("quick", false, "compare stacks of sqlite3 with a small input, and measure nothing")
	outside := c.Bool("outside", false, "compare stacks of other programs with libgcc's: of --rounds runs, and --count stacks")
	only := c.StringSlice("only", nil, "take the clients and programs whose `NAMES` contain these words")
	c.Run = func([]string) error {
		if l.library == "" || l.run == "" {
			return errors.New("use scripts/backtrace, which says --library and --run")
		}
		dir, err := os.MkdirTemp("", "backtrace-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		l.dir = dir
		if err := l.build(); err != nil {
			return err
		}
		if *outside {
			every := 1
			if *quick {
				l.rounds, every = 1, 97
			}
			if err := l.outside(*only, l.rounds, *count, every); err != nil || len(l.bad) == 0 {
				return err
			}
			return errors.New(strings.Join(l.bad, "\n"))
		}
		if *quick {
			for i := range programs {
				programs[i].size /= 20
			}
			*only = append(*only, "sqlite3")
		}
		all := pairs(*only)
		measures := *count == 0 && !*quick
		if measures {
			err = l.traces(*only)
		}
		if len(all) == 0 && !l.measured {
			return errors.Join(err, errors.New("no client is there, or --only names none"))
		}
		if measures && len(all) > 0 {
			err = errors.Join(err, l.slowDowns(all))
		}
		if len(all) > 0 {
			err = errors.Join(err, l.compareAll(all, *count, *quick))
		}
		if err != nil {
			return err
		}
		if len(l.bad) > 0 {
			return errors.New(strings.Join(l.bad, "\n"))
		}
		return nil
	}
	return c
}

// build makes the library that compares, and copies the sources.
func (l *lab) build() error {
	l.sources, l.compare = filepath.Join(l.dir, "src"), filepath.Join(l.dir, "compare.so")
	l.cache = filepath.Join(l.dir, "cache")
	if err := kit.CopySources("lab/clients/c", l.sources, "cgo.go"); err != nil {
		return err
	}
	for _, command := range [][]string{
		{"gcc", "-O2", "-std=gnu11", "-fPIC", "-shared", "-o", l.compare, "lab/clients/c/compare.c"},
		{"gcc", "-E", "-Iwalker", "-o", filepath.Join(l.dir, "walker.i"), "lab/walker/c/process.c"},
	} {
		if b, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w\n%s", command, err, b)
		}
	}
	cc1, err := exec.Command("gcc", "-print-prog-name=cc1").Output()
	if err != nil {
		return fmt.Errorf("gcc: %w", err)
	}
	for i := range programs {
		for j, w := range programs[i].command {
			w = strings.ReplaceAll(w, "CC1", string(bytes.TrimSpace(cc1)))
			programs[i].command[j] = strings.ReplaceAll(w, "TMP", l.dir)
		}
	}
	return nil
}

// wanted reports whether a combination of names is to be run.
func wanted(only []string, names ...string) bool {
	all := strings.Join(names, " ")
	return !slices.ContainsFunc(only, func(word string) bool { return !strings.Contains(all, word) })
}

// cover writes the sections of what a command loads to the cache.
func (l *lab) cover(preload string, command ...string) error {
	args := []string{"--also", l.compare}
	if preload != "" {
		args = append(args, "--preload", preload)
	}
	cmd := exec.Command(l.run, append(append(args, "--learn"), command...)...)
	cmd.Dir = l.dir // profilers write there
	cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+l.cache)
	if b, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, b)
	}
	return nil
}

// with returns the environment for libraries that are preloaded, with the library or without.
func (l *lab) with(library bool, preload ...string) []string {
	if library {
		at := 0
		if len(preload) > 0 && preload[0] == l.compare {
			at = 1
		}
		preload = slices.Insert(slices.Clone(preload), at, l.library)
	}
	return []string{"LD_PRELOAD=" + strings.Join(preload, ":"), "SFRAME_PATH=" + filepath.Join(l.cache, "cfi2sframe")}
}

// start runs a command to its end, and returns its processor time and its output.
func start(env []string, input string, command ...string) (time.Duration, string, error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin = strings.NewReader(input)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return 0, "", fmt.Errorf("%v: %w\n%s", command, err, said.Bytes())
	}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), out.String(), nil
}

// stdin returns the program's input.
func (p *program) stdin() string {
	if p.input == "" {
		return ""
	}
	return fmt.Sprintf(p.input, p.size)
}

// profile returns the environment of a program that a client profiles.
func (l *lab) profile(c *client, p *program) []string {
	env := slices.Clone(p.env)
	for _, e := range c.env {
		env = append(env, strings.ReplaceAll(e, "TMP", l.dir))
	}
	return env
}

// A pair is a client in a program.
type pair struct {
	*client
	*program
}

func (p *pair) String() string { return p.client.name + " in " + p.program.name }

// pairs returns those whose names are wanted, and whose client is there.
func pairs(only []string) (all []pair) {
	for i := range clients {
		c := &clients[i]
		if _, err := os.Stat(c.preload); err != nil {
			fmt.Fprintf(os.Stderr, "backtrace: %s is missing: %v\n", c.name, err)
			continue
		}
		for j := range programs {
			if wanted(only, c.name, programs[j].name) {
				all = append(all, pair{c, &programs[j]})
			}
		}
	}
	return all
}

// slowDowns measures what each client adds to each program.
func (l *lab) slowDowns(all []pair) error {
	table := kit.NewTable(os.Stdout, "client", "program", ">alone, ms", ">with DWARF", ">with SFrame", ">slow-down, of DWARF's")
	for _, both := range all {
		c, p := both.client, both.program
		if c.timed {
			continue
		}
		plain := l.with(false)
		if c.always {
			plain = l.with(false, c.preload)
		}
		profile := l.profile(c, p)
		if err := l.cover(c.preload, p.command[0], "--version"); err != nil {
			return err
		}
		m, err := l.measure(func(env []string) (float64, error) {
			t, _, err := start(env, p.stdin(), p.command...)
			return t.Seconds() * 1e3, err
		}, append(slices.Clone(p.env), plain...), append(slices.Clone(profile), l.with(false, c.preload)...),
			append(slices.Clone(profile), l.with(true, c.preload)...))
		if err != nil {
			return err
		}
		ratio := (m[2] - m[0]) / (m[1] - m[0])
		table.Row(c.name, p.name, ms(m[0]), ms(m[1]), ms(m[2]), fmt.Sprintf("%.2f", ratio))
		if c.most > 0 && ratio > c.most {
			l.bad = append(l.bad, fmt.Sprintf("%v: the slow-down is %.2f of DWARF's, more than %.2f",
				&both, ratio, c.most))
		}
	}
	return nil
}

func ms(v float64) string { return fmt.Sprintf("%.0f", v) }

// measure returns the medians of runs in environments that take turns. The first runs do not count.
func (l *lab) measure(run func(env []string) (float64, error), envs ...[]string) ([]float64, error) {
	all := make([][]float64, len(envs))
	for i := range l.rounds + 1 {
		for j, env := range envs {
			v, err := run(env)
			if err != nil {
				return nil, err
			}
			if i > 0 || l.rounds == 0 {
				all[j] = append(all[j], v)
			}
		}
	}
	medians := make([]float64, len(envs))
	for j, v := range all {
		slices.SortFunc(v, cmp.Compare)
		medians[j] = v[len(v)/2]
	}
	return medians, nil
}

// traces measures programs that take stacks in a loop.
func (l *lab) traces(only []string) error {
	table := kit.NewTable(os.Stdout, "tracer", ">frames", ">ns per frame, DWARF", ">SFrame", ">ratio")
	for i := range tracers {
		t := &tracers[i]
		if !wanted(only, t.name) {
			continue
		}
		program, err := l.prepare(t)
		if err != nil {
			said := strings.Split(err.Error(), "\n")
			fmt.Fprintf(os.Stderr, "backtrace: %s is missing: %s\n", t.name, strings.Join(said[:min(len(said), 3)], "; "))
			continue
		}
		if err := l.cover("", program, "32", "1"); err != nil {
			said := strings.Split(strings.TrimSpace(err.Error()), "\n")
			fmt.Fprintf(os.Stderr, "backtrace: %s does not run: %s\n", t.name, said[len(said)-1])
			continue
		}
		var frames [2]float64
		m, err := l.measure(func(env []string) (float64, error) {
			_, out, err := start(env, "", program, "32", fmt.Sprint(t.traces))
			if err != nil {
				return 0, err
			}
			var n, all, ns float64
			if _, err := fmt.Sscanf(out, "%f traces, %f frames, %f ns", &n, &all, &ns); err != nil || all == 0 {
				return 0, fmt.Errorf("%s: %q: %v", t.name, out, err)
			}
			frames[0], frames[1] = frames[1], all/n
			return ns / all, nil
		}, l.with(false), l.with(true))
		if err != nil {
			return err
		}
		if t.onward != (frames[0] < frames[1]) || frames[0] > frames[1] {
			l.bad = append(l.bad, fmt.Sprintf("%s: %v frames by DWARF, %v by SFrame", t.name, frames[0], frames[1]))
		}
		l.measured = true
		table.Row(t.name, fmt.Sprintf("%.0f", frames[1]), fmt.Sprintf("%.1f", m[0]), fmt.Sprintf("%.1f", m[1]),
			fmt.Sprintf("%.2f", m[1]/m[0]))
		if t.ratio > 0 && m[1] >= t.ratio*m[0] {
			l.bad = append(l.bad, fmt.Sprintf("%s: %.1f ns per frame, %.1f by DWARF", t.name, m[1], m[0]))
		}
		if t.most > 0 && m[1] > t.most {
			l.bad = append(l.bad, fmt.Sprintf("%s: %.1f ns per frame, more than %v", t.name, m[1], t.most))
		}
	}
	return nil
}

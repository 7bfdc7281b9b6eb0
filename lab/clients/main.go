// Package clients runs Debian's own clients of backtrace(), _Unwind_Backtrace and libunwind with their DWARF unwinder
// and with libsframe-backtrace.so: heap and CPU profilers in sqlite3, cc1 and python3, and programs that capture stacks
// in a loop. scripts/backtrace builds what it needs. It measures processor time in alternating runs, and prints
// medians. The slow-down is the time that the profiler adds to the program; a profiler that is part of an allocator is
// compared with the allocator. Then each stack of each client is compared with the DWARF unwinder's in the same
// process, and differences are explained.
package clients

import (
	"bytes"
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

// A lab contains the paths and settings with which clients run.
type lab struct {
	dir, sources string
	library, run string // libsframe-backtrace.so, sframe-run
	compare      string // the library that compares stacks
	rounds       int
	only         []string
	bad          []string // reasons to fail
}

// Command returns the subcommand.
func Command() *kit.Command {
	c := kit.New("clients", "LIBRARY RUN", 2, 2)
	var l lab
	c.IntVar(&l.rounds, "rounds", 7, "runs of each command")
	count := c.Int("count", 0, "compare `N` stacks of each client, instead of those of one run, and measure nothing")
	quick := c.Bool("quick", false, "compare stacks of sqlite3 with a small input, and measure nothing")
	c.StringSliceVar(&l.only, "only", nil, "use only clients and programs whose names contain these `WORDS`")
	c.Run = func(args []string) error {
		dir, err := os.MkdirTemp("", "backtrace-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		l.library, l.run, l.dir = args[0], args[1], dir
		if err := l.build(); err != nil {
			return err
		}
		if *quick {
			for i := range programs {
				programs[i].size /= 20
			}
			l.only = append(l.only, "sqlite3")
		}
		if *count == 0 && !*quick {
			if err := errors.Join(l.traces(), l.slowDowns()); err != nil {
				return err
			}
		}
		if err := l.compareAll(*count, *quick); err != nil {
			return err
		}
		if len(l.bad) > 0 {
			return errors.New(strings.Join(l.bad, "\n"))
		}
		return nil
	}
	return c
}

func (l *lab) fail(format string, args ...any) { l.bad = append(l.bad, fmt.Sprintf(format, args...)) }

// build builds the library that compares stacks, and copies the sources.
func (l *lab) build() error {
	l.sources, l.compare = filepath.Join(l.dir, "src"), filepath.Join(l.dir, "compare.so")
	if err := os.CopyFS(l.sources, os.DirFS("lab/clients/c")); err != nil {
		return err
	}
	program := filepath.Join(l.sources, "cgo.go") // .txt in lab, or go vet would build the C files
	if err := os.Rename(program+".txt", program); err != nil {
		return err
	}
	for _, command := range [][]string{
		{"gcc", "-O2", "-std=gnu11", "-fPIC", "-shared", "-o", l.compare, "lab/clients/c/compare.c"},
		{"gcc", "-E", "-Iwalker", "-o", filepath.Join(l.dir, "walker.i"), "lab/walker/c/process.c"},
	} {
		if err := kit.Run("", command...); err != nil {
			return err
		}
	}
	cc1, err := exec.Command("gcc", "-print-prog-name=cc1").Output()
	if err != nil {
		return fmt.Errorf("gcc: %w", err)
	}
	names := strings.NewReplacer("CC1", string(bytes.TrimSpace(cc1)), "TMP", l.dir)
	for i := range programs {
		for j, w := range programs[i].command {
			programs[i].command[j] = names.Replace(w)
		}
	}
	for i := range clients {
		for j, e := range clients[i].env {
			clients[i].env[j] = names.Replace(e)
		}
	}
	return nil
}

// isSelected reports whether --only selects a combination of names.
func (l *lab) isSelected(names ...string) bool {
	all := strings.Join(names, " ")
	return !slices.ContainsFunc(l.only, func(word string) bool { return !strings.Contains(all, word) })
}

// A pair is a client in a program.
type pair struct {
	*client
	*program
}

func (p *pair) String() string { return p.client.name + " in " + p.program.name }

// forEachPair calls fn for each selected pair whose client is installed.
func (l *lab) forEachPair(fn func(p *pair) error) error {
	for i := range clients {
		c := &clients[i]
		if _, err := os.Stat(c.preload); err != nil {
			fmt.Fprintf(os.Stderr, "backtrace: %s is missing: %v\n", c.name, err)
			continue
		}
		for j := range programs {
			p := &pair{c, &programs[j]}
			if !l.isSelected(c.name, p.program.name) {
				continue
			}
			if err := l.makeSections(c.preload, p.command[0], "--version"); err != nil {
				return err
			}
			if err := fn(p); err != nil {
				return fmt.Errorf("%v: %w", p, err)
			}
		}
	}
	return nil
}

// makeSections fills the cache directory, l.dir, with the sections of all files that a command loads.
func (l *lab) makeSections(preload string, command ...string) error {
	args := []string{"env", "XDG_CACHE_HOME=" + l.dir, l.run, "--also", l.compare}
	if preload != "" {
		args = append(args, "--preload", preload)
	}
	return kit.Run(l.dir, append(append(args, "--learn"), command...)...) // where profilers may write
}

// preloadEnv returns the environment variables that preload libraries.
func (l *lab) preloadEnv(preload ...string) []string {
	return []string{"LD_PRELOAD=" + strings.Join(preload, ":"), "SFRAME_PATH=" + filepath.Join(l.dir, "cfi2sframe")}
}

// start runs a command, and returns its processor time and output.
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

// slowDowns measures the time that each client adds to each program.
func (l *lab) slowDowns() error {
	table := kit.NewTable(os.Stdout, "client", "program", ">alone, ms", ">with DWARF", ">with SFrame",
		">ratio of slow-downs")
	return l.forEachPair(func(p *pair) error {
		if p.timed {
			return nil
		}
		run := func(profile []string, preload ...string) func() ([]float64, error) {
			env := slices.Concat(p.program.env, profile, l.preloadEnv(preload...))
			return func() ([]float64, error) {
				t, _, err := start(env, p.stdin(), p.command...)
				return []float64{t.Seconds() * 1e3}, err
			}
		}
		var plain []string
		if p.always {
			plain = append(plain, p.preload)
		}
		m, err := kit.Turns(l.rounds, []func() ([]float64, error){
			run(nil, plain...), run(p.client.env, p.preload), run(p.client.env, l.library, p.preload),
		})
		if err != nil {
			return err
		}
		ratio := (m[2][0] - m[0][0]) / (m[1][0] - m[0][0])
		table.Row(p.client.name, p.program.name, fmt.Sprintf("%.0f", m[0][0]), fmt.Sprintf("%.0f", m[1][0]),
			fmt.Sprintf("%.0f", m[2][0]), fmt.Sprintf("%.2f", ratio))
		return nil
	})
}

// traces measures programs that capture stacks in a loop.
func (l *lab) traces() error {
	table := kit.NewTable(os.Stdout, "tracer", ">frames", ">ns per frame, DWARF", ">SFrame", ">ratio")
	for i := range tracers {
		t := &tracers[i]
		if !l.isSelected(t.name) {
			continue
		}
		program, err := l.prepare(t)
		if err == nil {
			err = l.makeSections("", program, "32", "1")
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "backtrace: %s is missing: %.300s\n", t.name, err)
			continue
		}
		run := func(preload ...string) func() ([]float64, error) {
			return func() ([]float64, error) {
				_, out, err := start(l.preloadEnv(preload...), "", program, "32", fmt.Sprint(t.traces))
				if err != nil {
					return nil, err
				}
				var n, all, ns float64
				if _, err := fmt.Sscanf(out, "%f traces, %f frames, %f ns", &n, &all, &ns); err != nil || all == 0 {
					return nil, fmt.Errorf("%s: %q: %v", t.name, out, err)
				}
				return []float64{ns / all, all / n}, nil
			}
		}
		m, err := kit.Turns(l.rounds, []func() ([]float64, error){run(), run(l.library)})
		if err != nil {
			return err
		}
		before, ns, frames, now := m[0][0], m[1][0], m[0][1], m[1][1]
		table.Row(t.name, fmt.Sprintf("%.0f", now), fmt.Sprintf("%.1f", before), fmt.Sprintf("%.1f", ns),
			fmt.Sprintf("%.2f", ns/before))
		if t.onward != (frames < now) || frames > now {
			l.fail("%s: %v frames with DWARF, %v with SFrame", t.name, frames, now)
		}
	}
	return nil
}

// fewest caps the number of stacks from clients that capture only a few hundred per second of processor time.
const fewest = 1000

// compareAll compares the given number of stacks of each client, spread over the programs, or, if that is 0, the stacks
// of one run of each program. The library does not continue with DWARF, so its stack ends at a frame without a row.
func (l *lab) compareAll(count int, quick bool) error {
	table := kit.NewTable(os.Stdout, "client", "program", ">stacks", ">frames", ">differ", ">SFrame ends first",
		">DWARF ends first")
	var lines []string
	err := l.forEachPair(func(p *pair) error {
		if quick && p.timed {
			return nil
		}
		most := uint64(max(count/len(programs), 1))
		if p.timed {
			most = min(most, fewest)
		}
		out := filepath.Join(l.dir, "compared")
		env := slices.Concat(p.program.env, p.client.env, l.preloadEnv(l.compare, l.library, p.preload),
			[]string{"COMPARE_OUT=" + out, "SFRAME_BACKTRACE=sframe"})
		sum := &counts{n: make(map[string]uint64)}
		for sum.n["stacks"] < most {
			_ = os.Remove(out)
			if _, _, err := start(env, p.stdin(), p.command...); err != nil {
				return err
			}
			if err := sum.addFile(out); err != nil { // missing if the client has captured no stack
				return err
			}
		}
		table.Row(p.client.name, p.program.name, sum.n["stacks"], sum.n["frames"], sum.n["tally differ"],
			sum.n["tally behind"], sum.n["tally ahead"])
		if wrong := sum.n["tally differ"] + sum.n["lost"]; wrong > 0 {
			l.fail("%v: %d stacks differ in a frame that both find", p, wrong)
		}
		for _, line := range sum.explain() {
			lines = append(lines, fmt.Sprintf("%v: %s", p, line))
		}
		return nil
	})
	fmt.Println("\n" + strings.Join(lines, "\n"))
	return err
}

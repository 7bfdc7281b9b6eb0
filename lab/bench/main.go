// Package bench measures cfi2sframe beside programs that do a part of its work: cp, objcopy --add-section, which
// translates nothing, and readelf --debug-dump=frames-interp, which only executes the CFI. scripts/bench runs it.
//
// All commands take turns, round after round, so that other load affects them equally; medians and ratios are printed.
package bench

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"cfi2sframe/lab/kit"
)

// Command returns the subcommand.
func Command() *kit.Command {
	c := kit.New("bench", "[FILE...]", 0, math.MaxInt)
	rounds := c.Int("rounds", 7, "runs of each command")
	tool := c.String("cfi2sframe", "", "the `PROGRAM` to measure")
	gnu := c.Bool("gnu", false, "compare with the .sframe that GNU as and ld made of the files")
	c.Run = func(files []string) error {
		if *tool == "" || *rounds < 1 {
			return errors.New("bench needs --cfi2sframe PROGRAM and at least one round")
		}
		dir, err := os.MkdirTemp("", "bench-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		if *gnu {
			return compare(*tool, dir, *rounds, files)
		}
		return run(*tool, dir, *rounds, files)
	}
	return c
}

func run(tool, dir string, rounds int, files []string) error {
	fmt.Printf("%d processors, medians of %d; times in ms, wall / CPU; memory is the peak in MiB\n\n",
		runtime.NumCPU(), rounds)
	t := kit.NewTable(os.Stdout, "file", "MB", "functions", "cp", "objcopy", "readelf", "no verify",
		"cfi2sframe", "memory", "x cp", "objcopy + readelf", "detach", "writes MB")
	for _, f := range files {
		if err := file(t, tool, dir, f, rounds); err != nil {
			return fmt.Errorf("%s: %w", f, err)
		}
	}
	if err := start(tool, dir); err != nil {
		return err
	}
	return series(tool, dir, rounds)
}

// A usage is what a run of a command took.
type usage struct {
	wall, cpu time.Duration
	memory    float64 // MiB
}

// String has wall and CPU time.
func (u usage) String() string { return fmt.Sprintf("%.1f / %.1f", ms(u.wall), ms(u.cpu)) }

// measure calls before and runs the commands in turn, and returns the medians of each.
func measure(rounds int, before func(), commands [][]string) ([]usage, error) {
	all := make([][]usage, len(commands))
	for range rounds {
		for i, c := range commands {
			before()
			u, err := once(c)
			if err != nil {
				return nil, err
			}
			all[i] = append(all[i], u)
		}
	}
	medians := make([]usage, len(commands))
	for i, runs := range all {
		medians[i] = usage{
			wall:   median(runs, func(u usage) time.Duration { return u.wall }),
			cpu:    median(runs, func(u usage) time.Duration { return u.cpu }),
			memory: median(runs, func(u usage) float64 { return u.memory }),
		}
	}
	return medians, nil
}

// remove removes the output of an earlier run: replacing a large file takes time.
func remove(out string) func() { return func() { _ = os.Remove(out) } } // it may not be there

func median[T cmp.Ordered](runs []usage, of func(usage) T) T {
	values := make([]T, len(runs))
	for i, u := range runs {
		values[i] = of(u)
	}
	slices.Sort(values)
	return values[len(values)/2]
}

func once(command []string) (usage, error) {
	cmd := exec.Command(command[0], command[1:]...)
	var errs strings.Builder
	cmd.Stderr = &errs
	start := time.Now()
	if err := cmd.Run(); err != nil {
		return usage{}, fmt.Errorf("%s: %w\n%s", cmd, err, errs.String())
	}
	wall, state := time.Since(start), cmd.ProcessState
	memory := float64(state.SysUsage().(*syscall.Rusage).Maxrss) / 1024
	return usage{wall, state.UserTime() + state.SystemTime(), memory}, nil
}

// file writes the row of one file.
func file(t kit.Table, tool, dir, path string, rounds int) error {
	out := filepath.Join(dir, "out")
	extra := filepath.Join(dir, "extra")
	if err := os.WriteFile(extra, make([]byte, 1<<20), 0o666); err != nil {
		return err
	}
	m, err := measure(rounds, remove(out), [][]string{
		{"cp", path, out},
		{"objcopy", "--add-section", ".extra=" + extra, path, out},
		{"readelf", "--debug-dump=frames-interp", path},
		{tool, "-q", "--force", "--no-verify", path, "-o", out},
		{tool, "-q", "--force", path, "-o", out},
		{tool, "detach", "-q", "--force", path, "-o", out}, // the last one
	})
	if err != nil {
		return err
	}
	separate, err := os.Stat(out)
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	n, err := functions(tool, path)
	if err != nil {
		return err
	}
	ours := m[4]
	t.Row(filepath.Base(path), fmt.Sprintf("%.1f", float64(info.Size())/1e6), n, m[0], m[1], m[2], m[3], ours,
		fmt.Sprintf("%.0f", ours.memory), fmt.Sprintf("%.2f", ratio(ours.wall, m[0].wall)),
		fmt.Sprintf("%.1f x as long", ratio(m[1].wall+m[2].wall, ours.wall)), m[5],
		fmt.Sprintf("%.1f", float64(separate.Size())/1e6))
	return nil
}

// functions asks the tool how many functions the CFI of a file describes.
func functions(tool, path string) (string, error) {
	b, err := exec.Command(tool, "--dry-run", "--force", "--report", "json", path).Output()
	if err != nil {
		return "", err
	}
	_, rest, _ := strings.Cut(string(b), `"functions": `)
	n, _, _ := strings.Cut(rest, ",")
	return n, nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func ratio(a, b time.Duration) float64 { return float64(a) / float64(b) }

// startRounds are the runs of commands that take milliseconds.
const startRounds = 300

// start measures a small file beside a Go program that does nothing.
func start(tool, dir string) error {
	nothing, out, small := filepath.Join(dir, "nothing"), filepath.Join(dir, "out"), "/bin/ls"
	if err := os.WriteFile(nothing+".go", []byte("package main\n\nfunc main() {}\n"), 0o666); err != nil {
		return err
	}
	if b, err := exec.Command("go", "build", "-o", nothing, nothing+".go").CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, b)
	}
	// Outputs stay: after many files were removed, ext4 takes long to make one.
	n := 0
	m, err := measure(startRounds, func() {
		n++
		_ = os.Rename(out, fmt.Sprint(out, n)) // it may not be there
	}, [][]string{
		{nothing},
		{tool, "--version"},
		{tool, small, "-o", out},
	})
	if err != nil {
		return err
	}
	fmt.Println()
	t := kit.NewTable(os.Stdout, fmt.Sprint("medians of ", startRounds), "wall / CPU", "x nothing")
	for i, name := range []string{"a Go program that does nothing", "cfi2sframe --version", "cfi2sframe " + small} {
		u := m[i]
		t.Row(name, fmt.Sprintf("%.2f / %.2f", ms(u.wall), ms(u.cpu)), fmt.Sprintf("%.2f", ratio(u.wall, m[0].wall)))
	}
	return nil
}

// series measures programs of 1 to 16 times the functions: apart from the start, the time for each should be the same.
func series(tool, dir string, rounds int) error {
	path, out := filepath.Join(dir, "series"), filepath.Join(dir, "out")
	fmt.Println()
	t := kit.NewTable(os.Stdout, "functions", "cfi2sframe", "no verify", "CPU per function in ns", "without the start")
	var start time.Duration
	for _, n := range []int64{1, 50_000, 100_000, 200_000, 400_000, 800_000} {
		if err := synthetic(path, int(n)); err != nil {
			return err
		}
		m, err := measure(rounds, remove(out), [][]string{
			{tool, "-q", path, "-o", out},
			{tool, "-q", "--no-verify", path, "-o", out},
		})
		if err != nil {
			return err
		}
		if n == 1 {
			start = m[0].cpu
		}
		t.Row(n, m[0], m[1], m[0].cpu.Nanoseconds()/n, (m[0].cpu-start).Nanoseconds()/n)
	}
	return nil
}

// synthetic assembles and links a library of n functions with frames of different sizes.
func synthetic(path string, n int) error {
	const function = `
	.cfi_startproc
	push %%rbp
	.cfi_def_cfa_offset 16
	.cfi_offset 6, -16
	mov %%rsp, %%rbp
	.cfi_def_cfa_register 6
	sub $%d, %%rsp
	.skip %d, 0x90
	leave
	.cfi_def_cfa 7, 8
	ret
	.cfi_endproc
`
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, function, 16*(i%7), 3+i%300)
	}
	if err := os.WriteFile(path+".s", []byte(b.String()), 0o666); err != nil {
		return err
	}
	for _, c := range [][]string{{"as", "-o", path + ".o", path + ".s"}, {"ld", "-shared", "-o", path, path + ".o"}} {
		if b, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", c[0], err, b)
		}
	}
	return nil
}

// Package bench measures cfi2sframe beside programs that do a part of its work: cp,
// objcopy --add-section, which translates nothing, and readelf
// --debug-dump=frames-interp, which only executes the CFI. It is run by scripts/bench.
// With --gnu it compares sections with those that GNU as and ld made.
//
// All commands are run in turn, round after round, so that what else the machine does is
// shared by all; the medians are printed, and their ratios.
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
		switch {
		case *tool == "" || *rounds < 1:
			return errors.New("bench needs --cfi2sframe PROGRAM and at least one round")
		case *gnu:
			return compare(*tool, *rounds, files)
		}
		return run(*tool, *rounds, files)
	}
	return c
}

func run(tool string, rounds int, files []string) error {
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	fmt.Printf("%s, %d processors, medians of %d; times in ms, wall / CPU; memory is the peak in MiB\n\n", machine(), runtime.NumCPU(), rounds)
	fmt.Println("| file | MB | functions | cp | objcopy | readelf | no verify | cfi2sframe | memory | x cp | objcopy + readelf |")
	fmt.Println("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, f := range files {
		if err := file(tool, dir, f, rounds); err != nil {
			return fmt.Errorf("%s: %w", f, err)
		}
	}
	if err := start(tool, dir); err != nil {
		return err
	}
	return series(tool, dir, rounds)
}

// machine names the processor.
func machine() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	for line := range strings.SplitSeq(string(b), "\n") {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// A usage is what a run of a command took.
type usage struct {
	wall, cpu time.Duration
	memory    float64 // MiB
}

// measure runs the commands in turn, and returns the medians of each. An output of an earlier
// run is removed first: to replace a large file takes time of its own.
func measure(rounds int, out string, commands [][]string) ([]usage, error) {
	return measureAfter(rounds, func() { _ = os.Remove(out) }, commands) // it may not be there
}

// measureAfter is measure where something else is done before each run.
func measureAfter(rounds int, before func(), commands [][]string) ([]usage, error) {
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
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return usage{}, err
	}
	defer null.Close()
	cmd.Stdout = null
	start := time.Now()
	if err := cmd.Run(); err != nil {
		return usage{}, fmt.Errorf("%s: %w\n%s", strings.Join(command, " "), err, errs.String())
	}
	u := usage{wall: time.Since(start), cpu: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()}
	if r, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		u.memory = float64(r.Maxrss) / 1024
	}
	return u, nil
}

// file prints the line of one file.
func file(tool, dir, path string, rounds int) error {
	out := filepath.Join(dir, "out")
	extra := filepath.Join(dir, "extra")
	if err := os.WriteFile(extra, make([]byte, 1<<20), 0o666); err != nil {
		return err
	}
	m, err := measure(rounds, out, [][]string{
		{"cp", path, out},
		{"objcopy", "--add-section", ".extra=" + extra, path, out},
		{"readelf", "--debug-dump=frames-interp", path},
		{tool, "-q", "--force", "--no-verify", path, "-o", out},
		{tool, "-q", "--force", path, "-o", out},
	})
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
	fmt.Printf("| %s | %.1f | %s ", filepath.Base(path), float64(info.Size())/1e6, n)
	for _, u := range m {
		fmt.Printf("| %v / %v ", ms(u.wall), ms(u.cpu))
	}
	fmt.Printf("| %.0f | %.2f | %.1f x as long |\n", m[4].memory, ratio(m[4].wall, m[0].wall), ratio(m[1].wall+m[2].wall, m[4].wall))
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

func ms(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d)/float64(time.Millisecond)) }

// ms2 is ms for short times.
func ms2(d time.Duration) string { return fmt.Sprintf("%.2f", float64(d)/float64(time.Millisecond)) }

func ratio(a, b time.Duration) float64 { return float64(a) / float64(b) }

// startRounds is how often what takes milliseconds is run.
const startRounds = 300

// start measures what a small file takes beside a Go program that does nothing.
func start(tool, dir string) error {
	nothing, out, small := filepath.Join(dir, "nothing"), filepath.Join(dir, "out"), "/bin/ls"
	if err := os.WriteFile(nothing+".go", []byte("package main\n\nfunc main() {}\n"), 0o666); err != nil {
		return err
	}
	if b, err := exec.Command("go", "build", "-o", nothing, nothing+".go").CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, b)
	}
	// Outputs are kept: where many files were removed just before, ext4 takes long to make one.
	n := 0
	m, err := measureAfter(startRounds, func() {
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
	fmt.Printf("\n| medians of %d | wall / CPU | x nothing |\n| --- | --- | --- |\n", startRounds)
	for i, name := range []string{"a Go program that does nothing", "cfi2sframe --version", "cfi2sframe " + small} {
		fmt.Printf("| %s | %s / %s | %.2f |\n", name, ms2(m[i].wall), ms2(m[i].cpu), ratio(m[i].wall, m[0].wall))
	}
	return nil
}

// series measures programs of 1 to 16 times the functions: the time that each takes should
// be the same, but for the start of the program.
func series(tool, dir string, rounds int) error {
	const base = 50000
	out := filepath.Join(dir, "out")
	one := filepath.Join(dir, "one")
	if err := synthetic(one, 1); err != nil {
		return err
	}
	start, err := measure(rounds, out, [][]string{{tool, "-q", one, "-o", out}})
	if err != nil {
		return err
	}
	fmt.Printf("\n| functions | cfi2sframe | no verify | CPU per function in ns | without the start |\n| --- | --- | --- | --- | --- |\n")
	fmt.Printf("| 1 | %v / %v | | | |\n", ms(start[0].wall), ms(start[0].cpu))
	for _, times := range []int{1, 2, 4, 8, 16} {
		path := filepath.Join(dir, fmt.Sprintf("series%d", times))
		if err := synthetic(path, times*base); err != nil {
			return err
		}
		m, err := measure(rounds, out, [][]string{
			{tool, "-q", path, "-o", out},
			{tool, "-q", "--no-verify", path, "-o", out},
		})
		if err != nil {
			return err
		}
		n := int64(times * base)
		fmt.Printf("| %d | %v / %v | %v / %v | %d | %d |\n", n, ms(m[0].wall), ms(m[0].cpu), ms(m[1].wall), ms(m[1].cpu),
			m[0].cpu.Nanoseconds()/n, (m[0].cpu-start[0].cpu).Nanoseconds()/n)
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return nil
}

// synthetic assembles and links a library of n functions, each with a frame of its own size.
func synthetic(path string, n int) error {
	var s strings.Builder
	for i := range n {
		fmt.Fprintf(&s, "\t.cfi_startproc\n\tpush %%rbp\n\t.cfi_def_cfa_offset 16\n\t.cfi_offset 6, -16\n"+
			"\tmov %%rsp, %%rbp\n\t.cfi_def_cfa_register 6\n\tsub $%d, %%rsp\n\t.skip %d, 0x90\n\tleave\n\t.cfi_def_cfa 7, 8\n\tret\n\t.cfi_endproc\n",
			16*(i%7), 3+i%300)
	}
	if err := os.WriteFile(path+".s", []byte("\t.text\n"+s.String()), 0o666); err != nil {
		return err
	}
	defer os.Remove(path + ".s")
	defer os.Remove(path + ".o")
	for _, c := range [][]string{{"as", "-o", path + ".o", path + ".s"}, {"ld", "-shared", "-o", path, path + ".o"}} {
		if b, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", c[0], err, b)
		}
	}
	return nil
}

// Package fuzz runs all fuzz targets, each for its share of the given time.
//
// Usage: scripts/lab fuzz [--match REGEXP] [--workers N] [--markdown] MINUTES
//
//	scripts/lab fuzz --list
//
// Targets are found by the test programs (go test -c -fuzz, -test.list). Prints a table: executions, inputs that reach
// something new, and what was found; exits with 1 if anything was. An input that fails is kept below testdata/fuzz of its package, where go test runs it
// from then on, and what it said is in testdata/fuzz/messages. Inputs that are only new are kept in Go's cache
// (go env GOCACHE), and the next run begins with them.
//
// The time does not count what the compiler takes, which is some minutes the first time: each package is compiled once.
// One process works at a time unless --workers says otherwise, and gives way to others.
package fuzz

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
)

// Main runs the subcommand.
func Main() {
	match := pflag.String("match", "", "only targets whose package and name, as in ./cfi FuzzLoad, this `REGEXP` matches")
	workers := pflag.Int("workers", 1, "processes for each target")
	markdown := pflag.Bool("markdown", false, "print the table as Markdown")
	list := pflag.Bool("list", false, "print the targets")
	pflag.Parse()
	minutes, err := strconv.ParseFloat(pflag.Arg(0), 64)
	if *list {
		minutes, err = 1, nil
	}
	if err != nil || pflag.NArg() > 1 || minutes <= 0 || *workers < 1 {
		fmt.Fprintln(os.Stderr, "usage: scripts/lab fuzz [flags] MINUTES")
		pflag.PrintDefaults()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	found, err := run(ctx, *match, time.Duration(minutes*float64(time.Minute)), *workers, *markdown, *list)
	if err != nil {
		fmt.Fprintln(os.Stderr, "fuzz:", err)
	}
	if found || err != nil {
		os.Exit(1)
	}
}

// A target is a fuzz function, in a test program that was compiled for fuzzing.
type target struct{ pkg, name, program string }

// A result is what became of one.
type result struct {
	target
	executions  int
	interesting int // inputs that reach something new
	kept        int // all such inputs, those of earlier runs too
	finding     string
	took        time.Duration
}

// run runs all targets, and returns whether something was found.
func run(ctx context.Context, match string, total time.Duration, workers int, markdown, list bool) (bool, error) {
	only, err := regexp.Compile(match)
	if err != nil {
		return false, err
	}
	dir, err := os.MkdirTemp("", "fuzz-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	cache, err := exec.CommandContext(ctx, "go", "env", "GOCACHE").Output()
	if err != nil {
		return false, err
	}
	packages, count, err := find(only)
	if err != nil {
		return false, err
	}
	if count == 0 {
		return false, fmt.Errorf("no target matches %q", match)
	}
	share := total / time.Duration(count)
	var results []result
	found := false
	for i, pkg := range packages {
		targets, err := compile(ctx, pkg, filepath.Join(dir, fmt.Sprint(i, ".test")), only)
		if err != nil {
			return true, err
		}
		for _, t := range targets {
			if list {
				fmt.Println(t.pkg, t.name)
				continue
			}
			r, err := t.fuzz(ctx, filepath.Join(strings.TrimSpace(string(cache)), "fuzz/cfi2sframe"), share, workers)
			if err != nil {
				return true, err
			}
			fmt.Fprintf(os.Stderr, "%s %s: %d executions, %d new inputs, %v\n", t.pkg, t.name, r.executions, r.interesting, r.took.Round(time.Second))
			if r.finding != "" {
				found = true
				fmt.Fprintf(os.Stderr, "  %s\n", strings.ReplaceAll(strings.TrimSpace(r.finding), "\n", "\n  "))
			}
			results = append(results, *r)
			if ctx.Err() != nil {
				break
			}
		}
	}
	if list {
		return false, nil
	}
	print(results, markdown)
	return found, ctx.Err()
}

var function = regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`)

// find returns the packages that have targets of the given names, and how many there are, by their sources: to compile
// the tests of a package takes a while.
func find(only *regexp.Regexp) (packages []string, count int, err error) {
	err = filepath.WalkDir(".", func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		pkg := "./" + filepath.Dir(path)
		for _, m := range function.FindAllSubmatch(b, -1) {
			if !only.MatchString(pkg + " " + string(m[1])) {
				continue
			}
			if count++; !slices.Contains(packages, pkg) {
				packages = append(packages, pkg)
			}
		}
		return err
	})
	return packages, count, err
}

// compile compiles the tests of a package for fuzzing, and asks the program for its targets.
func compile(ctx context.Context, pkg, program string, only *regexp.Regexp) ([]target, error) {
	if b, err := exec.CommandContext(ctx, "go", "test", "-vet=off", "-c", "-fuzz", ".", "-o", program, pkg).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go test -c %s: %w\n%s", pkg, err, b)
	}
	cmd := exec.CommandContext(ctx, program, "-test.list", "^Fuzz")
	cmd.Dir = pkg
	b, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%s -test.list: %w\n%s", pkg, err, b)
	}
	var out []target
	for line := range strings.Lines(string(b)) {
		if name := strings.TrimSpace(line); strings.HasPrefix(name, "Fuzz") && only.MatchString(pkg+" "+name) {
			out = append(out, target{pkg, name, program})
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s has a fuzz function, but its test program knows none", pkg)
	}
	return out, nil
}

var (
	progress = regexp.MustCompile(`execs: (\d+) .*new interesting: (\d+) \(total: (\d+)\)`)
	written  = regexp.MustCompile(`Failing input written to (testdata/fuzz/\S+)`)
)

// fuzz runs a target for some time. Inputs that are only new are kept in cache, as go test does it. What fails is in the
// package's testdata then, and a file with what it said is in the folder testdata/fuzz/messages beside it.
func (t target) fuzz(ctx context.Context, cache string, share time.Duration, workers int) (*result, error) {
	r := &result{target: t}
	begin := time.Now()
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, t.program, "-test.run", "^$", "-test.fuzz", "^"+t.name+"$", "-test.fuzztime", share.String(),
		"-test.fuzzminimizetime", "200x", "-test.parallel", strconv.Itoa(workers), "-test.fuzzcachedir", filepath.Join(cache, t.pkg))
	cmd.Dir = t.pkg
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	r.took = time.Since(begin)
	if m := progress.FindAllStringSubmatch(out.String(), -1); len(m) > 0 {
		last := m[len(m)-1]
		for i, p := range []*int{&r.executions, &r.interesting, &r.kept} {
			*p, _ = strconv.Atoi(last[i+1]) // the expression takes digits only
		}
	}
	var exit *exec.ExitError
	switch {
	case err == nil && r.executions == 0:
		return nil, fmt.Errorf("%s %s: nothing was run\n%s", t.pkg, t.name, out.String())
	case err == nil:
		return r, nil
	case !errors.As(err, &exit):
		return nil, err
	}
	if ctx.Err() != nil {
		return r, nil // interrupted: that is no finding
	}
	r.finding = out.String()
	if strings.Contains(r.finding, "context deadline exceeded") && !written.MatchString(r.finding) {
		// Go's fuzzer says that of itself if the time ends while an input is being made smaller.
		r.finding = ""
		return r, nil
	}
	if !strings.Contains(r.finding, "--- FAIL") {
		return nil, fmt.Errorf("%s %s: %w\n%s", t.pkg, t.name, err, out.String())
	}
	if m := written.FindStringSubmatch(r.finding); m != nil {
		folder := filepath.Join(t.pkg, "testdata/fuzz/messages")
		if err := os.MkdirAll(folder, 0o777); err != nil {
			return nil, err
		}
		name := filepath.Join(folder, t.name+"-"+filepath.Base(m[1])+".txt")
		if err := os.WriteFile(name, []byte(r.finding), 0o666); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// print prints the table.
func print(results []result, markdown bool) {
	var w io.Writer = os.Stdout
	format, total := "%-18s %-18s %12d %10d %8d %8.0f %s\n", "%d targets: %d executions, %d new inputs, %d findings\n"
	if markdown {
		fmt.Fprintln(w, "| package | target | executions | new inputs | all inputs | seconds | found |\n| --- | --- | ---: | ---: | ---: | ---: | --- |")
		format = "| %s | %s | %d | %d | %d | %.0f | %s |\n"
		total = "\n" + total
	} else {
		fmt.Fprintf(w, "%-18s %-18s %12s %10s %8s %8s %s\n", "package", "target", "executions", "new inputs", "all", "seconds", "found")
	}
	var executions, interesting, findings int
	for _, r := range results {
		found := "nothing"
		if r.finding != "" {
			found = "a failure"
			findings++
		}
		executions += r.executions
		interesting += r.interesting
		fmt.Fprintf(w, format, r.pkg, r.name, r.executions, r.interesting, r.kept, r.took.Seconds(), found)
	}
	fmt.Fprintf(w, total, len(results), executions, interesting, findings)
}

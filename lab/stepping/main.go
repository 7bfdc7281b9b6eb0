// Package stepping runs programs one instruction at a time, and compares their .sframe and call frame information with
// what the processor does (lab/step).
//
// On amd64 these are bash, Python, Perl, SQLite, git, gdb, GCC's cc1, libcrypto, libgcrypt, and programs in C++, Go and
// Rust; one jumps, switches stacks and gets signals. Copies of them, of their libraries and of ld.so are converted and
// run. Programs for other ABIs run under QEMU.
//
// A wrong answer of .sframe is a failure, unless it repeats the call frame information. With --verbose each program's
// wrong answers are listed: docs/truth.md has them. With $CFI2SFRAME_REQUIRE_PEERS a missing program is a failure.
package stepping

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"cfi2sframe/internal/testkit/suite"
	"cfi2sframe/lab/kit"
	"cfi2sframe/lab/step"
	"cfi2sframe/report"
	"cfi2sframe/sframe"
)

// emulated is how many times fewer steps programs make under QEMU, where a step takes longer.
const emulated = 20

// Command returns the subcommand.
func Command() *kit.Command {
	c := kit.New("step", "", 0, 0)
	steps := c.Uint64("steps", 1e6, "follow `N` instructions of each program, and N/20 under QEMU")
	quick := c.Bool("quick", false, "follow 250,000 instructions of small programs")
	only := c.StringSlice("only", nil, "the programs or ABIs of these `NAMES`")
	verbose := c.BoolP("verbose", "v", false, "list the wrong answers of each program")
	jobs := c.Int("jobs", 2, "programs at a time, each on one processor")
	c.Run = func([]string) error {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		w, err := newWorkshop()
		if err != nil {
			return err
		}
		defer os.RemoveAll(w.dir)
		if *quick {
			*steps = 250_000
		}
		list := slices.DeleteFunc(slices.Clone(programs), func(p program) bool {
			named := len(*only) == 0 || slices.Contains(*only, p.name) || slices.Contains(*only, p.abi)
			return !named || *quick && !p.quick
		})
		t := &totals{verbose: *verbose, byABI: make(map[string]*step.Report)}
		_ = kit.Each(*jobs, list, func(cpu int, p program) error {
			if ctx.Err() == nil {
				start := time.Now()
				r, err := w.follow(ctx, &p, *steps, cpu)
				t.add(&p, r, err, time.Since(start))
			}
			return nil
		})
		t.print()
		if t.failed {
			return kit.ErrFound
		}
		return ctx.Err()
	}
	return c
}

// pin keeps this thread, and the processes that it starts, on a processor: a program and its follower run by turns, and
// waking another processor takes longer.
func pin(cpu int) {
	var set unix.CPUSet
	set.Set(cpu)
	_ = unix.SchedSetaffinity(0, &set) // a processor that is not available costs time only
}

// totals are the results of all programs.
type totals struct {
	sync.Mutex
	verbose, failed bool
	byABI           map[string]*step.Report
}

// add prints and counts the result of a program.
func (t *totals) add(p *program, r *step.Report, err error, took time.Duration) {
	t.Lock()
	defer t.Unlock()
	status := "ok  "
	switch {
	case err == errMissing:
		fmt.Printf("none  %s %s: not installed\n", p.abi, p.name)
		t.failed = t.failed || os.Getenv(suite.Require) != ""
		return
	case err != nil:
		fmt.Printf("FAIL  %s %s: %v\n", p.abi, p.name, err)
		t.failed = true
		return
	case r.Faults() > 0:
		status, t.failed = "FAIL", true
	}
	fmt.Printf("%s  %s %s: %s steps, CFI wrong in %s, SFrame by itself in %s; %.0f s\n", status, p.abi, p.name,
		report.Digits(r.Steps), report.Digits(r.Sides[0].Wrong), report.Digits(r.Faults()), took.Seconds())
	if t.verbose || r.Faults() > 0 {
		_ = r.Text(os.Stdout, -1)
	}
	sum := t.byABI[p.abi]
	if sum == nil {
		sum = new(step.Report)
		t.byABI[p.abi] = sum
	}
	sum.Steps += r.Steps
	sum.Silent += r.Silent
	for i, s := range r.Sides {
		sum.Sides[i].Right += s.Right
		sum.Sides[i].Wrong += s.Wrong
		sum.Sides[i].Repeats += s.Repeats
		sum.Sides[i].Gaps += s.Gaps
		sum.Lookups[i].Add(r.Lookups[i])
	}
}

// print prints the sums for each ABI.
func (t *totals) print() {
	table := kit.NewTable(os.Stdout, "ABI", ">steps", ">CFI right", ">CFI wrong", ">no CFI",
		">V2 right", ">V2 wrong", ">V3 right", ">V3 wrong")
	for _, abi := range slices.Sorted(maps.Keys(t.byABI)) {
		r := t.byABI[abi]
		cells := []any{abi}
		cfi, v2, v3 := r.Sides[0], r.Sides[sframe.V2], r.Sides[sframe.V3]
		for _, n := range []uint64{r.Steps, cfi.Right, cfi.Wrong, r.Silent, v2.Right, v2.Wrong, v3.Right, v3.Wrong} {
			cells = append(cells, report.Digits(n))
		}
		table.Row(cells...)
	}
	table = kit.NewTable(os.Stdout, "ABI", "lookups at calls", ">CFI right", ">wrong", ">none", ">V2 right", ">wrong",
		">none", ">V3 right", ">wrong", ">none")
	for _, abi := range slices.Sorted(maps.Keys(t.byABI)) {
		l := t.byABI[abi].Lookups
		for _, by := range []struct {
			name string
			of   func(step.Lookups) step.Found
		}{
			{"return address", func(l step.Lookups) step.Found { return l.Return }},
			{"byte before it", func(l step.Lookups) step.Found { return l.Before }},
		} {
			cells := []any{abi, by.name}
			for _, side := range []sframe.Version{0, sframe.V2, sframe.V3} {
				f := by.of(l[side])
				cells = append(cells, report.Digits(f.Right), report.Digits(f.Wrong), report.Digits(f.None))
			}
			table.Row(cells...)
		}
	}
}

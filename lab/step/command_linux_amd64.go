package step

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"cfi2sframe/internal/testkit/suite"
	"cfi2sframe/lab/kit"
	"cfi2sframe/sframe"
)

// qemuDivisor divides the number of steps of programs under QEMU, where a step takes longer.
const qemuDivisor = 20

// versions lists the SFrame versions to compare. Sections that a file lacks are made in memory.
var versions = []sframe.Version{sframe.V2, sframe.V3}

// Command returns the subcommand, which follows a program for amd64 with its libraries, or the programs in a list. An
// error in .sframe is a failure, unless the CFI has the same error; with a single program, errors in the CFI are also
// failures. With $CFI2SFRAME_REQUIRE_PEERS, a listed program that is missing is a failure.
func Command() *kit.Command {
	c := kit.New("step", "[PROGRAM [ARGUMENT...]]", 0, math.MaxInt)
	c.SetInterspersed(false) // flags after the program belong to it
	steps := c.Uint64("steps", 1e6, "follow `N` instructions of each program, and N/20 under QEMU; 0 for all")
	quick := c.Bool("quick", false, "follow 250,000 instructions of small programs")
	inferred := c.Bool("inferred", false,
		"follow calls to functions with rows from instructions, in PROGRAM and its libraries, if converted")
	calls := c.Uint64("calls", 1000, "with --inferred, follow `N` calls to each function; 0 for all")
	infer := c.Bool("infer", false, "count rows of code without CFI that are inferred from its instructions as CFI")
	verbose := c.BoolP("verbose", "v", false, "list the wrong answers of each program")
	c.Run = func(args []string) error {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		if *inferred {
			if len(args) == 0 {
				return errors.New("--inferred requires a PROGRAM")
			}
			report, err := traceInferred(ctx, args, *steps, *calls)
			fmt.Fprint(os.Stderr, report)
			if err == nil && strings.Contains(report, "\nwrong: ") {
				err = kit.ErrFound
			}
			return err
		}
		if len(args) > 0 {
			return traceOne(ctx, args, Options{Made: versions, Steps: *steps, Infer: *infer, Entry: *infer})
		}
		dir, err := os.MkdirTemp("", "step-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		if *quick {
			*steps = 250_000
		}
		list := slices.DeleteFunc(slices.Clone(programs), func(p program) bool { return *quick && !p.quick })
		table := kit.NewTable(os.Stdout, "ABI", "program", ">steps", ">CFI right", ">wrong", ">none",
			">V2 right", ">repeats the CFI", ">wrong", ">no row", ">V3 right", ">repeats the CFI", ">wrong", ">no row")
		var mu sync.Mutex
		err = kit.Each(list, func(cpu int, p program) error {
			// Use one processor: program and tracer alternate, and waking another processor takes longer.
			var set unix.CPUSet
			set.Set(cpu)
			_ = unix.SchedSetaffinity(0, &set)
			r, err := p.follow(ctx, dir, *steps)
			mu.Lock()
			defer mu.Unlock()
			if errors.Is(err, exec.ErrNotFound) && os.Getenv(suite.Require) == "" {
				fmt.Fprintf(os.Stderr, "step: %s %s is missing: %v\n", p.abi, p.name, err)
				return nil
			}
			if err != nil {
				return fmt.Errorf("%s %s: %w", p.abi, p.name, err)
			}
			cfi, v2, v3 := r.Sides[0], r.Sides[sframe.V2], r.Sides[sframe.V3]
			table.Row(p.abi, p.name, r.Steps, cfi.Right, cfi.Wrong, r.Silent, v2.Right, v2.Repeats, v2.Wrong, v2.Gaps,
				v3.Right, v3.Repeats, v3.Wrong, v3.Gaps)
			if *verbose || r.Faults() > 0 {
				r.Text(os.Stdout)
			}
			if r.Faults() > 0 {
				return fmt.Errorf("%s %s: SFrame is wrong in %d steps", p.abi, p.name, r.Faults())
			}
			return nil
		})
		return errors.Join(err, ctx.Err())
	}
	return c
}

// traceOne follows a program from the loader's first instruction.
func traceOne(ctx context.Context, args []string, opt Options) error {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	r, status, err := Trace(ctx, cmd, opt)
	if r == nil {
		return err
	}
	r.Text(os.Stderr)
	fmt.Fprintf(os.Stderr, "  the program's exit status: %d\n", status)
	if err == nil && len(r.Findings) > 0 {
		err = kit.ErrFound
	}
	return err
}

// buildOrFind builds a program in a directory, or finds the installed one, and returns its path.
func (p *program) buildOrFind(dir string) (string, error) {
	if p.build != "" {
		from, err := filepath.Abs(sources)
		if err != nil {
			return "", err
		}
		return kit.Build(p.build, from, dir, p.abi+"-"+p.name)
	}
	name, err := exec.Command("gcc", "-print-prog-name="+p.name).Output() // also finds cc1
	if err != nil {
		return "", err
	}
	return exec.LookPath(strings.TrimSpace(string(name)))
}

// follow follows a program.
func (p *program) follow(ctx context.Context, dir string, steps uint64) (*Report, error) {
	path, err := p.buildOrFind(dir)
	if err != nil {
		return nil, err
	}
	opt := Options{Made: versions, Steps: steps, Entry: true}
	var r *Report
	var status int
	if p.abi == "amd64" {
		cmd := exec.Command(path, p.args...)
		cmd.Env = append([]string{"PATH=/usr/bin:/bin", "HOME=" + dir, "LC_ALL=C"}, p.env...)
		cmd.Stderr = os.Stderr
		r, status, err = Trace(ctx, cmd, opt)
	} else {
		root, missing := suite.Dir("sid")
		if missing != nil {
			return nil, fmt.Errorf("%w: %w", exec.ErrNotFound, missing)
		}
		opt.Steps /= qemuDivisor
		qemu := filepath.Join(root, "usr/bin/qemu-"+p.abi)
		r, status, err = Remote(ctx, append([]string{qemu, path}, p.args...), opt)
	}
	if err == nil && status != 0 {
		err = fmt.Errorf("exit status %d", status)
	}
	return r, err
}

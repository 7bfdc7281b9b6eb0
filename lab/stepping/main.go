// Package stepping runs well-known programs one instruction at a time, and compares at each step what their .sframe
// says with what the processor does.
//
// Usage: scripts/lab step [--steps N] [--other N] [--quick] [--all] [--only NAME] [--jobs N]
//
//	[--markdown FILE]
//
// On amd64 (--steps, of all programs together) under ptrace: bash, Python, Perl, SQLite, git, gdb, GCC's cc1,
// libcrypto, libgcrypt, gpg, x264, dav1d, ffmpeg, programs in C++, Go and Rust, and one that jumps, switches stacks and
// gets signals. Copies of them, of their libraries and of ld.so are converted in a temporary folder, and run from
// there. On other ABIs (--other, on each) under QEMU, which scripts/peers installs, with the cross compilers of this
// machine.
//
// Every difference is somebody's: one of the .sframe is a failure. The others, where the CFI itself is wrong, are
// summed up by function with --markdown: docs/truth.md is made by --steps 100000000, which takes some hours on a
// machine that is a guest, and an hour or less otherwise.
//
// --quick makes a million steps of small programs, and 20,000 on each other ABI. Programs that are not installed are
// listed; with --all they are failures. Needs go, gcc and g++.
package stepping

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"

	"cfi2sframe/lab/kit"
	"cfi2sframe/lab/step"
)

type options struct {
	steps, other  uint64
	quick, strict bool
	only          string
	markdown      string
	peers         string
	jobs          int
}

// Command returns the subcommand.
func Command() *kit.Command {
	var opt options
	c := kit.New("step", "", 0, 0)
	c.Uint64Var(&opt.steps, "steps", 1e7, "make `N` steps on amd64, of all programs together")
	c.Uint64Var(&opt.other, "other", 1e6, "make `N` steps on each other ABI, under QEMU; 0 for none")
	c.BoolVar(&opt.quick, "quick", false, "a million steps on amd64 and 20,000 on each other ABI, of small programs")
	c.BoolVar(&opt.strict, "all", false, "programs that are not installed are failures")
	c.StringVar(&opt.only, "only", "", "only the subject of this `NAME`")
	c.StringVar(&opt.markdown, "markdown", "", "write the functions whose CFI is wrong to `FILE`")
	c.StringVar(&opt.peers, "peers", "/var/cache/cfi2sframe-peers", "`DIR` of the systems of scripts/peers")
	c.IntVar(&opt.jobs, "jobs", 2, "programs at a time, each on a processor of its own")
	c.Run = func([]string) error {
		cleanEnvironment()
		if opt.quick {
			opt.steps, opt.other = 1e6, 20000
		}
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		ok, err := run(ctx, opt)
		if err == nil && !ok {
			err = kit.ErrFound
		}
		return err
	}
	return c
}

// cleanEnvironment removes what changes programs.
func cleanEnvironment() {
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(e, "=")
		for _, prefix := range []string{"LD_PRELOAD", "LD_LIBRARY_PATH", "GIT_", "PYTHON", "PERL5"} {
			if strings.HasPrefix(name, prefix) {
				os.Unsetenv(name)
			}
		}
	}
	os.Setenv("LC_ALL", "C")
}

// A result is the report on a subject.
type result struct {
	Subject string
	Version string // of what was followed, as its package has it
	ABI     string
	Seconds float64
	Exit    int `json:"exit_status"`
	// Packages are those that files are of, with their versions.
	Packages map[string]string
	*step.Report
}

func run(ctx context.Context, opt options) (bool, error) {
	dir, err := os.MkdirTemp("", "step-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	results, ok, err := follow(ctx, opt, dir)
	if err != nil {
		return false, err
	}
	sort.Slice(results, func(i, j int) bool {
		a, b := results[i], results[j]
		return a.ABI < b.ABI || a.ABI == b.ABI && a.Subject < b.Subject
	})
	if !summary(os.Stdout, results) {
		ok = false
	}
	if opt.markdown != "" {
		if err := markdown(opt.markdown, results); err != nil {
			return false, err
		}
	}
	return ok, nil
}

// A pool is what is left of the steps that all programs make together.
type pool struct {
	sync.Mutex
	left, weight float64
}

// take returns the share of a subject. What one does not use is for those after it.
func (p *pool) take(weight float64) uint64 {
	p.Lock()
	defer p.Unlock()
	n := math.Ceil(p.left * weight / p.weight)
	p.left -= n
	p.weight -= weight
	return uint64(max(n, 0))
}

func (p *pool) give(n uint64) {
	p.Lock()
	p.left += float64(n)
	p.Unlock()
}

// follow follows all subjects.
func follow(ctx context.Context, opt options, dir string) (results []*result, ok bool, err error) {
	w, err := newWorkshop(dir, !opt.quick)
	if err != nil {
		return nil, false, err
	}
	ok = true
	var mu sync.Mutex
	note := func(r *result, line string, good bool) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Println(line)
		ok = ok && good
		if r != nil {
			results = append(results, r)
		}
	}
	var list []subject
	p := pool{left: float64(opt.steps)}
	for _, s := range subjects {
		if opt.only != "" && s.name != opt.only || opt.quick && !s.quick {
			continue
		}
		list = append(list, s)
		p.weight += s.weight
	}
	queue := make(chan subject)
	var wg sync.WaitGroup
	for cpu := range opt.jobs {
		wg.Go(func() {
			for s := range queue {
				steps := p.take(s.weight)
				if steps == 0 {
					continue
				}
				start := time.Now()
				r, err := w.amd64(ctx, s, steps, cpu)
				switch {
				case err == errMissing:
					p.give(steps)
					note(nil, fmt.Sprintf("none  %s: not installed", s.name), !opt.strict)
				case err != nil:
					p.give(steps)
					note(nil, fmt.Sprintf("FAIL  %s: %v", s.name, err), false)
				default:
					if r.Steps < steps {
						p.give(steps - r.Steps)
					}
					r.Seconds = time.Since(start).Seconds()
					note(r, line(r), r.Faults() == 0)
				}
			}
		})
	}
	for _, s := range list {
		queue <- s
	}
	close(queue)
	wg.Wait()
	if err := ctx.Err(); err != nil {
		return results, false, err
	}
	if opt.other > 0 {
		w.others(ctx, opt, note)
	}
	return results, ok, ctx.Err()
}

// command returns a command that ends with ctx.
func command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

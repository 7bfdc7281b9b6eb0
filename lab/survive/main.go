// Package survive tries tools that change linked files, such as strip and patchelf, on converted files and on the
// originals (scripts/survive --tools), or runs programs with the runtimes of compilers (--runtimes).
//
// A converted file has to run as its original does, and to survive every tool that its original survives: the tool's
// result has to run, with a correct .sframe, and no other section may change that does not change in the original.
package survive

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"

	"cfi2sframe/internal/testkit/suite"
	"cfi2sframe/lab/kit"
)

// Command returns the subcommand.
func Command() *kit.Command {
	c := kit.New("survive", "", 0, 0)
	quick := c.Bool("quick", false, "only a few subjects and tools, or combinations")
	runtimes := c.Bool("runtimes", false, "programs with the runtimes of compilers, linked in many ways")
	jobs := c.Int("jobs", 2, "subjects or combinations at a time")
	c.Run = func([]string) error {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		dir, err := os.MkdirTemp("", "survive-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		tool := filepath.Join(dir, "cfi2sframe")
		if err := kit.BuildProduct(tool); err != nil {
			return err
		}
		if *runtimes {
			m := &matrix{dir: dir, cfi2sframe: tool}
			return m.run(ctx, *quick, *jobs)
		}
		return tryAll(ctx, tool, *quick, *jobs)
	}
	return c
}

// A row counts what came of a tool.
type row struct{ survive, neither, fail int }

func (r *row) count(v verdict) {
	switch v {
	case survives:
		r.survive++
	case neither:
		r.neither++
	case fails:
		r.fail++
	}
}

// tryAll tries every tool on every subject.
func tryAll(ctx context.Context, cfi2sframe string, quick bool, jobs int) error {
	tools, missing := versions(quick)
	for _, m := range missing {
		fmt.Printf("none    %v\n", m)
	}
	rows := make(map[*tool]*row)
	for _, t := range tools {
		rows[t] = new(row)
	}
	var failed bool
	var mu sync.Mutex
	_ = kit.Each(jobs, subjects(), func(_ int, s *subject) error {
		if quick && !s.quick || ctx.Err() != nil {
			return nil
		}
		defer func() { _ = os.RemoveAll(s.dir) }()
		results, err := s.try(ctx, cfi2sframe, tools)
		mu.Lock()
		defer mu.Unlock()
		if errors.Is(err, errMissing) {
			missing = append(missing, err)
			fmt.Printf("none    %v: %v\n", s, err)
		} else if err != nil {
			fmt.Printf("%-8s%v: %v\n", fails, s, err)
			failed = true
		}
		for _, r := range results {
			rows[r.tool].count(r.verdict)
			failed = failed || r.verdict == fails
			if r.verdict != survives {
				fmt.Printf("%-8s%v, %v: %v\n", r.verdict, s, r.tool, r)
			}
		}
		return nil
	})
	if err := ctx.Err(); err != nil {
		return err
	}
	table := kit.NewTable(os.Stdout, "tool", ">survive", ">neither file survives", ">fail")
	for _, t := range tools {
		table.Row(t, rows[t].survive, rows[t].neither, rows[t].fail)
	}
	if failed || len(missing) > 0 && os.Getenv(suite.Require) != "" {
		return kit.ErrFound
	}
	return nil
}

// errMissing is the error of a subject that cannot be built.
var errMissing = errors.New("not built")

// try builds and converts the subject, and tries the tools on it.
func (s *subject) try(ctx context.Context, cfi2sframe string, tools []*tool) (results []*result, err error) {
	if err := s.build(); err != nil {
		return nil, fmt.Errorf("%w: %w", errMissing, err)
	}
	b, err := newBench(s, cfi2sframe)
	if err != nil {
		return nil, err
	}
	for _, t := range tools {
		if t.applies(s) && ctx.Err() == nil {
			results = append(results, b.try(t))
		}
	}
	return results, nil
}

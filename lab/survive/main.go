// Package survive tries the tools that change linked files, such as strip and patchelf, on converted files of many
// kinds, and on the originals. It is run by scripts/survive --tools. With --runtimes it runs programs with the runtimes
// of compilers instead.
//
// A converted file has to run as its original does, and to survive every tool that its original survives: the tool's
// result has to run, with a correct .sframe, and without a change to another section that the original does not get.
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
	"cfi2sframe/lab/product"
)

// Command returns the subcommand.
func Command() *kit.Command {
	c := kit.New("survive", "", 0, 0)
	quick := c.Bool("quick", false, "only a few subjects and tools, or combinations")
	runtimes := c.Bool("runtimes", false, "programs with the runtimes of compilers, linked in many ways")
	markdown := c.String("markdown", "", "write the table to `FILE`")
	tool := c.String("cfi2sframe", "", "the `PROGRAM` that converts (default: built from this directory)")
	jobs := c.Int("jobs", 2, "subjects or combinations at a time")
	c.Run = func([]string) error {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		dir, err := os.MkdirTemp("", "survive-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		w, err := newWorkshop(dir, *tool)
		if err != nil {
			return err
		}
		if *tool == "" {
			w.cfi2sframe = w.path("cfi2sframe")
			err = product.Build(w.cfi2sframe)
		} else {
			w.cfi2sframe, err = filepath.Abs(*tool)
		}
		if err != nil {
			return err
		}
		if *runtimes {
			return w.runtimes(ctx, *quick, *jobs)
		}
		return w.tools(ctx, *quick, *jobs, *markdown)
	}
	return c
}

// tools tries every tool on every subject.
func (w *workshop) tools(ctx context.Context, quick bool, jobs int, markdown string) error {
	t := newTable(quick)
	var mu sync.Mutex
	_ = kit.Each(jobs, t.rows, func(_ int, r *row) error {
		r.err = r.fill(ctx, w, t.tools)
		mu.Lock()
		defer mu.Unlock()
		r.print()
		return nil
	})
	if err := ctx.Err(); err != nil {
		return err
	}
	err := t.summary(os.Getenv(suite.Require) != "")
	if markdown != "" {
		return errors.Join(err, os.WriteFile(markdown, []byte(t.markdown()), 0o666))
	}
	return err
}

// A row is a subject and what came of it with each tool.
type row struct {
	subject *subject
	err     error // why there are no results
	results []*result
}

// refused reports whether the subject was built, but could not be converted.
func (r *row) refused() bool {
	_, ok := errors.AsType[*errRefused](r.err)
	return ok
}

// A table is all subjects and all tools.
type table struct {
	families []columns
	tools    []*tool // of all families, and first of all none
	rows     []*row
	missing  []error // tools
}

// columns are the tools of a family.
type columns struct {
	name  string
	tools []*tool
}

func newTable(quick bool) *table {
	t := &table{tools: []*tool{{}}}
	for _, f := range families {
		tools, missing := f.expand(quick)
		t.families = append(t.families, columns{f.name, tools})
		t.tools = append(t.tools, tools...)
		t.missing = append(t.missing, missing...)
	}
	for _, s := range subjects() {
		if s.quick || !quick {
			t.rows = append(t.rows, &row{subject: s})
		}
	}
	return t
}

// fill tries all tools on the subject.
func (r *row) fill(ctx context.Context, w *workshop, tools []*tool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := w.prepare(r.subject); err != nil {
		return fmt.Errorf("not built: %w", err)
	}
	b, err := newBench(r.subject, w)
	if err != nil {
		return err
	}
	for _, t := range tools {
		if err := ctx.Err(); err != nil {
			return err
		}
		r.results = append(r.results, b.try(t))
	}
	return nil
}

func (r *row) print() {
	if r.err != nil {
		fmt.Printf("%-8s%v: %v\n", "-", r.subject, r.err)
	}
	for _, res := range r.results {
		if res.verdict != unfit {
			fmt.Println(res)
		}
	}
}

// summary prints the counts, and returns an error if a file does not survive, or is missing although all are required.
func (t *table) summary(requireAll bool) error {
	count := make(map[verdict]int)
	refused, missing := 0, len(t.missing)
	for _, m := range t.missing {
		fmt.Printf("%-8s%v\n", "-", m)
	}
	for _, r := range t.rows {
		switch {
		case r.refused():
			refused++
		case r.err != nil:
			missing++
		}
		for _, res := range r.results {
			count[res.verdict]++
		}
	}
	fmt.Printf("%d subjects, %d tools: %d survive, %d fail, in %d neither file survives; "+
		"%d subjects refused; %d subjects and tools missing\n",
		len(t.rows), len(t.tools)-1, count[survives], count[fails], count[neither], refused, missing)
	if count[fails] > 0 || refused > 0 || missing > 0 && requireAll {
		return kit.ErrFound
	}
	return nil
}

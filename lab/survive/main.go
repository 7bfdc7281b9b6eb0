// Command survive tries the tools that change linked files, such as strip and
// patchelf, on converted files of many kinds, and on the originals. It is run by
// scripts/survive --tools. With --runtimes it runs programs with the runtimes of compilers instead.
//
// A converted file has to run as its original does, and to survive every tool that
// its original survives: what the tool makes of it has to run, too, with a sound
// .sframe, and without a change to another section that the original does not get.
package survive

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/pflag"

	"cfi2sframe/internal/testkit/suite"
	"cfi2sframe/lab/product"
)

// knownFailures are what cannot be helped, at least not yet.
var knownFailures []struct{ subject, tool string }

// Main runs the subcommand.
func Main() {
	var opt options
	pflag.BoolVar(&opt.quick, "quick", false, "only a few subjects and tools, or combinations")
	pflag.BoolVar(&opt.runtimes, "runtimes", false, "programs with the runtimes of compilers, linked in many ways")
	pflag.StringVar(&opt.markdown, "markdown", "", "write the table to `FILE`")
	pflag.StringVar(&opt.cfi2sframe, "cfi2sframe", "", "the `PROGRAM` that converts (default: built from this folder)")
	pflag.BoolVar(&opt.allowRefused, "allow-refused", false, "subjects that cannot be converted are no failures")
	pflag.IntVar(&opt.jobs, "jobs", 2, "subjects or combinations at a time")
	pflag.Parse()
	if pflag.NArg() > 0 || opt.jobs < 1 {
		fmt.Fprintln(os.Stderr, "usage: scripts/survive --tools [flags]")
		pflag.PrintDefaults()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ok, err := run(ctx, opt)
	if err != nil {
		fmt.Fprintln(os.Stderr, "survive:", err)
	}
	if !ok {
		os.Exit(1)
	}
}

type options struct {
	quick, allowRefused  bool
	runtimes             bool
	markdown, cfi2sframe string
	jobs                 int
}

// run returns whether all is well.
func run(ctx context.Context, opt options) (bool, error) {
	dir, err := os.MkdirTemp("", "survive-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	w, err := newWorkshop(dir, opt.cfi2sframe)
	if err != nil {
		return false, err
	}
	if err := w.converter(); err != nil {
		return false, err
	}
	if opt.runtimes {
		return w.runtimes(ctx, opt.quick, opt.jobs)
	}
	t := newTable(opt.quick)
	t.fill(ctx, w, opt.jobs)
	if err := ctx.Err(); err != nil {
		return false, err
	}
	ok := t.summary(opt.allowRefused, os.Getenv(suite.Require) != "")
	if opt.markdown != "" {
		return ok, os.WriteFile(opt.markdown, []byte(t.markdown()), 0o666)
	}
	return ok, nil
}

// converter builds cfi2sframe unless the user named one.
func (w *workshop) converter() error {
	if w.cfi2sframe == "" {
		w.cfi2sframe = w.path("cfi2sframe")
		return product.Build(w.cfi2sframe)
	}
	var err error
	w.cfi2sframe, err = filepath.Abs(w.cfi2sframe)
	return err
}

// A row is a subject and what came of it with each tool.
type row struct {
	subject *subject
	err     error // why there are no results
	results []*result
	done    chan bool
}

// refused reports whether the subject was built, but could not be converted.
func (r *row) refused() bool {
	var e *errRefused
	return errors.As(r.err, &e)
}

// A table is all subjects and all tools.
type table struct {
	families []columns
	tools    []*tool // of all families, and first of all none
	rows     []*row
	missing  []error // tools
	quick    bool
}

// columns are the tools of a family.
type columns struct {
	name  string
	tools []*tool
}

func newTable(quick bool) *table {
	t := &table{tools: []*tool{{}}, quick: quick}
	for _, f := range families {
		tools, missing := f.expand(quick)
		t.families = append(t.families, columns{f.name, tools})
		t.tools = append(t.tools, tools...)
		t.missing = append(t.missing, missing...)
	}
	for _, s := range subjects() {
		if s.quick || !quick {
			t.rows = append(t.rows, &row{subject: s, done: make(chan bool)})
		}
	}
	return t
}

// fill tries every tool on every subject, and prints the results in the table's order.
func (t *table) fill(ctx context.Context, w *workshop, jobs int) {
	rows := make(chan *row)
	for range jobs {
		go func() {
			for r := range rows {
				r.err = r.fill(ctx, w, t.tools)
				close(r.done)
			}
		}()
	}
	go func() {
		for _, r := range t.rows {
			rows <- r
		}
		close(rows)
	}()
	for _, r := range t.rows {
		<-r.done
		r.print()
	}
}

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
		res := b.try(t)
		switch {
		case !isKnown(res):
		case res.verdict == fails:
			res.verdict = known
		case res.verdict == survives:
			res.note = "listed as a known failure, which it is not"
		}
		r.results = append(r.results, res)
	}
	return nil
}

func isKnown(r *result) bool {
	for _, k := range knownFailures {
		if k.subject == r.subject.String() && k.tool == r.tool.name {
			return true
		}
	}
	return false
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

// summary prints the counts and returns whether all is well.
func (t *table) summary(allowRefused, requireAll bool) bool {
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
	fmt.Printf("%d subjects, %d tools: %d survive, %d fail, %d fail as known, in %d neither file survives; %d subjects refused; %d subjects and tools missing\n",
		len(t.rows), len(t.tools)-1, count[survives], count[fails], count[known], count[neither], refused, missing)
	return count[fails] == 0 && (refused == 0 || allowRefused) && (missing == 0 || !requireAll)
}

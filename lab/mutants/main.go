// Package mutants breaks one rule of the product at a time, and looks whether a test notices it: conditions are turned
// round, borders and constants moved by one, operators exchanged, statements, branches and entries of tables left out,
// functions have nothing to say, errors get lost.
//
// Usage: scripts/lab mutants [--number N] [--seed N] [--jobs N] [--least PERCENT] [--only REGEXP] [--list] [--again] [PACKAGE...]
//
// Of all that could be changed, 400 or N are taken from all files in turn, always the same for the same sources and
// seed. The tests of the changed package are run first, then those of convert and cmd/cfi2sframe that do not take long
// (--longest). A test that has no end has noticed something; the table says how many. Those that cannot be noticed are
// in lab/mutants/argued.txt, with the reason; it is an error if one of them is noticed or does not exist.
//
// What was found is kept in $XDG_CACHE_HOME/cfi2sframe-mutants (~/.cache), so that a run that was broken off can go on,
// and nothing is tried again whose sources and tests are the same. Prints a table and what was not noticed, and exits
// with 1 if fewer than PERCENT (100) of what can be noticed were.
//
// A change is made in a copy of a file, which go test takes instead of the file (-overlay); the tree stays as it is.
// The tests of the changed package are run first, those that are quick before the others, and then those of packages
// that use it; the first that fails ends the search. What was found is kept, by the sums of all files that it depends
// on.
package mutants

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"go/importer"
	"go/token"
	"io"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
)

//go:embed argued.txt
var arguments string

// A user is a package that uses the others.
type user struct {
	pkg string
	run string // which of its tests are of use, as a regular expression
}

// A config says what is to be done.
type config struct {
	root, cache string
	build       string // a build cache of its own, which fills with what is of no use later; "" for the usual one
	packages    []string
	users       []user // packages whose tests may notice what is wrong with all others
	arguments   string

	number, jobs int
	seed         int64
	least        float64
	longest      float64
	only         *regexp.Regexp
	list, again  bool
}

// Main runs the subcommand.
func Main() {
	c := config{users: []user{{"convert", ""}, {"cmd/cfi2sframe", "^Test(Hostile|Diff|DebugLink|Known)"}}, arguments: arguments}
	pflag.IntVar(&c.number, "number", 400, "how many mutants, of all packages together; 0 for all")
	pflag.Int64Var(&c.seed, "seed", 1, "which ones")
	pflag.IntVar(&c.jobs, "jobs", 2, "how many are tried at a time")
	pflag.Float64Var(&c.least, "least", 100, "how many `PERCENT` of those that can be noticed have to be")
	pflag.Float64Var(&c.longest, "longest", 3, "leave out tests of other packages that take longer, in `SECONDS`")
	only := pflag.String("only", "", "nothing but mutants whose file, function and line a `REGEXP` matches")
	pflag.BoolVar(&c.list, "list", false, "print the mutants and what is known of them, and try none")
	pflag.BoolVar(&c.again, "again", false, "try those again of which something is known")
	own := pflag.Bool("own", false, "run nothing but the tests of the package that is changed")
	pflag.Parse()
	if *own {
		c.users = nil
	}
	err := func() (err error) {
		if c.only, err = regexp.Compile(*only); err != nil {
			return err
		}
		if c.root, err = os.Getwd(); err != nil {
			return err
		}
		cache, err := os.UserCacheDir()
		if err != nil {
			return err
		}
		c.cache = filepath.Join(cache, "cfi2sframe-mutants")
		c.build = filepath.Join(c.cache, "build")
		c.packages = pflag.Args()
		if len(c.packages) == 0 {
			c.packages = []string{"arch", "cfi", "elfwrite", "emit", "sframe", "translate", "verify"}
		}
		return run(context.Background(), os.Stdout, os.Stderr, &c)
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// A task is a mutant with what is needed to try it.
type task struct {
	*mutant
	source *source
	argued bool
	result outcome
}

func run(ctx context.Context, out, log io.Writer, c *config) error {
	if err := os.MkdirAll(c.cache, 0o777); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b := &bench{ctx: ctx, dir: dir, root: c.root, env: os.Environ()}
	if c.build != "" {
		b.env = append(b.env, "GOCACHE="+c.build)
		if err := trim(c.build); err != nil {
			return err
		}
	}
	arguments, err := argued(c.arguments)
	if err != nil {
		return fmt.Errorf("argued.txt: %w", err)
	}
	known, err := openState(filepath.Join(c.cache, "state.json"))
	if err != nil {
		return err
	}
	tasks, err := b.tasks(c, arguments)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	b.ctx = ctx
	sums := make(map[string]string)
	for _, pkg := range c.all() {
		if sums[pkg] != "" {
			continue
		}
		if sums[pkg], err = b.sources(pkg); err != nil {
			return err
		}
		if c.list || known.Paces[pkg].Sources == sums[pkg] {
			continue
		}
		fmt.Fprintf(log, "the tests of %s, with nothing changed\n", pkg)
		tests, err := b.measure(pkg, c.testsOf(pkg), 20*time.Minute)
		if err != nil {
			return err
		}
		if err := known.change(func() { known.Paces[pkg] = pace{sums[pkg], tests} }); err != nil {
			return err
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	b.ctx = ctx
	group.SetLimit(max(1, c.jobs))
	// In no order, so that a run that is broken off has tried some of all.
	slices.SortStableFunc(tasks, func(x, y *task) int { return cmp.Compare(x.rank(c.seed), y.rank(c.seed)) })
	for i, t := range tasks {
		packages := c.noticers(t.Package)
		old := known.outcome(t.mutant)
		if old.Sources == sumFor(old, sums, packages) && !c.again {
			t.result = old
			continue
		}
		if c.list {
			continue
		}
		if ctx.Err() != nil {
			break
		}
		group.Go(func() error {
			begin := time.Now()
			o, err := b.try(t.source, t.mutant, c.stages(t.Package, packages, known, old))
			if err == nil {
				err = ctx.Err() // what was broken off has not been noticed
			}
			if err != nil {
				return err
			}
			o.Seconds = time.Since(begin).Seconds()
			o.Sources = sumFor(o, sums, packages)
			t.result = o
			if !o.Noticed && !t.argued {
				fmt.Fprintf(log, "%d of %d: not noticed: %s\n", i+1, len(tasks), t.mutant)
			} else if (i+1)%20 == 0 {
				fmt.Fprintf(log, "%d of %d\n", i+1, len(tasks))
			}
			return known.change(func() { known.Outcomes[t.key()] = o })
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	slices.SortStableFunc(tasks, func(x, y *task) int { return cmp.Or(cmp.Compare(x.File, y.File), cmp.Compare(x.from, y.from)) })
	return summary(out, c, tasks)
}

// trim removes the build cache when it has become too large; what is made of mutants is of no use later.
func trim(dir string) error {
	var size int64
	err := filepath.WalkDir(dir, func(_ string, e os.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			info, err := e.Info()
			if err != nil {
				return err
			}
			size += info.Size()
		}
		return err
	})
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if size < 6<<30 {
		return nil
	}
	return os.RemoveAll(dir)
}

// all returns all packages whose tests are run.
func (c *config) all() []string {
	all := slices.Clone(c.packages)
	for _, u := range c.users {
		if !slices.Contains(all, u.pkg) {
			all = append(all, u.pkg)
		}
	}
	return all
}

// noticers returns the packages whose tests are run for a mutant: its own, and its users.
func (c *config) noticers(pkg string) []string {
	all := []string{pkg}
	for _, u := range c.users {
		if u.pkg != pkg {
			all = append(all, u.pkg)
		}
	}
	return all
}

// testsOf returns the regular expression for the tests of a package that are of use, or "" for all.
func (c *config) testsOf(pkg string) string {
	for _, u := range c.users {
		if u.pkg == pkg {
			return u.run
		}
	}
	return ""
}

// sumFor returns the sum of all that an outcome depends on, for tests of these packages.
func sumFor(o outcome, sums map[string]string, packages []string) string {
	if o.Noticed {
		return sums[o.Package]
	}
	var all []string
	for _, p := range packages {
		all = append(all, sums[p])
	}
	return strings.Join(all, " ")
}

// stages returns the parts of tests in the order in which they are run: first the test that noticed the mutant when its
// sources were others.
func (c *config) stages(pkg string, packages []string, known *state, old outcome) []stage {
	known.mu.Lock()
	defer known.mu.Unlock()
	var all []stage
	for _, p := range packages {
		bound := c.longest
		if p == pkg {
			bound = 1e9
		}
		all = append(all, parts(p, c.testsOf(p), known.Paces[p].Tests, bound)...)
	}
	if t, ok := known.Paces[old.Package].Tests[old.Test]; ok && old.Noticed {
		first := stage{pkg: old.Package, run: names([]string{old.Test}), timeout: patience(t)}
		all = slices.Insert(all, 0, first)
	}
	return all
}

// tasks lists the mutants to be tried: those that are chosen, and those that are argued away.
func (b *bench) tasks(c *config, arguments map[string]string) ([]*task, error) {
	paths := make([]string, len(c.packages))
	for i, p := range c.packages {
		paths[i] = "./" + p
	}
	all, err := b.list(append([]string{"-export", "-deps"}, paths...)...)
	if err != nil {
		return nil, err
	}
	exports := make(map[string]string)
	byDir := make(map[string]listed)
	for _, p := range all {
		exports[p.ImportPath] = p.Export
		byDir[p.Dir] = p
	}
	imports := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
	var candidates []*mutant
	sources := make(map[string]*source)
	for _, pkg := range c.packages {
		p := byDir[filepath.Join(c.root, pkg)]
		s, info, err := load(pkg, p.ImportPath, p.GoFiles, imports)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", pkg, err)
		}
		sources[pkg] = s
		candidates = append(candidates, s.mutants(info)...)
	}
	byKey := make(map[string]*mutant)
	for _, m := range candidates {
		byKey[m.key()] = m
	}
	var tasks []*task
	for _, m := range choose(candidates, c.number, c.seed, func(m *mutant) bool { return sources[m.Package].compiles(m) }) {
		_, ok := arguments[m.key()]
		tasks = append(tasks, &task{mutant: m, source: sources[m.Package], argued: ok})
		if ok {
			delete(byKey, m.key())
		}
	}
	var lost []string
	for key := range arguments {
		file, _, _ := strings.Cut(key, " ")
		if !slices.Contains(c.packages, filepath.Dir(file)) {
			continue
		}
		m := byKey[key]
		switch {
		case m != nil && sources[m.Package].compiles(m):
			tasks = append(tasks, &task{mutant: m, source: sources[m.Package], argued: true})
		case !slices.ContainsFunc(tasks, func(t *task) bool { return t.key() == key }):
			lost = append(lost, key)
		}
	}
	if len(lost) > 0 {
		slices.Sort(lost)
		return nil, fmt.Errorf("argued.txt speaks of what cannot be made of the sources any more:\n%s", strings.Join(lost, "\n"))
	}
	return slices.DeleteFunc(tasks, func(t *task) bool { return !c.only.MatchString(t.key()) }), nil
}

// summary prints what became of the mutants, and fails if too few were noticed.
func summary(out io.Writer, c *config, tasks []*task) error {
	type row struct{ all, own, others, hung, argued, survived int }
	rows := make(map[string]*row)
	sum := new(row)
	var survivors, wrong []string
	for _, t := range tasks {
		if t.result.Sources == "" && c.list {
			fmt.Fprintf(out, "%s\n", t.mutant)
			continue
		}
		if rows[t.Package] == nil {
			rows[t.Package] = new(row)
		}
		for _, r := range []*row{rows[t.Package], sum} {
			r.all++
			switch {
			case t.result.Noticed && t.result.Package == t.Package:
				r.own++
			case t.result.Noticed:
				r.others++
			case t.argued:
				r.argued++
			default:
				r.survived++
			}
			if t.result.Noticed && t.result.How == "hung" {
				r.hung++
			}
		}
		switch {
		case t.result.Noticed && t.argued:
			wrong = append(wrong, fmt.Sprintf("%s\n\t%s of %s notices it", t.mutant, t.result.Test, t.result.Package))
		case !t.result.Noticed && !t.argued:
			survivors = append(survivors, t.String())
		case c.list:
			fmt.Fprintf(out, "%s\n\t%s %s.%s\n", t.mutant, t.result.How, t.result.Package, t.result.Test)
		}
	}
	percent := func(r *row) float64 {
		return 100 * float64(r.own+r.others) / float64(max(1, r.own+r.others+r.survived))
	}
	fmt.Fprintln(out, "| package | mutants | noticed by its own tests | by those of its users | of these by their time | cannot be noticed | not noticed | noticed |")
	fmt.Fprintln(out, "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
	line := func(name string, r *row) {
		fmt.Fprintf(out, "| %s | %d | %d | %d | %d | %d | %d | %.1f %% |\n",
			name, r.all, r.own, r.others, r.hung, r.argued, r.survived, percent(r))
	}
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		line("`"+name+"`", rows[name])
	}
	line("all", sum)
	if len(survivors) > 0 {
		fmt.Fprintf(out, "\nnot noticed:\n%s\n", strings.Join(survivors, "\n"))
	}
	if len(wrong) > 0 {
		return fmt.Errorf("argued.txt says that these cannot be noticed:\n%s", strings.Join(wrong, "\n"))
	}
	if p := percent(sum); p < c.least {
		return fmt.Errorf("%.2f %% were noticed, expected %g %%: a test is missing, or an argument in lab/mutants/argued.txt", p, c.least)
	}
	return nil
}

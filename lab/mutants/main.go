// Package mutants breaks one rule of the product at a time, and reports which changes no test notices.
//
// A change is made in a copy of a file, which go test takes instead of the file (-overlay). The tests of the changed
// package are run first, then those of package convert.
package mutants

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"cfi2sframe/lab/kit"
)

//go:embed argued.txt
var arguments string

// A config says what to do.
type config struct {
	packages  []string
	users     []string // packages whose tests may also notice a change
	arguments string   // the mutants that no test can notice; see argued
	number    int      // of mutants in all packages
	seed      int
	jobs      int
	least     float64 // percent that have to be noticed
}

// Command returns the subcommand.
func Command() *kit.Command {
	c := config{arguments: arguments}
	cmd := kit.New("mutants", "[PACKAGE...]", 0, math.MaxInt)
	cmd.IntVar(&c.number, "number", 400, "try `N` mutants; 0 stands for all")
	cmd.IntVar(&c.seed, "seed", 1, "choose them by `N`")
	cmd.IntVar(&c.jobs, "jobs", 2, "try `N` at a time")
	cmd.Float64Var(&c.least, "least", 95, "fail if less than `PERCENT` are noticed")
	own := cmd.Bool("own", false, "run the tests of the changed package only")
	cmd.Run = func(args []string) error {
		if c.packages = args; len(args) == 0 {
			c.packages = []string{"cfi", "elfwrite", "emit", "internal/arch", "internal/padding", "internal/plt", "sframe", "translate", "verify"}
		}
		if !*own {
			c.users = []string{"convert"}
		}
		return c.run(os.Stdout)
	}
	return cmd
}

// An outcome is what became of a mutant.
type outcome uint8

const (
	noticed outcome = iota
	missed
	invalid // the mutant does not compile
)

// A count counts the mutants of a package.
type count struct{ noticed, argued, missed int }

// run tries the mutants, and prints those that no test notices, and a table.
func (c *config) run(out io.Writer) error {
	why, err := argued(c.arguments)
	if err != nil {
		return err
	}
	byPackage := make(map[string][]mutant)
	total := 0
	for _, pkg := range c.packages {
		names, err := filepath.Glob(filepath.Join(pkg, "*.go"))
		if err != nil {
			return err
		}
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			found, err := find(name)
			if err != nil {
				return err
			}
			byPackage[pkg] = append(byPackage[pkg], found...)
		}
		total += len(byPackage[pkg])
	}
	if total == 0 {
		return fmt.Errorf("no Go files in %s", strings.Join(c.packages, ", "))
	}
	if err := c.stale(byPackage, why); err != nil {
		return err
	}
	table := kit.NewTable(out, "package", ">changes", ">noticed", ">cannot be noticed", ">not noticed")
	var all count
	var left []string
	for _, pkg := range slices.Sorted(maps.Keys(byPackage)) {
		number := len(byPackage[pkg])
		if c.number > 0 {
			number = max(1, c.number*number/total)
		}
		n, missed, err := c.tryAll(pkg, byPackage[pkg], number, why)
		if err != nil {
			return err
		}
		n.row(table, pkg)
		all = count{all.noticed + n.noticed, all.argued + n.argued, all.missed + n.missed}
		left = append(left, missed...)
	}
	all.row(table, "all")
	for _, m := range left {
		fmt.Fprintln(out, "not noticed:", m)
	}
	if part := 100 * float64(all.noticed) / float64(max(all.noticed+all.missed, 1)); part < c.least {
		return fmt.Errorf("%.1f %% were noticed, less than %g %%: a test is missing, or an argument in argued.txt",
			part, c.least)
	}
	return nil
}

func (n *count) row(t kit.Table, name string) {
	t.Row(name, n.noticed+n.argued+n.missed, n.noticed, n.argued, n.missed)
}

// stale returns an error if an argument is about a mutant that does not exist.
func (c *config) stale(byPackage map[string][]mutant, why map[string]string) error {
	known := make(map[string]bool)
	for _, all := range byPackage {
		for i := range all {
			known[all[i].key()] = true
		}
	}
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(why)) {
		pkg, _, _ := strings.Cut(key, "/")
		if byPackage[pkg] != nil && !known[key] {
			errs = append(errs, fmt.Errorf("argued.txt has a change that cannot be made any more:\n%s", key))
		}
	}
	return errors.Join(errs...)
}

// tryAll tries that number of mutants of a package, and returns those that no test noticed.
func (c *config) tryAll(pkg string, all []mutant, number int, why map[string]string) (
	n count, missedOnes []string, err error,
) {
	if o, text := c.test(pkg, ""); o != missed {
		return n, nil, fmt.Errorf("the tests of %s fail without any change:\n%s", pkg, text)
	}
	shuffle(all, c.seed)
	for len(all) > 0 && number > 0 {
		some := all[:min(number, len(all))]
		all = all[len(some):]
		outcomes := make([]outcome, len(some))
		var g errgroup.Group
		g.SetLimit(c.jobs)
		for i := range some {
			g.Go(func() (err error) {
				outcomes[i], err = c.try(pkg, &some[i])
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return n, nil, err
		}
		for i, o := range outcomes {
			reason := why[some[i].key()]
			switch {
			case o == invalid:
				continue
			case o == noticed && reason != "":
				return n, nil, fmt.Errorf("a test notices what argued.txt says cannot be noticed: %v", &some[i])
			case o == noticed:
				n.noticed++
			case reason != "":
				n.argued++
			default:
				n.missed++
				missedOnes = append(missedOnes, some[i].String())
			}
			number--
		}
	}
	return n, missedOnes, nil
}

// try runs the tests with the mutant.
func (c *config) try(pkg string, m *mutant) (outcome, error) {
	dir, err := os.MkdirTemp("", "mutant-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	file, err := filepath.Abs(m.file)
	if err != nil {
		return 0, err
	}
	changed, overlay := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
	b, err := json.Marshal(map[string]any{"Replace": map[string]string{file: changed}})
	if err != nil {
		return 0, err
	}
	if err := os.WriteFile(changed, m.source(), 0o600); err != nil {
		return 0, err
	}
	if err := os.WriteFile(overlay, b, 0o600); err != nil {
		return 0, err
	}
	for _, p := range slices.Concat([]string{pkg}, c.users) {
		if o, _ := c.test(p, overlay); o != missed {
			return o, nil
		}
	}
	return missed, nil
}

// test runs the tests of a package. A change may make them ask for memory without end, so it is bounded.
func (c *config) test(pkg, overlay string) (outcome, string) {
	script := `ulimit -v 16777216; exec go test -short -failfast -vet=off -timeout 3m "$@"`
	args := []string{"-c", script, "sh", "./" + pkg}
	if overlay != "" {
		args = []string{"-c", script, "sh", "-overlay", overlay, "./" + pkg}
	}
	out, err := exec.Command("sh", args...).CombinedOutput()
	switch {
	case err == nil:
		return missed, ""
	case strings.Contains(string(out), "[build failed]"), strings.Contains(string(out), "[setup failed]"):
		return invalid, string(out)
	}
	return noticed, string(out)
}

// Package mutants changes the code of cfi2sframe in one place at a time, and reports the changes that no test notices.
// Changes are made with go test -overlay. The tests of the changed package run first, then those of package convert,
// then the slow tests of the changed package.
package mutants

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"cfi2sframe/lab/kit"
)

// A config holds the settings of a run.
type config struct {
	packages []string
	users    []string // packages whose tests may also notice changes
	number   int      // total number of mutants
	seed     int
}

// Command returns the subcommand.
func Command() *kit.Command {
	var c config
	cmd := kit.New("mutants", "[PACKAGE...]", 0, math.MaxInt)
	cmd.IntVar(&c.number, "number", 400, "try `N` mutants; 0 for all")
	cmd.IntVar(&c.seed, "seed", 1, "choose mutants with seed `N`")
	own := cmd.Bool("own", false, "run the tests of the changed package only")
	cmd.Run = func(args []string) error {
		if c.packages = args; len(args) == 0 {
			c.packages = []string{
				"cfi", "elffile", "elfwrite", "emit", "internal/arch", "internal/padding", "internal/plt", "sframe",
				"translate", "verify",
			}
		}
		if !*own {
			c.users = []string{"convert"}
		}
		return c.run(os.Stdout)
	}
	return cmd
}

// An outcome is the result of trying a mutant.
type outcome uint8

const (
	noticed outcome = iota
	missed
	invalid // does not compile
)

// run tries mutants, and prints the mutants that no test notices, and a table.
func (c *config) run(out io.Writer) error {
	byPackage := make(map[string][]*mutant)
	total := 0
	for _, pkg := range c.packages {
		all, err := findAll(pkg)
		if err != nil {
			return err
		}
		byPackage[pkg] = all
		total += len(all)
	}
	if total == 0 {
		return fmt.Errorf("no Go files in %s", strings.Join(c.packages, ", "))
	}
	table := kit.NewTable(out, "package", ">noticed", ">not noticed")
	var all [invalid + 1]int
	var left []string
	for _, pkg := range c.packages {
		some := byPackage[pkg]
		shuffle(some, c.seed)
		if c.number > 0 {
			some = some[:min(len(some), max(1, c.number*len(some)/total))]
		}
		if err := c.tryAll(pkg, some); err != nil {
			return err
		}
		var n [invalid + 1]int
		for _, m := range some {
			n[m.outcome]++
			all[m.outcome]++
			if m.outcome == missed {
				left = append(left, m.String())
			}
		}
		table.Row(pkg, n[noticed], n[missed])
	}
	table.Row("all", all[noticed], all[missed])
	for _, m := range left {
		fmt.Fprintln(out, "not noticed:", m)
	}
	return nil
}

// findAll returns the mutants of a package.
func findAll(pkg string) (all []*mutant, err error) {
	names, err := filepath.Glob(filepath.Join(pkg, "*.go"))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		found, err := find(name)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// tryAll tries mutants of a package and stores their outcomes.
func (c *config) tryAll(pkg string, some []*mutant) error {
	for _, short := range []bool{true, false} {
		if o, text := c.test(pkg, "", short); o != missed {
			return fmt.Errorf("the tests of %s already fail without a change:\n%s", pkg, text)
		}
	}
	return kit.Each(some, func(_ int, m *mutant) (err error) {
		m.outcome, err = c.try(pkg, m)
		return err
	})
}

// try runs the tests with a mutant.
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
	if err := errors.Join(os.WriteFile(changed, m.source(), 0o600), os.WriteFile(overlay, b, 0o600)); err != nil {
		return 0, err
	}
	for _, p := range slices.Concat([]string{pkg}, c.users) {
		if o, _ := c.test(p, overlay, true); o != missed {
			return o, nil
		}
	}
	o, _ := c.test(pkg, overlay, false)
	return o, nil
}

// test runs the tests of a package, without the slow ones if short is set, with limited memory: a mutant may leak.
func (c *config) test(pkg, overlay string, short bool) (outcome, string) {
	timeout := map[bool]string{true: "3m", false: "20m"}[short]
	script := `ulimit -v 16777216; exec go test -failfast -vet=off "$@"`
	args := []string{"-c", script, "sh", "-timeout", timeout, fmt.Sprintf("-short=%t", short)}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	out, err := exec.Command("sh", append(args, "./"+pkg)...).CombinedOutput()
	switch {
	case err == nil:
		return missed, ""
	case strings.Contains(string(out), "[build failed]"), strings.Contains(string(out), "[setup failed]"):
		return invalid, string(out)
	}
	return noticed, string(out)
}

package clients

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"cfi2sframe/lab/kit"
)

// counts holds the results of c/compare.c in a program: named numbers, and a tally for each address after which stacks
// differ.
type counts struct {
	n       map[string]uint64
	tallies []tally
}

// A tally counts the pairs of stacks that diverge in the same way (kind) after the same return address (addr in file).
type tally struct {
	kind        string
	count, addr uint64
	file        string
}

// addFile adds the counts in a file that c/compare.c wrote.
func (c *counts) addFile(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(b)) {
		var t tally
		var name string
		var v, end, ours, theirs uint64
		const form = "tally %s %d %d %v %v %v %s"
		if _, err := fmt.Sscanf(line, form, &t.kind, &end, &t.count, &t.addr, &ours, &theirs, &t.file); err == nil {
			c.tallies = append(c.tallies, t)
			c.n["tally "+t.kind] += t.count
		} else if _, err := fmt.Sscan(line, &name, &v); err == nil {
			c.n[name] += v
		} else {
			return fmt.Errorf("%s: line %q: %w", path, line, err)
		}
	}
	return nil
}

// explain describes the tallies with their counts and functions, the largest first.
func (c *counts) explain() []string {
	reasons, functions := make(map[string]uint64), make(map[string]kit.Functions)
	for _, t := range c.tallies {
		if _, ok := functions[t.file]; !ok {
			if f, err := elf.Open(t.file); err == nil {
				functions[t.file] = kit.FunctionsOf(f)
				f.Close()
			}
		}
		what := fmt.Sprintf("%s after %s+%#x", t.kind, filepath.Base(t.file), t.addr)
		if name, _ := functions[t.file].At(t.addr - 1); name != "" {
			what += " in " + name
		}
		reasons[what] += t.count
	}
	return kit.Ranked(reasons)
}

// Package conformance asks readers of SFrame about the vectors in the directory conformance, and prints how many
// answers are correct. See conformance/README.md.
package conformance

import (
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"

	"cfi2sframe/lab/conformance/vector"
	"cfi2sframe/lab/kit"
)

// Command returns the subcommand.
func Command() *kit.Command {
	c := kit.New("conformance", "[READER | COMMAND [ARGUMENT...]]", 0, math.MaxInt)
	c.SetInterspersed(false)
	markdown := c.Bool("markdown", false, "also print a Markdown table")
	verbose := c.BoolP("verbose", "v", false, "print each vector, not only those that fail")
	c.Run = func(args []string) error {
		const dir = "conformance/"
		ok, err := conformance(os.Stdout, dir+"vectors", dir+"known.json", commands(args), *markdown, *verbose)
		if err == nil && !ok {
			err = kit.ErrFound
		}
		return err
	}
	return c
}

// commands returns the commands of the readers that the given words select: "all" selects all, no words our own.
func commands(words []string) [][]string {
	switch {
	case len(words) == 0:
		return [][]string{{"own"}}
	case len(words) > 1 || words[0] != "all":
		return [][]string{words}
	}
	var all [][]string
	for _, name := range readerNames {
		all = append(all, []string{name})
	}
	return all
}

// start starts the reader with a given name, or an adapter.
func start(words []string, dir string) (*Reader, error) {
	if len(words) == 1 && slices.Contains(readerNames, words[0]) {
		return StartReader(words[0], ".", dir)
	}
	return startAdapter(words...)
}

// conformance asks all readers, prints the results, and reports whether all errors are known.
func conformance(w io.Writer, dir, knownFile string, commands [][]string, markdown, verbose bool) (bool, error) {
	vectors, err := vector.Load(dir)
	if err != nil {
		return false, err
	}
	known, err := loadKnown(knownFile)
	if err != nil {
		return false, err
	}
	tmp, err := os.MkdirTemp("", "conformance-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(tmp)
	ok := true
	var names, sums []string
	var all [][]Result
	for _, words := range commands {
		r, err := start(words, tmp)
		if err != nil {
			return false, fmt.Errorf("%s: %w", strings.Join(words, " "), err)
		}
		name := r.Hello.Reader
		results, err := askAll(r, vectors, known)
		if err != nil {
			return false, err
		}
		counts := make(map[Status]int)
		for _, res := range results {
			counts[res.Status]++
			if res.Status == Wrong || verbose {
				fmt.Fprintf(w, "%s: %s: %v: %s\n", name, res.Vector.Name, res.Status, res.What)
			}
		}
		ok = ok && counts[Wrong] == 0
		for _, p := range unusedPatterns(known, name, vectors) {
			fmt.Fprintf(w, "%s: the pattern of a known error matches no vector: %s\n", name, p)
			ok = false
		}
		sums = append(sums, fmt.Sprintf("%s: %d vectors right, %d wrong, %d with known errors, %d of other formats "+
			"refused", name, counts[Right], counts[Wrong], counts[Expected], counts[Other]))
		names, all = append(names, name), append(all, results)
	}
	fmt.Fprintln(w, strings.Join(sums, "\n"))
	if markdown {
		fmt.Fprintln(w)
		writeTable(w, names, all)
	}
	return ok, nil
}

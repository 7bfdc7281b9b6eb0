// Package conformance asks readers of SFrame about the vectors of the directory conformance, and prints which answers
// are right. See conformance/README.md.
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
	c := kit.New("conformance", "[READER | COMMAND [ARGUMENT...]] [-- ...]...", 0, math.MaxInt)
	c.SetInterspersed(false)
	markdown := c.Bool("markdown", false, "print a table in Markdown as well")
	verbose := c.BoolP("verbose", "v", false, "print each vector, not only those that fail")
	c.Run = func(args []string) error {
		const dir = "conformance/"
		ok, err := conformance(os.Stdout, dir+"vectors", dir+"known.json", split(args), *markdown, *verbose)
		if err == nil && !ok {
			err = kit.ErrFound
		}
		return err
	}
	return c
}

// split returns the commands that words "--" divide; none stands for our own reader.
func split(words []string) (commands [][]string) {
	for len(words) > 0 {
		n := slices.Index(words, "--")
		if n < 0 {
			n = len(words)
		}
		if n > 0 {
			commands = append(commands, words[:n])
		}
		words = words[min(n+1, len(words)):]
	}
	switch {
	case len(commands) == 0:
		return [][]string{{"own"}}
	case len(commands) == 1 && len(commands[0]) == 1 && commands[0][0] == "all":
		commands = nil
		for _, name := range readerNames {
			commands = append(commands, []string{name})
		}
	}
	return commands
}

// start returns the reader of a command.
func start(words []string, dir string) (*Reader, error) {
	if len(words) == 1 && slices.Contains(readerNames, words[0]) {
		return StartReader(words[0], ".", dir)
	}
	return startAdapter(words[0], words[1:]...)
}

// conformance asks all readers, prints the results, and reports whether all errors are known. The file of known errors
// may be "".
func conformance(w io.Writer, dir, knownFile string, commands [][]string, markdown, verbose bool) (bool, error) {
	vectors, err := vector.Load(dir)
	if err != nil {
		return false, err
	}
	var known []Known
	if knownFile != "" {
		if known, err = loadKnown(knownFile); err != nil {
			return false, err
		}
	}
	tmp, err := os.MkdirTemp("", "conformance-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(tmp)
	ok := true
	var names []string
	var all [][]Result
	for _, words := range commands {
		r, err := start(words, tmp)
		if err != nil {
			return false, fmt.Errorf("%s: %w", strings.Join(words, " "), err)
		}
		name := r.Hello.Reader
		results, err := askAll(r, vectors, known)
		r.Close()
		if err != nil {
			return false, err
		}
		for _, res := range results {
			switch {
			case res.Status == Mended:
				fmt.Fprintf(w, "%s: %s: right, but %s of known.json says that it is wrong: remove it there\n",
					name, res.Vector.Name, res.Known.ID)
			case res.Failed() || verbose && res.Status == Expected:
				fmt.Fprintf(w, "%s: %s: %v: %s\n", name, res.Vector.Name, res.Status, res.What)
			case verbose:
				fmt.Fprintf(w, "%s: %s: %v\n", name, res.Vector.Name, res.Status)
			}
			ok = ok && !res.Failed()
		}
		for _, p := range unused(known, name, vectors) {
			fmt.Fprintf(w, "%s: no vector has the name of a known error: %s\n", name, p)
			ok = false
		}
		names, all = append(names, name), append(all, results)
	}
	for i, name := range names {
		var n [5]int
		for _, res := range all[i] {
			n[res.Status]++
		}
		fmt.Fprintf(w, "%s: %d vectors right, %d wrong, %d wrong as known, %d right that were known as wrong, "+
			"%d of other formats refused\n", name, n[Right], n[Wrong], n[Expected], n[Mended], n[Other])
	}
	if markdown {
		fmt.Fprintln(w)
		writeTable(w, names, all)
	}
	return ok, nil
}

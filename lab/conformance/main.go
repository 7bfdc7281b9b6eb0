// Command conformance asks readers of SFrame what the vectors of the folder conformance ask, and prints which answers
// are right.
//
// Usage: conformance [--vectors FOLDER] [--known FILE] [--markdown] [-v] [READER | COMMAND [ARGUMENT...]] [-- ...]...
//
// A command is that of an adapter: see conformance/README.md. Several are divided by a word "--". Readers that there are
// adapters of go by their names: own, libsframe-2.44, libsframe-2.47, glibc, llvm-readobj, walker; and all stands for all of them.
// Run it from the top of the repository.
package conformance

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"cfi2sframe/lab/conformance/adapters"
	"cfi2sframe/lab/conformance/run"
	"cfi2sframe/lab/conformance/vector"
)

// Main runs the subcommand.
func Main() {
	flags := pflag.NewFlagSet("conformance", pflag.ContinueOnError)
	flags.SetInterspersed(false)
	dir := flags.String("vectors", "conformance/vectors", "folder of vectors")
	knownFile := flags.String("known", "conformance/known.json", "list of known errors, or \"\" for none")
	markdown := flags.Bool("markdown", false, "print a table in Markdown, too")
	verbose := flags.BoolP("verbose", "v", false, "print each vector, not only those that fail")
	if err := flags.Parse(os.Args[1:]); err != nil {
		if err == pflag.ErrHelp {
			return
		}
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(2)
	}
	ok, err := conformance(os.Stdout, *dir, *knownFile, split(flags.Args()), *markdown, *verbose)
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
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
		for _, name := range adapters.Names {
			commands = append(commands, []string{name})
		}
	}
	return commands
}

// start returns the reader of a command.
func start(words []string, dir string) (*run.Reader, error) {
	if len(words) == 1 && adapters.Known(words[0]) {
		return adapters.Start(words[0], ".", dir)
	}
	return run.Start(words[0], words[1:]...)
}

// conformance asks all readers, prints, and reports whether there was nothing but what is known.
func conformance(w io.Writer, dir, knownFile string, commands [][]string, markdown, verbose bool) (bool, error) {
	vectors, err := vector.Load(dir)
	if err != nil {
		return false, err
	}
	var known []run.Known
	if knownFile != "" {
		if known, err = run.LoadKnown(knownFile); err != nil {
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
	var all [][]run.Result
	for _, words := range commands {
		r, err := start(words, tmp)
		if err != nil {
			return false, fmt.Errorf("%s: %w", strings.Join(words, " "), err)
		}
		name := r.Hello.Reader
		results, err := run.All(r, vectors, known)
		r.Close()
		if err != nil {
			return false, err
		}
		for _, res := range results {
			switch {
			case res.Status == run.Mended:
				fmt.Fprintf(w, "%s: %s: right, but %s of the known errors says that it is not: take it out of the list\n", name, res.Vector.Name, res.Known.ID)
			case res.Failed() || verbose && res.Status == run.Expected:
				fmt.Fprintf(w, "%s: %s: %v: %s\n", name, res.Vector.Name, res.Status, res.What)
			case verbose:
				fmt.Fprintf(w, "%s: %s: %v\n", name, res.Vector.Name, res.Status)
			}
			ok = ok && !res.Failed()
		}
		for _, p := range run.Unused(known, name, vectors) {
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
		fmt.Fprintf(w, "%s: %d vectors right, %d wrong, %d wrong as known, %d right that were known as wrong, %d of other formats refused\n",
			name, n[run.Right], n[run.Wrong], n[run.Expected], n[run.Mended], n[run.Other])
	}
	if markdown {
		fmt.Fprint(w, "\n", run.Table(names, all))
	}
	return ok, nil
}

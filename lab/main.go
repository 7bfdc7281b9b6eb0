// Lab measures cfi2sframe and compares it with other programs.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"cfi2sframe/lab/bench"
	"cfi2sframe/lab/clients"
	"cfi2sframe/lab/conformance"
	"cfi2sframe/lab/corpus"
	"cfi2sframe/lab/faults"
	"cfi2sframe/lab/gotables"
	"cfi2sframe/lab/kit"
	"cfi2sframe/lab/mutants"
	"cfi2sframe/lab/readers"
	"cfi2sframe/lab/step"
	"cfi2sframe/lab/survive"
)

// commands are the subcommands.
var commands = []*kit.Command{
	bench.Command(), bench.Reads(), clients.Command(), conformance.Command(), corpus.Command(), faults.Command(),
	gotables.Command(), mutants.Command(), readers.Command(), step.Command(), survive.Command(),
}

func main() {
	var names []string
	for _, c := range commands {
		if len(os.Args) > 1 && os.Args[1] == c.Name() {
			os.Exit(c.Main(os.Args[2:]))
		}
		names = append(names, c.Name())
	}
	scripts, _ := os.ReadDir("lab/sh") // run by scripts/lab
	for _, s := range scripts {
		if filepath.Ext(s.Name()) == "" {
			names = append(names, s.Name())
		}
	}
	slices.Sort(names)
	fmt.Fprintln(os.Stderr, "usage: scripts/lab COMMAND ...\ncommands:", strings.Join(slices.Compact(names), " "))
	os.Exit(2)
}

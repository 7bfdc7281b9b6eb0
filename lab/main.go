// Lab measures cfi2sframe and compares it with other programs.
package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"cfi2sframe/lab/bench"
	"cfi2sframe/lab/conformance"
	"cfi2sframe/lab/conformance/generate"
	"cfi2sframe/lab/corpus"
	"cfi2sframe/lab/debian"
	"cfi2sframe/lab/faults"
	"cfi2sframe/lab/fuzz"
	"cfi2sframe/lab/manual"
	"cfi2sframe/lab/merge"
	"cfi2sframe/lab/mutants"
	"cfi2sframe/lab/objects"
	"cfi2sframe/lab/oldapi"
	"cfi2sframe/lab/readers"
	"cfi2sframe/lab/release"
	"cfi2sframe/lab/sample"
	"cfi2sframe/lab/stepping"
	"cfi2sframe/lab/survive"
	"cfi2sframe/lab/toolchains"
	"cfi2sframe/lab/walker"
)

// commands are the subcommands. Each reads its flags from os.Args and ends the process if it fails.
var commands = map[string]func(){
	"bench":       bench.Main,
	"conformance": conformance.Main,
	"corpus":      corpus.Main,
	"debian":      debian.Main,
	"faults":      faults.Main,
	"fuzz":        fuzz.Main,
	"manual":      manual.Main,
	"merge":       merge.Main,
	"mutants":     mutants.Main,
	"objects":     objects.Main,
	"oldapi":      oldapi.Main,
	"readers":     readers.Main,
	"release":     release.Main,
	"sample":      sample.Main,
	"step":        stepping.Main,
	"survive":     survive.Main,
	"toolchains":  toolchains.Main,
	"vectors":     generate.Main,
	"walker":      walker.Main,
}

func main() {
	if len(os.Args) > 1 {
		if command, ok := commands[os.Args[1]]; ok {
			os.Args = os.Args[1:]
			command()
			return
		}
	}
	fmt.Fprintln(os.Stderr, "usage: lab COMMAND ...\ncommands:", strings.Join(slices.Sorted(maps.Keys(commands)), " "))
	os.Exit(2)
}

//go:build !linux

package main

import (
	"fmt"
	"io"
)

const linuxOnly = "runs on Linux only; elsewhere convert what was linked in a step of its own"

// runLinker refuses a command line that asks for a link.
func runLinker(args []string, _, stderr io.Writer) (status int, ok bool) {
	if len(args) < 2 || args[1] != linkCommand {
		return 0, false
	}
	fmt.Fprintf(stderr, "cfi2sframe: ld: it %s\n", linuxOnly)
	return exitUsage, true
}

// printLinkerDir reports that there is no such directory.
func printLinkerDir(_, stderr io.Writer) int {
	fmt.Fprintf(stderr, "cfi2sframe: --print-linker-dir: the linker %s\n", linuxOnly)
	return exitUsage
}

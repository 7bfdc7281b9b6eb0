//go:build !linux

package main

import (
	"errors"
	"fmt"
	"io"
)

var errLinuxOnly = errors.New("ld runs on Linux only; elsewhere, convert after linking")

// runLinker refuses a command line of cfi2sframe ld.
func runLinker(args []string, _, stderr io.Writer) (status int, ok bool) {
	if len(args) < 2 || args[1] != "ld" {
		return 0, false
	}
	fmt.Fprintf(stderr, "cfi2sframe: %v\n", errLinuxOnly)
	return exitUsage, true
}

// linkersDir returns an error.
func linkersDir() (string, error) { return "", errLinuxOnly }

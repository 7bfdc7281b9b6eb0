//go:build !unix

package main

import "os"

// die ends the program: nothing is said of signals by a status here.
func die(os.Signal) { os.Exit(exitError) }

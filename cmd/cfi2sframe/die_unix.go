//go:build unix

package main

import (
	"os"
	"syscall"
)

// die ends the program by a signal, so that the status says so.
func die(s os.Signal) { _ = syscall.Kill(os.Getpid(), s.(syscall.Signal)) }

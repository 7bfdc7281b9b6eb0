package main

import (
	"os"
	"os/exec"
	"os/signal"
	"sync/atomic"
	"syscall"

	"cfi2sframe/lab/step"
)

// trace runs a program until it ends, or an interrupt does that.
func trace(args []string, opt step.Options) (*step.Report, int, error) {
	var stopped atomic.Bool
	sig := make(chan os.Signal, 1)
	signal.Notify(sig, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(sig)
	go func() {
		for range sig {
			stopped.Store(true)
		}
	}()
	opt.Stopped = stopped.Load
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return step.Trace(cmd, opt)
}

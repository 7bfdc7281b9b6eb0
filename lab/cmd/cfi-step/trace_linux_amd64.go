package main

import (
	"context"
	"os"
	"os/exec"

	"cfi2sframe/lab/step"
)

func trace(ctx context.Context, args []string, opt step.Options) (*step.Report, int, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return step.Trace(ctx, cmd, opt)
}

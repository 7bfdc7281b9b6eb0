package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"cfi2sframe/convert"
	"cfi2sframe/internal/files"
	"cfi2sframe/report"
)

// dumpCommand returns the verb dump.
func (c *call) dumpCommand() *cobra.Command {
	cmd := newCommand("dump FILE...", "print .sframe as objdump --sframe does")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := checkInputs(args); err != nil {
			return err
		}
		c.status = c.dump(args)
		return nil
	}
	return cmd
}

// checkInputs refuses a list of input files that is empty or has standard input more than once.
func checkInputs(paths []string) error {
	return refuse(
		rule{len(paths) == 0, "no input file"},
		rule{count(paths, files.Stdin) > 1, "standard input (-) may be given only once"},
	)
}

// dump prints the .sframe of each file, and returns the exit status.
func (c *call) dump(paths []string) int {
	status := exitDone
	out := bufio.NewWriter(c.out)
	for i, path := range paths {
		err := c.ctx.Err()
		if err == nil {
			if len(paths) > 1 {
				fmt.Fprintf(out, "%s:\n\n", report.Printable(path))
			}
			err = dumpFile(c.ctx, out, path)
			err = cmp.Or(err, out.Flush())
		}
		if errors.Is(err, context.Canceled) {
			return interrupted(c.ctx, c.stderr, paths[i:], "not printed")
		}
		if err != nil {
			complain(c.stderr, path, explain(path, err, false))
			status = exitError
		}
	}
	return status
}

// dumpFile prints the .sframe of a file.
func dumpFile(ctx context.Context, w io.Writer, path string) error {
	in, err := files.Open(ctx, path)
	if err != nil {
		return err
	}
	defer in.Close()
	return convert.Dump(w, in.File, in.Info.Size())
}

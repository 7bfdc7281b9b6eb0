package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
)

// linkCommand returns the verb ld. runLinker handles most of its command lines before.
func (c *call) linkCommand() *cobra.Command {
	cmd := newCommand("ld PROGRAM ARG...\nld -- ARG...\nld --print-dir", "link, then convert")
	cmd.DisableFlagParsing = true
	cmd.Flags().Bool("print-dir", false,
		"print the directory with linkers that convert their output, for the -B of compilers")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return errors.New("ld requires a program, or -- and the arguments of ld")
		case len(args) > 1 && args[0] == "--print-dir":
			return errors.New("--print-dir takes no argument")
		case args[0] == "--print-dir":
			c.printLinkerDir()
		case len(args) == 1 && (args[0] == "--help" || args[0] == "-h"):
			c.printHelp(cmd, args[0] == "--help")
		default:
			c.status, _ = runLinker(append([]string{"cfi2sframe", "ld"}, args...), c.stdout, c.stderr)
		}
		return nil
	}
	return cmd
}

// printLinkerDir prints the directory for the -B of compilers.
func (c *call) printLinkerDir() {
	dir, err := linkersDir()
	if err != nil {
		complain(c.stderr, "--print-dir", err)
		c.status = exitError
		return
	}
	fmt.Fprintln(c.out, dir)
}

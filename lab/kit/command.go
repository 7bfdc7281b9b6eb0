// Package kit provides what the laboratory's subcommands share: flags, files, parallel work, and tables.
package kit

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/pflag"
)

// A Command is a subcommand. Run receives from MinArgs to MaxArgs arguments.
type Command struct {
	*pflag.FlagSet
	Usage            string // of the arguments
	MinArgs, MaxArgs int
	Run              func(args []string) error
}

// New returns a command with the given name.
func New(name, usage string, minArgs, maxArgs int) *Command {
	flags := pflag.NewFlagSet(name, pflag.ContinueOnError)
	c := &Command{FlagSet: flags, Usage: usage, MinArgs: minArgs, MaxArgs: maxArgs}
	c.SetOutput(io.Discard)
	c.SortFlags = false
	return c
}

// ErrFound is returned by a command that has already printed what is wrong.
var ErrFound = errors.New("something is wrong")

// Main runs the command and returns its exit status: 1 for findings and errors, 2 for a wrong command line.
func (c *Command) Main(args []string) int {
	usage := fmt.Sprintf("usage: lab %s [flags] %s\n%s", c.Name(), c.Usage, c.FlagUsages())
	err := c.Parse(args)
	if errors.Is(err, pflag.ErrHelp) {
		fmt.Print(usage)
		return 0
	}
	if err != nil || c.NArg() < c.MinArgs || c.NArg() > c.MaxArgs {
		if err != nil {
			fmt.Fprintf(os.Stderr, "lab %s: %v\n", c.Name(), err)
		}
		fmt.Fprint(os.Stderr, usage)
		return 2
	}
	err = c.Run(c.Args())
	if err != nil && err != ErrFound {
		fmt.Fprintf(os.Stderr, "lab %s: %v\n", c.Name(), err)
	}
	if err != nil {
		return 1
	}
	return 0
}

// Command debian does what scripts/lab debian needs besides cfi2sframe: it takes the ELF files out of packages, has each
// converted and read again, chooses some at random, and makes the tables of docs/debian.md from the results.
//
//	debian unpack [--first N] --to FOLDER --list FILE FOLDER
//	debian convert --tool PROGRAM --results FILE [--jobs N] TREE
//	debian sample --number N [--seed N] --results FOLDER
//	debian tables --results FOLDER [--into FILE]
package debian

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"

	"github.com/spf13/pflag"
)

// settings are the command line.
type settings struct {
	first   int
	to      string
	list    string
	tool    string
	results string
	into    string
	jobs    int
	number  int
	seed    uint64
}

// Main runs the subcommand.
func Main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "debian:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	var s settings
	flags := pflag.NewFlagSet("debian", pflag.ContinueOnError)
	flags.IntVar(&s.first, "first", 0, "take the first so many `PACKAGES` only")
	flags.StringVar(&s.to, "to", "", "`FOLDER` that packages are unpacked into")
	flags.StringVar(&s.list, "list", "", "`FILE` for the list of packages")
	flags.StringVar(&s.tool, "tool", "", "cfi2sframe, the `PROGRAM`")
	flags.StringVar(&s.results, "results", "", "`PATH` of the results")
	flags.StringVar(&s.into, "into", "", "`FILE` whose tables are to be renewed")
	flags.IntVar(&s.jobs, "jobs", runtime.NumCPU(), "`PACKAGES` at a time")
	flags.IntVar(&s.number, "number", 300, "so many `FILES`")
	flags.Uint64Var(&s.seed, "seed", 1, "`NUMBER` that the choice depends on")
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch args := flags.Args(); {
	case len(args) == 2 && args[0] == "unpack" && s.to != "" && s.list != "":
		return unpackAll(&s, args[1])
	case len(args) == 2 && args[0] == "convert" && s.tool != "" && s.results != "":
		return convertAll(&s, args[1], out)
	case len(args) == 1 && args[0] == "sample" && s.results != "" && s.number > 0:
		return choose(&s, out)
	case len(args) == 1 && args[0] == "tables" && s.results != "":
		return tables(&s, out)
	}
	return errors.New("unpack, convert, sample or tables was expected, with what the comment in lab/debian/main.go says; scripts/lab debian does all")
}

package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// helpWidth is the width of help in columns.
const helpWidth = 80

// groups lists the headings of help texts, and the flags below each. All other flags are advanced.
var groups = []struct{ title, flags string }{
	{"Output", "output in-place recursive dry-run preserve-dates update force skip-unsupported"},
	{"Format", "for format pcrel outermost share padding into"},
	{"Reporting", "report report-file min-coverage min-unwindable require skip-status quiet verbose"},
	{"Advanced", ""},
}

// briefFlags are the flags in brief help.
const briefFlags = "output in-place dry-run recursive update for require cfi sframe print-dir report quiet verbose help"

// verbWidth is the width of the verb column.
const verbWidth = 19

// groupOf returns the index of a flag's group.
func groupOf(f *pflag.Flag) int {
	for i := range groups {
		if slices.Contains(strings.Fields(groups[i].flags), f.Name) {
			return i
		}
	}
	return len(groups) - 1
}

// printHelp prints the help of a command, complete or brief.
func (c *call) printHelp(cmd *cobra.Command, complete bool) {
	name := ""
	if cmd.Name() != "cfi2sframe" {
		name = "cfi2sframe "
	}
	for i, form := range strings.Split(cmd.Use, "\n") {
		fmt.Fprintf(c.out, "%-6s %s%s\n", []string{"Usage:", ""}[min(i, 1)], name, form)
	}
	long := cmp.Or(cmd.Long, strings.ToUpper(cmd.Short[:1])+cmd.Short[1:]+".\n")
	if !complete {
		first, _, _ := strings.Cut(long, "\n\n")
		long = strings.TrimSuffix(first, "\n") + "\n"
	}
	fmt.Fprintf(c.out, "\n%s", long)
	if name == "" {
		c.printVerbs(complete)
	}
	if !complete {
		c.printBriefFlags(cmd)
		fmt.Fprintf(c.out, "\nAll flags, exit statuses and examples: %s --help\n", cmd.CommandPath())
		return
	}
	c.printFlags(cmd)
	fmt.Fprint(c.out, statusesOf(cmd))
	if cmd.Example != "" {
		fmt.Fprintf(c.out, "\nExamples:\n%s", cmd.Example)
	}
}

// printVerbs prints the verbs, or those of brief help.
func (c *call) printVerbs(complete bool) {
	fmt.Fprintln(c.out, "\nVerbs:")
	var plain []string
	for _, v := range allVerbs() {
		form, _, _ := strings.Cut(v.usage, "\n")
		if len(form) > verbWidth {
			form = v.name() + " ..."
		}
		switch {
		case v.plain:
			plain = append(plain, form)
		case v.brief || complete:
			fmt.Fprintf(c.out, "  %-*s %s\n", verbWidth, form, v.short)
		}
	}
	if complete {
		fmt.Fprintf(c.out, "  %s\n", strings.Join(plain, ", "))
	}
}

// printBriefFlags prints the flags of brief help, each with the first part of its description.
func (c *call) printBriefFlags(cmd *cobra.Command) {
	brief := pflag.NewFlagSet("", pflag.ContinueOnError)
	brief.SortFlags = false
	for _, name := range strings.Fields(briefFlags) {
		if f := cmd.Flags().Lookup(name); f != nil {
			f = helpFlag(f)
			f.Usage, _, _ = strings.Cut(f.Usage, ";")
			brief.AddFlag(f)
		}
	}
	fmt.Fprintf(c.out, "\nFlags:\n%s", brief.FlagUsagesWrapped(helpWidth))
}

// helpFlag returns a copy of a flag for help texts, which omit that Boolean flags accept =true and =false.
func helpFlag(f *pflag.Flag) *pflag.Flag {
	c := *f
	if c.Value.Type() == "bool" {
		c.Value, c.NoOptDefVal = untyped{c.Value}, ""
	}
	return &c
}

// An untyped value has no placeholder in help.
type untyped struct{ pflag.Value }

func (untyped) Type() string { return "" }

// printFlags prints all flags of a command in groups.
func (c *call) printFlags(cmd *cobra.Command) {
	sets := make([]*pflag.FlagSet, len(groups))
	for i := range sets {
		sets[i] = pflag.NewFlagSet("", pflag.ContinueOnError)
		sets[i].SortFlags = false
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) { sets[groupOf(f)].AddFlag(helpFlag(f)) })
	for i, g := range groups {
		if sets[i].HasFlags() {
			fmt.Fprintf(c.out, "\n%s:\n%s", g.title, sets[i].FlagUsagesWrapped(helpWidth))
		}
	}
}

// helpCommand defines the verb help.
func (c *call) helpCommand(cmd *cobra.Command) {
	cmd.ValidArgs = verbNames()
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		about := cmd.Root()
		switch {
		case len(args) > 1:
			return errors.New("help takes one verb")
		case len(args) == 1:
			if about = c.verb(args[0]); about == nil {
				return fmt.Errorf("unknown verb: %q%s", args[0], didYouMean(args[0], "", cmd.ValidArgs))
			}
		}
		c.printHelp(about, true)
		return nil
	}
}

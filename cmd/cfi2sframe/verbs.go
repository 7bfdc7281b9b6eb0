package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"cfi2sframe/cmd/cfi2sframe/internal/report"
)

// A call is one run of cfi2sframe.
type call struct {
	ctx    context.Context
	stdout io.Writer
	out    *output // stdout, with errors that name it
	stderr io.Writer
	made   []*cobra.Command // the verbs, or nil
	status int
}

// verbNames are the names of all verbs, in the order of help.
const verbNames = "check dump lookup diff survey merge remove detach attach ld version help completion"

// isVerb reports whether a command line has a verb.
func isVerb(args []string) bool {
	return len(args) > 0 && slices.Contains(strings.Fields(verbNames), args[0])
}

// verbs returns the commands of all verbs. They are made when they are needed: it takes time.
func (c *call) verbs() []*cobra.Command {
	if c.made == nil {
		c.made = []*cobra.Command{
			c.checkCommand(), c.dumpCommand(), c.lookupCommand(), c.diffCommand(), c.surveyCommand(), c.mergeCommand(),
			c.removeCommand(newConversion()), c.detachCommand(newConversion()), c.attachCommand(newConversion()),
			c.linkCommand(), c.versionCommand(), c.helpCommand(), c.completionCommand(),
		}
	}
	return c.made
}

// newCall prepares a run.
func newCall(ctx context.Context, stdout, stderr io.Writer) *call {
	return &call{ctx: ctx, stdout: stdout, out: &output{Writer: stdout, name: "standard output"}, stderr: stderr}
}

// run runs cfi2sframe and returns its exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	c := newCall(ctx, stdout, stderr)
	command, err := c.execute(c.root(), args)
	switch {
	case err != nil:
		fmt.Fprintf(stderr, "cfi2sframe: %s\nTry '%s --help'.\n", report.PrintableMessage(err.Error()),
			command.CommandPath())
		return exitUsage
	case c.status == exitDone && c.out.err != nil:
		fmt.Fprintf(stderr, "cfi2sframe: %s\n", report.PrintableMessage(c.out.err.Error()))
		return exitError
	}
	return c.status
}

// root returns the command that converts files.
func (c *call) root() *cobra.Command {
	root := c.convertCommand(newConversion())
	root.SilenceErrors, root.SilenceUsage = true, true
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetOut(c.out)
	root.SetErr(c.stderr)
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) { c.printHelp(cmd, slices.Contains(args, "--help")) })
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return c.flagError(root, cmd, err) })
	return root
}

// execute runs a command line, and returns the command it was for. The root has the verbs only if the first argument is
// one: cobra would also find them later.
func (c *call) execute(root *cobra.Command, args []string) (*cobra.Command, error) {
	if len(args) > 0 {
		if isVerb(args) || strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
			root.SetHelpCommand(c.verb("help"))
			root.AddCommand(c.verbs()...)
		} else if err := unknownVerb(args[0]); err != nil {
			return root, err
		} else if err := helpOfFile(args); err != nil {
			return root, err
		}
	}
	root.SetArgs(args)
	return root.ExecuteC()
}

// verb returns the verb of the given name, or nil.
func (c *call) verb(name string) *cobra.Command {
	if i := slices.IndexFunc(c.verbs(), func(v *cobra.Command) bool { return v.Name() == name }); i >= 0 {
		return c.verbs()[i]
	}
	return nil
}

// helpOfFile returns an error for the help of a verb that does not exist.
func helpOfFile(args []string) error {
	if strings.HasPrefix(args[0], "-") || !slices.ContainsFunc(args, func(arg string) bool {
		return arg == "-h" || arg == "--help"
	}) {
		return nil
	}
	if _, err := os.Stat(args[0]); err == nil {
		return nil
	}
	return fmt.Errorf("unknown verb: %q", args[0])
}

// unknownVerb returns an error if an argument is similar to a verb, and no file.
func unknownVerb(arg string) error {
	like := similar(arg, strings.Fields(verbNames))
	if _, err := os.Stat(arg); like == "" || err == nil || strings.HasPrefix(arg, "-") {
		return nil
	}
	return fmt.Errorf("unknown verb: %s; did you mean %s?", arg, like)
}

//go:embed help/*.txt
var helpFiles embed.FS

// newCommand returns a command. Each line of usage is one of its forms. Most have more help in a file.
func newCommand(usage, short string) *cobra.Command {
	cmd := &cobra.Command{Use: usage, Short: short, Args: cobra.ArbitraryArgs}
	text, _ := helpFiles.ReadFile("help/" + cmd.Name() + ".txt")
	cmd.Long, cmd.Example, _ = strings.Cut(string(text), "\nExamples:\n")
	cmd.Flags().SortFlags = false
	cmd.Flags().BoolP("help", "h", false, "print all help; -h prints less")
	return cmd
}

// flagError rewords an error of pflag.
func (c *call) flagError(root, cmd *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	var unknown *pflag.NotExistError
	var without *pflag.ValueRequiredError
	var syntax *pflag.InvalidSyntaxError
	switch {
	case errors.As(err, &invalid):
		f := invalid.GetFlag()
		cause := errors.Unwrap(invalid)
		if f.Value.Type() == "bool" {
			cause = errors.New("is neither true nor false")
		}
		return fmt.Errorf("--%s %q %w", f.Name, invalid.GetValue(), cause)
	case errors.As(err, &without):
		f := without.GetFlag()
		kind, _ := pflag.UnquoteUsage(f)
		return fmt.Errorf("--%s requires a value: %s", f.Name, kind)
	case errors.As(err, &unknown):
		return c.unknownFlag(root, cmd, unknown)
	case errors.As(err, &syntax):
		return fmt.Errorf("%s is not a flag; use -- before a file of this name", syntax.GetSpecifiedFlag())
	}
	return err
}

// unknownFlag says which verbs have a flag, or which flag has a similar name.
func (c *call) unknownFlag(root, cmd *cobra.Command, err *pflag.NotExistError) error {
	name := err.GetSpecifiedName()
	find := func(cmd *cobra.Command) *pflag.Flag {
		if err.GetSpecifiedShortnames() != "" {
			return cmd.Flags().ShorthandLookup(name)
		}
		return cmd.Flags().Lookup(name)
	}
	if f := find(root); f != nil {
		return fmt.Errorf("--%s is not for %s", f.Name, cmd.Name())
	}
	var verbs []string
	full := name
	for _, v := range c.verbs() {
		if f := find(v); f != nil {
			verbs = append(verbs, v.Name())
			full = f.Name
		}
	}
	if verbs != nil {
		return fmt.Errorf("--%s is for %s", full, list(verbs, "and"))
	}
	if err.GetSpecifiedShortnames() != "" {
		return fmt.Errorf("unknown flag: -%s", name)
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	like := similar(name, names)
	switch {
	case isVerb([]string{name}):
		return fmt.Errorf("unknown flag: --%s; use 'cfi2sframe %s'", name, name)
	case like != "":
		return fmt.Errorf("unknown flag: --%s; did you mean --%s?", name, like)
	}
	return fmt.Errorf("unknown flag: --%s", name)
}

// similar returns the name that is most similar to another, or "". At most two letters, and a third of all, may differ.
func similar(to string, names []string) string {
	all := &cobra.Command{SuggestionsMinimumDistance: min(2, (len(to)+1)/3)}
	for _, name := range names {
		all.AddCommand(&cobra.Command{Use: name, Run: func(*cobra.Command, []string) {}})
	}
	if like := all.SuggestionsFor(to); len(to) > 2 && len(like) > 0 {
		return like[0]
	}
	return ""
}

// list joins words as a sentence has them.
func list(words []string, last string) string {
	n := len(words) - 1
	if n < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:n], ", ") + " " + last + " " + words[n]
}

// versionCommand returns the verb version.
func (c *call) versionCommand() *cobra.Command {
	cmd := newCommand("version", "print the version and its origin")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return fmt.Errorf("version takes no argument, but %q is one", args[0])
		}
		fmt.Fprintf(c.out, "%s\nBuilt with %s for %s/%s\n", thisVersion(), runtime.Version(), runtime.GOOS,
			runtime.GOARCH)
		return nil
	}
	return cmd
}

// completionCommand returns the verb completion.
func (c *call) completionCommand() *cobra.Command {
	cmd := newCommand("completion SHELL", "print completions for bash, zsh or fish")
	cmd.ValidArgs = []string{"bash", "fish", "zsh"}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch strings.Join(args, " ") {
		case "bash":
			return cmd.Root().GenBashCompletionV2(c.out, true)
		case "fish":
			return cmd.Root().GenFishCompletion(c.out, true)
		case "zsh":
			return cmd.Root().GenZshCompletion(c.out)
		}
		return errors.New("completion requires one of bash, fish and zsh")
	}
	return cmd
}

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

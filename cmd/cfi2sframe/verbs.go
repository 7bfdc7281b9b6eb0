package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
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
	out    *output // wraps stdout; its errors name standard output
	stderr io.Writer
	made   []*cobra.Command // the verbs, or nil
	status int
}

// A verb is a subcommand. More help is in help/NAME.txt, if that exists.
type verb struct {
	usage    string                      // each line is one form of the command line; the first word is the verb's name
	short    string                      // one line of help
	brief    bool                        // also listed in brief help
	plain    bool                        // listed without description
	statuses []string                    // the meaning of its exit statuses, starting with 0; usually nil
	define   func(*call, *cobra.Command) // defines the flags and RunE
}

// allVerbs returns all verbs, in the order in which the help lists them. It is a function because the verb help calls
// it.
func allVerbs() []verb {
	return []verb{
		{usage: "check FILE...", short: "compare .sframe with the CFI", brief: true, define: (*call).checkCommand,
			statuses: []string{"all sections are correct", "a mismatch", "usage or other error"}},
		{usage: "dump FILE...", short: "print .sframe as objdump --sframe does", brief: true,
			define: (*call).dumpCommand},
		{usage: "lookup FILE PC...", short: "print the rows for addresses", brief: true, define: (*call).lookupCommand,
			statuses: []string{"every pc has a row", "a pc has no row", "usage or other error"}},
		{usage: "remove IN -o OUT\nremove --in-place FILE...", short: "remove .sframe and its segment", brief: true,
			define: (*call).removeCommand},
		{usage: "detach FILE -o OUT\ndetach FILE... -o DIR", short: "write .sframe to a separate file", brief: true,
			define: (*call).detachCommand},
		{usage: "attach IN --sframe PATH -o OUT\nattach --in-place FILE... --sframe PATH",
			short: "add .sframe from a separate file", define: (*call).attachCommand},
		{usage: "ld PROGRAM ARG...\nld -- ARG...\nld --print-dir", short: "link, then convert",
			define: (*call).linkCommand, statuses: []string{"linked, and converted if possible",
				"cfi2sframe or the linker failed", "wrong usage", "coverage below the required minimum"}},
		{usage: "version", short: "print version and build information", plain: true, define: (*call).versionCommand},
		{usage: "help [VERB]", short: "print help for cfi2sframe or a verb", plain: true, define: (*call).helpCommand},
		{usage: "completion SHELL", short: "print completions for bash, zsh or fish", plain: true,
			define: (*call).completionCommand},
	}
}

// name returns the name of the verb.
func (v *verb) name() string { return strings.Fields(v.usage)[0] }

// verbNames returns the names of all verbs.
func verbNames() (names []string) {
	for _, v := range allVerbs() {
		names = append(names, v.name())
	}
	return names
}

// isVerb reports whether a command line starts with a verb.
func isVerb(args []string) bool {
	return len(args) > 0 && slices.Contains(verbNames(), args[0])
}

// verbs returns the commands of all verbs. Building them takes time, so they are built on first use.
func (c *call) verbs() []*cobra.Command {
	if c.made == nil {
		for _, v := range allVerbs() {
			cmd := newCommand(v.usage, v.short)
			v.define(c, cmd)
			c.made = append(c.made, cmd)
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
	case err != nil && c.out.err == nil:
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
	root.SetFlagErrorFunc(flagError)
	return root
}

// execute runs a command line, and returns its command. The verbs are added to the root only if the first argument is a
// verb: cobra would also match later arguments.
func (c *call) execute(root *cobra.Command, args []string) (*cobra.Command, error) {
	if len(args) > 0 && (isVerb(args) || strings.HasPrefix(args[0], cobra.ShellCompRequestCmd)) {
		root.SetHelpCommand(c.verb("help"))
		root.AddCommand(c.verbs()...)
	} else if err := mistypedVerb(args); err != nil {
		return root, err
	}
	root.SetArgs(args)
	return root.ExecuteC()
}

// mistypedVerb returns an error if a command line starts with a word that is similar to a verb and names no file.
func mistypedVerb(args []string) error {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") || strings.Contains(args[0], "/") {
		return nil
	}
	meant := didYouMean(args[0], "", verbNames())
	if meant == "" {
		return nil
	}
	if _, err := os.Lstat(args[0]); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("%s is neither a verb nor a file%s", args[0], meant)
}

// didYouMean returns a question for an error message if a typed word is the start of some of the names, or differs in
// up to two letters, and "" otherwise. The prefix is that of the word and of the names.
func didYouMean(typed, prefix string, names []string) string {
	if len(typed) < 2 { // similar to many names
		return ""
	}
	all := &cobra.Command{}
	for _, name := range names {
		all.AddCommand(&cobra.Command{Use: prefix + name, Run: func(*cobra.Command, []string) {}})
	}
	for all.SuggestionsMinimumDistance = range min(3, len(typed)/2+1) {
		if similar := all.SuggestionsFor(prefix + typed); len(similar) > 0 {
			return fmt.Sprintf("; did you mean %s?", joinWords(similar, "or"))
		}
	}
	return ""
}

// verb returns the verb of the given name, or nil.
func (c *call) verb(name string) *cobra.Command {
	if i := slices.IndexFunc(c.verbs(), func(v *cobra.Command) bool { return v.Name() == name }); i >= 0 {
		return c.verbs()[i]
	}
	return nil
}

//go:embed help/*.txt
var helpFiles embed.FS

// newCommand returns a command. Each line of usage is one form of the command line. The rest of the help comes from
// help/NAME.txt, if it exists.
func newCommand(usage, short string) *cobra.Command {
	cmd := &cobra.Command{Use: usage, Short: short, Args: cobra.ArbitraryArgs}
	text, _ := helpFiles.ReadFile("help/" + cmd.Name() + ".txt")
	cmd.Long, cmd.Example, _ = strings.Cut(string(text), "\nExamples:\n")
	cmd.Flags().SortFlags = false
	cmd.Flags().BoolP("help", "h", false, "print brief (-h) or complete (--help) help")
	return cmd
}

// flagError rewords a pflag error.
func flagError(cmd *cobra.Command, err error) error {
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
		dashes, typed := "--", unknown.GetSpecifiedName()
		if letters := unknown.GetSpecifiedShortnames(); letters != "" {
			dashes, typed = "-", letters
		}
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		return fmt.Errorf("unknown flag: %s%s%s", dashes, unknown.GetSpecifiedName(), didYouMean(typed, "--", names))
	case errors.As(err, &syntax):
		return fmt.Errorf("%s is not a flag; use -- before a file of this name", syntax.GetSpecifiedFlag())
	}
	return err
}

// joinWords joins words as in a sentence: a, b or c.
func joinWords(words []string, last string) string {
	n := len(words) - 1
	if n < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:n], ", ") + " " + last + " " + words[n]
}

// versionCommand defines the verb version.
func (c *call) versionCommand(cmd *cobra.Command) { cmd.RunE = c.printVersion }

// printVersion prints the version.
func (c *call) printVersion(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("version takes no arguments: %q", args[0])
	}
	fmt.Fprintf(c.out, "%s\nBuilt with %s for %s/%s\n", thisVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return nil
}

// completionCommand defines the verb completion.
func (c *call) completionCommand(cmd *cobra.Command) {
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
}

package main

import (
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"cfi2sframe/cfi"
)

// A value is a flag value that is validated when it is set.
type value struct {
	kind string // placeholder in help
	text string
	set  func(string) error
}

func (v *value) String() string { return v.text }
func (v *value) Type() string   { return v.kind }

func (v *value) Set(s string) error {
	err := v.set(s)
	if err == nil {
		v.text = s
	}
	return err
}

// wordFlag defines a flag that accepts one of several words.
func wordFlag(cmd *cobra.Command, name, kind, preset string, words []string, usage string, set func(string)) {
	v := &value{kind: kind, text: preset}
	v.set = func(s string) error {
		if !slices.Contains(words, s) {
			return fmt.Errorf("is invalid; use %s", joinWords(words, "or"))
		}
		set(s)
		return nil
	}
	set(preset)
	cmd.Flags().Var(v, name, usage)
	offer(cmd, name, cobra.ShellCompDirectiveNoFileComp, words)
}

// offer adds words to the shell completions of a flag.
func offer(cmd *cobra.Command, flag string, others cobra.ShellCompDirective, words []string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, others)); err != nil {
		panic(err) // the flag is not defined
	}
}

// jobsFlag defines --jobs, which is capped at the number of processors: more jobs would only cost memory.
func jobsFlag(cmd *cobra.Command, n *int, usage string) {
	v := &value{kind: "N", text: "0"}
	v.set = func(s string) error {
		jobs, err := strconv.Atoi(s)
		if err != nil || jobs < 0 {
			return errors.New("is not a non-negative integer")
		}
		*n = min(jobs, runtime.GOMAXPROCS(0))
		return nil
	}
	cmd.Flags().VarP(v, "jobs", "j", usage)
}

// defineMinimums defines --min-coverage and --min-unwindable. Their help texts start with the given consequence.
func (l *minimums) defineMinimums(cmd *cobra.Command, consequence string) {
	percentFlag(cmd, "min-coverage", &l.coverage,
		consequence+" if less than PERCENT of the code that CFI describes is covered")
	percentFlag(cmd, "min-unwindable", &l.unwindable,
		consequence+" if less than PERCENT of the code is unwindable, including code without CFI")
}

func percentFlag(cmd *cobra.Command, name string, percent *float64, usage string) {
	v := &value{kind: "PERCENT", text: "0"}
	v.set = func(s string) error {
		p, err := strconv.ParseFloat(strings.TrimSuffix(s, "%"), 64)
		switch {
		case err != nil || !(p >= 0 && p <= 100):
			return errors.New("is not a number from 0 to 100")
		case p > 0 && p <= 1: // a minimum of 1 % is useless, and 1 may mean 100 %
			return fmt.Errorf("is %v %%; did you mean %s?", p, strconv.FormatFloat(100*p, 'g', 6, 64))
		}
		*percent = p
		return nil
	}
	cmd.Flags().Var(v, name, usage)
}

// cfiFlags defines the flags that select the source of rows.
func cfiFlags(cmd *cobra.Command, source *cfi.Source, infer *bool, debugFile *string) {
	wordFlag(cmd, "source", "SECTION", "auto", []string{"auto", "eh_frame", "debug_frame", "gopclntab"},
		"CFI source: auto, eh_frame, debug_frame or gopclntab",
		func(s string) { *source, _ = cfi.ParseSource(s) })
	cmd.Flags().StringVar(debugFile, "debug-file", "",
		"also read .debug_frame and names from `FILE`; auto: find it by build-id or .gnu_debuglink")
	offer(cmd, "debug-file", cobra.ShellCompDirectiveDefault, []string{"auto"})
	inferFlag(cmd, infer)
}

func inferFlag(cmd *cobra.Command, infer *bool) {
	cmd.Flags().BoolVar(infer, "infer", false, "also infer rows from instructions, for code without CFI "+
		"(amd64, aarch64)")
}

// sframeFlag defines --sframe.
func sframeFlag(cmd *cobra.Command, sframe *string) {
	cmd.Flags().StringVar(sframe, "sframe", "",
		"take .sframe from `PATH`, the output of detach: a file, or a directory that is searched by build-id")
}

// symbolPair matches the value of --into.
const symbolPair = "^[^:]+:[^:]+$"

// intoUsage is the help text of --into for verbs that read .sframe.
const intoUsage = "find .sframe between the symbols START:END; default: __start_sframe:__end_sframe if the file has " +
	"these symbols and no section"

// intoFlag defines --into.
func intoFlag(cmd *cobra.Command, symbols *string, usage string) {
	v := &value{kind: "START:END"}
	v.set = func(s string) error {
		if ok, _ := regexp.MatchString(symbolPair, s); !ok {
			return errors.New("is not START:END, the names of two symbols")
		}
		*symbols = s
		return nil
	}
	cmd.Flags().Var(v, "into", usage)
}

// reporting holds the flags for reports.
type reporting struct {
	form    string
	file    string
	quiet   bool
	verbose bool
}

// fileForms lists the report formats of verbs that report on each file. Some verbs also support html.
var fileForms = []string{"none", "text", "json"}

// define defines the flags of all verbs that report.
func (r *reporting) define(cmd *cobra.Command, usage string, forms []string) {
	wordFlag(cmd, "report", "FORM", "text", forms, usage, func(s string) { r.form = s })
	cmd.Flags().BoolVarP(&r.quiet, "quiet", "q", false,
		"print only errors; --report-file and reports other than text are still written")
}

// defineFile defines --report-file.
func (r *reporting) defineFile(cmd *cobra.Command) {
	cmd.Flags().StringVar(&r.file, "report-file", "", "write the report to `FILE`")
}

// defineVerbose defines --verbose.
func (r *reporting) defineVerbose(cmd *cobra.Command, usage string) {
	cmd.Flags().BoolVarP(&r.verbose, "verbose", "v", false, usage)
}

// check rejects flags that cannot be combined.
func (r *reporting) check() error {
	err := refuse(
		rule{r.quiet && r.verbose, "-q and -v cannot be combined"},
		rule{r.file != "" && r.form == "none", "--report-file and --report none cannot be combined"},
	)
	if r.quiet && r.form == "text" && r.file == "" {
		r.form = "none"
	}
	return err
}

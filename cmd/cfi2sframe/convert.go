package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"cfi2sframe/cmd/cfi2sframe/internal/report"
	"cfi2sframe/convert"
	"cfi2sframe/internal/files"
	"cfi2sframe/internal/heap"
	"cfi2sframe/internal/outfile"
	"cfi2sframe/sframe"
)

// A conversion holds the settings of verbs that write ELF files.
type conversion struct {
	convert.Options
	reporting
	trees
	minimums
	verb              string            // remove, detach, attach, or "" for convert
	work              func() files.Work // returns the work that the flags describe
	to                files.Options     // Work is set for each file
	debugFile, sframe string
	limits            *report.Limits // shared by all files of an HTML page; otherwise nil
	files             []string
	output            string
	inPlace           bool
	like              string // the value of --for
}

// newConversion returns the settings for a command line without flags.
func newConversion() *conversion {
	s := &conversion{}
	s.Version = convert.DefaultVersion
	s.to.Run.Starting = func(w convert.Work) { // size the heap for the input
		if w.Archive {
			heap.PrepareArchive(w.Size)
		} else {
			heap.Prepare(w.CFI, w.Size)
		}
	}
	return s
}

// convertCommand returns the command that runs if no verb is given.
func (c *call) convertCommand(s *conversion) *cobra.Command {
	cmd := newCommand("cfi2sframe IN -o OUT\ncfi2sframe --in-place FILE...",
		"add .sframe sections to ELF files, made from their call frame information")
	s.work = func() files.Work { return files.Add(s.Options, s.debugFile) }
	s.outputFlags(cmd, "replace each FILE with its result")
	s.defineTrees(cmd)
	s.formatFlags(cmd)
	intoFlag(cmd, &s.Reserved,
		"write .sframe between the symbols START:END, where a kernel linker script reserves space for it")
	s.replaceFlags(cmd)
	cfiFlags(cmd, &s.Source, &s.Infer, &s.debugFile)
	s.define(cmd, "report format: none, text (on stderr), json or html (on stdout)",
		append(slices.Clip(fileForms), "html"))
	s.defineFile(cmd)
	s.defineVerbose(cmd, "list all gaps, not only the first ten")
	version := cmd.Flags().Bool("version", false, "print version and build information")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *version {
			return c.printVersion(cmd, args)
		}
		return c.convert(s, cmd, args)
	}
	return cmd
}

// removeCommand defines the verb remove.
func (c *call) removeCommand(cmd *cobra.Command) {
	s := newConversion()
	s.verb, s.work = "remove", func() files.Work { return files.Remove(s.Reserved) }
	s.outputFlags(cmd, "replace each FILE with its result")
	s.defineTrees(cmd)
	intoFlag(cmd, &s.Reserved, intoUsage)
	s.define(cmd, "report format: none, text (on stderr) or json (on stdout)", fileForms)
	s.defineFile(cmd)
	s.defineVerbose(cmd, "also report unchanged members of archives")
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return c.convert(s, cmd, args) }
}

// convert converts the files of a command line.
func (c *call) convert(s *conversion, cmd *cobra.Command, args []string) error {
	if err := s.validate(cmd, args); err != nil {
		return err
	}
	signal.Ignore(syscall.SIGPIPE) // the reader of the report may go away before the last file is converted
	var unread []*report.Failed
	if s.setGiven(args); s.recursive {
		s.files, unread = c.walk(args, s.destination(s.stream(c.stdout, c.stderr)), s.quiet)
	}
	if len(s.files) == 1 {
		s.Progress = showProgress(c.stderr, s.files[0])
	}
	if err := s.distinct(c.stdout, c.stderr); err != nil {
		return c.usageError(err)
	}
	w := &work{settings: s, console: console{c.stdout, c.stderr}, unread: unread}
	c.status = w.run(c.ctx)
	return nil
}

// formatFlags defines the flags for the format and contents of the section.
func (s *conversion) formatFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	wordFlag(cmd, "format", "VERSION", strconv.Itoa(int(convert.DefaultVersion)), []string{"1", "2", "3"},
		"SFrame version to write: 1, 2 or 3", func(word string) { s.Version = sframe.Version(word[0] - '0') })
	f.StringVar(&s.like, "for", "",
		"write the format for `READER`, such as perf or glibc; readers: "+presetNames)
	offer(cmd, "for", cobra.ShellCompDirectiveNoFileComp, presetWords())
	f.BoolVar(&s.PCRel, "pcrel", false, "start addresses relative to their own fields (errata 1, binutils 2.45)")
	f.BoolVar(&s.Outermost, "outermost", false, "rows without data words for outermost frames (errata 2)")
	wordFlag(cmd, "share", "WHEN", "auto", []string{"auto", "on", "off"},
		"let one FDE describe several functions or a part of one, and share identical row lists: on, off (one FDE and "+
			"one list for each function) or auto, which shares lists in little-endian output only; always off in "+
			"objects",
		func(word string) { s.Share, _ = convert.ParseShare(word) })
	wordFlag(cmd, "padding", "WHEN", "on", []string{"on", "off"}, "extend the last row of a function over the "+
		"padding after it, for readers that look up return addresses after calls that do not return: on or off; never "+
		"in objects",
		func(word string) { s.NoPadding = word == "off" })
	f.BoolVar(&s.NoVerify, "no-verify", false, "do not compare the result with the CFI; for benchmarks only")
	s.defineMinimums(cmd, "write nothing")
	jobsFlag(cmd, &s.Workers, "threads, up to the number of processors: several files at a time, and several threads "+
		"for a large file; 0: one for each processor, but fewer for a small file")
}

// replaceFlags defines the flags for files that already have an .sframe.
func (s *conversion) replaceFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&s.Force, "force", false, "replace .sframe, and move appended data")
	f.BoolVar(&s.Update, "update", false, "replace .sframe if it is not up to date; otherwise leave the file unchanged")
}

// outputFlags defines the flags for outputs.
func (s *conversion) outputFlags(cmd *cobra.Command, inPlace string) {
	f := cmd.Flags()
	f.StringVarP(&s.output, "output", "o", "", "write the result to `FILE`; - is standard output")
	f.BoolVar(&s.inPlace, "in-place", false, inPlace)
	f.BoolVar(&s.to.DryRun, "dry-run", false, "translate, check and report, but write nothing")
	f.BoolVarP(&s.to.KeepDates, "preserve-dates", "p", false,
		"preserve the access and modification times of the input")
	noSyncFlag(cmd, &s.to.NoSync)
}

func noSyncFlag(cmd *cobra.Command, noSync *bool) {
	cmd.Flags().BoolVar(noSync, "no-sync", false,
		"skip fsync, for build trees; a power failure may lose a file and its replacement")
}

// trees holds the flags for directories and unsupported files.
type trees struct {
	recursive  bool
	skip       bool
	skipStatus bool
	given      map[string]bool // the paths that the command line names
}

// defineTrees defines the flags of trees.
func (t *trees) defineTrees(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVarP(&t.recursive, "recursive", "r", false,
		"recurse into directories, skipping unsupported files; do not cross file systems or follow symbolic links")
	f.BoolVar(&t.skip, "skip-unsupported", false,
		"skip and count unsupported files even without -r: scripts, 32-bit files, other machines, no CFI")
	f.BoolVar(&t.skipStatus, "skip-status", false, "exit with status 4 if an unsupported file was skipped")
}

// checkTrees returns an error if these flags cannot be combined.
func (t *trees) checkTrees() error {
	return refuse(rule{t.skipStatus && !t.recursive && !t.skip, "--skip-status requires -r or --skip-unsupported"})
}

// isSkipped reports whether the file at path is skipped if it is unsupported. With -r, an unsupported file is an error
// only if the command line names it.
func (t *trees) isSkipped(path string) bool {
	return t.skip || t.recursive && !t.given[path]
}

// setGiven records the paths that the command line names.
func (t *trees) setGiven(paths []string) {
	t.given = make(map[string]bool)
	for _, path := range paths {
		t.given[path] = true
	}
}

// A rule refuses a combination of flags.
type rule struct {
	broken  bool
	message string
}

// refuse returns the message of the first broken rule as an error.
func refuse(rules ...rule) error {
	for _, r := range rules {
		if r.broken {
			return errors.New(r.message)
		}
	}
	return nil
}

// validate returns an error if flags cannot be combined, and applies --for.
func (s *conversion) validate(cmd *cobra.Command, args []string) error {
	s.files = args
	if isVerb(args) {
		if _, err := os.Stat(args[0]); err != nil {
			return fmt.Errorf("the verb %s must be the first argument", args[0])
		}
	}
	if err := cmp.Or(s.missingVerb(), s.applyPreset(cmd.Flags())); err != nil {
		return err
	}
	layout, _ := s.Version.Layout()
	one, noOutput := len(args) < 2, "use -o OUT, --in-place or --dry-run"
	if s.verb == "detach" {
		noOutput = "use -o FILE or -o DIR"
	}
	places := count([]bool{s.output != "", s.inPlace, s.to.DryRun}, true)
	pipes := count(args, files.Stdin)
	err := refuse(
		rule{len(args) == 0, "no input file"},
		rule{s.PCRel && (layout.PCRel || layout.Flags&sframe.FDEFuncStartPCRel == 0) ||
			s.Outermost && (layout.Outermost || !layout.Errata2),
			"--pcrel and --outermost require --format 2; format 3 always has both"},
		rule{s.Force && s.Update, "--force and --update cannot be combined"},
		rule{places > 1, "-o, --in-place and --dry-run cannot be combined"},
		rule{s.recursive && s.output != "" && !s.to.ByBuildID, "-r and -o cannot be combined"},
		rule{!one && !s.inPlace && !s.to.DryRun && !s.to.ByBuildID,
			fmt.Sprintf("%d input files; use -o for the output, or --in-place for more than one", len(args))},
		rule{places == 0, "no output file; " + noOutput},
		rule{outfile.IsStdout(s.output) && s.onStdout(),
			fmt.Sprintf("the result and --report %s cannot both go to standard output", s.form)},
		rule{pipes > 0 && s.inPlace, "--in-place cannot replace standard input (-)"},
		rule{pipes > 1, "standard input (-) may be given only once"},
	)
	if err != nil {
		return err
	}
	if s.form == "html" { // the page is written after the last file
		s.limits = report.NewLimits()
	}
	if err := cmp.Or(s.reporting.check(), s.checkTrees()); err != nil {
		return err
	}
	s.Force = s.Force || s.to.DryRun && !s.Update && s.verb == "" // a dry run accepts converted files
	return nil
}

// missingVerb returns an error if the command line starts with the verb of another tool, such as "convert IN -o OUT".
func (s *conversion) missingVerb() error {
	if len(s.files) < 2 || s.verb != "" || s.inPlace || s.to.DryRun || strings.ContainsAny(s.files[0], "./") {
		return nil
	}
	if _, err := os.Lstat(s.files[0]); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("%s is neither a verb nor a file; to convert: cfi2sframe FILE -o OUT", s.files[0])
}

// count returns the number of times a value occurs in a list.
func count[T comparable](list []T, value T) int {
	n := 0
	for _, v := range list {
		if v == value {
			n++
		}
	}
	return n
}

// onStdout reports whether the report goes to standard output.
func (r *reporting) onStdout() bool {
	switch {
	case r.form == "none":
		return false
	case r.file != "":
		return outfile.IsStdout(r.file)
	}
	return r.form != "text"
}

// stream returns the stream that the report goes to without --report-file, and the name of the stream.
func (r *reporting) stream(stdout, stderr io.Writer) (io.Writer, string) {
	if r.onStdout() {
		return stdout, "standard output"
	}
	return stderr, "standard error"
}

// applyPreset applies --for.
func (s *conversion) applyPreset(flags *pflag.FlagSet) error {
	if f := flags.Lookup("for"); f == nil || !f.Changed {
		return nil
	}
	p, err := findPreset(s.like)
	if err != nil {
		return err
	}
	s.Linux, s.NoPCMask = p.linux, p.noPCMask
	return p.apply(flags)
}

package main

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"cfi2sframe/convert"
	"cfi2sframe/internal/debugfile"
	"cfi2sframe/internal/files"
	"cfi2sframe/internal/heap"
	"cfi2sframe/internal/outfile"
	"cfi2sframe/report"
	"cfi2sframe/sframe"
)

// A conversion has the settings of the verbs that write files: convert, remove, pkg and ld.
type conversion struct {
	files.Options
	reporting
	files      []string
	output     string
	inPlace    bool
	recursive  bool
	skipStatus bool
	like       string // the value of --for
	hasTree    bool   // the verb has --recursive
}

// newConversion returns settings without any flags.
func newConversion() *conversion {
	s := &conversion{}
	s.Starting = func(w convert.Work) { // makes the heap ready for a file
		if w.Archive {
			heap.PrepareArchive(w.Size)
		} else {
			heap.Prepare(w.CFI, w.Size)
		}
	}
	return s
}

const convertLong = `Adds an .sframe section to ELF programs, shared libraries, relocatable objects
and archives of them, made from their DWARF call frame information (.eh_frame,
.debug_frame). Every result is compared with that information before it
replaces or becomes a file. IN may be - for standard input.

Only the first argument can be a verb. A file with the name of a verb is
written as ./check.`

const convertExample = `  cfi2sframe prog -o prog.sframe            convert a program
  cfi2sframe --in-place lib/*.so            replace libraries
  cfi2sframe -r --update --skip-unsupported --in-place DIR
                                            convert all files below DIR; leave
                                            up-to-date files unchanged
  cfi2sframe --for linux prog -o out        write the format of this reader
  cfi2sframe --format 3 foo.o -o foo.o      convert an object, for GNU ld
  cfi2sframe --debug-file auto prog -o out  use files below /usr/lib/debug
  cfi2sframe --debug-link-update auto --in-place prog
                                            also update its split debug file
  cfi2sframe -v --dry-run prog              list every gap
  cfi2sframe --report html --report-file r.html --dry-run bin/*
                                            the same as a page
  cfi2sframe --min-coverage 99.5 prog -o out
                                            fail if less is covered
  cfi2sframe check prog                     compare an .sframe with the CFI
  cfi2sframe diff old.so new.so             differences between two .sframe
`

// convertCommand returns the command without a verb.
func (c *call) convertCommand(s *conversion) *cobra.Command {
	cmd := newCommand("cfi2sframe IN -o OUT\ncfi2sframe --in-place FILE...",
		"add .sframe sections to ELF files, made from their call frame information")
	cmd.Long, cmd.Example = convertLong, convertExample
	s.outputFlags(cmd, "replace each FILE by its result")
	s.hasTree = true
	treeFlags(cmd, &s.Options.Options, &s.recursive, &s.skipStatus)
	s.formatFlags(cmd)
	cfiFlags(cmd, &s.Options.Options)
	s.debugLinkFlag(cmd)
	s.define(cmd, "report on each file: none, text (on stderr), json or html (on stdout)", append(slices.Clip(fileForms), "html"))
	s.defineFile(cmd)
	s.defineVerbose(cmd, "list all gaps with their causes in the text report, not only the first ten")
	version := cmd.Flags().Bool("version", false, "print the version and its origin")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *version {
			return c.verb("version").RunE(cmd, args)
		}
		return c.convert(s, cmd, args)
	}
	return cmd
}

// removeCommand returns the verb remove.
func (c *call) removeCommand(s *conversion) *cobra.Command {
	s.Remove = true
	cmd := newCommand("remove IN -o OUT\nremove --in-place FILE...", "remove .sframe and its segment")
	s.outputFlags(cmd, "replace each FILE by its result")
	s.hasTree = true
	treeFlags(cmd, &s.Options.Options, &s.recursive, &s.skipStatus)
	s.debugLinkFlag(cmd)
	s.define(cmd, "report on each file: none, text (on stderr) or json (on stdout)", fileForms)
	s.defineFile(cmd)
	s.defineVerbose(cmd, "also report unchanged members of archives")
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return c.convert(s, cmd, args) }
	return cmd
}

// convert converts the files of a command line.
func (c *call) convert(s *conversion, cmd *cobra.Command, args []string) error {
	if err := s.complete(cmd, args); err != nil {
		return err
	}
	unread := 0
	if s.recursive {
		s.files, unread = c.walk(s.files, s.destination(s.stream(c.stdout, c.stderr)), s.quiet)
	}
	if err := s.distinct(c.stdout, c.stderr); err != nil {
		return err
	}
	w := &work{conversion: s, console: c.console(s.quiet), errors: unread}
	c.status = w.run(c.ctx)
	return nil
}

// formatFlags defines what the section is like.
func (s *conversion) formatFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	wordFlag(cmd, "format", "VERSION", "2", []string{"1", "2", "3"}, "SFrame version to write: 1, 2 or 3",
		func(word string) { s.Version = sframe.Version(word[0] - '0') })
	f.StringVar(&s.like, "for", "",
		"write what `READER` reads: "+presetNames()+"; or the format of the .sframe in a file of this name")
	complete(cmd, "for", cobra.ShellCompDirectiveDefault, presetWords())
	f.BoolVar(&s.PCRel, "pcrel", false, "start addresses relative to their own field (errata 1, binutils 2.45)")
	f.BoolVar(&s.Outermost, "outermost", false, "rows without data words for code without a caller (errata 2)")
	wordFlag(cmd, "share", "WHEN", "auto", []string{"auto", "on", "off"}, "let one FDE describe several functions or a "+
		"part of one, and share identical row lists: on, off (one FDE and one list for each function) or auto, which shares "+
		"lists in little-endian output only; always off in objects",
		func(word string) { s.Share, _ = convert.ParseShare(word) })
	wordFlag(cmd, "padding", "WHEN", "on", []string{"on", "off"}, "describe the padding after functions by their last "+
		"rows, for readers that look up return addresses after calls that do not return: on or off; never in objects",
		func(word string) { s.NoPadding = word == "off" })
	f.BoolVar(&s.Force, "force", false, "replace .sframe")
	f.BoolVar(&s.Update, "update", false, "replace .sframe if it is not up to date; otherwise leave the file unchanged")
	f.BoolVar(&s.NoVerify, "no-verify", false, "do not compare the result with the CFI; for measuring only")
	coverageFlag(cmd, &s.MinCoverage, "write nothing if less than PERCENT of the code that CFI describes is covered")
	jobsFlag(cmd, &s.Workers, "threads for each file, up to the number of processors; 0: as many as processors, but "+
		"fewer for small files")
}

// outputFlags defines where results go.
func (s *conversion) outputFlags(cmd *cobra.Command, inPlace string) {
	f := cmd.Flags()
	f.StringVarP(&s.output, "output", "o", "", "write the result to `FILE`; - is standard output")
	f.BoolVar(&s.inPlace, "in-place", false, inPlace)
	f.BoolVar(&s.DryRun, "dry-run", false, "translate, check and report, but write nothing")
	f.BoolVarP(&s.KeepDates, "preserve-dates", "p", false,
		"give the result the access and modification times of its input")
	noSyncFlag(cmd, &s.NoSync)
}

func noSyncFlag(cmd *cobra.Command, noSync *bool) {
	cmd.Flags().BoolVar(noSync, "no-sync", false,
		"skip fsync, for build trees; a power failure may lose a file and its replacement")
}

// debugLinkFlag defines --debug-link-update.
func (s *conversion) debugLinkFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.DebugLinkUpdate, "debug-link-update", "", "also give `FILE`, the debug file, the headers of "+
		"the result, so that both match; auto: find it by build-id or .gnu_debuglink")
	complete(cmd, "debug-link-update", cobra.ShellCompDirectiveDefault, []string{"auto"})
}

// treeFlags defines what becomes of directories and unsupported files.
func treeFlags(cmd *cobra.Command, o *convert.Options, recursive, skipStatus *bool) {
	f := cmd.Flags()
	f.BoolVarP(recursive, "recursive", "r", false,
		"take all files below directories; stay on the file system and follow no links")
	f.BoolVar(&o.SkipUnsupported, "skip-unsupported", false,
		"skip and count unsupported files: scripts, 32-bit files, other machines, files without CFI")
	f.BoolVar(skipStatus, "skip-status", false, "exit with 4 if --skip-unsupported has skipped a file")
}

// checkTree refuses flags of treeFlags that cannot be combined.
func checkTree(o *convert.Options, skipStatus bool) error {
	if skipStatus && !o.SkipUnsupported {
		return errors.New("--skip-status requires --skip-unsupported")
	}
	return nil
}

// complete checks flags that depend on each other.
func (s *conversion) complete(cmd *cobra.Command, args []string) error {
	s.files = args
	if err := s.applyPreset(cmd.Flags()); err != nil {
		return err
	}
	if len(args) == 0 {
		return errors.New("no input file")
	}
	layout, known := s.Version.Layout()
	if known && (s.PCRel && layout.Flags&sframe.FDEFuncStartPCRel == 0 || s.Outermost && !layout.Errata2) {
		return errors.New("--pcrel and --outermost require format 2; format 3 always has both")
	}
	if s.Force && s.Update {
		return errors.New("--force and --update cannot be combined")
	}
	if s.form == "html" { // which is written after the last file
		s.Room = report.NewRoom()
	}
	if err := s.reporting.check(); err != nil {
		return err
	}
	s.Brief = s.form == "none" && s.MinCoverage == 0
	if err := checkTree(&s.Options.Options, s.skipStatus); err != nil {
		return err
	}
	if err := s.checkOutput(); err != nil {
		return err
	}
	if err := s.checkDebugLink(); err != nil {
		return err
	}
	return s.checkStdin()
}

// checkOutput refuses outputs that contradict each other or the inputs.
func (s *conversion) checkOutput() error {
	places := 0
	for _, on := range []bool{s.output != "", s.inPlace, s.DryRun} {
		if on {
			places++
		}
	}
	switch {
	case places > 1:
		return errors.New("-o, --in-place and --dry-run cannot be combined")
	case s.recursive && s.output != "":
		return errors.New("-r and -o cannot be combined")
	case len(s.files) > 1 && !s.inPlace && !s.DryRun:
		return fmt.Errorf("%d input files; use --in-place for more than one", len(s.files))
	case places == 0:
		return errors.New("no output file; use -o OUT or --in-place")
	case outfile.IsStdout(s.output) && s.onStdout():
		return fmt.Errorf("the result and --report %s cannot be combined on standard output", s.form)
	}
	return nil
}

// checkDebugLink refuses --debug-link-update if there is not one debug file for each result.
func (s *conversion) checkDebugLink() error {
	switch {
	case s.DebugLinkUpdate == "":
		return nil
	case s.DryRun:
		return errors.New("--debug-link-update requires -o or --in-place")
	case outfile.IsStdout(s.output):
		return errors.New("--debug-link-update cannot be combined with standard output: both files are replaced together")
	case len(s.files) > 1 && s.DebugLinkUpdate != debugfile.Auto:
		return fmt.Errorf("%d input files with one debug file; use --debug-link-update auto", len(s.files))
	}
	return nil
}

// checkStdin refuses standard input where a file is replaced, and more than once.
func (s *conversion) checkStdin() error {
	switch n := count(s.files, files.Stdin); {
	case n > 0 && s.inPlace:
		return errors.New("--in-place cannot replace standard input (-)")
	case n > 1:
		return errors.New("standard input (-) may be given only once")
	}
	return nil
}

// count returns how often a word is in a list.
func count(words []string, word string) int {
	n := 0
	for _, w := range words {
		if w == word {
			n++
		}
	}
	return n
}

// onStdout reports whether standard output gets the report on each file.
func (r *reporting) onStdout() bool {
	switch {
	case r.form == "none":
		return false
	case r.file != "":
		return outfile.IsStdout(r.file)
	}
	return r.form != "text"
}

// stream returns where the report goes without --report-file, and its name.
func (r *reporting) stream(stdout, stderr io.Writer) (io.Writer, string) {
	if r.onStdout() {
		return stdout, "standard output"
	}
	return stderr, "standard error"
}

// applyPreset sets the flags that --for stands for.
func (s *conversion) applyPreset(flags *pflag.FlagSet) error {
	if f := flags.Lookup("for"); f == nil || !f.Changed {
		return nil
	}
	p, err := findPreset(s.like)
	if err != nil {
		return err
	}
	return p.apply(flags)
}

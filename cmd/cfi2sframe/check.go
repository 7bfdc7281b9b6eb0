package main

import (
	"bufio"
	"cmp"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"cfi2sframe/cfi"
	"cfi2sframe/cmd/cfi2sframe/internal/report"
	"cfi2sframe/convert"
	"cfi2sframe/elfwrite"
	"cfi2sframe/internal/files"
	"cfi2sframe/internal/panics"
	"cfi2sframe/sframe"
)

// checkSettings holds the flags of check.
type checkSettings struct {
	files.Sources
	reporting
	trees
	minimums
	require bool
	like    string // the value of --for
	reader  *convert.Reader
}

// checkCommand defines the verb check.
func (c *call) checkCommand(cmd *cobra.Command) {
	s := &checkSettings{}
	sframeFlag(cmd, &s.SFrame)
	intoFlag(cmd, &s.Reserved, intoUsage)
	cfiFlags(cmd, &s.CFI, &s.Infer, &s.DebugFile)
	s.defineTrees(cmd)
	s.define(cmd, "report format: none, text or json", fileForms)
	s.defineVerbose(cmd, "also list skipped files")
	s.defineMinimums(cmd, "exit with 3")
	cmd.Flags().StringVar(&s.like, "for", "",
		"also report why `READER` would not read the section; readers: "+presetNames)
	offer(cmd, "for", cobra.ShellCompDirectiveNoFileComp, presetWords())
	cmd.Flags().BoolVar(&s.require, "require", false,
		"fail if a program or library has no section, but could have one; skip other files")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := cmp.Or(checkInputs(args), s.reporting.check(), s.checkTrees(), s.applyReader()); err != nil {
			return err
		}
		if err := c.distinctInputs(&s.reporting, args); err != nil {
			return c.usageError(err)
		}
		var unread []*report.Failed
		if s.setGiven(args); s.recursive {
			args, unread = c.walk(args, s.destination(c.stdout, "standard output"), s.quiet)
		}
		c.status = c.check(s, args, unread)
		return nil
	}
}

// applyReader applies --for.
func (s *checkSettings) applyReader() error {
	if s.reader = &(convert.Reader{}); s.like == "" {
		return nil
	}
	p, err := findPreset(s.like)
	if err == nil {
		s.reader = p.reader()
	}
	return err
}

// refusal returns the message for a section that the reader refuses.
func (s *checkSettings) refusal(why string) string {
	if s.reader.Linux != convert.NotLinux {
		return "Linux refuses .sframe: " + why
	}
	reader := report.Printable(s.like)
	return fmt.Sprintf("%s does not read .sframe: %s; convert with --force --for %s", reader, why, reader)
}

// compare compares the .sframe of a file with its CFI, or returns the reason why it skips the file. The report can be
// non-nil even on error.
func (s *checkSettings) compare(ctx context.Context, path string) (c *report.Check, why convert.Reason, err error) {
	defer panics.Recover(&err)
	skip := s.isSkipped(path) || s.require
	p, err := files.OpenProgram(ctx, path, s.Sources)
	if err != nil {
		if why = convert.ReasonOf(err); why != "" && skip {
			err = nil
		}
		return nil, why, err
	}
	defer p.Close()
	if t := elf.Type(p.File.Type); s.require && t != elf.ET_EXEC && t != elf.ET_DYN {
		return nil, convert.NotLinked, nil
	}
	c, err = s.compareProgram(ctx, p)
	switch {
	case !skip:
	case (errors.Is(err, sframe.ErrNone) || errors.Is(err, cfi.ErrNone)) && elfwrite.DebugOnly(p.File):
		why, err = convert.DebugOnly, nil // or a detached .sframe
	case errors.Is(err, convert.ErrEmpty) && !s.require:
		why, err = convert.NoSFrame, nil
	case errors.Is(err, sframe.ErrNone):
		var failed error
		why, failed = p.WhyNone(ctx, convert.Options{Force: true, Linux: s.reader.Linux, NoPCMask: s.reader.NoPCMask})
		if failed != nil || why != "" {
			err = failed
		}
	}
	if failed := p.Err(nil); failed != nil {
		return nil, "", failed
	}
	if c != nil {
		c.File = path
	}
	return c, why, err
}

// compareProgram compares the .sframe of a program with its CFI. The report can be non-nil even on error.
func (s *checkSettings) compareProgram(ctx context.Context, p *files.Program) (*report.Check, error) {
	if s.reader.Linux == convert.LinuxKernel && !p.File.IsObject() && s.Reserved == "" {
		p.Sources.Reserved = convert.KernelSymbols
	}
	section, err := p.Section()
	if err != nil {
		return nil, err
	}
	refused := ""
	if s.like != "" {
		format, err := convert.FormatOf(section)
		if err != nil {
			return nil, err
		}
		if refused, err = s.reader.Refusal(p.File, section, format); err != nil {
			return nil, err
		}
	}
	table, err := p.CFI(ctx)
	if err != nil {
		return nil, err
	}
	comparison, tooMany := convert.Check(p.File, section, table)
	if comparison == nil {
		return nil, tooMany
	}
	c, err := report.Checked(comparison, p.File, p.Debug.File(), table)
	if err != nil {
		return nil, err
	}
	if c.Refused = refused; s.reader.Linux == convert.LinuxUser {
		c.Warnings = append(c.Warnings, report.LinuxWarnings(p.File, section)...)
	}
	if s.Infer {
		list, agreement, err := convert.Contradictions(ctx, p.File, table)
		if err != nil {
			return nil, err
		}
		c.Contradicted(p.File, p.Debug.File(), list, agreement.ByRegister+agreement.ByValue)
	}
	if !s.Infer && convert.Infers(p.File) && comparison.Undescribed {
		c.Warnings = append(c.Warnings, warnInferred)
	}
	return c, tooMany
}

// warnInferred is printed if the section has rows for code without CFI.
const warnInferred = "some rows are for code without CFI; if the section was made with --infer, also check it with " +
	"--infer"

// each calls do for each file, prints its errors, and returns how many files failed and, after a signal, the exit
// status. It also calls fail, if not nil, for each error.
func (c *call) each(paths []string, undone string, do func(path string) error, fail func(path string, err error)) (
	failed, interrupted int,
) {
	complain := func(path string, err error) {
		complain(c.stderr, path, err)
		if fail != nil {
			fail(path, err)
		}
		failed++
	}
	for i, path := range paths {
		err := c.ctx.Err()
		if err == nil {
			err = do(path)
		}
		if errors.Is(err, context.Canceled) {
			for _, path := range paths[i:] {
				complain(path, errors.New("interrupted, "+undone))
			}
			return failed, interruptedStatus(c.ctx)
		}
		if err != nil {
			complain(path, err)
		}
	}
	return failed, 0
}

// check compares the .sframe of each file with the CFI, prints the mismatches, and returns the exit status.
func (c *call) check(s *checkSettings, paths []string, unread []*report.Failed) int {
	sum := checkTotals{skipped: make(map[convert.Reason]int)}
	fail := func(f *report.Failed) {
		if s.form == "json" {
			_ = report.WriteJSON(c.out, f) // run reports errors of standard output
		}
	}
	for _, f := range unread {
		fail(f)
	}
	reported := false // the report on the file has its error
	failed, interrupted := c.each(paths, "not checked", func(path string) error {
		checked, why, err := s.compare(c.ctx, path)
		if err != nil {
			err = explain(path, err, true)
		}
		if checked != nil {
			checked.Error = s.failure(checked, err)
		}
		if checked != nil || why != "" && err == nil {
			err = cmp.Or(err, printChecked(s, c.out, path, why, checked, len(paths) == 1))
		}
		switch {
		case err != nil:
		case why != "":
			sum.skipped[why]++
		case len(checked.Mismatches) > 0 || checked.Refused != "":
			sum.wrong++
		case checked.Error != "":
			complain(c.stderr, path, errors.New(checked.Error))
			sum.short++
		default:
			sum.correct++
		}
		reported = checked != nil && err != nil
		return err
	}, func(path string, err error) {
		if !reported {
			fail(report.NewFailed(path, err))
		}
		reported = false
	})
	if interrupted != 0 {
		return interrupted
	}
	sum.failed = failed + len(unread)
	if s.form == "text" && len(paths) != 1 {
		fmt.Fprint(c.out, &sum)
	}
	if s.require && sum.numSkipped() == len(paths) {
		err := errors.New("no program or shared library was found")
		complain(c.stderr, "--require", err)
		for _, path := range slices.Sorted(maps.Keys(s.given)) {
			fail(report.NewFailed(path, err))
		}
		sum.failed++
	}
	switch {
	case sum.failed > 0:
		return exitTrouble
	case sum.wrong > 0:
		return exitDifferent
	case sum.short > 0:
		return exitCoverage
	case sum.numSkipped() > 0 && s.skipStatus:
		return exitSkipped
	}
	return exitDone
}

// failure returns why a file fails the check, or "".
func (s *checkSettings) failure(c *report.Check, err error) string {
	switch {
	case err != nil:
		return report.PrintableMessage(err.Error())
	case c.Refused != "":
		return report.PrintableMessage(s.refusal(c.Refused))
	case len(c.Mismatches) > 0:
		return fmt.Sprintf("mismatches: %d", len(c.Mismatches))
	case s.require && c.FDEs == 0 && s.shortfall(&c.Amounts) == "":
		return ".sframe has no FDEs; convert the file again with --force"
	}
	return s.shortfall(&c.Amounts)
}

// checkTotals counts the checked files by result.
type checkTotals struct {
	correct, wrong, short, failed int
	skipped                       map[convert.Reason]int
}

// numSkipped returns the number of skipped files.
func (s *checkTotals) numSkipped() (n int) {
	for _, files := range s.skipped {
		n += files
	}
	return n
}

func (s *checkTotals) String() string {
	all := s.correct + s.wrong + s.short + s.failed + s.numSkipped()
	text := fmt.Sprintf("%d files: %d correct", all, s.correct)
	for _, part := range []struct {
		n    int
		what string
	}{
		{s.wrong, "wrong"}, {s.short, "with too little coverage"}, {s.numSkipped(), "skipped"}, {s.failed, "failed"},
	} {
		if part.n > 0 {
			text += fmt.Sprintf(", %d %s", part.n, part.what)
		}
	}
	return text + "\n" + reasons("skipped", countReasons(s.skipped))
}

// printChecked reports on a checked or skipped file. Mismatches are printed even with --report none.
func printChecked(
	s *checkSettings, w io.Writer, path string, why convert.Reason, c *report.Check, only bool,
) error {
	out := bufio.NewWriter(w)
	text := s.form == "text"
	switch {
	case s.form == "json" && why != "":
		skipped := report.Kept{Schema: report.Schema, File: path, Kept: string(why), Why: why.Text()}
		return report.WriteJSON(w, &skipped)
	case s.form == "json":
		return report.WriteJSON(w, c)
	case why != "" && text && (s.verbose || only):
		fmt.Fprintf(out, "%s: skipped: %s\n", report.Printable(path), why.Text())
	case why == "":
		if c.Refused != "" {
			fmt.Fprintf(out, "%s: %s\n", report.Printable(path), s.refusal(c.Refused))
		}
		checkedText(out, report.Printable(path), c, text)
	}
	return out.Flush()
}

// checkedText prints the mismatches of a file, and the summary.
func checkedText(w io.Writer, path string, c *report.Check, summary bool) {
	list := func(what string, all []report.Mismatch) {
		for _, m := range all {
			place := ""
			if m.Function != "" {
				place = fmt.Sprintf(" %s+%#x", report.PrintableMessage(m.Function), m.Offset)
			}
			fmt.Fprintf(w, "%s: %#x-%#x%s: %s%s\n", path, m.Begin, m.End, place, what, m.What)
		}
	}
	list("", c.Mismatches)
	list("CFI contradicts the instructions: ", c.Contradictions)
	if !summary {
		return
	}
	fmt.Fprintf(w, "%s: %s\n  %s\n", path, report.Headline(&c.Amounts), report.OfCFI(&c.Amounts, c.Format))
	for _, warning := range c.Warnings {
		fmt.Fprintf(w, "  warning: %s\n", warning)
	}
	if c.PLT > 0 {
		fmt.Fprintf(w, "  %s bytes of PLT stubs without CFI are described correctly\n", report.Digits(c.PLT))
	}
	if c.Padding > 0 {
		fmt.Fprintf(w, "  %s bytes of padding are covered by the last rows of functions\n", report.Digits(c.Padding))
	}
	if c.Compared > 0 {
		fmt.Fprintf(w, "  %s bytes of CFI compared with the instructions\n", report.Digits(c.Compared))
	}
	fmt.Fprintf(w, "  %s, %d FDEs, %d FREs", c.ABI, c.FDEs, c.FREs)
	if !c.Sorted {
		fmt.Fprint(w, "; the FDEs are not sorted")
	}
	fmt.Fprintf(w, "; mismatches: %d\n", len(c.Mismatches))
}

// dumpCommand defines the verb dump.
func (c *call) dumpCommand(cmd *cobra.Command) {
	s := &files.Sources{}
	sframeFlag(cmd, &s.SFrame)
	intoFlag(cmd, &s.Reserved, intoUsage)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := checkInputs(args); err != nil {
			return err
		}
		if err := c.distinctInputs(&reporting{}, args); err != nil {
			return c.usageError(err)
		}
		c.status = c.dump(args, *s)
		return nil
	}
}

// checkInputs rejects an empty list of inputs, empty names, and repeated standard input.
func checkInputs(paths []string) error {
	return refuse(
		rule{len(paths) == 0, "no input file"},
		rule{slices.Contains(paths, ""), `"": the name of an input file is empty`},
		rule{count(paths, files.Stdin) > 1, "standard input (-) may be given only once"},
	)
}

// dump prints the .sframe of each file, and returns the exit status.
func (c *call) dump(paths []string, from files.Sources) int {
	out := bufio.NewWriter(c.out)
	failed, interrupted := c.each(paths, "not printed", func(path string) error {
		if len(paths) > 1 {
			fmt.Fprintf(out, "%s:\n\n", report.Printable(path))
		}
		err := dumpFile(c.ctx, out, path, from)
		if err = cmp.Or(err, out.Flush()); err != nil {
			return explain(path, err, false)
		}
		return nil
	}, nil)
	return cmp.Or(interrupted, min(failed, exitError))
}

// dumpFile prints the .sframe of an ELF file, or of a file that contains only the section.
func dumpFile(ctx context.Context, w io.Writer, path string, from files.Sources) (err error) {
	defer panics.Recover(&err)
	in, err := files.Open(ctx, path)
	if err != nil {
		return err
	}
	bare, err := convert.ReadBare(in.File, in.Info.Size())
	if err != nil || bare != nil {
		in.Close()
		if err == nil {
			err = convert.Dump(w, nil, bare)
		}
		return err
	}
	p, err := in.Program(from)
	if err != nil {
		return err
	}
	defer p.Close()
	section, err := p.Section()
	if err := p.Err(err); err != nil {
		return err
	}
	return convert.Dump(w, p.File, section)
}

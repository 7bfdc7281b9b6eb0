package main

import (
	"errors"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"cfi2sframe/internal/files"
	"cfi2sframe/internal/outfile"
)

// detachCommand defines the verb detach.
func (c *call) detachCommand(cmd *cobra.Command) {
	s := newConversion()
	s.verb, s.to.Detach = "detach", true
	s.work = func() files.Work { return files.Detach(s.to.ByBuildID, s.Options, s.debugFile) }
	f := cmd.Flags()
	f.StringVarP(&s.output, "output", "o", "",
		"write to `FILE`; if it is a directory, to .build-id/ab/cdef.sframe in it; - is standard output")
	f.BoolVar(&s.to.DryRun, "dry-run", false, "translate, check and report, but write nothing")
	noSyncFlag(cmd, &s.to.NoSync)
	s.defineTrees(cmd)
	f.BoolVar(&s.Force, "force", false, "also detach from files that have an .sframe")
	s.formatFlags(cmd)
	cfiFlags(cmd, &s.Source, &s.Infer, &s.debugFile)
	s.define(cmd, "report format: none, text (on stderr) or json (on stdout)", fileForms)
	s.defineFile(cmd)
	s.defineVerbose(cmd, "list all gaps, not only the first ten")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s.to.ByBuildID = s.isDirectory(len(args))
		return c.convert(s, cmd, args)
	}
}

// attachCommand defines the verb attach.
func (c *call) attachCommand(cmd *cobra.Command) {
	s := newConversion()
	s.verb = "attach"
	s.work = func() files.Work { return files.Attach(s.sframe, s.Options, s.debugFile) }
	sframeFlag(cmd, &s.sframe)
	s.outputFlags(cmd, "replace each FILE with its result")
	s.defineTrees(cmd)
	cmd.Flags().BoolVar(&s.Force, "force", false, "replace .sframe, and move appended data")
	cfiFlags(cmd, &s.Source, &s.Infer, &s.debugFile)
	s.define(cmd, "report format: none, text (on stderr) or json (on stdout)", fileForms)
	s.defineFile(cmd)
	s.defineVerbose(cmd, "also report unchanged files")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if s.sframe == "" {
			return errors.New("attach requires --sframe")
		}
		return c.convert(s, cmd, args)
	}
}

// isDirectory reports whether the output is a directory, which need not exist.
func (s *conversion) isDirectory(inputs int) bool {
	if s.output == "" || outfile.IsStdout(s.output) {
		return false
	}
	info, err := os.Stat(s.output)
	return err == nil && info.IsDir() || s.recursive || inputs > 1 ||
		strings.HasSuffix(s.output, string(os.PathSeparator))
}

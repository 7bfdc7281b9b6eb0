package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"cfi2sframe/internal/survey"
)

// linkCommand is the word for what is linked by another program.
const linkCommand = "ld"

// A mode is one of the things that cfi2sframe does.
type mode struct {
	name    string   // the flag that asks for it, or the command; "" for a conversion
	command bool     // it is a command
	flags   []string // besides the one that asks for it
	forms   []string // of --report
}

// Flags that several modes have.
const (
	cfiFlags    = "source debug-file "
	formatFlags = "format for pcrel outermost share padding force update no-verify min-coverage jobs "
	outputFlags = "output in-place dry-run preserve-dates no-sync "
	treeFlags   = "recursive skip-unsupported skip-status "
	reportFlags = "report report-file quiet "
)

var (
	fileForms = []string{"none", "text", "json"}
	pageForms = append(slices.Clip(fileForms), "html")
	sumForms  = append([]string{"none"}, survey.Forms...)
)

// modes has for each mode the flags that it takes. Others are wrong usage.
var modes = []mode{
	{"", false, strings.Fields(cfiFlags + formatFlags + outputFlags + treeFlags + reportFlags + "debug-link-update verbose"), pageForms},
	{"remove", false, strings.Fields(outputFlags + treeFlags + reportFlags + "debug-link-update verbose"), fileForms},
	{"check", false, strings.Fields(cfiFlags + treeFlags + "require report quiet verbose min-coverage"), fileForms},
	{"dump", false, nil, nil},
	{"diff", false, strings.Fields(cfiFlags + "report quiet verbose"), fileForms},
	{"survey", false, strings.Fields(reportFlags + "report-dir objects packages shard jobs recursive no-sync"), sumForms},
	{"merge", false, strings.Fields(reportFlags + "against partial jobs no-sync"), sumForms},
	{"print-linker-dir", false, nil, nil},
	{linkCommand, true, strings.Fields(cfiFlags + formatFlags +
		"remove in-place skip-unsupported preserve-dates no-sync debug-link-update report quiet verbose"), pageForms},
	{packageCommand, true, strings.Fields(formatFlags + outputFlags + reportFlags + "objects verbose"), fileForms},
}

// commandMode returns the mode of a command.
func commandMode(name string) *mode {
	return &modes[slices.IndexFunc(modes, func(m mode) bool { return m.command && m.name == name })]
}

// modeOf returns the mode that flags ask for.
func modeOf(flags *pflag.FlagSet) (*mode, error) {
	found := &modes[0]
	for i := range modes {
		m := &modes[i]
		if m.command || m.name == "" || flags.Lookup(m.name).Value.String() != "true" {
			continue
		}
		if found.name != "" {
			return nil, fmt.Errorf("%s and %s cannot be combined", found, m)
		}
		found = m
	}
	return found, nil
}

func (m mode) String() string {
	if m.command {
		return m.name
	}
	return "--" + m.name
}

// heeds reports whether a flag has a meaning in the mode.
func (m *mode) heeds(flag string) bool {
	return flag == m.name && !m.command || slices.Contains(m.flags, flag)
}

// check returns an error if a flag is set that the mode does not take.
func (m *mode) check(flags *pflag.FlagSet) (err error) {
	flags.Visit(func(f *pflag.Flag) {
		if err == nil && !m.heeds(f.Name) {
			err = m.without("--"+f.Name, func(m *mode) bool { return m.heeds(f.Name) })
		}
	})
	return err
}

// without says that a flag is not for the mode, or which modes it is for if conversions do not have it.
func (m *mode) without(flag string, is func(*mode) bool) error {
	if m.command || is(&modes[0]) {
		return fmt.Errorf("%s is not for %s", flag, m)
	}
	var names []string
	for i := range modes {
		if is(&modes[i]) {
			names = append(names, modes[i].String())
		}
	}
	return fmt.Errorf("%s is for %s", flag, list(names, "and"))
}

// checkForm returns an error if the mode has no report of a form.
func (m *mode) checkForm(form string) error {
	switch {
	case !slices.Contains(sumForms, form):
		return fmt.Errorf("--report %q is not known; use %s", form, list(sumForms, "or"))
	case m.forms == nil || slices.Contains(m.forms, form):
		return nil
	}
	err := m.without("--report "+form, func(m *mode) bool { return slices.Contains(m.forms, form) })
	return fmt.Errorf("%w; use %s", err, list(m.forms, "or"))
}

// list joins words as a sentence has them.
func list(words []string, last string) string {
	n := len(words) - 1
	if n < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:n], ", ") + " " + last + " " + words[n]
}

// complete fills in what follows from other flags, and refuses those that cannot be combined.
func (s *settings) complete(m *mode) error {
	if err := m.checkForm(s.report); err != nil {
		return err
	}
	switch {
	case len(s.files) == 0:
		return errors.New("no input file")
	case s.quiet && s.verbose:
		return errors.New("-q and -v cannot be combined")
	case s.Force && s.Update:
		return errors.New("--force and --update cannot be combined")
	case s.jobs < 0:
		return fmt.Errorf("--jobs %d: 0 or more was expected", s.jobs)
	case s.skipStatus && !s.SkipUnsupported:
		return errors.New("--skip-status is for --skip-unsupported")
	case s.diff && len(s.files) != 2:
		return fmt.Errorf("%d input files; two were expected for --diff", len(s.files))
	}
	if s.quiet && s.report == "text" && s.reportFile == "" {
		s.report = "none"
	}
	s.Brief = s.report == "none" && s.MinCoverage == 0
	if m.heeds("output") {
		if err := s.completeOutput(); err != nil {
			return err
		}
	}
	if err := s.completeMerge(); err != nil {
		return err
	}
	if err := s.completeDebugLink(); err != nil {
		return err
	}
	if err := s.completeInput(m); err != nil {
		return err
	}
	if s.reportFile != "" && s.report == "none" {
		return errors.New("--report-file and --report none cannot be combined")
	}
	return nil
}

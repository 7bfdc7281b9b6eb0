package faults

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
)

// targets are the names of the files that cfi2sframe writes.
func (s *scenario) targets() []string {
	all := slices.Sorted(maps.Keys(s.after))
	return slices.DeleteFunc(all, func(name string) bool { return s.before[name] == s.after[name] })
}

// prefix is the prefix of temporary names.
const prefix = ".cfi2sframe-"

// checkFiles returns an error unless each file is unchanged or complete. It returns the temporary names that remain.
func (s *scenario) checkFiles(now map[string]string) (left []string, err error) {
	for name, state := range now {
		old, existed := s.before[name]
		done, expected := s.after[name]
		switch {
		case existed && state == old || expected && state == done, expected && state == failureReport:
		case strings.HasPrefix(name, prefix):
			left = append(left, name)
		case !existed && !expected:
			return nil, fmt.Errorf("%s remains", name)
		default:
			return nil, fmt.Errorf("%s is neither unchanged nor complete: %s; before %q, complete %q",
				name, state, old, done)
		}
	}
	for name := range s.before {
		if _, ok := now[name]; !ok {
			return nil, fmt.Errorf("%s is missing", name)
		}
	}
	return left, nil
}

// checkStatus returns an error unless the exit status and messages match the files. The report may be complete only if
// all files are. The status of a run that received several signals may be that of any of them.
func (s *scenario) checkStatus(f *fault, out *outcome, now map[string]string) error {
	if !out.status.Exited() {
		return fmt.Errorf("killed by %v", out.status.Signal())
	}
	status := out.status.ExitStatus()
	targets := s.targets()
	missing := slices.DeleteFunc(slices.Clone(targets), func(name string) bool { return now[name] == s.after[name] })
	all, none := len(missing) == 0, len(missing) == len(targets)
	said := func(text string) bool { return strings.Contains(out.stderr, text) }
	var problem string
	switch {
	case status == 0 && !all:
		problem = "although not all files are complete"
	case status == 0 && s.stdout+s.stderr != "" && (s.stdout != out.stdout || s.stderr != out.stderr):
		problem = "with output that differs from a run without the fault"
	case status == 0:
		return nil
	case status != 1 && !slices.Contains(f.signals, syscall.Signal(status-128)):
		problem = "without that signal"
	case status != 1 && !said("interrupted"):
		problem = "without a message about the interruption"
	case slices.ContainsFunc(s.others, func(name string) bool { return said("cfi2sframe: " + name + ": ") }):
	case all && len(targets) > 0 && !said("power failure") && !said("replaced despite") &&
		!said("cannot remove the temporary file"):
		problem = "although all files are complete"
	case !said("cfi2sframe: "):
		problem = "without a message"
	case all || none:
		return nil
	case s.after["report"] != "" && now["report"] == s.after["report"]:
		problem = "with a complete report, but not all files are complete"
	}
	for _, name := range missing {
		if problem == "" && name != "report" && !said("cfi2sframe: "+name+": ") {
			problem = "without a message about " + name
		}
	}
	if problem == "" {
		return nil
	}
	return fmt.Errorf("status %d %s; stdout %q, stderr %q", status, problem, out.stdout, out.stderr)
}

// judge returns an error if a run with a fault violates a promise.
func (s *scenario) judge(f *fault, out *outcome, now map[string]string) error {
	left, err := s.checkFiles(now)
	if err != nil {
		return err
	}
	for _, name := range left { // a message must name the file that was left behind
		if !out.status.Exited() || !strings.Contains(out.stderr, name) {
			return fmt.Errorf("%s remains", name)
		}
	}
	// A second signal ends cfi2sframe at once.
	if len(f.signals) > 1 && slices.Contains(f.signals, out.status.Signal()) {
		return nil
	}
	if err := s.checkStatus(f, out, now); err != nil {
		return err
	}
	if f.harmless && (out.status.ExitStatus() != 0 || !maps.Equal(now, s.after)) {
		return fmt.Errorf("status %d, stderr %q", out.status.ExitStatus(), out.stderr)
	}
	return nil
}

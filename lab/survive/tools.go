package survive

import (
	"fmt"
	"os/exec"
	"regexp"
	"strings"

	"cfi2sframe/internal/testkit/suite"
)

// A tool modifies a linked file with commands from one version of a package, such as binutils.
type tool struct {
	name    string // such as "strip -g"
	in      []variant
	dynamic bool // only for files that load libraries
	cross   bool // binutils, which have programs for each architecture
	// steps are commands. FILE is the file to change, DEBUG is the file that receives its debug information, and INTERP
	// is a different path for its interpreter.
	steps []string

	variant
	version string
}

// A variant identifies a version of a tool: the Debian suite that contains it, and the suffix of its program names.
type variant struct {
	suite, suffix string
	quick         bool
}

func (t *tool) String() string { return strings.TrimSpace(t.name + " " + t.version) }

var (
	machine  = variant{quick: true}
	binutils = []variant{machine, {suite: "trixie"}, {suite: "sid", quick: true}}
	elfutils = []variant{machine, {suite: "sid"}}
	llvm     = []variant{{suffix: "-14", quick: true}, {suite: "sid", suffix: "-23"}}
	patchelf = []variant{machine, {suite: "sid", quick: true}}
	dwz      = []variant{machine, {suite: "sid"}}
	sid      = []variant{{suite: "sid", quick: true}}
)

var tools = []tool{
	{name: "true", in: []variant{machine}, steps: []string{"true FILE"}}, // changes nothing
	{name: "strip", in: binutils, cross: true, steps: []string{"strip FILE"}},
	{name: "strip -g", in: binutils, cross: true, steps: []string{"strip -g FILE"}},
	{name: "objcopy", in: binutils, cross: true, steps: []string{"objcopy FILE FILE"}},
	{name: "debug link", in: binutils, cross: true, steps: []string{
		"objcopy --only-keep-debug FILE DEBUG", "strip --strip-debug FILE", "objcopy --add-gnu-debuglink=DEBUG FILE"}},
	{name: "eu-strip", in: elfutils, steps: []string{"eu-strip FILE"}},
	{name: "eu-strip -g -f", in: elfutils, steps: []string{"eu-strip -g -f DEBUG FILE"}},
	{name: "llvm-strip", in: llvm, steps: []string{"llvm-strip FILE"}},
	{name: "llvm-objcopy", in: llvm, steps: []string{"llvm-objcopy FILE FILE"}},
	{name: "patchelf --set-rpath", in: patchelf, dynamic: true,
		steps: []string{"patchelf --set-rpath /nonexistent/a-directory-of-libraries/that-is-missing FILE"}},
	{name: "patchelf --set-interpreter", in: patchelf, steps: []string{"patchelf --set-interpreter INTERP FILE"}},
	{name: "dwz", in: dwz, steps: []string{"dwz FILE"}},
	{name: "debugedit -b -d", in: sid, steps: []string{"debugedit -b " + sourceDir + " -d /usr/src/subject FILE"}},
}

var number = regexp.MustCompile(`[0-9]+\.[0-9]+(\.[0-9]{1,3})?\b`)

// versions returns all versions of the tools, and errors for missing ones.
func versions(quick bool) (all []*tool, missing []error) {
	for _, t := range tools {
		for _, v := range t.in {
			if quick && !v.quick {
				continue
			}
			one := t
			one.variant = v
			program, _, _ := strings.Cut(t.steps[0], " ")
			words, err := suite.Program(v.suite, program+v.suffix)
			var out []byte
			if err == nil {
				out, err = exec.Command(words[0], append(words[1:], "--version")...).CombinedOutput()
			}
			if err != nil {
				missing = append(missing, fmt.Errorf("%s: %w", t.name, err))
				continue
			}
			one.version = number.FindString(string(out))
			all = append(all, &one)
		}
	}
	return all, missing
}

// applies reports whether the tool can be used on a subject.
func (t *tool) applies(s *subject) bool {
	static := s.interpreter == ""
	switch {
	case t.cross && t.suite == "" && s.triple() != "", // this machine's binutils support only its own architecture
		t.dynamic && static && !strings.Contains(s.file, ".so"),
		strings.Contains(t.steps[0], "INTERP") && static:
		return false
	}
	return true
}

// commands returns the tool's commands for a subject's file.
func (t *tool) commands(s *subject) ([][]string, error) {
	names := strings.NewReplacer("FILE", s.file, "DEBUG", s.file+".debug", "INTERP", s.interpreter)
	var commands [][]string
	for _, step := range t.steps {
		words := strings.Fields(step)
		name := words[0] + t.suffix
		if t.cross && s.triple() != "" {
			name = s.triple() + "-" + name
		}
		command, err := suite.Program(t.suite, name)
		if err != nil {
			return nil, err
		}
		for _, w := range words[1:] {
			command = append(command, names.Replace(w))
		}
		commands = append(commands, command)
	}
	return commands, nil
}

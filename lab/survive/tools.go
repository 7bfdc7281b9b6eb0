package survive

import (
	"fmt"
	"os/exec"
	"regexp"
	"strings"

	"cfi2sframe/internal/testkit/suite"
)

// A tool is a way to change a linked file, with one version of the programs that do
// it. The zero tool changes nothing.
type tool struct {
	name    string // as a user calls it, such as "strip -g"
	suite   string // whose programs these are; "" is the machine
	version string
	// steps are the commands. The first word is a program; in others, FILE is the file
	// to change, DEBUG the file that takes its debug information, and INTERP another
	// path of its interpreter.
	steps [][]string
	cross bool // binutils, whose programs are built for an architecture each
	fits  func(*subject) bool
}

func (t *tool) String() string {
	if t.steps == nil {
		return "no tool"
	}
	return strings.TrimSpace(t.name + " " + t.version)
}

func everything(*subject) bool { return true }

// A family is tools of one origin, and the suites that have different versions.
type family struct {
	name   string
	cross  bool
	suites []variant
	tools  []tool
}

// A variant is the version of a family in a suite, and what its programs' names end
// with there.
type variant struct {
	suite, suffix string
	quick         bool
}

var machine = variant{"", "", true}

var families = []family{
	{
		name: "GNU binutils", cross: true,
		suites: []variant{machine, {"trixie", "", false}, {"sid", "", true}},
		tools: []tool{
			{name: "strip", steps: [][]string{{"strip", "FILE"}}},
			{name: "strip -g", steps: [][]string{{"strip", "-g", "FILE"}}},
			{name: "objcopy", steps: [][]string{{"objcopy", "FILE", "FILE"}}},
			{name: "debug link", steps: [][]string{
				{"objcopy", "--only-keep-debug", "FILE", "DEBUG"},
				{"strip", "--strip-debug", "FILE"},
				{"objcopy", "--add-gnu-debuglink=DEBUG", "FILE"},
			}},
		},
	},
	{
		name:   "elfutils",
		suites: []variant{machine, {"sid", "", false}},
		tools: []tool{
			{name: "eu-strip", steps: [][]string{{"eu-strip", "FILE"}}},
			{name: "eu-strip -g -f", steps: [][]string{{"eu-strip", "-g", "-f", "DEBUG", "FILE"}}},
		},
	},
	{
		name:   "LLVM",
		suites: []variant{{"", "-14", true}, {"sid", "-23", false}},
		tools: []tool{
			{name: "llvm-strip", steps: [][]string{{"llvm-strip", "FILE"}}},
			{name: "llvm-objcopy", steps: [][]string{{"llvm-objcopy", "FILE", "FILE"}}},
		},
	},
	{
		name:   "patchelf",
		suites: []variant{machine, {"sid", "", true}},
		tools: []tool{
			{
				name: "patchelf --set-rpath", fits: (*subject).linksLibraries,
				steps: [][]string{{"patchelf", "--set-rpath", "/nonexistent/a-folder-of-libraries/that-is-not-there", "FILE"}},
			},
			{
				name: "patchelf --set-interpreter", fits: (*subject).hasInterpreter,
				steps: [][]string{{"patchelf", "--set-interpreter", "INTERP", "FILE"}},
			},
		},
	},
	{
		name:   "dwz",
		suites: []variant{machine, {"sid", "", false}},
		tools:  []tool{{name: "dwz", steps: [][]string{{"dwz", "FILE"}}}},
	},
	{
		name:   "debugedit",
		suites: []variant{{"sid", "", true}},
		tools: []tool{{name: "debugedit -b -d", steps: [][]string{
			{"debugedit", "-b", sourceFolder, "-d", "/usr/src/debug/subject", "FILE"},
		}}},
	},
}

var number = regexp.MustCompile(`[0-9]+\.[0-9]+(\.[0-9]{1,3})?\b`)

// expand returns the family's tools in all their versions; those that are missing
// are returned as errors.
func (f *family) expand(quick bool) (tools []*tool, missing []error) {
	for _, v := range f.suites {
		if quick && !v.quick {
			continue
		}
		for _, t := range f.tools {
			t.suite, t.cross = v.suite, f.cross
			t.steps = withSuffix(t.steps, v.suffix)
			if t.fits == nil {
				t.fits = everything
			}
			var err error
			if t.version, err = version(v.suite, t.steps[0][0]); err != nil {
				missing = append(missing, fmt.Errorf("%s: %w", t.name, err))
				continue
			}
			tools = append(tools, &t)
		}
	}
	return tools, missing
}

func withSuffix(steps [][]string, suffix string) [][]string {
	var s [][]string
	for _, step := range steps {
		s = append(s, append([]string{step[0] + suffix}, step[1:]...))
	}
	return s
}

// version asks a program for its version.
func version(in, name string) (string, error) {
	words, err := suite.Program(in, name)
	if err != nil {
		return "", err
	}
	out, err := exec.Command(words[0], append(words[1:], "--version")...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", name, err)
	}
	return number.FindString(string(out)), nil
}

// applies reports whether the tool is for a subject.
func (t *tool) applies(s *subject) bool {
	if t.steps == nil {
		return true
	}
	// The machine's own binutils are for its own architecture.
	return t.fits(s) && !(t.cross && t.suite == "" && s.arch.triple != "")
}

// commands are the tool's commands for a subject's file.
func (t *tool) commands(s *subject) ([][]string, error) {
	words := strings.NewReplacer("FILE", s.file, "DEBUG", s.file+".debug", "INTERP", s.interpreter)
	var commands [][]string
	for _, step := range t.steps {
		name := step[0]
		if t.cross && s.arch.triple != "" {
			name = s.arch.triple + "-" + name
		}
		command, err := suite.Program(t.suite, name)
		if err != nil {
			return nil, err
		}
		for _, w := range step[1:] {
			command = append(command, words.Replace(w))
		}
		commands = append(commands, command)
	}
	return commands, nil
}

// Command manual writes the manual page of cfi2sframe and its completions for bash, zsh and fish, from what the
// program itself says with --help. That is made from its flags, so that none is missing here, and nothing of it
// has to be in the program.
//
// Usage: manual PROGRAM DIR
//
// PROGRAM is a cfi2sframe that runs on this machine. In DIR there are cfi2sframe.1, cfi2sframe.bash, _cfi2sframe (zsh)
// and cfi2sframe.fish afterwards. The page has the date that SOURCE_DATE_EPOCH says (in seconds), or else today's.
package manual

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"cfi2sframe/lab/kit"
)

// A flag is one of the program.
type flag struct {
	Name    string
	Short   string // or ""
	Value   string // what stands for its value, or ""
	Usage   string
	Default string // or ""
}

// A page is what --help prints, in its parts.
type page struct {
	Synopsis    []string
	Description []string // paragraphs
	Flags       []flag
	Exit        string
	Examples    [][2]string // a command line, and what it does
}

// words are the values of flags that take some and no others, or besides files.
var words = map[string][]string{
	"debug-file": {"auto"}, "debug-link-update": {"auto"},
	"for": {"glibc", "linux", "binutils-2.40", "binutils-2.41", "binutils-2.42", "binutils-2.43", "binutils-2.44", "binutils-2.45",
		"binutils-2.46", "binutils-2.47", "java-profiler"},
	"format":  {"1", "2", "3"},
	"report":  {"none", "text", "json", "html", "csv"},
	"share":   {"on", "off", "auto"},
	"padding": {"on", "off"},
	"source":  {"auto", "eh_frame", "debug_frame"},
}

// fileValues and numbers are how the usage names values that are files, and numbers.
var (
	fileValues = []string{"FILE", "DIR", "FOLDER", "PATH"}
	numbers    = []string{"int", "float", "PERCENT", "I/N"}
)

// files reports whether the value may be a file. That of --for can be one as well.
func (f *flag) files() bool { return slices.Contains(fileValues, f.Value) || f.Name == "for" }

// brief is what the flag does, in a few words.
func (f *flag) brief() string {
	s, _, _ := strings.Cut(f.Usage, ": ")
	s, _, _ = strings.Cut(s, "; ")
	return s
}

// Command returns the subcommand.
func Command() *kit.Command {
	c := kit.New("manual", "PROGRAM DIR", 2, 2)
	c.Run = func(args []string) error { return write(args[0], args[1]) }
	return c
}

// write writes all files.
func write(program, dir string) error {
	help, err := exec.Command(program, "--help").Output()
	if err != nil {
		return fmt.Errorf("%s --help: %w", program, err)
	}
	p, err := parse(string(help))
	if err != nil {
		return err
	}
	date := time.Now()
	if epoch := os.Getenv("SOURCE_DATE_EPOCH"); epoch != "" {
		seconds, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil {
			return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
		}
		date = time.Unix(seconds, 0)
	}
	for name, text := range map[string]string{
		"cfi2sframe.1": p.man(date.UTC()), "cfi2sframe.bash": p.bash(), "_cfi2sframe": p.zsh(), "cfi2sframe.fish": p.fish(),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

var (
	flagLine = regexp.MustCompile(`^ +(?:-(\w), )?--([\w-]+)(?: (\S+))?  +(.*)$`)
	preset   = regexp.MustCompile(` \(default "?([^"]*?)"?\)$`)
)

// parse takes the help apart.
func parse(help string) (*page, error) {
	head, rest, ok1 := strings.Cut(help, "\n\nFlags:\n")
	flags, rest, ok2 := strings.Cut(rest, "\n\nExit status: ")
	exit, examples, ok3 := strings.Cut(rest, "\n\nExamples:\n")
	if !ok1 || !ok2 || !ok3 {
		return nil, fmt.Errorf("the help has other parts than Flags, Exit status and Examples")
	}
	paragraphs := strings.Split(head, "\n\n")
	p := &page{Description: paragraphs[1:], Exit: strings.Join(strings.Fields(exit), " ")}
	for _, line := range strings.Split(paragraphs[0], "\n") {
		p.Synopsis = append(p.Synopsis, strings.TrimSpace(strings.TrimPrefix(line, "Usage:")))
	}
	for _, line := range strings.Split(flags, "\n") {
		m := flagLine.FindStringSubmatch(line)
		if m == nil {
			return nil, fmt.Errorf("not the line of a flag: %q", line)
		}
		f := flag{Short: m[1], Name: m[2], Value: m[3], Usage: m[4]}
		if d := preset.FindStringSubmatch(f.Usage); d != nil {
			f.Default, f.Usage = d[1], strings.TrimSuffix(f.Usage, d[0])
		}
		if err := f.check(); err != nil {
			return nil, err
		}
		p.Flags = append(p.Flags, f)
	}
	return p, p.examples(examples)
}

// between finds two words that stand for those between them, too.
var between = regexp.MustCompile(`([\w.-]+) to ([\w.-]+)`)

// check returns an error if it is not known what values a flag takes, or if its usage does not have those.
func (f *flag) check() error {
	if f.Value != "" && words[f.Name] == nil && !f.files() && !slices.Contains(numbers, f.Value) {
		return fmt.Errorf("--%s %s: it is not known which values this takes; words in lab/manual/main.go says that", f.Name, f.Value)
	}
	for _, w := range words[f.Name] {
		if m := between.FindStringSubmatch(f.Usage); m != nil && m[1] < w && w < m[2] {
			continue
		}
		if !regexp.MustCompile(`(^|[^\w.-])` + regexp.QuoteMeta(w) + `($|[^\w.-]|\.$)`).MatchString(f.Usage) {
			return fmt.Errorf("--%s: its usage does not name %s", f.Name, w)
		}
	}
	return nil
}

// examples takes the examples apart. What one does is in its line, or in the next one.
func (p *page) examples(text string) error {
	for _, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		if does, ok := strings.CutPrefix(line, strings.Repeat(" ", 10)); ok && len(p.Examples) > 0 {
			last := &p.Examples[len(p.Examples)-1]
			last[1] = strings.TrimSpace(last[1] + " " + strings.TrimSpace(does))
			continue
		}
		command, does, _ := strings.Cut(strings.TrimSpace(line), "  ")
		if !strings.HasPrefix(command, "cfi2sframe ") {
			return fmt.Errorf("not an example: %q", line)
		}
		p.Examples = append(p.Examples, [2]string{command, strings.TrimSpace(does)})
	}
	return nil
}

package survive

import (
	"context"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/sframe"
)

// A verdict is what came of one subject and one tool.
type verdict string

const (
	survives verdict = "ok"      // the converted file works after the tool
	neither  verdict = "neither" // the original does not work after the tool, nor does the converted file
	fails    verdict = "FAIL"    // the original works after the tool, the converted file does not
	unfit    verdict = "none"    // the tool is not for the subject
)

// A result is a line of the table.
type result struct {
	subject             *subject
	tool                *tool
	verdict             verdict
	original, converted error  // what went wrong with each
	note                string // what else there is to know
}

func (r *result) String() string {
	line := fmt.Sprintf("%-8s%v, %v: original %s, converted %s",
		r.verdict, r.subject, r.tool, outcome(r.original), outcome(r.converted))
	if r.note != "" {
		line += "; " + r.note
	}
	return line
}

func outcome(err error) string {
	if err == nil {
		return "works"
	}
	return err.Error()
}

// A bench is where the tools are tried on one subject.
type bench struct {
	subject             *subject
	dir                 string
	original, converted string // files
	table               *cfi.Table
	covered             uint64 // bytes of code that the converted file's .sframe describes
	expected            string // what the original prints
}

// errRefused is returned for a subject that cannot be converted.
type errRefused struct{ reason string }

func (e *errRefused) Error() string { return "refused: " + e.reason }

// newBench runs the original and converts it.
func newBench(s *subject, w *workshop) (*bench, error) {
	b := &bench{subject: s, dir: filepath.Dir(s.path), original: s.path, converted: s.path + ".sframe"}
	var err error
	if b.expected, err = b.run(b.dir); err != nil {
		return nil, fmt.Errorf("the original does not run: %w", err)
	}
	out, err := command(b.dir, []string{w.cfi2sframe, "-q", b.original, "-o", b.converted})
	if err != nil {
		return nil, &errRefused{firstLine(strings.ReplaceAll(out, b.original, s.file))}
	}
	f, done, err := open(b.original)
	if err != nil {
		return nil, err
	}
	defer done()
	if b.table, err = cfi.Load(f, cfi.Auto, nil); err != nil {
		return nil, err
	}
	_, b.covered, err = b.sframe(b.converted)
	return b, err
}

// try applies the tool to both files.
func (b *bench) try(t *tool) *result {
	r := &result{subject: b.subject, tool: t, verdict: unfit}
	if !t.applies(b.subject) {
		return r
	}
	var original, converted change
	var said [2]string
	original, said[0], r.original = b.change(t, "before", b.original)
	converted, said[1], r.converted = b.change(t, "after", b.converted)
	if r.converted == nil {
		r.note, r.converted = b.kept()
	}
	if r.original == nil && r.converted == nil {
		r.converted = compare(original, converted)
	}
	if said[0] != said[1] && r.converted == nil && r.original == nil {
		r.note = strings.TrimPrefix(r.note+"; the tool says: "+firstLine(said[1]), "; ")
	}
	switch {
	case r.converted == nil:
		r.verdict = survives
	case r.original != nil:
		r.verdict = neither
	default:
		r.verdict = fails
	}
	return r
}

// change applies the tool to a copy of the file, in a folder of its own, and runs the
// result. It returns what the tool said, too.
func (b *bench) change(t *tool, side, file string) (c change, said string, err error) {
	dir := filepath.Join(b.dir, side)
	if err := os.RemoveAll(dir); err != nil {
		return c, "", err
	}
	if err := os.Mkdir(dir, 0o777); err != nil {
		return c, "", err
	}
	path := filepath.Join(dir, b.subject.file)
	if err := copyFile(file, path); err != nil {
		return c, "", err
	}
	if c.before, err = fileContents(path); err != nil {
		return c, "", err
	}
	commands, err := t.commands(b.subject)
	if err != nil {
		return c, "", err
	}
	for _, words := range commands {
		out, err := command(dir, words)
		if err != nil {
			return c, said, fmt.Errorf("tool fails (%w)", withOutput(err, out))
		}
		said += out
	}
	if err := b.sameOutput(dir); err != nil {
		return c, said, err
	}
	c.after, err = fileContents(path)
	return c, said, err
}

func fileContents(path string) (map[string]content, error) {
	f, done, err := open(path)
	if err != nil {
		return nil, err
	}
	defer done()
	return contents(f)
}

// sameOutput runs the file in a folder and expects what the original prints.
func (b *bench) sameOutput(dir string) error {
	out, err := b.run(dir)
	if err != nil {
		return fmt.Errorf("does not run (%w)", withOutput(err, out))
	}
	if out != b.expected {
		return fmt.Errorf("prints something else: %s", firstLine(out))
	}
	return nil
}

var addresses = regexp.MustCompile(`0x[0-9a-f]+`)

// run runs the subject's commands in a folder and returns what they print.
func (b *bench) run(dir string) (string, error) {
	var all string
	for _, words := range b.subject.runs {
		out, err := command(dir, words)
		if err != nil {
			return out, err
		}
		all += addresses.ReplaceAllString(out, "ADDRESS")
	}
	return all, nil
}

// kept checks that the tool left the section as it is, and notes a type that it
// changed.
func (b *bench) kept() (note string, err error) {
	s, covered, err := b.sframe(filepath.Join(b.dir, "after", b.subject.file))
	if err != nil {
		return "", err
	}
	if covered != b.covered {
		return "", fmt.Errorf(".sframe describes %d bytes of code instead of %d", covered, b.covered)
	}
	if s.Type != sframe.SHTGNUSFrame {
		note = fmt.Sprintf("the type of .sframe becomes %v", elf.SectionType(s.Type))
	}
	return note, nil
}

// sframe checks the section of a converted file. It returns how many bytes of code it
// describes.
func (b *bench) sframe(file string) (*elffile.Section, uint64, error) {
	f, done, err := open(file)
	if err != nil {
		return nil, 0, err
	}
	defer done()
	s, err := placed(f)
	if err != nil {
		return nil, 0, err
	}
	covered, err := verified(f, s, b.table)
	return s, covered, err
}

// command runs a command in a folder and returns what it prints.
func command(dir string, words []string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	return strings.ReplaceAll(string(out), dir+"/", ""), err
}

// withOutput adds what a failed command printed.
func withOutput(err error, out string) error {
	if line := firstLine(out); line != "" {
		return fmt.Errorf("%w: %s", err, line)
	}
	return err
}

// firstLine is the start of what a program printed, fit to be printed.
func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	line = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, line)
	return line[:min(len(line), 200)]
}

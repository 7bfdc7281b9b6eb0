package survive

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"cfi2sframe/cfi"
	"cfi2sframe/internal/testkit/linked"
)

// A verdict is what came of a subject and a tool.
type verdict string

const (
	survives verdict = "ok"      // the converted file works after the tool
	neither  verdict = "neither" // the original does not work after the tool, nor does the converted file
	fails    verdict = "FAIL"    // only the original works after the tool
)

// A result is what came of a subject and a tool.
type result struct {
	tool                *tool
	verdict             verdict
	original, converted error // what is wrong with each
}

func (r *result) String() string {
	outcome := func(err error) string {
		if err == nil {
			return "works"
		}
		return err.Error()
	}
	return fmt.Sprintf("original %s; converted %s", outcome(r.original), outcome(r.converted))
}

// A bench tries tools on a subject.
type bench struct {
	*subject
	env       []string
	converted string
	table     *cfi.Table
	covered   uint64 // bytes of code that the converted file's .sframe describes
	expected  string // what the original prints
}

// newBench runs the subject and converts it.
func newBench(s *subject, cfi2sframe string) (*bench, error) {
	b := &bench{subject: s, converted: s.path() + ".sframe"}
	var err error
	if b.env, err = s.environment(); err != nil {
		return nil, err
	}
	if b.expected, err = b.run(b.dir); err != nil {
		return nil, fmt.Errorf("the original does not run: %w", err)
	}
	if _, err := b.command(b.dir, cfi2sframe, "-q", s.path(), "-o", b.converted); err != nil {
		return nil, err
	}
	f, err := linked.Open(s.path())
	if err != nil {
		return nil, err
	}
	if b.table, err = cfi.Load(f, cfi.Auto, nil); err != nil {
		return nil, err
	}
	b.covered, err = b.check(b.converted)
	return b, err
}

// try applies the tool to both files.
func (b *bench) try(t *tool) *result {
	r := &result{tool: t, verdict: fails}
	var original, converted change
	original, r.original = b.change(t, "before", b.path())
	converted, r.converted = b.change(t, "after", b.converted)
	if r.converted == nil {
		var covered uint64
		covered, r.converted = b.check(filepath.Join(b.dir, "after", b.file))
		if r.converted == nil && covered != b.covered {
			r.converted = fmt.Errorf(".sframe describes %d bytes of code instead of %d", covered, b.covered)
		}
	}
	if r.original == nil && r.converted == nil {
		r.converted = compare(original, converted)
	}
	if r.converted == nil {
		r.verdict = survives
	} else if r.original != nil {
		r.verdict = neither
	}
	return r
}

// change applies the tool to a copy of the file, and runs the result.
func (b *bench) change(t *tool, side, file string) (c change, err error) {
	dir := filepath.Join(b.dir, side)
	if err := os.RemoveAll(dir); err != nil {
		return c, err
	}
	if err := os.Mkdir(dir, 0o777); err != nil {
		return c, err
	}
	path := filepath.Join(dir, b.file)
	// A copy by this process could be open in another one that it starts, and would not run then.
	if _, err := b.command(dir, "cp", file, path); err != nil {
		return c, err
	}
	if c.before, err = contents(path); err != nil {
		return c, err
	}
	commands, err := t.commands(b.subject)
	if err != nil {
		return c, err
	}
	for _, words := range commands {
		if _, err := b.command(dir, words...); err != nil {
			return c, fmt.Errorf("tool fails (%w)", err)
		}
	}
	out, err := b.run(dir)
	if err != nil {
		return c, fmt.Errorf("does not run (%w)", err)
	}
	if out != b.expected {
		return c, fmt.Errorf("prints something else: %s", firstLine(out))
	}
	c.after, err = contents(path)
	return c, err
}

var addresses = regexp.MustCompile(`0x[0-9a-f]+`)

// run runs the subject's commands in a directory and returns what they print.
func (b *bench) run(dir string) (string, error) {
	var all string
	for _, script := range b.runs {
		out, err := b.command(dir, "sh", "-c", script)
		if err != nil {
			return out, err
		}
		all += addresses.ReplaceAllString(out, "ADDRESS")
	}
	return all, nil
}

// check checks the section of a converted file, and returns the bytes of code that it describes.
func (b *bench) check(file string) (uint64, error) {
	f, err := linked.Open(file)
	if err != nil {
		return 0, err
	}
	return checked(f, b.table)
}

func (b *bench) command(dir string, words ...string) (string, error) {
	return command(dir, b.env, words...)
}

// command runs a command in a directory and returns what it prints.
func command(dir string, env []string, words ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = dir, env, time.Second
	b, err := cmd.CombinedOutput()
	out := strings.ReplaceAll(string(b), dir+"/", "")
	if line := firstLine(out); err != nil && line != "" {
		err = fmt.Errorf("%w: %s", err, line)
	}
	return out, err
}

// firstLine returns the first line of a program's output, printable and short.
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

package survive

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"cfi2sframe/cfi"
	"cfi2sframe/internal/testkit/linked"
	"cfi2sframe/lab/kit"
)

// A bench tries tools on a subject.
type bench struct {
	*subject
	env       []string
	converted string
	table     *cfi.Table
	rows      kit.Rows // of the converted file
	expected  string   // what the original prints
}

// newBench runs the subject and converts it.
func newBench(s *subject, program string) (*bench, error) {
	b := &bench{subject: s, converted: s.path() + ".sframe"}
	var err error
	if b.env, err = s.environment(); err != nil {
		return nil, err
	}
	if b.expected, err = b.run(b.dir); err != nil {
		return nil, fmt.Errorf("the original does not run: %w", err)
	}
	if _, err := kit.Convert(program, s.path(), b.converted); err != nil {
		return nil, err
	}
	f, err := linked.Open(s.path())
	if err != nil {
		return nil, err
	}
	if b.table, err = cfi.Load(f, cfi.Auto, nil); err != nil {
		return nil, err
	}
	b.rows, err = check(b.converted, b.table)
	return b, err
}

// try applies the tool to both files, and returns what is wrong with each result.
func (b *bench) try(t *tool) (original, converted error) {
	before, original := b.runTool(t, "before", b.path())
	after, converted := b.runTool(t, "after", b.converted)
	if converted == nil {
		var rows kit.Rows
		rows, converted = check(filepath.Join(b.dir, "after", b.file), b.table)
		if converted == nil && rows != b.rows {
			converted = fmt.Errorf(".sframe describes %+v instead of %+v", rows, b.rows)
		}
	}
	if original == nil && converted == nil {
		converted = compare(before, after)
	}
	return original, converted
}

// runTool applies the tool to a copy of the file, and runs the result.
func (b *bench) runTool(t *tool, side, file string) (c change, err error) {
	dir := filepath.Join(b.dir, side)
	if err := os.RemoveAll(dir); err != nil {
		return c, err
	}
	if err := os.Mkdir(dir, 0o777); err != nil {
		return c, err
	}
	path := filepath.Join(dir, b.file)
	// If this process wrote the copy, a child forked meanwhile could have it open, and running it would fail.
	if _, err := command(dir, b.env, "cp", file, path); err != nil {
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
		if _, err := command(dir, b.env, words...); err != nil {
			return c, fmt.Errorf("tool fails (%w)", err)
		}
	}
	out, err := b.run(dir)
	if err != nil {
		return c, fmt.Errorf("does not run (%w)", err)
	}
	if out != b.expected {
		return c, fmt.Errorf("prints different output: %s", firstLine(out))
	}
	c.after, err = contents(path)
	return c, err
}

var addresses = regexp.MustCompile(`0x[0-9a-f]+`)

// run runs the subject's commands in a directory and returns their output.
func (b *bench) run(dir string) (string, error) {
	var all string
	for _, script := range b.runs {
		out, err := command(dir, b.env, "sh", "-c", script)
		if err != nil {
			return out, err
		}
		all += addresses.ReplaceAllString(out, "ADDRESS")
	}
	return all, nil
}

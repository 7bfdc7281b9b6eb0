// Package survive tries tools that change linked files, such as strip and patchelf, on converted files and on the
// originals. A converted file must run like its original, and survive every tool that the original survives: the result
// must run, with a correct .sframe, and no other section may change unless the tool also changes it in the original.
package survive

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"cfi2sframe/internal/testkit/suite"
	"cfi2sframe/lab/kit"
)

// Command returns the subcommand.
func Command() *kit.Command {
	c := kit.New("survive", "", 0, 0)
	quick := c.Bool("quick", false, "test only a few subjects and tools")
	c.Run = func([]string) error {
		return kit.WithProduct(func(program, _ string) error { return tryAll(program, *quick) })
	}
	return c
}

// A count says how often the converted file works after a tool, how often neither file does, and how often only the
// original does.
type count struct{ survive, neither, fail int }

// A run tries every tool on every subject.
type run struct {
	tools []*tool

	mu     sync.Mutex
	counts map[*tool]*count
	failed bool
}

// tryAll tries every tool on every subject.
func tryAll(program string, quick bool) error {
	tools, missing := versions(quick)
	r := &run{tools: tools, counts: make(map[*tool]*count)}
	for _, t := range tools {
		r.counts[t] = new(count)
	}
	for _, err := range missing {
		r.reportMissing(err)
	}
	_ = kit.Each(subjects(), func(_ int, s *subject) error {
		if !quick || s.quick {
			r.subject(s, program)
		}
		return nil
	})
	table := kit.NewTable(os.Stdout, "tool", ">survive", ">neither file survives", ">fail")
	for _, t := range tools {
		table.Row(t, r.counts[t].survive, r.counts[t].neither, r.counts[t].fail)
	}
	if r.failed {
		return kit.ErrFound
	}
	return nil
}

// reportMissing reports that a tool or subject is missing, which fails the run if suite.Require is set.
func (r *run) reportMissing(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Printf("none    %v\n", err)
	r.failed = r.failed || os.Getenv(suite.Require) != ""
}

// subject builds and converts a subject, and tries all tools on it.
func (r *run) subject(s *subject, program string) {
	defer func() { _ = os.RemoveAll(s.dir) }()
	if err := s.build(); err != nil {
		r.reportMissing(fmt.Errorf("%v: %w", s, err))
		return
	}
	b, err := newBench(s, program)
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		fmt.Printf("FAIL    %v: %v\n", s, err)
		r.failed = true
		return
	}
	for _, t := range r.tools {
		if t.applies(s) {
			original, converted := b.try(t)
			r.count(s, t, original, converted)
		}
	}
}

// count counts the results of a tool.
func (r *run) count(s *subject, t *tool, original, converted error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case converted == nil:
		r.counts[t].survive++
	case original != nil:
		r.counts[t].neither++
		fmt.Printf("neither %v, %v: original %v; converted %v\n", s, t, original, converted)
	default:
		r.counts[t].fail++
		r.failed = true
		fmt.Printf("FAIL    %v, %v: %v\n", s, t, converted)
	}
}

// command runs a command in a directory and returns its output.
func command(dir string, env []string, words ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = dir, env, time.Second
	b, err := cmd.CombinedOutput()
	out := strings.ReplaceAll(string(b), dir+"/", "")
	if err != nil {
		err = fmt.Errorf("%w: %s", err, firstLine(out))
	}
	return out, err
}

// firstLine returns the first line of a program's output.
func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return fmt.Sprintf("%.200q", line)
}

// Package survive tries tools that change linked files, such as strip and patchelf, on converted files and on the
// originals (scripts/survive --tools), or runs programs with the runtimes of compilers (--runtimes).
//
// A converted file has to run as its original does, and to survive every tool that its original survives: the tool's
// result has to run, with a correct .sframe, and no other section may change that does not change in the original.
package survive

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"cfi2sframe/internal/testkit/suite"
	"cfi2sframe/lab/kit"
)

// Command returns the subcommand.
func Command() *kit.Command {
	c := kit.New("survive", "", 0, 0)
	quick := c.Bool("quick", false, "only a few subjects and tools")
	runtimes := c.Bool("runtimes", false, "programs with the runtimes of compilers, linked in many ways")
	jobs := c.Int("jobs", 2, "subjects or programs at a time")
	c.Run = func([]string) error {
		dir, err := os.MkdirTemp("", "survive-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		program := filepath.Join(dir, "cfi2sframe")
		if err := kit.BuildProduct(program); err != nil {
			return err
		}
		if *runtimes {
			return (&matrix{dir: dir, cfi2sframe: program}).run(*jobs)
		}
		return tryAll(program, *quick, *jobs)
	}
	return c
}

// A count says what came of a tool, or of a runtime: how often the converted file works afterwards, how often neither
// file does, and how often only the original does.
type count struct{ survive, neither, fail int }

// add counts an outcome, by what is wrong with each file, and returns it in a word.
func (c *count) add(original, converted error) string {
	switch {
	case converted == nil:
		c.survive++
		return "ok"
	case original != nil:
		c.neither++
		return "neither"
	}
	c.fail++
	return "FAIL"
}

// tryAll tries every tool on every subject.
func tryAll(program string, quick bool, jobs int) error {
	tools, missing := versions(quick)
	for _, err := range missing {
		fmt.Printf("none    %v\n", err)
	}
	counts := make(map[*tool]*count)
	for _, t := range tools {
		counts[t] = new(count)
	}
	failed := len(missing) > 0 && os.Getenv(suite.Require) != ""
	var mu sync.Mutex
	_ = kit.Each(jobs, subjects(), func(_ int, s *subject) error {
		if quick && !s.quick {
			return nil
		}
		defer func() { _ = os.RemoveAll(s.dir) }()
		err := s.build()
		if err != nil {
			mu.Lock()
			defer mu.Unlock()
			fmt.Printf("none    %v: %v\n", s, err)
			failed = failed || os.Getenv(suite.Require) != ""
			return nil
		}
		b, err := newBench(s, program)
		if err != nil {
			mu.Lock()
			defer mu.Unlock()
			fmt.Printf("FAIL    %v: %v\n", s, err)
			failed = true
			return nil
		}
		for _, t := range tools {
			if !t.applies(s) {
				continue
			}
			original, converted := b.try(t)
			mu.Lock()
			if what := counts[t].add(original, converted); what != "ok" {
				fmt.Printf("%-8s%v, %v: original %v; converted %v\n", what, s, t, describe(original), describe(converted))
			}
			failed = failed || counts[t].fail > 0
			mu.Unlock()
		}
		return nil
	})
	table := kit.NewTable(os.Stdout, "tool", ">survive", ">neither file survives", ">fail")
	for _, t := range tools {
		table.Row(t, counts[t].survive, counts[t].neither, counts[t].fail)
	}
	if failed {
		return kit.ErrFound
	}
	return nil
}

func describe(err error) string {
	if err == nil {
		return "works"
	}
	return err.Error()
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

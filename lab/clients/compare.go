package clients

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/linked"
	"cfi2sframe/lab/kit"
	"cfi2sframe/report"
)

// A result is what compare.c has counted.
type result struct {
	stacks, frames, lost uint64
	tallies              map[tally]uint64
}

// A tally is a kind of difference after a frame.
type tally struct {
	kind   string
	offset uint64 // of the return address from the file's start in memory
	file   string
}

func (r *result) n(kind string) (n uint64) {
	for t, count := range r.tallies {
		if t.kind == kind {
			n += count
		}
	}
	return n
}

// parse adds the output of compare.c.
func (r *result) parse(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return errors.New("the client has asked for no stack")
	}
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var name, ours, theirs string
		var n uint64
		var t tally
		line := lines.Text()
		if _, err = fmt.Sscanf(line, "tally %s %d %v %s %s %s", &t.kind, &n, &t.offset, &ours, &theirs, &t.file); err == nil {
			r.tallies[t] += n
			continue
		}
		if _, err := fmt.Sscanf(line, "%s %d", &name, &n); err != nil {
			return fmt.Errorf("line %q: %w", line, err)
		}
		switch name {
		case "stacks":
			r.stacks += n
		case "frames":
			r.frames += n
		case "lost":
			r.lost += n
		default:
			return fmt.Errorf("line %q: unknown", line)
		}
	}
	return lines.Err()
}

// compareAll compares stacks: count of each client, or those of one run of each program. The library does not go on by
// DWARF: where it has no row, its stack ends first.
func (l *lab) compareAll(all []pair, count int, quick bool) error {
	table := kit.NewTable(os.Stdout, "client", "program", ">stacks", ">frames", ">differ", ">SFrame ends first", ">DWARF ends first")
	var lines []string
	for _, both := range all {
		c, p := both.client, both.program
		if quick && c.timed {
			continue
		}
		if err := l.cover(c.preload, p.command[0], "--version"); err != nil {
			return err
		}
		most := uint64(max(count/len(programs), 1))
		if c.timed {
			most = min(most, fewest)
		}
		r := &result{tallies: make(map[tally]uint64)}
		for r.stacks < most {
			out := filepath.Join(l.dir, "compared")
			_ = os.Remove(out)
			env := append(l.profile(c, p), l.with(true, l.compare, c.preload)...)
			if _, _, err := start(append(env, "COMPARE_OUT="+out, "SFRAME_BACKTRACE=sframe"), p.stdin(), p.command...); err != nil {
				return err
			}
			if err := r.parse(out); err != nil {
				return fmt.Errorf("%v: %w", &both, err)
			}
		}
		table.Row(c.name, p.name, r.stacks, r.frames, r.n("differ"), r.n("behind"), r.n("ahead"))
		if n := r.n("differ") + r.lost; n > 0 {
			l.bad = append(l.bad, fmt.Sprintf("%v: %d stacks differ in a frame that both find", &both, n))
		}
		for _, line := range explain(r, p.command[0]) {
			lines = append(lines, fmt.Sprintf("%v: %s", &both, line))
		}
	}
	fmt.Println("\n" + strings.Join(lines, "\n"))
	return nil
}

// fewest is the number of stacks in place of a larger one, where a second of processor time gives some hundreds.
const fewest = 1000

var kinds = map[string]string{"behind": "SFrame ends first", "ahead": "DWARF ends first", "differ": "DIFFERENT CALLERS"}

// explain describes differences with their number: the function, and its address for readelf --debug-dump=frames-interp.
func explain(r *result, program string) []string {
	reasons := make(map[string]uint64)
	for t, n := range r.tallies {
		file := t.file
		if !strings.Contains(file, "/") && file != "?" {
			file = cmp.Or(program, file)
		}
		what := fmt.Sprintf("%s after %s+%#x", kinds[t.kind], filepath.Base(file), t.offset)
		if f, err := linked.Open(file); err == nil {
			at := report.Locate(f, nil, []report.Range{{Begin: base(f) + t.offset - 1, End: base(f) + t.offset}})[0]
			what += " in " + at.Function
		}
		reasons[what] += n
	}
	return kit.Ranked(reasons)
}

// base returns the page that the file's first segment begins with.
func base(f *elffile.File) uint64 {
	const page = 4096
	for i := range f.Progs {
		if f.Progs[i].Type == 1 {
			return f.Progs[i].Vaddr &^ (page - 1)
		}
	}
	return 0
}

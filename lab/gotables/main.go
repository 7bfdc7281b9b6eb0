// Package gotables compares the rows that cfi2sframe makes from the table of a stripped Go program with those of the
// program's .debug_frame, at every pc that either describes. It also runs programs whose stacks it walks by .sframe:
// with known calls, with faults, and preempted. Judges are runtime.Callers and the bounds of the stacks.
package gotables

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/arch"
	"cfi2sframe/internal/testkit/linked"
	"cfi2sframe/lab/kit"
)

// Command returns the subcommand. FILEs are Go programs with .debug_frame, RELEASEs those of Go for
// --run, such as 1.27.4.
func Command() *kit.Command {
	c := kit.New("gotables", "[FILE... | RELEASE...]", 0, math.MaxInt)
	verbose := c.Bool("verbose", false, "print each range that differs")
	dir := c.String("build", "", "also compare programs that are built in `DIR`, if they are missing there")
	run := c.String("run", "", "build programs in `DIR`, run them, and compare walks of their stacks with runtime.Callers")
	quick := c.Bool("quick", false, "with --run: three programs of a release, by default the newest")
	c.Run = func(args []string) error {
		if *run != "" {
			wrong, err := runAll(*run, args, *quick, *verbose)
			if err == nil && wrong > 0 {
				err = fmt.Errorf("%d walks are wrong", wrong)
			}
			return err
		}
		if *dir == "" && len(args) == 0 {
			return errors.New("no FILE, no --build DIR and no --run DIR")
		}
		all := make(counts)
		if *dir != "" {
			built, err := buildAll(*dir)
			if err != nil {
				return err
			}
			args = append(args, built...)
		}
		for _, name := range args {
			n, err := compareFile(name, *verbose)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			n.print(os.Stdout, filepath.Base(name))
			for k, v := range n {
				all[k] += v
			}
		}
		all.print(os.Stdout, "total")
		return nil
	}
	return c
}

// counts are bytes of code by how the two sources compare.
type counts map[string]uint64

func (n counts) print(w io.Writer, name string) {
	fmt.Fprintf(w, "%s:", name)
	for _, k := range slices.Sorted(maps.Keys(n)) {
		fmt.Fprintf(w, " %s %d;", k, n[k])
	}
	fmt.Fprintln(w)
}

func compareFile(name string, verbose bool) (counts, error) {
	f, err := linked.Open(name)
	if err != nil {
		return nil, err
	}
	debug, err := load(f, cfi.DebugFrame)
	if err != nil {
		return nil, err
	}
	stripped, err := strip(name, f.Machine)
	if err != nil {
		return nil, err
	}
	table, err := load(stripped, cfi.GoPCLNTab)
	if err != nil {
		return nil, err
	}
	n := make(counts)
	a := arch.Of(elf.Machine(f.Machine))
	merge(debug, table, func(begin, end uint64, d, t *cfi.Row, fn *cfi.Function) {
		how := relation(a, d, t, fn)
		n[how] += end - begin
		if verbose && how != equal && how != moreFP {
			fmt.Printf("%#x-%#x: %s: .debug_frame %v; table %v\n", begin, end, how, rules(d), rules(t))
		}
	})
	return n, nil
}

// strip reads a copy of the program without .debug_frame.
func strip(name string, m uint16) (*elffile.File, error) {
	dir, err := os.MkdirTemp("", "gotables")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "stripped")
	tool := tools[elf.Machine(m)] + "-linux-gnu-strip"
	if b, err := exec.Command(tool, "-o", out, name).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", tool, err, b)
	}
	return linked.Open(out)
}

var tools = map[elf.Machine]string{elf.EM_X86_64: "x86_64", elf.EM_AARCH64: "aarch64", elf.EM_S390: "s390x"}

func load(f *elffile.File, src cfi.Source) (*cfi.Table, error) {
	t, err := cfi.Load(f, src, nil)
	if err == nil && t.NumErrors > 0 {
		err = t.Errors[0]
	}
	return t, err
}

func rules(r *cfi.Row) any {
	if r == nil {
		return "nothing"
	}
	return r.Rules
}

// rows returns the rows of a table by address.
func rows(t *cfi.Table) (all []cfi.Row, of []*cfi.Function) {
	for fn := range t.Functions() {
		for row := range fn.Rows() {
			all, of = append(all, row), append(of, fn)
		}
	}
	return all, of
}

// merge calls fn for each range of code that either table describes.
func merge(debug, table *cfi.Table, fn func(begin, end uint64, d, t *cfi.Row, of *cfi.Function)) {
	a, _ := rows(debug)
	b, of := rows(table)
	for i, j, at := 0, 0, uint64(0); i < len(a) || j < len(b); {
		begin, end := uint64(math.MaxUint64), uint64(math.MaxUint64)
		border := func(x uint64) {
			if x > begin {
				end = min(end, x)
			}
		}
		if i < len(a) {
			begin = max(at, a[i].Begin)
		}
		if j < len(b) {
			begin = min(begin, max(at, b[j].Begin))
		}
		var d, t *cfi.Row
		var function *cfi.Function
		if i < len(a) {
			border(a[i].Begin)
			border(a[i].End)
			if a[i].Begin <= begin {
				d = &a[i]
			}
		}
		if j < len(b) {
			border(b[j].Begin)
			border(b[j].End)
			if b[j].Begin <= begin {
				t, function = &b[j], of[j]
			}
		}
		fn(begin, end, d, t, function)
		if at = end; d != nil && d.End == end {
			i++
		}
		if t != nil && t.End == end {
			j++
		}
	}
}

// How rows compare.
const (
	equal  = "equal"
	moreFP = "table knows where FP is"
)

// relation says how the rows of a range compare.
func relation(a *arch.Arch, d, t *cfi.Row, fn *cfi.Function) string {
	switch {
	case d == nil:
		return "table only"
	case t == nil:
		return ".debug_frame only"
	case t.RA.Rule == cfi.RuleUndefined:
		return "outermost in the table"
	case fn.SwitchesStack() && t.CFA.Rule == cfi.RuleUndefined:
		return "gap where the stack switches"
	case fn.SwitchesStack() && t.CFA.Reg == a.FP && t.CFA.Reg != d.CFA.Reg:
		return "by FP where the stack switches"
	case t.CFA.Reg != d.CFA.Reg || callerSP(a, t) != d.CFA.Offset:
		return "CFA DIFFERS"
	case saved(t) != saved(d) || saved(t) && t.CFA.Offset+t.RA.Offset != d.CFA.Offset+d.RA.Offset:
		return "RA DIFFERS"
	case t.FP.Rule == d.FP.Rule && t.FP.Offset == d.FP.Offset:
		return equal
	case t.FP.Rule == cfi.RuleOffset && d.FP.Rule == cfi.RuleArchitectural:
		return moreFP
	}
	return "FP DIFFERS"
}

// callerSP returns the caller's stack pointer from that of the row. Go's linker calls it CFA on all machines.
func callerSP(a *arch.Arch, r *cfi.Row) int64 { return r.CFA.Offset + a.CallerSP }

func saved(r *cfi.Row) bool { return r.RA.Rule == cfi.RuleOffset }

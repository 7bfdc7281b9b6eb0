package step

import (
	"cmp"
	"fmt"
	"io"
	"slices"
)

// A Report is the result of a run.
type Report struct {
	Machine string
	Steps   uint64
	// Steps without a CFI answer to compare: in code without a caller, according to the CFI; in frames with an unknown
	// caller, such as those that existed at the start; in code without CFI.
	Outermost, Unknown, Silent uint64
	Target                     uint64 // steps before a jump whose target the CFI predicted
	Inferred                   uint64 // steps with a row from instructions

	Calls    uint64
	Returns  uint64 // that matched a call
	Jumps    uint64 // across frames: longjmp, exceptions
	Signals  uint64
	Threads  uint64
	Switches uint64 // switches from one stack to another

	Sides    [sides]Side // the CFI, and each version of SFrame
	Findings []Finding
	Errors   []string // about files that could not be read or converted
}

// A Side counts the answers of the CFI or a version of SFrame.
type Side struct {
	Right   uint64
	Wrong   uint64 // for SFrame, only answers that differ from the CFI
	Repeats uint64 // SFrame repeats the CFI's wrong answer
	Gaps    uint64 // the CFI has an answer, but SFrame does not
}

// A Finding is a range of instructions with the same wrong answer.
type Finding struct {
	File, Function string
	Side           string // "CFI" or "SFrame V2"
	Begin, Last    uint64 // addresses of the first and the last instruction
	Offset         uint64 // of Begin from the start of the function
	Wrong          string // any of CFA, RA, FP; or caller (the answer denies one); or address (memory is not readable)
	Says, Truth    string
	Steps          uint64
}

// Faults returns the number of steps in which SFrame is wrong, except where it repeats the CFI.
func (r *Report) Faults() uint64 {
	var n uint64
	for _, s := range r.Sides[1:] {
		n += s.Wrong
	}
	return n
}

func sideName(side int) string {
	if side == 0 {
		return "CFI"
	}
	return fmt.Sprintf("SFrame V%d", side)
}

// finish makes the report.
func (w *walk) finish() *Report {
	r := &w.Report
	for _, s := range w.sites {
		if s.answers[0] == nil {
			r.Silent += s.steps
			continue
		}
		for v, section := range s.module.sections {
			if section != nil && s.answers[v] == nil {
				r.Sides[v].Gaps += s.steps
			}
		}
	}
	w.collectFindings()
	return r
}

// collectFindings collects the wrong answers, and merges those at adjacent instructions.
func (w *walk) collectFindings() {
	r := &w.Report
	var list []Finding
	for _, d := range w.diffs {
		if d.side == 0 {
			r.Target += d.target
		}
		if d.steps -= d.target; d.steps == 0 {
			continue
		}
		r.Sides[d.side].Wrong += d.steps
		name, begin := d.site.symbol()
		list = append(list, Finding{
			File: d.site.module.path, Function: name, Side: sideName(d.side),
			Begin: d.site.addr, Last: d.site.addr, Offset: d.site.addr - begin,
			Wrong: d.wrong, Says: w.m.describe(d.site.answers[d.side]), Truth: d.truth,
			Steps: d.steps,
		})
	}
	slices.SortFunc(list, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Side, b.Side), cmp.Compare(a.File, b.File),
			cmp.Compare(a.Begin-a.Offset, b.Begin-b.Offset), // start of the function
			cmp.Compare(a.Wrong, b.Wrong), cmp.Compare(a.Begin, b.Begin))
	})
	for _, f := range list {
		if n := len(r.Findings); n > 0 {
			last := &r.Findings[n-1]
			same := *last
			same.Begin, same.Last, same.Offset, same.Steps = f.Begin, f.Last, f.Offset, f.Steps
			if same == f {
				last.Last, last.Steps = f.Last, last.Steps+f.Steps
				continue
			}
		}
		r.Findings = append(r.Findings, f)
	}
}

// Text writes the report.
func (r *Report) Text(out io.Writer) {
	fmt.Fprintf(out, "%d steps on %s: %d calls, %d returns, %d jumps over frames, ",
		r.Steps, r.Machine, r.Calls, r.Returns, r.Jumps)
	fmt.Fprintf(out, "%d signals, %d threads, %d stack switches\n", r.Signals, r.Threads, r.Switches)
	for _, e := range r.Errors {
		fmt.Fprintf(out, "  %s\n", e)
	}
	cfi := r.Sides[0]
	fmt.Fprintf(out, "  CFI: right in %d, wrong in %d, no caller in %d, predicts a jump in %d; ",
		cfi.Right, cfi.Wrong, r.Outermost, r.Target)
	fmt.Fprintf(out, "none in %d; caller unknown in %d\n", r.Silent, r.Unknown)
	if r.Inferred > 0 {
		fmt.Fprintf(out, "  rows from instructions in %d\n", r.Inferred)
	}
	for v, s := range r.Sides {
		if v > 0 && s != (Side{}) {
			fmt.Fprintf(out, "  SFrame V%d: right in %d, repeats the CFI's errors in %d, ", v, s.Right, s.Repeats)
			fmt.Fprintf(out, "wrong by itself in %d, no row in %d\n", s.Wrong, s.Gaps)
		}
	}
	for i, f := range r.Findings {
		if i == 0 || f.Function != r.Findings[i-1].Function || f.Side != r.Findings[i-1].Side {
			fmt.Fprintf(out, "  %s of %s, %s:\n", f.Function, f.File, f.Side)
		}
		fmt.Fprintf(out, "    %#x to %#x (+%#x), %d steps: wrong %s; it says %s; %s\n",
			f.Begin, f.Last, f.Offset, f.Steps, f.Wrong, f.Says, f.Truth)
	}
}

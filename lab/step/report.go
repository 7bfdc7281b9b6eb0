package step

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"cfi2sframe/report"
)

// A Report says what was found in a run.
type Report struct {
	Machine string
	Steps   uint64
	// Steps without an answer of the CFI to compare: in code without a caller, which the CFI says; in frames whose
	// caller is not known, such as those below the start of a run; in code without CFI.
	Outermost, Unknown, Silent uint64
	Target                     uint64 // steps before a jump, for which the CFI said where it goes

	Calls    uint64
	Returns  uint64 // that matched a call
	Jumps    uint64 // over frames: longjmp, exceptions
	Signals  uint64
	Threads  uint64
	Switches uint64 // from one stack to another

	Sides    [sides]Side // the CFI, and each version of SFrame
	Lookups  [sides]Lookups
	Findings []Finding
	Gaps     []Gap
	Cuts     []Gap    // where walks of the stack ended
	Errors   []string // of files that could not be read, or converted
}

// A Side is how many steps had which answer.
type Side struct {
	Right   uint64
	Wrong   uint64 // of SFrame: neither true, nor what the CFI says
	Repeats uint64 // SFrame says what the CFI does, which is wrong
	Gaps    uint64 // the CFI has an answer, and SFrame has none
	// Walks of the whole stack that came to its start, and others.
	Whole, Cut uint64
}

// Lookups are what readers find at calls in code whose caller is known. Some look up the return address, others the byte
// before it. A row of SFrame that needs registers other than SP and FP counts as none.
type Lookups struct{ Return, Before Found }

// A Found counts lookups.
type Found struct{ Right, Wrong, None uint64 }

// Add adds the lookups of another run.
func (l *Lookups) Add(o Lookups) {
	for _, x := range []struct{ sum, n *Found }{{&l.Return, &o.Return}, {&l.Before, &o.Before}} {
		x.sum.Right += x.n.Right
		x.sum.Wrong += x.n.Wrong
		x.sum.None += x.n.None
	}
}

// A Finding is a range of instructions with the same wrong answer.
type Finding struct {
	File, Function string
	Side           string // "CFI" or "SFrame V2"
	Begin, Last    uint64 // addresses of the first and the last instruction
	Offset         uint64 // of Begin, in the function
	Wrong          string // CFA, RA, FP; caller: it says there is none; address: it leads nowhere
	Says, Truth    string
	Steps          uint64
	Confirmed      uint64 // steps in frames that ended by a return
}

// A Gap is a function with steps that have no answer.
type Gap struct {
	File, Function string
	Side, Reason   string
	Steps          uint64
}

// Faults returns the number of steps in which SFrame is wrong and the CFI is not, or differently so.
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
	listed := make(map[*module][]*site)
	for _, s := range w.sites {
		if s.steps > 0 && s.module != nil && s.module.file != nil {
			listed[s.module] = append(listed[s.module], s)
		}
	}
	places := make(map[*site]place)
	for m, sites := range listed {
		maps.Copy(places, m.places(sites))
	}
	w.findings(places)
	w.gaps(places)
	return r
}

func (w *walk) findings(places map[*site]place) {
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
		s, p := d.site, places[d.site]
		list = append(list, Finding{
			File: s.module.path, Function: p.function, Side: sideName(d.side),
			Begin: s.addr, Last: s.addr, Offset: s.addr - p.begin,
			Wrong: d.wrong, Says: w.m.describe(s.answers[d.side]), Truth: d.truth,
			Steps: d.steps, Confirmed: d.confirmed,
		})
	}
	slices.SortFunc(list, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Side, b.Side), cmp.Compare(a.File, b.File),
			cmp.Compare(a.Begin-a.Offset, b.Begin-b.Offset), // where the function begins
			cmp.Compare(a.Wrong, b.Wrong), cmp.Compare(a.Begin, b.Begin))
	})
	for _, f := range list {
		if n := len(r.Findings); n > 0 {
			last := &r.Findings[n-1]
			same := *last
			same.Begin, same.Last, same.Offset = f.Begin, f.Last, f.Offset
			same.Steps, same.Confirmed = f.Steps, f.Confirmed
			if same == f {
				last.Last, last.Steps, last.Confirmed = f.Last, last.Steps+f.Steps, last.Confirmed+f.Confirmed
				continue
			}
		}
		r.Findings = append(r.Findings, f)
	}
}

// gaps sums up steps without an answer.
func (w *walk) gaps(places map[*site]place) {
	r := &w.Report
	sums, cuts := make(map[Gap]uint64), make(map[Gap]uint64)
	for _, s := range w.sites {
		g := Gap{File: "code in no file", Side: "CFI", Function: places[s].function}
		if s.module != nil {
			g.File = s.module.path
		}
		for v, n := range s.cut {
			if n > 0 {
				cuts[Gap{File: g.File, Function: g.Function, Side: sideName(v)}] += n
			}
		}
		if s.answers[0] == nil {
			r.Silent += s.steps
			sums[g] += s.steps
			continue
		}
		for v, sec := range s.module.sections {
			if sec != nil && s.answers[v] == nil {
				r.Sides[v].Gaps += s.steps
				g.Side, g.Reason = sideName(v), sec.reason(s.addr)
				sums[g] += s.steps
			}
		}
	}
	r.Gaps, r.Cuts = sorted(sums), sorted(cuts)
}

// sorted lists the gaps with steps.
func sorted(sums map[Gap]uint64) (list []Gap) {
	for g, n := range sums {
		if g.Steps = n; n > 0 {
			list = append(list, g)
		}
	}
	slices.SortFunc(list, func(a, b Gap) int {
		return cmp.Or(cmp.Compare(a.Side, b.Side), cmp.Compare(b.Steps, a.Steps),
			cmp.Compare(a.File, b.File), cmp.Compare(a.Function, b.Function))
	})
	return list
}

// reason returns why the section has no row for an address.
func (s *section) reason(addr uint64) string {
	for _, g := range s.gaps {
		if g.Begin <= addr && addr < g.End {
			return g.Text
		}
	}
	return "no row"
}

// Text writes the report, with up to most findings and gaps; a negative number stands for all.
func (r *Report) Text(out io.Writer, most int) error {
	var b strings.Builder
	n := report.Digits
	fmt.Fprintf(&b, "%s steps on %s: %s calls, %s returns, %s jumps over frames, ",
		n(r.Steps), r.Machine, n(r.Calls), n(r.Returns), n(r.Jumps))
	fmt.Fprintf(&b, "%s signals, %s threads, %s changes of the stack\n", n(r.Signals), n(r.Threads), n(r.Switches))
	for _, e := range r.Errors {
		fmt.Fprintf(&b, "  %s\n", e)
	}
	cfi := r.Sides[0]
	fmt.Fprintf(&b, "  CFI: right in %s, wrong in %s, no caller in %s, where a jump goes in %s; ",
		n(cfi.Right), n(cfi.Wrong), n(r.Outermost), n(r.Target))
	fmt.Fprintf(&b, "none in %s; caller unknown in %s\n", n(r.Silent), n(r.Unknown))
	for v, s := range r.Sides {
		if v > 0 && s != (Side{}) {
			fmt.Fprintf(&b, "  SFrame V%d: right in %s, repeats the CFI's errors in %s, ", v, n(s.Right), n(s.Repeats))
			fmt.Fprintf(&b, "wrong by itself in %s, no row in %s\n", n(s.Wrong), n(s.Gaps))
		}
		if all := s.Whole + s.Cut; all > 0 {
			fmt.Fprintf(&b, "  SFrame V%d: %s of %s stacks walked to their start (%.2f %%)\n", v, n(s.Whole), n(all),
				100*float64(s.Whole)/float64(all))
		}
	}
	for side, l := range r.Lookups {
		if side > 0 && r.Sides[side] == (Side{}) {
			continue
		}
		for _, x := range []struct {
			by string
			Found
		}{{"the return address", l.Return}, {"the byte before it", l.Before}} {
			fmt.Fprintf(&b, "  %s at calls, by %s: right in %s, wrong in %s, none in %s\n", sideName(side), x.by, n(x.Right),
				n(x.Wrong), n(x.None))
		}
	}
	last := ""
	for i, f := range r.Findings {
		if i == most {
			fmt.Fprintf(&b, "  ...\n")
			break
		}
		if head := fmt.Sprintf("%s of %s, %s", f.Function, f.File, f.Side); head != last {
			fmt.Fprintf(&b, "  %s:\n", head)
			last = head
		}
		fmt.Fprintf(&b, "    %#x", f.Begin)
		if f.Last != f.Begin {
			fmt.Fprintf(&b, " to %#x", f.Last)
		}
		fmt.Fprintf(&b, " (+%#x), %s steps", f.Offset, n(f.Steps))
		if f.Confirmed < f.Steps {
			fmt.Fprintf(&b, " (%s in frames that did not end by a return)", n(f.Steps-f.Confirmed))
		}
		fmt.Fprintf(&b, ": wrong %s; it says %s; %s\n", f.Wrong, f.Says, f.Truth)
	}
	list := func(gaps []Gap, what string) {
		for i, g := range gaps {
			if i == most {
				fmt.Fprintf(&b, "  ...\n")
				break
			}
			fmt.Fprintf(&b, "  "+what+" in %s", g.Side, n(g.Steps), g.File)
			for _, more := range []string{g.Function, g.Reason} {
				if more != "" {
					fmt.Fprintf(&b, ", %s", report.Printable(more))
				}
			}
			fmt.Fprintln(&b)
		}
	}
	list(r.Gaps, "no %s: %s steps")
	list(r.Cuts, "stacks by %s: %s end")
	_, err := io.WriteString(out, b.String())
	return err
}

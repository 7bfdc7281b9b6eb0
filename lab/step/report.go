package step

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"cfi2sframe/report"
	"cfi2sframe/sframe"
)

// A Report says what was found in a run.
type Report struct {
	Machine string `json:"machine"`
	Steps   uint64 `json:"steps"`
	// What steps were: the CFI was right; in code without a caller, which it says; in frames whose caller nobody
	// knows, such as those below the start of a run. The others are in Functions, and in Silent.
	Right     uint64 `json:"right"`
	Outermost uint64 `json:"outermost"`
	Unknown   uint64 `json:"unknown"`
	Silent    uint64 `json:"silent"` // in code without CFI

	Calls    uint64 `json:"calls"`
	Returns  uint64 `json:"returns"` // that matched a call
	Jumps    uint64 `json:"jumps"`   // over frames: longjmp, exceptions
	Target   uint64 `json:"target"`  // steps before a jump, of which the CFI said where it goes
	Signals  uint64 `json:"signals"`
	Threads  uint64 `json:"threads"`
	Switches uint64 `json:"switches"` // from one stack to another

	Sections  []SectionReport `json:"sections"`
	Files     []FileReport    `json:"files"`
	Functions []Function      `json:"functions"` // in which a side is wrong
	Gaps      []Gap           `json:"gaps"`
	NoCFI     []Gap           `json:"no_cfi"`

	diffs []*Diff
}

// A SectionReport sums up what SFrame of one version said.
type SectionReport struct {
	Version sframe.Version `json:"version"`
	Right   uint64         `json:"right"`   // steps
	Gaps    uint64         `json:"gaps"`    // steps in code that CFI describes, and it does not
	Repeats uint64         `json:"repeats"` // steps in which it says what the CFI does, which is wrong
	Faults  uint64         `json:"faults"`  // steps in which it is wrong, and does not say what the CFI does
	Stubs   uint64         `json:"stubs"`   // steps in code that CFI does not describe, and it does
}

// A FileReport says what a file had to do with it.
type FileReport struct {
	Path      string   `json:"path"`
	Steps     uint64   `json:"steps"`
	Sites     int      `json:"sites"`     // instructions
	Functions []uint64 `json:"functions"` // where those begin whose code was executed, and that CFI describes
	Own       []int    `json:"own"`       // the version of the section that is in the file
	Error     string   `json:"error,omitempty"`
}

// A Diff is a difference at an instruction.
type Diff struct {
	site *site
	side int // 0 for the CFI, or the number of a section plus 1
	bits int
	next *Diff

	Steps     uint64
	Confirmed uint64 // of these, in frames that have ended as the truth said
	Target    uint64 // of these, where the answer was where the frame has jumped to
	Truth     string
}

// A Function is a function of which a side says what is not so.
type Function struct {
	File string `json:"file"`
	Name string `json:"name"`
	// Side is "CFI" or the version of a section; where the section says what the CFI does, that is one fault, of
	// the CFI.
	Side   string  `json:"side"`
	Places []Place `json:"places"`
}

// A Place is a range of instructions with the same difference.
type Place struct {
	Begin     uint64 `json:"begin"` // address of the first instruction
	Last      uint64 `json:"last"`  // address of the last one
	Offset    uint64 `json:"offset"`
	What      string `json:"what"`  // is wrong: CFA, RA, FP
	Says      string `json:"says"`  // the answer
	Truth     string `json:"truth"` // at its first step
	Steps     uint64 `json:"steps"`
	Confirmed uint64 `json:"confirmed"`
}

// A Gap is a function of which steps have no answer.
type Gap struct {
	File    string         `json:"file"`
	Name    string         `json:"name"`
	Version sframe.Version `json:"version,omitempty"`
	Reason  string         `json:"reason,omitempty"`
	Steps   uint64         `json:"steps"`
}

// Faults returns how many steps have an answer of SFrame that is wrong where the CFI is right, or that is not what the
// CFI says.
func (r *Report) Faults() uint64 {
	var n uint64
	for _, s := range r.Sections {
		n += s.Faults
	}
	return n
}

// Wrong returns in how many steps the CFI is wrong.
func (r *Report) Wrong() uint64 {
	var n uint64
	for _, f := range r.Functions {
		for _, p := range f.Places {
			if f.Side == "CFI" {
				n += p.Steps
			}
		}
	}
	return n
}

func what(bits int) string {
	var s []string
	for i, name := range []string{"CFA", "RA", "FP", "caller", "address"} {
		if bits>>i&1 != 0 {
			s = append(s, name)
		}
	}
	return strings.Join(s, ", ")
}

// finish makes the report.
func (w *Walk) finish() *Report {
	r := &w.Report
	r.Machine = "?"
	if w.m != nil {
		r.Machine = w.m.Name
		if w.m.Little != 0 && w.m.Big != 0 && w.m.ABI(w.m.order) == w.m.Big {
			r.Machine += "_be"
		}
	}
	type key struct {
		mod  *module
		name string
		side string
	}
	type spot struct {
		d *Diff
		b uint64 // where the function begins
	}
	places := make(map[key][]spot)
	for _, d := range r.diffs {
		s := d.site
		if d.side == 0 {
			r.Target += d.Target
		}
		if d.Steps -= d.Target; d.Steps == 0 {
			continue
		}
		if d.side > 0 {
			r.Sections[d.side-1].Faults += d.Steps
		}
		side := "CFI"
		if d.side > 0 {
			side = fmt.Sprintf("SFrame V%d", r.Sections[d.side-1].Version)
		}
		name, begin := s.mod.function(s.addr)
		k := key{s.mod, name, side}
		places[k] = append(places[k], spot{d, begin})
	}
	for k, spots := range places {
		slices.SortFunc(spots, func(a, b spot) int {
			return cmp.Or(cmp.Compare(a.d.bits, b.d.bits), cmp.Compare(a.d.site.addr, b.d.site.addr))
		})
		f := Function{File: k.mod.path, Name: k.name, Side: k.side}
		for _, sp := range spots {
			d, s := sp.d, sp.d.site
			says := w.m.describe(s.answers[d.side])
			if n := len(f.Places); n > 0 {
				if p := &f.Places[n-1]; p.What == what(d.bits) && p.Says == says && p.Truth == d.Truth {
					p.Last, p.Steps, p.Confirmed = s.addr, p.Steps+d.Steps, p.Confirmed+d.Confirmed
					continue
				}
			}
			f.Places = append(f.Places, Place{s.addr, s.addr, s.addr - sp.b, what(d.bits), says, d.Truth, d.Steps, d.Confirmed})
		}
		slices.SortStableFunc(f.Places, func(a, b Place) int { return cmp.Compare(a.Begin, b.Begin) })
		r.Functions = append(r.Functions, f)
	}
	slices.SortFunc(r.Functions, func(a, b Function) int {
		return cmp.Or(cmp.Compare(a.Side, b.Side), cmp.Compare(a.File, b.File), cmp.Compare(a.Places[0].Begin, b.Places[0].Begin))
	})
	w.gaps()
	return r
}

// gaps sums up steps without an answer.
func (w *Walk) gaps() {
	r := &w.Report
	files := make(map[*module]*FileReport)
	functions := make(map[*module]map[int]bool)
	sums := make(map[Gap]uint64)
	add := func(g Gap, n uint64) {
		if n > 0 {
			sums[g] += n
		}
	}
	for _, s := range append(slices.Clone(w.sites), w.lost) {
		known := s.steps - s.outer - s.unknown // steps whose truth is known
		if s.mod == nil || s.mod.file == nil {
			path := "code in no file"
			if s.mod != nil {
				path = s.mod.path
			}
			r.Silent += known
			add(Gap{File: path}, known)
			continue
		}
		m := s.mod
		f := files[m]
		if f == nil {
			f = &FileReport{Path: m.path}
			files[m], functions[m] = f, make(map[int]bool)
		}
		f.Steps += s.steps
		f.Sites++
		if s.fn >= 0 {
			functions[m][s.fn] = true
		}
		name := ""
		lazy := func() string {
			if name == "" {
				name, _ = m.function(s.addr)
			}
			return name
		}
		if s.answers[0] == nil {
			r.Silent += known
			if known > 0 {
				add(Gap{File: m.path, Name: lazy()}, known)
			}
		}
		for i := range r.Sections {
			switch c := &r.Sections[i]; {
			case s.answers[i+1] != nil && s.answers[0] == nil:
				c.Stubs += known
			case s.answers[i+1] == nil && s.answers[0] != nil && m.sections[i] != nil && known > 0:
				c.Gaps += known
				add(Gap{File: m.path, Name: lazy(), Version: c.Version, Reason: m.sections[i].reason(s.addr)}, known)
			}
		}
	}
	for g, n := range sums {
		g.Steps = n
		if g.Version == 0 {
			r.NoCFI = append(r.NoCFI, g)
		} else {
			r.Gaps = append(r.Gaps, g)
		}
	}
	for _, l := range [][]Gap{r.NoCFI, r.Gaps} {
		slices.SortFunc(l, func(a, b Gap) int {
			return cmp.Or(cmp.Compare(b.Steps, a.Steps), cmp.Compare(a.File, b.File), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version))
		})
	}
	for _, m := range w.order {
		f := files[m]
		if f == nil {
			f = &FileReport{Path: m.path}
		}
		for fn := range functions[m] {
			f.Functions = append(f.Functions, m.table.At(fn).Begin)
		}
		slices.Sort(f.Functions)
		for _, s := range m.sections {
			if s != nil && s.own {
				f.Own = append(f.Own, int(s.Version))
			}
		}
		if m.err != nil {
			f.Error = m.err.Error()
		}
		r.Files = append(r.Files, *f)
	}
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

// Text writes the report for people, with the given number of functions and gaps at most; a negative number stands for all.
func (r *Report) Text(out io.Writer, most int) error {
	var b strings.Builder
	n := report.Digits
	fmt.Fprintf(&b, "%s steps on %s in %d files: %s calls, %s returns, %s jumps over frames, %s signals, %s threads, %s changes of the stack\n",
		n(r.Steps), r.Machine, len(r.Files), n(r.Calls), n(r.Returns), n(r.Jumps), n(r.Signals), n(r.Threads), n(r.Switches))
	for _, f := range r.Files {
		if f.Error != "" {
			fmt.Fprintf(&b, "  %s: %s\n", f.Path, f.Error)
		}
	}
	fmt.Fprintf(&b, "  CFI: right in %s, wrong in %s, says rightly that there is no caller in %s, or where a jump goes in %s; none in %s; the caller is not known in %s\n",
		n(r.Right), n(r.Wrong()), n(r.Outermost), n(r.Target), n(r.Silent), n(r.Unknown))
	for _, s := range r.Sections {
		if s.Right+s.Gaps+s.Repeats+s.Faults+s.Stubs > 0 {
			fmt.Fprintf(&b, "  SFrame V%d: right in %s, repeats what is wrong in %s, faults of its own in %s, no row in %s; rows without CFI in %s\n",
				s.Version, n(s.Right), n(s.Repeats), n(s.Faults), n(s.Gaps), n(s.Stubs))
		}
	}
	left := most
	for _, f := range r.Functions {
		if left == 0 {
			fmt.Fprintf(&b, "  ...\n")
			break
		}
		left--
		fmt.Fprintf(&b, "  %s of %s, %s:\n", f.Name, f.File, f.Side)
		for _, p := range f.Places {
			where := fmt.Sprintf("%#x", p.Begin)
			if p.Last != p.Begin {
				where = fmt.Sprintf("%#x to %#x", p.Begin, p.Last)
			}
			doubt := ""
			if p.Confirmed < p.Steps {
				doubt = fmt.Sprintf(", of which %s in frames that did not end by a return", n(p.Steps-p.Confirmed))
			}
			fmt.Fprintf(&b, "    %s (+%#x), %s steps%s: wrong %s; it says %s; %s\n", where, p.Offset, n(p.Steps), doubt, p.What, p.Says, p.Truth)
		}
	}
	for _, l := range []struct {
		what string
		gaps []Gap
	}{{"no CFI", r.NoCFI}, {"no row", r.Gaps}} {
		left := most
		for _, g := range l.gaps {
			if left == 0 {
				fmt.Fprintf(&b, "  ...\n")
				break
			}
			left--
			fmt.Fprintf(&b, "  %s: %s steps in %s", l.what, n(g.Steps), g.File)
			if g.Name != "" {
				fmt.Fprintf(&b, ", %s", report.Printable(g.Name))
			}
			if g.Version != 0 {
				fmt.Fprintf(&b, ", SFrame V%d: %s", g.Version, g.Reason)
			}
			fmt.Fprintln(&b)
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

package sample

import (
	"fmt"
	"strings"
)

// A row is a program in one version.
type row struct {
	subject *subject
	version int
	plain   *result // without sections
	result  *result
	why     []string
}

// depth returns the mean number of frames.
func (r *result) depth() float64 { return r.n("frames") / max(r.n("samples"), 1) }

// ratio returns how long a frame takes beside one of _Unwind_Backtrace.
func (r *result) ratio(name string) float64 { return r.n(name) / max(r.n("peer-ns"), 1) }

// bad returns what is not as it has to be.
func (r *row) bad(quick bool) []string {
	var bad []string
	say := func(format string, args ...any) {
		bad = append(bad, fmt.Sprintf("%s, V%d: ", r.subject.name, r.version)+fmt.Sprintf(format, args...))
	}
	if n := r.result.n("differ"); n > 0 {
		say("%.0f chains differ in what both find", n)
	}
	if n := r.result.n("cache-differs"); n > 0 {
		say("%.0f chains are others with a cache", n)
	}
	least := rootPercent
	if quick {
		least = someQuick
	}
	if r.subject.c && r.version == 3 && r.result.percent("root") < least {
		say("%.3f %% of the samples reach the start; %v %% were expected", r.result.percent("root"), least)
	}
	if !quick && r.subject.c && r.result.ratio("cache-ns") > 1./3 {
		say("a frame takes %.2f of what it takes _Unwind_Backtrace; a third was expected", r.result.ratio("cache-ns"))
	}
	return bad
}

// text returns the row as a line.
func (r *row) text() string {
	s := r.result
	return fmt.Sprintf("%s, V%d: %.0f samples, %.0f differ, %.0f equal, %.3f %% reach the start (%.3f %% of the others, %.1f %% by the frame pointer, %.1f %% unconverted), depth %.1f, ns per frame %.0f, with a cache %.0f, of _Unwind_Backtrace %.0f",
		r.subject.name, r.version, s.n("samples"), s.n("differ"), s.n("equal"), s.percent("root"), s.percent("peer-root"), s.percent("fp-root"),
		r.plain.percent("root"), s.depth(), s.n("ns"), s.n("cache-ns"), s.n("peer-ns"))
}

// A table is all of it.
type table struct {
	rows    []row
	missing []string
}

// markdown returns the table, and the reasons below it.
func (t *table) markdown() string {
	var b strings.Builder
	b.WriteString("| program | | samples | differ | same chain | ends first | reach the start | `_Unwind_Backtrace` | frame pointers | not converted | frames | ns per frame | with a cache | `_Unwind_Backtrace` |\n")
	b.WriteString("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n")
	for i := range t.rows {
		r := &t.rows[i]
		s := r.result
		fmt.Fprintf(&b, "| %s | V%d | %.0f | %.0f | %.3f %% | %.0f | %.3f %% | %.3f %% | %.1f %% | %.1f %% | %.1f | %.0f | %.0f (%.2f) | %.0f |\n",
			r.subject.name, r.version, s.n("samples"), s.n("differ"), s.percent("equal"), s.n("behind"), s.percent("root"), s.percent("peer-root"),
			s.percent("fp-root"), r.plain.percent("root"), s.depth(), s.n("ns"), s.n("cache-ns"), s.ratio("cache-ns"), s.n("peer-ns"))
	}
	b.WriteString("\nEvery sample whose chains are not the same, or do not come to the start, with the number of samples:\n")
	for i := range t.rows {
		r := &t.rows[i]
		if len(r.why) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n%s, V%d:\n\n", r.subject.name, r.version)
		for _, why := range r.why {
			fmt.Fprintf(&b, "* %s\n", why)
		}
	}
	if len(t.missing) > 0 {
		fmt.Fprintf(&b, "\nLeft out, as they cannot be built here: %s.\n", strings.Join(t.missing, ", "))
	}
	return b.String()
}

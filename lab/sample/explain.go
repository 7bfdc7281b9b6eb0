package sample

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/linked"
	"cfi2sframe/report"
	"cfi2sframe/sframe"
)

// Why a walk ends: enum sfw_how.
const (
	zero       = 5
	noRegister = 10
)

var ends = [...]string{
	4: "outermost", zero: "return address 0", "no section", "no row", "bad section", "unreadable memory",
	noRegister: "an unknown register", "a caller's frame that is not above", "too many frames",
}

// A binary is a file that was converted, or why it was not.
type binary struct {
	path     string
	err      error
	coverage *report.Coverage
	file     *elffile.File
	table    *cfi.Table
	section  *sframe.Section
}

// load reads the files that an explanation needs.
func (b *binary) load(converted string) (err error) {
	if b.file, err = linked.Open(b.path); err != nil {
		return err
	}
	if b.table, err = cfi.Load(b.file, cfi.Auto, nil); err != nil {
		return err
	}
	_, b.section, err = linked.Load(converted)
	return err
}

// function names the function that an address is in.
func (b *binary) function(addr uint64) string {
	code := report.Range{Begin: addr, End: addr + 1}
	if fn := b.table.Find(addr); fn != nil {
		code = report.Range{Begin: fn.Begin, End: fn.End}
	}
	at := report.Locate(b.file, nil, []report.Range{code})[0]
	if at.Offset > 0 {
		return fmt.Sprintf("%s+%#x", at.Function, at.Offset)
	}
	return at.Function
}

// why describes a pc where a chain ended: of a caller, the pc of its call.
func (b *binary) why(end int, pc uint64) string {
	for _, at := range []uint64{pc - 1, pc} {
		row, ok, err := b.section.Lookup(at)
		if err != nil {
			return err.Error()
		}
		_, described := b.table.Lookup(at)
		switch {
		case ok && row.Outermost:
			return "code without a caller"
		case ok && end == noRegister:
			return fmt.Sprintf("CFA %v, RA %v, FP %v: a register of topmost frames only", row.CFA, row.RA, row.FP)
		case ok:
			continue
		case !described:
			return "no call frame information"
		}
		for _, g := range b.coverage.Gaps {
			if g.Begin <= at && at < g.End {
				return "gap: " + g.Text
			}
		}
		return "a gap that the report does not list"
	}
	return ends[end]
}

// kinds describe tallies.
var kinds = map[string]string{
	"behind": "ends first", "ahead": "goes on where _Unwind_Backtrace ends", "differ": "DIFFERS", "no-root": "both end",
	"lost": "_Unwind_Backtrace does not find the interrupted code", "crashed": "_Unwind_Backtrace crashes",
}

// most is the number of explanations of a result.
const most = 15

// explain describes the samples that do not reach the start, or differ, with their number.
func explain(s *subject, files map[string]*binary, r *result) []string {
	reasons := make(map[string]uint64)
	for _, t := range r.tallies {
		path := cmp.Or(t.file, s.command[0])
		b := files[path]
		if real, err := filepath.EvalSymlinks(path); b == nil && err == nil {
			b = files[real]
		}
		what := kinds[t.kind]
		switch name := filepath.Base(path); {
		case strings.HasPrefix(path, "linux-vdso"):
			what += " in the kernel's vDSO, which has no section"
		case t.file == "?":
			what += " in code of no file"
		case b == nil:
			what += " in " + path
		case b.err != nil:
			what += fmt.Sprintf(" in %s, which cannot be converted (%v)", name, b.err)
		default:
			what += fmt.Sprintf(" in %s, %s: %s", name, b.function(t.offset-1), b.why(t.end, t.offset))
		}
		if t.kind == "no-root" && t.ours != 0 {
			what += "; the caller that both find is in no file"
		}
		if t.kind == "differ" {
			what += fmt.Sprintf("; %#x, and %#x there", t.ours, t.theirs)
		}
		reasons[what] += t.count
	}
	var lines []string
	for _, what := range slices.SortedFunc(maps.Keys(reasons), func(a, b string) int {
		return cmp.Or(cmp.Compare(reasons[b], reasons[a]), cmp.Compare(a, b))
	}) {
		lines = append(lines, fmt.Sprintf("%d: %s", reasons[what], what))
	}
	if len(lines) > most {
		lines = append(lines[:most], fmt.Sprintf("%d others", len(lines)-most))
	}
	return lines
}

package sample

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"

	"cfi2sframe/elffile"
	"cfi2sframe/lab/kit"
	"cfi2sframe/report"
)

// zero is the end of a walk at a return address of 0, of enum sfw_how.
const zero = 5

var ends = [...]string{
	4: "outermost", zero: "return address 0", "no section", "no row", "bad section", "unreadable memory",
	"an unknown register", "a caller's frame that is not above", "too many frames",
}

// kinds describe tallies.
var kinds = map[string]string{
	"behind": "ends first", "ahead": "goes on where _Unwind_Backtrace ends", "differ": "DIFFERS", "no-root": "both end",
	"lost": "_Unwind_Backtrace does not find the interrupted code", "crashed": "_Unwind_Backtrace crashes",
}

// most is the number of explanations of a result.
const most = 15

// explain describes the samples that do not reach the start, or differ, with their number.
func explain(s *subject, files map[string]*elffile.File, r *result) []string {
	reasons := make(map[string]uint64)
	for _, t := range r.tallies {
		path := cmp.Or(t.file, s.command[0])
		f := files[path]
		if real, err := filepath.EvalSymlinks(path); f == nil && err == nil {
			f = files[real]
		}
		what := kinds[t.kind] + " in "
		switch name := filepath.Base(path); {
		case strings.HasPrefix(path, "linux-vdso"):
			what += "the kernel's vDSO, which has no section"
		case t.file == "?":
			what += "code of no file"
		case f == nil:
			what += name + ", which is not converted"
		default:
			at := report.Locate(f, nil, []report.Range{{Begin: t.offset - 1, End: t.offset}})[0]
			if strings.HasPrefix(at.Function, ".") { // no symbol names the function
				at.Function += fmt.Sprintf("+%#x", at.Offset)
			}
			what += fmt.Sprintf("%s, %s: %s", name, at.Function, ends[t.end])
		}
		if t.kind == "no-root" && t.ours != 0 {
			what += "; the caller that both find is in no file"
		}
		if t.kind == "differ" {
			what += fmt.Sprintf("; %#x, and %#x there", t.ours, t.theirs)
		}
		reasons[what] += t.count
	}
	lines := kit.Ranked(reasons)
	if len(lines) > most {
		lines = append(lines[:most], fmt.Sprintf("%d others", len(lines)-most))
	}
	return lines
}

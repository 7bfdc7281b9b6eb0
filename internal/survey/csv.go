package survey

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"io"

	"cfi2sframe/translate"
)

// CSV writes a line for each file, sorted by their names on the disk, after a line with the names of the columns,
// which docs/survey.md describes. Columns that do not apply are empty. All cells go through shown, which may be nil:
// terminals need other names than programs.
func (s *Survey) CSV(w io.Writer, shown func(string) string) error {
	out := csv.NewWriter(w)
	names, _ := new(Record).columns("")
	if err := out.Write(names); err != nil {
		return err
	}
	for _, r := range s.Files {
		_, cells := r.columns(s.Paths[r.Path].Name)
		for i := range cells {
			if shown != nil {
				cells[i] = shown(cells[i])
			}
		}
		if err := out.Write(cells); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// columns returns the names of the columns, and what they say of a file below a path.
func (r *Record) columns(path string) (names, cells []string) {
	text := func(name, cell string) { names, cells = append(names, name), append(cells, cell) }
	number := func(name string, applies bool, n uint64) {
		if applies {
			text(name, decimal(n))
		} else {
			text(name, "")
		}
	}
	text("path", path)
	text("file", r.File)
	text("abi", r.ABI)
	text("status", cmp.Or(string(r.Status), withCFI))
	text("error", r.Error)
	var sums Sums
	sums.add(r)
	translated := r.Status == ""
	number("drap", translated, sums.DRAP)
	number("non_sp_fp_cfa", translated, sums.OtherCFA)
	number("functions", translated, sums.Functions)
	number("described", translated, sums.Described)
	number("code", true, sums.Code)
	number("without_cfi", true, sums.WithoutCFI)
	number("lost", translated, sums.lost())
	for _, v := range Formats {
		f, prefix := sums.format(v), fmt.Sprintf("v%d_", v)
		number(prefix+"unwindable", f.Functions > 0, f.Unwindable)
		number(prefix+"functions_covered", f.Functions > 0, f.Whole)
		number(prefix+"covered", f.Functions > 0, f.Covered)
		number(prefix+"outermost", f.Functions > 0, f.Outermost)
		number(prefix+"topmost", f.Functions > 0, f.Topmost)
	}
	for _, reason := range translate.Reasons() {
		g := gapOf(&sums.Gaps, reason.Name())
		number(g.Reason+"_functions", translated, g.Functions)
		number(g.Reason+"_ranges", translated, g.Ranges)
		number(g.Reason+"_bytes", translated, g.Bytes)
	}
	text("languages", r.language())
	text("compilers", r.compiler())
	return names, cells
}

package survey

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"slices"

	"cfi2sframe/translate"
)

// CSV writes a line for each file, sorted by their names on the disk, after a line with the names of the columns,
// which docs/survey.md describes. Columns that do not apply are empty. All cells go through shown, which may be nil:
// terminals need other names than programs.
func (s *Survey) CSV(w io.Writer, shown func(string) string) error {
	out := csv.NewWriter(w)
	if err := out.Write(columns()); err != nil {
		return err
	}
	for _, r := range s.Files {
		row := s.row(r)
		for i := range row {
			if shown != nil {
				row[i] = shown(row[i])
			}
		}
		if err := out.Write(row); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

func columns() []string {
	out := []string{
		"path", "file", "abi", "status", "error", "drap", "non_sp_fp_cfa",
		"functions", "described", "without_cfi", "lost",
	}
	for _, v := range Formats {
		for _, name := range []string{"functions_covered", "covered", "outermost", "topmost"} {
			out = append(out, fmt.Sprintf("v%d_%s", v, name))
		}
	}
	for _, r := range translate.Reasons() {
		for _, name := range []string{"functions", "ranges", "bytes"} {
			out = append(out, r.Name()+"_"+name)
		}
	}
	return append(out, "languages", "compilers")
}

// row returns the cells of a file.
func (s *Survey) row(r *Record) []string {
	out := []string{s.Paths[r.Path].Name, r.File, r.ABI, cmp.Or(string(r.Status), withCFI), r.Error}
	add := func(numbers ...uint64) {
		for _, n := range numbers {
			out = append(out, decimal(n))
		}
	}
	skip := func(n int) { out = append(out, make([]string, n)...) }
	if r.Status != "" {
		skip(4)
		add(r.WithoutCFI)
		skip(len(columns()) - len(out) - 2)
		return append(out, r.language(), r.compiler())
	}
	lost, _ := r.lost()
	out = append(out, flag(r.DRAP), flag(r.OtherCFA))
	add(r.Functions, r.Described, r.WithoutCFI, lost)
	for _, v := range Formats {
		i := slices.IndexFunc(r.Formats, func(f Format) bool { return f.Format == v })
		if i < 0 {
			skip(4)
			continue
		}
		f := &r.Formats[i]
		add(f.Whole, f.Covered, f.Outermost, f.Topmost)
	}
	for _, reason := range translate.Reasons() {
		var g Gap
		if i := slices.IndexFunc(r.Gaps, func(g Gap) bool { return g.Reason == reason.Name() }); i >= 0 {
			g = r.Gaps[i]
		}
		add(g.Functions, g.Ranges, g.Bytes)
	}
	return append(out, r.language(), r.compiler())
}

// flag returns a number, so that it can be summed up.
func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

package survey

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"

	"cfi2sframe/translate"
)

// CSV writes a line per file, sorted by their names on the disk, below a line with
// the names of the columns. docs/survey.md describes them. Columns that do not apply are
// empty. All columns go through shown, which may be nil: terminals need other names than programs.
func (s *Survey) CSV(w io.Writer, shown func(string) string) error {
	out := csv.NewWriter(w)
	if err := out.Write(columns()); err != nil {
		return err
	}
	for _, l := range s.lines {
		record := s.record(l)
		for i := range record {
			if shown != nil {
				record[i] = shown(record[i])
			}
		}
		if err := out.Write(record); err != nil {
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

// record returns a file's columns.
func (s *Survey) record(l *line) []string {
	abi := ""
	if l.abi != 0 {
		abi = l.abi.String()
	}
	out := []string{s.roots[l.path].name, l.file, abi, refusals[l.status].name, l.message}
	number := func(n uint64) { out = append(out, strconv.FormatUint(n, 10)) }
	skip := func(n int) { out = append(out, make([]string, n)...) }
	if l.status != statusCFI {
		skip(4)
		number(l.withoutCFI)
		skip(len(columns()) - len(out) - 2)
		return append(out, l.origin.language(), l.origin.compiler())
	}
	lost, _ := l.lost()
	out = append(out, flag(l.drap), flag(l.otherCFA))
	for _, n := range []uint64{uint64(l.functions), l.described, l.withoutCFI, lost} {
		number(n)
	}
	for i := range l.formats {
		f := &l.formats[i]
		if f.Format == 0 {
			skip(4)
			continue
		}
		for _, n := range []uint64{uint64(f.Whole), f.Covered, f.Outermost, f.Topmost} {
			number(n)
		}
	}
	sums := make(map[translate.Reason]translate.Sum)
	for _, g := range l.gaps {
		sums[g.reason] = g.Sum
	}
	for _, r := range translate.Reasons() {
		g := sums[r]
		for _, n := range []uint64{uint64(g.Functions), uint64(g.Ranges), g.Bytes} {
			number(n)
		}
	}
	return append(out, l.origin.language(), l.origin.compiler())
}

// flag says yes or no so that it can be summed up.
func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

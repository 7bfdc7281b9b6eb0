package convert

import (
	"fmt"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/arch"
)

// A Contradiction is code whose CFI is not what its instructions do.
type Contradiction struct {
	Begin, End uint64 // addresses, End excluded
	What       string // which value, by CFI and by instructions
}

// Contradictions compares the CFI with what the instructions say that do not know of it. Compared is the number of
// bytes where both say where the frame is, from the same register. The CFA there must be equal, and so must the place of
// the caller's frame pointer where it is saved by both.
func Contradictions(f *elffile.File, t *cfi.Table) (list []Contradiction, compared uint64, err error) {
	if !Infers(f) {
		return nil, 0, nil
	}
	inf, _, err := inferred(f, t, nil)
	if err != nil {
		return nil, 0, err
	}
	spans := inferredSpans(inf)
	for fn := range t.Functions() {
		for known := range fn.Rows() {
			for len(spans) > 0 && spans[0].End <= known.Begin {
				spans = spans[1:]
			}
			for i := 0; i < len(spans) && spans[i].Begin < known.End; i++ {
				row := &spans[i]
				if fn.Inferred() || known.CFA.Rule != cfi.RuleCFA || known.CFA.Reg != row.Reg {
					continue
				}
				begin, end := max(known.Begin, row.Begin), min(known.End, row.End)
				compared += end - begin
				if what := contradicts(t, &known, &row.InferredRow); what != "" {
					list = addContradiction(list, Contradiction{begin, end, what})
				}
			}
		}
	}
	return list, compared, nil
}

// An inferredSpan is code with one row.
type inferredSpan struct {
	elffile.Span
	cfi.InferredRow
}

// inferredSpans returns the rows of all functions.
func inferredSpans(inf *cfi.Inference) []inferredSpan {
	var spans []inferredSpan
	for i := range inf.Functions {
		fn := &inf.Functions[i]
		for k, row := range fn.Rows {
			end := fn.End
			if k+1 < len(fn.Rows) {
				end = fn.Begin + uint64(fn.Rows[k+1].Off)
			}
			spans = append(spans, inferredSpan{elffile.Span{Begin: fn.Begin + uint64(row.Off), End: end}, row})
		}
	}
	return spans
}

// contradicts returns in which value a row of CFI and one from instructions differ, or "".
func contradicts(t *cfi.Table, known *cfi.Row, row *cfi.InferredRow) string {
	switch fp := &known.FP; {
	case known.CFA.Offset != row.Offset:
		return fmt.Sprintf("CFA is %s%+d by CFI, %+d by instructions", arch.Of(t.Machine).Register(row.Reg),
			known.CFA.Offset, row.Offset)
	case fp.Rule == cfi.RuleOffset && row.FP != 0 && fp.Offset != row.FP:
		return fmt.Sprintf("FP is at CFA%+d by CFI, %+d by instructions", fp.Offset, row.FP)
	}
	return ""
}

// addContradiction appends code to what was found before it, if it is contiguous and the same.
func addContradiction(list []Contradiction, c Contradiction) []Contradiction {
	if n := len(list); n > 0 && list[n-1].End == c.Begin && list[n-1].What == c.What {
		list[n-1].End = c.End
		return list
	}
	return append(list, c)
}

package convert

import (
	"context"
	"fmt"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/arch"
)

// A Contradiction is code whose CFI contradicts its instructions.
type Contradiction struct {
	Begin, End uint64 // addresses; End is exclusive
	What       string // describes both values: from the CFI and from the instructions
}

// Contradictions compares the CFI with rows inferred from the instructions alone, and returns the number of bytes
// compared: code for which both compute the CFA from the same register. The offsets of the CFA must be equal, and so
// must those of the return address and the caller's frame pointer if both rows locate them.
func Contradictions(f *elffile.File, t *cfi.Table) (list []Contradiction, compared uint64, err error) {
	if !Infers(f) {
		return nil, 0, nil
	}
	inf, _, err := inferRows(context.Background(), f, t, nil)
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
				if fn.Inferred() || known.CFA.Rule != cfi.RuleCFA || known.CFA.Reg != uint64(row.Reg) {
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

// An inferredSpan is a range of code to which one inferred row applies.
type inferredSpan struct {
	elffile.Span
	cfi.InferredRow
}

// inferredSpans returns the rows of all functions, in ascending order.
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

// contradicts describes the value in which a CFI row and an inferred row differ, or returns "".
func contradicts(t *cfi.Table, known *cfi.Row, row *cfi.InferredRow) string {
	switch fp := &known.FP; {
	case known.CFA.Offset != int64(row.Offset):
		return fmt.Sprintf("CFA is %s%+d according to CFI, but %+d according to the instructions",
			arch.Of(t.Machine).Register(uint64(row.Reg)), known.CFA.Offset, row.Offset)
	case known.RA.Rule == cfi.RuleOffset && row.RA != 0 && known.RA.Offset != int64(row.RA):
		return fmt.Sprintf("RA is at CFA%+d according to CFI, but %+d according to the instructions",
			known.RA.Offset, row.RA)
	case fp.Rule == cfi.RuleOffset && row.FP != 0 && fp.Offset != int64(row.FP):
		return fmt.Sprintf("FP is at CFA%+d according to CFI, but %+d according to the instructions", fp.Offset, row.FP)
	}
	return ""
}

// addContradiction appends a contradiction, or extends the last one if it is adjacent and has the same description.
func addContradiction(list []Contradiction, c Contradiction) []Contradiction {
	if n := len(list); n > 0 && list[n-1].End == c.Begin && list[n-1].What == c.What {
		list[n-1].End = c.End
		return list
	}
	return append(list, c)
}

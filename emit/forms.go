package emit

import (
	"fmt"
	"math"

	"cfi2sframe/sframe"
)

// typeIndex returns the index of an FDE type in Builder.formsOf.
func typeIndex(flexible bool) int {
	if flexible {
		return 1
	}
	return 0
}

// addForms encodes a row for both FDE types.
func (b *Builder) addForms(r *sframe.Row) {
	for t := range b.formsOf {
		out, _ := b.codec.AppendRow(nil, r, t == typeIndex(true))
		b.formsOf[t] = append(b.formsOf[t], b.form(string(out)))
	}
}

// form returns the index of an encoded row.
func (b *Builder) form(s string) uint32 {
	n, ok := b.formAt[s]
	if !ok {
		n = uint32(len(b.forms))
		b.forms = append(b.forms, s)
		b.formAt[s] = n
	}
	return n
}

// chooseTypes returns, for each row, whether to put it into a flexible FDE, so that the encoded function is as small as
// possible. Each change of type between adjacent rows costs an FDE.
func (b *Builder) chooseTypes(rows []sframe.Ref) ([]bool, error) {
	const none = math.MaxInt / 2
	var cost [2]int // cost of the rows so far, by type of the last row
	change := b.layout.FDESize + b.layout.AttrSize
	from := make([][2]uint8, len(rows)) // by row and type: the cheapest type of the previous row
	for i, e := range rows {
		if b.formsOf[0][e.Row] == 0 && b.formsOf[1][e.Row] == 0 {
			return nil, fmt.Errorf("row at %#x cannot be expressed in %v", e.Start, b.opt.Version)
		}
		var next [2]int
		for t := range 2 {
			from[i][t], next[t] = uint8(t), cost[t]
			if cost[1-t]+change < next[t] {
				next[t], from[i][t] = cost[1-t]+change, uint8(1-t)
			}
			size := len(b.forms[b.formsOf[t][e.Row]])
			if next[t] += size; size == 0 {
				next[t] = none
			}
		}
		cost = next
	}
	t := uint8(0)
	if cost[1] < cost[0] {
		t = 1
	}
	flexible := make([]bool, len(rows))
	for i := len(rows) - 1; i >= 0; i-- {
		flexible[i] = t == 1
		t = from[i][t]
	}
	return flexible, nil
}

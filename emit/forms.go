package emit

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"

	"cfi2sframe/sframe"
)

// typeIndex returns the index in Builder.forms.
func typeIndex(flexible bool) int {
	if flexible {
		return 1
	}
	return 0
}

// encode adds the forms of a row.
func (b *Builder) encode(r *sframe.Row) {
	var buf [sframe.MaxRowSize]byte
	for t := range b.forms {
		var f form
		var long []byte
		if out, ok := b.codec.AppendRow(buf[:0], r, t == typeIndex(true)); ok {
			f = form{formBytes(out), uint32(len(out))}
			if len(out) > 8 {
				long = bytes.Clone(out)
			}
		}
		b.forms[t], b.long[t] = append(b.forms[t], f), append(b.long[t], long)
	}
}

// formBytes returns form.bytes. The hash of a long row is always the same, as the division of code depends on it.
func formBytes(b []byte) (v uint64) {
	for ; len(b) > 8; b = b[8:] {
		v = mix(v ^ binary.LittleEndian.Uint64(b))
	}
	var c [8]byte
	copy(c[:], b)
	return v ^ binary.LittleEndian.Uint64(c[:])
}

// chooseTypes returns for each row whether it belongs to a flexible FDE, so that the function is as small as possible.
// Each change of type from one row to the next costs an FDE.
func (b *Builder) chooseTypes(rows []sframe.Ref) ([]bool, error) {
	const none = math.MaxInt / 2
	var cost [2]int // of the rows so far, if the last one has the type
	change := b.layout.FDESize + b.layout.AttrSize
	from := make([][2]uint8, len(rows)) // of each row and type: the type before it that costs least
	for i, e := range rows {
		if b.forms[0][e.Row].size == 0 && b.forms[1][e.Row].size == 0 {
			return nil, fmt.Errorf("row at %#x has no form in %v", e.Start, b.opt.Version)
		}
		var next [2]int
		for t := range 2 {
			from[i][t], next[t] = uint8(t), cost[t]
			if i > 0 && cost[1-t]+change < next[t] {
				next[t], from[i][t] = cost[1-t]+change, uint8(1-t)
			}
			size := int(b.forms[t][e.Row].size)
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

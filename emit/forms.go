package emit

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"

	"cfi2sframe/sframe"
)

// typeIndex returns the index of Builder.forms.
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
			f = form{rowHash(out), uint32(len(out))}
			if len(out) > 8 {
				long = bytes.Clone(out)
			}
		}
		b.forms[t], b.long[t] = append(b.forms[t], f), append(b.long[t], long)
	}
}

// form returns how FDEs of the given type hold a row.
func (b *Builder) form(row uint32, flexible bool) form { return b.forms[typeIndex(flexible)][row] }

// rowHash returns the hash of a row as it is encoded, without its start address: the bytes themselves,
// if they are few. It is always the same one: the division of functions depends on it.
func rowHash(b []byte) uint64 {
	if len(b) > 8 {
		return hashLong(b)
	}
	var c [8]byte
	copy(c[:], b)
	return binary.LittleEndian.Uint64(c[:])
}

// chooseTypes chooses for each row the type of its FDE, so that the whole is as small as it can be: each
// change of type from one row to the next costs an FDE.
func (b *Builder) chooseTypes() error {
	b.flexible = b.flexible[:0]
	mixed := false
	for _, e := range b.merged {
		mixed = mixed || b.forms[0][e.Row].size == 0
		b.flexible = append(b.flexible, false)
	}
	if !mixed {
		return nil
	}
	const none = math.MaxInt / 2
	cost := [2]int{}
	change := b.layout.FDESize + b.layout.AttrSize
	b.from = b.from[:0]
	for i, e := range b.merged {
		if b.forms[0][e.Row].size == 0 && b.forms[1][e.Row].size == 0 {
			return fmt.Errorf("row at %#x has no form in %v", e.Start, b.opt.Version)
		}
		var next [2]int
		var from [2]uint8
		for t := range 2 {
			from[t] = uint8(t)
			next[t] = cost[t]
			if i > 0 && cost[1-t]+change < next[t] {
				next[t], from[t] = cost[1-t]+change, uint8(1-t)
			}
			size := int(b.forms[t][e.Row].size)
			if next[t] += size; size == 0 {
				next[t] = none
			}
		}
		cost = next
		b.from = append(b.from, from)
	}
	t := uint8(0)
	if cost[1] < cost[0] {
		t = 1
	}
	for i := len(b.merged) - 1; i >= 0; i-- {
		b.flexible[i] = t == 1
		t = b.from[i][t]
	}
	return nil
}

package emit

import (
	"fmt"
	"math"
	"math/bits"

	"cfi2sframe/sframe"
)

// A row is an FRE and what is known of its two forms: in a default and in a flexible
// FDE.
type row struct {
	*sframe.FRE
	start    uint32
	size     [2]uint8 // in bytes, without the start address; 0: there is no such form
	flexible bool     // of the two, the one chosen
	body     body     // of the default form
}

// A body is a row of a default FDE as it is encoded (section "SFrame FRE"), without its start
// address: the info word and at most three data words.
type body [16]byte

// A known is a row whose default form was looked up before.
type known struct {
	fre  sframe.FRE
	body body
	size uint8
	set  bool
}

// knownRows returns how many rows to remember for n functions, a power of two.
func knownRows(n int) int { return 1 << bits.Len(uint(min(2*n, 511))) }

// defaultForm finds the default form of a row.
func (b *Builder) defaultForm(r *row) {
	e := r.FRE
	h := uint32(e.CFA.Offset)*0x9e3779b1 ^ uint32(e.FP.Offset)*0x85ebca6b ^ uint32(e.RA.Offset)*0xc2b2ae35 ^ uint32(e.CFA.Base)<<13
	k := &b.known[h>>8&uint32(len(b.known)-1)]
	if !k.set || !sframe.SameRow(&k.fre, e) {
		k.fre, k.set, k.size = *e, true, 0
		if w, ok := b.opt.Version.Default(b.opt.ABI, e); ok {
			k.size = uint8(len(b.appendBody(k.body[:0], e, &w)))
		}
	}
	r.body, r.size[0] = k.body, k.size
}

// appendBody appends the info word and the data words of a row.
func (b *Builder) appendBody(out []byte, e *sframe.FRE, w *sframe.Words) []byte {
	size := logSize(w)
	info := byte(w.Count)<<sframe.FREInfoCount | byte(size)<<sframe.FREInfoSize
	if w.SP {
		info |= sframe.FREInfoSP
	}
	if e.Signed && !e.Outermost {
		info |= sframe.FREInfoMangledRA
	}
	out = append(out, info)
	for _, v := range w.Word[:w.Count] {
		out = putUint(b.order, out, uint64(v), 1<<size)
	}
	return out
}

// chooseForms finds the forms of the rows, and chooses for each the type of its FDE.
func (b *Builder) chooseForms() error {
	mixed := false
	for i := range b.rows {
		r := &b.rows[i]
		b.defaultForm(r)
		mixed = mixed || r.size[0] == 0
	}
	if !mixed {
		return nil
	}
	for i := range b.rows {
		r := &b.rows[i]
		if w, ok := b.opt.Version.Flexible(b.opt.ABI, r.FRE); ok {
			r.size[1] = uint8(1 + w.Count<<logSize(&w))
		}
		if r.size == [2]uint8{} {
			return fmt.Errorf("row with CFA %v, RA %v, FP %v has no form in %v", r.CFA, r.RA, r.FP, b.opt.Version)
		}
	}
	b.chooseTypes()
	return nil
}

// chooseTypes makes the whole as small as it can be: each change of type from one
// row to the next costs an FDE.
func (b *Builder) chooseTypes() {
	const none = math.MaxInt / 2
	cost := [2]int{}
	change := b.layout.FDESize + b.layout.AttrSize
	b.from = b.from[:0]
	for i := range b.rows {
		r := &b.rows[i]
		var next [2]int
		var from [2]uint8
		for t := range 2 {
			from[t] = uint8(t)
			next[t] = cost[t]
			if i > 0 && cost[1-t]+change < next[t] {
				next[t], from[t] = cost[1-t]+change, uint8(1-t)
			}
			if next[t] += int(r.size[t]); r.size[t] == 0 {
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
	for i := len(b.rows) - 1; i >= 0; i-- {
		b.rows[i].flexible = t == 1
		t = b.from[i][t]
	}
}

// logSize returns the binary logarithm of the size in bytes that all words fit.
func logSize(w *sframe.Words) int {
	size := 0
	for i, v := range w.Word[:w.Count] {
		lo, hi := int32(math.MinInt8), int32(math.MaxInt8)
		lo2, hi2 := int32(math.MinInt16), int32(math.MaxInt16)
		if w.Unsigned[i] {
			lo, hi, lo2, hi2 = 0, math.MaxUint8, 0, math.MaxUint16
		}
		switch {
		case lo <= v && v <= hi:
		case lo2 <= v && v <= hi2:
			size = max(size, 1)
		default:
			return 2
		}
	}
	return size
}

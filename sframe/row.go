package sframe

import (
	"fmt"
	"math"
)

// Bits of the FRE info word (section "The SFrame FRE Info Word").
const (
	freInfoSP        = 1 << 0 // CFA is based on SP, not FP
	freInfoCount     = 1      // bit position of the number of data words (4 bits)
	freInfoSize      = 5      // bit position of the binary logarithm of the size of a data word in bytes (2 bits)
	freInfoMangledRA = 1 << 7 // return address is signed
)

// Bits of the control word before each offset word in flexible FDEs. A control word of 0 means that there is no rule;
// no offset word follows.
const (
	controlReg      = 1 << 0 // the base is the register in the upper bits, not the CFA
	controlDeref    = 1 << 1 // the value is loaded from the address base + offset
	controlRegShift = 3
)

// RowSize returns the size in bytes of a row with the given FRE info word, including that word but not the start
// address.
func RowSize(info byte) int {
	return 1 + int(info>>freInfoCount&0xf)<<(info>>freInfoSize&3)
}

// AppendStart appends the start address of an FRE.
func (c *Codec) AppendStart(out []byte, start uint32, t FREType) []byte {
	return c.appendUnsigned(out, start, t.Size())
}

// Start decodes the start address of the FRE at the start of b.
func (c *Codec) Start(b []byte, t FREType) uint32 { return c.unsigned(b, t.Size()) }

// AppendRow appends a row for an FDE of the given type, without its start address: the FRE info word and data words of
// the smallest possible size. It reports whether the row can be encoded.
func (c *Codec) AppendRow(out []byte, r *Row, flexible bool) ([]byte, bool) {
	var w words
	form := w.defaultRow
	if flexible {
		form = w.flexibleRow
	}
	if !form(c, r) {
		return out, false
	}
	size := w.logSize()
	info := byte(w.count)<<freInfoCount | byte(size)<<freInfoSize
	if w.sp {
		info |= freInfoSP
	}
	if r.Signed && !r.Outermost {
		info |= freInfoMangledRA
	}
	out = append(out, info)
	for _, v := range w.word[:w.count] {
		out = c.appendUnsigned(out, uint32(v), 1<<size)
	}
	return out, true
}

// Default reports whether an FDE of the default type can hold the row.
func (c *Codec) Default(r *Row) bool {
	var w words
	return w.defaultRow(c, r)
}

// Flexible reports whether the version has flexible FDEs and they can hold the row.
func (c *Codec) Flexible(r *Row) bool {
	var w words
	return w.flexibleRow(c, r)
}

// words holds the data words of a row to encode.
type words struct {
	sp       bool // the CFA's base is SP, not FP (default FDEs)
	count    int
	word     [6]int32
	unsigned [6]bool // control words
}

func (w *words) add(v int32) {
	w.word[w.count] = v
	w.count++
}

// logSize returns the binary logarithm of the smallest word size in bytes that holds all words.
func (w *words) logSize() int {
	size := 0
	for i, v := range w.word[:w.count] {
		hi, hi2 := int32(math.MaxInt8), int32(math.MaxInt16)
		if w.unsigned[i] { // and not negative
			hi, hi2 = math.MaxUint8, math.MaxUint16
		}
		switch {
		case math.MinInt8 <= v && v <= hi:
		case math.MinInt16 <= v && v <= hi2:
			size = max(size, 1)
		default:
			return 2
		}
	}
	return size
}

// encodeCFA returns the data word for a CFA offset, and whether the offset can be encoded (section "s390x": offsets are
// biased and scaled).
func (i *abiInfo) encodeCFA(offset int32) (int32, bool) {
	scaled := int64(offset) - int64(i.cfaBias)
	v := scaled / int64(i.cfaScale)
	return int32(v), v == int64(int32(v)) && scaled%int64(i.cfaScale) == 0
}

// decodeCFA is the inverse of encodeCFA. It reports whether the offset fits in 32 bits.
func (i *abiInfo) decodeCFA(word int32) (int32, bool) {
	v := int64(word)*int64(i.cfaScale) + int64(i.cfaBias)
	return int32(v), v == int64(int32(v))
}

// defaultRow sets the words of a row in a default FDE: CFA [RA] [FP], with RA only if the ABI tracks it. It reports
// whether the row can be encoded.
func (w *words) defaultRow(c *Codec, r *Row) bool {
	if r.Outermost {
		return true
	}
	if r.CFA.Deref || r.CFA.Base != SP && r.CFA.Base != FP {
		return false
	}
	w.sp = r.CFA.Base == SP
	cfa, ok := c.info.encodeCFA(r.CFA.Offset)
	w.add(cfa)
	switch {
	case r.RA.Base != None:
		// A zero word means that there is no rule.
		ok = ok && c.info.fixedRA == 0 && w.slot(c, r.RA) && w.word[1] != 0
	case r.FP.Base != None && c.info.fixedRA == 0:
		ok = ok && c.info.padRA
		w.add(0)
	}
	if r.FP.Base != None {
		ok = ok && w.slot(c, r.FP)
	}
	return ok
}

// slot adds the word of an RA or FP rule in a default FDE. It reports whether the rule can be encoded.
func (w *words) slot(c *Codec, r Rule) bool {
	regWords := c.info.regWords && c.layout.RegWords
	switch {
	case r.Base == CFA && r.Deref:
		// Odd words are register numbers, so offsets must be even.
		if regWords && r.Offset&1 != 0 {
			return false
		}
		w.add(r.Offset)
	case r.Base == Register && !r.Deref && r.Offset == 0 && regWords:
		w.add(int32(r.Reg)<<1 | 1)
	default:
		return false
	}
	return true
}

// slot is the inverse of words.slot. It decodes the next word.
func (w *readWords) slot() Rule {
	v := w.signed()
	switch {
	case w.none:
		return Rule{}
	case w.codec.info.regWords && w.codec.layout.RegWords && v&1 != 0:
		if uint32(v)>>1 > math.MaxUint16 {
			w.bad = true
		}
		return Rule{Base: Register, Reg: uint16(v >> 1)}
	}
	return Rule{Base: CFA, Offset: v, Deref: true}
}

// defaultRow is the inverse of words.defaultRow.
func (w *readWords) defaultRow(base Base, r *Row) {
	w.cfa(w.signed(), r)
	r.CFA.Base = base
	if w.codec.info.fixedRA == 0 {
		// SFRAME_FRE_RA_OFFSET_INVALID: since binutils 2.47, a zero word means that there is no rule, on every ABI.
		if r.RA = w.slot(); r.RA == (Rule{Base: CFA, Deref: true}) {
			r.RA = Rule{}
		}
	}
	r.FP = w.slot()
}

// cfa decodes the offset of the CFA.
func (w *readWords) cfa(word int32, r *Row) {
	var fits bool
	r.CFA.Offset, fits = w.codec.info.decodeCFA(word)
	w.bad = w.bad || !fits
}

// flexibleRow sets the words of a row in a flexible FDE: CFA [RA [FP]], each with a control word and an offset word.
// It reports whether the row can be encoded.
func (w *words) flexibleRow(c *Codec, r *Row) bool {
	if !c.layout.Flexible {
		return false
	}
	if r.Outermost {
		return true
	}
	cfa, ok := c.info.encodeCFA(r.CFA.Offset)
	if !ok || r.CFA.Base == None || r.CFA.Base == CFA || !w.rule(c, r.CFA, cfa) {
		return false
	}
	if r.RA.Base != None {
		ok = w.rule(c, r.RA, r.RA.Offset)
	} else if r.FP.Base != None {
		w.add(0)
	}
	if r.FP.Base != None {
		ok = ok && w.rule(c, r.FP, r.FP.Offset)
	}
	return ok
}

// rule adds the words of a rule in a flexible FDE. It reports whether the rule can be encoded.
func (w *words) rule(c *Codec, r Rule, offset int32) bool {
	control := int32(0)
	switch r.Base {
	case SP:
		control = int32(c.info.sp)<<controlRegShift | controlReg
	case FP:
		control = int32(c.info.fp)<<controlRegShift | controlReg
	case Register:
		control = int32(r.Reg)<<controlRegShift | controlReg
	}
	if r.Deref {
		control |= controlDeref
	}
	if control == 0 {
		return false // would decode as no rule
	}
	w.unsigned[w.count] = true
	w.add(control)
	w.add(offset)
	return true
}

// rule is the inverse of words.rule. It decodes the next words.
func (w *readWords) rule() Rule {
	c := w.unsigned()
	if w.none || c == 0 {
		return Rule{}
	}
	r := Rule{Base: CFA, Offset: w.signed(), Deref: c&controlDeref != 0}
	if c&controlReg != 0 {
		r.Base, r.Reg = Register, uint16(c>>controlRegShift)
	}
	if w.none || c>>controlRegShift > math.MaxUint16 || c&(1<<controlRegShift-1)&^(controlReg|controlDeref) != 0 ||
		c&controlReg == 0 && c>>controlRegShift != 0 {
		w.bad = true
	}
	return r
}

// flexibleRow is the inverse of words.flexibleRow.
func (w *readWords) flexibleRow(r *Row) {
	r.CFA = w.rule()
	if r.CFA.Base != Register {
		w.bad = true
		return
	}
	w.cfa(r.CFA.Offset, r)
	r.RA = w.rule()
	r.FP = w.rule()
}

// readWords holds the data words of a row to decode, in order.
type readWords struct {
	codec *Codec
	b     []byte
	size  int  // size of a word in bytes
	left  int  // number of remaining words
	none  bool // a read past the last word was attempted
	bad   bool // the words are not a valid row
}

// unsigned returns the next word zero-extended.
func (w *readWords) unsigned() uint32 {
	if w.left == 0 {
		w.none = true
		return 0
	}
	v := w.codec.unsigned(w.b, w.size)
	w.b = w.b[w.size:]
	w.left--
	return v
}

// signed returns the next word sign-extended.
func (w *readWords) signed() int32 {
	shift := 32 - 8*w.size
	return int32(w.unsigned()<<shift) >> shift
}

// row decodes the row at the start of b, in an FDE of the given type. It returns the size of the row in bytes, and a
// message if the row is invalid.
func (c *Codec) row(b []byte, flexible bool) (r Row, size int, wrong string) {
	if len(b) == 0 {
		return r, size, "section ends inside an FRE"
	}
	info := b[0]
	count, logSize := int(info>>freInfoCount&0xf), info>>freInfoSize&3
	if logSize > 2 {
		return r, size, fmt.Sprintf("FRE info word %#02x encodes the undefined data word size 3", info)
	}
	end := RowSize(info)
	if len(b) < end {
		return r, size, "section ends inside an FRE"
	}
	w := readWords{codec: c, b: b[1:end], size: 1 << logSize, left: count}
	r.Signed = info&freInfoMangledRA != 0
	switch {
	case count == 0:
		r.Outermost = true
	case flexible:
		w.flexibleRow(&r)
	default:
		base := FP
		if info&freInfoSP != 0 {
			base = SP
		}
		w.defaultRow(base, &r)
	}
	if w.bad || w.left > 0 {
		return Row{}, size, fmt.Sprintf("%d data words of an FRE are invalid for this ABI and FDE type", count)
	}
	return r, end, ""
}

package sframe

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"sort"
)

// An Error describes a malformed section.
type Error struct {
	Off uint64 // in bytes from the start of the section
	Msg string // what was found and what was expected
}

func (e *Error) Error() string { return fmt.Sprintf(".sframe+%#x: %s", e.Off, e.Msg) }

func errorf(off int, format string, args ...any) error {
	return &Error{uint64(off), fmt.Sprintf(format, args...)}
}

// A Section is a decoded section. Its FREs stay encoded until they are asked for.
type Section struct {
	Version Version
	Flags   Flags
	ABI     ABI
	FixedFP int8 // offset in bytes from the CFA; 0: tracked row by row
	FixedRA int8
	NumFREs uint32 // as the header says; Decode has checked it
	FDEs    []FDE

	layout Layout
	order  binary.ByteOrder
	little bool // order is little-endian
	data   []byte
	fres   []freList // of each FDE
}

// A freList is where a function's FREs are.
type freList struct {
	off uint32 // in the section
	num uint32
	typ FREType
}

// IsSection reports whether the bytes begin as a section, of either byte order.
func IsSection(b []byte) bool {
	return len(b) >= 2 && (binary.LittleEndian.Uint16(b) == Magic || binary.BigEndian.Uint16(b) == Magic)
}

// Decode reads the section in data, which lies at address addr, and checks
// everything but the FREs themselves: those are checked by FREs. The Section
// refers to data.
func Decode(data []byte, addr uint64) (*Section, error) {
	s := &Section{data: data}
	if len(data) < 4 {
		return nil, errorf(0, "%d bytes are too few for an SFrame preamble of 4", len(data))
	}
	switch {
	case binary.LittleEndian.Uint16(data) == Magic:
		s.order, s.little = binary.LittleEndian, true
	case binary.BigEndian.Uint16(data) == Magic:
		s.order = binary.BigEndian
	default:
		return nil, errorf(0, "starts with % x; the magic %#x was expected", data[:2], Magic)
	}
	s.Version, s.Flags = Version(data[2]), Flags(data[3])
	l, ok := s.Version.Layout()
	if !ok {
		return nil, errorf(2, "version %d is not known", data[2])
	}
	s.layout = l
	if bad := s.Flags &^ l.Flags; bad != 0 {
		return nil, errorf(3, "flags %#x are not defined in %v", uint8(bad), s.Version)
	}
	if len(data) < l.HeaderSize {
		return nil, errorf(0, "%d bytes are too few for a header of %d", len(data), l.HeaderSize)
	}
	s.ABI, s.FixedFP, s.FixedRA = ABI(data[4]), int8(data[5]), int8(data[6])
	if !slices.Contains(l.ABIs, s.ABI) {
		return nil, errorf(4, "ABI %d is not known in %v", data[4], s.Version)
	}
	if o := s.ABI.info().order; o != s.order {
		return nil, errorf(0, "byte order is %v, but that of ABI %v is %v", s.order, s.ABI, o)
	}
	u32 := func(off int) uint64 { return uint64(s.order.Uint32(data[off:])) }
	numFDEs, freLen := u32(8), u32(16)
	s.NumFREs = s.order.Uint32(data[12:])
	// Sub-section offsets count from the end of the header.
	base := uint64(l.HeaderSize) + uint64(data[7])
	fdeOff, freOff := base+u32(20), base+u32(24)
	fdeEnd := fdeOff + numFDEs*uint64(l.FDESize)
	size := uint64(len(data))
	if size > math.MaxUint32 {
		return nil, errorf(0, "%d bytes; a section has less than 4 GiB", size)
	}
	if base > size || fdeEnd > size {
		return nil, errorf(20, "%d FDEs at %#x do not fit the section of %d bytes", numFDEs, fdeOff, size)
	}
	if freOff < fdeEnd && numFDEs > 0 || freOff+freLen > size {
		return nil, errorf(24, "FREs at %#x, %d bytes, overlap the FDEs or do not fit the section of %d bytes", freOff, freLen, size)
	}
	s.data = data[:freOff+freLen]
	s.FDEs = make([]FDE, numFDEs)
	s.fres = make([]freList, numFDEs)
	var sum uint64
	for i := range s.FDEs {
		off := int(fdeOff) + i*l.FDESize
		if err := s.decodeFDE(i, off, int(freOff), addr); err != nil {
			return nil, err
		}
		sum += uint64(s.fres[i].num)
	}
	if sum != uint64(s.NumFREs) {
		return nil, errorf(12, "header says %d FREs, but the FDEs have %d", s.NumFREs, sum)
	}
	if s.Flags&FDESorted != 0 && !slices.IsSortedFunc(s.FDEs, compareStart) {
		return nil, errorf(int(fdeOff), "FDEs are not sorted by start address, but the flag says so")
	}
	return s, nil
}

func compareStart(a, b FDE) int {
	switch {
	case a.Start < b.Start:
		return -1
	case a.Start > b.Start:
		return 1
	}
	return 0
}

// Sort puts the FDEs in the order of their start addresses, as a linker does. In
// relocatable objects they are in any.
func (s *Section) Sort() {
	order := make([]int, len(s.FDEs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return compareStart(s.FDEs[a], s.FDEs[b]) })
	fdes, fres := make([]FDE, len(order)), make([]freList, len(order))
	for i, from := range order {
		fdes[i], fres[i] = s.FDEs[from], s.fres[from]
	}
	s.FDEs, s.fres = fdes, fres
	s.Flags |= FDESorted
}

// uint32 returns the integer that b begins with.
func (s *Section) uint32(b []byte) uint32 {
	if s.little { // faster than to call the method of an interface
		return binary.LittleEndian.Uint32(b)
	}
	return s.order.Uint32(b)
}

// decodeFDE reads the i-th FDE, at off. The FRE sub-section is at freOff.
func (s *Section) decodeFDE(i, off, freOff int, addr uint64) error {
	b, d, l := s.data[off:], &s.FDEs[i], &s.fres[i]
	if s.layout.StartSize == 8 {
		d.Start = s.order.Uint64(b)
	} else {
		d.Start = uint64(int64(int32(s.uint32(b))))
	}
	d.Start += addr
	if s.Flags&FDEFuncStartPCRel != 0 {
		d.Start += uint64(off)
	} else if s.layout.PCRel {
		return errorf(3, "flag %#x is missing, without which %v has no meaning", uint8(FDEFuncStartPCRel), s.Version)
	}
	b = b[s.layout.StartSize:]
	d.Size = s.uint32(b)
	first, left := uint64(s.uint32(b[4:])), uint64(len(s.data)-freOff)
	info, fdeType, rep, at := byte(0), byte(0), byte(0), off
	if n := uint64(s.layout.AttrSize); n > 0 {
		// The attribute stands before the FREs.
		if first > left || left-first < n {
			return errorf(off, "attribute at %#x of the FRE sub-section does not fit its %d bytes", first, left)
		}
		at = freOff + int(first)
		a := s.data[at:]
		l.num, info, fdeType, rep = uint32(s.order.Uint16(a)), a[2], a[3], a[4]
		first += n
	} else {
		l.num, info = s.uint32(b[8:]), b[12]
		if s.layout.RepSize {
			rep = b[13]
		}
	}
	known := byte(FDEInfoFREType | FDEInfoPCMask | FDEInfoKeyB)
	if s.layout.Signal {
		known |= FDEInfoSignal
	}
	if info&^known != 0 {
		return errorf(at, "info word %#02x of an FDE has undefined bits set", info)
	}
	if l.typ = FREType(info & FDEInfoFREType); l.typ > Addr4 {
		return errorf(at, "FRE type %d of an FDE; 0, 1 or 2 was expected", l.typ)
	}
	if fdeType != FDETypeDefault && fdeType != FDETypeFlexible {
		return errorf(at, "type %d of an FDE; 0 or 1 was expected", fdeType)
	}
	d.KeyB, d.Signal, d.Flexible = info&FDEInfoKeyB != 0, info&FDEInfoSignal != 0, fdeType == FDETypeFlexible
	if d.PCMask = info&FDEInfoPCMask != 0; d.PCMask {
		if d.RepSize = rep; rep == 0 && s.layout.RepSize {
			return errorf(at, "PC-mask FDE has repetition size 0")
		}
	}
	// An FRE takes a start address and an info byte at least.
	if first > left || uint64(l.num) > (left-first)/uint64(l.typ.Size()+1) {
		return errorf(off, "%d FREs at %#x of the FRE sub-section do not fit its %d bytes", l.num, first, left)
	}
	l.off = uint32(freOff + int(first))
	return nil
}

// Size returns the size of the section in bytes.
func (s *Section) Size() uint64 { return uint64(len(s.data)) }

// SameRows reports whether the i-th and the j-th FDE have the very same FREs in the section.
// They say the same in both, but for PC-mask FDEs of other repetition sizes.
func (s *Section) SameRows(i, j int) bool { return s.fres[i] == s.fres[j] }

// FREs appends the i-th FDE's FREs to buf and returns it.
func (s *Section) FREs(i int, buf []FRE) ([]FRE, error) {
	return (&Reader{s: s}).FREs(i, buf)
}

// A Reader reads the FREs of many FDEs. It remembers rows that it has decoded: but for where
// they start, those of a section are few.
type Reader struct {
	s     *Section
	known []decoded // by hash; the length is a power of two, or 0
}

// A decoded is a row that was decoded before. Size is 0 if there is none.
type decoded struct {
	code     uint64 // its info word and data words
	size     uint8  // their size in bytes
	flexible bool
	fre      FRE
}

// NewReader returns a Reader of the section's FREs.
func (s *Section) NewReader() *Reader {
	return &Reader{s, make([]decoded, 1<<bits.Len(uint(min(2*len(s.FDEs), 511))))}
}

// FREs appends the i-th FDE's FREs to buf and returns it.
func (r *Reader) FREs(i int, buf []FRE) ([]FRE, error) {
	s := r.s
	d, l := &s.FDEs[i], s.fres[i]
	limit := d.Size
	if d.RepSize > 0 {
		limit = uint32(d.RepSize)
	}
	off, width := int(l.off), l.typ.Size()
	if l.num == 0 && s.layout.Outermost && !d.Flexible {
		return append(buf, FRE{Outermost: true}), nil // for the whole of it
	}
	next := uint32(0) // the first start that is possible
	for range l.num {
		if len(s.data)-off < width+1 {
			return buf, errorf(off, "section ends inside an FRE")
		}
		start := s.start(off, l.typ)
		if start >= limit {
			return buf, errorf(off, "FRE starts at %#x of a function or block of %#x bytes", start, limit)
		}
		if start < next {
			return buf, errorf(off, "FRE starts at %#x, not behind the one before it", start)
		}
		buf = append(buf, FRE{})
		e := &buf[len(buf)-1]
		size, err := r.row(off+width, d.Flexible, e)
		if err != nil {
			return buf[:len(buf)-1], err
		}
		e.Start = start
		next = start + 1
		off += width + size
	}
	return buf, nil
}

// start returns the start address of the FRE at off.
func (s *Section) start(off int, typ FREType) uint32 {
	switch typ {
	case Addr1:
		return uint32(s.data[off])
	case Addr2:
		return uint32(s.order.Uint16(s.data[off:]))
	}
	return s.uint32(s.data[off:])
}

// row is decodeRow for a row that may be known.
func (r *Reader) row(off int, flexible bool, e *FRE) (int, error) {
	var k *decoded
	if b := r.s.data[off:]; len(b) >= 8 && len(r.known) > 0 {
		code := binary.LittleEndian.Uint64(b)
		if size := RowSize(b[0]); size <= 8 {
			code &= 1<<(8*size) - 1
			k = &r.known[code*0x9e3779b97f4a7c15>>32&uint64(len(r.known)-1)]
			if k.code == code && int(k.size) == size && k.flexible == flexible {
				*e = k.fre
				return size, nil
			}
			k.code, k.flexible = code, flexible
		}
	}
	size, err := r.s.decodeRow(off, flexible, e)
	if k != nil {
		k.size, k.fre = uint8(size), *e // 0 with an error
	}
	return size, err
}

// decodeRow reads the info word at off and its data words, and returns their
// size in bytes.
func (s *Section) decodeRow(off int, flexible bool, e *FRE) (int, error) {
	info := s.data[off]
	count, logSize := int(info>>FREInfoCount&0xf), info>>FREInfoSize&3
	if logSize > 2 {
		return 0, errorf(off, "FRE info word %#02x has data words of size 3; 0, 1 or 2 was expected", info)
	}
	w := words{section: s, off: off + 1, size: 1 << logSize, left: count}
	total := RowSize(info)
	if len(s.data)-off < total {
		return 0, errorf(off, "section ends inside an FRE")
	}
	e.Signed = info&FREInfoMangledRA != 0
	ok := true
	switch {
	case count == 0:
		e.Outermost = true
	case flexible:
		ok = s.flexibleRow(&w, e)
	default:
		base := FP
		if info&FREInfoSP != 0 {
			base = SP
		}
		ok = s.defaultRow(&w, base, e)
	}
	if !ok || w.left != 0 {
		return 0, errorf(off, "%d data words of an FRE make no row of this ABI and FDE type", count)
	}
	return total, nil
}

// words are the data words of one row, which are taken one by one.
type words struct {
	section *Section
	off     int
	size    int // of each, in bytes
	left    int
}

// unsigned returns the next word as it is, and whether there is one.
func (w *words) unsigned() (uint32, bool) {
	if w.left == 0 {
		return 0, false
	}
	b := w.section.data[w.off:]
	w.off += w.size
	w.left--
	switch w.size {
	case 1:
		return uint32(b[0]), true
	case 2:
		return uint32(w.section.order.Uint16(b)), true
	}
	return w.section.order.Uint32(b), true
}

// signed returns the next word sign-extended.
func (w *words) signed() (int32, bool) {
	v, ok := w.unsigned()
	shift := 32 - 8*w.size
	return int32(v<<shift) >> shift, ok
}

// defaultRow reads the words of a default FDE: CFA [RA] [FP], RA where the ABI
// tracks it.
func (s *Section) defaultRow(w *words, base Base, e *FRE) bool {
	i := s.ABI.info()
	v, _ := w.signed()
	offset, ok := s.ABI.decodeCFA(v)
	e.CFA = Rule{Base: base, Offset: offset}
	slot := func() Rule {
		v, more := w.signed()
		switch {
		case !more:
			return Rule{}
		case i.regWords && s.layout.RegWords && v&1 != 0:
			if v < 0 || v>>1 > math.MaxUint16 {
				ok = false
			}
			return Rule{Base: Register, Reg: uint16(v >> 1)}
		}
		return Rule{Base: CFA, Offset: v, Deref: true}
	}
	if s.FixedRA == 0 {
		// SFRAME_FRE_RA_OFFSET_INVALID: as of binutils 2.47 a word of 0 stands for
		// no rule on every ABI.
		if e.RA = slot(); e.RA == (Rule{Base: CFA, Deref: true}) {
			e.RA = Rule{}
		}
	}
	e.FP = slot()
	return ok
}

// flexibleRow reads the words of a flexible FDE: CFA [RA [FP]], each a control
// word and an offset word.
func (s *Section) flexibleRow(w *words, e *FRE) bool {
	ok := true
	rule := func() Rule {
		c, more := w.unsigned()
		if !more || c == 0 {
			return Rule{}
		}
		offset, more := w.signed()
		r := Rule{Base: CFA, Offset: offset, Deref: c&ControlDeref != 0}
		if c&ControlReg != 0 {
			r.Base, r.Reg = Register, uint16(c>>ControlRegShift)
		}
		if !more || c>>ControlRegShift > math.MaxUint16 || c&(1<<ControlRegShift-1)&^(ControlReg|ControlDeref) != 0 ||
			c&ControlReg == 0 && c>>ControlRegShift != 0 {
			ok = false
		}
		return r
	}
	e.CFA = rule()
	if e.CFA.Base != Register {
		return false
	}
	var fits bool
	e.CFA.Offset, fits = s.ABI.decodeCFA(e.CFA.Offset)
	e.RA = rule()
	e.FP = rule()
	return ok && fits
}

// Find returns the index of the FDE that describes pc, or -1. The FDEs must be
// sorted.
func (s *Section) Find(pc uint64) int {
	i := sort.Search(len(s.FDEs), func(i int) bool { return s.FDEs[i].Start > pc }) - 1
	if i < 0 || pc-s.FDEs[i].Start >= uint64(s.FDEs[i].Size) {
		return -1
	}
	return i
}

// Lookup returns the row that holds for pc, and whether there is one, as a stack tracer finds
// it: by a binary search for the FDE, and by going through its rows, of which only the
// one that is found is decoded. The FDEs must be sorted. Without a repetition size (V1) the
// rows of a PC-mask FDE hold for nothing that readers agree on.
func (s *Section) Lookup(pc uint64) (e FRE, ok bool, err error) {
	i := s.Find(pc)
	if i < 0 {
		return e, false, nil
	}
	d, l := &s.FDEs[i], &s.fres[i]
	at := uint32(pc - d.Start)
	if d.PCMask {
		if d.RepSize == 0 {
			return e, false, nil
		}
		at = uint32(pc % uint64(d.RepSize))
	}
	if l.num == 0 && s.layout.Outermost && !d.Flexible {
		return FRE{Outermost: true}, true, nil
	}
	off, width, found := int(l.off), l.typ.Size(), -1
	for range l.num {
		if len(s.data)-off < width+1 {
			return e, false, errorf(off, "section ends inside an FRE")
		}
		start := s.start(off, l.typ)
		if start > at {
			break
		}
		found, e.Start = off+width, start
		off = found + RowSize(s.data[found])
	}
	if found < 0 {
		return e, false, nil
	}
	_, err = s.decodeRow(found, d.Flexible, &e)
	return e, err == nil, err
}

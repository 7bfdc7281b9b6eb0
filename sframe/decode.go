package sframe

import (
	"encoding/binary"
	"fmt"
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

	order binary.ByteOrder
	data  []byte
	fres  []freList // of each FDE
}

// A freList is where a function's FREs are.
type freList struct {
	off int // in the section
	num uint32
	typ FREType
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
		s.order = binary.LittleEndian
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
	if bad := s.Flags &^ l.Flags; bad != 0 {
		return nil, errorf(3, "flags %#x are not defined in %v", uint8(bad), s.Version)
	}
	if len(data) < l.HeaderSize {
		return nil, errorf(0, "%d bytes are too few for a header of %d", len(data), l.HeaderSize)
	}
	s.ABI, s.FixedFP, s.FixedRA = ABI(data[4]), int8(data[5]), int8(data[6])
	if _, ok := abis[s.ABI]; !ok {
		return nil, errorf(4, "ABI %d is not known", data[4])
	}
	u32 := func(off int) uint64 { return uint64(s.order.Uint32(data[off:])) }
	numFDEs, freLen := u32(8), u32(16)
	s.NumFREs = s.order.Uint32(data[12:])
	// Sub-section offsets count from the end of the header.
	base := uint64(l.HeaderSize) + uint64(data[7])
	fdeOff, freOff := base+u32(20), base+u32(24)
	fdeEnd := fdeOff + numFDEs*uint64(l.FDESize)
	size := uint64(len(data))
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

// decodeFDE reads the i-th FDE, at off.
func (s *Section) decodeFDE(i, off, freOff int, addr uint64) error {
	b, d, l := s.data[off:], &s.FDEs[i], &s.fres[i]
	d.Start = addr + uint64(int64(int32(s.order.Uint32(b))))
	if s.Flags&FDEFuncStartPCRel != 0 {
		d.Start += uint64(off)
	}
	d.Size = s.order.Uint32(b[4:])
	first := uint64(s.order.Uint32(b[8:]))
	l.num = s.order.Uint32(b[12:])
	info := b[16]
	l.typ = FREType(info & FDEInfoFREType)
	if l.typ > Addr4 {
		return errorf(off+16, "FRE type %d of an FDE; 0, 1 or 2 was expected", l.typ)
	}
	if info&^(FDEInfoFREType|FDEInfoPCMask|FDEInfoKeyB) != 0 {
		return errorf(off+16, "info word %#02x of an FDE has undefined bits set", info)
	}
	d.KeyB = info&FDEInfoKeyB != 0
	if info&FDEInfoPCMask != 0 {
		if d.RepSize = b[17]; d.RepSize == 0 {
			return errorf(off+17, "PC-mask FDE has repetition size 0")
		}
	}
	// An FRE takes a start address and an info byte at least.
	if left := uint64(len(s.data) - freOff); first > left || uint64(l.num) > (left-first)/uint64(l.typ.Size()+1) {
		return errorf(off+8, "%d FREs at %#x of the FRE sub-section do not fit its %d bytes", l.num, first, left)
	}
	l.off = freOff + int(first)
	return nil
}

// FREs appends the i-th FDE's FREs to buf and returns it.
func (s *Section) FREs(i int, buf []FRE) ([]FRE, error) {
	d, l := &s.FDEs[i], s.fres[i]
	limit := d.Size
	if d.RepSize > 0 {
		limit = uint32(d.RepSize)
	}
	off, width := l.off, l.typ.Size()
	for n := range l.num {
		if len(s.data)-off < width+1 {
			return buf, errorf(off, "section ends inside an FRE")
		}
		var e FRE
		switch l.typ {
		case Addr1:
			e.Start = uint32(s.data[off])
		case Addr2:
			e.Start = uint32(s.order.Uint16(s.data[off:]))
		default:
			e.Start = s.order.Uint32(s.data[off:])
		}
		if e.Start >= limit {
			return buf, errorf(off, "FRE starts at %#x of a function or block of %#x bytes", e.Start, limit)
		}
		if n > 0 && e.Start <= buf[len(buf)-1].Start {
			return buf, errorf(off, "FRE starts at %#x, not behind the one before it", e.Start)
		}
		size, err := s.decodeRow(off+width, &e)
		if err != nil {
			return buf, err
		}
		off += width + size
		buf = append(buf, e)
	}
	return buf, nil
}

// decodeRow reads the info word at off and its data words, and returns their
// size in bytes.
func (s *Section) decodeRow(off int, e *FRE) (int, error) {
	info := s.data[off]
	count, logSize := int(info>>FREInfoCount&0xf), info>>FREInfoSize&3
	if logSize > 2 {
		return 0, errorf(off, "FRE info word %#02x has data words of size 3; 0, 1 or 2 was expected", info)
	}
	size := 1 << logSize
	total := 1 + count*size
	if len(s.data)-off < total {
		return 0, errorf(off, "section ends inside an FRE")
	}
	e.Signed = info&FREInfoMangledRA != 0
	if count == 0 {
		e.Outermost = true
		return total, nil
	}
	base := FP
	if info&FREInfoSP != 0 {
		base = SP
	}
	word := func(i int) int32 {
		b := s.data[off+1+i*size:]
		switch size {
		case 1:
			return int32(int8(b[0]))
		case 2:
			return int32(int16(s.order.Uint16(b)))
		}
		return int32(s.order.Uint32(b))
	}
	e.CFA = Rule{Base: base, Offset: word(0)}
	next := 1
	if s.FixedRA == 0 && next < count {
		e.RA = Rule{Base: CFA, Offset: word(next), Deref: true}
		next++
	}
	if next < count {
		e.FP = Rule{Base: CFA, Offset: word(next), Deref: true}
		next++
	}
	if next < count {
		return 0, errorf(off, "FRE has %d data words; %d at most were expected", count, next)
	}
	return total, nil
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

package sframe

import "encoding/binary"

// A Header is the header of a section (section "SFrame Header"). Its offsets are relative to the end of the auxiliary
// header.
type Header struct {
	Version Version
	Flags   Flags
	ABI     ABI
	FixedFP int8   // offset of the saved FP from the CFA in bytes; 0: tracked per row
	FixedRA int8   // offset of the saved RA from the CFA in bytes; 0: tracked per row
	AuxLen  uint8  // length of the auxiliary header in bytes
	NumFDEs uint32 // number of FDEs
	NumFREs uint32 // sum of the FDEs' FRE counts; shared FREs count once per FDE
	FRELen  uint32 // length of the FRE sub-section in bytes
	FDEOff  uint32 // offset of the FDE sub-section
	FREOff  uint32 // offset of the FRE sub-section
}

// AppendHeader appends the header of a section to out. The Codec sets the version, the ABI and the fixed RA offset of
// h.
func (c *Codec) AppendHeader(out []byte, h *Header) []byte {
	h.Version, h.ABI, h.FixedRA = c.version, c.abi, c.info.fixedRA
	out = c.order.AppendUint16(out, Magic)
	out = append(out, byte(h.Version), byte(h.Flags), byte(h.ABI), byte(h.FixedFP), byte(h.FixedRA), h.AuxLen)
	for _, v := range [...]uint32{h.NumFDEs, h.NumFREs, h.FRELen, h.FDEOff, h.FREOff} {
		out = c.order.AppendUint32(out, v)
	}
	return out
}

// magicOrder returns the byte order in which b starts with the magic number, or nil if it does not.
func magicOrder(b []byte) Order {
	switch {
	case len(b) < 2:
	case binary.LittleEndian.Uint16(b) == Magic:
		return binary.LittleEndian
	case binary.BigEndian.Uint16(b) == Magic:
		return binary.BigEndian
	}
	return nil
}

// IsSection reports whether b starts with the magic number, in either byte order.
func IsSection(b []byte) bool { return magicOrder(b) != nil }

// decodeHeader decodes the header of data, and returns the Codec for the rest.
func decodeHeader(data []byte) (h Header, c *Codec, err error) {
	if len(data) < 4 {
		return h, nil, errorf(0, "section of %d bytes is shorter than a preamble (4 bytes)", len(data))
	}
	order := magicOrder(data)
	if order == nil {
		return h, nil, errorf(0, "starts with % x instead of the magic %#x", data[:2], Magic)
	}
	h.Version, h.Flags = Version(data[2]), Flags(data[3])
	l := h.Version.layout()
	if l.HeaderSize == 0 {
		return h, nil, errorf(2, "unknown version %d", data[2])
	}
	if bad := h.Flags &^ l.Flags; bad != 0 {
		return h, nil, errorf(3, "flags %#x are not defined in %v", uint8(bad), h.Version)
	}
	if len(data) < l.HeaderSize {
		return h, nil, errorf(0, "section of %d bytes is shorter than a header (%d bytes)", len(data), l.HeaderSize)
	}
	h.ABI, h.FixedFP, h.FixedRA, h.AuxLen = ABI(data[4]), int8(data[5]), int8(data[6]), data[7]
	if c, err = NewCodec(h.Version, h.ABI); err != nil {
		return h, nil, errorf(4, "ABI %d is not defined in %v", data[4], h.Version)
	}
	if c.order != order {
		return h, nil, errorf(0, "byte order is %v, but ABI %v is %v", order, h.ABI, c.order)
	}
	for i, v := range []*uint32{&h.NumFDEs, &h.NumFREs, &h.FRELen, &h.FDEOff, &h.FREOff} {
		*v = order.Uint32(data[8+4*i:])
	}
	if l.PCRel && h.Flags&FDEFuncStartPCRel == 0 && h.NumFDEs > 0 {
		return h, nil, errorf(3, "flag %#x is not set, but %v requires it", uint8(FDEFuncStartPCRel), h.Version)
	}
	return h, c, nil
}

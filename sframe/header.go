package sframe

import "encoding/binary"

// A Header is the header of a section (section "SFrame Header"). Its offsets count from its end, after the auxiliary
// header.
type Header struct {
	Version Version
	Flags   Flags
	ABI     ABI
	FixedFP int8   // offset in bytes of the saved FP from the CFA; 0: tracked row by row
	FixedRA int8   // the same of RA
	AuxLen  uint8  // of the auxiliary header, in bytes
	NumFDEs uint32 // function descriptors
	NumFREs uint32 // the sum of what the FDEs say they have; those that are shared count for each
	FRELen  uint32 // of the FRE sub-section, in bytes
	FDEOff  uint32 // where the FDE sub-section begins
	FREOff  uint32 // where the FRE sub-section begins
}

// AppendHeader appends the header of a section to out. The Codec determines the version, the ABI and the fixed offsets.
func (c *Codec) AppendHeader(out []byte, h *Header) []byte {
	h.Version, h.ABI, h.FixedRA = c.version, c.abi, c.info.fixedRA
	out = c.order.AppendUint16(out, Magic)
	out = append(out, byte(h.Version), byte(h.Flags), byte(h.ABI), byte(h.FixedFP), byte(h.FixedRA), h.AuxLen)
	for _, v := range [...]uint32{h.NumFDEs, h.NumFREs, h.FRELen, h.FDEOff, h.FREOff} {
		out = c.order.AppendUint32(out, v)
	}
	return out
}

// magicOrder returns the byte order of a section's magic number, or nil.
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

// IsSection reports whether b begins with the magic number, in either byte order.
func IsSection(b []byte) bool { return magicOrder(b) != nil }

// decodeHeader decodes the header of data, and returns the Codec for the rest.
func decodeHeader(data []byte) (h Header, c *Codec, err error) {
	if len(data) < 4 {
		return h, nil, errorf(0, "%d bytes are too few for an SFrame preamble of 4", len(data))
	}
	order := magicOrder(data)
	if order == nil {
		return h, nil, errorf(0, "starts with % x instead of the magic %#x", data[:2], Magic)
	}
	h.Version, h.Flags = Version(data[2]), Flags(data[3])
	l := h.Version.layout()
	if l.HeaderSize == 0 {
		return h, nil, errorf(2, "version %d is not known", data[2])
	}
	if bad := h.Flags &^ l.Flags; bad != 0 {
		return h, nil, errorf(3, "flags %#x are not defined in %v", uint8(bad), h.Version)
	}
	if len(data) < l.HeaderSize {
		return h, nil, errorf(0, "%d bytes are too few for a header of %d", len(data), l.HeaderSize)
	}
	h.ABI, h.FixedFP, h.FixedRA, h.AuxLen = ABI(data[4]), int8(data[5]), int8(data[6]), data[7]
	if c, err = NewCodec(h.Version, h.ABI); err != nil {
		return h, nil, errorf(4, "ABI %d is not known in %v", data[4], h.Version)
	}
	if c.order != order {
		return h, nil, errorf(0, "byte order is %v, but that of ABI %v is %v", order, h.ABI, c.order)
	}
	for i, v := range []*uint32{&h.NumFDEs, &h.NumFREs, &h.FRELen, &h.FDEOff, &h.FREOff} {
		*v = order.Uint32(data[8+4*i:])
	}
	if l.PCRel && h.Flags&FDEFuncStartPCRel == 0 && h.NumFDEs > 0 {
		return h, nil, errorf(3, "flag %#x is missing, without which %v has no meaning", uint8(FDEFuncStartPCRel),
			h.Version)
	}
	return h, c, nil
}

package sframe

// FREType is the width of the start addresses of a function's FREs (section "The SFrame FRE Types").
type FREType uint8

const (
	Addr1 FREType = iota // 1 byte
	Addr2                // 2 bytes
	Addr4                // 4 bytes
)

// Size returns the width in bytes.
func (t FREType) Size() int { return 1 << t }

// TypeFor returns the narrowest type for a list of FREs whose last FRE starts at offset last.
func TypeFor(last uint32) FREType {
	switch {
	case last < 1<<8:
		return Addr1
	case last < 1<<16:
		return Addr2
	}
	return Addr4
}

// Bits of the FDE info word (section "The SFrame FDE Info Word"). Bits 0 to 3 are the FREType.
const (
	fdeInfoFREType = 0x0f
	fdeInfoPCMask  = 1 << 4
	fdeInfoKeyB    = 1 << 5
	fdeInfoSignal  = 1 << 7 // V3
)

// FDE types of V3, in the second info byte of the attribute.
const (
	fdeTypeDefault  = 0
	fdeTypeFlexible = 1
)

// A List locates the FREs of an FDE.
type List struct {
	Off  uint32 // offset of the FREs in the FRE sub-section in bytes; in V3, of the attribute before them
	Num  uint32 // number of FREs
	Type FREType
}

// AppendFDE appends a function descriptor entry; in V3, its index entry. Start is the value of the start address field:
// relative to the section or to the field itself.
func (c *Codec) AppendFDE(out []byte, d *FDE, start uint64, l *List) []byte {
	if c.layout.StartSize == 8 {
		out = c.order.AppendUint64(out, start)
	} else {
		out = c.order.AppendUint32(out, uint32(start))
	}
	out = c.order.AppendUint32(out, d.Size)
	out = c.order.AppendUint32(out, l.Off)
	if c.layout.AttrSize != 0 {
		return out
	}
	out = c.order.AppendUint32(out, l.Num)
	out = append(out, d.info(l))
	if c.layout.RepSize {
		out = append(out, d.RepSize, 0, 0)
	}
	return out
}

// AppendAttr appends the attribute that precedes the FREs of an FDE in V3. In other versions it appends nothing.
func (c *Codec) AppendAttr(out []byte, d *FDE, l *List) []byte {
	if c.layout.AttrSize == 0 {
		return out
	}
	fdeType := byte(fdeTypeDefault)
	if d.Flexible {
		fdeType = fdeTypeFlexible
	}
	out = c.order.AppendUint16(out, uint16(l.Num))
	return append(out, d.info(l), fdeType, d.RepSize)
}

// info returns the FDE info word.
func (d *FDE) info(l *List) byte {
	info := byte(l.Type)
	if d.PCMask {
		info |= fdeInfoPCMask
	}
	if d.KeyB {
		info |= fdeInfoKeyB
	}
	if d.Signal {
		info |= fdeInfoSignal
	}
	return info
}

// start returns the start address of the FDE at off.
func (s *Encoded) start(off int) uint64 {
	c, b := s.codec, s.data[off:]
	start := s.addr
	if c.layout.StartSize == 8 {
		start += c.u64(b)
	} else {
		start += uint64(int64(int32(c.u32(b))))
	}
	if s.pcrel {
		start += uint64(off)
	}
	return start
}

// fde decodes the FDE at off. Its attribute must be within the section.
func (s *Encoded) fde(off int) (d FDE, l List) {
	c, b := s.codec, s.data[off+s.codec.layout.StartSize:]
	d.Start, d.Size, l.Off = s.start(off), c.u32(b), c.u32(b[4:])
	var info, rep byte
	if c.layout.AttrSize != 0 {
		a := s.data[s.fres+int(l.Off):]
		l.Num, info, d.Flexible, rep = uint32(c.u16(a)), a[2], a[3] == fdeTypeFlexible, a[4]
	} else {
		l.Num, info = c.u32(b[8:]), b[12]
		if c.layout.RepSize {
			rep = b[13]
		}
	}
	l.Type = FREType(info & fdeInfoFREType)
	d.PCMask, d.KeyB, d.Signal = info&fdeInfoPCMask != 0, info&fdeInfoKeyB != 0, info&fdeInfoSignal != 0
	if d.PCMask {
		d.RepSize = rep
	}
	return d, l
}

// checkFDE decodes the FDE at off. It returns an error if the FDE is invalid or its FREs extend past the end of the
// section.
func (s *Encoded) checkFDE(off int) (d FDE, l List, err error) {
	c := s.codec
	at, infoAt := off, off+c.layout.StartSize+12
	first := c.u32(s.data[off+c.layout.StartSize+4:])
	left, attr := uint64(len(s.data)-s.fres), uint64(c.layout.AttrSize)
	if uint64(first) > left || left-uint64(first) < attr {
		return d, l, errorf(off, "FREs at offset %#x extend past the FRE sub-section of %d bytes", first, left)
	}
	if attr != 0 {
		at = s.fres + int(first)
		infoAt = at + 2
		if t := s.data[at+3]; t != fdeTypeDefault && t != fdeTypeFlexible {
			return d, l, errorf(at, "FDE type is %d, not 0 or 1", t)
		}
	}
	d, l = s.fde(off)
	known := byte(fdeInfoFREType | fdeInfoPCMask | fdeInfoKeyB)
	if c.layout.Signal {
		known |= fdeInfoSignal
	}
	if info := s.data[infoAt]; info&^known != 0 {
		return d, l, errorf(at, "info word %#02x of an FDE has undefined bits set", info)
	}
	if l.Type > Addr4 {
		return d, l, errorf(at, "FRE type is %d, not 0, 1 or 2", l.Type)
	}
	if d.PCMask && d.RepSize == 0 && c.layout.RepSize {
		return d, l, errorf(at, "PC-mask FDE has repetition size 0")
	}
	// An FRE consists of at least a start address and an info byte.
	if uint64(l.Num)*uint64(l.Type.Size()+1) > left-uint64(first)-attr {
		return d, l, errorf(off, "%d FREs at offset %#x extend past the FRE sub-section of %d bytes", l.Num, first,
			left)
	}
	return d, l, nil
}

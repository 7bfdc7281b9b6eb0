package cfi

// Pointer encodings (LSB Core, "DWARF Exception Header Encoding"). The low four bits are the format, the next three the
// base.
const (
	peAbsptr  = 0x00
	peULEB128 = 0x01
	peUdata2  = 0x02
	peUdata4  = 0x03
	peUdata8  = 0x04
	peSigned  = 0x08
	peSLEB128 = 0x09
	peSdata2  = 0x0a
	peSdata4  = 0x0b
	peSdata8  = 0x0c

	pePCRel   = 0x10
	peTextRel = 0x20
	peDataRel = 0x30
	peFuncRel = 0x40
	peAligned = 0x50

	peIndirect = 0x80
	peOmit     = 0xff

	peFormMask = 0x0f
	peBaseMask = 0x70
)

// addrSize is the size of an address in bytes; all supported machines are 64-bit.
const addrSize = 8

// rawPointer decodes a value in the format of the encoding, without adding the base.
func (c *cursor) rawPointer(enc byte) uint64 {
	switch enc & peFormMask {
	case peAbsptr, peUdata8, peSigned, peSdata8:
		return c.uint(8)
	case peULEB128:
		return c.uleb()
	case peSLEB128:
		return uint64(c.sleb())
	case peUdata2:
		return c.uint(2)
	case peUdata4:
		return c.uint(4)
	case peSdata2:
		return uint64(int64(int16(c.uint(2))))
	case peSdata4:
		return uint64(int64(int32(c.uint(4))))
	}
	c.fail(c.pos, "pointer encoding %#02x has an unknown format", enc)
	return 0
}

// pointer decodes an encoded pointer. Function-relative pointers are relative to fn.
func (c *cursor) pointer(enc byte, fn uint64) uint64 {
	if enc == peOmit {
		c.fail(c.pos, "required pointer is omitted (encoding 0xff)")
		return 0
	}
	if enc&^peIndirect == peAligned {
		// An absolute pointer at the next aligned address.
		pad := -(c.sec.addr + uint64(c.pos)) % addrSize
		c.take(pad, "alignment")
		return c.indirect(enc, c.uint(addrSize))
	}
	at := c.pos
	v := c.rawPointer(enc)
	if c.err != nil {
		return 0
	}
	switch enc & peBaseMask {
	case peAbsptr:
	case pePCRel:
		v += c.sec.addr + uint64(at)
	case peTextRel:
		v += c.sec.textBase
	case peDataRel:
		v += c.sec.dataBase
	case peFuncRel:
		v += fn
	default:
		c.fail(at, "pointer encoding %#02x has an unknown base", enc)
	}
	return c.indirect(enc, v)
}

// indirect returns v, or the pointer stored at address v if the encoding is indirect. It reads from the file.
func (c *cursor) indirect(enc byte, v uint64) uint64 {
	if enc&peIndirect == 0 || c.err != nil {
		return v
	}
	if c.sec.file == nil {
		c.fail(c.pos, "indirect pointer at address %#x, which is not in a known section", v)
		return 0
	}
	if off, ok := c.sec.file.FileOffset(v, addrSize); ok {
		if b, err := c.sec.file.ReadAt("indirect pointer", off, addrSize); err == nil {
			return c.sec.order.Uint64(b)
		}
	}
	c.fail(c.pos, "indirect pointer at address %#x, which is not in a loaded segment", v)
	return 0
}

// skipPointer skips an encoded pointer.
func (c *cursor) skipPointer(enc byte) {
	switch {
	case enc == peOmit:
	case enc&^peIndirect == peAligned:
		c.pointer(peAligned, 0)
	default:
		c.rawPointer(enc)
	}
}

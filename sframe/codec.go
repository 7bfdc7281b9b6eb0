package sframe

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// A Codec encodes and decodes the records of one version for one ABI. It is immutable and safe for concurrent use.
type Codec struct {
	version Version
	abi     ABI
	layout  *Layout
	info    *abiInfo
	order   Order
	big     bool // order is big-endian
}

// NewCodec returns a Codec, or an error if the version does not support the ABI.
func NewCodec(v Version, a ABI) (*Codec, error) {
	l := v.layout()
	if l.HeaderSize == 0 {
		return nil, fmt.Errorf("%v is unknown", v)
	}
	if !slices.Contains(l.ABIs, a) {
		return nil, fmt.Errorf("%v does not support ABI %v", v, a)
	}
	i := a.info()
	return &Codec{v, a, l, i, i.order, i.order == Order(binary.BigEndian)}, nil
}

// Version returns the version of the format.
func (c *Codec) Version() Version { return c.version }

// ABI returns the ABI.
func (c *Codec) ABI() ABI { return c.abi }

// Layout returns the version's layout, which callers must not modify.
func (c *Codec) Layout() *Layout { return c.layout }

// u16, u32 and u64 decode integers faster than c.order, whose methods are not inlined.
func (c *Codec) u16(b []byte) uint16 {
	if c.big {
		return binary.BigEndian.Uint16(b)
	}
	return binary.LittleEndian.Uint16(b)
}

func (c *Codec) u32(b []byte) uint32 {
	if c.big {
		return binary.BigEndian.Uint32(b)
	}
	return binary.LittleEndian.Uint32(b)
}

func (c *Codec) u64(b []byte) uint64 {
	if c.big {
		return binary.BigEndian.Uint64(b)
	}
	return binary.LittleEndian.Uint64(b)
}

// unsigned decodes the 1-, 2- or 4-byte integer at the start of b.
func (c *Codec) unsigned(b []byte, size int) uint32 {
	switch size {
	case 1:
		return uint32(b[0])
	case 2:
		return uint32(c.u16(b))
	}
	return c.u32(b)
}

// appendUnsigned is the inverse of unsigned.
func (c *Codec) appendUnsigned(out []byte, v uint32, size int) []byte {
	switch size {
	case 1:
		return append(out, byte(v))
	case 2:
		return c.order.AppendUint16(out, uint16(v))
	}
	return c.order.AppendUint32(out, v)
}

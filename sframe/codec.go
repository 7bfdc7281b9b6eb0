package sframe

import (
	"fmt"
	"slices"
)

// A Codec encodes and decodes the records of one version for one ABI. It is immutable, and safe for concurrent use.
type Codec struct {
	version Version
	abi     ABI
	layout  *Layout
	info    *abiInfo
	order   Order
}

// NewCodec returns a Codec, or an error if the version does not support the ABI.
func NewCodec(v Version, a ABI) (*Codec, error) {
	l := v.layout()
	if l.HeaderSize == 0 {
		return nil, fmt.Errorf("%v is not known", v)
	}
	if !slices.Contains(l.ABIs, a) {
		return nil, fmt.Errorf("%v does not know the ABI %v", v, a)
	}
	i := a.info()
	return &Codec{v, a, l, i, i.order}, nil
}

// Version returns the version.
func (c *Codec) Version() Version { return c.version }

// ABI returns the ABI.
func (c *Codec) ABI() ABI { return c.abi }

// Layout returns the version's layout, which must not be changed.
func (c *Codec) Layout() *Layout { return c.layout }

// unsigned returns the integer of 1, 2 or 4 bytes at the start of b.
func (c *Codec) unsigned(b []byte, size int) uint32 {
	switch size {
	case 1:
		return uint32(b[0])
	case 2:
		return uint32(c.order.Uint16(b))
	}
	return c.order.Uint32(b)
}

// appendUnsigned is the inverse.
func (c *Codec) appendUnsigned(out []byte, v uint32, size int) []byte {
	switch size {
	case 1:
		return append(out, byte(v))
	case 2:
		return c.order.AppendUint16(out, uint16(v))
	}
	return c.order.AppendUint32(out, v)
}

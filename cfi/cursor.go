package cfi

import (
	"fmt"
)

// An Error describes malformed CFI.
type Error struct {
	Section string // for example ".eh_frame"
	Off     uint64 // offset in bytes from the start of the (decompressed) section
	Msg     string
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s+%#x: %s", e.Section, e.Off, e.Msg)
}

// A cursor decodes part of a section. After the first error, all methods return zero values.
type cursor struct {
	sec  *section
	data []byte // sec.data, truncated at the end of the part
	pos  int
	err  *Error
}

func (c *cursor) fail(pos int, format string, args ...any) {
	if c.err == nil {
		c.err = &Error{c.sec.name, uint64(pos), fmt.Sprintf(format, args...)}
		c.pos = len(c.data)
	}
}

// take returns the next n bytes, or nil after an error.
func (c *cursor) take(n uint64, what string) []byte {
	if left := uint64(len(c.data) - c.pos); n > left {
		c.fail(c.pos, "%s of %d bytes, but the record has only %d left", what, n, left)
		return nil
	}
	b := c.data[c.pos:][:n:n]
	c.pos += int(n)
	return b
}

func (c *cursor) u8() byte {
	if c.pos >= len(c.data) {
		c.fail(c.pos, "record ends before operand")
		return 0
	}
	b := c.data[c.pos]
	c.pos++
	return b
}

// uint decodes an unsigned integer of size 1, 2, 4 or 8 bytes.
func (c *cursor) uint(size int) uint64 {
	if size > len(c.data)-c.pos {
		c.take(uint64(size), "operand")
		return 0
	}
	b := c.data[c.pos:][:size]
	c.pos += size
	switch {
	case size == 4:
		return uint64(c.sec.order.Uint32(b))
	case size == 1:
		return uint64(b[0])
	case size == 2:
		return uint64(c.sec.order.Uint16(b))
	}
	return c.sec.order.Uint64(b)
}

// maxLEB is the maximum length in bytes of a 64-bit LEB128 number.
const maxLEB = 10

func (c *cursor) uleb() uint64 {
	if c.pos < len(c.data) {
		if b := c.data[c.pos]; b < 0x80 {
			c.pos++
			return uint64(b)
		}
	}
	return c.ulebLong()
}

func (c *cursor) ulebLong() uint64 {
	start := c.pos
	var v uint64
	for i := range maxLEB {
		b := c.u8()
		if c.err != nil {
			return 0
		}
		if i == maxLEB-1 && b > 1 {
			break
		}
		v |= uint64(b&0x7f) << (7 * i)
		if b < 0x80 {
			return v
		}
	}
	c.fail(start, "unsigned LEB128 number exceeds 64 bits")
	return 0
}

func (c *cursor) sleb() int64 {
	start := c.pos
	var v int64
	for i := range maxLEB {
		b := c.u8()
		if c.err != nil {
			return 0
		}
		if i == maxLEB-1 && b != 0 && b != 0x7f {
			break
		}
		v |= int64(b&0x7f) << (7 * i)
		if b < 0x80 {
			if shift := 7 * (i + 1); shift < 64 && b&0x40 != 0 {
				v |= -1 << shift
			}
			return v
		}
	}
	c.fail(start, "signed LEB128 number exceeds 64 bits")
	return 0
}

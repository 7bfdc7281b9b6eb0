package dwline

import (
	"encoding/binary"
	"fmt"
)

// A reader reads a part of a section.
type reader struct {
	*finder
	s   *section
	off uint64 // in the section, of buf[0]
	end uint64 // of the part
	buf []byte

	// Sizes of values depend on these.
	version  int
	addrSize int  // in bytes
	wide     bool // 64-bit DWARF
}

const (
	window    = 4096 // bytes that are read at once
	perReader = 256  // bytes that are counted for a reader
	maxPath   = 4096 // bytes of the longest part of a path
)

// at returns a reader of a section from off on.
func (x *finder) at(s *section, off uint64) *reader {
	r := &reader{finder: x, s: s}
	if s == nil || x.err != nil {
		return r
	}
	if r.off, r.end = off, s.size; off > s.size {
		r.fail("up to %#x, and the section has %d bytes", off, s.size)
	}
	r.spend(perReader)
	return r
}

// fail notes the first error, with its place.
func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%s+%#x: %s", r.s.name, r.off, fmt.Sprintf(format, args...))
	}
}

// spend counts n bytes as read.
func (r *reader) spend(n uint64) {
	if r.work < n {
		r.fail("units share so much of the sections that more than %d bytes would have to be read", anyWork+r.f.Size)
		return
	}
	r.work -= n
}

func (r *reader) more() bool { return r.err == nil && r.off < r.end }

// need reports whether n bytes can be read.
func (r *reader) need(n uint64) bool {
	if r.err == nil && n > r.end-r.off {
		r.fail("%d bytes where %d are left", n, r.end-r.off)
	}
	return r.err == nil
}

// skip passes over n bytes.
func (r *reader) skip(n uint64) {
	if !r.need(n) {
		return
	}
	r.spend(1)
	r.off += n
	r.buf = r.buf[min(n, uint64(len(r.buf))):]
}

func (r *reader) u8() byte {
	if !r.need(1) {
		return 0
	}
	if len(r.buf) == 0 {
		n := min(window, r.s.size-r.off)
		if r.s.data != nil {
			r.buf = r.s.data[r.off:][:n]
		} else if r.buf, r.err = r.f.ReadAt("section "+r.s.name, r.s.off+r.off, n); r.err != nil {
			return 0
		}
	}
	r.spend(1)
	b := r.buf[0]
	r.buf, r.off = r.buf[1:], r.off+1
	return b
}

// uint returns an unsigned integer of n bytes.
func (r *reader) uint(n int) uint64 {
	if !r.need(uint64(n)) {
		return 0
	}
	var v uint64
	for i := range n {
		if b := uint64(r.u8()); r.f.Order == binary.BigEndian {
			v = v<<8 | b
		} else {
			v |= b << (8 * i)
		}
	}
	return v
}

// offset returns an offset in a section.
func (r *reader) offset() uint64 {
	if r.wide {
		return r.uint(8)
	}
	return r.uint(4)
}

// length reads the length before a unit, which also tells 64-bit DWARF, and returns the unit's end.
func (r *reader) length(what string) uint64 {
	r.wide = false
	n := r.uint(4)
	if r.wide = n == 0xffffffff; r.wide {
		n = r.uint(8)
	} else if n >= 0xfffffff0 {
		r.fail("length %#x is reserved", n)
	}
	if n > r.end-r.off {
		r.fail("%s of %d bytes, and %d are left", what, n, r.end-r.off)
	}
	return r.off + n
}

func (r *reader) uleb() uint64 { return r.leb(false) }

// leb returns a LEB128 number, whose sign is extended if it has one.
func (r *reader) leb(signed bool) uint64 {
	var v uint64
	for shift := 0; shift < 70; shift += 7 {
		b := r.u8()
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			if signed && b&0x40 != 0 {
				v |= ^uint64(0) << (shift + 7)
			}
			return v
		}
	}
	r.fail("LEB128 number longer than 64 bits")
	return 0
}

// cstring returns a string that ends in a zero.
func (r *reader) cstring() string {
	var b []byte
	for r.more() {
		c := r.u8()
		if c == 0 {
			return string(b)
		}
		if b = append(b, c); len(b) > maxPath {
			r.fail("text of more than %d bytes", maxPath)
		}
	}
	r.fail("text without an end")
	return ""
}

// A form is the encoding of an attribute's value (DWARF 5, section 7.5.6; those from 0x1f00 on are GNU's).
type form uint64

const (
	formAddr          form = 0x01
	formString        form = 0x08
	formStrp          form = 0x0e
	formRefAddr       form = 0x10
	formIndirect      form = 0x16
	formLineStrp      form = 0x1f
	formImplicitConst form = 0x21
)

// A value is that of an attribute.
type value struct {
	form   form // 0 if the attribute is missing
	n      uint64
	inline string
}

// value reads a value of a form. Blocks are skipped.
func (r *reader) value(f form) value {
	v := value{form: f}
	switch f {
	case formImplicitConst, 0x19: // flag_present; neither has bytes
	case 0x0b, 0x0c, 0x11, 0x25, 0x29: // data1, flag, ref1, strx1, addrx1
		v.n = r.uint(1)
	case 0x05, 0x12, 0x26, 0x2a: // data2, ref2, strx2, addrx2
		v.n = r.uint(2)
	case 0x27, 0x2b: // strx3, addrx3
		v.n = r.uint(3)
	case 0x06, 0x13, 0x1c, 0x28, 0x2c: // data4, ref4, ref_sup4, strx4, addrx4
		v.n = r.uint(4)
	case 0x07, 0x14, 0x20, 0x24: // data8, ref8, ref_sig8, ref_sup8
		v.n = r.uint(8)
	case 0x1e: // data16
		r.skip(16)
	case formStrp, formLineStrp, 0x17, 0x1d, 0x1f20, 0x1f21: // sec_offset, strp_sup, GNU_ref_alt, GNU_strp_alt
		v.n = r.offset()
	case formRefAddr:
		if r.version < 3 {
			v.n = r.uint(r.addrSize)
		} else {
			v.n = r.offset()
		}
	case formAddr:
		v.n = r.uint(r.addrSize)
	case 0x0d, 0x0f, 0x15, 0x1a, 0x1b, 0x22, 0x23, // sdata, udata, ref_udata, strx, addrx, loclistx, rnglistx
		0x1f01, 0x1f02: // GNU_addr_index, GNU_str_index
		v.n = r.uleb()
	case formString:
		v.inline = r.cstring()
	case 0x0a: // block1
		r.skip(r.uint(1))
	case 0x03: // block2
		r.skip(r.uint(2))
	case 0x04: // block4
		r.skip(r.uint(4))
	case 0x09, 0x18: // block, exprloc
		r.skip(r.uleb())
	case formIndirect:
		f := form(r.uleb())
		if f == formIndirect || f == formImplicitConst {
			r.fail("form %#x of an indirect value", uint64(f))
			break
		}
		return r.value(f)
	default:
		r.fail("form %#x is not known", uint64(f))
	}
	return v
}

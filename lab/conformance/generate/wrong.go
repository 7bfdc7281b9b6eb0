package generate

import (
	"fmt"

	"cfi2sframe/lab/conformance/vector"
)

// Groups of sections that are to be refused.
const (
	bounds    = "refuse-bounds"        // parts are outside of the section
	undefined = "refuse-undefined"     // values are not defined
	contrary  = "refuse-contradiction" // two values contradict each other
)

// wrongForms are the formats and machines of sections that are to be refused: a machine for each byte order.
var wrongForms = []form{
	{"1", amd64}, {"1", aarch64BE}, {"2", amd64}, {"2", aarch64BE},
	{"2e1", amd64}, {"2e1", s390x}, {"3", amd64}, {"3", s390x},
}

// refuse makes a vector of bytes that are to be refused, and that may give no row at the addresses pcs.
func (m *maker) refuse(group, name, what, text string, addr uint64, data []byte, pcs ...uint64) {
	v := vector.Vector{
		Name: m.String() + "/" + group + "-" + name, Feature: group, Format: m.format, ABI: m.name,
		About: what, Text: text, Address: vector.Hex(addr), Section: data, Refuse: &vector.Refuse{What: what},
	}
	for _, pc := range pcs {
		v.Refuse.PCs = append(v.Refuse.PCs, vector.Hex(pc))
	}
	m.out = append(m.out, v)
}

// wrong returns the vectors of a form that are to be refused.
func wrong(f form) []vector.Vector {
	m := &maker{form: f}
	m.wrongHeaders()
	m.wrongFunctions()
	m.wrongRows()
	return m.out
}

// whole returns a section with two functions.
func (m *maker) whole() (*section, []byte, where) {
	s := m.new(one(0x1000, 0x20, m.rows(0, 4)...), one(0x1040, 0x20, m.rows(0, 4, 8)...))
	data, at := s.encode()
	return s, data, at
}

// wrongHeaders has wrong headers.
func (m *maker) wrongHeaders() {
	pcs := []uint64{0x1000, 0x1010, 0x1040, 0x105f}
	patch := func(group, name, what, text string, change func(b []byte) []byte) {
		s, data, _ := m.whole()
		m.refuse(group, name, what, text, s.addr, change(data), pcs...)
	}
	set := func(off int, v byte) func([]byte) []byte {
		return func(b []byte) []byte { b[off] = v; return b }
	}
	word := func(off int, v uint32) func([]byte) []byte {
		return func(b []byte) []byte { m.order.PutUint32(b[off:], v); return b }
	}
	cut := func(n int) func([]byte) []byte {
		return func(b []byte) []byte { return b[:n] }
	}
	const preamble, header = "SFrame Preamble", "SFrame Header"
	half := func(v uint16) func([]byte) []byte {
		return func(b []byte) []byte { m.order.PutUint16(b, v); return b }
	}
	patch(undefined, "magic", "the magic number is 0xdee3", preamble, half(0xdee3))
	patch(undefined, "magic-zero", "the magic number is 0", preamble, half(0))
	patch(contrary, "byte-order", "the magic number is in the other byte order than the ABI's",
		"SFrame Magic Number and Endianness", half(magic<<8&0xff00|magic>>8))
	patch(undefined, "version-0", "version 0", "SFrame Version", set(2, 0))
	patch(undefined, "version-4", "version 4", "SFrame Version", set(2, 4))
	patch(undefined, "version-255", "version 255", "SFrame Version", set(2, 255))
	flags := []byte{0x80, 0x08}
	switch m.version() {
	case 1:
		flags = append(flags, 0x04)
	case 3:
		flags = append(flags, 0x02)
	}
	if m.format == "2" {
		flags = flags[:1] // 0x4 is errata 1's, for which there are vectors of their own
	}
	for _, f := range flags {
		patch(undefined, fmt.Sprintf("flag-%02x", f), "a flag that the version does not define", "SFrame Flags",
			set(3, m.flags()|f))
	}
	if m.version() == 3 {
		patch(undefined, "flag-missing", "start addresses that do not count from their own fields, which V3 does not have",
			"binutils' include/sframe.h", set(3, m.flags()&^pcrel))
	}
	abi := "SFrame ABI/arch Identifier"
	patch(undefined, "abi-0", "ABI 0", abi, set(4, 0))
	patch(undefined, "abi-200", "ABI 200", abi, set(4, 200))
	if m.version() == 1 && m.order == amd64.order {
		s := form{"1", s390x}.new(one(0x1000, 0x20, m.rows(0, 4)...))
		data, _ := s.encode()
		m.refuse(undefined, "abi-s390x", "s390x, which V1 does not have", abi, s.addr, data, 0x1000, 0x1010)
	}
	if m.version() == 3 || m.name == "s390x" {
		other := amd64.id
		if m.order == amd64.order {
			other = s390x.id
		}
		patch(contrary, "abi-order", "the ABI has the other byte order", abi, set(4, other))
	}
	patch(bounds, "empty", "no bytes at all", preamble, cut(0))
	patch(bounds, "preamble", "3 bytes of the preamble", preamble, cut(3))
	patch(bounds, "header", "27 bytes of the header", header, cut(27))
	patch(bounds, "header-only", "the header, and none of what it announces", header, cut(28))
	patch(bounds, "auxiliary", "an auxiliary header that is longer than the section", header, set(7, 255))
	patch(bounds, "fdes", "more functions than the section has room for", header, word(8, 1000))
	patch(bounds, "fdes-huge", "2^32-1 functions", header, word(8, 0xffffffff))
	patch(bounds, "fde-offset", "functions behind the end of the section", header, word(20, 0x10000))
	patch(bounds, "fde-offset-huge", "functions at 2^32-4", header, word(20, 0xfffffffc))
	patch(bounds, "fre-offset", "rows behind the end of the section", header, word(24, 0x10000))
	patch(bounds, "fre-offset-huge", "rows at 2^32-4", header, word(24, 0xfffffffc))
	patch(bounds, "fre-length", "more bytes of rows than the section has", header, word(16, 0x10000))
	patch(bounds, "fre-length-huge", "2^32-1 bytes of rows", header, word(16, 0xffffffff))
	patch(contrary, "overlap", "rows where the functions are", header, word(24, 4))
	patch(contrary, "fre-length-short", "fewer bytes of rows than the functions have", header, word(16, 1))
	patch(contrary, "fres", "another number of rows than the functions have together", header, word(12, 4))
	patch(bounds, "end", "the section ends inside the last row", header, func(b []byte) []byte { return b[:len(b)-1] })
	patch(bounds, "in-fdes", "the section ends inside the functions", header, cut(40))
}

// A fields has the offsets of fields of the first FDE in a section.
type fields struct{ offset, rows, info, kind, rep int }

func (m *maker) fields(at where) fields {
	if m.version() == 3 {
		attr := at.attrs[0]
		return fields{at.fdes + 12, attr, attr + 2, attr + 3, attr + 4}
	}
	return fields{offset: at.fdes + 8, rows: at.fdes + 12, info: at.fdes + 16, rep: at.fdes + 17}
}

// wrongFunctions has sections whose first FDE is wrong.
func (m *maker) wrongFunctions() {
	const text, word = "SFrame FDE", "The SFrame FDE Info Word"
	patch := func(group, name, what, text string, change func(b []byte, at fields)) {
		s, data, at := m.whole()
		change(data, m.fields(at))
		m.refuse(group, name, what, text, s.addr, data, 0x1000, 0x1010)
	}
	for _, n := range []byte{3, 15} {
		patch(undefined, fmt.Sprint("row-type-", n), "a width of start addresses that is not defined", "The SFrame FRE Types",
			func(b []byte, at fields) { b[at.info] = b[at.info]&^15 | n })
	}
	// The bytes would do for a start address of 8 bytes, and a row after it.
	first, second := one(0x1000, 0x20, m.rows(0)...), one(0x1040, 0x20, m.rows(0, 4, 8)...)
	first.width, second.width = 4, 4
	s := m.new(first, second)
	data, at := s.encode()
	info := m.fields(at).info
	data[info] = data[info]&^15 | 3
	m.refuse(undefined, "row-type-3-inside", "a width of start addresses that is not defined, and enough bytes for 8",
		"The SFrame FRE Types", s.addr, data, 0x1000, 0x1010)

	const unused = "a bit of the info word that is not used"
	patch(undefined, "info-40", unused, word, func(b []byte, at fields) { b[at.info] |= 0x40 })
	if m.version() != 3 {
		patch(undefined, "info-80", unused, word, func(b []byte, at fields) { b[at.info] |= 0x80 })
	}
	if m.version() != 1 {
		patch(bounds, "block-0", "blocks of 0 bytes, by which pcs would be divided", "The SFrame FDE Types",
			func(b []byte, at fields) { b[at.info] |= 0x10; b[at.rep] = 0 })
	}
	const many = "more rows than the section has bytes for"
	if m.version() == 3 {
		const text = "binutils' include/sframe.h"
		kind := func(v byte) func([]byte, fields) { return func(b []byte, at fields) { b[at.kind] = v } }
		patch(undefined, "type-2", "a type of functions that is not defined", text, kind(2))
		patch(undefined, "type-31", "a type of functions that is not defined", text, kind(31))
		patch(undefined, "type-20", "a bit beside the type of functions that is not used", text, kind(0x20))
		patch(bounds, "rows", many, text, func(b []byte, at fields) { m.order.PutUint16(b[at.rows:], 0xffff) })
	} else {
		rows := func(n uint32) func([]byte, fields) {
			return func(b []byte, at fields) { m.order.PutUint32(b[at.rows:], n) }
		}
		patch(bounds, "rows", many, text, rows(0x10000))
		patch(bounds, "rows-huge", "2^32-1 rows", text, rows(0xffffffff))
	}
	offset := func(n uint32) func([]byte, fields) {
		return func(b []byte, at fields) { m.order.PutUint32(b[at.offset:], n) }
	}
	patch(bounds, "offset", "rows behind the end of the section", text, offset(0x10000))
	patch(bounds, "offset-huge", "rows at 2^32-2", text, offset(0xfffffffe))
	_, data, at = m.whole()
	patch(bounds, "offset-end", "rows at the end of the section", text, offset(uint32(len(data)-at.fres)))
	rows := m.rows(0, 4)
	s = m.new(one(0x1080, 0x20, rows...), one(0x1040, 0x20, rows...), one(0x1000, 0x20, rows...))
	s.dontSort = true
	data, _ = s.encode()
	m.refuse(contrary, "unsorted", "functions that are not sorted, and the flag that says they are", "SFrame Flags",
		s.addr, data, 0x1000, 0x1010, 0x1080, 0x1090)
}

// wrongRows has wrong rows.
func (m *maker) wrongRows() {
	const text, word = "SFrame FRE", "The SFrame FRE Info Word"
	// add has a section of a function, with a change.
	add := func(group, name, what, text string, d function, change func(b []byte, at where), pcs ...uint64) {
		s := m.new(d)
		data, at := s.encode()
		if change != nil {
			change(data, at)
		}
		m.refuse(group, name, what, text, s.addr, data, pcs...)
	}
	two := one(0x1000, 0x20, m.rows(0, 4)...)
	info := func(bits byte) func([]byte, where) {
		return func(b []byte, at where) { b[at.rows[0][1]+1] |= bits }
	}
	add(undefined, "word-size", "data words of a size that is not defined", word, two, info(0x60), 0x1004, 0x101f)
	s, data, at := m.whole() // the rows of the second function are after these
	data[at.rows[0][1]+1] |= 0x60
	m.refuse(undefined, "word-size-inside", "data words of a size that is not defined, and enough bytes for 8", word,
		s.addr, data, 0x1004, 0x101f)
	add(bounds, "words", "a row whose 15 words go past the end of the section", word, two, info(0x1e), 0x1004, 0x101f)
	add(bounds, "words-4", "a row whose words of 4 bytes go past the end of the section", word, two, info(0x40), 0x1004,
		0x101f)
	rows := func(starts ...uint32) function { return one(0x1000, 0x20, m.rows(starts...)...) }
	add(contrary, "start-beyond", "a row that begins behind the end of its function", text, rows(0, 0x30), nil, 0x1000,
		0x101f)
	add(contrary, "starts-equal", "two rows that begin at the same address", text, rows(0, 4, 4), nil, 0x1004, 0x101f)
	add(contrary, "starts-descending", "a row that begins before the one in front of it", text, rows(0, 8, 4), nil,
		0x1004, 0x1008, 0x101f)
	if m.version() != 1 {
		d := one(0x1000, 0x40, m.rows(0, 16)...)
		d.mask, d.rep = true, 16
		add(contrary, "start-block", "a row that begins behind the end of its block", "The SFrame FDE Types", d, nil, 0x1000,
			0x101f)
	}
	if m.format == "1" || m.format == "2" {
		r := fre(0, sp, 1, "sp+16", 16, -8, -16, -24)
		add(undefined, "words-4-of-3", "four words, where three are defined", word, one(0x1000, 0x20, r), nil, 0x1000, 0x101f)
	}
	if m.version() != 3 {
		return
	}
	const flexText = "Case for Representing Flexible Topmost Frames in SFrame, Possible Solution"
	flex := func(name, what string, size int, words ...int64) {
		d := one(0x1000, 0x20, row{0, 0, size, words, false, "sp+16"})
		d.flexible = true
		add(undefined, "flexible-"+name, what, flexText, d, nil, 0x1000, 0x101f)
	}
	spWord := int64(m.sp)<<3 | 1
	flex("no-offset", "a control word for the CFA and no offset", 1, spWord)
	flex("cfa-of-cfa", "a CFA that counts from the CFA", 1, 2, 8)
	flex("cfa-none", "a control word 0 for the CFA", 1, 0, 8)
	flex("ra-no-offset", "a control word for RA and no offset", 1, spWord, 8, 2)
	flex("fp-no-offset", "a control word for FP and no offset", 1, spWord, 8, 2, -8, 2)
	flex("seven", "seven words", 1, spWord, 8, 2, -8, 2, -16, 2)
	flex("bit-2", "a control word with the bit that is not used", 1, spWord|4, 8)
	flex("register-of-cfa", "a register that is not used, as the value counts from the CFA", 1, spWord, 8, 5<<3|2, -8)
}

package dwline

import "fmt"

// Numbers of DWARF 5, section 7.5: tags, attributes, and types of units.
const (
	tagCompileUnit  = 0x11
	tagSkeletonUnit = 0x4a

	attrStmtList       = 0x10
	attrLowPC          = 0x11
	attrHighPC         = 0x12
	attrCompDir        = 0x1b
	attrRanges         = 0x55
	attrStrOffsetsBase = 0x72
	attrAddrBase       = 0x73
	attrRnglistsBase   = 0x74

	unitType      = 0x02
	unitSkeleton  = 0x04
	unitSplit     = 0x05
	unitSplitType = 0x06
)

// A unit is the head of a compilation unit.
type unit struct {
	off, end uint64 // in .debug_info
	version  int
	wide     bool
	addrSize int
	wanted   bool // it has a line table, and one of the addresses

	attrs map[uint64]value
}

// A value is that of an attribute.
type value struct {
	form   form
	n      uint64
	inline string
}

// has reports whether the unit has the attribute.
func (u *unit) has(attr uint64) bool {
	_, ok := u.attrs[attr]
	return ok
}

// unit reads the head of the unit at off, and its first entry.
func (x *finder) unit(off uint64) (*unit, error) {
	r := x.head
	r.seek(off)
	u := &unit{off: off}
	n := r.length()
	u.wide = r.wide
	if n > r.end-r.off {
		r.fail("unit of %d bytes, and %d are left", n, r.end-r.off)
	}
	if r.err != nil {
		return nil, r.err
	}
	u.end = r.off + n
	r.limit(u.end)
	u.version = int(r.uint(2))
	typ := byte(0)
	var abbrev uint64
	switch {
	case r.err != nil:
		return nil, r.err
	case u.version < 2 || u.version > 5:
		return u, nil // of another kind
	case u.version == 5:
		typ = r.u8()
		u.addrSize = int(r.u8())
		abbrev = r.offset()
		if typ == unitSkeleton {
			r.skip(8)
		}
	default:
		abbrev = r.offset()
		u.addrSize = int(r.u8())
	}
	if typ == unitType || typ >= unitSplit && typ <= unitSplitType {
		return u, r.err
	}
	code := r.uleb()
	if r.err != nil || code == 0 {
		return u, r.err
	}
	if err := x.lookUp(abbrev, code); err != nil {
		return nil, err
	}
	if x.root.tag != tagCompileUnit && x.root.tag != tagSkeletonUnit {
		return u, nil
	}
	if err := x.attributes(u, r); err != nil {
		return nil, err
	}
	var err error
	if u.has(attrStmtList) {
		u.wanted, err = x.covers(u)
	}
	return u, err
}

// An abbreviation says what the attributes of an entry are.
type abbreviation struct {
	table, code uint64
	tag         uint64
	attrs       []spec
}

// A spec is an attribute and its form.
type spec struct {
	attr     uint64
	form     form
	implicit int64
}

// maxAttrs bounds the attributes of a unit's entry. Compilers write some 15.
const maxAttrs = 256

// lookUp makes root the abbreviation with the given code in the table at an offset.
func (x *finder) lookUp(table, code uint64) error {
	if x.root.attrs != nil && x.root.table == table && x.root.code == code {
		return nil
	}
	if x.abbrev == nil {
		return &Error{x.info.name, 0, "there is no .debug_abbrev"}
	}
	x.root = abbreviation{}
	r := x.at(x.abbrev, table, x.abbrev.size, 512)
	for r.err == nil {
		c := r.uleb()
		if c == 0 && r.err == nil {
			r.fail("there is no abbreviation %d", code)
		}
		a := abbreviation{table: table, code: code, tag: r.uleb(), attrs: []spec{}}
		r.u8() // whether there are children
		for r.err == nil {
			s := spec{attr: r.uleb(), form: form(r.uleb())}
			if s.form == formImplicitConst {
				s.implicit = r.sleb()
			}
			if s.attr == 0 && s.form == 0 {
				break
			}
			if c != code {
				continue
			}
			if a.attrs = append(a.attrs, s); len(a.attrs) > maxAttrs {
				r.fail("abbreviation %d with more than %d attributes", code, maxAttrs)
			}
		}
		if c == code && r.err == nil {
			x.root = a
			return nil
		}
	}
	return r.err
}

// attributes reads those attributes of the unit's entry that are known here.
func (x *finder) attributes(u *unit, r *reader) error {
	u.attrs = make(map[uint64]value)
	r.wide = u.wide
	for _, s := range x.root.attrs {
		v := r.value(u.version, u.addrSize, s.form, s.implicit)
		switch s.attr {
		case attrStmtList, attrLowPC, attrHighPC, attrCompDir, attrRanges, attrStrOffsetsBase, attrAddrBase, attrRnglistsBase:
			u.attrs[s.attr] = v
		}
	}
	return r.err
}

// covers reports whether one of the addresses lies in the unit's code.
func (x *finder) covers(u *unit) (bool, error) {
	low, err := x.address(u, attrLowPC)
	if err != nil {
		return false, err
	}
	if !u.has(attrRanges) {
		high := u.attrs[attrHighPC]
		if !high.form.isAddress() {
			return x.has(low, low+high.n), nil
		}
		end, err := x.address(u, attrHighPC)
		return x.has(low, end), err
	}
	if u.version < 5 {
		return x.inRanges(u, low)
	}
	return x.inRnglist(u, low)
}

// address returns the value of an attribute that is an address, or 0.
func (x *finder) address(u *unit, attr uint64) (uint64, error) {
	v := u.attrs[attr]
	if !v.form.isIndex() {
		return v.n, nil
	}
	return x.indexed(u, v.n)
}

// indexed returns the n-th address of the unit's addresses in .debug_addr.
func (x *finder) indexed(u *unit, n uint64) (uint64, error) {
	return x.entry(x.addr, u.attrs[attrAddrBase].n, n, u.addrSize)
}

// entry returns the n-th integer of the given size from an offset of a section on.
func (x *finder) entry(s *section, base, n uint64, size int) (uint64, error) {
	if s == nil {
		return 0, &Error{x.info.name, 0, "a section that is referred to is missing"}
	}
	if base > s.size || n > (s.size-base)/uint64(max(size, 1)) {
		return 0, &Error{s.name, base, fmt.Sprintf("entry %d lies outside", n)}
	}
	r := x.at(s, base+n*uint64(size), s.size, 16)
	v := r.uint(size)
	return v, r.err
}

// inRanges looks for the addresses in a list of .debug_ranges (DWARF 4, section 2.17.3).
func (x *finder) inRanges(u *unit, base uint64) (bool, error) {
	if x.ranges == nil {
		return false, nil // it is in another file
	}
	r := x.at(x.ranges, u.attrs[attrRanges].n, x.ranges.size, 4096)
	highest := ^uint64(0) >> (64 - 8*min(max(u.addrSize, 1), 8))
	for r.err == nil {
		begin, end := r.uint(u.addrSize), r.uint(u.addrSize)
		switch {
		case begin == 0 && end == 0:
			return false, r.err
		case begin == highest:
			base = end
		case x.has(base+begin, base+end):
			return true, r.err
		}
	}
	return false, r.err
}

// Entries of range lists (DWARF 5, section 7.25).
const (
	rleEndOfList = iota
	rleBaseAddressx
	rleStartxEndx
	rleStartxLength
	rleOffsetPair
	rleBaseAddress
	rleStartEnd
	rleStartLength
)

// inRnglist looks for the addresses in a list of .debug_rnglists.
func (x *finder) inRnglist(u *unit, base uint64) (bool, error) {
	if x.rngLists == nil {
		return false, nil
	}
	v := u.attrs[attrRanges]
	off := v.n
	if v.form == formRnglistx {
		size := 4
		if u.wide {
			size = 8
		}
		first := u.attrs[attrRnglistsBase].n
		n, err := x.entry(x.rngLists, first, off, size)
		if err != nil {
			return false, err
		}
		off = first + n
	}
	r := x.at(x.rngLists, off, x.rngLists.size, 4096)
	index := func() uint64 {
		n := r.uleb()
		if r.err != nil {
			return 0
		}
		a, err := x.indexed(u, n)
		if err != nil {
			r.err = err
		}
		return a
	}
	for r.err == nil {
		var begin, end uint64
		switch kind := r.u8(); kind {
		case rleEndOfList:
			return false, r.err
		case rleBaseAddressx:
			base = index()
			continue
		case rleStartxEndx:
			begin, end = index(), index()
		case rleStartxLength:
			begin = index()
			end = begin + r.uleb()
		case rleOffsetPair:
			begin, end = base+r.uleb(), base+r.uleb()
		case rleBaseAddress:
			base = r.uint(u.addrSize)
			continue
		case rleStartEnd:
			begin, end = r.uint(u.addrSize), r.uint(u.addrSize)
		case rleStartLength:
			begin = r.uint(u.addrSize)
			end = begin + r.uleb()
		default:
			r.fail("range list entry %#x is not known", kind)
		}
		if r.err == nil && x.has(begin, end) {
			return true, nil
		}
	}
	return false, r.err
}

package dwline

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

// A unit is the first entry of a unit in .debug_info.
type unit struct {
	*finder
	encoding
	attrs map[uint64]value // none if it is not that of a compilation unit, or of an unknown version
}

// has reports whether the unit has an attribute.
func (u *unit) has(attr uint64) bool {
	_, ok := u.attrs[attr]
	return ok
}

// unit reads the first entry of the next unit, and goes to the end of the unit.
func (x *finder) unit(r *reader) *unit {
	u := &unit{finder: x, attrs: make(map[uint64]value)}
	r.end = r.length("unit")
	r.version = int(r.uint(2))
	if r.version >= 2 && r.version <= 5 {
		u.read(r)
	}
	r.skip(r.end - r.off)
	if r.end = r.s.size; x.err != nil {
		u.attrs = nil
	}
	return u
}

// read reads the head after the version, and the entry.
func (u *unit) read(r *reader) {
	var kind byte
	var table uint64
	if r.version == 5 {
		kind, r.addrSize = r.u8(), int(r.u8())
		table = r.offset()
	} else {
		table = r.offset()
		r.addrSize = int(r.u8())
	}
	switch kind {
	case unitType, unitSplit, unitSplitType:
		return
	case unitSkeleton:
		r.skip(8)
	}
	u.encoding = r.encoding
	code := r.uleb()
	if code == 0 || u.err != nil {
		return
	}
	abbrev := u.section("abbrev")
	if abbrev == nil {
		u.failAt(u.section("info"), 0, "there is no .debug_abbrev")
		return
	}
	for specs := u.at(abbrev, table); u.err == nil; {
		c := specs.uleb()
		if c == 0 {
			specs.fail("there is no abbreviation %d", code)
		}
		tag := specs.uleb()
		specs.u8() // whether the entry has children
		if c == code {
			if tag == tagCompileUnit || tag == tagSkeletonUnit {
				u.attributes(r, specs)
			}
			return
		}
		for more := true; more; {
			_, _, _, more = specs.spec()
		}
	}
}

// spec reads an attribute's number, its form, and the value that some forms have in the abbreviation. It reports
// whether there is one.
func (r *reader) spec() (attr uint64, f form, implicit uint64, ok bool) {
	attr, f = r.uleb(), form(r.uleb())
	if f == formImplicitConst {
		implicit = r.leb(true)
	}
	return attr, f, implicit, r.err == nil && (attr != 0 || f != 0)
}

// attributes reads the attributes of the entry that this package needs.
func (u *unit) attributes(r, specs *reader) {
	for {
		attr, f, implicit, ok := specs.spec()
		if !ok {
			return
		}
		v := r.value(f)
		if f == formImplicitConst {
			v.n = implicit
		}
		switch attr {
		case attrStmtList, attrLowPC, attrHighPC, attrCompDir, attrRanges,
			attrStrOffsetsBase, attrAddrBase, attrRnglistsBase:
			u.attrs[attr] = v
		}
	}
}

// text returns a value that is a string, or "" if that is in another file.
func (u *unit) text(v value) string {
	switch v.form {
	case formString:
		return v.inline
	case formStrp:
		return u.textAt("str", v.n)
	case formLineStrp:
		return u.textAt("line_str", v.n)
	case formStrx, formStrx1, formStrx2, formStrx3, formStrx4:
		return u.textAt("str", u.entry("str_offsets", u.attrs[attrStrOffsetsBase].n, v.n, u.offsetSize()))
	}
	return ""
}

// address returns the value of an attribute that is an address, or 0.
func (u *unit) address(attr uint64) uint64 {
	v := u.attrs[attr]
	if v.form.isIndex() {
		return u.indexed(v.n)
	}
	return v.n
}

// indexed returns the n-th of the unit's addresses in .debug_addr.
func (u *unit) indexed(n uint64) uint64 {
	return u.entry("addr", u.attrs[attrAddrBase].n, n, u.addrSize)
}

// hasAddress reports whether one of the addresses lies in the unit's code.
func (u *unit) hasAddress() bool {
	low := u.address(attrLowPC)
	switch high := u.attrs[attrHighPC]; {
	case u.has(attrRanges) && u.version == 5:
		return u.inRnglist(low)
	case u.has(attrRanges):
		return u.inRanges(low)
	case high.form == formAddr || high.form.isIndex():
		return u.anyIn(low, u.address(attrHighPC))
	default: // it is a size
		return u.anyIn(low, low+high.n)
	}
}

// inRanges looks for the addresses in the unit's list in .debug_ranges (DWARF 4, section 2.17.3).
func (u *unit) inRanges(base uint64) bool {
	s := u.section("ranges")
	if s == nil {
		return false // it is in another file
	}
	highest := ^uint64(0) >> (64 - 8*min(max(u.addrSize, 1), 8))
	for r := u.at(s, u.attrs[attrRanges].n); u.err == nil; {
		begin, end := r.uint(u.addrSize), r.uint(u.addrSize)
		switch {
		case begin == 0 && end == 0:
			return false
		case begin == highest:
			base = end
		case u.anyIn(base+begin, base+end):
			return true
		}
	}
	return false
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

// inRnglist looks for the addresses in the unit's list in .debug_rnglists.
func (u *unit) inRnglist(base uint64) bool {
	s := u.section("rnglists")
	if s == nil {
		return false
	}
	off := u.attrs[attrRanges].n
	if u.attrs[attrRanges].form == formRnglistx {
		first := u.attrs[attrRnglistsBase].n
		off = first + u.entry("rnglists", first, off, u.offsetSize())
	}
	for r := u.at(s, off); u.err == nil; {
		var begin, end uint64
		switch kind := r.u8(); kind {
		case rleEndOfList:
			return false
		case rleBaseAddressx:
			base = u.indexed(r.uleb())
		case rleStartxEndx:
			begin, end = u.indexed(r.uleb()), u.indexed(r.uleb())
		case rleStartxLength:
			begin = u.indexed(r.uleb())
			end = begin + r.uleb()
		case rleOffsetPair:
			begin, end = base+r.uleb(), base+r.uleb()
		case rleBaseAddress:
			base = r.uint(u.addrSize)
		case rleStartEnd:
			begin, end = r.uint(u.addrSize), r.uint(u.addrSize)
		case rleStartLength:
			begin = r.uint(u.addrSize)
			end = begin + r.uleb()
		default:
			r.fail("range list entry %#x is not known", kind)
		}
		if u.anyIn(begin, end) {
			return u.err == nil
		}
	}
	return false
}

package dwline

// Numbers of DWARF 5, section 7.5: tags, attributes, and types of units.
const (
	tagCompileUnit  = 0x11
	tagSkeletonUnit = 0x4a

	attrStmtList = 0x10
	attrCompDir  = 0x1b

	unitType      = 0x02
	unitSkeleton  = 0x04
	unitSplit     = 0x05
	unitSplitType = 0x06
)

// unit reads the first entry of the next unit, and goes to the end of the unit. It returns DW_AT_stmt_list and
// DW_AT_comp_dir. Units of unknown versions, and those that are not compilation units, have no attributes.
func (r *reader) unit() (lines, dir value) {
	r.end = r.length("unit")
	r.version = int(r.uint(2))
	if r.version >= 2 && r.version <= 5 {
		lines, dir = r.firstEntry()
	}
	r.skip(r.end - r.off)
	r.end = r.s.size
	return lines, dir
}

// firstEntry reads the unit header after the version, and the entry.
func (r *reader) firstEntry() (lines, dir value) {
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
		return lines, dir
	case unitSkeleton:
		r.skip(8)
	}
	code := r.uleb()
	if code == 0 || r.err != nil {
		return lines, dir
	}
	abbrev := r.section("abbrev")
	if abbrev == nil {
		r.at(r.s, 0).fail("there is no .debug_abbrev")
	}
	for specs := r.at(abbrev, table); r.err == nil; {
		c := specs.uleb()
		if c == 0 {
			specs.fail("there is no abbreviation %d", code)
		}
		tag := specs.uleb()
		specs.u8() // whether the entry has children
		if c == code && tag != tagCompileUnit && tag != tagSkeletonUnit {
			break
		}
		for attr, f, ok := specs.spec(); ok; attr, f, ok = specs.spec() {
			if c != code {
				continue
			}
			switch v := r.value(f); attr {
			case attrStmtList:
				lines = v
			case attrCompDir:
				dir = v
			}
		}
		if c == code {
			break
		}
	}
	return lines, dir
}

// spec reads an attribute's number and its form, and reports whether there is one.
func (r *reader) spec() (attr uint64, f form, ok bool) {
	attr, f = r.uleb(), form(r.uleb())
	if f == formImplicitConst {
		r.leb(true) // the value
	}
	return attr, f, r.err == nil && (attr != 0 || f != 0)
}

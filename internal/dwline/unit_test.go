package dwline_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/dwline"
)

// An encoder writes debug information in a byte order, in 32-bit or 64-bit DWARF.
type encoder struct {
	order interface {
		binary.ByteOrder
		binary.AppendByteOrder
	}
	wide bool
}

func (e encoder) u16(v uint16) []byte { return e.order.AppendUint16(nil, v) }
func (e encoder) u32(v uint32) []byte { return e.order.AppendUint32(nil, v) }
func (e encoder) u64(v uint64) []byte { return e.order.AppendUint64(nil, v) }

// u24 is for the forms of three bytes.
func (e encoder) u24(v uint32) []byte {
	if e.order == binary.BigEndian {
		return e.u32(v)[1:]
	}
	return e.u32(v)[:3]
}

// offset returns an offset in a section (DWARF 5, section 7.4).
func (e encoder) offset(v uint64) []byte {
	if e.wide {
		return e.u64(v)
	}
	return e.u32(uint32(v))
}

// sized puts the length before a unit.
func (e encoder) sized(parts ...[]byte) []byte {
	b := slices.Concat(parts...)
	if e.wide {
		return slices.Concat(e.u32(0xffffffff), e.u64(uint64(len(b))), b)
	}
	return append(e.u32(uint32(len(b))), b...)
}

// unit returns a unit whose entry has the first abbreviation (DWARF 5, section 7.5.1).
func (e encoder) unit(version uint16, attrs ...[]byte) []byte {
	if version == 5 {
		const compile = 1
		return e.typed(compile, 1, attrs...)
	}
	return e.sized(e.u16(version), e.offset(0), []byte{8, 1}, slices.Concat(attrs...))
}

// typed returns a unit of version 5 of a type, whose entry has the abbreviation with the given code.
func (e encoder) typed(typ, code byte, rest ...[]byte) []byte {
	const skeleton = 4
	id := []byte(nil)
	if typ == skeleton {
		id = []byte("dwo name")
	}
	return e.sized(e.u16(5), []byte{typ, 8}, e.offset(0), id, []byte{code}, slices.Concat(rest...))
}

// lines returns a line table of a version (section 6.2.4): code from 0x1000 to 0x1800 is line 1 of the first file, and
// discarded code from 0 to 0x2000 is line 2.
func (e encoder) lines(version uint16, tables []byte) []byte {
	program := slices.Concat(
		[]byte{0, 9, 2}, e.u64(0x1000), []byte{1, 0, 9, 2}, e.u64(0x1800), []byte{0, 1, 1},
		[]byte{0, 9, 2}, e.u64(0), []byte{3, 1, 1, 2}, uleb(0x2000), []byte{0, 1, 1},
	)
	rest := slices.Concat([]byte{1, 1, 1, 0xfb, 14, 13, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1}, tables)
	sizes := []byte{8, 0}
	if version < 5 {
		sizes = nil
	}
	return e.sized(e.u16(version), sizes, e.offset(uint64(len(rest))), rest, program)
}

// abbreviations returns a table with one abbreviation of a compilation unit: pairs of an attribute and its form.
func abbreviations(specs ...uint64) []byte { return tagged(0x11, specs...) }

func tagged(tag uint64, specs ...uint64) []byte {
	b := slices.Concat(uleb(1), uleb(tag), []byte{0})
	for _, s := range specs {
		b = append(b, uleb(s)...)
	}
	return append(b, 0, 0, 0)
}

// Attributes and forms of DWARF 5, sections 7.5.4 and 7.5.6.
const (
	atName, atStmtList, atCompDir = 0x03, 0x10, 0x1b

	fmAddr, fmData1, fmData2, fmData4, fmData8, fmData16           = 0x01, 0x0b, 0x05, 0x06, 0x07, 0x1e
	fmBlock1, fmBlock2, fmBlock4, fmBlock, fmExprloc               = 0x0a, 0x03, 0x04, 0x09, 0x18
	fmString, fmStrp, fmLineStrp, fmStrpSup                        = 0x08, 0x0e, 0x1f, 0x1d
	fmStrx, fmStrx1, fmStrx2, fmStrx3, fmStrx4                     = 0x1a, 0x25, 0x26, 0x27, 0x28
	fmAddrx, fmAddrx1, fmAddrx2, fmAddrx3, fmAddrx4                = 0x1b, 0x29, 0x2a, 0x2b, 0x2c
	fmFlag, fmFlagPresent, fmSdata, fmUdata, fmIndirect            = 0x0c, 0x19, 0x0d, 0x0f, 0x16
	fmRefAddr, fmRef1, fmRef2, fmRef4, fmRef8, fmRefUdata          = 0x10, 0x11, 0x12, 0x13, 0x14, 0x15
	fmRefSup4, fmRefSup8, fmRefSig8, fmLoclistx, fmSecOffset       = 0x1c, 0x24, 0x20, 0x22, 0x17
	fmRnglistx, fmImplicitConst, fmGNUAddrIndex, fmGNUStrIndex     = 0x23, 0x21, 0x1f01, 0x1f02
	fmGNURefAlt, fmGNUStrpAlt                                      = 0x1f20, 0x1f21
	typeUnit, skeletonUnit, splitUnit, splitTypeUnit, compileUnit5 = 2, 4, 5, 6, 1
)

// relative are the tables of directories and files of version 5 for the path d/f, and oldTables those of version 4 for
// the same path from where the unit was compiled.
var (
	relative  = []byte{1, 1, fmString, 1, 'd', 0, 2, 1, fmString, 2, fmData1, 2, 'f', 0, 0, 'f', 0, 0}
	oldTables = []byte("d\x00\x00f\x00\x01\x00\x00\x00")
)

// at is an address that the line tables have.
const at = 0x1234

// A unitTest is debug information by its sections, and what is to be found for at.
type unitTest struct {
	name     string
	sections map[string][]byte
	want     string // the file, or ""
	err      string // in the error, or ""
}

// encodings are those that all tests of units are made in.
var encodings = map[string]encoder{
	"little-endian": {binary.LittleEndian, false}, "little-endian, 64-bit": {binary.LittleEndian, true},
	"big-endian": {binary.BigEndian, false}, "big-endian, 64-bit": {binary.BigEndian, true},
}

// check finds what each test wants.
func check(t *testing.T, tests func(e encoder) []unitTest) {
	for encoding, e := range encodings {
		for _, tt := range tests(e) {
			t.Run(encoding+"/"+tt.name, func(t *testing.T) {
				b := image(t, e.order, tt.sections)
				f, err := elffile.New(bytes.NewReader(b), int64(len(b)))
				if err != nil {
					t.Fatal(err)
				}
				got := ""
				err = dwline.Find(f, []uint64{at},
					func(_ int, file string, line int) { got = fmt.Sprintf("%s:%d", file, line) })
				if want := tt.want + strings.Repeat(":1", min(len(tt.want), 1)); got != want {
					t.Errorf("%q; want %q", got, want)
				}
				if (tt.err != "") != (err != nil) || err != nil && !strings.Contains(err.Error(), tt.err) {
					t.Errorf("%v; want an error with %q", err, tt.err)
				}
			})
		}
	}
}

// TestForms passes over values of all forms, and takes the attributes that count from all forms that they can have.
func TestForms(t *testing.T) {
	check(t, func(e encoder) []unitTest {
		var tests []unitTest
		// The line table is at an offset that is not read if an attribute before it has the wrong size.
		const at = 0x21
		add := func(name string, version uint16, specs []uint64, attrs ...[]byte) *unitTest {
			tests = append(tests, unitTest{name, map[string][]byte{
				"abbrev": abbreviations(append(specs, atStmtList, fmSecOffset)...),
				"line":   append(make([]byte, at), e.lines(5, relative)...),
				"info":   e.unit(version, append(attrs, e.offset(at))...),
			}, "d/f", ""})
			return &tests[len(tests)-1]
		}
		// What is passed over comes before a place: if its size is wrong, the place is.
		for _, p := range []struct {
			form  uint64
			value []byte
		}{
			{fmAddr, e.u64(1)}, {fmData1, []byte{1}}, {fmData2, e.u16(1)}, {fmData4, e.u32(1)}, {fmData8, e.u64(1)},
			{fmData16, make([]byte, 16)},
			{fmBlock1, []byte{2, 0xff, 0xff}}, {fmBlock2, append(e.u16(3), "abc"...)}, {fmBlock4, append(e.u32(1), 7)},
			{fmBlock, []byte{1, 7}},
			{fmExprloc, append(uleb(200), make([]byte, 200)...)}, {fmString, []byte("text\x00")}, {fmStrp, e.offset(9)},
			{fmLineStrp, e.offset(9)},
			{fmStrpSup, e.offset(9)}, {fmStrx, uleb(300)}, {fmStrx1, []byte{1}}, {fmStrx2, e.u16(1)},
			{fmStrx3, e.u24(1)}, {fmStrx4, e.u32(1)},
			{fmAddrx, uleb(300)}, {fmAddrx1, []byte{1}}, {fmAddrx2, e.u16(1)}, {fmAddrx3, e.u24(1)},
			{fmAddrx4, e.u32(1)}, {fmFlag, []byte{1}},
			{fmFlagPresent, nil}, {fmSdata, []byte{0x80, 0x7f}}, {fmUdata, uleb(300)}, {fmRefAddr, e.offset(1)},
			{fmRef1, []byte{1}},
			{fmRef2, e.u16(1)}, {fmRef4, e.u32(1)}, {fmRef8, e.u64(1)}, {fmRefUdata, uleb(300)}, {fmRefSup4, e.u32(1)},
			{fmRefSup8, e.u64(1)},
			{fmRefSig8, e.u64(1)}, {fmLoclistx, uleb(300)}, {fmSecOffset, e.offset(1)}, {fmRnglistx, uleb(300)},
			{fmGNUAddrIndex, uleb(300)},
			{fmGNUStrIndex, uleb(300)}, {fmGNURefAlt, e.offset(1)}, {fmGNUStrpAlt, e.offset(1)},
			{fmIndirect, append(uleb(fmData2), e.u16(1)...)},
			{fmIndirect, append(uleb(fmGNUStrpAlt), e.offset(1)...)},
		} {
			add(fmt.Sprintf("form %#x", p.form), 5, []uint64{atName, p.form}, p.value)
		}
		add("a reference in version 2", 2, []uint64{atName, fmRefAddr}, e.u64(1))
		add("a reference in version 3", 3, []uint64{atName, fmRefAddr}, e.offset(1))
		add("a constant of the abbreviation", 5, []uint64{atName, fmImplicitConst, 5})
		tt := add("an indirect constant", 5, []uint64{atName, fmIndirect}, uleb(fmImplicitConst))
		tt.want, tt.err = "", "form 0x21 of an indirect value"

		// Where the unit was compiled.
		dir := func(name string, form uint64, value []byte, want, err string, strs map[string][]byte) {
			tt := add(name, 5, []uint64{atCompDir, form}, value)
			tt.want, tt.err = want, err
			tt.sections["line"] = append(make([]byte, at), e.lines(4, oldTables)...)
			maps.Copy(tt.sections, strs)
		}
		strs := map[string][]byte{"str": []byte("other\x00/comp\x00"), "line_str": []byte("/comp\x00")}
		for form, v := range map[uint64][]byte{fmString: []byte("/comp\x00"), fmStrp: e.offset(6),
			fmLineStrp: e.offset(0)} {
			dir(fmt.Sprintf("directory of form %#x", form), form, v, "/comp/d/f", "", strs)
		}
		dir("a directory in another file", fmStrpSup, e.offset(6), "d/f", "", strs)
		dir("a directory by an index", fmStrx, []byte{1}, "d/f", "", strs)
		dir("a directory without strings", fmStrp, e.offset(6), "d/f", "", nil)
		dir("a directory past the strings", fmStrp, e.offset(100), "", "and the section has 12 bytes", strs)
		dir("a directory without an end", fmStrp, e.offset(0), "", ".debug_str+0x5: text without an end",
			map[string][]byte{"str": []byte("/comp")})
		return tests
	})
}

// TestUnits has units of kinds that have no lines, and units after them.
func TestUnits(t *testing.T) {
	check(t, func(e encoder) []unitTest {
		var tests []unitTest
		attrs := e.offset(0)
		abbrev := abbreviations(atStmtList, fmSecOffset)
		add := func(name, want, err string, abbrev []byte, info ...[]byte) {
			s := map[string][]byte{"info": slices.Concat(info...), "line": e.lines(5, relative)}
			if abbrev != nil {
				s["abbrev"] = abbrev
			}
			tests = append(tests, unitTest{name, s, want, err})
		}
		add("a compilation unit", "d/f", "", abbrev, e.typed(compileUnit5, 1, attrs))
		add("a type unit", "", "", abbrev, e.typed(typeUnit, 1, attrs))
		add("a split unit", "", "", abbrev, e.typed(splitUnit, 1, attrs))
		add("a split type unit", "", "", abbrev, e.typed(splitTypeUnit, 1, attrs))
		add("a skeleton", "d/f", "", abbrev, e.typed(skeletonUnit, 1, attrs))
		add("a skeleton with the tag of one", "d/f", "", tagged(0x4a, atStmtList, fmSecOffset),
			e.typed(skeletonUnit, 1, attrs))
		add("a partial unit", "", "", tagged(0x3c, atStmtList, fmSecOffset), e.typed(3, 1, attrs))
		add("no entry", "", "", abbrev, e.typed(compileUnit5, 0, attrs))
		add("no line table", "", "", abbreviations(atName, fmData4), e.typed(compileUnit5, 1, e.u32(0)))
		add("version 1", "", "", abbrev, e.unit(1, attrs))
		add("version 6", "", "", abbrev, e.unit(6, attrs))
		add("versions that are not known", "d/f", "", abbrev, e.unit(1, attrs), e.unit(6, attrs), e.unit(4, attrs))
		other := e.unit(6, make([]byte, 100))
		add("the last of many", "d/f", "", abbrev, bytes.Repeat(other, 300), e.unit(4, attrs))
		add("after a large one", "d/f", "", abbrev, e.unit(6, make([]byte, 10_000)), e.unit(4, attrs))
		first := tagged(0x3c, atName, fmImplicitConst, 300)
		second := slices.Concat(first[:len(first)-1], uleb(2), abbrev[1:])
		add("two abbreviations", "d/f", "", second, e.typed(compileUnit5, 2, attrs))
		add("an abbreviation that is not there", "", "there is no abbreviation 2", abbrev,
			e.typed(compileUnit5, 2, attrs))
		add("no abbreviations", "", ".debug_info+0x0: there is no .debug_abbrev", nil, e.typed(compileUnit5, 1, attrs))
		add("a code without an end", "", "LEB128 number longer than 64 bits", abbrev,
			e.typed(compileUnit5, 0x80, bytes.Repeat([]byte{0x80}, 10)))
		add("a constant without an end", "", "LEB128 number longer than 64 bits",
			append([]byte{1, 0x11, 0, atName, fmImplicitConst}, bytes.Repeat([]byte{0x80}, 12)...),
			e.typed(compileUnit5, 1, attrs))
		add("a length that is reserved", "", ".debug_info+0x4: length 0xfffffff0 is reserved", abbrev,
			e.u32(0xfffffff0), make([]byte, 100))
		tests = append(tests,
			unitTest{"relative to the directory of the compilation", map[string][]byte{
				"info": e.unit(4, attrs), "abbrev": abbrev,
				"line": e.lines(5, []byte{1, 1, fmString, 2, '/', 'c', 0, 'd', 0, 2, 1, fmString, 2, fmData1, 2, 'f', 0,
					0, 'f', 0, 1}),
			}, "/c/d/f", ""},
			unitTest{"lines in another file", map[string][]byte{"info": e.unit(4, attrs), "abbrev": abbrev}, "", ""},
			unitTest{"lines and nothing else", map[string][]byte{"line": e.lines(5, relative), "abbrev": abbrev}, "",
				dwline.ErrNone.Error()},
		)
		// Tables of files can have more than names (section 6.2.4.1), by any form.
		const md5, vendor = 5, 0x2001
		rich := slices.Concat([]byte{1, 1, fmLineStrp, 2}, e.offset(0), e.offset(6),
			[]byte{4, md5, fmData16, 2, fmUdata}, uleb(vendor), []byte{fmBlock, 1, fmStrp, 2},
			slices.Repeat(slices.Concat(make([]byte, 16), []byte{1, 2, 0xff, 0xff}, e.offset(3)), 2))
		tests = append(tests, unitTest{"checksums and names elsewhere", map[string][]byte{
			"info": e.unit(4, attrs), "abbrev": abbrev, "line": e.lines(5, rich),
			"line_str": []byte("/none\x00/src\x00"), "str": []byte("no\x00f.c\x00"),
		}, "/src/f.c", ""})
		tests = append(tests, unitTest{"names elsewhere that are not there", map[string][]byte{
			"info": e.unit(4, attrs), "abbrev": abbrev, "line": e.lines(5, rich),
			"line_str": []byte("/none\x00/src\x00"), "str": []byte("no\x00"),
		}, "", ".debug_str+0x3: text without an end"})
		return tests
	})
}

// TestMissingFile has a row of a file that a table of version 4 has not: there is no line, and no error.
func TestMissingFile(t *testing.T) {
	e := encoder{order: binary.LittleEndian}
	table := func(files string) []byte {
		header := slices.Concat([]byte{1, 1, 1, 0xfb, 14, 13, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1}, []byte("/d\x00\x00"),
			[]byte(files))
		// DW_LNS_set_file 2
		program := slices.Concat([]byte{0, 9, 2}, e.u64(0x1000), []byte{4, 2, 1, 0, 9, 2}, e.u64(0x1800),
			[]byte{0, 1, 1})
		return e.sized(e.u16(4), e.sized(header), program)
	}
	for files, want := range map[string]string{
		"f\x00\x01\x00\x00g\x00\x01\x00\x00\x00": "/d/g", "f\x00\x01\x00\x00g\x00\x00\x00\x00\x00": "g",
		"f\x00\x01\x00\x00g\x00\x02\x00\x00\x00": "g", "f\x00\x01\x00\x00g\x00\x09\x00\x00\x00": "g",
		"f\x00\x01\x00\x00\x00": "", "\x00": "",
	} {
		got := ""
		err := dwline.Find(file(t, map[string][]byte{"info": compileUnit(0), "abbrev": abbrev, "line": table(files)}),
			[]uint64{at},
			func(_ int, file string, _ int) { got = file })
		if got != want || err != nil {
			t.Errorf("files %q: %q, %v; want %q", files, got, err, want)
		}
	}
}

// A failing reader gives an error for what has the byte at an offset, if it is armed.
type failing struct {
	io.ReaderAt
	at    uint64
	armed bool
}

var errDisk = errors.New("the disk is gone")

func (f *failing) ReadAt(b []byte, off int64) (int, error) {
	if f.armed && f.at-uint64(off) < uint64(len(b)) {
		return 0, errDisk
	}
	return f.ReaderAt.ReadAt(b, off)
}

// TestReadErrors says which section could not be read, be it at its start or later.
func TestReadErrors(t *testing.T) {
	e := encoder{order: binary.LittleEndian}
	b := image(t, e.order, map[string][]byte{
		"abbrev": abbreviations(atStmtList, fmSecOffset), "line": e.lines(5, relative),
		"info": slices.Concat(bytes.Repeat(e.unit(6, make([]byte, 12)), 1000), e.unit(4, e.offset(0))),
	})
	for _, tt := range []struct {
		section string
		off     uint64
		edit    func(s *elffile.Section) // nil if the byte at off cannot be read
		want    string
	}{
		{"info", 0, nil, errDisk.Error()},
		{"info", 9000, nil, errDisk.Error()},
		{"abbrev", 0, nil, errDisk.Error()},
		{"line", 0, nil, errDisk.Error()},
		{"line", 0, func(s *elffile.Section) { s.Off = 1 << 40 }, "do not fit the file"},
		{"line", 0, func(s *elffile.Section) { s.Flags |= uint64(elf.SHF_COMPRESSED) }, "compress"},
	} {
		r := &failing{ReaderAt: bytes.NewReader(b)}
		f, err := elffile.New(r, int64(len(b)))
		if err != nil {
			t.Fatal(err)
		}
		s := f.Section(".debug_" + tt.section)
		if tt.edit == nil {
			r.at, r.armed = s.Off+tt.off, true
		} else {
			tt.edit(s)
		}
		err = dwline.Find(f, []uint64{at}, func(int, string, int) { t.Errorf("%s: a line is found", tt.section) })
		if err == nil || !strings.Contains(err.Error(), tt.want) ||
			!strings.Contains(err.Error(), "section .debug_"+tt.section) {
			t.Errorf("%s+%#x: %v; want %q", tt.section, tt.off, err, tt.want)
		}
	}
}

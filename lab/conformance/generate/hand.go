package generate

import (
	"bytes"
	_ "embed"
	"fmt"
	"math"
	"strings"

	"cfi2sframe/lab/conformance/vector"
)

// forms are the formats for the machines that they know. V2 has s390x since errata 1; other machines of errata 1 have
// PC-relative start addresses.
var forms = []form{
	{"1", amd64}, {"1", aarch64}, {"1", aarch64BE},
	{"2", amd64}, {"2", aarch64}, {"2", aarch64BE},
	{"2e1", amd64}, {"2e1", aarch64}, {"2e1", aarch64BE}, {"2e1", s390x},
	{"3", amd64}, {"3", aarch64}, {"3", aarch64BE}, {"3", s390x},
}

// A maker makes the vectors of a form.
type maker struct {
	form
	out []vector.Vector
}

// add makes a vector of a section.
func (m *maker) add(feature, name, about, text string, s *section) {
	data, _ := s.encode()
	m.out = append(m.out, vector.Vector{
		Name: m.String() + "/" + feature + "-" + name, Feature: feature, Format: s.format, ABI: s.name,
		About: about, Text: text, Address: vector.Hex(s.addr), Section: data, Expect: s.expect(16),
	})
}

// plain returns a row with the CFA at the base and a word's offset, and what that means.
func (m *maker) plain(start uint32, base byte, size int, word int64) row {
	name := "sp"
	if base == fp {
		name = "fp"
	}
	return fre(start, base, size, fmt.Sprintf("%s%+d", name, m.cfa(word)), word)
}

// fre returns a row.
func fre(start uint32, base byte, size int, want string, words ...int64) row {
	return row{start: start, base: base, size: size, words: words, want: want}
}

// flex returns the row of a flexible FDE that begins with it.
func flex(size int, want string, words ...int64) row { return fre(0, 0, size, want, words...) }

// mangled returns a row with a signed return address.
func mangled(r row) row {
	r.mangled = true
	return r
}

// rows returns different rows with the given starts.
func (m *maker) rows(starts ...uint32) (rows []row) {
	for i, start := range starts {
		rows = append(rows, m.plain(start, sp, 1, int64(8*(i+1))))
	}
	return rows
}

// one returns a function with start addresses of 1 byte.
func one(start uint64, size uint32, rows ...row) function {
	return function{start: start, size: size, width: 1, rows: rows}
}

// hand returns the vectors of a form that are made by hand and valid.
func hand(f form) []vector.Vector {
	m := &maker{form: f}
	m.slots()
	m.words()
	if m.name != "aarch64" { // the same as on amd64
		m.plainRows()
		m.fixed()
	}
	if m.name == "aarch64" || m.name == "aarch64_be" {
		m.signed()
	}
	switch m.version() {
	case 2:
		m.errata2()
	case 3:
		m.version3()
		m.flexible()
	}
	return m.out
}

//go:embed hand.txt
var handText string

// plainRows has the sections of the text.
func (m *maker) plainRows() {
	for line := range strings.Lines(handText) {
		cells := cellsOf(line)
		if len(cells) < 6 || strings.HasPrefix(line, "#") || !m.is(cells[1]) {
			continue
		}
		feature, name, _ := strings.Cut(cells[0], " ")
		s := m.new(m.parse(cells[3])...)
		s.dontSort = true
		for _, option := range strings.Fields(cells[2]) {
			s.option(option)
		}
		m.add(feature, name, cells[4], cells[5], s)
		if v := &m.out[len(m.out)-1]; len(v.Expect) == 0 {
			for _, at := range []vector.Hex{0, vector.Hex(s.addr)} {
				v.Expect = append(v.Expect, vector.Expect{From: at, To: at + 16})
			}
		}
	}
}

// option changes a section.
func (s *section) option(option string) {
	key, value, _ := strings.Cut(option, "=")
	var n int64
	if value != "" {
		n = number(value)
	}
	switch key {
	case "addr":
		s.addr = uint64(n)
	case "flags":
		s.flag |= byte(n)
	case "unsorted":
		s.flag &^= sorted
	case "reverse":
		s.reverse = true
	case "aux":
		for i := range n {
			s.aux = append(s.aux, byte(0xa0+i))
		}
	case "before":
		s.fdeGap = make([]byte, n)
	case "between":
		s.freGap = bytes.Repeat([]byte{0xff}, int(n))
	case "after":
		s.tail = bytes.Repeat([]byte{0xff}, int(n))
	default:
		panic(fmt.Sprintf("option %q", option))
	}
}

// words has data words of each size, with the values at the ends.
func (m *maker) words() {
	const text = "The SFrame FRE Info Word"
	large := []int64{8, 0x7fff, 0x8000, -0x8000, -0x8001, math.MaxInt32, math.MinInt32}
	if m.name == "s390x" { // offsets of 32 bits
		large = []int64{8, 0x7fff, 0x8000, -0x8000, -0x8001, (math.MaxInt32 - 160) / 8, math.MinInt32/8 - 20}
	}
	for _, tt := range []struct {
		size   int
		values []int64
	}{
		{1, []int64{8, 0, 1, 127, -128, -1}},
		{2, []int64{8, 127, 128, -128, -129, 255, 256, 32767, -32768, -1}},
		{4, large},
	} {
		for _, base := range []byte{sp, fp} {
			var rows []row
			for i, v := range tt.values {
				rows = append(rows, m.plain(uint32(4*i), base, tt.size, v))
			}
			name := map[byte]string{sp: "sp", fp: "fp"}[base]
			m.add("cfa", fmt.Sprintf("%s-%d", name, tt.size),
				fmt.Sprintf("the CFA is %s plus a signed word of %d bytes", name, tt.size), text,
				m.new(one(0x1000, uint32(4*len(rows)), rows...)))
		}
	}
	m.add("cfa", "mixed", "rows of a function have words of different sizes, and are not aligned", text,
		m.new(one(0x1000, 0x20, m.plain(0, sp, 1, 8), m.plain(4, fp, 2, 300), m.plain(9, sp, 4, 100000),
			m.plain(11, fp, 1, 16), m.plain(31, sp, 2, -8))))
}

// ends are values at the ends of words of each size. They are even: on s390x odd ones are registers.
var ends = map[int][]int64{
	1: {-8, -128, 126, 2, -2},
	2: {-8, -128, -130, 128, 254, -32768, 32766},
	4: {-8, 32768, -32770, math.MaxInt32 - 1, math.MinInt32},
}

// slots has what is saved at the CFA plus something.
func (m *maker) slots() {
	text := map[string]string{"amd64": "AMD64", "aarch64": "AArch64", "aarch64_be": "AArch64", "s390x": "s390x"}[m.name]
	for _, size := range []int{1, 2, 4} {
		var fps, ras, both []row
		for i, v := range ends[size] {
			start, cfa := uint32(4*i), m.plain(0, sp, size, 16).want
			if !m.tracksRA {
				fps = append(fps, fre(start, sp, size, fmt.Sprintf("%s fp=*(cfa%+d)", cfa, v), 16, v))
				continue
			}
			ras = append(ras, fre(start, sp, size, fmt.Sprintf("%s ra=*(cfa%+d)", cfa, v), 16, v))
			second := v - 2
			switch {
			case v == math.MinInt32:
				second = v + 2
			case second < -1<<(8*size-1):
				second = -16
			}
			want := fmt.Sprintf("%s ra=*(cfa%+d) fp=*(cfa%+d)", cfa, v, second)
			both = append(both, fre(start, sp, size, want, 16, v, second))
			if m.name == "s390x" { // the word 0 for no RA
				fps = append(fps, fre(start, sp, size, fmt.Sprintf("%s fp=*(cfa%+d)", cfa, v), 16, 0, v))
			}
		}
		add := func(feature, name, about string, rows []row) {
			if len(rows) > 0 {
				s := m.new(one(0x1000, uint32(4*len(rows)), rows...))
				m.add(feature, fmt.Sprint(name, size), fmt.Sprintf(about, size), text, s)
			}
		}
		add("ra", "saved-", "the second word, of %d bytes, is where RA is saved", ras)
		add("fp", "with-ra-", "the third word, of %d bytes, is where FP is saved", both)
		if m.tracksRA {
			const about = "a word 0 in RA's place says that only FP, in the third word of %d bytes, is saved"
			add("fp", "without-ra-", about, fps)
		} else {
			add("fp", "saved-", "the second word, of %d bytes, is where FP is saved: RA is not tracked", fps)
		}
	}
	if !m.tracksRA {
		c := m.plain(0, sp, 1, 8).want
		m.add("fp", "comes-and-goes", "FP is saved in some rows, the CFA's base changes between", text,
			m.new(one(0x1000, 0x40,
				fre(0, sp, 1, c, 8), fre(1, sp, 1, "sp+16 fp=*(cfa-16)", 16, -16),
				fre(4, fp, 1, "fp+16 fp=*(cfa-16)", 16, -16), fre(0x3f, sp, 1, c, 8))))
	} else {
		w, bias := int64(4), m.cfa(4)
		m.add("ra", "comes-and-goes", "RA and FP are saved in some rows only", text, m.new(one(0x1000, 0x40,
			fre(0, sp, 1, fmt.Sprintf("sp%+d", m.cfa(0)), 0),
			fre(4, sp, 1, fmt.Sprintf("sp%+d ra=*(cfa-16)", bias), w, -16),
			fre(8, sp, 1, fmt.Sprintf("sp%+d ra=*(cfa-16) fp=*(cfa-24)", bias), w, -16, -24),
			fre(12, fp, 1, fmt.Sprintf("fp%+d ra=*(cfa-16) fp=*(cfa-24)", bias), w, -16, -24),
			fre(0x3c, sp, 1, fmt.Sprintf("sp%+d", m.cfa(0)), 0))))
	}
	if m.format == "2e1" && m.name == "s390x" {
		const odd = "odd words are registers: twice the number, plus 1"
		m.add("register-words", "1-byte", odd, text, m.new(one(0x1000, 0x20,
			fre(0, sp, 1, "sp+160 ra=r17+0", 0, 35), fre(4, sp, 1, "sp+160 ra=r17+0 fp=r16+0", 0, 35, 33),
			fre(8, sp, 1, "sp+160 fp=r16+0", 0, 0, 33), fre(12, sp, 1, "sp+160 ra=*(cfa-48) fp=r31+0", 0, -48, 63),
			fre(16, sp, 1, "sp+160 ra=r0+0", 0, 1), fre(20, fp, 1, "fp+0 ra=r14+0 fp=*(cfa-72)", -20, 29, -72),
			fre(24, sp, 1, "sp+160 ra=r63+0", 0, 127))))
		m.add("register-words", "2-bytes", "the same in words of 2 bytes", text, m.new(one(0x1000, 8,
			fre(0, sp, 2, "sp+1760 ra=r17+0 fp=r16+0", 200, 35, 33), fre(4, sp, 2, "sp+1760 ra=r64+0", 200, 129))))
		m.add("register-words", "4-bytes", "the same in words of 4 bytes", text, m.new(one(0x1000, 8,
			fre(0, sp, 4, "sp+800160 ra=r17+0 fp=r16+0", 100000, 35, 33),
			fre(4, sp, 4, "sp+800160 ra=*(cfa-48)", 100000, -48))))
	}
}

// fixed has the fixed offsets of the header.
func (m *maker) fixed() {
	const text = "SFrame Header"
	var s *section
	if m.name == "amd64" {
		s = m.new(one(0x1000, 0x20, fre(0, sp, 1, "sp+16 ra=*(cfa-16)", 16),
			fre(4, sp, 1, "sp+24 ra=*(cfa-16) fp=*(cfa-24)", 24, -24)))
		s.fixedRA = -16
		m.add("fixed-offsets", "ra", "the return address is 16 bytes from the CFA in every row", text, s)
		s = m.new(one(0x1000, 0x20, fre(0, sp, 1, "sp+16 fp=*(cfa-16)", 16), fre(4, fp, 1, "fp+32 fp=*(cfa-16)", 32)))
		s.fixedFP = -16
		m.add("fixed-offsets", "fp", "the frame pointer is saved 16 bytes from the CFA in every row", text, s)
	} else {
		cfa := fmt.Sprintf("sp%+d", m.cfa(4))
		s = m.new(one(0x1000, 0x20, fre(0, sp, 1, cfa+" fp=*(cfa-16)", 4),
			fre(4, sp, 1, cfa+" ra=*(cfa-8) fp=*(cfa-16)", 4, -8)))
		s.fixedFP = -16
		m.add("fixed-offsets", "fp", "the frame pointer is saved 16 bytes from the CFA in every row", text, s)
	}
}

// signed has return addresses that are signed.
func (m *maker) signed() {
	text := "The SFrame FRE Info Word"
	for _, key := range []string{"A", "B"} {
		s := " signed=" + key
		d := one(0x1000, 0x20, fre(0, sp, 1, "sp+0", 0), mangled(fre(4, sp, 1, "sp+0"+s, 0)),
			mangled(fre(8, sp, 1, "sp+32 ra=*(cfa-24) fp=*(cfa-32)"+s, 32, -24, -32)),
			mangled(fre(12, sp, 2, "sp+512 ra=*(cfa-24)"+s, 512, -24)), fre(28, sp, 1, "sp+0", 0))
		d.keyB = key == "B"
		other := one(0x1020, 0x10, mangled(fre(0, sp, 1, "sp+16 ra=*(cfa-8) fp=*(cfa-16) signed=A", 16, -8, -16)))
		about := "the return address is signed with key " + key + " in some rows; one of the next function with key A"
		m.add("signed", "key-"+key, about, text, m.new(d, other))
	}
}

// errata2 has rows without data words, which V2 has from its second errata on.
func (m *maker) errata2() {
	if m.format == "2" {
		return // one form of V2 is enough for each machine
	}
	keep := m.form
	defer func() { m.form = keep }()
	m.format = "2e2"
	outermost := fre(0, 0, 0, "outermost")
	s := m.new(one(0x1000, 0x20, outermost), one(0x1020, 0x20, append(m.rows(0, 4), fre(8, 0, 0, "outermost"))...))
	s.flag = keep.flags()
	m.add("outermost", "rows", "rows without data words: there is no caller", "binutils' include/sframe.h", s)
}

// version3 has what only V3 has, but for flexible functions.
func (m *maker) version3() {
	const text = "binutils' include/sframe.h"
	outermost := fre(0, 0, 0, "outermost")
	a := one(0x1020, 0x20, append(m.rows(0, 4), fre(8, 0, 0, "outermost"))...)
	m.add("outermost", "rows", "rows without data words: there is no caller", text,
		m.new(one(0x1000, 0x20, outermost), a))
	m.add("outermost", "no-rows", "a function without rows: there is no caller in all of it", text,
		m.new(one(0x1000, 0x20, m.rows(0, 4)...), one(0x1020, 0x20), one(0x1040, 0x20, m.rows(0, 4)...)))
	d := one(0x1000, 0x20, m.rows(0, 4)...)
	for i := range d.rows {
		d.rows[i].want += " signal"
	}
	d.signal = true
	m.add("signal", "frame", "a signal frame, and a function that is none", text,
		m.new(d, one(0x1020, 0x20, m.rows(0, 4)...)))
}

// flexible has functions whose rows name any register.
func (m *maker) flexible() {
	const text = "Case for Representing Flexible Topmost Frames in SFrame, Possible Solution; " +
		"binutils' include/sframe.h"
	// control returns the word that says how to read the one after it.
	control := func(reg int, deref bool) int64 {
		c := int64(reg)<<3 | 1
		if deref {
			c |= 2
		}
		return c
	}
	const slot = 2 // the control word of *(CFA + n)
	add := func(name, about string, rows ...row) {
		for i := range rows {
			rows[i].start = uint32(4 * i)
		}
		d := one(0x1000, uint32(4*len(rows)+12), rows...)
		d.flexible = true
		m.add("flexible", name, about, text, m.new(d, one(0x2000, 0x10, m.rows(0, 4)...)))
	}
	// cfa returns the word of an offset of the CFA.
	cfa := func(offset int64) int64 { return (offset - m.bias) / m.scale }
	spCFA := control(m.sp, false)
	base := "sp+120"
	add("registers", "the CFA is any register plus an offset; SP and FP by their numbers",
		flex(1, base, spCFA, cfa(120)), flex(1, "fp+16", control(m.fp, false), cfa(16)),
		flex(1, "r10+0", control(10, false), cfa(0)), flex(1, "r0+8", control(0, false), cfa(8)),
		flex(1, "r17-16", control(17, false), cfa(-16)), flex(1, "r30+64", control(30, false), cfa(64)))
	add("memory", "the CFA is loaded from memory",
		flex(1, "*(fp-8)", control(m.fp, true), cfa(-8)), flex(1, "*(sp+96)", control(m.sp, true), cfa(96)),
		flex(1, "*(r10+0)", control(10, true), cfa(0)))
	add("ra", "the return address is in memory at the CFA, in a register, or in memory at one",
		flex(1, base+" ra=*(cfa-16)", spCFA, cfa(120), slot, -16),
		flex(1, base+" ra=r5+0", spCFA, cfa(120), control(5, false), 0),
		flex(1, base+" ra=*(r12+40)", spCFA, cfa(120), control(12, true), 40),
		flex(1, base+" ra=*(sp+8)", spCFA, cfa(120), control(m.sp, true), 8),
		flex(1, base+" ra=*(cfa+0)", spCFA, cfa(120), slot, 0),
		flex(1, base+" ra=r3-4", spCFA, cfa(120), control(3, false), -4))
	add("fp", "the same of FP. A control word 0 for RA has no word behind it",
		flex(1, base+" fp=*(cfa-16)", spCFA, cfa(120), 0, slot, -16),
		flex(1, base+" fp=*(fp+0)", spCFA, cfa(120), 0, control(m.fp, true), 0),
		flex(1, base+" fp=r4+0", spCFA, cfa(120), 0, control(4, false), 0),
		flex(1, base+" fp=*(sp+120)", spCFA, cfa(120), 0, control(m.sp, true), 120),
		flex(1, base+" ra=*(cfa-8) fp=*(cfa-16)", spCFA, cfa(120), slot, -8, slot, -16),
		flex(1, base+" ra=r9+0 fp=*(r0+24)", spCFA, cfa(120), control(9, false), 0, control(0, true), 24))
	add("drap", "a function that realigns its stack",
		flex(1, base, spCFA, cfa(120)), flex(1, "r10+0", control(10, false), cfa(0)),
		flex(1, "r10+0 fp=*(fp+0)", control(10, false), cfa(0), 0, control(m.fp, true), 0),
		flex(1, "*(fp-8) fp=*(fp+0)", control(m.fp, true), cfa(-8), 0, control(m.fp, true), 0))
	add("2-bytes", "words of 2 bytes: control words have no sign, offsets have one",
		flex(2, "sp+8160 ra=*(cfa-32768) fp=*(cfa+32767)", spCFA, cfa(160+8*1000), slot, -32768, slot, 32767),
		flex(2, "r32+0", control(32, false), cfa(0)), flex(2, "*(r8191-8)", control(8191, true), cfa(-8)),
		flex(2, base+" ra=r4096+0 fp=*(r33-256)", spCFA, cfa(120), control(4096, false), 0, control(33, true), -256))
	r31 := "*(r31+0)"
	if m.sp == 31 {
		r31 = "*(sp+0)"
	}
	add("1-byte", "words of 1 byte at their ends: control words have no sign, offsets have one",
		flex(1, base+" ra=*(cfa-128) fp=*(cfa+127)", spCFA, cfa(120), slot, -128, slot, 127),
		flex(1, r31+" fp=*(r16-1)", control(31, true), cfa(0), 0, control(16, true), -1))
	add("4-bytes", "words of 4 bytes",
		flex(4, "sp+1048576 ra=*(cfa-2147483648) fp=*(cfa+2147483647)", spCFA, cfa(1<<20), slot, math.MinInt32, slot,
			math.MaxInt32),
		flex(4, "r65535-1048576", control(65535, false), cfa(-1<<20)))
	add("outermost", "rows without data words in such a function",
		flex(1, base, spCFA, cfa(120)), fre(0, 0, 0, "outermost"))
	d := one(0x1000, 0x20, flex(2, "*(sp+160) ra=*(sp+168) fp=*(sp+120) signal", control(m.sp, true), cfa(160),
		control(m.sp, true), 168, control(m.sp, true), 120))
	d.flexible, d.signal = true, true
	m.add("signal", "registers", "a signal frame that is found through memory", text, m.new(d))
	if m.name == "aarch64" || m.name == "aarch64_be" {
		d := one(0x1000, 0x20, mangled(flex(1, "r10+0 ra=*(cfa-8) signed=B", control(10, false), 0, slot, -8)),
			fre(4, 0, 1, "sp+0", spCFA, 0))
		d.flexible, d.keyB = true, true
		m.add("signed", "flexible", "a signed return address in such a function", text, m.new(d))
	}
	mask := one(0x1000, 0x40, flex(1, base, spCFA, cfa(120)), fre(11, 0, 1, "r10+8", control(10, false), cfa(8)))
	mask.flexible, mask.mask, mask.rep = true, true, 16
	m.add("flexible", "pc-mask", "such rows in blocks", text, m.new(mask))
	two := one(0x1000, 0x20, flex(1, base, spCFA, cfa(120)), fre(4, 0, 1, "r10+8", control(10, false), cfa(8)))
	two.flexible = true
	m.add("flexible", "shared", "two such functions have the same rows in the section", text,
		m.new(two, function{start: 0x1040, size: 0x10, width: 1, share: true, flexible: true}))
}

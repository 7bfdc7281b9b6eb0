package generate

import (
	"fmt"
	"math"

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

// none adds a range without rows to the last vector.
func (m *maker) none(from, to uint64) {
	v := &m.out[len(m.out)-1]
	v.Expect = append(v.Expect, vector.Expect{From: vector.Hex(from), To: vector.Hex(to)})
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
		m.starts()
		m.blocks()
		m.functions()
		m.places()
		m.headers()
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

// starts has start addresses of rows of each width.
func (m *maker) starts() {
	const text = "The SFrame FRE Types"
	m.add("row-starts", "1-byte", "start addresses of 1 byte, up to 255", text,
		m.new(one(0x1000, 0x100, m.rows(0, 1, 127, 128, 255)...)))
	two := one(0x1000, 0x10000, m.rows(0, 1, 255, 256, 0x7fff, 0x8000, 0xffff)...)
	two.width = 2
	m.add("row-starts", "2-bytes", "start addresses of 2 bytes, up to 65535", text, m.new(two))
	four := one(0x1000000, 0x1000010, m.rows(0, 255, 256, 0xffff, 0x10000, 0x1000000)...)
	four.width = 4
	m.add("row-starts", "4-bytes", "start addresses of 4 bytes", text, m.new(four))
	huge := one(0x10000, 0x90000000, m.rows(0, 0x7fffffff, 0x80000000, 0x8fffffff)...)
	huge.width = 4
	m.add("row-starts", "unsigned", "start addresses of 4 bytes over 2 GiB: they and sizes have no sign", text,
		m.new(huge))
	for _, width := range []int{2, 4} {
		d := one(0x1000, 0x20, m.rows(0, 4, 31)...)
		d.width = width
		m.add("row-starts", fmt.Sprintf("wide-%d", width), fmt.Sprintf("start addresses of %d bytes where 1 would do", width),
			text, m.new(d))
	}
	mixed := one(0x1200, 0x20, m.rows(0, 4)...)
	mixed.width = 4
	middle := one(0x1100, 0x20, m.rows(0, 4)...)
	middle.width = 2
	m.add("row-starts", "mixed", "each function has a width of its own", text,
		m.new(one(0x1000, 0x20, m.rows(0, 4)...), middle, mixed))
	m.add("row-starts", "late", "no row holds before the first one begins", "SFrame FRE",
		m.new(one(0x1000, 0x20, m.rows(4, 8)...)))
	m.add("row-starts", "last-byte", "the last row holds for the last byte only", "SFrame FRE",
		m.new(one(0x1000, 0x20, m.rows(0, 31)...)))
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
			both = append(both, fre(start, sp, size, fmt.Sprintf("%s ra=*(cfa%+d) fp=*(cfa%+d)", cfa, v, second), 16, v, second))
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
			add("fp", "without-ra-", "a word 0 in RA's place says that only FP, in the third word of %d bytes, is saved", fps)
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
		m.add("register-words", "1-byte", "odd words are registers: twice the number, plus 1", text, m.new(one(0x1000, 0x20,
			fre(0, sp, 1, "sp+160 ra=r17+0", 0, 35), fre(4, sp, 1, "sp+160 ra=r17+0 fp=r16+0", 0, 35, 33),
			fre(8, sp, 1, "sp+160 fp=r16+0", 0, 0, 33), fre(12, sp, 1, "sp+160 ra=*(cfa-48) fp=r31+0", 0, -48, 63),
			fre(16, sp, 1, "sp+160 ra=r0+0", 0, 1), fre(20, fp, 1, "fp+0 ra=r14+0 fp=*(cfa-72)", -20, 29, -72),
			fre(24, sp, 1, "sp+160 ra=r63+0", 0, 127))))
		m.add("register-words", "2-bytes", "the same in words of 2 bytes", text, m.new(one(0x1000, 8,
			fre(0, sp, 2, "sp+1760 ra=r17+0 fp=r16+0", 200, 35, 33), fre(4, sp, 2, "sp+1760 ra=r64+0", 200, 129))))
		m.add("register-words", "4-bytes", "the same in words of 4 bytes", text, m.new(one(0x1000, 8,
			fre(0, sp, 4, "sp+800160 ra=r17+0 fp=r16+0", 100000, 35, 33), fre(4, sp, 4, "sp+800160 ra=*(cfa-48)", 100000, -48))))
	}
}

// blocks has functions of repeated blocks.
func (m *maker) blocks() {
	const text = "The SFrame FDE Types"
	if m.version() == 1 {
		// Readers do not agree on the mask, except for a row at 0.
		d := one(0x1000, 0x40, m.rows(0)...)
		d.mask = true
		m.add("pc-mask", "one-row", "the pc masked by 0 is 0, and so a row at 0 holds for all of the function", text,
			m.new(d))
		return
	}
	block := func(start uint64, size uint32, rep byte, rows ...row) function {
		d := one(start, size, rows...)
		d.mask, d.rep = true, rep
		return d
	}
	m.add("pc-mask", "16", "a PLT: blocks of 16 bytes of two rows", text, m.new(block(0x1000, 0x40, 16, m.rows(0, 11)...)))
	m.add("pc-mask", "32", "blocks of 32 bytes", text, m.new(block(0x1020, 0x60, 32, m.rows(0, 6, 31)...)))
	m.add("pc-mask", "255", "the largest block", text, m.new(block(255*17, 2*255, 255, m.rows(0, 254)...)))
	m.add("pc-mask", "part", "the last block is not whole", text, m.new(block(0x1000, 0x28, 16, m.rows(0, 4, 11)...)))
	m.add("pc-mask", "late", "the first row does not begin with the block", text,
		m.new(block(0x1000, 0x20, 16, m.rows(4, 8)...)))
	m.add("pc-mask", "one", "one block", text, m.new(block(0x1000, 8, 8, m.rows(0, 4)...)))
	m.add("pc-mask", "between", "a PLT between other functions: its first entry is one of these", text,
		m.new(one(0x1000, 0x10, m.rows(0, 6)...), block(0x1010, 0x30, 16, m.rows(0, 11)...),
			one(0x1040, 0x20, m.rows(0, 1, 4)...)))
	wide := block(0x1000, 0x30, 16, m.rows(0, 11)...)
	wide.width = 4
	m.add("pc-mask", "wide", "start addresses of 4 bytes", text, m.new(wide))
	ignored := one(0x1000, 0x40, m.rows(0, 11)...)
	ignored.rep = 16
	m.add("pc-mask", "not", "a function that is not of blocks: the size of blocks means nothing", text, m.new(ignored))
}

// functions has several of them.
func (m *maker) functions() {
	const text = "SFrame FDE"
	a, b, c := one(0x1000, 0x20, m.rows(0, 4)...), one(0x1040, 0x10, m.rows(0, 2, 8)...), one(0x1050, 1, m.rows(0)...)
	m.add("functions", "holes", "three functions: between the first two is a hole, the last one has one byte", text,
		m.new(a, b, c))
	var many []function
	for i := range 9 {
		d := one(0x2000+uint64(i)*0x20, 0x1c, m.rows(0, uint32(i)+1)...)
		d.rows[1].words, d.rows[1].want = []int64{int64(i)}, m.plain(0, sp, 1, int64(i)).want
		many = append(many, d)
	}
	// Functions of 0x1a, 0xd and 4 bytes, aligned to 16, the last one without padding.
	joined := append(m.rows(0, 4, 0x16), m.plain(0x20, sp, 1, 8), m.plain(0x21, sp, 1, 16), m.plain(0x30, sp, 1, 8))
	m.add("padding", "joined",
		"three functions and the padding between them in one FDE: the last row of each goes on to the next one",
		text, m.new(one(0x1000, 0x34, joined...)))
	m.add("functions", "many", "nine functions, with holes", text, m.new(many...))
	m.add("functions", "empty-between", "a function of no bytes in a hole", text,
		m.new(a, function{start: 0x1030, width: 1}, b))
	m.add("functions", "empty-before", "a function of no bytes, and another one at the same address", text,
		m.new(a, function{start: 0x1040, width: 1}, b))
	after := m.new(a, b, function{start: 0x1040, width: 1}, c)
	after.dontSort = true
	m.add("functions", "empty-after", "the same in the other order, which is sorted, too", "SFrame Flags", after)
	none := m.new()
	none.addr = 0x1000
	m.add("functions", "none", "no function: the header alone", text, none)
	m.none(0, 0x10)
	m.none(0x1000, 0x1010)
	if m.version() != 3 {
		m.add("functions", "no-rows", "a function without rows, between others", text,
			m.new(a, function{start: 0x1020, size: 0x10, width: 1}, b))
	}
	unsorted := m.new(b, c, a)
	unsorted.dontSort, unsorted.flag = true, unsorted.flag&^sorted
	m.add("unsorted", "order", "functions in any order, and the flag says nothing of one", "SFrame Flags", unsorted)
	asif := m.new(a, b, c)
	asif.flag &^= sorted
	m.add("unsorted", "sorted", "sorted functions, and no flag that says so", "SFrame Flags", asif)
	shared := m.new(a, function{start: 0x1040, size: 0x10, width: 1, share: true}, c)
	m.add("shared-rows", "two", "two functions have the same rows in the section", text, shared)
	reverse := m.new(a, b, c)
	reverse.reverse = true
	m.add("shared-rows", "reverse", "rows of the last function come first", text, reverse)
	if m.version() == 2 {
		d := a
		d.padding = 0xffff
		m.add("functions", "padding", "bytes that are not used are not looked at", text, m.new(d, b))
	}
}

// places has functions at various addresses.
func (m *maker) places() {
	const text = "SFrame FDE"
	at := func(name, about string, addr uint64, starts ...uint64) {
		var fs []function
		for i, start := range starts {
			fs = append(fs, one(start, 0x20, m.rows(0, uint32(i)+1)...))
		}
		s := m.new(fs...)
		s.addr = addr
		m.add("addresses", name, about, text, s)
	}
	at("before", "functions before the section: their distances are negative", 0x8000, 0x1000, 0x7fe0)
	at("behind", "functions behind the section", 0x400, 0x1000, 0x2000)
	at("around", "functions on both sides of the section", 0x1800, 0x1000, 0x2000)
	at("zero", "a function at address 0", 0x8000, 0, 0x20)
	at("top", "a function that ends at the last address", 0xffffffffffff0000, 0xffffffffffffffe0)
	at("kernel", "addresses in the upper half", 0xffffffff81800000, 0xffffffff81000000, 0xffffffff82000000)
	at("high", "addresses over 4 GiB", 0x7f1234568000, 0x7f1234560000, 0x7f1234570000)
	at("2gib", "the largest distances of 32 bits", 0x100000000, 0x100000000-0x80000000+0x100, 0x100000000+0x7fffff00)
	if m.version() == 3 {
		at("far", "distances over 4 GiB, in both directions", 0x7f0000000000, 0x7f0000000000-5<<30, 0x7f0000000000+5<<30)
		at("farthest", "distances of most of the address space", 0x400000, 0x1000, 0x7fffffffe000)
	}
}

// headers has what only the header says.
func (m *maker) headers() {
	const text = "SFrame Header"
	fs := func() []function {
		return []function{one(0x1000, 0x20, m.rows(0, 4)...), one(0x1040, 0x10, m.rows(0, 2)...)}
	}
	for _, n := range []int{4, 3, 255} {
		s := m.new(fs()...)
		for i := range n {
			s.aux = append(s.aux, byte(0xa0+i))
		}
		m.add("header", fmt.Sprint("auxiliary-", n),
			fmt.Sprintf("an auxiliary header of %d bytes: what is not known is skipped", n), text, s)
	}
	s := m.new(fs()...)
	s.fdeGap = make([]byte, 8)
	m.add("header", "gap-before", "8 bytes between the header and the functions", text, s)
	s = m.new(fs()...)
	s.freGap = []byte{0xff, 0xff, 0xff, 0xff}
	m.add("header", "gap-between", "4 bytes between the functions and the rows", text, s)
	s = m.new(fs()...)
	s.tail = []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	m.add("header", "gap-after", "7 bytes after the rows", text, s)
	if m.version() != 3 {
		s = m.new(fs()...)
		s.flag |= framePointer
		m.add("header", "frame-pointer", "the flag that every function keeps a frame pointer changes no row", "SFrame Flags",
			s)
	}
	if m.version() == 2 && m.format == "2e1" && m.name == "s390x" {
		s = m.new(fs()...)
		s.flag |= pcrel
		m.add("header", "pc-relative", "start addresses count from their own fields", "SFrame Flags", s)
	}
	// What the header says of all rows.
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
	m.add("outermost", "rows", "rows without data words: there is no caller", text, m.new(one(0x1000, 0x20, outermost), a))
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
	const text = "Case for Representing Flexible Topmost Frames in SFrame, Possible Solution; binutils' include/sframe.h"
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

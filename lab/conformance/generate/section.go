package generate

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/lab/conformance/vector"
)

// The numbers of the format come from its documents, not from package sframe, which is one of the tested readers.
const (
	magic = 0xdee2

	sorted = 0x1 // flags
	pcrel  = 0x4
)

// A machine is an ABI.
type machine struct {
	name     string
	id       byte
	order    elftest.Order
	fixedRA  int8
	sp, fp   int // DWARF numbers
	scale    int64
	bias     int64 // CFA = base + word*scale + bias
	tracksRA bool
}

var (
	aarch64BE = machine{"aarch64_be", 1, binary.BigEndian, 0, 31, 29, 1, 0, true}
	aarch64   = machine{"aarch64", 2, binary.LittleEndian, 0, 31, 29, 1, 0, true}
	amd64     = machine{"amd64", 3, binary.LittleEndian, -8, 7, 6, 1, 0, false}
	s390x     = machine{"s390x", 4, binary.BigEndian, 0, 15, 11, 8, 160, true}
)

// A form is a format for a machine.
type form struct {
	format string // 1, 2, 2e1, 2e2 or 3
	machine
}

func (f form) String() string { return f.format + "-" + f.name }

func (f form) version() int { return int(f.format[0] - '0') }

// flags are those that a linker gives a section of the format.
func (f form) flags() byte {
	if f.format == "2e1" && f.name != "s390x" || f.format == "3" {
		return sorted | pcrel
	}
	return sorted
}

// cfa returns the offset that a data word of the CFA stands for.
func (f form) cfa(word int64) int64 { return word*f.scale + f.bias }

// A section is made by hand. Its fields can also be wrong.
type section struct {
	form
	flag      byte
	fixedFP   int8
	fixedRA   int8
	aux       []byte // auxiliary header
	addr      uint64
	fdeGap    []byte // between the header and the FDEs
	freGap    []byte // between the FDEs and the FREs
	tail      []byte // after the FREs
	functions []function
	dontSort  bool // leave the functions as they are
	reverse   bool // the FREs of the last function come first
}

// A function is an FDE.
type function struct {
	start    uint64
	size     uint32
	width    int // of the start addresses of rows, in bytes
	mask     bool
	rep      byte // size of a block
	keyB     bool
	signal   bool
	flexible bool
	share    bool // the rows are those of the function before it
	padding  uint16
	rows     []row
}

// A row is an FRE. Its words are as in the section; want says what they mean, see machine.want.
type row struct {
	start   uint32
	base    byte // sp or fp; 0 in flexible FDEs
	size    int  // of data words, in bytes
	words   []int64
	mangled bool
	want    string
}

// Bases of the CFA in the info word of an FRE.
const (
	fp = 0
	sp = 1
)

// A where has the offsets of the parts of an encoded section.
type where struct {
	fdes, fres int
	rows       [][]int // of each FRE of each function
	attrs      []int   // V3
}

// new returns a section as a linker makes it.
func (f form) new(functions ...function) *section {
	return &section{form: f, flag: f.flags(), fixedRA: f.fixedRA, addr: 0x8000, functions: functions}
}

var log2 = map[int]byte{1: 0, 2: 1, 4: 2}

func byStart(a, b function) int { return cmp.Compare(a.start, b.start) }

// encode returns the bytes.
func (s *section) encode() ([]byte, where) {
	if !s.dontSort {
		slices.SortStableFunc(s.functions, byStart)
	}
	o, v := s.order, s.version()
	entry := map[int]int{1: 17, 2: 20, 3: 16}[v]
	at := where{fdes: 28 + len(s.aux) + len(s.fdeGap)}
	at.fres = at.fdes + entry*len(s.functions) + len(s.freGap)

	// The rows.
	var fres []byte
	offs := make([]int, len(s.functions))
	at.rows, at.attrs = make([][]int, len(s.functions)), make([]int, len(s.functions))
	num := 0
	write := func(i int) {
		d := &s.functions[i]
		num += s.count(i)
		if d.share {
			offs[i], at.rows[i], at.attrs[i] = offs[i-1], at.rows[i-1], at.attrs[i-1]
			return
		}
		offs[i], at.attrs[i] = len(fres), at.fres+len(fres)
		if v == 3 {
			fres = o.AppendUint16(fres, uint16(len(d.rows)))
			kind := byte(0)
			if d.flexible {
				kind = 1
			}
			fres = append(fres, d.info(), kind, d.rep)
		}
		for _, r := range d.rows {
			at.rows[i] = append(at.rows[i], at.fres+len(fres))
			fres = appendWord(fres, o, int64(r.start), d.width)
			info := r.base | byte(len(r.words))<<1 | log2[max(r.size, 1)]<<5
			if r.mangled {
				info |= 0x80
			}
			fres = append(fres, info)
			for _, w := range r.words {
				fres = appendWord(fres, o, w, r.size)
			}
		}
	}
	for i := range s.functions {
		if s.reverse {
			i = len(s.functions) - 1 - i
		}
		write(i)
	}

	// The header.
	b := o.AppendUint16(nil, magic)
	b = append(b, byte(v), s.flag, s.id, byte(s.fixedFP), byte(s.fixedRA), byte(len(s.aux)))
	for _, n := range []int{len(s.functions), num, len(fres), len(s.fdeGap), at.fres - 28 - len(s.aux)} {
		b = o.AppendUint32(b, uint32(n))
	}
	b = append(append(b, s.aux...), s.fdeGap...)

	// The functions.
	for i, d := range s.functions {
		start := d.start - s.addr
		if s.flag&pcrel != 0 {
			start -= uint64(len(b))
		}
		if v == 3 {
			b = o.AppendUint64(b, start)
		} else {
			b = o.AppendUint32(b, uint32(start))
		}
		b = o.AppendUint32(b, d.size)
		b = o.AppendUint32(b, uint32(offs[i]))
		if v == 3 {
			continue
		}
		b = o.AppendUint32(b, uint32(s.count(i)))
		b = append(b, d.info())
		if v == 2 {
			b = append(b, d.rep)
			b = o.AppendUint16(b, d.padding)
		}
	}
	return slices.Concat(b, s.freGap, fres, s.tail), at
}

// count returns how many rows a function has.
func (s *section) count(i int) int {
	for s.functions[i].share {
		i--
	}
	return len(s.functions[i].rows)
}

// info returns the info word of an FDE.
func (d *function) info() byte {
	info := log2[d.width]
	if d.mask {
		info |= 1 << 4
	}
	if d.keyB {
		info |= 1 << 5
	}
	if d.signal {
		info |= 1 << 7
	}
	return info
}

// appendWord appends a number of 1, 2 or 4 bytes.
func appendWord(b []byte, o elftest.Order, v int64, size int) []byte {
	if v < -1<<(8*size-1) || v >= 1<<(8*size) {
		panic(fmt.Sprintf("%d does not fit %d bytes", v, size))
	}
	switch size {
	case 1:
		return append(b, byte(v))
	case 2:
		return o.AppendUint16(b, uint16(v))
	}
	return o.AppendUint32(b, uint32(v))
}

// want reads what a row means: the rule of the CFA, and the rules that differ from the machine's default:
// "sp+16 ra=*(cfa-8) fp=*(cfa-16) signed=A signal", or "outermost".
func (m machine) want(s string) *vector.Row {
	row := &vector.Row{}
	if m.name == "amd64" {
		row.RA = &vector.Rule{Base: "cfa", Offset: -8, Deref: true}
	}
	for i, word := range strings.Fields(s) {
		key, value, found := strings.Cut(word, "=")
		switch {
		case word == "outermost":
			row.Outermost, row.RA = true, nil
		case word == "signal":
			row.Signal = true
		case i == 0:
			row.CFA = rule(word)
		case key == "ra" && found:
			row.RA = rule(value)
		case key == "fp" && found:
			row.FP = rule(value)
		case key == "signed" && found:
			row.Signed = value
		default:
			panic(fmt.Sprintf("%q in %q", word, s))
		}
	}
	return row
}

// rule reads a rule: cfa-8, sp+16, r10+0, *(fp-8), or same, which is none.
func rule(s string) *vector.Rule {
	if s == "same" {
		return nil
	}
	r := &vector.Rule{}
	if inner, ok := strings.CutPrefix(s, "*("); ok {
		r.Deref, s = true, strings.TrimSuffix(inner, ")")
	}
	at := strings.LastIndexAny(s, "+-")
	n, err := strconv.ParseInt(s[at:], 10, 64)
	if err != nil {
		panic(err)
	}
	r.Base, r.Offset = s[:at], n
	return r
}

// expect returns the answers for the functions and for margin bytes around them. A row holds from its start up to the
// next one; other addresses have none.
func (s *section) expect(margin uint64) vector.Expects {
	fs := slices.Clone(s.functions)
	slices.SortStableFunc(fs, byStart)
	var out vector.Expects
	for i, d := range fs {
		if d.size == 0 {
			continue
		}
		switch {
		case len(out) == 0 && d.start >= margin:
			out.Add(d.start-margin, d.start, nil)
		case len(out) > 0:
			out.Add(uint64(out[len(out)-1].To), d.start, nil)
		}
		rows := d.rows
		if d.share {
			rows = fs[i-1].rows
		}
		block := uint64(d.size)
		if d.mask && d.rep > 0 {
			block = uint64(d.rep)
		}
		for off := uint64(0); off < uint64(d.size); off += block {
			end := min(off+block, uint64(d.size))
			pos := off
			var holds *vector.Row
			if s.version() == 3 && len(rows) == 0 && !d.flexible {
				holds = &vector.Row{Outermost: true, Signal: d.signal}
			}
			for _, r := range rows {
				if next := min(off+uint64(r.start), end); next > pos {
					out.Add(d.start+pos, d.start+next, holds)
					pos = next
				}
				holds = s.want(r.want)
			}
			out.Add(d.start+pos, d.start+end, holds)
		}
	}
	if n := len(out); n > 0 && uint64(out[n-1].To)+margin > uint64(out[n-1].To) && out[n-1].To != 0 {
		out.Add(uint64(out[n-1].To), uint64(out[n-1].To)+margin, nil)
	}
	return out
}

package sframe

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
)

// A Code stands for a row by its bytes as FDEs of its type have them: rows with the same one are the
// same. It is in the lower bytes, the first one lowest, and in the highest byte is what type it is. Rows of more
// bytes than that have none, and 0 is no Code.
type Code uint64

// maxCode is the size in bytes of the largest row that has a Code.
const maxCode = 7

// Types of FDEs in the highest byte of a Code.
const (
	codeRegular  Code = 1 << (8 * maxCode)
	codeFlexible Code = 2 << (8 * maxCode)
)

// codeOf returns the Code of the row of so many bytes at the start of an integer, if it has one.
func codeOf(bytes uint64, size int, typed Code) Code { return Code(bytes&(1<<(8*size)-1)) | typed }

// codeType returns what is in the highest byte of Codes.
func codeType(flexible bool) Code {
	if flexible {
		return codeFlexible
	}
	return codeRegular
}

// A CodedFRE is an FRE whose row is given by its Code.
type CodedFRE struct {
	Start uint32 // as in FRE
	Code  Code
}

// Codes appends the i-th FDE's FREs to buf, if all of them have Codes, and reports whether that is so. It
// checks that they are in the section, but not what they say: rows may be none that the version
// knows, and their starts in any order. The last few bytes of a section are not looked at.
func (s *Section) Codes(i int, buf []CodedFRE) (FDE, []CodedFRE, bool) {
	d, l := s.fde(s.entry(i))
	data := s.data[s.fres+int(l.Off)+s.codec.layout.AttrSize:]
	width, typed := l.Type.Size(), codeType(d.Flexible)
	for range l.Num {
		if len(data) < width+8 {
			return d, buf, false
		}
		start := uint32(data[0])
		if width > 1 {
			start = s.codec.unsigned(data, width)
		}
		row := binary.LittleEndian.Uint64(data[width:])
		size := RowSize(byte(row))
		if size > maxCode {
			return d, buf, false
		}
		buf = append(buf, CodedFRE{start, codeOf(row, size, typed)})
		data = data[width+size:]
	}
	return d, buf, true
}

// A Reader reads the FREs of many FDEs, and numbers the rows that differ: but for where they start,
// those of a section are few.
type Reader struct {
	Rows  []Row  // by number
	Codes []Code // of the rows; 0 for those that have none

	s     *Section
	slots []rowSlot // a hash table of rows of at most 8 bytes; its size is a power of two
	used  int
	seed  uint64             // of the hashes
	long  map[longRow]uint32 // numbers of longer rows
}

// A Ref is an FRE whose row is given by its number.
type Ref struct {
	Start uint32 // as in FRE
	Row   uint32 // index of Reader.Rows
}

// A rowSlot is a row that was decoded before, by its bytes.
type rowSlot struct {
	code     uint64
	row      uint32 // its number plus 1; 0 for none
	size     uint8  // in bytes
	flexible bool
}

// A longRow is a row of more than 8 bytes that was decoded before.
type longRow struct {
	bytes    string
	flexible bool
}

// NewReader returns a Reader of the section's FREs.
func (s *Section) NewReader() *Reader {
	return &Reader{s: s, slots: make([]rowSlot, 64), seed: rand.Uint64()}
}

// Refs appends the i-th FDE's FREs to buf and returns it.
func (r *Reader) Refs(i int, buf []Ref) ([]Ref, error) {
	d, l := r.s.fde(r.s.entry(i))
	if r.s.outermost(&d, &l) {
		n, _ := r.number([]byte{0}, d.Flexible)
		return append(buf, Ref{0, n}), nil
	}
	for w := r.s.walk(&d, &l); w.left > 0; {
		start, b, err := w.fre()
		if err != nil {
			return buf, err
		}
		n, what := r.number(b, d.Flexible)
		if what != "" {
			return buf, w.wrong(b, what)
		}
		buf = append(buf, Ref{start, n})
	}
	return buf, nil
}

// number returns the number of the row that b begins with, or what is wrong with it.
func (r *Reader) number(b []byte, flexible bool) (uint32, string) {
	size := RowSize(b[0])
	if size > 8 || size > len(b) {
		return r.longNumber(b, size, flexible)
	}
	var code uint64
	if len(b) >= 8 {
		code = binary.LittleEndian.Uint64(b) & (1<<(8*size) - 1)
	} else {
		var c [8]byte
		copy(c[:], b[:size])
		code = binary.LittleEndian.Uint64(c[:])
	}
	s := r.slot(code, uint8(size), flexible)
	if s.row > 0 {
		return s.row - 1, ""
	}
	row, _, what := r.s.codec.row(b, flexible)
	if what != "" {
		return 0, what
	}
	r.Rows, r.Codes = append(r.Rows, row), append(r.Codes, 0)
	if size <= maxCode {
		r.Codes[len(r.Codes)-1] = codeOf(code, size, codeType(flexible))
	}
	*s = rowSlot{code, uint32(len(r.Rows)), uint8(size), flexible}
	if r.used++; 2*r.used > len(r.slots) {
		r.grow()
	}
	return uint32(len(r.Rows) - 1), ""
}

// slot returns where a row is, or belongs.
func (r *Reader) slot(code uint64, size uint8, flexible bool) *rowSlot {
	mask := uint64(len(r.slots) - 1)
	hi, lo := bits.Mul64(code^r.seed, 0x9e3779b97f4a7c15)
	for i := hi ^ lo; ; i++ {
		s := &r.slots[i&mask]
		if s.row == 0 || s.code == code && s.size == size && s.flexible == flexible {
			return s
		}
	}
}

// grow makes the hash table larger.
func (r *Reader) grow() {
	old := r.slots
	r.slots = make([]rowSlot, 2*len(old))
	for _, s := range old {
		if s.row > 0 {
			*r.slot(s.code, s.size, s.flexible) = s
		}
	}
}

// longNumber is number for rows that no slot holds.
func (r *Reader) longNumber(b []byte, size int, flexible bool) (uint32, string) {
	key := longRow{string(b[:min(size, len(b))]), flexible}
	if n, ok := r.long[key]; ok {
		return n, ""
	}
	row, _, what := r.s.codec.row(b, flexible)
	if what != "" {
		return 0, what
	}
	if r.long == nil {
		r.long = make(map[longRow]uint32)
	}
	n := uint32(len(r.Rows))
	r.Rows, r.Codes, r.long[key] = append(r.Rows, row), append(r.Codes, 0), n
	return n, ""
}

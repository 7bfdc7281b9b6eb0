package cfi

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
)

// cie is a decoded Common Information Entry (DWARF 5, section 6.4.1).
type cie struct {
	sec       *section
	number    uint32 // by the order in which they were asked for
	codeAlign uint64
	dataAlign int64
	raReg     uint64
	fdeEnc    byte // of the addresses in its FDEs
	augmented bool // z: FDEs have augmentation data, with a length
	signal    bool
	keyB      bool
	initial   uint32 // the number of the rules after the initial instructions
	class     uint32 // the number of all that instructions depend on, besides the rules in force
	others    uint64 // the registers below 64 of which rows have no rule, a bit for each
	err       *Error
}

// parser reads the records of one section.
type parser struct {
	sec   *section
	table *Table
	code  []span
	cies  map[uint64]*cie // by offset; damaged ones are there too, with err
	fns   []Function
	// At address 0, if there is code; see atZero.
	zeros      []Function
	otherZeros int // FDEs of more bytes than there are
	fdes       int
	recent     [4]recentCIE
	in         span // where the code of the FDE before is
	room       int  // bytes that CIEs may still have
	bad        *cie // stands for all CIEs that cannot be used after those whose errors are kept
}

// A recentCIE is a CIE that was asked for, and where it is.
type recentCIE struct {
	off uint64
	cie *cie
}

// A record is the frame that CIEs and FDEs share.
type record struct {
	off  int    // of the length field
	id   int    // offset of the CIE id or CIE pointer
	body int    // offset after it
	end  int    // offset of the end
	cie  uint64 // the CIE's offset, for an FDE
	kind recordKind
}

type recordKind uint8

const (
	recordZero recordKind = iota // a length of zero
	recordCIE
	recordFDE
)

// record decodes the record at off. Without an error, the next one starts at
// the end of this one; with an error whose record has no end, none can be found.
func (s *section) record(off int) (record, *Error) {
	r := record{off: off}
	c := cursor{sec: s, data: s.data, pos: off}
	length := c.uint(4)
	wide := length == math.MaxUint32
	if wide {
		length = c.uint(8)
	} else if length >= 0xfffffff0 {
		c.fail(off, "length %#x is reserved", length)
	}
	if c.err != nil {
		return r, c.err
	}
	if left := uint64(len(s.data) - c.pos); length > left {
		c.fail(off, "record of %d bytes, but the section has %d left", length, left)
		return r, c.err
	}
	r.id = c.pos
	r.end = c.pos + int(length)
	if length == 0 {
		return r, nil
	}
	c.data = s.data[:r.end]
	// In .eh_frame the id is 4 bytes also in records with a 64-bit length (LSB
	// Core, "The .eh_frame section"), and is a distance, not an offset.
	size, cieID := 4, uint64(0)
	if s.source == DebugFrame {
		cieID = math.MaxUint32
		if wide {
			size, cieID = 8, math.MaxUint64
		}
	}
	id := c.uint(size)
	r.body = c.pos
	switch {
	case c.err != nil:
	case id == cieID:
		r.kind = recordCIE
	case s.source == DebugFrame:
		r.kind, r.cie = recordFDE, id
	case id > uint64(r.id):
		c.fail(r.id, "CIE pointer %#x reaches before the start of the section", id)
	default:
		r.kind, r.cie = recordFDE, uint64(r.id)-id
	}
	return r, c.err
}

// minFDE is the smallest length field of an FDE: a CIE pointer, and addresses of two bytes.
const minFDE = 4 + 2 + 2

// reserve makes room for as many functions as there can be FDEs.
func (p *parser) reserve() {
	n := 0
	for data := p.sec.data; len(data) >= 4; {
		length := int(p.sec.uint32(data))
		if length == 0 || length > len(data)-4 {
			break
		}
		if length >= minFDE {
			n++
		}
		data = data[4+length:]
	}
	p.fns = make([]Function, 0, n)
	p.sec.programs.prepare(n)
}

// parse reads all records.
func (p *parser) parse() {
	p.reserve()
	for off := 0; ; {
		if off = p.usual(off); off == len(p.sec.data) {
			return
		}
		r, err := p.sec.record(off)
		if err != nil {
			p.table.report(err)
		}
		if r.end == 0 {
			return // nothing says where the next record is
		}
		off = r.end
		if err != nil {
			continue
		}
		switch r.kind {
		case recordZero:
			if p.sec.open {
				p.sec.data = p.sec.data[:off]
				return
			}
		case recordCIE: // read when an FDE asks for it: hostile files have millions
		case recordFDE:
			p.fdes++
			if err := p.fde(&r); err != nil {
				p.table.report(err)
			}
		}
	}
}

// shortcuts says that what is usual is read in loops of its own. It is false in tests that compare these with
// what reads everything.
var shortcuts = true

// usual adds the functions of FDEs that are in the form that compilers write, as long as there is one at off:
// of .eh_frame of a little-endian machine, with 32-bit pc-relative addresses. It returns where the first
// one is that is not, or the end, and does what fde does.
func (p *parser) usual(off int) int {
	const (
		id, start, size, augmentation = 4, 8, 12, 16 // where its parts are, if it is of an augmented CIE
		head                          = augmentation + 1
	)
	s, data := p.sec, p.sec.data
	if !s.little || s.source != EHFrame || !shortcuts {
		return off
	}
	first := len(p.fns) // of those that are not executed yet
	for len(data)-off >= head {
		b := data[off:]
		length := uint64(binary.LittleEndian.Uint32(b))
		back := uint64(binary.LittleEndian.Uint32(b[id:]))
		at := uint64(off+id) - back // which is no CIE's if this is one
		d := p.recent[at/4%uint64(len(p.recent))]
		if length > uint64(len(b)-id) || d.cie == nil || d.off != at || d.cie.err != nil || d.cie.fdeEnc != pePCRel|peSdata4 {
			break
		}
		begin := s.addr + uint64(off+start) + uint64(int64(int32(binary.LittleEndian.Uint32(b[start:]))))
		n := uint64(int64(int32(binary.LittleEndian.Uint32(b[size:]))))
		if begin < p.in.begin || begin >= p.in.end {
			var ok bool
			if p.in, ok = find(p.code, begin); !ok {
				break
			}
		}
		code, end := head+uint64(b[augmentation]), id+length
		if n == 0 || n > p.in.end-begin || begin == 0 || b[augmentation] >= 0x80 || code > end {
			break
		}
		p.fdes++
		p.fns = append(p.fns, Function{
			Begin: begin, End: begin + n,
			off: uint32(off), code: uint32(off) + uint32(code), limit: uint32(off) + uint32(end), cie: d.cie,
		})
		if off += int(end); len(p.fns)-first == batch {
			s.programs.execute(p.fns[first:])
			first = len(p.fns)
		}
	}
	s.programs.execute(p.fns[first:])
	return off
}

// cie returns the CIE at off, decoding it the first time.
func (p *parser) cie(off uint64) *cie {
	recent := &p.recent[off/4%uint64(len(p.recent))]
	if recent.cie != nil && recent.off == off {
		return recent.cie
	}
	c := p.cies[off]
	if c == nil {
		if c = p.decodeCIE(off); c.err != nil {
			if p.table.full() {
				if p.bad == nil {
					p.bad = c
				}
				c = p.bad
			}
			p.table.report(c.err)
		}
		p.cies[off] = c
	}
	*recent = recentCIE{off, c}
	return c
}

// minCIE is for how many bytes a CIE counts at least, when those of all are summed up.
const minCIE = 16

// decodeCIE decodes the CIE at off. Where CIEs begin inside of others, the bytes of all of them
// can be many more than those of the section; that many are not decoded.
func (p *parser) decodeCIE(off uint64) *cie {
	s := p.sec
	if p.room < 0 {
		if p.bad != nil {
			return p.bad
		}
		return &cie{sec: s, err: &Error{s.name, off, fmt.Sprintf("CIEs overlap: those up to this one have more than the %d bytes of the section", len(s.data))}}
	}
	d := &cie{sec: s, number: uint32(len(p.cies)), fdeEnc: peAbsptr}
	if off >= uint64(len(s.data)) {
		d.err = &Error{s.name, off, "no CIE here: past the end of the section"}
		return d
	}
	r, err := s.record(int(off))
	p.room -= max(r.end-int(off), minCIE)
	if err == nil && r.kind != recordCIE {
		err = &Error{s.name, off, "no CIE here, but an FDE says so"}
	}
	if err != nil {
		d.err = err
		return d
	}
	c := cursor{sec: s, data: s.data[:r.end], pos: r.body}
	version := c.u8()
	if c.err == nil && version != 1 && version != 3 && version != 4 {
		c.fail(r.body, "CIE version %d; 1, 3 or 4 was expected", version)
	}
	aug := string(c.augmentation())
	if version == 4 {
		at := c.pos
		if size, seg := c.u8(), c.u8(); c.err == nil && (size != addrSize || seg != 0) {
			c.fail(at, "CIE with addresses of %d and segments of %d bytes; %d and 0 were expected", size, seg, addrSize)
		}
	}
	if aug == "eh" {
		c.uint(addrSize) // the "EH data" word of GCC 2
	}
	d.codeAlign = c.uleb()
	d.dataAlign = c.sleb()
	if version == 1 {
		d.raReg = uint64(c.u8())
	} else {
		d.raReg = c.uleb()
	}
	switch {
	case aug == "eh":
	case strings.HasPrefix(aug, "z"):
		d.augmented = true
		n := c.uleb()
		at := c.pos
		if c.take(n, "augmentation data"); c.err == nil {
			data := cursor{sec: s, data: s.data[:c.pos], pos: at}
			d.augment(&data, aug[1:])
			c.err = data.err
		}
	case strings.Trim(aug, withoutData) == "": // GNU as writes "S" in .debug_frame
		d.augment(&c, aug)
	default:
		c.fail(r.body+1, "augmentation %.32q is unknown and does not start with z, so its data cannot be passed over", aug)
	}
	if c.err == nil {
		c.err = s.programs.runInitial(d, c.pos, r.end)
	}
	d.err = c.err
	return d
}

// maxAugmentation is the longest augmentation string in bytes that is looked at. Compilers write six
// letters at most.
const maxAugmentation = 64

// augmentation reads the NUL-terminated augmentation string.
func (c *cursor) augmentation() []byte {
	rest := c.data[c.pos:]
	n := bytes.IndexByte(rest, 0)
	if n < 0 {
		c.fail(c.pos, "augmentation string has no end")
		return nil
	}
	c.pos += n + 1
	if n > maxAugmentation {
		c.fail(c.pos-n-1, "augmentation %.32q of %d bytes is unknown; at most %d are accepted", rest[:maxAugmentation], n, maxAugmentation)
		return nil
	}
	return rest[:n]
}

// withoutData are the letters that describe no data, and mean the same without z.
const withoutData = "SBG"

// augment decodes the augmentation data that the letters after z describe.
func (d *cie) augment(c *cursor, letters string) {
	known := true // so far, so that the place of the next letter's data is
	for i := range len(letters) {
		switch l := letters[i]; l {
		case 'S':
			d.signal = true
		case 'B':
			d.keyB = true
		case 'G': // memory-tagged stack frame: of no concern to a stack trace
		case 'R', 'P', 'L':
			if !known {
				if l == 'R' {
					c.fail(c.pos, "pointer encoding (R) behind unknown augmentations in %.32q", "z"+letters)
				}
				continue
			}
			enc := c.u8()
			switch l {
			case 'R':
				d.fdeEnc = enc
			case 'P':
				c.skipPointer(enc)
			}
		default:
			known = false
		}
	}
}

// fde decodes a Frame Description Entry and adds its function.
func (p *parser) fde(r *record) *Error {
	d := p.cie(r.cie)
	if d.err != nil {
		if p.table.full() {
			return d.err
		}
		return &Error{p.sec.name, uint64(r.off), "FDE of a CIE that cannot be used (" + d.err.Error() + ")"}
	}
	c := cursor{sec: p.sec, data: p.sec.data[:r.end], pos: r.body}
	start := c.pointer(d.fdeEnc, 0)
	size := c.rawPointer(d.fdeEnc &^ peIndirect & peFormMask)
	if d.augmented {
		c.take(c.uleb(), "augmentation data")
	}
	if c.err != nil {
		return c.err
	}
	if size == 0 {
		p.table.Dropped.ZeroLength++
		return nil
	}
	in, ok := find(p.code, start)
	if !ok {
		p.table.Dropped.Discarded++
		return nil
	}
	if size > in.end-start && start == 0 {
		p.otherZeros++
		return nil
	}
	if size > in.end-start {
		return &Error{p.sec.name, uint64(r.off), fmt.Sprintf("FDE of the %d bytes at %#x, but the executable code there ends at %#x", size, start, in.end)}
	}
	to := &p.fns
	if start == 0 {
		to = &p.zeros
	}
	*to = append(*to, Function{
		Begin: start, End: start + size,
		off: uint32(r.off), code: uint32(c.pos), limit: uint32(r.end), cie: d,
	})
	p.sec.programs.execute((*to)[len(*to)-1:])
	return nil
}

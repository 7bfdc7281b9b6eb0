package cfi

import (
	"bytes"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"

	"cfi2sframe/elffile"
)

// A cie is a decoded Common Information Entry (DWARF 5, section 6.4.1).
type cie struct {
	sec       *section
	number    uint32 // in order of use
	codeAlign uint64
	dataAlign int64
	raReg     uint64
	fdeEnc    byte // encoding of the addresses in its FDEs
	augmented bool // z: FDEs have augmentation data, preceded by its length
	signal    bool
	keyB      bool
	switches  bool   // the function switches stacks; .gopclntab only
	initial   state  // the rules after the initial instructions
	first     uint32 // number of the initial state plus 1, or 0 if not assigned
	err       *Error
}

// A parser decodes the records of one section.
type parser struct {
	sec   *section
	table *Table
	exec  *executor
	code  []elffile.Span
	cies  map[uint64]*cie // by offset; malformed CIEs have err set
	fns   []Function
	// Functions at address 0, if there is code at 0; see atZero.
	zeros      []Function
	otherZeros int // number of FDEs at address 0 that are larger than the code there
	fdes       int
	executed   int  // number of functions whose programs were executed
	room       int  // number of bytes of CIEs that may still be decoded
	bad        *cie // represents further malformed CIEs once the list of errors is full
}

// A record is a CIE or an FDE. Its cursor is positioned after the CIE id or CIE pointer.
type record struct {
	cursor
	off  int    // offset of the length field
	end  int    // offset of the end; 0 if unknown
	cie  uint64 // offset of the CIE (FDE only)
	kind recordKind
}

type recordKind uint8

const (
	recordZero recordKind = iota // the length is 0
	recordCIE
	recordFDE
)

// decode decodes the record at off.
func (r *record) decode(s *section, off int) {
	*r = record{cursor: cursor{sec: s, data: s.data, pos: off}, off: off}
	length := r.uint(4)
	wide := length == math.MaxUint32
	if wide {
		length = r.uint(8)
	} else if length >= 0xfffffff0 {
		r.fail(off, "length %#x is reserved", length)
	}
	if r.err != nil {
		return
	}
	if left := uint64(len(s.data) - r.pos); length > left {
		r.fail(off, "record of %d bytes, but the section has only %d left", length, left)
		return
	}
	id := r.pos
	r.end = id + int(length)
	if length == 0 {
		return
	}
	r.data = s.data[:r.end]
	// In .eh_frame the CIE pointer is a distance. It is 4 bytes long even if the length is 64-bit (LSB Core, "The
	// .eh_frame section").
	if s.source == EHFrame {
		switch distance := r.uint(4); {
		case r.err != nil:
		case distance == 0:
			r.kind = recordCIE
		case distance > uint64(id):
			r.fail(id, "CIE pointer %#x points before the start of the section", distance)
		default:
			r.kind, r.cie = recordFDE, uint64(id)-distance
		}
		return
	}
	size, cieID := 4, uint64(math.MaxUint32)
	if wide {
		size, cieID = 8, math.MaxUint64
	}
	r.kind, r.cie = recordFDE, r.uint(size)
	if r.cie == cieID {
		r.kind = recordCIE
	}
}

// minFDE is the minimum value of the length field of an FDE: a 4-byte CIE pointer, and a start and a size of 2 bytes
// each.
const minFDE = 8

// reserve allocates memory for all functions.
func (p *parser) reserve() {
	n := 0
	for data := p.sec.data; len(data) >= 4; {
		length := int(p.sec.order.Uint32(data))
		if length == 0 || length > len(data)-4 {
			break
		}
		if length >= minFDE {
			n++
		}
		data = data[4+length:]
	}
	p.fns = make([]Function, 0, n)
	// In large files, fewer than half of the functions have distinct programs.
	p.exec.all = slices.Grow(p.exec.all, n/2)
	p.exec.grow(max(1<<bits.Len(uint(n/2)), len(p.exec.slots)))
}

// parse decodes all records.
func (p *parser) parse() {
	p.reserve()
	var r record
	for off := 0; off < len(p.sec.data); {
		r.decode(p.sec, off)
		switch {
		case r.err != nil:
		case r.kind == recordFDE: // CIEs are decoded on demand because hostile files may have millions
			p.fdes++
			p.fde(&r)
		case r.kind == recordZero && p.sec.open:
			p.sec.data = p.sec.data[:r.end]
		}
		if r.err != nil {
			p.table.report(r.err)
		}
		if r.end == 0 {
			break // the next record cannot be found
		}
		off = r.end
	}
	p.execute()
}

// execute executes the instructions of the functions added since the last call.
func (p *parser) execute() {
	p.exec.addPrograms(p.fns[p.executed:])
	p.executed = len(p.fns)
}

// cie returns the CIE at off. It decodes each CIE once.
func (p *parser) cie(off uint64) *cie {
	c := p.cies[off]
	if c == nil {
		if c = p.decodeCIE(off); c.err != nil {
			if p.table.atErrorLimit() {
				if p.bad == nil {
					p.bad = c
				}
				c = p.bad
			}
			p.table.report(c.err)
		}
		p.cies[off] = c
	}
	return c
}

// minCIE is the minimum number of bytes by which a CIE reduces parser.room.
const minCIE = 16

// decodeCIE decodes the CIE at off. If the total size of the CIEs exceeds that of the section, they overlap, and
// further CIEs are rejected.
func (p *parser) decodeCIE(off uint64) *cie {
	s := p.sec
	if p.room < 0 {
		if p.bad != nil {
			return p.bad
		}
		const msg = "CIEs overlap: their total size exceeds the %d bytes of the section"
		return &cie{sec: s, err: &Error{s.name, off, fmt.Sprintf(msg, len(s.data))}}
	}
	d := &cie{sec: s, number: uint32(len(p.cies)), fdeEnc: peAbsptr}
	if off >= uint64(len(s.data)) {
		d.err = &Error{s.name, off, "CIE pointer points past the end of the section"}
		return d
	}
	var c record
	c.decode(s, int(off))
	p.room -= max(c.end-int(off), minCIE)
	if c.err == nil && c.kind != recordCIE {
		c.fail(int(off), "not a CIE, but an FDE refers to it")
	}
	body := c.pos
	version := c.u8()
	if c.err == nil && version != 1 && version != 3 && version != 4 {
		c.fail(body, "unknown CIE version %d", version)
	}
	aug := string(c.augmentation())
	if version == 4 {
		at := c.pos
		if size, seg := c.u8(), c.u8(); c.err == nil && (size != addrSize || seg != 0) {
			c.fail(at, "CIE with address size %d and segment size %d; only %d and 0 are supported", size, seg,
				addrSize)
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
	case strings.Trim(aug, withoutData) == "": // GNU as emits "S" in .debug_frame
		d.augment(&c.cursor, aug)
	default:
		c.fail(body+1, "augmentation %.32q is unknown and lacks z, so its data cannot be skipped", aug)
	}
	if c.err == nil {
		c.err = p.exec.runInitial(d, c.pos, c.end)
	}
	d.err = c.err
	return d
}

// maxAugmentation is the maximum length of an augmentation string in bytes. Compilers emit at most six letters.
const maxAugmentation = 64

// augmentation decodes the NUL-terminated augmentation string.
func (c *cursor) augmentation() []byte {
	rest := c.data[c.pos:]
	n := bytes.IndexByte(rest, 0)
	if n < 0 {
		c.fail(c.pos, "augmentation string is not terminated")
		return nil
	}
	c.pos += n + 1
	if n > maxAugmentation {
		c.fail(c.pos-n-1, "augmentation %.32q has %d bytes, more than %d", rest[:maxAugmentation], n,
			maxAugmentation)
		return nil
	}
	return rest[:n]
}

// withoutData lists the letters that have no augmentation data. They are valid without z.
const withoutData = "SBG"

// augment decodes the augmentation data for the letters after z.
func (d *cie) augment(c *cursor, letters string) {
	known := true // all letters so far are known, so the data of the next letter can be located
	for i := range len(letters) {
		switch l := letters[i]; l {
		case 'S':
			d.signal = true
		case 'B':
			d.keyB = true
		case 'G': // memory-tagged stack frame: irrelevant for stack traces
		case 'R', 'P', 'L':
			if !known {
				if l == 'R' {
					c.fail(c.pos, "pointer encoding (R) after unknown augmentations in %.32q", "z"+letters)
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
func (p *parser) fde(r *record) {
	d := p.cie(r.cie)
	if d.err != nil {
		if r.err = d.err; !p.table.atErrorLimit() {
			r.err = &Error{p.sec.name, uint64(r.off), "FDE with an invalid CIE (" + d.err.Error() + ")"}
		}
		return
	}
	start := r.pointer(d.fdeEnc, 0)
	size := r.rawPointer(d.fdeEnc &^ peIndirect & peFormMask)
	if d.augmented {
		r.take(r.uleb(), "augmentation data")
	}
	if r.err != nil {
		return
	}
	to := &p.fns
	in, ok := find(p.code, start)
	switch {
	case size == 0:
		p.table.Dropped.ZeroLength++
		return
	case !ok:
		p.table.Dropped.Discarded++
		return
	case size > in.End-start && start == 0:
		p.otherZeros++
		return
	case size > in.End-start:
		r.fail(r.off, "FDE covers %d bytes at %#x, but executable code ends at %#x", size, start, in.End)
		return
	case start == 0:
		to = &p.zeros
	}
	*to = append(*to, Function{
		Begin: start, End: start + size,
		off: uint32(r.off), code: uint32(r.pos), limit: uint32(r.end), cie: d,
	})
	if len(p.fns)-p.executed == batch {
		p.execute()
	}
}

package padding

import (
	"debug/elf"

	"cfi2sframe/elffile"
)

// A Meter tells how much of a section's or segment's code without CFI is padding. It needs less than Find, which
// describes padding: the code is not described either way, so it does not matter what refers to it.
type Meter struct {
	instructionSet
	w window

	addr, size, off uint64 // of the current code; off is its offset in the file

	end [meterTail + 1]bool // by distance from the end of the code: all from there on is padding
}

// Sizes in bytes. Instructions have up to 15.
const (
	meterWindow = 16 << 10 // that is read at once: ranges are far from each other
	meterPart   = 4 << 10  // of the code that is decoded at a time
	meterTail   = 4 << 10  // of the padding at the end of code
	longest     = 15
)

// NewMeter returns a Meter for a file, or nil for other machines.
func NewMeter(f *elffile.File) *Meter {
	m, ok := machines[elf.Machine(f.Machine)]
	if !ok {
		return nil
	}
	meter := &Meter{instructionSet: m, w: window{file: f, size: meterWindow}}
	meter.w.offset = func(addr, n uint64) (uint64, bool) {
		at := addr - meter.addr
		return meter.off + at, addr >= meter.addr && at <= meter.size && n <= meter.size-at
	}
	return meter
}

// Enter makes the size bytes of code at an address, which are at a file offset, the current ones.
func (m *Meter) Enter(addr, size, off uint64) {
	if m == nil {
		return
	}
	m.w.b, m.addr, m.size, m.off = nil, addr, size, off
}

// Trim returns the range from begin to end, which no CFI describes, without padding: that at the start, and that at the
// end that comes after an instruction that leaves the function. Functions are between the two. Nothing tells no-ops
// between functions from no-ops in them.
func (m *Meter) Trim(begin, end uint64) (uint64, uint64) {
	if m == nil {
		return begin, end
	}
	begin += m.leading(begin, end)
	return begin, end - m.trailing(begin, end)
}

func (m *Meter) leading(begin, end uint64) uint64 {
	for at := begin; ; {
		b := m.w.at(at, min(end-at, meterPart))
		rest := b
		for len(rest) > longest || len(rest) > 0 && at+uint64(len(b)) == end {
			n, _ := m.pad(rest)
			if n == 0 {
				return at + uint64(len(b)-len(rest)) - begin
			}
			rest = rest[n:]
		}
		if len(rest) == len(b) { // the end, or a part that cannot be read
			return at - begin
		}
		at += uint64(len(b) - len(rest))
	}
}

func (m *Meter) trailing(begin, end uint64) uint64 {
	b := m.w.at(end-min(end-begin, meterTail), min(end-begin, meterTail))
	m.end[0] = true
	size, last := 0, 0 // of the padding; the largest distance at which it may begin
	for n := 1; n <= len(b) && n <= last+longest; n++ {
		at := len(b) - n
		pad, _ := m.pad(b[at:])
		m.end[n] = pad > 0 && m.end[n-pad]
		if m.end[n] {
			last = n
			if m.leaves(b[:at]) {
				size = n
			}
		}
	}
	return uint64(size)
}

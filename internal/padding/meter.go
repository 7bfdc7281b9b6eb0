package padding

import (
	"debug/elf"

	"cfi2sframe/elffile"
)

// A Meter measures how much of the code without CFI in a section or segment is padding. Unlike Find, it ignores
// references to the padding: the code remains without rows in any case.
type Meter struct {
	instructionSet
	file *elffile.File
	w    elffile.Window

	addr, size, off uint64 // of the current code; off is its file offset

	end [meterTail + 1]bool // by distance from the end of the code: whether only padding follows
}

// Sizes in bytes.
const (
	meterWindow = 16 << 10 // of a single read; small because ranges are far apart
	meterPart   = 4 << 10  // of code decoded at a time
	meterTail   = 4 << 10  // limit on trailing padding
	longest     = 15       // of an instruction
)

// NewMeter returns a Meter for a file, or nil if the machine is not supported.
func NewMeter(f *elffile.File) *Meter {
	m, ok := machines[elf.Machine(f.Machine)]
	if !ok {
		return nil
	}
	meter := &Meter{instructionSet: m, file: f, w: elffile.Window{Size: meterWindow}}
	meter.w.Offset = func(addr, n uint64) (uint64, bool) {
		at := addr - meter.addr
		return meter.off + at, addr >= meter.addr && at <= meter.size && n <= meter.size-at
	}
	return meter
}

// Enter sets the current code: size bytes at addr in memory and at off in the file.
func (m *Meter) Enter(addr, size, off uint64) {
	if m == nil {
		return
	}
	m.w.Data, m.addr, m.size, m.off = nil, addr, size, off
}

// Trim returns the range from begin to end, which has no CFI, without its padding: the padding at its start, and the
// padding at its end after an instruction that leaves the function. Padding in the middle is kept, because no-ops
// between functions look like no-ops within functions.
func (m *Meter) Trim(begin, end uint64) (uint64, uint64) {
	if m == nil {
		return begin, end
	}
	begin += m.leading(begin, end)
	return begin, end - m.trailing(begin, end)
}

func (m *Meter) leading(begin, end uint64) uint64 {
	for at := begin; ; {
		b := m.w.Read(m.file, at, min(end-at, meterPart))
		rest := b
		for len(rest) > longest || len(rest) > 0 && at+uint64(len(b)) == end {
			n, _ := m.pad(rest)
			if n == 0 {
				return at + uint64(len(b)-len(rest)) - begin
			}
			rest = rest[n:]
		}
		if len(rest) == len(b) { // the end, or unreadable
			return at - begin
		}
		at += uint64(len(b) - len(rest))
	}
}

func (m *Meter) trailing(begin, end uint64) uint64 {
	b := m.w.Read(m.file, end-min(end-begin, meterTail), min(end-begin, meterTail))
	m.end[0] = true
	size, last := 0, 0 // size of the padding; largest distance from the end at which padding is known to start
	for n := 1; n <= len(b) && n <= last+longest; n++ {
		at := len(b) - n
		pad, _ := m.pad(b[at:])
		m.end[n] = pad > 0 && m.end[n-pad]
		if m.end[n] {
			last = n
			if m.mayEnd(b[:at]) {
				size = n
			}
		}
	}
	return uint64(size)
}

package verify

import (
	"fmt"
	"math"

	"cfi2sframe/sframe"
)

// segments iterates over the described code in address order, one range of pcs with the same row at a time. Blocks of a
// PC-mask FDE are separate segments.
type segments struct {
	// The rest of the current segment (begin is math.MaxUint64 after the last segment), the index of its row in
	// reader.Rows, and its FDE.
	begin, end uint64
	row        uint32
	marks      marks
	fde        sframe.FDE
	index      int // index of the FDE

	reader  *sframe.Reader
	after   int // index after the last FDE
	refs    []sframe.Ref
	i       int                    // index of the current row
	repeats bool                   // the current FDE's rows repeat in blocks
	block   uint64                 // start of the current block: the FDE, or a repetition
	last    uint64                 // end of the previous FDE
	limit   uint64                 // end of the code, from codeEnd
	masked  func(*sframe.FDE) bool // reports whether to process the blocks of an FDE
	rows    uint64                 // number of decoded rows
	blocks  uint64                 // number of rows processed in blocks of PC-mask FDEs
	maxRows uint64                 // limit on rows
}

// marks holds the attributes of an FDE that apply to all its rows.
type marks uint8

const (
	signal marks = 1 << iota
	keyB
)

func marksOf(isSignal, isKeyB bool) (m marks) {
	if isSignal {
		m |= signal
	}
	if isKeyB {
		m |= keyB
	}
	return m
}

// Bounds on the iteration: FDEs may share rows, and have any number of blocks. In addition to anyRows, one row is
// allowed per byte of the section and of the CFI.
const (
	anyRows   = 1 << 22
	maxBlocks = 1 << 22
)

// skip discards the part of the current segment before pc.
func (s *segments) skip(pc uint64) error {
	if pc < s.end {
		s.begin = pc
		return nil
	}
	s.i++
	switch {
	case s.repeats:
		if ok, err := s.findBlock(); ok || err != nil {
			return err
		}
	case s.i < len(s.refs):
		s.set()
		return nil
	}
	return s.load(s.index + 1)
}

// findBlock sets the current segment to row i of the current block, or to the first row of a later block, and reports
// whether such a row exists.
func (s *segments) findBlock() (bool, error) {
	for ; s.block < s.fde.End(); s.i, s.block = 0, s.block+uint64(s.fde.RepSize) {
		if s.i == len(s.refs) {
			continue
		}
		if s.blocks++; s.blocks > maxBlocks {
			return false, fmt.Errorf("PC-mask FDEs repeat rows: with FDE %d at %#x, they exceed the limit of %d rows",
				s.index, s.fde.Start, maxBlocks)
		}
		s.set()
		s.end = min(s.end, s.last, s.block+uint64(s.fde.RepSize))
		if s.begin < s.end { // otherwise the last block is truncated
			return true, nil
		}
	}
	return false, nil
}

// set sets the current segment to row i of the current block, up to the next row or the end of the FDE.
func (s *segments) set() {
	s.row = s.refs[s.i].Row
	s.begin, s.end = s.block+uint64(s.refs[s.i].Start), s.last
	if s.i+1 < len(s.refs) {
		s.end = s.block + uint64(s.refs[s.i+1].Start)
	}
}

// load moves to the first segment of the FDE with the given index or, if that has none, of a later FDE.
func (s *segments) load(index int) error {
	for ; index < s.after; index++ {
		var err error
		s.fde, s.refs, err = s.reader.Refs(index)
		start, end := s.fde.Start, s.fde.End()
		if start < s.last || end < start {
			return fmt.Errorf("FDE %d at %#x overlaps the previous one, or wraps around", index, start)
		}
		if s.last = end; end > s.limit {
			return fmt.Errorf("FDE %d at %#x, %#x bytes, extends beyond the code that CFI describes", index, start,
				s.fde.Size)
		}
		if err != nil {
			return err
		}
		if s.rows += uint64(len(s.refs)); s.rows > s.maxRows {
			return fmt.Errorf("FDEs share rows: with FDE %d at %#x, they exceed the limit of %d rows",
				index, start, s.maxRows)
		}
		if len(s.refs) == 0 {
			continue
		}
		// A single row at the start applies to the whole FDE, whatever its blocks.
		s.repeats = s.fde.PCMask && (len(s.refs) > 1 || s.refs[0].Start > 0)
		if s.fde.PCMask && (s.fde.RepSize == 0 || s.repeats) && !s.masked(&s.fde) {
			continue
		}
		s.index, s.block, s.i, s.marks = index, start, 0, marksOf(s.fde.Signal, s.fde.KeyB)
		if s.repeats {
			if ok, err := s.findBlock(); ok || err != nil {
				return err
			}
		} else if s.set(); s.begin < s.end {
			return nil
		}
	}
	s.begin, s.end = math.MaxUint64, math.MaxUint64
	return nil
}

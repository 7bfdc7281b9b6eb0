package verify

import (
	"fmt"

	"cfi2sframe/sframe"
)

// segments iterates over the described code in address order, by the pc ranges for which one row holds. Blocks of a
// PC-mask FDE are separate segments.
type segments struct {
	sec        *sframe.Section
	more       bool   // there is a current segment; the rest of it is:
	begin, end uint64 // addresses
	row        uint32 // the number of the row, in reader.Rows
	fde        sframe.FDE
	index      int // of the FDE

	reader  *sframe.Reader
	after   int // index after the last FDE
	refs    []sframe.Ref
	i       int                    // index of the current row
	repeats bool                   // the current FDE's rows are looked up block by block
	block   uint64                 // where the current block starts: the FDE, or one repetition
	last    uint64                 // where the FDE before ended
	limit   uint64                 // where the code that CFI describes ends
	masked  func(*sframe.FDE) bool // whether blocks of rows are to be looked up
	rows    uint64                 // that were decoded
	blocks  uint64                 // of PC-mask FDEs that were gone through, row by row
	maxRows uint64                 // that are decoded
}

// Bounds on the iteration: FDEs may share rows, and have any number of blocks. In addition, one row is allowed for each
// byte of the section and of the CFI.
const (
	anyRows   = 1 << 22
	maxBlocks = 1 << 22
)

// skip drops the part of the current segment before pc.
func (s *segments) skip(pc uint64) error {
	if pc < s.end {
		s.begin = pc
		return nil
	}
	if s.i++; s.i == len(s.refs) && s.repeats {
		s.i, s.block = 0, s.block+uint64(s.fde.RepSize)
	}
	if s.i == len(s.refs) || s.block >= s.fde.End() {
		return s.load(s.index + 1)
	}
	if err := s.set(); err != nil || s.begin < s.end {
		return err
	}
	return s.load(s.index + 1) // the last block is a part of one
}

// load moves to the first segment of the FDE with the given index, or of a later one.
func (s *segments) load(index int) error {
	for ; index < s.after; index++ {
		var err error
		s.fde, s.refs, err = s.reader.Refs(index, s.refs[:0])
		start, end := s.fde.Start, s.fde.End()
		if start < s.last || end < start {
			return fmt.Errorf("FDE %d at %#x overlaps the one before it, or wraps around", index, start)
		}
		if s.last = end; end > s.limit {
			return fmt.Errorf("FDE %d at %#x, %#x bytes, reaches beyond the code that CFI describes", index, start,
				s.fde.Size)
		}
		if err != nil {
			return err
		}
		if s.rows += uint64(len(s.refs)); s.rows > s.maxRows {
			return fmt.Errorf("FDEs share more than %d rows, up to FDE %d at %#x, which are not gone through",
				s.maxRows, index, start)
		}
		if len(s.refs) == 0 {
			continue
		}
		// A single row at the start holds for the whole FDE, whatever its blocks.
		s.repeats = s.fde.PCMask && (len(s.refs) > 1 || s.refs[0].Start > 0)
		if s.fde.PCMask && (s.fde.RepSize == 0 || s.repeats) && !s.masked(&s.fde) {
			continue
		}
		s.index, s.more, s.block, s.i = index, true, start, 0
		if err := s.set(); err != nil || s.begin < s.end {
			return err
		}
	}
	s.more = false
	return nil
}

// set makes row i of the current block the current segment.
func (s *segments) set() error {
	s.row = s.refs[s.i].Row
	s.begin, s.end = s.block+uint64(s.refs[s.i].Start), s.fde.End()
	if s.i+1 < len(s.refs) {
		s.end = s.block + uint64(s.refs[s.i+1].Start)
	}
	if !s.repeats {
		return nil
	}
	s.end = min(s.end, s.block+uint64(s.fde.RepSize), s.fde.End())
	if s.blocks++; s.blocks > maxBlocks {
		return fmt.Errorf("blocks of PC-mask FDEs have more than %d rows, up to FDE %d at %#x, which are not gone through",
			maxBlocks, s.index, s.fde.Start)
	}
	return nil
}

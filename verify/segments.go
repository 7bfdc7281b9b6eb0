package verify

import (
	"fmt"

	"cfi2sframe/sframe"
)

// segments goes through the code that a section describes, in address order: the
// pc ranges over which one row holds. The blocks of a PC-mask FDE are segments
// one by one.
type segments struct {
	sec *sframe.Section
	// more says that there is a current FDE, whose index is index. It and its rows are read
	// by load; until then, begin is where it starts, and there is no current segment.
	more       bool
	loaded     bool
	begin, end uint64
	row        uint32     // the number of the row, in reader.Rows
	fde        sframe.FDE // by load, too
	index      int

	reader *sframe.Reader
	after  int // index after the last FDE
	refs   []sframe.Ref
	i      int                    // index of the current row
	block  uint64                 // where the current block starts: the FDE, or one repetition
	last   uint64                 // where the FDE before ended
	limit  uint64                 // where the code that CFI describes ends
	masked func(*sframe.FDE) bool // whether blocks of rows are to be looked up
	rows   uint64                 // that were decoded
	blocks uint64                 // of PC-mask FDEs that were gone through, row by row

	maxRows uint64 // that are decoded
}

// What is gone through at most: FDEs may share rows, and have as many blocks as they like. Of rows there
// may be one more for each byte of the section and of the CFI.
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
	if s.i+1 < len(s.refs) && !s.repeats() { // advance, for most rows
		s.i++
		s.row = s.refs[s.i].Row
		s.begin, s.end = s.end, s.fde.End()
		if s.i+1 < len(s.refs) {
			s.end = s.block + uint64(s.refs[s.i+1].Start)
		}
		return nil
	}
	return s.advance()
}

// advance goes to the next row's segment, or to the next FDE.
func (s *segments) advance() error {
	s.i++
	if s.i == len(s.refs) {
		if s.repeats() {
			if s.block += uint64(s.fde.RepSize); s.block < s.fde.End() {
				s.i = 0
				return s.set()
			}
		}
		return s.function(s.index + 1)
	}
	return s.set()
}

// function goes to the FDE with the given index.
func (s *segments) function(index int) error {
	s.index, s.loaded = index, false
	if s.more = index < s.after; !s.more {
		return nil
	}
	start, size := s.sec.Range(index)
	end := start + uint64(size)
	if start < s.last || end < start {
		return fmt.Errorf("FDE %d at %#x overlaps the one before it, or wraps around", index, start)
	}
	if s.last = end; s.last > s.limit {
		return fmt.Errorf("FDE %d at %#x, %#x bytes, reaches beyond the code that CFI describes", index, start, size)
	}
	s.begin = start
	return nil
}

// move goes to an address in the FDE with the given index, which was looked at.
func (s *segments) move(index int, pc uint64) {
	s.index, s.more, s.loaded, s.begin = index, true, false, pc
}

// load goes to the segment of the current FDE where begin is, or after that, or to the next FDE if it has none.
func (s *segments) load() error {
	pc := s.begin
	if err := s.first(); err != nil {
		return err
	}
	for s.loaded && s.begin < pc {
		if err := s.skip(pc); err != nil {
			return err
		}
	}
	return nil
}

// first goes to the first segment of the current FDE, or to the next FDE if it has none.
func (s *segments) first() error {
	s.fde = s.sec.FDE(s.index)
	var err error
	if s.refs, err = s.reader.Refs(s.index, s.refs[:0]); err != nil {
		return err
	}
	if s.rows += uint64(len(s.refs)); s.rows > s.maxRows {
		return fmt.Errorf("FDEs share more than %d rows, up to FDE %d at %#x, which are not gone through", s.maxRows, s.index, s.fde.Start)
	}
	if len(s.refs) == 0 {
		return s.function(s.index + 1)
	}
	// A single row from the start on holds for all of the FDE, whatever blocks it has.
	if s.fde.PCMask && (s.fde.RepSize == 0 || s.repeats()) && !s.masked(&s.fde) {
		return s.function(s.index + 1)
	}
	s.block, s.i, s.loaded = s.fde.Start, 0, true
	return s.set()
}

// repeats reports whether the current FDE's rows are looked up block by block. One that begins
// where the blocks do holds for all of them.
func (s *segments) repeats() bool {
	return s.fde.PCMask && (len(s.refs) > 1 || s.refs[0].Start > 0)
}

// set makes row i of the current block the current segment.
func (s *segments) set() error {
	s.row = s.refs[s.i].Row
	s.begin = s.block + uint64(s.refs[s.i].Start)
	s.end = s.fde.End()
	if s.repeats() {
		s.end = min(s.end, s.block+uint64(s.fde.RepSize))
		if s.blocks++; s.blocks > maxBlocks {
			return fmt.Errorf("blocks of PC-mask FDEs have more than %d rows, up to FDE %d at %#x, which are not gone through", maxBlocks, s.index, s.fde.Start)
		}
	}
	if s.i+1 < len(s.refs) {
		s.end = min(s.end, s.block+uint64(s.refs[s.i+1].Start))
	}
	if s.begin >= s.end { // the last block is a part of one
		return s.function(s.index + 1)
	}
	return nil
}

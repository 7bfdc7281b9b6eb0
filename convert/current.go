package convert

import (
	"debug/elf"

	"cfi2sframe/arch"
	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/debugfile"
	"cfi2sframe/report"
	"cfi2sframe/sframe"
	"cfi2sframe/translate"
	"cfi2sframe/verify"
)

// hasSFrame reports whether there is an .sframe, or what contradicts itself.
func hasSFrame(f *elffile.File) bool {
	at, err := f.SFrame()
	return err != nil || at.Section > 0 || at.Segment >= 0
}

// current returns a *kept and the report if the .sframe that f has, whoever wrote it, need not be replaced: where readers look
// for it, of the asked format, right at every pc, and as complete as the new one would be. Otherwise it returns nil.
func (c *conversion) current(f *elffile.File, table *cfi.Table, debug *debugfile.File) (*report.Coverage, error) {
	old := c.readable(f)
	if old == nil || !c.asked(old, f) {
		return nil, nil
	}
	s := old.Section
	var reach translate.Reach
	if !f.IsObject() {
		reach = c.reach(old.addr, s.Len())
	}
	_, in, err := c.translate(f, table, reach, nil)
	if err != nil {
		return nil, err
	}
	sorted := s
	if f.IsObject() {
		sorted = s.Sorted()
	}
	res, err := verify.Check(table, sorted, f, verify.Options{Keep: 1, Workers: c.opt.workers(table, f.Size)})
	if err != nil || res.Total > 0 || res.Stubs < in.Result.Synthesised || res.Padding < in.Result.Padding || c.opt.NoPadding && res.Padding > 0 || !complete(sorted, table, in.Result.Gaps) {
		return nil, nil
	}
	cov, err := c.describe(in, debug)
	if err != nil {
		return nil, err
	}
	cov.FDEs, cov.FREs, cov.Size, cov.Verified = s.Len(), uint64(s.NumFREs), old.size, true
	return cov, &kept{Kept{Reason: Current, Why: errCurrent}}
}

// complete reports whether s has rows for all code that the table describes, but for the gaps of a translation, which are in
// the order of their functions.
func complete(s *sframe.Section, table *cfi.Table, gaps []translate.Gap) bool {
	for i := range table.Len() {
		fn := table.At(i)
		at := fn.Begin
		for ; len(gaps) > 0 && gaps[0].Function == fn; gaps = gaps[1:] {
			if !covers(s, at, gaps[0].Begin) {
				return false
			}
			at = gaps[0].End
		}
		if !covers(s, at, fn.End) {
			return false
		}
	}
	return true
}

// covers reports whether s has rows for all code from begin to end. Where an FDE has its first row, it has rows to its end, but for
// one whose rows are those of blocks.
func covers(s *sframe.Section, begin, end uint64) bool {
	for at := begin; at < end; {
		i := s.Find(at)
		if i < 0 {
			return false
		}
		if _, ok, err := s.Lookup(at); !ok || err != nil {
			return false
		}
		if s.FDE(i).PCMask {
			at++
			continue
		}
		start, size := s.Range(i)
		at = start + uint64(size)
	}
	return true
}

// asked reports whether the .sframe of f has the form that was asked for.
func (c *conversion) asked(s *old, f *elffile.File) bool {
	_, abi, err := arch.Find(elf.Machine(f.Machine), f.Order)
	if err != nil || s.ABI != abi || s.Version != c.opt.Version {
		return false
	}
	l, _ := s.Version.Layout()
	known := sframe.FDESorted | l.Flags&sframe.FDEFuncStartPCRel
	if s.Flags&^known != 0 || s.Flags&sframe.FDESorted == 0 && !f.IsObject() { // those of objects may be sorted
		return false
	}
	format, err := formatOf(s.Section)
	// Rows that only some readers of a version understand are more than was asked for, unless they were.
	return err == nil && format.PCRel == (l.PCRel || c.opt.PCRel) && (!format.Outermost || l.Outermost || c.opt.Outermost)
}

// An old is an .sframe that was there before.
type old struct {
	*sframe.Section
	addr, size uint64 // in bytes; the address only of one that is linked
}

// readable returns the .sframe of f if it is where readers look for it, and sound. Otherwise it returns nil.
func (c *conversion) readable(f *elffile.File) *old {
	if f.IsObject() {
		_, s, err := readObject(f)
		at, _ := f.SFrame()
		if err != nil || elf.SectionType(f.Sections[at.Section].Type) != c.objectType() {
			return nil
		}
		return &old{Section: s, size: f.Sections[at.Section].Size}
	}
	h, err := loaded(f, true)
	if err != nil {
		return nil
	}
	size := h.Filesz
	if at, _ := f.SFrame(); at.Section > 0 { // which may be smaller
		size = min(size, f.Sections[at.Section].Size)
	}
	b, err := f.ReadAt(sframe.SectionName, h.Off, size)
	if err != nil {
		return nil
	}
	s, err := sframe.Decode(b, h.Vaddr)
	if err != nil {
		return nil
	}
	return &old{s, h.Vaddr, size}
}

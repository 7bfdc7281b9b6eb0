package convert

import (
	"debug/elf"

	"cfi2sframe/arch"
	"cfi2sframe/elfwrite"
	"cfi2sframe/internal/debugfile"
	"cfi2sframe/report"
	"cfi2sframe/sframe"
	"cfi2sframe/translate"
	"cfi2sframe/verify"
)

// current returns errCurrent and the report if the old .sframe is up to date: readers find it, it has the requested
// format, it is right at every pc, and covers as much code as a new one. Otherwise it returns nil.
func (s *single) current(debug *debugfile.File) (*report.Coverage, error) {
	old, err := ReadSection(s.f)
	if err != nil || !s.hasFormat(old) {
		return nil, nil
	}
	var reach translate.Reach
	sorted := old
	if s.f.IsObject() {
		at, _ := elfwrite.FindSFrame(s.f)
		if elf.SectionType(s.f.Sections[at.Section].Type) != s.objectType() {
			return nil, nil
		}
		sorted = old.Sorted()
	} else {
		h, err := loaded(s.f, true)
		if err != nil {
			return nil, nil
		}
		reach = s.reach(h.Vaddr, old.Len())
	}
	t, err := s.translate(reach)
	if err != nil {
		return nil, err
	}
	res, err := verify.Check(s.table, sorted, s.f, verify.Options{Keep: 1, Workers: s.opt.workers(s.table, s.f.Size)})
	if err != nil || res.Total > 0 || res.Covered < t.Covered || res.Stubs < t.Synthesised || res.Padding < t.Padding ||
		s.opt.NoPadding && res.Padding > 0 {
		return nil, nil
	}
	cov, err := s.describe(t, debug)
	if err != nil {
		return nil, err
	}
	cov.FDEs, cov.FREs, cov.Size, cov.Verified = old.Len(), uint64(old.NumFREs), old.Size(), true
	return cov, errCurrent
}

// hasFormat reports whether the old .sframe has the requested format.
func (s *single) hasFormat(old *sframe.Section) bool {
	_, abi, err := arch.Find(elf.Machine(s.f.Machine), s.f.Order)
	if err != nil || old.ABI != abi || old.Version != s.opt.Version {
		return false
	}
	l, _ := old.Version.Layout()
	known := sframe.FDESorted | l.Flags&sframe.FDEFuncStartPCRel
	if old.Flags&^known != 0 || old.Flags&sframe.FDESorted == 0 && !s.f.IsObject() { // those of objects may be sorted
		return false
	}
	format, err := FormatOf(old)
	// Not all readers of a version understand rows without data words.
	return err == nil && format.PCRel == (l.PCRel || s.opt.PCRel) &&
		(!format.Outermost || l.Outermost || s.opt.Outermost)
}

package convert

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"slices"

	"cfi2sframe/cfi"
	"cfi2sframe/elfwrite"
	"cfi2sframe/emit"
	"cfi2sframe/internal/arch"
	"cfi2sframe/internal/padding"
	"cfi2sframe/internal/panics"
	"cfi2sframe/internal/plt"
	"cfi2sframe/sframe"
	"cfi2sframe/translate"
)

// A translation holds the rows of a file and their section.
type translation struct {
	*translate.Result
	content *emit.Section
	abi     sframe.ABI
	layout  *elfwrite.Layout // layout of the new file; set by fit
	section []byte           // encoded for the layout
}

// fit translates the CFI and computes the layout of the new file. How much code 32-bit start addresses can reach
// depends on the section's address. It is usually the planned address, but a section that does not fit in the space of
// the old one moves. If start addresses are relative to their own fields, their common range shrinks with each FDE.
func (s *single) fit() (*translation, error) {
	var reach translate.Reach // unlimited in an object: linkers place the section
	var addr uint64
	if s.layout != nil {
		addr = s.layout.Addr
		reach = s.reach(addr, 1)
	}
	for first := true; ; first = false {
		t, err := s.translate(reach)
		if err != nil {
			return nil, err
		}
		t.layout, t.section, err = s.plan(t.content)
		var far *emit.RangeError
		if err != nil && !errors.As(err, &far) {
			return nil, err
		}
		gaps := t.Sums[translate.TooFar].Ranges > 0
		if err == nil && (!gaps || t.layout.Addr == addr || !first) {
			if gaps && t.content.NumFDEs() == 0 {
				err = fmt.Errorf("%w at %#x; use format 3", errTooFar, t.layout.Addr)
				if hasSFrame(s.f) {
					err = fmt.Errorf("%w, or remove the old section first", err)
				}
				return nil, err
			}
			return t, nil
		}
		next := s.reach(t.layout.Addr, t.content.NumFDEs())
		if !first {
			next = translate.Reach{First: max(next.First, reach.First), Last: min(next.Last, reach.Last)}
			if next == reach {
				return nil, err
			}
		}
		addr, reach = t.layout.Addr, next
	}
}

// reach returns the range of code that the start addresses of a section at addr can express.
func (s *single) reach(addr uint64, fdes int) translate.Reach {
	return translate.ReachOf(s.opt.Version, addr, s.opt.PCRel, fdes)
}

// plan computes the layout of the new file and encodes the section for it. If the error is an *emit.RangeError, the
// layout is valid.
func (s *single) plan(b *emit.Section) (*elfwrite.Layout, []byte, error) {
	if s.f.IsObject() {
		return s.planObject(b)
	}
	layout, err := s.place(b.Size())
	if err != nil {
		return nil, nil, err
	}
	section, err := b.Encode(layout.Addr)
	return layout, section, err
}

// planObject is plan for a relocatable object. If there are no rows, it adds no section, because ld rejects empty
// sections.
func (s *single) planObject(b *emit.Section) (*elfwrite.Layout, []byte, error) {
	if l, _ := s.opt.Version.Layout(); !l.Objects {
		return nil, nil, errors.New("relocatable objects can be converted to format 2 or 3 only")
	}
	if b.NumFDEs() == 0 {
		if at, err := elfwrite.FindSFrame(s.f); err != nil {
			return nil, nil, err
		} else if at.Section > 0 && !s.opt.mayReplace() {
			return nil, nil, elfwrite.ErrExists
		}
		layout, err := elfwrite.PlanRemoval(s.f)
		if errors.Is(err, elfwrite.ErrNone) {
			return elfwrite.Unchanged(s.f), nil, nil
		}
		return layout, nil, err
	}
	section, starts, err := b.EncodeObject()
	if err != nil {
		return nil, nil, err
	}
	o := elfwrite.Object{Type: s.objectType(), StartSize: b.StartSize(), Module: s.opt.Linux == LinuxModule}
	for _, start := range starts {
		o.Starts = append(o.Starts, elfwrite.Start(start))
	}
	layout, err := elfwrite.PlanObject(s.f, b.Size(), o, elfwrite.Options{Force: s.opt.mayReplace()})
	return layout, section, err
}

// objectType returns the section type of .sframe in an object.
func (s *single) objectType() elf.SectionType {
	if l, _ := s.opt.Version.Layout(); l.PCRel || s.opt.PCRel {
		return elf.SectionType(sframe.SHTGNUSFrame) // binutils 2.45 and later
	}
	return elf.SHT_PROGBITS // binutils 2.44
}

// translate translates the CFI.
func (s *single) translate(reach translate.Reach) (*translation, error) {
	opt := &s.opt
	_, abi, err := arch.Find(s.table.Machine, s.table.Order)
	if err != nil {
		return nil, err
	}
	enc := emit.Options{
		Version: opt.Version, ABI: abi, PCRel: opt.PCRel,
		Join: opt.Share != ShareOff && !s.f.IsObject(), Share: opt.Share.enabled(abi),
	}
	for _, r := range executableSegments(s.f) {
		enc.Breaks = append(enc.Breaks, r.Begin)
	}
	slices.Sort(enc.Breaks)
	if enc.Align, err = elfwrite.SizeMultiple(s.f); err != nil {
		return nil, err
	}
	t := &translation{abi: abi}
	topt := translate.Options{
		Version: opt.Version, Outermost: opt.Outermost, Reach: reach, Stubs: s.stubs, Padding: s.padding(),
		Moves: s.f.Moves, Budget: s.f.Budget(), Plain: opt.Linux.inKernel(), NoPCMask: opt.NoPCMask, Code: s.code,
	}
	if topt.Outside, err = opt.Linux.withoutRows(s.f); err != nil {
		return nil, err
	}
	if outside := topt.Outside; outside != nil {
		topt.Stubs = slices.DeleteFunc(slices.Clone(s.stubs), func(st plt.Stub) bool { return outside(st.Begin) })
	}
	parts := s.table.Split(opt.workers(s.table, s.f.Size))
	b, err := t.parallel(parts, enc, topt)
	if err != nil {
		return nil, err
	}
	t.content = emit.Join(b)
	return t, nil
}

// code returns n bytes of code at an address, or nil if the file does not contain them.
func (s *single) code(addr, n uint64) []byte {
	off, ok := s.f.FileOffset(addr, n)
	if s.f.IsObject() {
		in := &s.f.Sections[s.f.SectionAt(addr)]
		off, ok = in.Off+(addr-in.Base), in.HasBytes() && !in.Compressed() && n <= in.Size-(addr-in.Base)
	}
	if !ok {
		return nil
	}
	b, err := s.f.ReadAt("code", off, n)
	if err != nil {
		return nil
	}
	return b
}

// parallel translates all parts of a table concurrently.
func (t *translation) parallel(parts []*cfi.Table, enc emit.Options, opt translate.Options) ([]*emit.Builder, error) {
	builders := make([]*emit.Builder, len(parts))
	results := make([]*translate.Result, len(parts))
	errs := make([]error, len(parts))
	var others panics.Group
	for i := range parts {
		part := opt
		if opt.Padding != nil {
			part.Padding, opt.Padding = opt.Padding[:parts[i].Len()], opt.Padding[parts[i].Len():]
		}
		if i < len(parts)-1 {
			part.Stubs = nil // only the last part handles PLT stubs
		}
		work := func() {
			if builders[i], errs[i] = emit.NewBuilder(enc); errs[i] != nil {
				return
			}
			// Most CFI programs occur in a single part, so the estimate per part is an equal share, plus an eighth.
			n, programs := parts[i].Len(), parts[i].NumPrograms()
			builders[i].Grow(n, min(n, programs, programs/len(parts)*9/8+1))
			results[i], errs[i] = translate.Translate(parts[i], part, builders[i])
		}
		if i < len(parts)-1 {
			others.Go(work)
		} else {
			work()
		}
	}
	others.Wait()
	if err := cmp.Or(errs...); err != nil {
		return nil, err
	}
	t.Result = translate.Merge(results)
	return builders, nil
}

// findGaps finds the PLT stubs and the gaps between functions that may be padding.
func (s *single) findGaps() (err error) {
	s.stubs, err = plt.Find(s.f, s.table)
	if err == nil && !s.opt.NoPadding {
		s.gaps = padding.Find(s.f, s.table, s.stubs)
	}
	return err
}

// padding returns the sizes of the padding after functions, or nil if there is none. It searches only once.
func (s *single) padding() []uint8 {
	if s.gaps == nil {
		return s.pads
	}
	refers := s.refers
	if refers == nil {
		refers = func(refers func(first, last uint64)) error { return elfwrite.References(s.f, refers) }
	}
	if err := refers(s.gaps.Refer); err == nil { // otherwise references to the padding are unknown
		s.pads = s.gaps.Sizes(s.opt.workers(s.table, s.f.Size))
	}
	s.gaps = nil
	return s.pads
}

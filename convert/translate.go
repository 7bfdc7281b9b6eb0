package convert

import (
	"cmp"
	"slices"

	"cfi2sframe/cfi"
	"cfi2sframe/elfwrite"
	"cfi2sframe/emit"
	"cfi2sframe/internal/arch"
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
	layout  *elfwrite.Layout // layout of the new file
	section []byte           // encoded for the layout
}

// translate translates the CFI.
func (s *single) translate(reach translate.Reach, all references) (*translation, error) {
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
		Version: opt.Version, Outermost: opt.Outermost, Reach: reach, Stubs: s.stubs, Padding: s.padding(all),
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
	off, ok := s.f.CodeOffset(addr, n)
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

// A references calls a function for each reference to code, like elfwrite.References.
type references func(refers func(first, last uint64)) error

// padding returns the sizes of the padding after functions, or nil if there is none. It searches only once.
func (s *single) padding(all references) []uint8 {
	if s.gaps == nil {
		return s.pads
	}
	if all(s.gaps.Refer) == nil { // otherwise references to the padding are unknown
		s.pads = s.gaps.Sizes(s.opt.workers(s.table, s.f.Size))
	}
	s.gaps = nil
	return s.pads
}

package emit

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"cfi2sframe/sframe"
)

// A Section is a section of which all is known but its address.
type Section struct {
	opt    Options
	codec  *sframe.Codec
	layout *sframe.Layout
	parts  []*Builder // with the functions; the lists are all here
	to     [][]uint32 // of each part, from its lists to all; nil for the first part
	lists  lists
	fdes   int
	num    uint64 // of FREs, counted for each FDE
}

// Size returns the size of the section in bytes.
func (s *Section) Size() uint64 {
	size := uint64(s.layout.HeaderSize) + uint64(s.fdes)*uint64(s.layout.FDESize) + s.lists.size
	if s.opt.Align > 0 {
		size += (s.opt.Align - size%s.opt.Align) % s.opt.Align
	}
	return size
}

// NumFDEs returns the number of FDEs.
func (s *Section) NumFDEs() int { return s.fdes }

// NumFREs returns the number of rows, counted for each FDE.
func (s *Section) NumFREs() uint64 { return s.num }

// StartSize returns the size of a start address in bytes.
func (s *Section) StartSize() int { return s.layout.StartSize }

// A RangeError says that a function is too far from the section for its start address.
type RangeError struct {
	PC   uint64 // where the function begins
	Addr uint64 // of the section
}

func (e *RangeError) Error() string {
	return fmt.Sprintf("function at %#x is more than 2 GiB away from .sframe at %#x", e.PC, e.Addr)
}

// Encode returns the section for the address it will have, Size bytes. Where start addresses have
// 32 bits, one of them may have no room: a *RangeError.
func (s *Section) Encode(addr uint64) ([]byte, error) { return s.EncodeInto(nil, addr) }

// EncodeInto is Encode for memory that is there, if buf has the capacity. What is in there is lost.
func (s *Section) EncodeInto(buf []byte, addr uint64) ([]byte, error) {
	flags, pcrel := sframe.FDESorted, s.opt.PCRel || s.layout.PCRel
	if pcrel {
		flags |= sframe.FDEFuncStartPCRel
	}
	return s.encode(buf, flags, s.sorted(), func(pc uint64, off int) (uint64, error) {
		from := addr
		if pcrel {
			from += uint64(off)
		}
		start := pc - from
		if v := int64(start); s.layout.StartSize == 4 && v != int64(int32(v)) {
			return 0, &RangeError{pc, addr}
		}
		return start, nil
	})
}

// A Start is a start address that a linker fills in.
type Start struct {
	Off  uint64 // of the field in the section, in bytes
	Addr uint64 // of the function
}

// EncodeObject returns the section for a relocatable object, as GNU as writes it: not
// sorted, and with start addresses of zero. What belongs there is returned too, in the
// order of the FDEs, which linkers rely on.
func (s *Section) EncodeObject() ([]byte, []Start, error) {
	var flags sframe.Flags
	if s.opt.PCRel || s.layout.PCRel {
		flags = sframe.FDEFuncStartPCRel
	}
	starts := make([]Start, s.fdes)
	data, err := s.encode(nil, flags, s.added(), func(pc uint64, off int) (uint64, error) {
		starts[(off-s.layout.HeaderSize)/s.layout.FDESize] = Start{uint64(off), pc}
		return 0, nil
	})
	return data, starts, err
}

// A stretch is uses of one part's runs, in the order in which their FDEs stand in the section.
type stretch struct {
	part int
	uses []use
}

// added returns all uses in the order in which they were added.
func (s *Section) added() []stretch {
	all := make([]stretch, len(s.parts))
	for i, p := range s.parts {
		all[i] = stretch{i, p.uses}
	}
	return all
}

// sorted returns all uses in the order of their addresses. They are in it, as a rule.
func (s *Section) sorted() []stretch {
	sorted, last, n := true, uint64(0), 0
	for _, p := range s.parts {
		for i := range p.uses {
			sorted = sorted && last <= p.uses[i].start
			last = p.uses[i].start
		}
		n += len(p.uses)
	}
	if sorted {
		return s.added()
	}
	all := make([]stretch, 0, n)
	for i, p := range s.parts {
		for j := range p.uses {
			all = append(all, stretch{i, p.uses[j : j+1]})
		}
	}
	slices.SortFunc(all, func(a, b stretch) int { return cmp.Compare(a.uses[0].start, b.uses[0].start) })
	return all
}

// encode returns the section, in buf if that is large enough, with the FDEs in the order of all; start gives the start address of the
// FDE for pc, whose field is at the given offset, for several of them at the same time.
func (s *Section) encode(buf []byte, flags sframe.Flags, all []stretch, start func(pc uint64, off int) (uint64, error)) ([]byte, error) {
	size := s.Size()
	if size > math.MaxUint32 || s.num > math.MaxUint32 {
		return nil, fmt.Errorf("%d FDEs and %d rows, %d bytes: more than the header can count", s.fdes, s.num, size)
	}
	fdeLen := s.fdes * s.layout.FDESize
	section := buf
	if uint64(cap(buf)) < size {
		section = make([]byte, size)
	}
	section = section[:size]
	end := len(s.codec.AppendHeader(section[:0], &sframe.Header{
		Flags: flags, NumFDEs: uint32(s.fdes), NumFREs: uint32(s.num),
		FRELen: uint32(size) - uint32(s.layout.HeaderSize) - uint32(fdeLen), FREOff: uint32(fdeLen),
	}))
	begin := make([]int, len(all)) // of each stretch's FDEs
	for i := range all {
		begin[i] = end
		for _, u := range all[i].uses {
			end += int(s.parts[all[i].part].runs[u.run].pieces) * s.layout.FDESize
		}
	}
	errs := make([]error, min(len(all), len(s.parts)))
	each(len(errs), func(i int) {
		for j := len(all) * i / len(errs); j < len(all)*(i+1)/len(errs) && errs[i] == nil; j++ {
			errs[i] = s.putFDEs(section, begin[j], &all[j], start)
		}
		if i == 0 {
			clear(section[len(s.lists.append(section[:end])):])
		}
	})
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return section, nil
}

// putFDEs puts the FDEs of a stretch into the section at off.
func (s *Section) putFDEs(section []byte, off int, t *stretch, start func(pc uint64, off int) (uint64, error)) error {
	p, to, out := s.parts[t.part], s.to[t.part], section[:off]
	for i := range t.uses {
		u := &t.uses[i]
		r := &p.runs[u.run]
		pieces := p.pieces[r.piece : r.piece+r.pieces]
		for j := range pieces {
			x := &pieces[j]
			end := u.size
			if j+1 < len(pieces) {
				end = pieces[j+1].start
			}
			v, err := start(u.start+uint64(x.start), len(out))
			if err != nil {
				return err
			}
			index := x.list
			if to != nil {
				index = to[index]
			}
			d := r.fde(0, end-x.start) // the start is v
			out = s.codec.AppendFDE(out, &d, v, &s.lists.all[index].List)
		}
	}
	return nil
}

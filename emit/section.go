package emit

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"cfi2sframe/sframe"
)

// A Section is an SFrame section that has no address yet.
type Section struct {
	opt     Options
	codec   *sframe.Codec
	layout  *sframe.Layout
	classes []sframe.FDE
	pieces  []piece
	lists   lists
	num     uint64 // number of FREs; shared FREs count once per FDE
}

// Join returns the section for the functions of all parts, which must have the same Options. The parts cannot be used
// afterwards. Join uses one goroutine per part.
func Join(parts []*Builder) *Section {
	b := parts[0]
	for _, p := range parts[1:] {
		b.merge(p)
	}
	s := &Section{opt: b.opt, codec: b.codec, layout: b.layout, classes: b.classes}
	if s.opt.Join {
		s.pieces, s.lists = divide(b, len(parts))
		if s.opt.Share && s.layout.AttrSize == 0 {
			s.lists.sharePrefixes()
		}
	} else {
		s.pieces, s.lists = separateFDEs(b)
	}
	s.lists.setOffsets()
	for i := range s.pieces {
		s.num += uint64(s.lists.all[s.pieces[i].list].Num)
	}
	return s
}

// separateFDEs makes an FDE with its own list for each use of a run, in the order in which the uses were added.
func separateFDEs(b *Builder) (pieces []piece, l lists) {
	pieces, l.all = make([]piece, len(b.uses)), make([]list, 0, len(b.uses))
	for i, u := range b.uses {
		r := &b.runs[u.run]
		pieces[i] = piece{u.start, u.size, l.add(b, r.class, b.places[r.first:][:r.places]), r.class}
	}
	return pieces, l
}

// Size returns the size of the section in bytes.
func (s *Section) Size() uint64 {
	size := uint64(s.layout.HeaderSize) + uint64(len(s.pieces))*uint64(s.layout.FDESize) + s.lists.size
	if s.opt.Align > 0 {
		size += (s.opt.Align - size%s.opt.Align) % s.opt.Align
	}
	return size
}

// NumFDEs returns the number of FDEs.
func (s *Section) NumFDEs() int { return len(s.pieces) }

// NumFREs returns the number of rows. Shared rows count once per FDE.
func (s *Section) NumFREs() uint64 { return s.num }

// StartSize returns the size of a start address in bytes.
func (s *Section) StartSize() int { return s.layout.StartSize }

// A RangeError reports that a function is too far from the section for its start address to be encoded.
type RangeError struct {
	PC   uint64 // start of the function
	Addr uint64 // address of the section
}

func (e *RangeError) Error() string {
	return fmt.Sprintf("function at %#x is more than 2 GiB from .sframe at %#x", e.PC, e.Addr)
}

// Encode returns the Size bytes of the section for the given address. If a start address exceeds 32 bits, the error is
// a *RangeError.
func (s *Section) Encode(addr uint64) ([]byte, error) {
	flags, pcrel := sframe.FDESorted, s.opt.PCRel || s.layout.PCRel
	if pcrel {
		flags |= sframe.FDEFuncStartPCRel
	}
	byStart := func(a, b piece) int { return cmp.Compare(a.start, b.start) }
	if !slices.IsSortedFunc(s.pieces, byStart) { // without Options.Join
		s.pieces = slices.SortedStableFunc(slices.Values(s.pieces), byStart)
	}
	return s.encode(flags, func(d *sframe.FDE, off int) (uint64, error) {
		from := addr
		if pcrel {
			from += uint64(off)
		}
		start := d.Start - from
		if v := int64(start); s.layout.StartSize == 4 && v != int64(int32(v)) {
			return 0, &RangeError{d.Start, addr}
		}
		return start, nil
	})
}

// A Start is a start address that a linker fills in.
type Start struct {
	Off  uint64 // offset of the field in the section, in bytes
	Addr uint64 // address of the function
}

// EncodeObject returns the section for a relocatable object in the form that GNU as emits: not sorted, with zero start
// addresses. It also returns the start addresses, in FDE order because linkers rely on this order.
func (s *Section) EncodeObject() ([]byte, []Start, error) {
	var flags sframe.Flags
	if s.opt.PCRel || s.layout.PCRel {
		flags = sframe.FDEFuncStartPCRel
	}
	starts := make([]Start, 0, len(s.pieces))
	data, err := s.encode(flags, func(d *sframe.FDE, off int) (uint64, error) {
		starts = append(starts, Start{uint64(off), d.Start})
		return 0, nil
	})
	return data, starts, err
}

// encode returns the section. It calls startOf for the start address to store in each FDE, where off is the offset of
// the field.
func (s *Section) encode(flags sframe.Flags, startOf func(d *sframe.FDE, off int) (uint64, error)) ([]byte, error) {
	size := s.Size()
	if size > math.MaxUint32 || s.num > math.MaxUint32 {
		return nil, fmt.Errorf("%d FDEs and %d rows in %d bytes exceed the fields of the header", len(s.pieces),
			s.num, size)
	}
	fdeLen := len(s.pieces) * s.layout.FDESize
	buf := make([]byte, size)
	out := s.codec.AppendHeader(buf[:0], &sframe.Header{
		Flags: flags, NumFDEs: uint32(len(s.pieces)), NumFREs: uint32(s.num),
		FRELen: uint32(size) - uint32(s.layout.HeaderSize) - uint32(fdeLen), FREOff: uint32(fdeLen),
	})
	var d sframe.FDE
	for i := range s.pieces {
		p := &s.pieces[i]
		d = s.classes[p.class]
		d.Start, d.Size = p.start, p.size
		v, err := startOf(&d, len(out))
		if err != nil {
			return nil, err
		}
		out = s.codec.AppendFDE(out, &d, v, &s.lists.all[p.list].List)
	}
	s.lists.appendTo(out)
	return buf, nil
}

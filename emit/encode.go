package emit

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"cfi2sframe/sframe"
)

// Size returns the size of the section in bytes. No functions may be added after that.
func (b *Builder) Size() uint64 {
	b.finish()
	size := uint64(b.layout.HeaderSize) + uint64(b.fdes)*uint64(b.layout.FDESize) + b.lists.size
	return size + b.padding(size)
}

func (b *Builder) padding(size uint64) uint64 {
	if b.opt.Align == 0 {
		return 0
	}
	return (b.opt.Align - size%b.opt.Align) % b.opt.Align
}

// NumFDEs returns the number of FDEs. No functions may be added after that.
func (b *Builder) NumFDEs() int {
	b.finish()
	return b.fdes
}

// NumFREs returns the number of rows, counted for each FDE. No functions may be added after
// that.
func (b *Builder) NumFREs() uint64 {
	b.finish()
	return b.num
}

// A FarError is returned by Encode for a function whose start address has no room.
type FarError struct {
	PC   uint64 // where the function starts
	Addr uint64 // of the section
}

func (e *FarError) Error() string {
	return fmt.Sprintf("function at %#x is more than 2 GiB away from .sframe at %#x; format 3 has no such limit", e.PC, e.Addr)
}

// Encode returns the section for the address it will have, Size bytes, or a *FarError.
func (b *Builder) Encode(addr uint64) ([]byte, error) {
	b.finish()
	b.sort()
	flags, pcrel := sframe.FDESorted, b.opt.PCRel || b.layout.PCRel
	if pcrel {
		flags |= sframe.FDEFuncStartPCRel
	}
	return b.encode(flags, func(pc uint64, off int) (uint64, error) {
		from := addr
		if pcrel {
			from += uint64(off)
		}
		start := pc - from
		if s := int64(start); b.layout.StartSize == 4 && s != int64(int32(s)) {
			return 0, &FarError{pc, addr}
		}
		return start, nil
	})
}

// sort puts the functions of all parts in the order of their addresses. They are in it, as a
// rule; otherwise they all become the first part's.
func (b *Builder) sort() {
	sorted, last := true, uint64(0)
	for _, p := range b.parts {
		for i := range p.uses {
			sorted = sorted && last <= p.uses[i].start
			last = p.uses[i].start
		}
	}
	if sorted {
		return
	}
	for _, p := range b.parts[1:] {
		units, pieces := uint32(len(b.units)), uint32(len(b.pieces))
		for _, x := range p.pieces {
			x.list = p.to[x.list]
			b.pieces = append(b.pieces, x)
		}
		for _, x := range p.units {
			x.first += pieces
			b.units = append(b.units, x)
		}
		for _, x := range p.uses {
			x.unit += units
			b.uses = append(b.uses, x)
		}
	}
	b.parts = b.parts[:1]
	slices.SortFunc(b.uses, func(a, b use) int { return cmp.Compare(a.start, b.start) })
}

// A Start is a start address that a linker fills in.
type Start struct {
	Off  uint64 // of the field in the section, in bytes
	Addr uint64 // of the function
}

// EncodeObject returns the section for a relocatable object, as GNU as writes it: not
// sorted, and with start addresses of zero. What belongs there is returned too, in the
// order of the FDEs, which linkers rely on.
func (b *Builder) EncodeObject() ([]byte, []Start, error) {
	var flags sframe.Flags
	if b.opt.PCRel || b.layout.PCRel {
		flags = sframe.FDEFuncStartPCRel
	}
	b.finish()
	starts := make([]Start, b.fdes)
	data, err := b.encode(flags, func(pc uint64, off int) (uint64, error) {
		starts[(off-b.layout.HeaderSize)/b.layout.FDESize] = Start{uint64(off), pc}
		return 0, nil
	})
	return data, starts, err
}

// StartSize returns the size of a start address in bytes.
func (b *Builder) StartSize() int { return b.layout.StartSize }

// encode returns the section; start gives the start address of the FDE for pc, whose field is
// at the given offset, for several parts at the same time.
func (b *Builder) encode(flags sframe.Flags, start func(pc uint64, off int) (uint64, error)) ([]byte, error) {
	size := b.Size()
	if size > math.MaxUint32 || b.num > math.MaxUint32 {
		return nil, fmt.Errorf("%d FDEs and %d rows, %d bytes: more than the header can count", b.fdes, b.num, size)
	}
	o := b.order
	fdeLen := b.fdes * b.layout.FDESize
	section := make([]byte, size)
	out := o.AppendUint16(section[:0], sframe.Magic)
	out = append(out, byte(b.opt.Version), byte(flags), byte(b.opt.ABI), 0, byte(b.opt.ABI.FixedRA()), 0)
	for _, v := range []uint32{
		uint32(b.fdes), uint32(b.num), uint32(size) - uint32(b.layout.HeaderSize) - uint32(fdeLen), 0, uint32(fdeLen),
	} {
		out = o.AppendUint32(out, v)
	}
	begin := make([]int, len(b.parts)) // of each part's FDEs
	end := len(out)
	for i, p := range b.parts {
		begin[i] = end
		end += p.ownFDEs() * b.layout.FDESize
	}
	errs := make([]error, len(b.parts))
	each(b.parts, func(i int, p *Builder) {
		off := begin[i]
		for j := 0; j < len(p.uses) && errs[i] == nil; j++ {
			off, errs[i] = b.putFDEs(section, off, p, &p.uses[j], start)
		}
		if i == 0 {
			b.lists.append(section[:end])
		}
	})
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return section, nil
}

// ownFDEs returns how many FDEs the functions of this part have.
func (b *Builder) ownFDEs() int {
	n := 0
	for i := range b.units {
		n += int(b.units[i].n) * int(b.units[i].uses)
	}
	return n
}

// putFDEs puts the FDEs of a function, which is the part p's, into the section at off, and
// returns where they end.
func (b *Builder) putFDEs(section []byte, off int, p *Builder, u *use, start func(pc uint64, off int) (uint64, error)) (int, error) {
	out := section[:off]
	unit := &p.units[u.unit]
	pieces := p.pieces[unit.first : unit.first+unit.n]
	for i := range pieces {
		x := &pieces[i]
		end := u.size
		if i+1 < len(pieces) {
			end = pieces[i+1].start
		}
		v, err := start(u.start+uint64(x.start), len(out))
		if err != nil {
			return 0, err
		}
		index := x.list
		if p.to != nil {
			index = p.to[index]
		}
		l := &b.lists.all[index]
		if b.layout.StartSize == 8 {
			out = b.order.AppendUint64(out, v)
		} else {
			out = b.appendUint32(out, uint32(v))
		}
		out = b.appendUint32(out, end-x.start)
		out = b.appendUint32(out, l.at)
		if b.layout.AttrSize > 0 {
			continue // the rest is before the FREs
		}
		out = b.appendUint32(out, l.num)
		out = append(out, unit.info|byte(l.typ))
		if b.layout.RepSize {
			out = append(out, unit.rep, 0, 0)
		}
	}
	return len(out), nil
}

// appendUint32 appends an integer.
func (b *Builder) appendUint32(out []byte, v uint32) []byte {
	if b.little { // faster than to call the method of an interface
		return binary.LittleEndian.AppendUint32(out, v)
	}
	return b.order.AppendUint32(out, v)
}

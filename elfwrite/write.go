package elfwrite

import (
	"context"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/filecopy"
)

// A Target is the destination of a copy, such as an *os.File. Writes past its end must extend it with zeros.
type Target = filecopy.Target

// Begin writes to dst, which must be empty, the bytes before .sframe that do not depend on its size.
func (l *Layout) Begin(ctx context.Context, dst Target, src io.ReaderAt) error {
	return copyRanges(ctx, dst, src, l.copiedByBegin())
}

// Write writes the new file to dst, from the old file src and the section's contents, which have Size bytes and are
// encoded for address Addr. If begun is not nil, dst has been written by begun.Begin; otherwise it is empty. Write
// stops when ctx is done.
func (l *Layout) Write(ctx context.Context, dst Target, src io.ReaderAt, section []byte, begun *Layout) error {
	if uint64(len(section)) != l.Size {
		return fmt.Errorf(".sframe has %d bytes, but the layout is for %d", len(section), l.Size)
	}
	copies := l.firstCopies()
	if begun != nil {
		if done := begun.copiedByBegin(); slices.Equal(done, copies[:min(len(done), len(copies))]) {
			copies = copies[len(done):]
		} else if err := dst.Truncate(0); err != nil {
			return err
		}
	}
	if err := copyRanges(ctx, dst, src, copies); err != nil {
		return err
	}
	for _, z := range l.zeros { // writing only the last byte leaves a hole before it
		if err := writeAt(dst, make([]byte, min(z.Size(), 1)), max(z.End, 1)-1); err != nil {
			return err
		}
	}
	for _, c := range l.moves {
		if err := filecopy.Bytes(ctx, dst, int64(c.to), src, int64(c.from), int64(c.n)); err != nil {
			return err
		}
	}
	if err := l.updateSymbols(dst); err != nil {
		return err
	}
	for _, p := range slices.Concat(l.patches, []patch{{l.off, section}}) {
		if err := writeAt(dst, p.data, p.off); err != nil {
			return err
		}
	}
	return l.writeHeaders(dst)
}

// copyRanges copies ranges of src to dst.
func copyRanges(ctx context.Context, dst Target, src io.ReaderAt, ranges []extent) error {
	for _, c := range ranges {
		if err := filecopy.Range(ctx, dst, int64(c.to), src, int64(c.from), int64(c.n)); err != nil {
			return err
		}
	}
	return nil
}

// copiedByBegin returns the ranges that Begin copies.
func (l *Layout) copiedByBegin() []extent {
	copies := l.firstCopies()
	n := 0
	for n < len(copies) && copies[n].to+copies[n].n <= l.off {
		n++
	}
	return copies[:n]
}

// firstCopies returns the ranges that are copied first: the ranges in l.copies, without those in l.zeros.
func (l *Layout) firstCopies() []extent {
	copies := l.copies
	for _, z := range l.zeros {
		var rest []extent
		for _, c := range copies {
			end := c.to + c.n
			before, after := min(max(z.Begin, c.to), end), max(min(z.End, end), c.to)
			rest = append(rest, extent{c.from, c.to, before - c.to},
				extent{c.from + (after - c.to), after, end - after})
		}
		copies = rest
	}
	return copies
}

func writeAt(dst Target, b []byte, off uint64) error {
	_, err := dst.WriteAt(b, int64(off))
	return err
}

// writeHeaders writes the ELF header and both header tables.
func (l *Layout) writeHeaders(dst Target) error {
	h := l.f.Header64
	h.Phoff = l.phoff
	h.Phnum = uint16(len(l.progs))
	if len(l.sections) > 0 {
		h.Shentsize = elffile.SectionSize
		h.Shoff, h.Shnum, h.Shstrndx = l.shoff, uint16(len(l.sections)), uint16(l.shstrndx)
		l.storeOverflow(&h)
	}
	if err := writeTable(dst, l.f.Order, 0, []elf.Header64{h}); err != nil {
		return err
	}
	if err := writeTable(dst, l.f.Order, h.Phoff, l.progs); err != nil {
		return err
	}
	return writeTable(dst, l.f.Order, h.Shoff, l.sections)
}

// writeTable writes headers of one kind.
func writeTable[T any](dst Target, order binary.ByteOrder, off uint64, table []T) error {
	b, err := binary.Append(nil, order, table)
	if err != nil {
		return err
	}
	return writeAt(dst, b, off)
}

// storeOverflow stores, in the first section header, the numbers that do not fit in the ELF header (ELF gABI, "ELF
// Header").
func (l *Layout) storeOverflow(h *elf.Header64) {
	first := &l.sections[0]
	first.Size, first.Link, first.Info = 0, 0, 0
	if len(l.sections) >= int(elf.SHN_LORESERVE) {
		h.Shnum, first.Size = 0, uint64(len(l.sections))
	}
	if l.shstrndx >= uint32(elf.SHN_LORESERVE) {
		h.Shstrndx, first.Link = uint16(elf.SHN_XINDEX), l.shstrndx
	}
	if len(l.progs) >= math.MaxUint16 {
		h.Phnum, first.Info = math.MaxUint16, uint32(len(l.progs)) // PN_XNUM
	}
}

// updateSymbols updates the section indexes of symbols, and the values of symbols in moved sections. Indexes that do
// not fit in a symbol (SHN_XINDEX) never change.
func (l *Layout) updateSymbols(dst Target) error {
	for i := range l.index {
		s := &l.f.Sections[i]
		if t := elf.SectionType(s.Type); t != elf.SHT_SYMTAB && t != elf.SHT_DYNSYM {
			continue
		}
		if err := l.f.Budget().Spend(scanCost, s.Size); err != nil { // tables may overlap
			return err
		}
		err := l.f.ReadTable("section "+s.Name, s.Off, s.Size, elffile.SymSize, func(b []byte, off uint64) error {
			if !l.renumber(b) {
				return nil
			}
			return writeAt(dst, b, l.sections[l.index[i]].Off+(off-s.Off))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// renumber updates the symbols in b, and reports whether any changed.
func (l *Layout) renumber(b []byte) (changed bool) {
	o := l.f.Order
	for ; len(b) >= elffile.SymSize; b = b[elffile.SymSize:] {
		old := uint32(o.Uint16(b[elffile.SymShndx:]))
		if old == 0 || old >= uint32(elf.SHN_LORESERVE) || int(old) >= len(l.index) {
			continue
		}
		n := l.index[old]
		if n == 0 { // the section was removed
			n = uint32(elf.SHN_ABS)
		}
		if n != old {
			o.PutUint16(b[elffile.SymShndx:], uint16(n))
			changed = true
		}
		// Linker-defined symbols for the ELF header, such as __ehdr_start, have the index of the first section but are
		// not in it.
		s, v := &l.f.Sections[old], o.Uint64(b[elffile.SymValue:])
		if d := l.values[old]; d != 0 && v-s.Addr <= s.Size {
			o.PutUint64(b[elffile.SymValue:], v+d)
			changed = true
		}
	}
	return changed
}

package cfi

import (
	"bytes"
	"debug/elf"

	"cfi2sframe/elffile"
)

// Linkers write 0 as the start of FDEs whose code they removed. In kernels and firmware, a function at address 0 has
// the same start.

// atZero adds the function at address 0, if code is there, and drops FDEs of removed code. From .eh_frame, linkers
// remove the FDEs of removed code, so the only FDE at 0 is the function's, or equal copies of it. In .debug_frame the
// FDEs remain: one counts only if a symbol of that size exists at 0, as the function may have none. If the FDEs differ,
// all are dropped, as nothing tells which is right.
func (p *parser) atZero(files []*elffile.File) {
	if p.table.Dropped.Discarded += p.otherZeros; len(p.zeros) == 0 {
		return
	}
	first := &p.zeros[0]
	clean := p.sec.source == EHFrame && p.otherZeros == 0
	keep := !hasHeader(p.sec.file) && (clean || hasFunction(files, first.End))
	for i := range p.zeros {
		keep = keep && first.same(&p.zeros[i])
	}
	if !keep {
		p.table.Dropped.Discarded += len(p.zeros)
		return
	}
	p.fns = append(p.fns, *first)
	p.execute()
	p.table.Dropped.Discarded += len(p.zeros) - 1
}

// hasHeader reports whether the ELF header is at address 0, so that no code can be there. Without section headers,
// executable segments count as code.
func hasHeader(f *elffile.File) bool {
	if f == nil {
		return false
	}
	off, ok := f.FileOffset(0, 1)
	return ok && off < elffile.HeaderSize
}

// same reports whether two FDEs of a section at the same address are equal.
func (fn *Function) same(g *Function) bool {
	return fn.End == g.End && bytes.Equal(fn.instructions(), g.instructions()) &&
		(fn.cie == g.cie || fn.cie.same(g.cie))
}

// same reports whether two CIEs of a section are equal.
func (d *cie) same(e *cie) bool {
	x := *d
	x.number = e.number
	return x == *e
}

// hasFunction reports whether a symbol in one of the files, which may be nil, is a function at address 0 of the given
// size in bytes.
func hasFunction(files []*elffile.File, size uint64) bool {
	found := false
	for _, f := range files {
		if f == nil {
			continue
		}
		for _, t := range []elf.SectionType{elf.SHT_SYMTAB, elf.SHT_DYNSYM} {
			// A damaged symbol table counts as one without the function.
			_ = f.Symbols(t, func(_ *elffile.Section, s elffile.Symbol) {
				found = found || s.Value == 0 && s.Size == size && elf.SymType(s.Info&0xf) == elf.STT_FUNC &&
					f.Sections[s.Section].Flags&uint64(elf.SHF_EXECINSTR) != 0
			})
		}
	}
	return found
}

package cfi

import (
	"bytes"
	"debug/elf"

	"cfi2sframe/elffile"
)

// Linkers set the start of FDEs for removed code to 0. In kernels and firmware, a function may indeed start at
// address 0.

// atZero adds the function at address 0, if there is code, and drops FDEs of removed code. Linkers remove FDEs of
// removed code from .eh_frame, so its only FDEs at 0 belong to the function. In .debug_frame the FDEs remain; there, an
// FDE counts only if a symbol of the same size exists at 0, because the function may have no FDE. If the FDEs at 0
// differ, all are dropped, because any of them may be wrong.
func (p *parser) atZero(files []*elffile.File) {
	if p.table.Dropped.Discarded += p.otherZeros; len(p.zeros) == 0 {
		return
	}
	first := &p.zeros[0]
	clean := p.sec.source == EHFrame && p.otherZeros == 0
	keep := !hasHeader(p.sec.file) && (clean || hasFunction(files, first.End))
	for i := range p.zeros {
		keep = keep && first.equal(&p.zeros[i])
	}
	if !keep {
		p.table.Dropped.Discarded += len(p.zeros)
		return
	}
	p.fns = append(p.fns, *first)
	p.execute()
	p.table.Dropped.Discarded += len(p.zeros) - 1
}

// hasHeader reports whether the ELF header is loaded at address 0, so there can be no code. Without section headers,
// executable segments count as code.
func hasHeader(f *elffile.File) bool {
	if f == nil {
		return false
	}
	off, ok := f.FileOffset(0, 1)
	return ok && off < elffile.HeaderSize
}

// equal reports whether two FDEs of a section at the same address are equal.
func (fn *Function) equal(g *Function) bool {
	return fn.End == g.End && bytes.Equal(fn.instructions(), g.instructions()) &&
		(fn.cie == g.cie || fn.cie.equal(g.cie))
}

// equal reports whether two CIEs of a section are equal.
func (d *cie) equal(e *cie) bool {
	x := *d
	x.number = e.number
	return x == *e
}

// hasFunction reports whether any of the files, which may be nil, has a function symbol at address 0 with the given
// size in bytes.
func hasFunction(files []*elffile.File, size uint64) bool {
	found := false
	for _, f := range files {
		if f == nil {
			continue
		}
		for _, t := range []elf.SectionType{elf.SHT_SYMTAB, elf.SHT_DYNSYM} {
			// A malformed symbol table is treated as if it lacked the function.
			_ = f.Symbols(t, func(_ *elffile.Section, s elffile.Symbol) {
				found = found || s.Value == 0 && s.Size == size && elf.SymType(s.Info&0xf) == elf.STT_FUNC &&
					f.Sections[s.Section].Flags&uint64(elf.SHF_EXECINSTR) != 0
			})
		}
	}
	return found
}

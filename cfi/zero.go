package cfi

import (
	"bytes"
	"debug/elf"

	"cfi2sframe/elffile"
)

// Linkers write 0 for the start of an FDE whose code they removed. Where code begins at address
// 0 (kernels, firmware), the FDE of the function there looks the same.

// atZero adds the function at address 0, if there is code, and drops the FDEs of discarded code
// that look like its own. In .eh_frame, whose FDEs linkers drop with the code, it is the only
// one; copies of it are no other. In .debug_frame, which they leave as it is, it is only taken for the
// function's if a symbol says that there is one of that size: the function may have none.
// FDEs that differ are all dropped. One of them may be right, but nothing tells which.
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

// hasHeader reports whether the ELF header is at address 0, and so no code: without section
// headers, executable segments count as code.
func hasHeader(f *elffile.File) bool {
	if f == nil {
		return false
	}
	off, ok := f.FileOffset(0, 1)
	return ok && off < elffile.HeaderSize
}

// same reports whether two FDEs of a section say the same of functions at the same address.
func (fn *Function) same(g *Function) bool {
	return fn.End == g.End && bytes.Equal(fn.instructions(), g.instructions()) &&
		(fn.cie == g.cie || fn.cie.same(g.cie))
}

// same reports whether two CIEs of a section say the same.
func (d *cie) same(e *cie) bool {
	x := *d
	x.number = e.number
	return x == *e
}

// hasFunction reports whether a symbol in one of the files, which may be nil, is that of a
// function at address 0 with the given size in bytes.
func hasFunction(files []*elffile.File, size uint64) bool {
	found := false
	for _, f := range files {
		if f == nil {
			continue
		}
		for _, t := range []elf.SectionType{elf.SHT_SYMTAB, elf.SHT_DYNSYM} {
			// A damaged symbol table costs the function.
			_ = f.Symbols(t, func(_ *elffile.Section, s elffile.Symbol) {
				found = found || s.Value == 0 && s.Size == size && elf.SymType(s.Info&0xf) == elf.STT_FUNC &&
					f.Sections[s.Section].Flags&uint64(elf.SHF_EXECINSTR) != 0
			})
		}
	}
	return found
}

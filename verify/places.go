package verify

import (
	"debug/elf"
	"math/bits"

	"cfi2sframe/elffile"
)

// smallestPage is the smallest page size in bytes of loaders.
const smallestPage = 0x1000

// places describes the addresses at which the code of a file can run.
type places struct{ file *elffile.File }

// fixed reports whether code runs at its address in the file.
func (p places) fixed() bool { return elf.Type(p.file.Type) == elf.ET_EXEC }

// grid returns the address in the file of the start of what moves together with pc, and the alignment of its runtime
// addresses: that of an object's section, or a page. The alignment is 0 if nothing moves.
func (p places) grid(pc uint64) (origin, unit uint64) {
	switch {
	case p.fixed():
		return 0, 0
	case elf.Type(p.file.Type) != elf.ET_REL:
		return 0, smallestPage
	case len(p.file.Sections) == 0:
		return 0, 1
	}
	s := &p.file.Sections[p.file.SectionAt(pc)]
	if bits.OnesCount64(s.Addralign) != 1 {
		return s.Base, 1
	}
	return s.Base, min(s.Addralign, smallestPage) // it may become a part of a library
}

// elsewhere returns a possible runtime address of pc for any number n, for most n another one. The addresses differ in
// few bits and in many, low and high ones.
func (p places) elsewhere(pc, n uint64) uint64 {
	origin, unit := p.grid(pc)
	h := mix(n)
	return pc - origin + unit*(mix(h)>>(h&63))
}

package verify

import (
	"debug/elf"
	"math/bits"

	"cfi2sframe/elffile"
)

// smallestPage is the size in bytes of the pages that a loader may choose an address by.
const smallestPage = 0x1000

// places knows where the code of a file can be when it runs.
type places struct{ file *elffile.File }

// fixed reports whether code is where the file says.
func (p places) fixed() bool { return elf.Type(p.file.Type) == elf.ET_EXEC }

// grid returns an address that the file has for the start of what is moved together with pc, and
// what addresses for it are multiples of: the alignment of an object's section, or a page. It is 0 if
// nothing is moved.
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

// elsewhere returns where pc can be, for any number n; with others it is mostly somewhere else. The
// addresses differ in few bits and in many, low and high ones.
func (p places) elsewhere(pc, n uint64) uint64 {
	origin, unit := p.grid(pc)
	h := mix(n)
	return pc - origin + unit*(mix(h)>>(h&63))
}

package padding

import (
	"fmt"
	"slices"
	"sort"

	"cfi2sframe/elfwrite"
)

// references find the gaps that anything refers to.
type references struct {
	*finder
	sizes []uint8 // of the gaps before they are read
	// granules has a bit for each granule of a gap, by its address modulo their number. Most addresses are those of
	// functions, which begin where a granule does, and after the gap.
	granules []uint64
	hits     []int // the functions before these gaps
}

const granule = elfwrite.GranuleSize

func newReferences(x *finder) *references {
	n := 1
	for n < len(x.sizes)/4 { // 16 bits for each function at least
		n *= 2
	}
	r := &references{finder: x, sizes: slices.Clone(x.sizes), granules: make([]uint64, n)}
	for i := range x.sizes {
		for gap := x.gap(i); gap.begin < gap.end; gap.begin = gap.begin/granule*granule + granule {
			g := gap.begin / granule
			r.granules[g/64%uint64(n)] |= 1 << (g % 64)
		}
	}
	return r
}

// mark notes that something refers to the addresses from first to last, which are few.
func (r *references) mark(first, last uint64) {
	for at := first; at <= last; at = at/granule*granule + granule {
		if elfwrite.Granule(r.granules, at) {
			r.near(at, min(last, at|(granule-1)))
		}
	}
}

// near is mark for addresses of which the bit is set.
func (r *references) near(first, last uint64) {
	i := sort.Search(r.table.Len(), func(i int) bool { return r.table.At(i).End > last }) - 1
	for ; i >= 0 && r.table.At(i).End+Limit > first; i-- {
		if r.table.At(i).End+uint64(r.sizes[i]) > first {
			r.hits = append(r.hits, i)
		}
	}
}

// find looks through everything that can refer to a gap. An error means that it is not known.
func (r *references) find() error {
	f, t := r.file, r.table
	r.mark(f.Entry, f.Entry)
	first, last := t.At(0).Begin, t.At(t.Len()-1).End
	if err := elfwrite.References(f, first, last-first+Limit, r.granules, r.mark); err != nil {
		return err
	}
	for i := range f.Sections {
		s := &f.Sections[i]
		if !s.HasBytes() || !slices.Contains(pointers, s.Name) {
			continue
		}
		if s.Size > maxPointers {
			return fmt.Errorf("section %s has %d bytes; at most %d are accepted", s.Name, s.Size, maxPointers)
		}
		b, err := f.ReadSection(s)
		if err != nil {
			return err
		}
		for ; len(b) >= 8; b = b[8:] {
			addr := f.Order.Uint64(b)
			r.mark(addr, addr)
		}
	}
	return nil
}

// pointers are the sections that hold addresses of code, which no relocation repeats in programs with a fixed address.
var pointers = []string{"__patchable_function_entries", ".init_array", ".fini_array", ".preinit_array", ".ctors", ".dtors"}

// maxPointers is how many bytes of such a section are read.
const maxPointers = 16 << 20

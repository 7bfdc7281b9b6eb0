package elfwrite

import (
	"debug/elf"
	"fmt"
	"slices"

	"cfi2sframe/elffile"
)

// A dynTag is a dynamic entry whose value is an address.
type dynTag struct {
	entry   uint64 // index in the dynamic table
	tag     elf.DynTag
	value   uint64
	movable bool   // whether the entry locates a section that may move
	size    uint64 // size of that section according to another entry, or 0
}

// movableTags maps the dynamic tags that locate movable sections to the tags of their sizes. Nothing else locates these
// sections.
var movableTags = map[elf.DynTag]elf.DynTag{
	elf.DT_GNU_HASH: 0,
	elf.DT_HASH:     0,
	elf.DT_SYMTAB:   0,
	elf.DT_STRTAB:   elf.DT_STRSZ,
	elf.DT_VERSYM:   0,
	elf.DT_VERNEED:  0,
	elf.DT_VERDEF:   0,
	elf.DT_RELA:     elf.DT_RELASZ,
	dtRELR:          dtRELRSZ,
}

const (
	dtRELRSZ = elf.DynTag(35)
	dtRELR   = elf.DynTag(36)

	maxDynamic = 1 << 20 // limit on the size of .dynamic in bytes
)

// fixedTags lists the other tags whose values are addresses. A section does not move if an entry with such a tag points
// into it.
var fixedTags = []elf.DynTag{
	elf.DT_PLTGOT, elf.DT_INIT, elf.DT_FINI, elf.DT_REL, elf.DT_JMPREL, elf.DT_INIT_ARRAY, elf.DT_FINI_ARRAY,
	elf.DT_PREINIT_ARRAY, elf.DT_SYMTAB_SHNDX, elf.DT_TLSDESC_PLT, elf.DT_TLSDESC_GOT, elf.DT_GNU_CONFLICT,
	elf.DT_GNU_LIBLIST, elf.DT_CONFIG, elf.DT_DEPAUDIT, elf.DT_AUDIT, elf.DT_MOVETAB, elf.DT_SYMINFO,
	dtAndroidREL, dtAndroidRELA, dtAndroidRELR,
}

// dynamicEntries calls fn for each dynamic entry before DT_NULL, with its index.
func dynamicEntries(f *elffile.File, fn func(i uint64, tag elf.DynTag, value uint64)) error {
	h := f.Prog(elf.PT_DYNAMIC)
	if h == nil {
		return nil
	}
	if h.Filesz > maxDynamic {
		return fmt.Errorf("PT_DYNAMIC at file offset %#x: %d bytes exceed the limit of %d",
			h.Off, h.Filesz, maxDynamic)
	}
	b, err := f.ReadAt("PT_DYNAMIC", h.Off, h.Filesz)
	if err != nil {
		return err
	}
	for i := uint64(0); len(b) >= elffile.DynSize; i, b = i+1, b[elffile.DynSize:] {
		tag := elf.DynTag(f.Order.Uint64(b))
		if tag == elf.DT_NULL {
			break
		}
		fn(i, tag, f.Order.Uint64(b[elffile.DynValue:]))
	}
	return nil
}

// dynamicValues returns the values of the dynamic entries by tag.
func dynamicValues(f *elffile.File) (map[elf.DynTag]uint64, error) {
	values := make(map[elf.DynTag]uint64)
	err := dynamicEntries(f, func(_ uint64, tag elf.DynTag, value uint64) { values[tag] = value })
	return values, err
}

// dynamicTags returns the dynamic entries whose values are addresses.
func dynamicTags(f *elffile.File) ([]dynTag, error) {
	sizes, err := dynamicValues(f)
	if err != nil {
		return nil, err
	}
	var tags []dynTag
	err = dynamicEntries(f, func(i uint64, tag elf.DynTag, value uint64) {
		if size, ok := movableTags[tag]; ok || slices.Contains(fixedTags, tag) {
			tags = append(tags, dynTag{i, tag, value, ok, sizes[size]})
		}
	})
	return tags, err
}

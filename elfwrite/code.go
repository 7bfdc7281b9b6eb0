package elfwrite

import (
	"debug/elf"
	"fmt"
	"math"
	"slices"

	"cfi2sframe/elffile"
)

// codeOf returns the smallest range that contains all code of f with bytes in the file.
func codeOf(f *elffile.File) elffile.Span {
	code := span(math.MaxUint64, 0)
	for _, c := range f.Code() {
		if c.Filesz > 0 {
			code = span(min(code.Begin, c.Begin), max(code.End, c.Begin+c.Filesz))
		}
	}
	return code
}

// markCode reports a reference to some address in [first, last] if that may be code.
func (r *references) markCode(first, last uint64) {
	if first < r.code.End && last >= r.code.Begin && r.refers != nil {
		r.refers(first, last)
	}
}

// References is like the function References, but does not repeat the scan if Plan did one with Options.Refers set to
// refers.
func (p *Program) References(refers func(first, last uint64)) error {
	if p.refs == nil {
		return References(p.f, refers)
	}
	return p.refs.toCode(p.f)
}

// References calls refers for each reference to the code of f: from symbols, from relocations, and from the headers
// that locate initialization and termination code. The target of a reference is some address in [first, last]. If not
// all references can be found, References returns an error.
func References(f *elffile.File, refers func(first, last uint64)) error {
	return newReferences(f, nil, refers).toCode(f)
}

// toCode reports references to code from the entry point, dynamic entries and arrays of pointers.
func (r *references) toCode(f *elffile.File) error {
	if r.err != nil {
		return r.err
	}
	r.markCode(f.Entry, f.Entry)
	tags, err := dynamicValues(f)
	if err != nil {
		return err
	}
	for _, tag := range []elf.DynTag{elf.DT_INIT, elf.DT_FINI} {
		if addr, ok := tags[tag]; ok {
			r.markCode(addr, addr)
		}
	}
	for tag, size := range pointerArrays {
		addr, n := tags[tag], tags[size]
		if n == 0 {
			continue
		}
		off, ok := f.FileOffset(addr, n)
		if !ok {
			return fmt.Errorf("%v refers to %d bytes at address %#x, which are not in a loaded segment", tag, n, addr)
		}
		if err := r.markPointers(f, tag.String(), off, n); err != nil {
			return err
		}
	}
	for _, s := range elffile.Each(f.Sections) {
		if s.HasBytes() && slices.Contains(pointerSections, s.Name) {
			if err := r.markPointers(f, "section "+s.Name, s.Off, s.Size); err != nil {
				return err
			}
		}
	}
	return nil
}

// markPointers reports references from the pointers in a part of the file.
func (r *references) markPointers(f *elffile.File, name string, off, size uint64) error {
	const most = 16 << 20
	if size > most {
		return fmt.Errorf("%s has %d bytes, more than the limit of %d", name, size, most)
	}
	b, err := f.ReadAt(name, off, size)
	for ; len(b) >= wordSize; b = b[wordSize:] {
		r.markCode(f.Order.Uint64(b), f.Order.Uint64(b))
	}
	return err
}

// pointerArrays maps the dynamic tags of pointer arrays to the tags of their sizes.
var pointerArrays = map[elf.DynTag]elf.DynTag{
	elf.DT_INIT_ARRAY:    elf.DT_INIT_ARRAYSZ,
	elf.DT_FINI_ARRAY:    elf.DT_FINI_ARRAYSZ,
	elf.DT_PREINIT_ARRAY: elf.DT_PREINIT_ARRAYSZ,
}

// pointerSections lists sections that contain addresses of code. If addresses are fixed, no relocations apply to them.
var pointerSections = []string{
	"__patchable_function_entries", ".init_array", ".fini_array", ".preinit_array", ".ctors", ".dtors",
}

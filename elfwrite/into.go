package elfwrite

import (
	"bytes"
	"fmt"

	"cfi2sframe/elffile"
	"cfi2sframe/sframe"
)

// PlanInto returns the layout of the linked file f with an .sframe of size bytes at address begin, in loaded bytes that
// its linker script reserves up to address end. The remaining bytes are zero. Headers do not change.
func PlanInto(f *elffile.File, begin, end, size uint64, opt Options) (*Layout, error) {
	where := fmt.Sprintf("the bytes from %#x to %#x", begin, end)
	off, ok := f.FileOffset(begin, end-begin)
	switch {
	case begin >= end:
		return nil, fmt.Errorf("%s: the range is empty; reserve bytes in the linker script", where)
	case begin%sectionAlign != 0:
		return nil, fmt.Errorf("%s: the start is not a multiple of %d; align it in the linker script",
			where, sectionAlign)
	case !ok:
		return nil, fmt.Errorf("%s are not in a loaded segment of the file; "+
			"add BYTE(0) at their end in the linker script", where)
	case size > end-begin:
		return nil, fmt.Errorf("%s: only %d bytes are reserved, but .sframe needs %d; "+
			"reserve more in the linker script", where, end-begin, size)
	}
	b, err := f.ReadAt("reserved bytes", off, end-begin)
	if err != nil {
		return nil, err
	}
	if used := bytes.TrimLeft(b, "\x00"); len(used) > 0 {
		if !sframe.IsSection(b) {
			return nil, fmt.Errorf("%s are in use: byte %#x is %#02x, not 0", where,
				end-uint64(len(used)), used[0])
		}
		if !opt.Force {
			return nil, ErrExists
		}
	}
	l := Unchanged(f)
	l.Addr, l.Size, l.off = begin, size, off
	l.zeros = []elffile.Span{span(off, off+(end-begin))}
	return l, nil
}

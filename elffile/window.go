package elffile

import "slices"

// A Window reads code or data by address, with read-ahead.
type Window struct {
	Size   uint64                              // of one read in bytes; 0 means 64 KiB, which fit in the cache
	Cost   int64                               // budget cost per byte read
	Offset func(addr, n uint64) (uint64, bool) // file offset of n bytes; nil means File.CodeOffset

	Addr uint64 // of Data
	Data []byte // read last
}

// Read returns the n bytes at an address, or nil if the file does not contain them. They are valid until the next call.
func (w *Window) Read(f *File, addr, n uint64) []byte {
	if off := addr - w.Addr; off <= uint64(len(w.Data)) && n <= uint64(len(w.Data))-off {
		return w.Data[off:][:n]
	}
	offset, size := w.Offset, w.Size
	if offset == nil {
		offset = f.CodeOffset
	}
	if size == 0 {
		size = 64 << 10
	}
	size = max(size, n)
	off, ok := offset(addr, size)
	for ; !ok && size > n; off, ok = offset(addr, size) { // near the end of the segment, fewer bytes are available
		size = max(size/2, n)
	}
	if !ok || f.Budget().Spend(w.Cost, size) != nil {
		return nil
	}
	w.Addr, w.Data = addr, slices.Grow(w.Data[:0], int(size))[:size]
	if f.ReadInto("code", w.Data, off) != nil {
		w.Data = w.Data[:0]
		return nil
	}
	return w.Data[:n]
}

// CodeOffset returns the file offset of the n bytes at an address; in objects, see Section.Base. It reports false if
// they are not in a single PT_LOAD or section.
func (f *File) CodeOffset(addr, n uint64) (uint64, bool) {
	if !f.IsObject() {
		return f.FileOffset(addr, n)
	}
	i := f.SectionAt(addr)
	s := &f.Sections[i]
	return s.Off + (addr - s.Base), i > 0 && s.HasBytes() && !s.Compressed() && n <= s.Size-(addr-s.Base)
}

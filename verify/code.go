package verify

import "cfi2sframe/elffile"

// window is the size of one read in bytes. It fits in the processor's cache.
const window = 64 << 10

// A codeReader reads code with read-ahead.
type codeReader struct {
	file *elffile.File
	addr uint64 // of data
	data []byte
}

// read returns the n bytes at an address, or nil if the file does not contain them. They are valid until the next call.
func (r *codeReader) read(addr, n uint64) []byte {
	if off := addr - r.addr; off > uint64(len(r.data)) || n > uint64(len(r.data))-off {
		size := max(window, n)
		off, ok := r.offset(addr, size)
		for !ok && size > n { // near the end of the segment, fewer bytes are available
			size = max(size/2, n)
			off, ok = r.offset(addr, size)
		}
		if !ok {
			return nil
		}
		if uint64(cap(r.data)) < size {
			r.data = make([]byte, max(size, window))
		}
		r.addr, r.data = addr, r.data[:size]
		if r.file.ReadInto("code", r.data, off) != nil {
			r.data = r.data[:0]
			return nil
		}
	}
	return r.data[addr-r.addr:][:n]
}

// offset returns the file offset of n bytes of code.
func (r *codeReader) offset(addr, n uint64) (uint64, bool) {
	if !r.file.IsObject() {
		return r.file.FileOffset(addr, n)
	}
	i := r.file.SectionAt(addr)
	s := &r.file.Sections[i]
	return s.Off + addr - s.Base, i > 0 && s.HasBytes() && n <= s.Size && addr-s.Base <= s.Size-n
}

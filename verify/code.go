package verify

import "cfi2sframe/elffile"

// A codeReader reads code.
type codeReader struct {
	file *elffile.File
	elffile.Window
}

// read returns the n bytes at an address, or nil if the file does not contain them. They are valid until the next call.
func (r *codeReader) read(addr, n uint64) []byte { return r.Read(r.file, addr, n) }

package convert

import (
	"encoding/binary"
	"fmt"
	"io"

	"cfi2sframe/internal/outfile"
)

// The end of a signed kernel module: the signature, struct module_signature (include/linux/module_signature.h), and the
// magic. The structure is a big-endian length in its last four bytes, and at 3 and 4 the lengths of names before the
// signature, which modules of Linux before 4.3 have.
const (
	signatureMagic  = "~Module signature appended~\n"
	signatureStruct = 12
	signatureTail   = signatureStruct + len(signatureMagic)
)

// signatureSize returns how many bytes at the end of a file are a signature of a kernel module.
func signatureSize(r io.ReaderAt, size int64) (int64, error) {
	b := make([]byte, signatureTail)
	if size < int64(len(b)) {
		return 0, nil
	}
	if n, err := r.ReadAt(b, size-int64(len(b))); n < len(b) {
		return 0, outfile.Plain(err)
	}
	if string(b[signatureStruct:]) != signatureMagic {
		return 0, nil
	}
	n := int64(len(b)) + int64(b[3]) + int64(b[4]) + int64(binary.BigEndian.Uint32(b[signatureStruct-4:]))
	if n > size {
		return 0, fmt.Errorf("its module signature says that it has %d bytes, and the file has %d; "+
			"remove the signature (strip does)", n, size)
	}
	return n, nil
}

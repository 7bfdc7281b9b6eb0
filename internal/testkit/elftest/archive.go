package elftest

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// ArMagic starts an archive.
const ArMagic = "!<arch>\n"

// ArMember returns an archive member: header and contents.
func ArMember(name string, data []byte) []byte { return ArSized(name, fmt.Sprint(len(data)), data) }

// ArSized is ArMember with an arbitrary size in the header.
func ArSized(name, size string, data []byte) []byte {
	b := fmt.Appendf(nil, "%-16s%-12d%-6d%-6d%-8o%-10s`\n", name, 0, 0, 0, 0o644, size)
	b = append(b, data...)
	if len(b)&1 > 0 {
		b = append(b, '\n')
	}
	return b
}

// Ar returns an archive with the given members.
func Ar(members ...[]byte) []byte {
	return append([]byte(ArMagic), bytes.Join(members, nil)...)
}

// ArIndex returns a symbol index with entries of the given size in bytes.
func ArIndex(size int, count uint64, entries ...uint64) []byte {
	var b []byte
	for _, v := range append([]uint64{count}, entries...) {
		if size == 8 {
			b = binary.BigEndian.AppendUint64(b, v)
		} else {
			b = binary.BigEndian.AppendUint32(b, uint32(v))
		}
	}
	return append(b, make([]byte, 64)...)
}

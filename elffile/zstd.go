package elffile

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"io"
)

// unzstd is inflate for zstd. The decompressor is that of Go's library, which has a name in debug/elf only, and
// there it is that of sections: b becomes one, in a file of nothing else. Other packages make tables when a program
// starts, which takes as long as to convert a small file. It looks back 8 MiB at most, as RFC 8878 (3.1.1.1.2)
// allows; linkers and objcopy want a quarter of that.
func unzstd(b []byte, size uint64) ([]byte, error) {
	const start = HeaderSize + 2*SectionSize
	head := new(bytes.Buffer)
	for _, part := range []any{
		&elf.Header64{
			Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
			Type:  uint16(elf.ET_REL), Version: uint32(elf.EV_CURRENT),
			Shoff: HeaderSize, Ehsize: HeaderSize, Shentsize: SectionSize, Shnum: 2,
		},
		&elf.Section64{},
		&elf.Section64{Type: uint32(elf.SHT_PROGBITS), Flags: uint64(elf.SHF_COMPRESSED), Off: start, Size: chdrSize + uint64(len(b))},
		&elf.Chdr64{Type: uint32(elf.COMPRESS_ZSTD), Size: size, Addralign: 1},
	} {
		_ = binary.Write(head, binary.LittleEndian, part) // to memory
	}
	f, err := elf.NewFile(&joined{head.Bytes(), b})
	if err != nil {
		return nil, err
	}
	return readUpTo(f.Sections[1].Open(), size+1)
}

// joined is two pieces of memory that are read as one.
type joined struct{ a, b []byte }

func (j *joined) ReadAt(p []byte, off int64) (int, error) {
	n := 0
	if off < int64(len(j.a)) {
		n = copy(p, j.a[off:])
	}
	if at := off + int64(n) - int64(len(j.a)); at >= 0 && at < int64(len(j.b)) {
		n += copy(p[n:], j.b[at:])
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

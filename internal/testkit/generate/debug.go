package generate

import (
	"bytes"
	"debug/elf"
	"encoding/binary"

	"cfi2sframe/elffile"
)

// OnlyDebug returns the debug file of a linked file with section headers, as objcopy --only-keep-debug makes it: all
// headers, and of what is loaded only the notes.
func OnlyDebug(f *File) ([]byte, error) {
	x, err := elffile.New(bytes.NewReader(f.Bytes), int64(len(f.Bytes)))
	if err != nil {
		return nil, err
	}
	order := f.Machine.Order
	out := bytes.Clone(f.Bytes[:elffile.HeaderSize+len(x.Progs)*elffile.ProgSize])
	var table bytes.Buffer
	for i := range x.Sections {
		s := &x.Sections[i]
		h := s.Section64
		switch {
		case i == 0:
		case s.Alloc() && elf.SectionType(s.Type) != elf.SHT_NOTE:
			h.Type, h.Off = uint32(elf.SHT_NOBITS), uint64(len(out))
		default:
			b, err := x.ReadSection(s)
			if err != nil {
				return nil, err
			}
			for len(out)%8 != 0 {
				out = append(out, 0)
			}
			h.Off = uint64(len(out))
			out = append(out, b...)
		}
		_ = binary.Write(&table, order, &h) // a buffer takes everything
	}
	for len(out)%8 != 0 {
		out = append(out, 0)
	}
	const shoff = 40 // where the ELF header has it
	order.PutUint64(out[shoff:], uint64(len(out)))
	return append(out, table.Bytes()...), nil
}

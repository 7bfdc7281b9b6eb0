package generate

import (
	"bytes"
	"debug/elf"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/elftest"
)

// OnlyDebug returns the debug file of a linked file with section headers, as objcopy --only-keep-debug makes it: all
// headers, and only the notes of the loaded sections.
func OnlyDebug(f *File) ([]byte, error) {
	x, err := elffile.New(bytes.NewReader(f.Bytes), int64(len(f.Bytes)))
	if err != nil {
		return nil, err
	}
	order := f.Machine.Order
	out := bytes.Clone(f.Bytes[:elffile.HeaderSize+len(x.Progs)*elffile.ProgSize])
	var table []byte
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
			out = elftest.Pad(out, 8)
			h.Off = uint64(len(out))
			out = append(out, b...)
		}
		table = elftest.Append(table, order, &h)
	}
	out = elftest.Pad(out, 8)
	order.PutUint64(out[elftest.EhShoff:], uint64(len(out)))
	return append(out, table...), nil
}

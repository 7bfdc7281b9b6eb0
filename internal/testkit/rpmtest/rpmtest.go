// Package rpmtest makes packages of RPM by hand, from the documents and not from internal/rpm.
package rpmtest

import (
	"encoding/binary"
	"fmt"
	"slices"

	"cfi2sframe/internal/testkit/elftest"
)

// A Tag is one of a header: numbers of 16, 32 or 64 bits, a string, strings, or bytes.
type Tag struct {
	Number uint32
	Value  any
}

// HeaderMagic begins a header.
const HeaderMagic = "\x8e\xad\xe8\x01\x00\x00\x00\x00"

// Header encodes a header.
func Header(tags ...Tag) []byte {
	var index, data []byte
	for _, tag := range tags {
		var typ, count int
		var b []byte
		align := 1
		switch v := tag.Value.(type) {
		case []uint16:
			typ, count, align, b = 3, len(v), 2, bigEndian(v)
		case []uint32:
			typ, count, align, b = 4, len(v), 4, bigEndian(v)
		case []uint64:
			typ, count, align, b = 5, len(v), 8, bigEndian(v)
		case string:
			typ, count, b = 6, 1, []byte(v+"\x00")
		case []byte:
			typ, count, b = 7, len(v), v
		case []string:
			typ, count = 8, len(v)
			for _, s := range v {
				b = append(b, s+"\x00"...)
			}
		}
		data = elftest.Pad(data, align)
		entry := bigEndian([]uint32{tag.Number, uint32(typ), uint32(len(data)), uint32(count)})
		index = append(index, entry...)
		data = append(data, b...)
	}
	sizes := bigEndian([]uint32{uint32(len(tags)), uint32(len(data))})
	return slices.Concat([]byte(HeaderMagic), sizes, index, data)
}

func bigEndian(v any) []byte { return elftest.Append(nil, binary.BigEndian, v) }

// Lead is the lead of a package.
func Lead() []byte { return append([]byte("\xed\xab\xee\xdb\x03\x00"), make([]byte, 90)...) }

// Package puts a package together, with the tags of its second header.
func Package(payload []byte, tags ...Tag) []byte {
	out := append(Lead(), Header(Tag{1000, []uint32{7}}, Tag{1004, "odd"})...)
	return slices.Concat(elftest.Pad(out, 8), Header(tags...), payload)
}

// Newc is a member of an archive.
func Newc(name string, inode, mode, links int, contents string) []byte {
	b := fmt.Appendf(nil, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		inode, mode, 0, 0, links, 0, len(contents), 8, 1, 0, 0, len(name)+1, 0, name)
	return elftest.Pad(append(elftest.Pad(b, 4), contents...), 4)
}

// Stripped is a member that the header of the package describes.
func Stripped(i int, contents string) []byte {
	return elftest.Pad(append(fmt.Appendf(nil, "07070X%08x\x00\x00", i), contents...), 4)
}

// Trailer ends an archive.
func Trailer() []byte { return Newc("TRAILER!!!", 0, 0, 1, "") }

// Tags are those of a package with a file, a directory, a symbolic link, a file of two names, and a ghost, which the
// archive does not have.
func Tags() []Tag {
	return []Tag{
		{1117, []string{"one", "d", "link", "first", "second", "ghost"}},             // BASENAMES
		{1118, []string{"/usr/bin/", "/usr/"}},                                       // DIRNAMES
		{1116, []uint32{0, 1, 0, 0, 0, 0}},                                           // DIRINDEXES
		{1030, []uint16{0o100755, 0o040755, 0o120777, 0o100755, 0o100755, 0o100644}}, // FILEMODES
		{1037, []uint32{0, 0, 0, 0, 0, 1 << 6}},                                      // FILEFLAGS
		{1095, []uint32{1, 1, 1, 1, 1, 1}},                                           // FILEDEVICES
		{1096, []uint32{1, 2, 3, 4, 4, 4}},                                           // FILEINODES
		{5008, []uint64{3, 4096, 3, 5, 5, 9}},                                        // LONGFILESIZES
		{1124, "cpio"},                                                               // PAYLOADFORMAT
	}
}

// With returns Tags with another value for one of them, or with one more.
func With(number uint32, value any) []Tag {
	out := Tags()
	for i := range out {
		if out[i].Number == number {
			out[i].Value = value
			return out
		}
	}
	return append(out, Tag{number, value})
}

// Payload has the files of Tags.
func Payload() []byte {
	var b []byte
	for i, contents := range []string{"One", "", "one", "", "links"} {
		b = append(b, Stripped(i, contents)...)
	}
	return append(b, Trailer()...)
}

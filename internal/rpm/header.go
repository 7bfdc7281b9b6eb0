// Package rpm reads RPM packages: their headers, the files that these describe, and the payload in a form of cpio. A
// number or a string of a header can be replaced by one of the same size.
//
// The facts are from "RPM V4 Package format" and "RPM tags" of rpm's manual, rpmtag.h and rpmfiles.h; from cpio(5),
// "New ASCII Format"; and from header.c, rpmfi.c and cpio.c of rpm.
//
// A header is held in memory, if rpm accepts its size. No other size in a package is believed.
//
// Not in here: the compression of the payload, and the verification of sums and signatures.
package rpm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
)

// A package begins with a lead. Only its magic number still has a meaning.
const (
	Magic    = "\xed\xab\xee\xdb"
	LeadSize = 96
)

const (
	headerMagic = "\x8e\xad\xe8\x01\x00\x00\x00\x00"
	introSize   = 16 // the magic number, the number of entries, and the size of the values
	entrySize   = 16 // tag, type, offset, count
	maxTags     = 0xffff
	maxData     = 0x0fffffff
	maxValues   = 1 << 22 // of a tag, which is more files than a package may have elsewhere
)

// The types of values.
const (
	typeInt16   = 3
	typeInt32   = 4
	typeInt64   = 5
	typeString  = 6
	typeBin     = 7
	typeStrings = 8
)

// An Error is an error with its place in a package.
type Error struct {
	Off     int64 // in the package, in bytes
	Payload int64 // in the payload that begins there, decompressed; or -1
	Err     error
}

func (e *Error) Error() string {
	if e.Payload < 0 {
		return fmt.Sprintf("RPM package at offset %#x: %v", e.Off, e.Err)
	}
	return fmt.Sprintf("RPM package at offset %#x: payload at offset %#x, decompressed: %v", e.Off, e.Payload, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// Errorf returns an error at an offset of a package.
func Errorf(off int64, format string, args ...any) error {
	return &Error{off, -1, fmt.Errorf(format, args...)}
}

// A Header has values by their tags.
type Header struct {
	Off  int64  // in the package, in bytes
	Raw  []byte // all of it
	data []byte // the end of it, which has the values
	tags map[uint32]entry
}

// An entry says where the values of a tag are.
type entry struct{ typ, off, count uint32 }

// A Package is an open package.
type Package struct {
	Sig  *Header // sums and signatures
	Main *Header // everything else; the payload begins at its end
}

// Open reads the headers of a package of the given size.
func Open(r io.ReaderAt, size int64) (*Package, error) {
	sig, err := readHeader(r, LeadSize, size)
	if err != nil {
		return nil, err
	}
	main, err := readHeader(r, (sig.End()+7)&^7, size) // the first one is padded
	if err != nil {
		return nil, err
	}
	format, err := main.Text(TagPayloadFormat)
	if err == nil && format != "" && format != "cpio" {
		err = Errorf(main.Off, "tag %d: unsupported payload format %.32q; cpio is supported", TagPayloadFormat, format)
	}
	return &Package{sig, main}, err
}

// readHeader reads the header at an offset.
func readHeader(r io.ReaderAt, off, size int64) (*Header, error) {
	intro := make([]byte, introSize)
	if err := readAt(r, intro, off); err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(intro, []byte(headerMagic)) {
		return nil, Errorf(off, "no header: it begins with % x, not % x", intro[:len(headerMagic)], headerMagic)
	}
	count, length := int64(binary.BigEndian.Uint32(intro[8:])), int64(binary.BigEndian.Uint32(intro[12:]))
	if count > maxTags || length > maxData || count*entrySize+length > size-off-introSize {
		const format = "a header of %d tags and %d bytes does not fit: %d bytes are left; %d and %d are supported"
		return nil, Errorf(off, format, count, length, size-off, maxTags, maxData)
	}
	h := &Header{Off: off, Raw: make([]byte, introSize+count*entrySize+length), tags: make(map[uint32]entry, count)}
	if err := readAt(r, h.Raw, off); err != nil {
		return nil, err
	}
	h.data = h.Raw[introSize+count*entrySize:]
	for i := range count {
		b := h.Raw[introSize+i*entrySize:]
		h.tags[binary.BigEndian.Uint32(b)] = entry{
			binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint32(b[8:]), binary.BigEndian.Uint32(b[12:]),
		}
	}
	return h, nil
}

// readAt fills b.
func readAt(r io.ReaderAt, b []byte, off int64) error {
	_, err := io.ReadFull(io.NewSectionReader(r, off, int64(len(b))), b)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return Errorf(off, "%w in a header", io.ErrUnexpectedEOF)
	}
	if err != nil {
		return Errorf(off, "%w", err)
	}
	return nil
}

// End returns where the header ends in the package.
func (h *Header) End() int64 { return h.Off + int64(len(h.Raw)) }

// Tags returns the tags in their order. Of equal tags the last one counts, as in rpm.
func (h *Header) Tags() []uint32 {
	all := make([]uint32, binary.BigEndian.Uint32(h.Raw[8:]))
	for i := range all {
		all[i] = binary.BigEndian.Uint32(h.Raw[introSize+i*entrySize:])
	}
	return all
}

// Has reports whether the header has a tag.
func (h *Header) Has(tag uint32) bool {
	_, ok := h.tags[tag]
	return ok
}

// find returns the entry of a tag, which must have one of some types, and all bytes from the first value on, or nil
// without the tag.
func (h *Header) find(tag uint32, types ...uint32) (entry, []byte, error) {
	e, ok := h.tags[tag]
	if !ok {
		return e, nil, nil
	}
	if !slices.Contains(types, e.typ) || e.count > maxValues || int64(e.off) > int64(len(h.data)) {
		return e, nil, h.wrong(tag, types...)
	}
	return e, h.data[e.off:], nil
}

// wrong is the error of a tag with unexpected values.
func (h *Header) wrong(tag uint32, types ...uint32) error {
	e := h.tags[tag]
	return Errorf(h.Off, "tag %d has type %d, and %d values at %#x; up to %d of types %d within %d bytes are supported",
		tag, e.typ, e.count, e.off, maxValues, types, len(h.data))
}

// numbers returns where the numbers of a tag are, and their size in bytes, or nil without the tag.
func (h *Header) numbers(tag uint32) (b []byte, width int, err error) {
	types := []uint32{typeInt16, typeInt32, typeInt64}
	e, b, err := h.find(tag, types...)
	if b == nil {
		return nil, 0, err
	}
	width = 1 << (e.typ - 2)
	if int64(e.count)*int64(width) > int64(len(b)) {
		return nil, 0, h.wrong(tag, types...)
	}
	return b[:int(e.count)*width], width, nil
}

// Numbers returns the numbers of a tag, or nil without the tag.
func (h *Header) Numbers(tag uint32) ([]uint64, error) {
	b, width, err := h.numbers(tag)
	if b == nil {
		return nil, err
	}
	all := make([]uint64, 0, len(b)/width)
	for ; len(b) > 0; b = b[width:] {
		var n uint64
		for _, c := range b[:width] {
			n = n<<8 | uint64(c)
		}
		all = append(all, n)
	}
	return all, nil
}

// Number returns the first number of a tag, or another one without the tag.
func (h *Header) Number(tag uint32, without uint64) (uint64, error) {
	all, err := h.Numbers(tag)
	if len(all) == 0 {
		return without, err
	}
	return all[0], err
}

// SetNumber replaces a number of a tag, if the header has it.
func (h *Header) SetNumber(tag uint32, i int, n uint64) error {
	b, width, err := h.numbers(tag)
	if b == nil {
		return err
	}
	if (i+1)*width > len(b) || n>>(8*width-1)>>1 != 0 {
		return Errorf(h.Off, "tag %d has %d values of %d bytes, and cannot hold %d as value %d",
			tag, len(b)/width, width, n, i)
	}
	for b = b[i*width:][:width]; width > 0; n >>= 8 {
		width--
		b[width] = byte(n)
	}
	return nil
}

// Texts returns where the strings of a tag are, or nil without the tag. They may be replaced by others of the same
// length.
func (h *Header) Texts(tag uint32) ([][]byte, error) {
	types := []uint32{typeString, typeStrings}
	e, b, err := h.find(tag, types...)
	if b == nil {
		return nil, err
	}
	if int64(e.count) > int64(len(b)) || e.typ == typeString && e.count != 1 {
		return nil, h.wrong(tag, types...)
	}
	all := make([][]byte, e.count)
	for i := range all {
		end := bytes.IndexByte(b, 0)
		if end < 0 {
			return nil, h.wrong(tag, types...)
		}
		all[i], b = b[:end:end], b[end+1:]
	}
	return all, nil
}

// Text returns the first string of a tag, or "".
func (h *Header) Text(tag uint32) (string, error) {
	all, err := h.Texts(tag)
	if len(all) == 0 {
		return "", err
	}
	return string(all[0]), nil
}

// SetText replaces the first string of a tag by one of the same length, if the header has the tag.
func (h *Header) SetText(tag uint32, s string) error {
	all, err := h.Texts(tag)
	if all == nil {
		return err
	}
	if len(all) == 0 || len(all[0]) != len(s) {
		return Errorf(h.Off, "tag %d cannot hold a string of %d bytes", tag, len(s))
	}
	copy(all[0], s)
	return nil
}

// Bytes returns where the bytes of a tag are, or nil without the tag.
func (h *Header) Bytes(tag uint32) ([]byte, error) {
	e, b, err := h.find(tag, typeBin)
	if b == nil {
		return nil, err
	}
	if int64(e.count) > int64(len(b)) {
		return nil, h.wrong(tag, typeBin)
	}
	return b[:e.count], nil
}

// Tags of the header with sums and signatures.
const (
	SigDSA              = 267
	SigRSA              = 268
	SigSHA1             = 269 // of the other header
	SigLongSize         = 270
	SigLongPlainSize    = 271
	SigSHA256           = 273
	SigFileSignatures   = 274
	SigVeritySignatures = 276
	SigOpenPGP          = 278
	SigSHA3             = 279
	SigSize             = 1000 // of the other header and the payload
	SigPGP              = 1002
	SigMD5              = 1004 // of both
	SigGPG              = 1005
	SigPGP5             = 1006
	SigPlainSize        = 1007 // of the payload before it is compressed
)

// Tags of the header that describes the package. "Plain" is the payload before it is compressed.
const (
	TagSize           = 1009 // of all files
	TagFileSizes      = 1028
	TagFileModes      = 1030
	TagFileDigests    = 1035
	TagFileFlags      = 1037
	TagPlainSize      = 1046
	TagFileDevices    = 1095
	TagFileInodes     = 1096
	TagDirIndexes     = 1116
	TagBaseNames      = 1117
	TagDirNames       = 1118
	TagPayloadFormat  = 1124
	TagCompressor     = 1125
	TagLongFileSizes  = 5008 // in the place of the other sizes, if one of them is 4 GiB or more
	TagLongSize       = 5009
	TagDigestAlgo     = 5011 // of files
	TagFileSignatures = 5090
	TagPayloadSHA256  = 5092
	TagPayloadAlgo    = 5093 // of the one before
	TagPlainSHA256    = 5097
	TagPayloadSize    = 5112
	TagPayloadPlain   = 5113
	TagPayloadSHA512  = 5121
	TagPlainSHA512    = 5122
	TagPayloadSHA3    = 5123
	TagPlainSHA3      = 5124
)

// SHA256 is an algorithm by the number that OpenPGP has for it.
const SHA256 = 8

// FlagConfig is the flag of a configuration file.
const FlagConfig = 1

const flagGhost = 1 << 6 // it belongs to the package, and is not in it

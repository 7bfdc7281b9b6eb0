package pack

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
)

// From "RPM V4 Package format" and rpmtag.h.
const (
	leadSize    = 96
	headerMagic = "\x8e\xad\xe8\x01"
	headerIntro = 16 // with a count of entries and the bytes of data after them
	headerEntry = 16 // tag, type, offset, count
	maxTags     = 0xffff
	maxTagData  = 0x0fffffff

	tagFileSizes     = 1028
	tagFileModes     = 1030
	tagFileLinks     = 1036 // what symbolic links lead to
	tagFileFlags     = 1037
	tagFileDevices   = 1095
	tagFileInodes    = 1096
	tagDirIndexes    = 1116
	tagBaseNames     = 1117
	tagDirNames      = 1118
	tagPayloadFormat = 1124
	tagLongSizes     = 5008
	tagPayloadSum    = 5092
	tagPayloadSumBy  = 5093

	sumSHA256 = 8 // of OpenPGP's algorithms
)

// rpm reads an RPM package: a lead, a header with signatures, one with everything else, and the files in a cpio
// archive that is compressed.
func (r *reader) rpm(f *os.File, size int64) ([]File, error) {
	_, at, err := rpmHeader(f, leadSize, size)
	if err != nil {
		return nil, err
	}
	h, at, err := rpmHeader(f, (at+7)&^7, size) // signatures are padded
	if err != nil {
		return nil, err
	}
	if format := h.text(tagPayloadFormat); format != "" && format != "cpio" {
		return nil, &Error{Off: at, Err: fmt.Errorf("a payload of format %.32q; cpio was expected", format)}
	}
	payload := io.Reader(io.NewSectionReader(f, at, size-at))
	var sum hash.Hash
	want := h.text(tagPayloadSum)
	if by, err := h.numbers(tagPayloadSumBy); want != "" && err == nil && (len(by) == 0 || by[0] == sumSHA256) { // version 6 does not say by what
		sum = sha256.New()
		payload = &summed{payload, sum}
	}
	s, err := r.unpack("payload", payload)
	if err != nil {
		return nil, err
	}
	defer s.close()
	out, err := r.cpio(s, h)
	if err != nil {
		return nil, err
	}
	if sum != nil {
		if _, err := io.Copy(io.Discard, payload); err != nil {
			return nil, s.error("", err)
		}
		if have := hex.EncodeToString(sum.Sum(nil)); have != want {
			return nil, s.error("", fmt.Errorf("the SHA-256 is %s; %.64s was expected", have, want))
		}
	}
	return out, nil
}

// A header has what tags stand for.
type header struct {
	tags map[uint32]tag
	data []byte
	off  int64 // in the file
}

type tag struct{ typ, off, count uint32 }

// rpmHeader reads the header at an offset of the file, and returns where it ends.
func rpmHeader(f io.ReaderAt, off, size int64) (*header, int64, error) {
	fail := func(format string, args ...any) (*header, int64, error) {
		return nil, 0, &Error{Off: off, Err: fmt.Errorf(format, args...)}
	}
	intro := make([]byte, headerIntro)
	if _, err := f.ReadAt(intro, off); err != nil {
		return fail("%w", early(err))
	}
	if !bytes.HasPrefix(intro, []byte(headerMagic)) {
		return fail("no header: it begins with % x, where % x was expected", intro[:4], headerMagic)
	}
	count, length := int64(binary.BigEndian.Uint32(intro[8:])), int64(binary.BigEndian.Uint32(intro[12:]))
	n := count*headerEntry + length
	if count > maxTags || length > maxTagData || n > size-off-headerIntro {
		return fail("a header of %d tags and %d bytes does not fit the %d bytes that are left", count, length, size-off)
	}
	b := make([]byte, n)
	if _, err := f.ReadAt(b, off+headerIntro); err != nil {
		return fail("%w", early(err))
	}
	h := &header{tags: make(map[uint32]tag, count), data: b[count*headerEntry:], off: off + headerIntro + count*headerEntry}
	for i := range count {
		e := b[i*headerEntry:]
		h.tags[binary.BigEndian.Uint32(e)] = tag{
			binary.BigEndian.Uint32(e[4:]), binary.BigEndian.Uint32(e[8:]), binary.BigEndian.Uint32(e[12:]),
		}
	}
	return h, off + headerIntro + n, nil
}

// The types of what tags stand for.
const (
	typeInt16   = 3
	typeInt32   = 4
	typeInt64   = 5
	typeString  = 6
	typeStrings = 8
)

// numbers returns the numbers of a tag, which has none if it is not there.
func (h *header) numbers(number uint32) ([]uint64, error) {
	t, ok := h.tags[number]
	if !ok {
		return nil, nil
	}
	width := map[uint32]uint64{typeInt16: 2, typeInt32: 4, typeInt64: 8}[t.typ]
	if width == 0 || uint64(t.off)+uint64(t.count)*width > uint64(len(h.data)) {
		return nil, h.error(number, &t)
	}
	out := make([]uint64, t.count)
	for i := range out {
		b := h.data[uint64(t.off)+uint64(i)*width:]
		switch width {
		case 2:
			out[i] = uint64(binary.BigEndian.Uint16(b))
		case 4:
			out[i] = uint64(binary.BigEndian.Uint32(b))
		default:
			out[i] = binary.BigEndian.Uint64(b)
		}
	}
	return out, nil
}

// texts returns the strings of a tag.
func (h *header) texts(number uint32) ([]string, error) {
	t, ok := h.tags[number]
	if !ok {
		return nil, nil
	}
	if t.typ != typeString && t.typ != typeStrings || uint64(t.off) > uint64(len(h.data)) || uint64(t.count) > uint64(len(h.data))-uint64(t.off) {
		return nil, h.error(number, &t)
	}
	out := make([]string, t.count)
	b := h.data[t.off:]
	for i := range out {
		end := bytes.IndexByte(b, 0)
		if end < 0 {
			return nil, h.error(number, &t)
		}
		out[i] = string(b[:end])
		b = b[end+1:]
	}
	return out, nil
}

// text returns the first string of a tag, or "".
func (h *header) text(number uint32) string {
	if all, err := h.texts(number); err == nil && len(all) > 0 {
		return all[0]
	}
	return ""
}

func (h *header) error(number uint32, t *tag) error {
	return &Error{Off: h.off, Err: fmt.Errorf("tag %d, of type %d with %d values at %#x, does not fit the %d bytes of data",
		number, t.typ, t.count, t.off, len(h.data))}
}

// A packaged is what the header says of the files.
type packaged struct {
	names, links  []string
	sizes, modes  []uint64
	device, inode []uint64
	flags         []uint64
}

// packaged reads it.
func (h *header) packaged() (*packaged, error) {
	p := new(packaged)
	base, err := h.texts(tagBaseNames)
	var dirs []string
	var which []uint64
	texts := func(number uint32) (out []string) {
		if err == nil {
			out, err = h.texts(number)
		}
		return out
	}
	numbers := func(number uint32) (out []uint64) {
		if err == nil {
			out, err = h.numbers(number)
		}
		return out
	}
	dirs, which = texts(tagDirNames), numbers(tagDirIndexes)
	p.links, p.modes, p.flags = texts(tagFileLinks), numbers(tagFileModes), numbers(tagFileFlags)
	p.device, p.inode = numbers(tagFileDevices), numbers(tagFileInodes)
	if p.sizes = numbers(tagLongSizes); p.sizes == nil {
		p.sizes = numbers(tagFileSizes)
	}
	if err != nil {
		return nil, err
	}
	n := len(base)
	for _, have := range []int{len(which), len(p.links), len(p.modes), len(p.flags), len(p.device), len(p.inode), len(p.sizes)} {
		if have != n {
			return nil, &Error{Off: h.off, Err: fmt.Errorf("a list of %d files beside one of %d", have, n)}
		}
	}
	room := maxNames
	for i := range base {
		if which[i] >= uint64(len(dirs)) {
			return nil, &Error{Off: h.off, Err: fmt.Errorf("file %d is in folder %d of %d", i, which[i], len(dirs))}
		}
		name := dirs[which[i]] + base[i]
		if room -= len(name); room < 0 {
			return nil, &Error{Off: h.off, Err: errors.New("names that are too long")}
		}
		p.names = append(p.names, name)
	}
	return p, nil
}

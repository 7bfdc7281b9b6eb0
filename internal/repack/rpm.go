package repack

import (
	"bytes"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha3"
	"crypto/sha512"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"path"
	"slices"
	"strings"

	"cfi2sframe/internal/compressed"
)

// A package of RPM is a lead of 96 bytes, a header with sums and signatures, one that describes the package, and the payload, an
// archive of cpio that is compressed. All that depends on files has places of fixed size in the headers, and so their layout stays.
const (
	rpmMagic    = "\xed\xab\xee\xdb"
	rpmLead     = 96
	headerMagic = "\x8e\xad\xe8\x01\x00\x00\x00\x00"
	headerIntro = 16 // the magic number, how many entries there are, and how many bytes of contents
	headerEntry = 16
	maxEntries  = 1 << 16
	maxStore    = 256 << 20 // as rpm has it
	maxValues   = 1 << 22   // of an entry
)

// Types of what a header has.
const (
	rpmInt16       = 3
	rpmInt32       = 4
	rpmInt64       = 5
	rpmString      = 6
	rpmBin         = 7
	rpmStringArray = 8
)

// Tags of the header of sums and signatures.
const (
	sigDSA       = 267
	sigRSA       = 268
	sigSHA1      = 269 // of the other header
	sigLongSize  = 270
	sigLongPlain = 271
	sigSHA256    = 273
	sigFiles     = 274
	sigVerity    = 276
	sigOpenPGP   = 278
	sigSHA3      = 279
	sigSize      = 1000 // of the other header and the payload
	sigPGP       = 1002
	sigMD5       = 1004 // of both
	sigGPG       = 1005
	sigPGP5      = 1006
	sigPlain     = 1007 // of the payload before it is compressed
)

// Tags of the header that describes the package.
const (
	tagSize          = 1009
	tagFileSizes     = 1028
	tagFileModes     = 1030
	tagFileDigests   = 1035
	tagFileFlags     = 1037
	tagPlain         = 1046
	tagFileDevices   = 1095
	tagFileInodes    = 1096
	tagDirIndexes    = 1116
	tagBaseNames     = 1117
	tagDirNames      = 1118
	tagPayloadFormat = 1124
	tagCompressor    = 1125
	tagLongFileSizes = 5008
	tagLongSize      = 5009
	tagDigestAlgo    = 5011
	tagSignatures    = 5090
	tagPayload256    = 5092
	tagPayloadAlgo   = 5093
	tagPayload256Alt = 5097
	tagPayloadSize   = 5112
	tagPayloadPlain  = 5113
	tagPayload512    = 5121
	tagPayload512Alt = 5122
	tagPayloadSHA3   = 5123
	tagPayloadSHA3A  = 5124
)

const (
	fileConfig = 1 // of the flags of files
	sha256Algo = 8 // in OpenPGP
)

// signedBy are the tags of signatures.
var signedBy = map[uint32]string{
	sigDSA: "DSA", sigRSA: "RSA", sigOpenPGP: "OPENPGP", sigPGP: "PGP", sigGPG: "GPG", sigPGP5: "PGP5", sigFiles: "FILESIGNATURES",
	sigVerity: "VERITYSIGNATURES",
}

// digests are the sums of files, by their numbers in OpenPGP.
var digests = map[uint64]func() hash.Hash{
	1: md5.New, 2: sha1.New, 8: sha256.New, 9: sha512.New384, 10: sha512.New, 11: sha256.New224, 12: newSHA3, 14: newSHA3x512,
}

func newSHA3() hash.Hash     { return sha3.New256() }
func newSHA3x512() hash.Hash { return sha3.New512() }

// rpmError says where in the package what is wrong.
func rpmError(off int64, format string, args ...any) error {
	return fmt.Errorf("RPM package at offset %#x: %w", off, fmt.Errorf(format, args...))
}

// An rpmEntry is an entry of a header.
type rpmEntry struct {
	kind, count uint32
	at          int // of its contents in the store
}

// An rpmHeader is one of the two headers.
type rpmHeader struct {
	off     int64  // in the package
	b       []byte // all of it
	store   []byte // the part of it with the contents
	entries map[uint32]rpmEntry
}

// readHeader reads the header at an offset.
func (p *packer) readHeader(off int64) (*rpmHeader, error) {
	intro := make([]byte, headerIntro)
	if _, err := p.src.ReadAt(intro, off); err != nil {
		return nil, rpmError(off, "it ends early; a header was expected")
	}
	n, size := int64(binary.BigEndian.Uint32(intro[8:])), int64(binary.BigEndian.Uint32(intro[12:]))
	if string(intro[:8]) != headerMagic || n > maxEntries || size > maxStore || off+headerIntro+n*headerEntry+size > p.size {
		return nil, rpmError(off, "header %x; %x, at most %d entries and %d bytes, all in the package, were expected", intro, headerMagic, maxEntries, maxStore)
	}
	h := &rpmHeader{off: off, b: make([]byte, headerIntro+n*headerEntry+size), entries: make(map[uint32]rpmEntry)}
	if _, err := p.src.ReadAt(h.b, off); err != nil && err != io.EOF {
		return nil, err
	}
	h.store = h.b[headerIntro+n*headerEntry:]
	for i := range int(n) {
		at := headerIntro + i*headerEntry
		tag := binary.BigEndian.Uint32(h.b[at:])
		e := rpmEntry{kind: binary.BigEndian.Uint32(h.b[at+4:]), at: int(binary.BigEndian.Uint32(h.b[at+8:])), count: binary.BigEndian.Uint32(h.b[at+12:])}
		if e.at > len(h.store) || int64(e.count) > size {
			return nil, rpmError(off+int64(at), "tag %d at %d of the contents, and %d of it; it was expected within %d bytes of contents", tag, e.at, e.count, len(h.store))
		}
		if e.count > maxValues && e.kind != rpmBin {
			return nil, rpmError(off+int64(at), "tag %d with %d values; %d were expected at most", tag, e.count, maxValues)
		}
		if _, ok := h.entries[tag]; ok {
			return nil, rpmError(off+int64(at), "tag %d twice", tag)
		}
		h.entries[tag] = e
	}
	return h, nil
}

// wrong says that a tag is not what it should be.
func (h *rpmHeader) wrong(tag uint32, expected string) error {
	return rpmError(h.off, "tag %d; %s was expected", tag, expected)
}

// numbers returns where the numbers of a tag are, and their size in bytes, or nil if there is no such tag.
func (h *rpmHeader) numbers(tag uint32) (b []byte, size int, err error) {
	e, ok := h.entries[tag]
	if !ok {
		return nil, 0, nil
	}
	switch e.kind {
	case rpmInt16, rpmInt32, rpmInt64:
		size = 1 << (e.kind - 2)
	default:
		return nil, 0, h.wrong(tag, "an array of numbers")
	}
	if int(e.count)*size > len(h.store)-e.at {
		return nil, 0, h.wrong(tag, "an array in the header")
	}
	return h.store[e.at:][:int(e.count)*size], size, nil
}

// getNumber reads a number of so many bytes.
func getNumber(b []byte, size int) uint64 {
	switch size {
	case 2:
		return uint64(binary.BigEndian.Uint16(b))
	case 4:
		return uint64(binary.BigEndian.Uint32(b))
	}
	return binary.BigEndian.Uint64(b)
}

// ints returns the numbers of a tag.
func (h *rpmHeader) ints(tag uint32) ([]uint64, error) {
	b, size, err := h.numbers(tag)
	if err != nil {
		return nil, err
	}
	var all []uint64
	for ; len(b) > 0; b = b[size:] {
		all = append(all, getNumber(b, size))
	}
	return all, nil
}

// setInt replaces a number of a tag, if there is such a tag.
func (h *rpmHeader) setInt(tag uint32, i int, n uint64) error {
	b, size, err := h.numbers(tag)
	if err != nil || b == nil {
		return err
	}
	if (i+1)*size > len(b) || size < 8 && n>>(8*size) != 0 {
		return h.wrong(tag, fmt.Sprintf("room for %d as number %d of it", n, i))
	}
	b = b[i*size:]
	switch size {
	case 2:
		binary.BigEndian.PutUint16(b, uint16(n))
	case 4:
		binary.BigEndian.PutUint32(b, uint32(n))
	default:
		binary.BigEndian.PutUint64(b, n)
	}
	return nil
}

// texts returns where the strings of a tag are: slices of the header.
func (h *rpmHeader) texts(tag uint32) ([][]byte, error) {
	e, ok := h.entries[tag]
	if !ok {
		return nil, nil
	}
	if e.kind != rpmString && e.kind != rpmStringArray || e.kind == rpmString && e.count != 1 {
		return nil, h.wrong(tag, "strings")
	}
	b := h.store[e.at:]
	all := make([][]byte, 0, e.count)
	for range e.count {
		end := bytes.IndexByte(b, 0)
		if end < 0 {
			return nil, h.wrong(tag, "strings in the header")
		}
		all = append(all, b[:end:end])
		b = b[end+1:]
	}
	return all, nil
}

// setText replaces the first string of a tag by one of the same length, if there is such a tag.
func (h *rpmHeader) setText(tag uint32, s string) error {
	all, err := h.texts(tag)
	if err != nil || all == nil {
		return err
	}
	if len(all) == 0 || len(all[0]) != len(s) {
		return h.wrong(tag, fmt.Sprintf("a sum of %d digits", len(s)))
	}
	copy(all[0], s)
	return nil
}

// An rpmPackage is the work on a package.
type rpmPackage struct {
	*packer
	sig, main *rpmHeader
	payload   int64 // where it begins
	kind      compressed.Kind

	index          map[string]int // of files by their paths
	names          []string
	sizes, modes   []uint64
	flags          []uint64
	devices, inode []uint64
	digests        [][]byte
	sum            func() hash.Hash // of files
	links          map[[2]uint64][]int
}

// rpm converts a package of RPM. It returns the parts of the result, or nil if it is what it was.
func (p *packer) rpm() ([]part, error) {
	m := &rpmPackage{packer: p}
	if err := m.headers(); err != nil {
		return nil, err
	}
	if err := m.intact(); err != nil {
		return nil, err
	}
	if err := m.files(); err != nil {
		return nil, err
	}
	if p.opt.DryRun {
		return []part{}, m.convert(io.Discard)
	}
	p.probing = true
	err := m.convert(io.Discard)
	p.probing = false
	switch {
	case err == nil:
		return nil, nil
	case !errors.Is(err, errChanges):
		return nil, err
	}
	p.res = Result{}
	r, form, err := m.open()
	if err != nil {
		return nil, err
	}
	r.Close()
	plain := newSums()
	var size int64
	payload, err := p.store(form, func(w io.Writer) error {
		c := &counting{to: io.MultiWriter(w, plain.all)}
		err := m.convert(c)
		size = c.n
		return err
	})
	if err != nil {
		return nil, err
	}
	packed := newSums()
	if err := payload.copyTo(p.ctx, packed.all); err != nil {
		return nil, err
	}
	if err := m.sums(payload, packed, plain, size); err != nil {
		return nil, err
	}
	begin := make([]byte, rpmLead)
	if _, err := p.src.ReadAt(begin, 0); err != nil {
		return nil, err
	}
	padding := make([]byte, m.main.off-m.sig.off-int64(len(m.sig.b)))
	return []part{literal(begin), literal(m.sig.b), literal(padding), literal(m.main.b), *payload}, nil
}

// headers reads all that is before the payload.
func (m *rpmPackage) headers() error {
	lead := make([]byte, rpmLead)
	if _, err := m.src.ReadAt(lead, 0); err != nil {
		return rpmError(0, "it ends early; a lead of %d bytes was expected", rpmLead)
	}
	if major, kind := lead[4], binary.BigEndian.Uint16(lead[6:]); major < 3 || kind > 1 {
		return rpmError(4, "format %d and type %d; 3 or later, and 0 or 1, were expected", major, kind)
	}
	var err error
	if m.sig, err = m.readHeader(rpmLead); err != nil {
		return err
	}
	for tag, name := range signedBy {
		if _, ok := m.sig.entries[tag]; ok {
			return rpmError(m.sig.off, "signature %s (tag %d): %w", name, tag, ErrSigned)
		}
	}
	if m.main, err = m.readHeader(rpmLead + (int64(len(m.sig.b))+7)&^7); err != nil {
		return err
	}
	if _, ok := m.main.entries[tagSignatures]; ok {
		return rpmError(m.main.off, "signatures of files (tag %d): %w", tagSignatures, ErrSigned)
	}
	m.payload = m.main.off + int64(len(m.main.b))
	format, err := m.main.texts(tagPayloadFormat)
	if err != nil {
		return err
	}
	if len(format) > 0 && string(format[0]) != "cpio" {
		return m.main.wrong(tagPayloadFormat, "cpio")
	}
	m.kind = compressed.Gzip
	names, err := m.main.texts(tagCompressor)
	if err != nil {
		return err
	}
	if len(names) > 0 {
		m.kind = compressed.Kind(names[0])
	}
	head := make([]byte, 6)
	if n, err := m.src.ReadAt(head, m.payload); err == io.EOF {
		head = head[:n]
	} else if err != nil {
		return err
	}
	if compressed.Of(head) == compressed.None { // which is said to be compressed, or not
		m.kind = compressed.None
	}
	return nil
}

// intact returns an error if a sum of the header or of the payload is another one: with sums made new nobody would notice any more.
func (m *rpmPackage) intact() error {
	algo, err := m.main.ints(tagPayloadAlgo)
	if err != nil {
		return err
	}
	if len(algo) > 0 && algo[0] != sha256Algo {
		return m.main.wrong(tagPayloadAlgo, "SHA-256")
	}
	one, two, three, both, packed := sha1.New(), sha256.New(), sha3.New256(), md5.New(), newSums()
	_, _ = io.MultiWriter(one, two, three, both).Write(m.main.b) // sums have no errors
	payload := part{from: m.src, off: m.payload, size: m.size - m.payload}
	if err := payload.copyTo(m.ctx, io.MultiWriter(packed.all, both)); err != nil {
		return err
	}
	for _, sum := range []struct {
		in  *rpmHeader
		tag uint32
		of  hash.Hash
	}{
		{m.sig, sigSHA1, one}, {m.sig, sigSHA256, two}, {m.sig, sigSHA3, three},
		{m.main, tagPayload256, packed.sha256}, {m.main, tagPayload512, packed.sha512}, {m.main, tagPayloadSHA3, packed.sha3},
	} {
		have, err := sum.in.texts(sum.tag)
		if err != nil {
			return err
		}
		if want := hexSum(sum.of); len(have) > 0 && !strings.EqualFold(string(have[0]), want) {
			return rpmError(sum.in.off, "sum %.128q (tag %d); %s was expected, as the package is: it is damaged", have[0], sum.tag, want)
		}
	}
	have, err := m.sig.md5()
	if err != nil {
		return err
	}
	if want := both.Sum(nil); have != nil && !bytes.Equal(have, want) {
		return rpmError(m.sig.off, "sum %x (tag %d); %x was expected, as the package is: it is damaged", have, sigMD5, want)
	}
	return nil
}

// md5 returns where the sum of header and payload is, or nil.
func (h *rpmHeader) md5() ([]byte, error) {
	e, ok := h.entries[sigMD5]
	if !ok {
		return nil, nil
	}
	if e.kind != rpmBin || e.count != md5.Size || len(h.store)-e.at < md5.Size {
		return nil, h.wrong(sigMD5, "a sum of 16 bytes")
	}
	return h.store[e.at:][:md5.Size], nil
}

// files reads what the header says of files.
func (m *rpmPackage) files() error {
	h := m.main
	bases, err := h.texts(tagBaseNames)
	if err != nil {
		return err
	}
	dirs, err := h.texts(tagDirNames)
	if err != nil {
		return err
	}
	at, err := h.ints(tagDirIndexes)
	if err != nil {
		return err
	}
	if m.digests, err = h.texts(tagFileDigests); err != nil {
		return err
	}
	sizes := uint32(tagFileSizes)
	if _, ok := h.entries[tagLongFileSizes]; ok {
		sizes = tagLongFileSizes
	}
	for tag, to := range map[uint32]*[]uint64{
		sizes: &m.sizes, tagFileModes: &m.modes, tagFileFlags: &m.flags, tagFileDevices: &m.devices, tagFileInodes: &m.inode,
	} {
		if *to, err = h.ints(tag); err != nil {
			return err
		}
		if len(*to) != len(bases) {
			return h.wrong(tag, fmt.Sprintf("one for each of %d files", len(bases)))
		}
	}
	if len(at) != len(bases) || len(m.digests) != len(bases) {
		return h.wrong(tagBaseNames, fmt.Sprintf("as many as there are folders (%d) and sums (%d)", len(at), len(m.digests)))
	}
	m.index, m.links = make(map[string]int), make(map[[2]uint64][]int)
	for i, base := range bases {
		if at[i] >= uint64(len(dirs)) {
			return h.wrong(tagDirIndexes, fmt.Sprintf("a number of one of %d folders", len(dirs)))
		}
		name := clean(path.Join(string(dirs[at[i]]), string(base)))
		m.names = append(m.names, name)
		m.index[name] = i
		id := [2]uint64{m.devices[i], m.inode[i]}
		if m.modes[i]&0o170000 == 0o100000 && len(m.digests[i]) > 0 {
			m.links[id] = append(m.links[id], i)
		}
	}
	algo, err := h.ints(tagDigestAlgo)
	if err != nil {
		return err
	}
	number := uint64(1)
	if len(algo) > 0 {
		number = algo[0]
	}
	if m.sum = digests[number]; m.sum == nil {
		return h.wrong(tagDigestAlgo, "a known kind of sum (MD5, SHA-1, SHA-2 or SHA-3)")
	}
	return nil
}

// open returns the payload, decompressed.
func (m *rpmPackage) open() (io.ReadCloser, *compressed.Form, error) {
	r, form, err := compressed.NewReader(io.NewSectionReader(m.src, m.payload, m.size-m.payload), m.kind)
	if err != nil {
		return nil, nil, rpmError(m.payload, "payload: %w", err)
	}
	return r, form, nil
}

// convert writes the payload with the files converted, and puts their sizes and sums into the header.
func (m *rpmPackage) convert(w io.Writer) error {
	r, _, err := m.open()
	if err != nil {
		return err
	}
	defer r.Close()
	c := &cpioReader{in: r, files: m}
	return c.copy(m.ctx, w, func(e *cpioEntry, r io.Reader) (changed, read []byte, err error) {
		f := candidate{name: m.names[e.file], size: e.size}
		if m.flags[e.file]&fileConfig != 0 {
			f.stays = Conffile
		}
		changed, read, err = m.edit(f, r)
		if changed == nil || err != nil {
			return nil, read, err
		}
		return changed, read, m.update(e.file, read, changed)
	})
}

// hexSum returns a sum in hexadecimal digits.
func hexSum(h hash.Hash) string { return fmt.Sprintf("%x", h.Sum(nil)) }

// update puts the size and the sum of a file that changed into the header, for all its names.
func (m *rpmPackage) update(file int, before, after []byte) error {
	was, now := m.sum(), m.sum()
	was.Write(before)
	now.Write(after)
	old, sum := hexSum(was), hexSum(now)
	if have := string(m.digests[file]); !strings.EqualFold(have, old) {
		return rpmError(m.main.off, "tag %d has %s for %s; %s was expected, as the file is", tagFileDigests, have, m.names[file], old)
	}
	names := m.links[[2]uint64{m.devices[file], m.inode[file]}]
	if !slices.Contains(names, file) {
		names = []int{file}
	}
	for _, i := range names {
		if i != file && (m.sizes[i] != m.sizes[file] || !strings.EqualFold(string(m.digests[i]), old)) {
			return rpmError(m.main.off, "%s is another name of %s, and has another size or sum", m.names[i], m.names[file])
		}
	}
	for _, i := range names {
		for _, tag := range []uint32{tagFileSizes, tagLongFileSizes} {
			if err := m.main.setInt(tag, i, uint64(len(after))); err != nil {
				return err
			}
		}
		copy(m.digests[i], sum)
	}
	for _, tag := range []uint32{tagSize, tagLongSize} {
		all, err := m.main.ints(tag)
		if err == nil && len(all) > 0 {
			err = m.main.setInt(tag, 0, all[0]+uint64(len(after)-len(before)))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// payloadSums are the sums of a payload.
type payloadSums struct {
	sha256, sha512, sha3 hash.Hash
	all                  io.Writer
}

func newSums() *payloadSums {
	s := &payloadSums{sha256: sha256.New(), sha512: sha512.New(), sha3: sha3.New256()}
	s.all = io.MultiWriter(s.sha256, s.sha512, s.sha3)
	return s
}

// A counting writer counts what is written.
type counting struct {
	to io.Writer
	n  int64
}

func (c *counting) Write(p []byte) (int, error) {
	n, err := c.to.Write(p)
	c.n += int64(n)
	return n, err
}

// sums puts the sums of the payload, which has so many bytes when it is not compressed, into the header, and then those of the
// header, and of both, into the other one.
func (m *rpmPackage) sums(payload *part, packed, plain *payloadSums, size int64) error {
	h := m.main
	err := errors.Join(
		h.setText(tagPayload256, hexSum(packed.sha256)), h.setText(tagPayload256Alt, hexSum(plain.sha256)),
		h.setText(tagPayload512, hexSum(packed.sha512)), h.setText(tagPayload512Alt, hexSum(plain.sha512)),
		h.setText(tagPayloadSHA3, hexSum(packed.sha3)), h.setText(tagPayloadSHA3A, hexSum(plain.sha3)),
		h.setInt(tagPayloadSize, 0, uint64(payload.size)), h.setInt(tagPayloadPlain, 0, uint64(size)), h.setInt(tagPlain, 0, uint64(size)),
	)
	if err != nil {
		return err
	}
	one, two, three := sha1.New(), sha256.New(), sha3.New256()
	both := md5.New()
	_, _ = io.MultiWriter(one, two, three, both).Write(h.b) // sums have no errors
	if err := payload.copyTo(m.ctx, both); err != nil {
		return err
	}
	s, total := m.sig, uint64(int64(len(h.b))+payload.size)
	err = errors.Join(
		s.setText(sigSHA1, hexSum(one)), s.setText(sigSHA256, hexSum(two)), s.setText(sigSHA3, hexSum(three)),
		s.setInt(sigSize, 0, total), s.setInt(sigLongSize, 0, total), s.setInt(sigPlain, 0, uint64(size)), s.setInt(sigLongPlain, 0, uint64(size)),
	)
	if err != nil {
		return err
	}
	sum, err := s.md5()
	copy(sum, both.Sum(nil)) // if there is one
	return err
}

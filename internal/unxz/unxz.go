// Package unxz reads xz files within bounds, such as the contents of .gnu_debugdata and those of packages. LZMA2 is
// left to a library. The container is read here, because the library's own reader takes as much memory for a
// dictionary as each block asks for, up to 4 GiB.
package unxz

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"hash/crc64"
	"io"
	"slices"

	"github.com/ulikunitz/xz/lzma"
)

// From "The .xz File Format", version 1.2.1.
const (
	magic       = "\xfd7zXZ\x00"
	headerSize  = 12
	lzma2       = 0x21 // the filter
	isPacked    = 0x40 // of the flags of a block: its size in the file is there
	isUnpacked  = 0x80 // its size when decompressed is there
	flagsChosen = isPacked | isUnpacked
)

// maxReads bounds how often the library reads more than a byte at once, which it does for each chunk. xz writes one for
// 64 KiB of compressed data, or for 2 MiB of what it unpacks to, which takes some hundred bytes at least; but a chunk of 12 bytes
// can make it build its tables anew, for ten microseconds. A stream may have one more for each perRead bytes of it.
const (
	maxReads = 32768
	perRead  = 128
)

// A source is what the library reads from.
type source struct {
	in    *bufio.Reader
	off   int64 // of what comes next
	reads int64
	long  bool // perRead counts
}

func (s *source) ReadByte() (byte, error) {
	b, err := s.in.ReadByte()
	if err == nil {
		s.off++
	}
	return b, err
}

func (s *source) Read(p []byte) (int, error) {
	if len(p) > 1 {
		s.reads++
	}
	most := int64(maxReads)
	if s.long {
		most += s.off / perRead
	}
	if s.reads > most {
		return 0, fmt.Errorf("an xz file with more than %d chunks in %d bytes", most, s.off)
	}
	return s.part(p)
}

func (s *source) part(p []byte) (int, error) {
	n, err := s.in.Read(p)
	s.off += int64(n)
	return n, err
}

// full fills p.
func (s *source) full(p []byte) error {
	for len(p) > 0 {
		n, err := s.part(p)
		p = p[n:]
		if err != nil {
			return early(err)
		}
	}
	return nil
}

// A reader decompresses the blocks of a stream, one after the other.
type reader struct {
	in    *source
	kind  byte             // of checksums
	check func() hash.Hash // a new sum of a block
	room  int64            // for dictionaries, in bytes
	all   bool             // room is for each, and there is more than a stream
	block *lzma.Reader2    // or nil between two blocks
	count uint64           // blocks so far
	begin int64            // where the data of this one began
	size  int64            // of this one's header, in bytes
	out   int64            // total when it began
	sum   hash.Hash
	index hash.Hash32 // of the records of the blocks so far, which the index has to repeat
	spare int64       // what more dictionaries may take, if all is set: it takes time to make one
	total int64       // bytes that came out
}

// Where all is set, dictionaries of all blocks may take so much memory together, one after the other: some times that of the largest, and more
// for each byte that comes out.
const (
	anySpare     = 4
	sparePerByte = 16
)

// NewReader returns what decompresses the first stream of b, as long as the dictionaries of its blocks
// take up to most bytes of memory together.
func NewReader(b []byte, most int64) (io.Reader, error) {
	r := &reader{in: &source{in: bufio.NewReader(bytes.NewReader(b))}, room: most}
	return r, r.header()
}

// NewStream returns what decompresses all streams of a file, as long as no dictionary takes more than most bytes.
func NewStream(in io.Reader, most int64) (io.Reader, error) {
	r := &reader{in: &source{in: bufio.NewReader(in), long: true}, room: most, all: true, spare: anySpare * most}
	return r, r.header()
}

// header reads the header of a stream.
func (r *reader) header() error {
	b := make([]byte, headerSize)
	if err := r.in.full(b); err != nil && err != io.ErrUnexpectedEOF {
		return err
	} else if err != nil || string(b[:len(magic)]) != magic || crc32.ChecksumIEEE(b[6:8]) != binary.LittleEndian.Uint32(b[8:]) {
		return errors.New("not an xz file: its header was expected")
	}
	if b[6] != 0 {
		return fmt.Errorf("flags %#02x of an xz file, which are reserved; 0 was expected", b[6])
	}
	r.kind = b[7]
	switch r.kind {
	case 0: // nothing is checked
		r.check = func() hash.Hash { return nil }
	case 1:
		r.check = func() hash.Hash { return crc32.NewIEEE() }
	case 4:
		r.check = func() hash.Hash { return crc64.New(crc64.MakeTable(crc64.ECMA)) }
	case 10:
		r.check = sha256.New
	default:
		return fmt.Errorf("checksum type %d of an xz file; 0, 1, 4 or 10 was expected", b[7])
	}
	r.count, r.index = 0, crc32.NewIEEE()
	return nil
}

func (r *reader) Read(p []byte) (int, error) {
	for len(p) > 0 {
		if r.block == nil {
			if err := r.next(); err != nil {
				return 0, err
			}
		}
		n, err := r.block.Read(p)
		r.total += int64(n)
		r.spare += sparePerByte * int64(n)
		if r.sum != nil {
			r.sum.Write(p[:n])
		}
		if err == io.EOF {
			err = r.end()
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
	return 0, nil
}

// next begins a block, or returns io.EOF after the last one. The index of all blocks, which follows, is read where all is set.
func (r *reader) next() error {
	size, err := r.in.ReadByte()
	if err != nil {
		return early(err)
	}
	for size == 0 {
		if !r.all {
			return io.EOF
		}
		if err := r.another(); err != nil {
			return err
		}
		if size, err = r.in.ReadByte(); err != nil {
			return early(err)
		}
	}
	header := make([]byte, (int(size)+1)*4)
	header[0] = size
	if err := r.in.full(header[1:]); err != nil {
		return err
	}
	sum := len(header) - 4
	if crc32.ChecksumIEEE(header[:sum]) != binary.LittleEndian.Uint32(header[sum:]) {
		return errors.New("the header of an xz block has another checksum")
	}
	dict, unpacked, err := dictionary(header[1:sum])
	if err != nil {
		return err
	}
	dict = max(min(dict, unpacked), lzma.MinDictCap)
	if dict > r.room {
		return fmt.Errorf("an xz block has a dictionary of %d bytes; %d were expected at most", dict, r.room)
	}
	if !r.all {
		r.room -= dict
	} else if r.spare -= dict; r.spare < 0 {
		return fmt.Errorf("an xz block has a dictionary of %d bytes, and there were too many of the kind before, for the %d bytes in those", dict, r.total)
	}
	r.count++
	r.begin, r.size, r.out, r.sum = r.in.off, int64(len(header)), r.total, r.check()
	r.block, err = lzma.Reader2Config{DictCap: int(dict)}.NewReader2(r.in)
	return err
}

// dictionary returns how many bytes the dictionary of a block may have, by its header, and how many the block unpacks to at most.
func dictionary(header []byte) (dict, unpacked int64, err error) {
	flags, fields := header[0], bytes.NewReader(header[1:])
	unpacked = lzma.MaxDictCap
	for _, field := range []byte{isPacked, isUnpacked} {
		if flags&field == 0 {
			continue
		}
		n, err := binary.ReadUvarint(fields)
		if err != nil {
			return 0, 0, errors.New("the header of an xz block ends early")
		}
		if field == isUnpacked {
			unpacked = int64(min(n, lzma.MaxDictCap))
		}
	}
	filter := make([]byte, 3) // which, how many bytes of properties, and these
	if _, err := io.ReadFull(fields, filter); err != nil || flags&^flagsChosen != 0 || filter[0] != lzma2 || filter[1] != 1 {
		return 0, 0, errors.New("an xz block with other filters; LZMA2 alone was expected")
	}
	if padding := header[len(header)-fields.Len():]; !zeros(padding) {
		return 0, 0, fmt.Errorf("the header of an xz block is padded with %x; zeros were expected", padding)
	}
	dict, err = lzma.DecodeDictCap(filter[2])
	return dict, unpacked, err
}

// MaxHead is how many bytes of a file Form may want.
const MaxHead = headerSize + 4*256

// Form says how a file was made that begins with head: the type of its checksums, and how many bytes the dictionary of its first
// block has, or 0 if it has no blocks. What it says is sound if the file can be read.
func Form(head []byte) (check byte, dict int64, err error) {
	if len(head) <= headerSize {
		return 0, 0, io.ErrUnexpectedEOF
	}
	check, head = head[7], head[headerSize:]
	end := int(head[0]) * 4 // of the block's header, but for its checksum
	switch {
	case end == 0:
		return check, 0, nil
	case len(head) < end:
		return 0, 0, io.ErrUnexpectedEOF
	}
	dict, _, err = dictionary(head[1:end])
	return check, dict, err
}

// end checks what follows a block.
func (r *reader) end() error {
	unpadded := r.size + r.in.off - r.begin
	if r.sum != nil {
		unpadded += int64(r.sum.Size())
	}
	r.index.Write(binary.AppendUvarint(binary.AppendUvarint(nil, uint64(unpadded)), uint64(r.total-r.out)))
	rest := make([]byte, -(r.in.off-r.begin)&3)
	if err := r.in.full(rest); err != nil {
		return err
	}
	if !zeros(rest) {
		return fmt.Errorf("an xz block is padded with %x; zeros were expected", rest)
	}
	r.block = nil
	if r.sum == nil {
		return nil
	}
	have := make([]byte, r.sum.Size())
	if err := r.in.full(have); err != nil {
		return err
	}
	want := r.sum.Sum(nil)
	if r.sum.Size() < sha256.Size { // that of Go has the bytes the other way round
		slices.Reverse(want)
	}
	if !bytes.Equal(have, want) {
		return errors.New("an xz block has another checksum")
	}
	return nil
}

// another reads the end of a stream, whose index has begun, and the header of the next one, or returns io.EOF if
// there is none.
func (r *reader) another() error {
	index, records := crc32.NewIEEE(), crc32.NewIEEE()
	begin := r.in.off - 1
	index.Write([]byte{0})
	byByte := func() (byte, error) {
		b, err := r.in.ReadByte()
		index.Write([]byte{b})
		records.Write([]byte{b})
		return b, err
	}
	count, err := binary.ReadUvarint(readByte(byByte))
	if err == nil && count != r.count {
		return fmt.Errorf("the index of an xz file is of %d blocks; %d were there", count, r.count)
	}
	records.Reset()
	for i := uint64(0); err == nil && i < 2*count; i++ {
		_, err = binary.ReadUvarint(readByte(byByte))
	}
	if err == nil && records.Sum32() != r.index.Sum32() {
		return errors.New("the index of an xz file has other sizes than the blocks that were there")
	}
	for err == nil && (r.in.off-begin)&3 != 0 {
		var b byte
		if b, err = byByte(); b != 0 {
			return fmt.Errorf("the index of an xz file is padded with %#02x; 0 was expected", b)
		}
	}
	if err != nil {
		return early(err)
	}
	end := make([]byte, 4+headerSize) // the index's checksum, and the footer
	if err := r.in.full(end); err != nil {
		return err
	}
	if binary.LittleEndian.Uint32(end) != index.Sum32() {
		return errors.New("the index of an xz file has another checksum")
	}
	size := (int64(binary.LittleEndian.Uint32(end[8:])) + 1) * 4
	switch foot := end[4:]; {
	case string(foot[10:]) != "YZ" || crc32.ChecksumIEEE(foot[4:10]) != binary.LittleEndian.Uint32(foot):
		return errors.New("the end of an xz stream is not what was expected")
	case foot[8] != 0 || foot[9] != r.kind:
		return fmt.Errorf("the end of an xz stream has the flags %x; 00%02x were expected, as at its beginning", foot[8:10], r.kind)
	case size != r.in.off-headerSize-begin:
		return fmt.Errorf("the end of an xz stream says that its index has %d bytes; %d were expected", size, r.in.off-headerSize-begin)
	}
	// Zeros may follow, four at a time.
	for zeros := 0; ; zeros++ {
		next, err := r.in.in.Peek(1)
		if err == io.EOF && zeros%4 == 0 {
			return io.EOF
		}
		if err != nil {
			return early(err)
		}
		if next[0] != 0 {
			if zeros%4 != 0 {
				return fmt.Errorf("%d zeros between two xz streams; a multiple of 4 was expected", zeros)
			}
			return r.header()
		}
		r.in.ReadByte() // which is the one there
	}
}

// zeros says whether b has nothing else, as padding must.
func zeros(b []byte) bool { return len(bytes.Trim(b, "\x00")) == 0 }

// early is an error in the middle of a file: an end is too early there.
func early(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// A readByte is a function as an io.ByteReader.
type readByte func() (byte, error)

func (f readByte) ReadByte() (byte, error) { return f() }

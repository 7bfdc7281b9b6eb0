// Package unxz reads xz files within bounds, such as the contents of .gnu_debugdata. LZMA2 is left to
// a library. The container is read here, because the library's own reader takes as much memory for a
// dictionary as each block asks for, up to 4 GiB.
package unxz

import (
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
// 64 KiB of compressed data, and so some thousands for all that is accepted of a file; but a chunk of 12 bytes can make
// it build its tables anew, for ten microseconds.
const maxReads = 32768

// A source is what the library reads from.
type source struct {
	*bytes.Reader
	reads int
}

func (s *source) Read(p []byte) (int, error) {
	if len(p) > 1 {
		s.reads++
	}
	if s.reads > maxReads {
		return 0, fmt.Errorf("an xz file with more than %d chunks", maxReads)
	}
	return s.Reader.Read(p)
}

// A reader decompresses the blocks of a stream, one after the other.
type reader struct {
	in    *source
	check func() hash.Hash // a new sum of a block
	room  int64            // for dictionaries, in bytes
	block *lzma.Reader2    // or nil between two blocks
	begin int              // what was left of in when it began
	sum   hash.Hash
}

// NewReader returns what decompresses the first stream of b, as long as the dictionaries of its blocks
// take up to most bytes of memory together.
func NewReader(b []byte, most int64) (io.Reader, error) {
	if len(b) < headerSize || string(b[:len(magic)]) != magic ||
		crc32.ChecksumIEEE(b[6:8]) != binary.LittleEndian.Uint32(b[8:]) {
		return nil, errors.New("not an xz file: its header was expected")
	}
	r := &reader{in: &source{Reader: bytes.NewReader(b[headerSize:])}, room: most}
	switch b[7] {
	case 0: // nothing is checked
		r.check = func() hash.Hash { return nil }
	case 1:
		r.check = func() hash.Hash { return crc32.NewIEEE() }
	case 4:
		r.check = func() hash.Hash { return crc64.New(crc64.MakeTable(crc64.ECMA)) }
	case 10:
		r.check = sha256.New
	default:
		return nil, fmt.Errorf("checksum type %d of an xz file; 0, 1, 4 or 10 was expected", b[7])
	}
	return r, nil
}

func (r *reader) Read(p []byte) (int, error) {
	for len(p) > 0 {
		if r.block == nil {
			if err := r.next(); err != nil {
				return 0, err
			}
		}
		n, err := r.block.Read(p)
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

// next begins a block, or returns io.EOF after the last one. The index of all blocks, which follows, is for
// readers that seek.
func (r *reader) next() error {
	size, err := r.in.ReadByte()
	if err != nil {
		return io.ErrUnexpectedEOF
	}
	if size == 0 {
		return io.EOF
	}
	header := make([]byte, (int(size)+1)*4)
	header[0] = size
	if _, err := io.ReadFull(r.in.Reader, header[1:]); err != nil {
		return io.ErrUnexpectedEOF
	}
	sum := len(header) - 4
	if crc32.ChecksumIEEE(header[:sum]) != binary.LittleEndian.Uint32(header[sum:]) {
		return errors.New("the header of an xz block has another checksum")
	}
	dict, err := dictionary(header[1:sum])
	if err != nil {
		return err
	}
	if dict > r.room {
		return fmt.Errorf("an xz block has a dictionary of %d bytes; %d were expected at most", dict, r.room)
	}
	r.room -= dict
	r.begin, r.sum = r.in.Len(), r.check()
	r.block, err = lzma.Reader2Config{DictCap: int(dict)}.NewReader2(r.in)
	return err
}

// dictionary returns how many bytes the dictionary of a block has to have, by its header.
func dictionary(header []byte) (int64, error) {
	flags, fields := header[0], bytes.NewReader(header[1:])
	unpacked := int64(lzma.MaxDictCap)
	for _, field := range []byte{isPacked, isUnpacked} {
		if flags&field == 0 {
			continue
		}
		n, err := binary.ReadUvarint(fields)
		if err != nil {
			return 0, errors.New("the header of an xz block ends early")
		}
		if field == isUnpacked {
			unpacked = int64(min(n, lzma.MaxDictCap))
		}
	}
	filter := make([]byte, 3) // which, how many bytes of properties, and these
	if _, err := io.ReadFull(fields, filter); err != nil || flags&^flagsChosen != 0 || filter[0] != lzma2 || filter[1] != 1 {
		return 0, errors.New("an xz block with other filters; LZMA2 alone was expected")
	}
	dict, err := lzma.DecodeDictCap(filter[2])
	return max(min(dict, unpacked), lzma.MinDictCap), err
}

// end checks what follows a block.
func (r *reader) end() error {
	rest := make([]byte, -(r.begin-r.in.Len())&3)
	if _, err := io.ReadFull(r.in.Reader, rest); err != nil {
		return io.ErrUnexpectedEOF
	}
	r.block = nil
	if r.sum == nil {
		return nil
	}
	have := make([]byte, r.sum.Size())
	if _, err := io.ReadFull(r.in.Reader, have); err != nil {
		return io.ErrUnexpectedEOF
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

package pack

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz/lzma"

	"cfi2sframe/internal/rpm"
	"cfi2sframe/internal/unxz"
)

// A compression is what is known by the first bytes of a file.
type compression uint8

const (
	stored compression = iota
	gzipped
	xzipped
	zstandard
	bzipped
	lzmaAlone
)

// compressionOf knows magics from RFC 1952, "The .xz File Format", RFC 8878 (where frames to be skipped have one of
// 16 numbers), and the source of bzip2. The header of lzma, before there was xz, has none: it begins with the usual properties,
// a dictionary that is a multiple of 64 KiB, and a size that is not known or less than 2^48.
func compressionOf(head []byte) compression {
	switch {
	case bytes.HasPrefix(head, []byte("\x1f\x8b")):
		return gzipped
	case bytes.HasPrefix(head, []byte("\xfd7zXZ\x00")):
		return xzipped
	case bytes.HasPrefix(head, []byte("\x28\xb5\x2f\xfd")),
		len(head) >= 4 && head[0]&0xf0 == 0x50 && bytes.Equal(head[1:4], []byte("\x2a\x4d\x18")):
		return zstandard
	case len(head) >= 10 && bytes.HasPrefix(head, []byte("BZh")) && head[3] >= '1' && head[3] <= '9' &&
		(string(head[4:10]) == "1AY&SY" || string(head[4:10]) == "\x17rE8P\x90"):
		return bzipped
	case len(head) >= lzma.HeaderLen && bytes.HasPrefix(head, []byte("\x5d\x00\x00")) && head[12] == head[11] && (head[12] == 0 || head[12] == 0xff):
		return lzmaAlone
	}
	return stored
}

// Memory that a decompressor may take for what it refers back to: that of xz -9 is half of it.
const maxWindow = 128 << 20

// A stream is a part of a package, unpacked, as it is read from the beginning to the end.
type stream struct {
	r      *reader
	part   string
	in     io.Reader
	off    int64 // of what comes next
	packed bool
	close  func()
}

// unpack returns what a part of the package unpacks to.
func (r *reader) unpack(part string, in io.Reader) (*stream, error) {
	s := &stream{r: r, part: part, close: func() {}}
	packed := bufio.NewReaderSize(in, 1<<16)
	head, err := packed.Peek(lzma.HeaderLen)
	if err != nil && err != io.EOF {
		return nil, err
	}
	how := compressionOf(head)
	s.packed = how != stored
	switch how {
	case stored:
		s.in = packed
	case gzipped:
		s.in, err = gzip.NewReader(packed)
	case xzipped:
		s.in, err = unxz.NewStream(packed, maxWindow)
	case lzmaAlone:
		s.in, err = lzma.ReaderConfig{DictCap: maxWindow}.NewReader(packed)
	case bzipped:
		s.in = bzip2.NewReader(packed)
	case zstandard:
		var d *zstd.Decoder
		d, err = zstd.NewReader(packed, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err == nil {
			s.in, s.close = d, d.Close
		}
	}
	if how != stored && err != nil {
		return nil, s.error("", err)
	}
	return s, nil
}

func (s *stream) Read(b []byte) (int, error) {
	if err := s.r.ctx.Err(); err != nil {
		return 0, err
	}
	if s.r.budget <= 0 && len(b) > 0 {
		return 0, fmt.Errorf("it unpacks to more than %d bytes; that much was expected at most", s.r.given)
	}
	n, err := s.in.Read(b[:min(int64(len(b)), s.r.budget)])
	s.off += int64(n)
	s.r.budget -= int64(n)
	return n, err
}

// drain reads what is left, for checksums at the end.
func (s *stream) drain() error {
	_, err := io.CopyBuffer(io.Discard, struct{ io.Reader }{s}, make([]byte, 1<<16))
	if err != nil {
		return s.error("", err)
	}
	return nil
}

// error says where an error was found. Member may be "".
func (s *stream) error(member string, err error) error {
	off := s.off
	var in *rpm.Error
	if errors.As(err, &in) {
		if in.Payload < 0 {
			return rpmError(in)
		}
		off, err = in.Payload, in.Err
	}
	var known *Error
	if errors.As(err, &known) || s.r.ctx.Err() != nil {
		return err
	}
	return &Error{Part: s.part, Off: off, Packed: s.packed, Member: member, Err: early(err)}
}

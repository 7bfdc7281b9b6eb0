// Package compressed reads streams that gzip, xz, zstd, bzip2 or lzma made, and writes others of the same kind, as the parts of
// packages are: with the same checks, dictionary or window, and as well as the library can.
//
// What is written depends on what is compressed, and not on the number of workers, the machine or the day. Only for xz it also depends
// on whether the program of that name is there, and which: the library's results are a sixth larger, or more.
//
// Reading takes bounded memory, whatever a stream asks for. Not in here: how much may come out, which the caller knows.
package compressed

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	dsnet "github.com/dsnet/compress/bzip2"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz/lzma"
)

// A Kind is a way to compress.
type Kind string

// The kinds, by the names that rpm has for them.
const (
	None  Kind = "none"
	Gzip  Kind = "gzip"
	XZ    Kind = "xz"
	Zstd  Kind = "zstd"
	Bzip2 Kind = "bzip2"
	LZMA  Kind = "lzma" // before xz
)

// maxDictionary is how much memory, in bytes, a stream may ask for to be read. xz -9 asks for 64 MiB, zstd --ultra -22 for 128.
const maxDictionary = 128 << 20

// magics are how streams begin: from RFC 1952, "The .xz File Format", RFC 8878, and the source of bzip2.
var magics = map[Kind]string{Gzip: "\x1f\x8b", XZ: "\xfd7zXZ\x00", Zstd: "\x28\xb5\x2f\xfd", Bzip2: "BZh"}

// HeadSize is how many bytes of a stream say what made it, if there are so many.
const HeadSize = lzma.HeaderLen

// Of says what made a stream that begins with head. One of zstd may begin with frames to be skipped, which have one of 16 numbers; that of
// bzip2 has a digit and the magic number of a block or of the end. That of lzma has none: it is told by the usual properties, a
// dictionary that is a multiple of 64 KiB, and a size that is not known or less than 2^48.
func Of(head []byte) Kind {
	begins := func(k Kind) bool { return bytes.HasPrefix(head, []byte(magics[k])) }
	switch {
	case begins(Gzip):
		return Gzip
	case begins(XZ):
		return XZ
	case begins(Zstd), len(head) >= 4 && head[0]&0xf0 == 0x50 && string(head[1:4]) == "\x2a\x4d\x18":
		return Zstd
	case begins(Bzip2) && len(head) >= 10 && head[3] >= '1' && head[3] <= '9' &&
		(string(head[4:10]) == "1AY&SY" || string(head[4:10]) == "\x17rE8P\x90"):
		return Bzip2
	case len(head) >= HeadSize && bytes.HasPrefix(head, []byte("\x5d\x00\x00")) && head[12] == head[11] && (head[12] == 0 || head[12] == 0xff):
		return LZMA
	}
	return None
}

// A Form is how a stream was made.
type Form struct {
	Kind Kind
	// Size is that of the package which the stream is a part of, in bytes: what compresses for a large one may take more memory.
	Size int64

	gzip  gzip.Header
	level int // of gzip
	xz    xzForm
	zstd  zstdForm
	lzma  lzmaForm
	block int // of bzip2, in units of 100,000 bytes
}

type zstdForm struct {
	window   int
	checksum bool
}

type lzmaForm struct {
	properties lzma.Properties
	dictionary int
}

// bufferSize is how many bytes are read at a time.
const bufferSize = 64 << 10

// NewReader returns what decompresses r, which k made, and how it was made. At the end of what it returns r is at its end, too.
func NewReader(r io.Reader, k Kind) (io.ReadCloser, *Form, error) {
	in := bufio.NewReaderSize(r, bufferSize)
	if m, ok := magics[k]; ok {
		if head, err := in.Peek(len(m)); string(head) != m {
			if err != nil && err != io.EOF {
				return nil, nil, err
			}
			return nil, nil, fmt.Errorf("it begins with %x; the %x of %s was expected", head, m, k)
		}
	}
	return open(in, k)
}

// Open returns what decompresses r, and what made it. Unlike NewReader it reads streams whose form another one cannot have: those that
// begin with frames to be skipped.
func Open(r io.Reader) (io.ReadCloser, Kind, error) {
	in := bufio.NewReaderSize(r, bufferSize)
	head, err := in.Peek(HeadSize)
	if err != nil && err != io.EOF {
		return nil, None, err
	}
	k := Of(head)
	out, _, err := open(in, k)
	return out, k, err
}

// open returns what decompresses in, which k made.
func open(in *bufio.Reader, k Kind) (io.ReadCloser, *Form, error) {
	f := &Form{Kind: k}
	out, err := f.reader(in)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, nil, k.failed(err)
	}
	return &reader{f, in, out}, f, nil
}

// failed names the kind in an error, as some libraries do themselves.
func (k Kind) failed(err error) error {
	if strings.HasPrefix(err.Error(), string(k)) {
		return err
	}
	return fmt.Errorf("%s: %w", k, err)
}

// reader returns what decompresses in, and fills in the form.
func (f *Form) reader(in *bufio.Reader) (io.ReadCloser, error) {
	switch f.Kind {
	case None:
		return io.NopCloser(in), nil
	case Gzip:
		head, err := in.Peek(gzipHeader)
		if err != nil {
			return nil, err
		}
		f.level = gzip.BestCompression
		if head[gzipExtra] == gzipFastest {
			f.level = gzip.BestSpeed
		}
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, err
		}
		f.gzip = z.Header
		return z, nil
	case XZ:
		return newXZReader(in, &f.xz)
	case Zstd:
		return f.zstdReader(in)
	case Bzip2:
		head, err := in.Peek(4)
		if err != nil {
			return nil, err
		}
		if f.block = int(head[3]) - '0'; f.block < 1 || f.block > 9 {
			return nil, fmt.Errorf("block size %q; 1 to 9 was expected", head[3])
		}
		return io.NopCloser(bzip2.NewReader(in)), nil
	case LZMA:
		return f.lzmaReader(in)
	}
	return nil, errors.New("not a known way to compress")
}

// From RFC 1952.
const (
	gzipHeader  = 10
	gzipExtra   = 8 // where it says how much the encoder tried
	gzipFastest = 4
)

// zstdReader is reader for zstd.
func (f *Form) zstdReader(in *bufio.Reader) (io.ReadCloser, error) {
	head, err := in.Peek(zstd.HeaderMaxSize)
	if err != nil && err != io.EOF {
		return nil, err
	}
	var h zstd.Header
	if err := h.Decode(head); err != nil {
		return nil, err
	}
	window := h.WindowSize
	if h.SingleSegment {
		window = h.FrameContentSize
	}
	if window > maxDictionary {
		return nil, fmt.Errorf("a window of %d bytes; %d were expected at most", window, maxDictionary)
	}
	f.zstd = zstdForm{window: 1 << 20, checksum: h.HasCheckSum}
	for uint64(f.zstd.window) < window {
		f.zstd.window *= 2
	}
	z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(maxDictionary), zstd.WithDecoderMaxMemory(maxMemory))
	if err != nil {
		return nil, err
	}
	return z.IOReadCloser(), nil
}

// maxMemory is what the library takes for the size of a stream, which is the caller's business.
const maxMemory = 1 << 62

// lzmaReader is reader for lzma.
func (f *Form) lzmaReader(in *bufio.Reader) (io.ReadCloser, error) {
	head, err := in.Peek(lzma.HeaderLen)
	if err != nil {
		return nil, err
	}
	if f.lzma.properties, err = lzma.PropertiesForCode(head[0]); err != nil {
		return nil, err
	}
	size := binary.LittleEndian.Uint32(head[1:])
	if size > maxDictionary {
		return nil, fmt.Errorf("a dictionary of %d bytes; %d were expected at most", size, maxDictionary)
	}
	f.lzma.dictionary = max(int(size), lzma.MinDictCap)
	z, err := lzma.ReaderConfig{DictCap: f.lzma.dictionary}.NewReader(in)
	if err != nil {
		return nil, err
	}
	return io.NopCloser(z), nil
}

// A reader names the kind in errors, and expects nothing after the end.
type reader struct {
	form *Form
	in   *bufio.Reader
	io.ReadCloser
}

func (r *reader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if err == nil || r.form.Kind == None {
		return n, err
	}
	if err == io.EOF {
		if err = r.end(); err == io.EOF {
			return n, err
		}
	}
	return n, r.form.Kind.failed(err)
}

// end returns io.EOF if that is what is left.
func (r *reader) end() error {
	_, err := r.in.ReadByte()
	if err == nil {
		return errors.New("there is something after its end")
	}
	return err
}

// anyDictionary is the usual dictionary of xz, in bytes. A larger one has at most as many as the package: it takes some 20 times as
// much memory, and may have been made for nothing.
const anyDictionary = 8 << 20

// dictionary returns how many bytes of n a dictionary gets for compressing.
func (f *Form) dictionary(n int) int { return int(min(int64(n), max(anyDictionary, f.Size))) }

// NewWriter returns what compresses to w in this form, by up to so many workers at a time, until ctx ends.
func (f *Form) NewWriter(ctx context.Context, w io.Writer, workers int) (io.WriteCloser, error) {
	switch f.Kind {
	case None:
		return nopCloser{w}, nil
	case Gzip:
		z, err := gzip.NewWriterLevel(w, f.level)
		if err != nil {
			return nil, err
		}
		z.Header = f.gzip
		return z, nil
	case XZ:
		return newXZWriter(ctx, w, xzForm{f.xz.check, f.dictionary(f.xz.dictionary)}, min(workers, f.xzWorkers()))
	case Zstd:
		return zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithWindowSize(f.window()),
			zstd.WithEncoderCRC(f.zstd.checksum), zstd.WithEncoderConcurrency(1))
	case Bzip2:
		return dsnet.NewWriter(w, &dsnet.WriterConfig{Level: f.block})
	case LZMA:
		properties := f.lzma.properties
		return lzma.WriterConfig{Properties: &properties, DictCap: f.dictionary(f.lzma.dictionary), EOSMarker: true}.NewWriter(w)
	}
	return nil, fmt.Errorf("%s is not a known way to compress", f.Kind)
}

// window is dictionary for zstd, which takes powers of two.
func (f *Form) window() int {
	w := f.zstd.window
	for w > anyDictionary && w > f.dictionary(w) {
		w /= 2
	}
	return w
}

// A nopCloser is a writer with nothing to close.
type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

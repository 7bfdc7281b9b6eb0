// Package compressed reads the parts of packages, compressed by gzip, xz, zstd, bzip2 or lzma, and writes all but bzip2
// in the form of another stream: with the same checksums and dictionary or window.
//
// The output depends on the input only, for xz also on the program xz. The number of workers does not change it.
//
// Reading takes bounded memory, whatever a stream asks for. Unpacked bytes spend from a budget.
package compressed

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/bzip2"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz/lzma"

	"cfi2sframe/elffile"
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

// maxDictionary is how many bytes of memory a stream may ask for. xz -9 asks for 64 MiB, zstd --ultra -22 for 128.
const maxDictionary = 128 << 20

// bufferSize is how many bytes are read at a time.
const bufferSize = 64 << 10

// HeadSize is how many bytes Of needs.
const HeadSize = lzma.HeaderLen

// Of returns the kind of a stream that begins with head. The magic numbers are from RFC 1952, "The .xz File Format",
// RFC 8878 (a frame, or one of 16 kinds of frames to be skipped), and the source of bzip2 (a digit, and the magic
// number of a block or of the end). lzma has none: its usual properties tell it, a dictionary that is a multiple of 64
// KiB, and a size that is unknown or less than 2^48.
func Of(head []byte) Kind {
	begins := func(magic string) bool { return bytes.HasPrefix(head, []byte(magic)) }
	switch {
	case begins("\x1f\x8b"):
		return Gzip
	case begins("\xfd7zXZ\x00"):
		return XZ
	case begins("\x28\xb5\x2f\xfd"), len(head) >= 4 && head[0]&0xf0 == 0x50 && string(head[1:4]) == "\x2a\x4d\x18":
		return Zstd
	case begins("BZh") && len(head) >= 10 && head[3] >= '1' && head[3] <= '9' &&
		(string(head[4:10]) == "1AY&SY" || string(head[4:10]) == "\x17rE8P\x90"):
		return Bzip2
	case begins("\x5d\x00\x00") && len(head) >= HeadSize && head[12] == head[11] && (head[12] == 0 || head[12] == 0xff):
		return LZMA
	}
	return None
}

// A Form is how a stream was made.
type Form struct {
	Kind Kind
	// Size is the size of the package in bytes: compressing a large package may take more memory.
	Size int64

	gzip       gzip.Header
	level      int // of gzip
	xz         xzForm
	window     int  // of zstd
	checksum   bool // of zstd
	skippable  bool // zstd: it begins with a frame to be skipped
	properties lzma.Properties
	capacity   int // of the dictionary of lzma
}

// A Reader decompresses a part of a package. It names the kind in errors, and expects nothing after the end of the
// stream.
type Reader struct {
	Form *Form
	Off  int64 // bytes read

	ctx    context.Context
	budget *elffile.Budget
	in     *bufio.Reader
	out    io.ReadCloser // or nil if it could not be opened
}

// Open returns a reader that decompresses r, until ctx ends or the budget is exceeded. At its end, r is at its end. On
// an error the Reader has the form alone.
func Open(ctx context.Context, budget *elffile.Budget, r io.Reader) (*Reader, error) {
	z := &Reader{Form: &Form{Kind: None}, ctx: ctx, budget: budget, in: bufio.NewReaderSize(r, bufferSize)}
	head, err := z.in.Peek(xzHeader + xzMaxBlock)
	if err != nil && err != io.EOF {
		return z, err
	}
	f := z.Form
	f.Kind = Of(head)
	if z.out, err = f.reader(z.in, head, budget); err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return z, f.failed(err)
	}
	return z, nil
}

// Close frees memory.
func (r *Reader) Close() error { return r.out.Close() }

func (r *Reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := r.out.Read(p)
	r.Off += int64(n)
	if spent := r.budget.Spend(elffile.CostUnpacked, uint64(n)); spent != nil {
		return 0, spent // without what was read, as a full buffer would hide the error
	}
	if err == io.EOF {
		if _, err = r.in.ReadByte(); err == io.EOF {
			return n, err
		}
		err = cmp.Or(err, errors.New("data after its end"))
	}
	if err != nil && r.Form.Kind != None {
		err = r.Form.failed(err)
	}
	return n, err
}

// failed names the kind in an error, as some libraries do.
func (f *Form) failed(err error) error {
	if strings.HasPrefix(err.Error(), string(f.Kind)) {
		return err
	}
	return fmt.Errorf("%s: %w", f.Kind, err)
}

// reader returns what decompresses in, which begins with head, and fills in the form.
func (f *Form) reader(in *bufio.Reader, head []byte, budget *elffile.Budget) (io.ReadCloser, error) {
	switch f.Kind {
	case Gzip:
		const tried, fastest = 8, 4 // RFC 1952: where the level is, and the value of the lowest one
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, err
		}
		f.gzip, f.level = z.Header, gzip.BestCompression
		if head[tried] == fastest {
			f.level = gzip.BestSpeed
		}
		return z, nil
	case XZ:
		return f.xzReader(in, head, budget)
	case Zstd:
		return f.zstdReader(in, head)
	case Bzip2:
		return io.NopCloser(bzip2.NewReader(in)), nil
	case LZMA:
		return f.lzmaReader(in, head)
	}
	return io.NopCloser(in), nil
}

// zstdReader is reader for zstd.
func (f *Form) zstdReader(in *bufio.Reader, head []byte) (io.ReadCloser, error) {
	const anySize = 1 << 62 // the library's bound on the size of a stream, which the caller bounds
	var h zstd.Header
	if err := h.Decode(head); err != nil {
		return nil, err
	}
	window := h.WindowSize
	if h.SingleSegment {
		window = h.FrameContentSize
	}
	if window > maxDictionary {
		return nil, tooLarge("window", window)
	}
	f.window, f.checksum, f.skippable = 1<<20, h.HasCheckSum, h.Skippable
	for uint64(f.window) < window {
		f.window *= 2
	}
	z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(maxDictionary), zstd.WithDecoderMaxMemory(anySize))
	if err != nil {
		return nil, err
	}
	return z.IOReadCloser(), nil
}

// tooLarge is the error of a stream that asks for too much memory.
func tooLarge(what string, size uint64) error {
	return fmt.Errorf("a %s of %d bytes; at most %d are supported", what, size, maxDictionary)
}

// lzmaReader is reader for lzma.
func (f *Form) lzmaReader(in *bufio.Reader, head []byte) (_ io.ReadCloser, err error) {
	if f.properties, err = lzma.PropertiesForCode(head[0]); err != nil {
		return nil, err
	}
	size := binary.LittleEndian.Uint32(head[1:])
	if size > maxDictionary {
		return nil, tooLarge("dictionary", uint64(size))
	}
	f.capacity = max(int(size), lzma.MinDictCap)
	z, err := lzma.ReaderConfig{DictCap: f.capacity}.NewReader(in)
	return io.NopCloser(z), err
}

// anyDictionary is the usual dictionary of xz, in bytes. A larger one has at most the size of the package: it takes
// about 20 times as much memory, and may have been made for nothing.
const anyDictionary = 8 << 20

// dictionary returns how many bytes of n a dictionary gets for compressing.
func (f *Form) dictionary(n int) int { return int(min(int64(n), max(anyDictionary, f.Size))) }

// Writable returns an error if no stream of this form can be written.
func (f *Form) Writable() error {
	switch {
	case f.Kind == Bzip2:
		return errors.New("bzip2 is only read; build the package anew with another compression, such as xz")
	case f.skippable:
		return errors.New("zstd streams that begin with a skippable frame are only read; build the package anew")
	}
	return nil
}

// errEncoder is the error of an xz stream that unpacks to something else.
var errEncoder = errors.New("xz: reading back what was compressed gives other bytes; nothing was written")

// Store compresses r in this form, with up to the given number of workers, to an empty file.
func (f *Form) Store(ctx context.Context, to *os.File, workers int, r io.Reader) error {
	if err := f.Writable(); err != nil {
		return err
	}
	if f.Kind == XZ {
		return f.storeXZ(ctx, to, workers, r)
	}
	w, err := f.writer(Output{to})
	if err != nil {
		return err
	}
	_, err = io.Copy(w, r)
	return cmp.Or(err, w.Close())
}

// writer returns a writer that compresses to w, of all kinds but xz.
func (f *Form) writer(w io.WriteCloser) (io.WriteCloser, error) {
	switch f.Kind {
	case Gzip:
		z, err := gzip.NewWriterLevel(w, f.level)
		if err == nil {
			z.Header = f.gzip
		}
		return z, err
	case Zstd:
		window := f.window // a power of two
		for window > anyDictionary && window > f.dictionary(window) {
			window /= 2
		}
		return zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithWindowSize(window),
			zstd.WithEncoderCRC(f.checksum), zstd.WithEncoderConcurrency(1))
	case LZMA:
		config := lzma.WriterConfig{Properties: &f.properties, DictCap: f.dictionary(f.capacity), EOSMarker: true}
		return config.NewWriter(w)
	}
	return w, nil
}

// Output writes to a file without a name. Errors say where it is.
type Output struct{ File *os.File }

func (o Output) Write(p []byte) (int, error) {
	n, err := o.File.Write(p)
	var path *fs.PathError
	if errors.As(err, &path) {
		err = fmt.Errorf("cannot write to %s: %w", os.TempDir(), path.Err)
	}
	return n, err
}

// Close leaves the file open.
func (Output) Close() error { return nil }

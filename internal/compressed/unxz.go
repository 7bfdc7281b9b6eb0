package compressed

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/mikelolasagasti/xz"
	"github.com/ulikunitz/xz/lzma"
)

// The sizes and flags are from "The .xz File Format", version 1.2.1.
const (
	xzHeader   = 12 // bytes of the header of a stream, and of its footer
	xzMaxBlock = 1024
	lzma2      = 0x21 // the number of the filter
)

// checkSizes are the sizes of checksums in bytes, by their numbers. Others are refused by the library.
var checkSizes = map[byte]int{0: 0, 1: 4, 4: 8, 10: 32}

// xzHead returns how a stream was made that begins with head.
func xzHead(head []byte) (xzForm, error) {
	if len(head) <= xzHeader {
		return xzForm{}, io.ErrUnexpectedEOF
	}
	form, block := xzForm{check: head[7]}, head[xzHeader:]
	end := 4 * int(block[0]) // of the block's header without its checksum
	switch {
	case end == 0: // no blocks
		return form, nil
	case len(block) < end:
		return form, io.ErrUnexpectedEOF
	}
	fields := block[2:end]
	for flags := block[1] >> 6; flags > 0; flags >>= 1 { // the sizes of the block
		if flags&1 != 0 {
			_, n := binary.Uvarint(fields)
			fields = fields[max(n, 0):]
		}
	}
	if block[1]&3 != 0 || len(fields) < 3 || fields[0] != lzma2 {
		return form, errors.New("a block with filters beside LZMA2, which are not supported")
	}
	dictionary, err := lzma.DecodeDictCap(fields[2])
	if dictionary > maxDictionary {
		err = fmt.Errorf("a dictionary of %d bytes; at most %d are supported", dictionary, maxDictionary)
	}
	form.dictionary = int(dictionary)
	return form, err
}

// NewXZ returns a reader that decompresses all streams of an xz file.
func NewXZ(in *bufio.Reader) (io.Reader, error) { return xz.NewReader(&xzGuard{in: in}, maxDictionary) }

// maxChunks bounds the chunks of LZMA2 in a file. xz writes one for 64 KiB of compressed data, or for 2 MiB of what it unpacks to,
// which takes some hundred bytes at least. But a chunk of 11 bytes can make the library initialize its tables, which takes 7 µs
// (2026-11). A file may have one more for each perChunk bytes of it.
const (
	maxChunks = 32768
	perChunk  = 128
)

// An xzGuard passes on an xz file, and counts its chunks. It follows the sizes alone: what is wrong otherwise, the library says.
type xzGuard struct {
	in      *bufio.Reader
	off     int64
	left    int    // bytes to pass on until there is another header
	at      xzPart // what begins then
	check   byte
	begin   int64 // offset of the data of a block, or of the index
	chunks  int64
	numbers uint64 // of the index that follow
}

type xzPart uint8

const (
	xzStream xzPart = iota
	xzBlock
	xzChunk
	xzIndex // its first number
	xzRecords
)

func (g *xzGuard) Read(p []byte) (int, error) {
	for g.left == 0 {
		if err := g.next(); err != nil {
			return 0, err
		}
	}
	n, err := g.in.Read(p[:min(len(p), g.left)])
	g.left -= n
	g.off += int64(n)
	return n, err
}

// next looks at the header that comes next, and sets how many bytes are passed on.
func (g *xzGuard) next() error {
	b, err := g.in.Peek(xzHeader)
	if len(b) == 0 || err != nil && err != io.EOF {
		return err
	}
	b = append(b[:len(b):len(b)], make([]byte, xzHeader-len(b))...) // where it ends early
	switch g.at {
	case xzStream:
		if g.left = 1; b[0] != 0 { // there may be zeros before
			g.left, g.at, g.check = xzHeader, xzBlock, b[7]
		}
	case xzBlock:
		if g.left = 1; b[0] == 0 {
			g.at, g.begin = xzIndex, g.off
		} else {
			g.left, g.at = 4*(int(b[0])+1), xzChunk
			g.begin = g.off + int64(g.left)
		}
	case xzChunk:
		return g.chunk(b)
	case xzIndex, xzRecords:
		if g.at == xzRecords && g.numbers == 0 {
			g.left, g.at = int(-(g.off-g.begin)&3)+4+xzHeader, xzStream
			return nil
		}
		n, size := binary.Uvarint(b)
		g.left = max(size, 1)
		if g.numbers--; g.at == xzIndex {
			g.numbers, g.at = 2*n, xzRecords
		}
	}
	return nil
}

// chunk is next for a chunk of a block.
func (g *xzGuard) chunk(b []byte) error {
	switch control := b[0]; {
	case control == 0: // the end of the block
		end := g.off + 1 - g.begin
		g.left, g.at = 1+int(-end&3)+checkSizes[g.check], xzBlock
		return nil
	case control < 0x80: // not compressed
		g.left = 3 + int(binary.BigEndian.Uint16(b[1:])) + 1
	default:
		g.left = 5 + int(binary.BigEndian.Uint16(b[3:])) + 1
		if control >= 0xc0 { // with properties
			g.left++
		}
	}
	if g.chunks++; g.chunks > maxChunks+g.off/perChunk {
		return fmt.Errorf("xz: more than %d chunks in %d bytes", maxChunks+g.off/perChunk, g.off)
	}
	return nil
}

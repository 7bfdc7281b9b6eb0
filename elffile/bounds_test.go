package elffile_test

import (
	"bytes"
	"compress/zlib"
	"debug/elf"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/long"
	"cfi2sframe/internal/testkit/must"
)

// withSections returns a file with compressed sections that have the given contents; their indexes start at 1.
func withSections(t *testing.T, contents ...[]byte) *elffile.File {
	t.Helper()
	o := &elftest.Object{Header: elf.Header64{Type: uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64)}}
	o.Add("", elf.SHT_NULL, 0, nil)
	for _, b := range contents {
		o.Add("", elf.SHT_PROGBITS, elf.SHF_COMPRESSED, b)
	}
	return mustOpen(t, o.Bytes())
}

// compress returns the contents of a compressed section that declares the given size.
func compress(t *testing.T, kind elf.CompressionType, data []byte, size int) []byte {
	t.Helper()
	var out bytes.Buffer
	if kind == elf.COMPRESS_ZSTD {
		z := must.Get(zstd.NewWriter(nil))(t)
		return elftest.Compressed(kind, uint64(size), z.EncodeAll(data, nil))
	}
	z := zlib.NewWriter(&out)
	must.Get(z.Write(data))(t)
	must.Do(t, z.Close())
	return elftest.Compressed(kind, uint64(size), out.Bytes())
}

// TestDecompression decompresses sections whose size equals, exceeds or is less than the declared size.
func TestDecompression(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, kind := range []elf.CompressionType{elf.COMPRESS_ZLIB, elf.COMPRESS_ZSTD} {
		for _, n := range long.Pick(t, []int{0, 1, 1000, 128 << 10}, []int{0, 1, 1000, 128 << 10, 1<<20 + 7}) {
			data := make([]byte, n)
			for i := range data {
				data[i] = byte(r.IntN(7) * r.IntN(7))
			}
			for _, claimed := range []int{n, n + 1, n - 1} {
				if claimed < 0 {
					continue
				}
				f := withSections(t, compress(t, kind, data, claimed))
				if size, err := f.UncompressedSize(&f.Sections[1]); err != nil || size != uint64(claimed) {
					t.Errorf("%v, %d bytes: UncompressedSize returns %d, %v", kind, n, size, err)
				}
				got, err := f.ReadUncompressed(&f.Sections[1])
				if claimed == n && (err != nil || !bytes.Equal(got, data)) {
					t.Errorf("%v, %d bytes: %d bytes, %v", kind, n, len(got), err)
				}
				if claimed != n && (err == nil || !strings.Contains(err.Error(), "cannot decompress to the")) {
					t.Errorf("%v, %d bytes that declare %d: %v", kind, n, claimed, err)
				}
			}
		}
	}
}

// TestDecompressionRoom checks that the budget of a small file allows one section of 30 MB to be decompressed, but not
// two.
func TestDecompressionRoom(t *testing.T) {
	const size = 30 << 20
	b := compress(t, elf.COMPRESS_ZSTD, make([]byte, size), size)
	f := withSections(t, b, b)
	if got, err := f.ReadUncompressed(&f.Sections[1]); err != nil || len(got) != size {
		t.Fatalf("section 1: %d bytes, %v", len(got), err)
	}
	_, err := f.ReadUncompressed(&f.Sections[2])
	if !errors.Is(err, elffile.ErrBudget) || !strings.Contains(err.Error(),
		"decompressed size of 31457280 bytes: too much work for an input of this size") {
		t.Errorf("section 2: %v", err)
	}
}

// TestFileOffset looks up addresses in two adjacent segments; the file ends in the second. FuzzStructured covers other
// layouts.
func TestFileOffset(t *testing.T) {
	load := func(off, addr uint64) elf.Prog64 {
		return elf.Prog64{Type: uint32(elf.PT_LOAD), Off: off, Vaddr: addr, Filesz: 16, Memsz: 16}
	}
	open := func(loads ...elf.Prog64) *elffile.File {
		b := elftest.Encode(make([]byte, 310), binary.LittleEndian, elf.Header64{Type: uint16(elf.ET_DYN),
			Phoff: elffile.HeaderSize, Phentsize: elffile.ProgSize, Phnum: 2}, nil)
		copy(b[elffile.HeaderSize:], elftest.Append(nil, binary.LittleEndian, loads))
		return mustOpen(t, b)
	}
	f := open(load(200, 16), load(300, 32))
	if off, ok := open(load(200, 16), load(294, 24)).FileOffset(28, 4); off != 212 || !ok {
		t.Errorf("in two segments that overlap: %d, %t; want 212", off, ok)
	}
	for _, tt := range []struct {
		addr, n, want uint64 // 0 if no segment contains them
	}{{15, 1, 0}, {16, 16, 200}, {16, 17, 0}, {32, 0, 216}, {32, 10, 300}, {32, 11, 0}, {48, 1, 0}} {
		if off, ok := f.FileOffset(tt.addr, tt.n); off != tt.want || ok != (tt.want > 0) {
			t.Errorf("%d bytes at %d: %d, %t; want %d", tt.n, tt.addr, off, ok, tt.want)
		}
	}
}

// TestWindow reads bytes by address in an order in which some were read ahead, and up to the end of the segment.
func TestWindow(t *testing.T) {
	b := make([]byte, elffile.HeaderSize+elffile.ProgSize)
	for i := range 200 {
		b = append(b, byte(i))
	}
	h := elf.Header64{
		Type: uint16(elf.ET_DYN), Phoff: elffile.HeaderSize, Phentsize: elffile.ProgSize, Phnum: 1,
	}
	load := elf.Prog64{Type: uint32(elf.PT_LOAD), Off: elffile.HeaderSize + elffile.ProgSize, Vaddr: 0x1000,
		Filesz: 150, Memsz: 200}
	copy(b[elffile.HeaderSize:], elftest.Append(nil, binary.LittleEndian, &load))
	f := elftest.Parse(t, elftest.Encode(b, binary.LittleEndian, h, nil))
	for _, size := range []uint64{0, 1, 16, 150, 151} {
		w := elffile.Window{Size: size}
		for _, tt := range []struct{ addr, n uint64 }{
			{0x1000, 8}, {0x1008, 8}, {0x100c, 8}, {0x1004, 2}, {0x1000, 150}, {0x1095, 1}, {0x1090, 6}, {0x1010, 0},
		} {
			at := load.Off + tt.addr - load.Vaddr
			if got := w.Read(f, tt.addr, tt.n); got == nil || !bytes.Equal(got, b[at:at+tt.n]) {
				t.Errorf("size %d: %d bytes at %#x are % x", size, tt.n, tt.addr, got)
			}
			for _, out := range []struct{ addr, n uint64 }{{0xfff, 2}, {0x1095, 2}, {0x1096, 1}, {0x1000, 1 << 63}} {
				if got := w.Read(f, out.addr, out.n); got != nil {
					t.Errorf("size %d: %d bytes at %#x, which are not in the file, are % x", size, out.n, out.addr, got)
				}
			}
		}
	}
	must.Do(t, f.Budget().Spend(1, 1_200_000_000)) // all but 300 per byte of the file
	w := elffile.Window{Size: 100, Cost: 10_000}
	if w.Read(f, 0x1000, 1) != nil {
		t.Error("a read exceeds the budget")
	}
}

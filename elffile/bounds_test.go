package elffile

import (
	"bytes"
	"compress/zlib"
	"debug/elf"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"unsafe"

	"github.com/klauspost/compress/zstd"

	"cfi2sframe/internal/testkit/long"
)

// withSections returns a file with sections of the given contents, which are compressed.
func withSections(t *testing.T, contents ...[]byte) *File {
	t.Helper()
	data := make([]byte, HeaderSize)
	headers := []elf.Section64{{}}
	for _, b := range contents {
		headers = append(headers, elf.Section64{
			Type: uint32(elf.SHT_PROGBITS), Flags: uint64(elf.SHF_COMPRESSED), Off: uint64(len(data)),
			Size: uint64(len(b)),
		})
		data = append(data, b...)
	}
	h := elf.Header64{
		Type: uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: 1,
		Shoff: uint64(len(data)), Shentsize: SectionSize, Shnum: uint16(len(headers)),
	}
	copy(h.Ident[:], elf.ELFMAG+"\x02\x01\x01")
	data, err := binary.Append(data, binary.LittleEndian, headers)
	if err != nil {
		t.Fatal(err)
	}
	head, err := binary.Append(nil, binary.LittleEndian, &h)
	if err != nil {
		t.Fatal(err)
	}
	copy(data, head)
	f, err := New(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// packed compresses data, as the contents of a section that claims the given size.
func packed(t *testing.T, kind elf.CompressionType, data []byte, size int) []byte {
	t.Helper()
	b := binary.LittleEndian.AppendUint64(nil, uint64(kind))
	b = binary.LittleEndian.AppendUint64(b, uint64(size))
	out := bytes.NewBuffer(binary.LittleEndian.AppendUint64(b, 1))
	if kind == elf.COMPRESS_ZSTD {
		z, err := zstd.NewWriter(nil)
		if err != nil {
			t.Fatal(err)
		}
		return z.EncodeAll(data, out.Bytes())
	}
	z := zlib.NewWriter(out)
	if _, err := z.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestDecompression reads sections that are compressed, of as many bytes as they say, fewer and more.
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
				f := withSections(t, packed(t, kind, data, claimed))
				if size, err := f.UncompressedSize(&f.Sections[1]); err != nil || size != uint64(claimed) {
					t.Errorf("%v, %d bytes: UncompressedSize returns %d, %v", kind, n, size, err)
				}
				got, err := f.ReadUncompressed(&f.Sections[1])
				if claimed == n && (err != nil || !bytes.Equal(got, data)) {
					t.Errorf("%v, %d bytes: %d bytes, %v", kind, n, len(got), err)
				}
				if claimed != n && (err == nil || !strings.Contains(err.Error(), "does not decompress to the")) {
					t.Errorf("%v, %d bytes that claim to be %d: %v", kind, n, claimed, err)
				}
			}
		}
	}
}

// TestDecompressionRoom expects that a small file can have a section of 30 MB, and no two of them.
func TestDecompressionRoom(t *testing.T) {
	const size = 30 << 20
	b := packed(t, elf.COMPRESS_ZSTD, make([]byte, size), size)
	f := withSections(t, b, b)
	if got, err := f.ReadUncompressed(&f.Sections[1]); err != nil || len(got) != size {
		t.Fatalf("section 1: %d bytes, %v", len(got), err)
	}
	_, err := f.ReadUncompressed(&f.Sections[2])
	if !errors.Is(err, ErrBudget) || !strings.Contains(err.Error(),
		"31457280 bytes when decompressed: more work than its size justifies") {
		t.Errorf("section 2: %v", err)
	}
	if _, err := f.Unpack("part", 64, bytes.NewReader(make([]byte, size)), size); !errors.Is(err, ErrBudget) ||
		!strings.Contains(err.Error(), "part at file offset 0x40: decompressing: ") {
		t.Errorf("Unpack: %v", err)
	}
	if _, err := f.Unpack("part", 64, bytes.NewReader(make([]byte, 100)), 99); err == nil ||
		!strings.Contains(err.Error(), "part at file offset 0x40: more than 99 bytes") {
		t.Errorf("Unpack: %v", err)
	}
}

// TestMaxContent expects that no section has more bytes than maxContent, whatever the size of its file.
func TestMaxContent(t *testing.T) {
	for size, want := range map[uint64]string{
		maxContent:     "does not decompress to the 134217728 bytes its header says",
		maxContent + 1: "134217729 bytes when decompressed are more than the limit of 134217728",
	} {
		f := &File{budget: NewBudget(1 << 40)}
		_, err := f.decompress("section x", 0, elf.COMPRESS_ZLIB, nil, size)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d bytes: error %v, want %q", size, err, want)
		}
	}
}

// TestOffsets compares with the structures of debug/elf.
func TestOffsets(t *testing.T) {
	for i, tt := range []struct{ got, want uintptr }{
		{HeaderSize, unsafe.Sizeof(elf.Header64{})},
		{ProgSize, unsafe.Sizeof(elf.Prog64{})},
		{SectionSize, unsafe.Sizeof(elf.Section64{})},
		{SymSize, unsafe.Sizeof(elf.Sym64{})},
		{RelaSize, unsafe.Sizeof(elf.Rela64{})},
		{DynSize, unsafe.Sizeof(elf.Dyn64{})},
		{SymShndx, unsafe.Offsetof(elf.Sym64{}.Shndx)},
		{SymValue, unsafe.Offsetof(elf.Sym64{}.Value)},
		{RelaInfo, unsafe.Offsetof(elf.Rela64{}.Info)},
		{RelaAddend, unsafe.Offsetof(elf.Rela64{}.Addend)},
		{DynValue, unsafe.Offsetof(elf.Dyn64{}.Val)},
	} {
		if tt.got != tt.want {
			t.Errorf("%d: %d, want %d", i, tt.got, tt.want)
		}
	}
}

// withSegments returns a file of 1000 bytes with program headers.
func withSegments(t *testing.T, progs []elf.Prog64) *File {
	t.Helper()
	h := elf.Header64{
		Type: uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: 1,
		Phoff: HeaderSize, Phentsize: ProgSize, Phnum: uint16(len(progs)),
	}
	copy(h.Ident[:], elf.ELFMAG+"\x02\x01\x01")
	data := make([]byte, 1000)
	for off, part := range map[int]any{0: &h, HeaderSize: progs} {
		if _, err := binary.Encode(data[off:], binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	f, err := New(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestFileOffset compares with all segments one by one.
func TestFileOffset(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	found := 0
	for range 300 {
		var progs []elf.Prog64
		at, overlap := uint64(0), r.IntN(2) == 0
		for i := range r.IntN(6) {
			p := elf.Prog64{Type: uint32(elf.PT_LOAD), Off: r.Uint64N(900), Vaddr: at + r.Uint64N(3)*10,
				Filesz: r.Uint64N(60)}
			p.Memsz = p.Filesz + r.Uint64N(2)*10
			if overlap && i > 0 {
				p.Vaddr = r.Uint64N(200)
			}
			at = p.Vaddr + p.Memsz
			progs = append(progs, p, elf.Prog64{Type: uint32(elf.PT_NOTE), Vaddr: r.Uint64N(200), Filesz: 50,
				Memsz: 50})
		}
		f := withSegments(t, progs)
		for range 50 {
			addr, n := r.Uint64N(300), r.Uint64N(20)
			off, ok := f.FileOffset(addr, n)
			var want uint64
			holds := false
			for _, p := range f.Progs {
				if elf.ProgType(p.Type) == elf.PT_LOAD && !holds && addr >= p.Vaddr && addr+n <= p.Vaddr+p.Filesz &&
					p.Off+addr-p.Vaddr+n <= f.Size {
					want, holds = p.Off+addr-p.Vaddr, true
				}
			}
			if ok != holds || off != want {
				t.Fatalf("FileOffset(%d, %d) = %d, %t with %+v; want %d, %t", addr, n, off, ok, f.Progs,
					want, holds)
			}
			if ok {
				found++
			}
		}
	}
	if found < 100 {
		t.Errorf("%d of them are in a file", found)
	}
}

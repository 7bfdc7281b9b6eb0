package elffile_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"os"
	"strings"
	"syscall"
	"testing"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/testfile"
)

func fixture(t *testing.T, path string) []byte {
	t.Helper()
	return testfile.Read(t, "../testdata/bin/"+path)
}

func open(b []byte) (*elffile.File, error) { return elffile.New(bytes.NewReader(b), int64(len(b))) }

func mustOpen(t *testing.T, b []byte) *elffile.File {
	t.Helper()
	return must.Get(open(b))(t)
}

// expect checks the location and the message of an error.
func expect(t *testing.T, err error, where string, off uint64, msg string) {
	t.Helper()
	var e *elffile.Error
	if !errors.As(err, &e) || e.Where != where || e.Off != off || !strings.Contains(e.Msg, msg) {
		t.Errorf("%v; want %q at %#x: %q", err, where, off, msg)
	}
}

// The fixture plt according to readelf: 6048 bytes, 9 program headers at 0x40, 19 section headers at 0x12e0, section
// names at 0x1242.
const (
	phdrs = 0x40
	shdrs = 0x12e0
	names = 0x1242

	ident, program, section, name = "ELF header", "program header table", "section header table", "section name table"
)

// TestHeaderErrors opens files with malformed headers.
func TestHeaderErrors(t *testing.T) {
	put8 := func(off int, v byte) func(*elftest.Patcher) { return func(p *elftest.Patcher) { p.B[off] = v } }
	put16 := func(off int, v uint16) func(*elftest.Patcher) { return func(p *elftest.Patcher) { p.Put16(off, v) } }
	put64 := func(off int, v uint64) func(*elftest.Patcher) { return func(p *elftest.Patcher) { p.Put64(off, v) } }
	cut := func(n int) func(*elftest.Patcher) { return func(p *elftest.Patcher) { p.B = p.B[:n] } }
	// inSection0 stores a number in the header of section 0, as if it did not fit in the ELF header.
	inSection0 := func(off int, v uint16, field int, n uint64) func(*elftest.Patcher) {
		return func(p *elftest.Patcher) {
			p.Put16(off, v)
			if field == elftest.ShSize {
				p.Put64(p.Header(0)+field, n)
			} else {
				p.Put32(p.Header(0)+field, uint32(n))
			}
		}
	}
	load := func(n, field int, v uint64) func(*elftest.Patcher) {
		return func(p *elftest.Patcher) { p.Put64(p.Segment(elf.PT_LOAD, n)+field, v) }
	}
	table := func(field int, v uint64) func(*elftest.Patcher) {
		return func(p *elftest.Patcher) { p.Put64(p.Section(".shstrtab")+field, v) }
	}
	for _, tt := range []struct {
		name   string
		change func(*elftest.Patcher)
		where  string
		off    uint64
		msg    string
	}{
		{"empty", cut(0), ident, 0, `not an ELF file: starts with ""`},
		{"magic only", cut(4), ident, 0, "file of 4 bytes is shorter than an ELF header (64 bytes)"},
		{"header of 63 bytes", cut(63), ident, 0, "file of 63 bytes is shorter than an ELF header (64 bytes)"},
		{"another file", put8(0, 'x'), ident, 0, `not an ELF file: starts with "xELF"`},
		{"32 bits", put8(elf.EI_CLASS, 1), ident, 4, "32-bit ELF file"},
		{"class 3", put8(elf.EI_CLASS, 3), ident, 4, "class is 3, not ELFCLASS64 (2)"},
		{"byte order 0", put8(elf.EI_DATA, 0), ident, 5, "data encoding is 0, not 1 (little-endian) or 2 (big-endian)"},
		{"version 2", put8(elf.EI_VERSION, 2), ident, 6, "version is 2, not 1"},

		{"e_shoff at the end", put64(elftest.EhShoff, 6048), section, 6048,
			"19 headers of 64 bytes do not fit in the file of 6048 bytes"},
		{"e_shoff 2^64-1", put64(elftest.EhShoff, math.MaxUint64), section, math.MaxUint64,
			"19 headers of 64 bytes do not fit"},
		{"e_shoff 0", put64(elftest.EhShoff, 0), ident, 0x3c, "e_shnum is 19 but e_shoff is 0"},
		{"e_shnum 0xffff", put16(elftest.EhShnum, 0xffff), section, shdrs, "65535 headers of 64 bytes do not fit"},
		{"e_shnum 0, and 2^40 in section 0", inSection0(elftest.EhShnum, 0, elftest.ShSize, 1<<40), section, shdrs,
			"1099511627776 section headers exceed the limit"},
		{"e_shnum 0, and 2^64-1 in section 0", inSection0(elftest.EhShnum, 0, elftest.ShSize, math.MaxUint64), section,
			shdrs, "18446744073709551615 section headers exceed the limit"},
		{"e_shnum 0, and 2^19 in section 0", inSection0(elftest.EhShnum, 0, elftest.ShSize, 1<<19), section, shdrs,
			"524288 headers of 64 bytes do not fit"},
		{"e_shnum 0, and no section 0", func(p *elftest.Patcher) {
			p.Put16(elftest.EhShnum, 0)
			p.Put64(elftest.EhShoff, 6048-63)
		}, section, 6048 - 63, "past the end of the file (6048 bytes)"},
		{"e_shentsize 40", put16(elftest.EhShentsize, 40), ident, 0x3a, "e_shentsize is 40, not 64"},
		{"e_shstrndx 0xfeff", put16(elftest.EhShstrndx, 0xfeff), ident, 0x3e,
			"section name table index is 65279, but there are only 19 sections"},
		{"e_shstrndx 0xffff, and 2^32-1 in section 0", inSection0(elftest.EhShstrndx, 0xffff, elftest.ShLink,
			math.MaxUint32), ident, 0x3e, "section name table index is 4294967295, but there are only 19 sections"},
		{"e_shnum 1", put16(elftest.EhShnum, 1), ident, 0x3e,
			"section name table index is 18, but there are only 1 sections"},
		{"names without contents", func(p *elftest.Patcher) {
			p.Put32(p.Section(".shstrtab")+elftest.ShType, uint32(elf.SHT_NOBITS))
		}, name, names, "157 bytes of type SHT_NOBITS are not within the file of 6048 bytes"},
		{"names past the end", table(elftest.ShOff, 6048-156), name, 6048 - 156,
			"157 bytes of type SHT_STRTAB are not within the file of 6048 bytes"},
		{"names of 2^63 bytes", table(elftest.ShSize, 1<<63), name, names, "9223372036854775808 bytes"},
		{"a name of 4 KB for 600 sections", func(p *elftest.Patcher) {
			long := append(bytes.Repeat([]byte("n"), 4000), 0)
			at := p.Append(long)
			p.Put64(p.Section(".shstrtab")+elftest.ShSize, 0) // remove the old names
			h := p.Header(18)
			p.Put64(h+elftest.ShOff, uint64(at))
			p.Put64(h+elftest.ShSize, uint64(len(long)))
			p.NewSections(600, func(_, h int) {})
		}, name, 6048, "names of 619 sections overlap in 4001 bytes"},

		{"e_phoff at the end", put64(elftest.EhPhoff, 6048), program, 6048,
			"9 headers of 56 bytes do not fit in the file of 6048 bytes"},
		{"e_phoff 2^64-1", put64(elftest.EhPhoff, math.MaxUint64), program, math.MaxUint64,
			"9 headers of 56 bytes do not fit"},
		{"e_phentsize 32", put16(elftest.EhPhentsize, 32), ident, 0x36, "e_phentsize is 32, not 56"},
		{"e_phnum 0x7fff", put16(elftest.EhPhnum, 0x7fff), program, phdrs, "32767 headers of 56 bytes do not fit"},
		{"e_phnum 0xffff, and 2^32-1 in section 0", inSection0(elftest.EhPhnum, 0xffff, elftest.ShInfo, math.MaxUint32),
			program, phdrs, "4294967295 headers of 56 bytes do not fit"},
		{"200,000 program headers", func(p *elftest.Patcher) { p.ManyProgs(200_000, func(int, int) {}) }, program, 6048,
			"200009 program headers exceed the limit of 131072"},
		{"3,000 segments", func(p *elftest.Patcher) {
			p.ManyProgs(3000, func(i, off int) { p.Prog(off, elf.PT_LOAD, 0x400, 0x100000+uint64(i)*4096, 16) })
		}, "program header 2055", 6048 + 2055*elffile.ProgSize, "more than 2048 segments (PT_LOAD)"},
		{"p_filesz over p_memsz", load(0, elftest.PhMemsz, 0x10), "program header 2", phdrs + 2*elffile.ProgSize,
			"p_filesz 0x6b0 is larger than p_memsz 0x10"},
		{"p_vaddr plus p_memsz past 2^64", load(1, elftest.PhMemsz, math.MaxUint64), "program header 3",
			phdrs + 3*elffile.ProgSize, "p_vaddr 0x1e80 + p_memsz 0xffffffffffffffff exceeds 2^64"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := elftest.Patch(t.Fatalf, fixture(t, "amd64/plt"))
			tt.change(p)
			_, err := open(p.B)
			expect(t, err, tt.where, tt.off, tt.msg)
		})
	}
}

// TestLargeNumbers moves numbers from the ELF header to section 0, where large numbers are stored (ELF gABI, "ELF
// Header"). The decoded headers must not change.
func TestLargeNumbers(t *testing.T) {
	for _, tt := range []struct {
		name  string
		field int
		mark  uint16 // value in the ELF header
		in    int    // offset in section 0
	}{
		{"e_shnum", elftest.EhShnum, 0, elftest.ShSize},
		{"e_shstrndx", elftest.EhShstrndx, uint16(elf.SHN_XINDEX), elftest.ShLink},
		{"e_phnum", elftest.EhPhnum, 0xffff, elftest.ShInfo},
	} {
		p := elftest.Patch(t.Fatalf, fixture(t, "amd64/plt"))
		p.Put32(p.Header(0)+tt.in, uint32(p.U16(tt.field)))
		p.Put16(tt.field, tt.mark)
		f := mustOpen(t, p.B)
		if len(f.Sections) != 19 || len(f.Progs) != 9 || f.Section(".text") == nil || f.Shstrndx != 18 {
			t.Errorf("%s: %d sections, %d program headers, names in section %d; want 19, 9 and 18", tt.name,
				len(f.Sections), len(f.Progs), f.Shstrndx)
		}
	}
}

// TestNoNames reads files whose sections have no names, and files without sections.
func TestNoNames(t *testing.T) {
	for name, change := range map[string]func(p *elftest.Patcher){
		"no section headers": noSections,
		"a table of no section headers": func(p *elftest.Patcher) {
			noSections(p)
			p.Put64(elftest.EhShoff, shdrs)
		},
		"past the table": func(p *elftest.Patcher) { p.Put32(p.Section(".text"), math.MaxUint32) },
		"without end": func(p *elftest.Patcher) {
			p.Put64(p.Section(".shstrtab")+elftest.ShSize, uint64(p.U32(p.Section(".text")))+5)
		},
		"no table": func(p *elftest.Patcher) { p.Put16(elftest.EhShstrndx, 0) },
	} {
		p := elftest.Patch(t.Fatalf, fixture(t, "amd64/plt"))
		text := p.Index(".text")
		change(p)
		f := mustOpen(t, p.B)
		if n := len(f.Sections); f.Section(".text") != nil || n > 0 && f.Sections[text].Name != "" ||
			len(f.Progs) != 9 || (n == 0) != strings.HasSuffix(name, "section headers") {
			t.Errorf("%s: %d sections, %d program headers, .text: %+v", name, n, len(f.Progs), f.Section(".text"))
		}
	}
}

// TestHeaders finds headers and contents of a valid file; the expected values are from readelf -lS.
func TestHeaders(t *testing.T) {
	f := mustOpen(t, fixture(t, "amd64/plt"))
	s := f.Section(".interp")
	if h := f.Prog(elf.PT_INTERP); h == nil || h.Off != 0x238 || f.Prog(elf.PT_TLS) != nil || s == nil ||
		s.Off != 0x238 || !s.Alloc() || s.Compressed() || s.Base != s.Addr || f.IsObject() {
		t.Fatalf("PT_INTERP %+v, .interp %+v", h, s)
	}
	const want = "/lib64/ld-linux-x86-64.so.2\x00"
	b := make([]byte, len(want))
	if _, err := f.Contents().ReadAt(b, int64(s.Off)); err != nil || string(b) != want {
		t.Errorf("Contents: %q, %v", b, err)
	}
	if b, err := f.ReadRelocated(s); err != nil || string(b) != want { // a linked file has no relocations
		t.Errorf("ReadRelocated: %q, %v", b, err)
	}
	if err := f.ReadError(); err != nil {
		t.Errorf("ReadError: %v", err)
	}
}

// TestContentErrors reads contents that are missing or malformed.
func TestContentErrors(t *testing.T) {
	sized := func(off, size uint64) func(*elftest.Patcher) {
		return func(p *elftest.Patcher) {
			p.Put64(p.Section(".comment")+elftest.ShOff, off)
			p.Put64(p.Section(".comment")+elftest.ShSize, size)
		}
	}
	const where = "section .comment"
	packed := func(data []byte) func(*elftest.Patcher) {
		return func(p *elftest.Patcher) {
			p.Contents(".comment", data)
			p.Put64(p.Section(".comment")+elftest.ShFlags, uint64(elf.SHF_COMPRESSED))
		}
	}
	for _, tt := range []struct {
		name   string
		change func(*elftest.Patcher)
		off    uint64 // 0: the offset of the section
		msg    string
	}{
		{"sh_offset past the end", sized(1<<40, 1), 1 << 40, "1 bytes do not fit in the file of"},
		{"sh_offset 2^64-1", sized(math.MaxUint64, 2), math.MaxUint64, "2 bytes do not fit in the file of"},
		{"sh_size 2^64-1", sized(1, math.MaxUint64), 1, "18446744073709551615 bytes do not fit in the file of"},
		{"SHT_NOBITS", func(p *elftest.Patcher) {
			p.Put32(p.Section(".comment")+elftest.ShType, uint32(elf.SHT_NOBITS))
		}, 0, "section of type SHT_NOBITS has no contents in the file"},
		{"compression header truncated", packed(make([]byte, 23)), 0,
			"compressed section of 23 bytes is shorter than a compression header (24 bytes)"},
		{"unknown compression", packed(elftest.Compressed(3, 1000, nil)), 0,
			"compression type is 3, not zlib (1) or zstd (2)"},
		{"zlib, 2^64-1 bytes declared", packed(elftest.Compressed(elf.COMPRESS_ZLIB, math.MaxUint64, nil)), 0,
			"18446744073709551615 bytes exceeds the limit"},
		// A block of 2,000 bytes, without the end of the stream. Only reading past the block would detect that.
		{"zlib, larger than declared", packed(elftest.Compressed(elf.COMPRESS_ZLIB, 1000,
			append([]byte("\x78\x01\x00\xd0\x07\x2f\xf8"), make([]byte, 2000)...))), 0,
			"cannot decompress to the 1000 bytes declared in the header: size differs"},
		{"zstd, larger than declared", packed(elftest.Compressed(elf.COMPRESS_ZSTD, 1000,
			append([]byte("\x28\xb5\x2f\xfd\x00\x50\x80\x3e\x00"), make([]byte, 2000)...))), 0,
			"cannot decompress to the 1000 bytes declared in the header: size differs"},
		{"zstd, not a stream", packed(elftest.Compressed(elf.COMPRESS_ZSTD, 10, []byte("text"))), 0,
			"cannot decompress to the 10 bytes declared in the header"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := elftest.Patch(t.Fatalf, fixture(t, "amd64/plt"))
			p.AddSection(".comment", 0, []byte("text"))
			tt.change(p)
			f := mustOpen(t, p.B)
			s := f.Section(".comment")
			_, err := f.ReadUncompressed(s)
			off := tt.off
			if off == 0 {
				off = s.Off
			}
			expect(t, err, where, off, tt.msg)
		})
	}
}

// TestOldCompression decompresses .zdebug_ sections: ZLIB, the size as a big-endian 8-byte number, and a stream (GNU
// binutils, bfd/compress.c).
func TestOldCompression(t *testing.T) {
	stream := []byte{0x78, 0x01, 0x01, 4, 0, 0xfb, 0xff, 't', 'e', 'x', 't', 0x04, 0x67, 0x01, 0xc6} // RFC 1950, stored
	old := func(size uint64) []byte {
		return append(binary.BigEndian.AppendUint64([]byte("ZLIB"), size), stream...)
	}
	for _, tt := range []struct {
		name string
		data []byte
		want string // contents
		size uint64 // declared
		msg  string // of the error
	}{
		{"valid", old(4), "text", 4, ""},
		{"not compressed", []byte("some other bytes"), "", 0, "does not start with ZLIB and an 8-byte size"},
		{"size too small", old(3), "", 3, "cannot decompress to the 3 bytes declared in the header"},
		{"size too large", old(5), "", 5, "cannot decompress to the 5 bytes declared in the header"},
		{"header truncated", []byte("ZLIB\x00"), "", 0, "does not start with ZLIB and an 8-byte size"},
	} {
		p := elftest.Patch(t.Fatalf, fixture(t, "amd64/plt"))
		p.AddSection(".zdebug_frame", 0, tt.data)
		f := mustOpen(t, p.B)
		s := f.Section(".zdebug_frame")
		size, sizeErr := f.UncompressedSize(s)
		b, err := f.ReadUncompressed(s)
		if (sizeErr == nil) != (tt.size > 0) || sizeErr == nil && size != tt.size {
			t.Errorf("%s: %d bytes, %v; want %d", tt.name, size, sizeErr, tt.size)
		}
		if tt.msg != "" {
			expect(t, err, "section .zdebug_frame", s.Off, tt.msg)
		} else if err != nil || string(b) != tt.want {
			t.Errorf("%s: %q, %v; want %q", tt.name, b, err, tt.want)
		}
	}
}

// A broken reader fails after an offset.
type broken struct {
	*bytes.Reader
	from int64
	err  error
}

func (r broken) ReadAt(b []byte, off int64) (int, error) {
	if off+int64(len(b)) > r.from {
		return 0, r.err
	}
	return r.Reader.ReadAt(b, off)
}

// TestReadError checks that system errors are distinguished from malformed files.
func TestReadError(t *testing.T) {
	b := fixture(t, "amd64/plt")
	for _, tt := range []struct {
		name  string
		from  int64 // reads past this offset fail
		where string
		off   uint64
	}{
		{"ELF header", 0, ident, 0},
		{"section headers", 0x1300, section, shdrs},
		{"section names", names - 1, section, shdrs},
	} {
		_, err := elffile.New(broken{bytes.NewReader(b), tt.from, syscall.EIO}, int64(len(b)))
		expect(t, err, tt.where, tt.off, "input/output error")
		if !errors.Is(err, syscall.EIO) {
			t.Errorf("%s: %v is not the system's error", tt.name, err)
		}
	}
	r := &broken{bytes.NewReader(b), int64(len(b)), &os.PathError{Op: "read", Path: "/some/file", Err: syscall.EIO}}
	f := must.Get(elffile.New(r, int64(len(b))))(t)
	r.from = 0
	_, err := f.ReadSection(f.Section(".text"))
	expect(t, err, "section .text", f.Section(".text").Off, "input/output error")
	if err := f.ReadError(); err == nil || err.Error() != "read error: input/output error" ||
		!errors.Is(err, syscall.EIO) {
		t.Errorf("ReadError: %v", err)
	}
	if err := (*elffile.File)(nil).ReadError(); err != nil {
		t.Errorf("ReadError of no file: %v", err)
	}
	// Reading a file that has been truncated since it was opened returns io.EOF.
	r.from, r.err = int64(len(b)), io.EOF
	if f, err = elffile.New(r, int64(len(b))); err != nil {
		t.Fatal(err)
	}
	r.Reader = bytes.NewReader(b[:104])
	_, err = f.ReadAt("part", 100, 8)
	expect(t, err, "part", 100, "file ends early: at offset 0x68 instead of ")
	if err := f.ReadError(); err == nil || !strings.Contains(err.Error(), "file ends early") {
		t.Errorf("ReadError: %v", err)
	}
	if _, err := elffile.New(bytes.NewReader(nil), 8); err == nil || errors.Is(err, elffile.ErrNotELF) {
		t.Errorf("ReadError of a file of 8 bytes: %v", err)
	}
	if _, err := elffile.New(bytes.NewReader(nil), -1); !errors.Is(err, elffile.ErrNotELF) {
		t.Errorf("a file of -1 bytes: %v", err)
	}
}

// TestEachRead makes each read fail, one per run. All errors must be returned.
func TestEachRead(t *testing.T) {
	o := elftest.NewObject()
	o.Function("once", elftest.ObjText, 0, 8)
	for name, b := range map[string][]byte{".debug_x": compress(t, elf.COMPRESS_ZLIB, []byte("text"), 4),
		".zdebug_x": []byte("ZLIB\x00\x00\x00\x00\x00\x00\x00\x04")} {
		i := o.Add(name, elf.SHT_PROGBITS, 0, b)
		if name == ".debug_x" {
			o.Sections[i].Flags = uint64(elf.SHF_COMPRESSED)
		}
	}
	note := elftest.Note(4, 1, 3, "GNU\x00", []byte("1"))
	o.Add(".note", elf.SHT_NOTE, 0, note)
	b := o.Bytes()
	for n, failed := 0, true; failed; n++ {
		r := &testfile.FailingReader{ReaderAt: bytes.NewReader(b), Err: syscall.EIO}
		r.Left.Store(int64(n))
		f, err := elffile.New(r, int64(len(b)))
		for _, do := range []func() error{
			func() error { _, err := f.FindSymbols("once"); return err },
			func() error { _, _, err := f.BuildID(); return err },
			func() error { _, err := f.ReadRelocated(f.Section(".eh_frame")); return err },
			func() error { _, err := f.UncompressedSize(f.Section(".debug_x")); return err },
			func() error { _, err := f.UncompressedSize(f.Section(".zdebug_x")); return err },
			func() error { _, err := f.ReadUncompressed(f.Section(".debug_x")); return err },
		} {
			if err == nil {
				err = do()
			}
		}
		if failed = r.Left.Load() < 0; failed != errors.Is(err, syscall.EIO) || !failed && (err != nil || n < 10) {
			t.Errorf("read %d fails: %t, error %v", n, failed, err)
		}
	}
}

package sframe_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/sframe"
)

// A file is an ELF file.
type file struct {
	header   elf.Header64
	segments []elf.Prog64
	sections []elf.Section64
	data     []byte // follows the headers
}

// newFile returns the .sframe of 3-amd64/program-prologue in conformance/vectors as a program with a PT_LOAD and a
// PT_GNU_SFRAME, and the sections .text, .sframe and .shstrtab.
func newFile() *file {
	const addr, start = 0x2000, 64 + 2*56 + 4*64
	section, _ := hex.DecodeString("e2de03050300f80002000000120000004d00000000000000200000001ce4ffffffffffff50000000" +
		"000000005ce4ffffffffffff1b0000002600000009000000000003080d0510f0100410f0340508f03503083b03103c0518e83d0520e8" +
		"410540e80900000000000520e8010518e8020510e8040508e80503080a0510f00b0518f0190510f01a0308")
	const names = "\x00.text\x00.sframe\x00.shstrtab\x00"
	size := uint64(len(section))
	return &file{
		header: elf.Header64{
			Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), 1},
			Type:  uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: 1, Phoff: 64, Shoff: 64 + 2*56,
			Ehsize: 64, Phentsize: 56, Phnum: 2, Shentsize: 64, Shnum: 4, Shstrndx: 3,
		},
		segments: []elf.Prog64{
			{Type: uint32(elf.PT_LOAD), Filesz: start, Memsz: start},
			{Type: sframe.PTGNUSFrame, Off: start, Vaddr: addr, Filesz: size, Memsz: size},
		},
		sections: []elf.Section64{
			{},
			{Name: 1, Type: uint32(elf.SHT_PROGBITS), Off: start, Size: 1},
			{Name: 7, Type: sframe.SHTGNUSFrame, Off: start, Addr: addr, Size: size},
			{Name: 15, Type: uint32(elf.SHT_STRTAB), Off: start + size, Size: uint64(len(names))},
		},
		data: append(section, names...),
	}
}

func (f *file) bytes() []byte {
	var b bytes.Buffer
	for _, part := range []any{f.header, f.segments, f.sections, f.data} {
		if err := binary.Write(&b, binary.LittleEndian, part); err != nil {
			panic(err)
		}
	}
	return b.Bytes()
}

// TestFromELF finds the section of a program by its section header, or by its segment if there are no section headers.
func TestFromELF(t *testing.T) {
	const text, section, segment = 1, 2, 1
	notByType := func(f *file) { f.sections[section].Type = uint32(elf.SHT_PROGBITS) }
	notByName := func(f *file) { f.sections[section].Name = 0 }
	for _, tt := range []struct {
		name   string
		change func(*file)
		want   string // an error; "" for none
	}{
		{"by type", notByName, ""},
		{"by name", notByType, ""},
		{"first", func(f *file) {
			f.sections[text], f.sections[section] = f.sections[section], f.sections[text]
			f.segments[segment].Type = uint32(elf.PT_NULL)
		}, ""},
		{"by segment", func(f *file) { f.header.Shoff, f.header.Shnum, f.header.Shstrndx = 0, 0, 0 }, ""},
		{"by section and not by segment", func(f *file) { f.segments[segment].Off = 0 }, ""},
		{"none", func(f *file) {
			f.segments[segment].Type = uint32(elf.PT_NULL)
			notByType(f)
			notByName(f)
		}, sframe.ErrNone.Error()},
		{"two", func(f *file) { f.sections[text].Type = sframe.SHTGNUSFrame }, "are both .sframe"},
		{"SHT_NOBITS", func(f *file) { f.sections[section].Type = uint32(elf.SHT_NOBITS) },
			" (.sframe) has no contents in the file"},
		{"truncated", func(f *file) { f.sections[section].Size = 1 << 20 }, io.ErrUnexpectedEOF.Error()},
		{"malformed", func(f *file) { f.sections[section].Off = 0 }, ".sframe+0x0: starts with 7f 45"},
		{"object", func(f *file) { f.header.Type = uint16(elf.ET_REL) }, "link it first"},
	} {
		changed := newFile()
		tt.change(changed)
		f, err := elf.NewFile(bytes.NewReader(changed.bytes()))
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		s, err := sframe.FromELF(f)
		if tt.want != "" {
			if err == nil || !strings.Contains(err.Error(), tt.want) ||
				errors.Is(err, sframe.ErrNone) != (tt.name == "none") {
				t.Errorf("%s: error %v, want %q", tt.name, err, tt.want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
		} else if m, ok, err := s.Lookup(0x445); !ok || err != nil || m.CFA.Offset != 16 {
			t.Errorf("%s: Lookup gives %+v, %t, %v", tt.name, m, ok, err)
		}
	}
	unreadable := newFile()
	unreadable.header.Shoff, unreadable.header.Shnum, unreadable.header.Shstrndx = 0, 0, 0
	unreadable.segments[segment].Off = 1 << 20
	errRead := errors.New("cannot read")
	r := &testfile.FailingReader{ReaderAt: bytes.NewReader(unreadable.bytes()), Err: errRead}
	r.Left.Store(math.MaxInt64)
	f := must.Get(elf.NewFile(r))(t)
	r.Left.Store(0)
	if _, err := sframe.FromELF(f); !errors.Is(err, errRead) {
		t.Errorf("error %v for a segment that cannot be read", err)
	}
}

// TestTypes compares constants with the format document, "SFrame Section", and with the GNU toolchain's elf/common.h.
func TestTypes(t *testing.T) {
	if sframe.SHTGNUSFrame != 0x6ffffff4 || sframe.PTGNUSFrame != 0x6474e554 || sframe.SectionName != ".sframe" {
		t.Errorf("SHT_GNU_SFRAME is %#x, PT_GNU_SFRAME %#x, and the section is called %s", sframe.SHTGNUSFrame,
			sframe.PTGNUSFrame, sframe.SectionName)
	}
}

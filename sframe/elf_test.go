package sframe

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
)

// An elfPart is a section, or with a segment type a program header.
type elfPart struct {
	name    string
	typ     elf.SectionType
	segment elf.ProgType
	addr    uint64
	data    []byte
}

// image writes an ELF file with the given parts.
func image(t *testing.T, typ elf.Type, parts ...elfPart) *elf.File {
	t.Helper()
	h := elf.Header64{
		Ident: [16]byte{0x7f, 'E', 'L', 'F', 2, 1, 1}, Type: uint16(typ), Machine: uint16(elf.EM_X86_64), Version: 1,
		Ehsize: 64, Phentsize: 56, Shentsize: 64,
	}
	names := "\x00"
	sections, progs := []elf.Section64{{}}, []elf.Prog64{}
	var data []byte
	const begin = 4096
	for _, p := range parts {
		off, size := uint64(begin+len(data)), uint64(len(p.data))
		data = append(data, p.data...)
		if p.segment != 0 {
			progs = append(progs, elf.Prog64{Type: uint32(p.segment), Off: off, Vaddr: p.addr, Filesz: size,
				Memsz: size})
			continue
		}
		sections = append(sections, elf.Section64{Name: uint32(len(names)), Type: uint32(p.typ), Addr: p.addr, Off: off,
			Size: size})
		names += p.name + "\x00"
	}
	if len(sections) > 1 {
		sections = append(sections, elf.Section64{Type: uint32(elf.SHT_STRTAB), Off: uint64(begin + len(data)),
			Size: uint64(len(names))})
		data = append(data, names...)
		h.Shoff, h.Shnum, h.Shstrndx = 64, uint16(len(sections)), uint16(len(sections)-1)
	} else {
		sections = nil
	}
	h.Phoff, h.Phnum = 64+64*uint64(len(sections)), uint16(len(progs))
	var b bytes.Buffer
	for _, v := range []any{h, sections, progs} {
		if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
			t.Fatal(err)
		}
	}
	b.Write(make([]byte, begin-b.Len()))
	b.Write(data)
	f, err := elf.NewFile(bytes.NewReader(b.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestFromELF(t *testing.T) {
	const text = elf.SHT_PROGBITS
	data := section(t, codec(t, V2, AMD64Little), FDESorted, 0x8000,
		part{FDE{Start: 0x1000, Size: 8}, []FRE{{0, Row{CFA: sp(8)}}}})
	for _, tt := range []struct {
		name  string
		typ   elf.Type
		parts []elfPart
		want  string // an error; "" for none
	}{
		{"by type", elf.ET_DYN, []elfPart{{name: ".x", typ: SHTGNUSFrame, addr: 0x8000, data: data}}, ""},
		{"by name", elf.ET_EXEC, []elfPart{{name: ".text", typ: text},
			{name: ".sframe", typ: text, addr: 0x8000, data: data}}, ""},
		{"by segment", elf.ET_DYN, []elfPart{{segment: elf.PT_LOAD}, {segment: PTGNUSFrame, addr: 0x8000, data: data}},
			""},
		{"the section counts", elf.ET_DYN, []elfPart{
			{segment: PTGNUSFrame, addr: 0x8000, data: []byte("no section")},
			{name: ".sframe", typ: SHTGNUSFrame, addr: 0x8000, data: data},
		}, ""},
		{"none", elf.ET_DYN, []elfPart{{name: ".text", typ: text}}, "no .sframe section and no PT_GNU_SFRAME"},
		{"two", elf.ET_DYN, []elfPart{{name: ".sframe", typ: text, data: data},
			{name: ".y", typ: SHTGNUSFrame, data: data}}, "sections 1 and 2 are both .sframe"},
		{"without bytes", elf.ET_DYN, []elfPart{{name: ".sframe", typ: elf.SHT_NOBITS, data: data}},
			"section 1 (.sframe) has no bytes in the file"},
		{"malformed", elf.ET_DYN, []elfPart{{name: ".sframe", typ: SHTGNUSFrame, data: []byte("no section")}},
			".sframe+0x0: starts with 6e 6f"},
		{"object", elf.ET_REL, []elfPart{{name: ".sframe", typ: text, data: data}}, "link it first"},
	} {
		s, err := FromELF(image(t, tt.typ, tt.parts...))
		if tt.want != "" {
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: error %v, want %q", tt.name, err, tt.want)
			}
			if errors.Is(err, ErrNone) != (tt.name == "none") {
				t.Errorf("%s: ErrNone is %t", tt.name, errors.Is(err, ErrNone))
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if e, ok, err := s.Lookup(0x1004); !ok || err != nil || e.CFA != sp(8) {
			t.Errorf("%s: Lookup gives %+v, %t, %v", tt.name, e, ok, err)
		}
	}
}

// TestFromELFCut has a section that goes on after the end of the file.
func TestFromELFCut(t *testing.T) {
	f := image(t, elf.ET_DYN, elfPart{name: ".sframe", typ: SHTGNUSFrame, data: make([]byte, 28)})
	f.Sections[1].Size += 1 << 12
	if s, err := FromELF(f); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%+v, error %v", s, err)
	}
}

// TestTypes has the numbers of the format document, "SFrame Section", and of the GNU toolchain's elf/common.h.
func TestTypes(t *testing.T) {
	if SHTGNUSFrame != 0x6ffffff4 || PTGNUSFrame != 0x6474e554 || SectionName != ".sframe" {
		t.Errorf("SHT_GNU_SFRAME is %#x, PT_GNU_SFRAME %#x, and the section is called %s", SHTGNUSFrame, PTGNUSFrame,
			SectionName)
	}
}

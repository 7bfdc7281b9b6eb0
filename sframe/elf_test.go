package sframe_test

import (
	"bytes"
	"debug/elf"
	"errors"
	"io"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/sframe"
)

// TestFromELF finds the section of a program by its section header, or by its segment if there are no section headers.
func TestFromELF(t *testing.T) {
	prog := must.Get(io.ReadAll(converted("../testdata/bin/amd64/prologue")))(t)
	const typ, off, size = elftest.ShType, elftest.ShOff, elftest.ShSize
	header := func(p *elftest.Patcher) int { return p.Section(".sframe") }
	segment := func(p *elftest.Patcher) int { return p.Segment(elf.ProgType(sframe.PTGNUSFrame), 0) }
	notByType := func(p *elftest.Patcher) { p.Put32(header(p)+typ, uint32(elf.SHT_PROGBITS)) }
	notByName := func(p *elftest.Patcher) { p.Put32(header(p), 0) }
	cut := func(p *elftest.Patcher) { p.Put64(header(p)+size, 1<<20) }
	for _, tt := range []struct {
		name   string
		change func(*elftest.Patcher)
		want   string // an error; "" for none
	}{
		{"by type", notByName, ""},
		{"by name", notByType, ""},
		{"by segment", func(p *elftest.Patcher) {
			p.Put64(elftest.EhShoff, 0)
			p.Put32(elftest.EhShnum, 0)
		}, ""},
		{"by section and not by segment", func(p *elftest.Patcher) { p.Put64(segment(p)+elftest.PhOff, 0) }, ""},
		{"none", func(p *elftest.Patcher) {
			p.Put32(segment(p), uint32(elf.PT_NULL))
			notByType(p)
			notByName(p)
		}, sframe.ErrNone.Error()},
		{"two", func(p *elftest.Patcher) { p.Put32(p.Section(".text")+typ, sframe.SHTGNUSFrame) }, "are both .sframe"},
		{"SHT_NOBITS", func(p *elftest.Patcher) { p.Put32(header(p)+typ, uint32(elf.SHT_NOBITS)) },
			" (.sframe) has no contents in the file"},
		{"truncated", cut, io.ErrUnexpectedEOF.Error()},
		{"malformed", func(p *elftest.Patcher) { p.Put64(header(p)+off, 0) }, ".sframe+0x0: starts with 7f 45"},
		{"object", func(p *elftest.Patcher) { p.Put16(16, uint16(elf.ET_REL)) }, "link it first"},
	} {
		p := elftest.Patch(t.Fatalf, prog)
		tt.change(p)
		f, err := elf.NewFile(bytes.NewReader(p.B))
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
}

// TestTypes compares constants with the format document, "SFrame Section", and with the GNU toolchain's elf/common.h.
func TestTypes(t *testing.T) {
	if sframe.SHTGNUSFrame != 0x6ffffff4 || sframe.PTGNUSFrame != 0x6474e554 || sframe.SectionName != ".sframe" {
		t.Errorf("SHT_GNU_SFRAME is %#x, PT_GNU_SFRAME %#x, and the section is called %s", sframe.SHTGNUSFrame,
			sframe.PTGNUSFrame, sframe.SectionName)
	}
}

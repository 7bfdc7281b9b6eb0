package elfwrite

import (
	"debug/elf"
	"strings"
	"testing"

	"cfi2sframe/elffile"
	"cfi2sframe/sframe"
)

// TestFindSFrame finds what each writer of .sframe makes of the headers.
func TestFindSFrame(t *testing.T) {
	section := func(name string, typ elf.SectionType) elffile.Section {
		return elffile.Section{Name: name, Section64: elf.Section64{Type: uint32(typ)}}
	}
	const typed = elf.SectionType(sframe.SHTGNUSFrame)
	gnu := elf.Prog64{Type: sframe.PTGNUSFrame, Filesz: 28}
	load := elf.Prog64{Type: uint32(elf.PT_LOAD), Filesz: 1}
	for _, tt := range []struct {
		name     string
		sections []elffile.Section
		progs    []elf.Prog64
		want     SFrame
		err      string
	}{
		{name: "none", sections: []elffile.Section{{}, section(".text", elf.SHT_PROGBITS)}, progs: []elf.Prog64{load},
			want: SFrame{0, -1}},
		{name: "binutils 2.45", sections: []elffile.Section{{}, section(".text", elf.SHT_PROGBITS),
			section(".sframe", typed)}, progs: []elf.Prog64{load, gnu}, want: SFrame{2, 1}},
		{name: "binutils 2.44", sections: []elffile.Section{{}, section(".sframe", elf.SHT_PROGBITS)},
			progs: []elf.Prog64{gnu}, want: SFrame{1, 0}},
		{name: "an object", sections: []elffile.Section{{}, section(".sframe", typed)}, want: SFrame{1, -1}},
		{name: "another name", sections: []elffile.Section{{}, section(".frames", typed)}, want: SFrame{1, -1}},
		{name: "no section headers", progs: []elf.Prog64{load, gnu}, want: SFrame{0, 1}},
		{name: "an empty segment", progs: []elf.Prog64{{Type: sframe.PTGNUSFrame}, gnu}, want: SFrame{0, 1}},
		{name: "two sections", sections: []elffile.Section{{}, section(".sframe", typed),
			section(".sframe", elf.SHT_PROGBITS)}, err: "sections 1 and 2 are both"},
		{name: "two segments", progs: []elf.Prog64{gnu, gnu}, err: "program headers 0 and 1 are both"},
	} {
		f := &elffile.File{Sections: tt.sections, Progs: tt.progs}
		got, err := FindSFrame(f)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: error %v", tt.name, err)
			}
			continue
		}
		if err != nil || got != tt.want {
			t.Errorf("%s: %+v, want %+v: %v", tt.name, got, tt.want, err)
		}
	}
}

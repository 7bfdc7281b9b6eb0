package elfwrite

import (
	"bytes"
	"debug/elf"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/arch"
	"cfi2sframe/internal/testkit/choice"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/generate"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/sframe"
)

// detach returns the separate file, after checking it with debug/elf: it must have the section at the start of the
// first page after all segments, the build-id, and the headers of the old file's loaded sections and segments.
func detach(t *testing.T, b, section []byte) ([]byte, error) {
	t.Helper()
	old := elftest.Parse(t, b)
	l, err := PlanDetached(old, uint64(len(section)), Options{})
	if err != nil {
		return nil, err
	}
	out := write(t, l, b, section)
	f := must.Get(elf.NewFile(bytes.NewReader(out)))(t)
	if f.Type != elf.Type(old.Type) || f.Machine != elf.Machine(old.Machine) || f.ByteOrder != old.Order {
		t.Errorf("header %+v", f.FileHeader)
	}
	var end uint64
	loads, page := 0, arch.Of(f.Machine).MaxPage
	for i := range old.Progs {
		h := &old.Progs[i]
		if elf.ProgType(h.Type) != elf.PT_LOAD {
			continue
		}
		end = max(end, h.Vaddr+h.Memsz)
		if got := f.Progs[loads]; got.Type != elf.PT_LOAD || got.Vaddr != h.Vaddr || got.Memsz != h.Memsz ||
			got.Filesz != 0 || got.Off != h.Vaddr%page {
			t.Errorf("segment %d is %+v; want %+v without bytes", i, got.ProgHeader, h)
		}
		loads++
	}
	addr := (end + page - 1) / page * page
	last := f.Progs[len(f.Progs)-1]
	if got, err := readAll(last); err != nil || last.Type != sframe.PTGNUSFrame || last.Vaddr != addr ||
		!bytes.Equal(got, section) {
		t.Errorf("PT_GNU_SFRAME %+v, %v; want address %#x", last.ProgHeader, err, addr)
	}
	if load := f.Progs[len(f.Progs)-2]; load.Type != elf.PT_LOAD || load.Off != last.Off ||
		load.Filesz != last.Filesz || load.Vaddr != last.Vaddr {
		t.Errorf("PT_LOAD %+v; want that of %+v", load.ProgHeader, last.ProgHeader)
	}
	want, _ := must.Two(old.BuildID())(t)
	again := elftest.Parse(t, out)
	if id, _, err := again.BuildID(); err != nil || !bytes.Equal(id, want) ||
		want != nil && f.SectionByType(elf.SHT_NOTE).Name != ".note.gnu.build-id" {
		t.Errorf("build-id %x, %v; want %x", id, err, want)
	}
	notes := f.Progs[loads : len(f.Progs)-2]
	if (len(notes) == 2) != (want != nil) || want != nil && !contains(notes[0], want) {
		t.Errorf("%d notes; want one with the build-id %x", len(notes), want)
	}
	for _, n := range notes {
		if n.Type != elf.PT_NOTE || n.Align != 4 || n.Off%4 != 0 {
			t.Errorf("%+v is not a note", n.ProgHeader)
		}
	}
	const table = elffile.HeaderSize
	if gap := notes[0].Off - (table + uint64(len(f.Progs))*elffile.ProgSize); gap >= notes[0].Align {
		t.Errorf("%#x bytes between the program headers and the first note", gap)
	}
	if err := Belongs(again, old); err != nil {
		t.Errorf("it does not belong to its program: %v", err)
	}
	if s := f.Section(sframe.SectionName); s == nil || s.Type != sframe.SHTGNUSFrame || s.Addr != addr ||
		s.Offset != last.Off || s.FileSize != last.Filesz || s.Flags != elf.SHF_ALLOC {
		t.Errorf("section %+v", s)
	}
	return out, nil
}

func readAll(p *elf.Prog) ([]byte, error) {
	return io.ReadAll(io.NewSectionReader(p, 0, int64(p.Filesz)))
}

func contains(p *elf.Prog, part []byte) bool {
	b, err := readAll(p)
	return err == nil && bytes.Contains(b, part)
}

// TestDetached expects the separate file of each fixture to have the loaded sections of the fixture, without contents.
func TestDetached(t *testing.T) {
	paths, err := filepath.Glob("../testdata/bin/*/*")
	if err != nil || len(paths) < 40 {
		t.Fatalf("%d fixtures: %v", len(paths), err)
	}
	section := bytes.Repeat([]byte{0xe2, 0xde, 2, 1}, 25)
	for _, path := range paths {
		b := testfile.Read(t, path)
		out, err := detach(t, b, section)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		f := elftest.Parse(t, out)
		for _, s := range elftest.Parse(t, b).Sections[1:] {
			got := f.Section(s.Name)
			if has := got != nil; has != (s.Alloc() && s.Name != ".eh_frame" || s.Name == ".shstrtab") {
				t.Errorf("%s: section %s: %t", path, s.Name, has)
			} else if has && (got.Addralign != s.Addralign || s.Alloc() && (got.Addr != s.Addr ||
				got.Size != s.Size || got.HasBytes() != (s.Name == ".note.gnu.build-id") ||
				got.Flags != s.Flags&^uint64(elf.SHF_INFO_LINK|elf.SHF_LINK_ORDER)) ||
				s.Alloc() && !got.HasBytes() && (got.Link != 0 || got.Info != 0 || got.Entsize != 0)) {
				t.Errorf("%s: section %+v; want %+v without bytes", path, got, s)
			}
		}
		// elfutils 0.188 (debuginfod.cxx, elf_classify) indexes a file if it has a section .debug_*, and serves it as
		// a program if a loaded section is SHT_PROGBITS.
		debug := false
		for _, s := range f.Sections {
			debug = debug || strings.HasPrefix(s.Name, ".debug_") && s.Size == 0 && s.Addralign == 1
			if s.Alloc() && elf.SectionType(s.Type) == elf.SHT_PROGBITS {
				t.Errorf("%s: section %s has contents", path, s.Name)
			}
		}
		if !debug {
			t.Errorf("%s: no section .debug_*", path)
		}
	}
}

// TestBelongs expects the notes to contain checksums computed by an independent implementation (in Python), and the
// separate file to be rejected for a different program with the same build-id.
func TestBelongs(t *testing.T) {
	noTable := func(p *elftest.Patcher) { p.Put32(p.Section(".eh_frame")+elftest.ShType, uint32(elf.SHT_NOBITS)) }
	for _, tt := range []struct {
		name, file, section string // the checksum covers the section
		change              func(p *elftest.Patcher)
		sum                 uint64
	}{
		{"tables", "amd64/pltlib.so", ".eh_frame", nil, 0x49cdfe99456ba59f},
		{"tables right before data", "amd64/pltlib.so", ".eh_frame", func(p *elftest.Patcher) {
			s, h := p.Section(".eh_frame"), p.Segment(elf.PT_GNU_STACK, 0)
			p.Prog(h, unknownType, 0, p.U64(s+elftest.ShAddr)+p.U64(s+elftest.ShSize), 8)
			p.Put32(h+elftest.PhFlags, uint32(elf.PF_R|elf.PF_W))
		}, 0x49cdfe99456ba59f},
		{"tables right after data", "amd64/pltlib.so", ".eh_frame", func(p *elftest.Patcher) {
			h := p.Segment(elf.PT_GNU_STACK, 0)
			p.Prog(h, unknownType, 0, p.U64(p.Section(".eh_frame")+elftest.ShAddr)-8, 8)
			p.Put32(h+elftest.PhFlags, uint32(elf.PF_R|elf.PF_W))
		}, 0x49cdfe99456ba59f},
		{"writable tables", "amd64/pltlib.so", ".plt", func(p *elftest.Patcher) {
			h := p.Segment(elf.PT_GNU_STACK, 0)
			p.Prog(h, unknownType, 0, p.U64(p.Section(".eh_frame")+elftest.ShAddr)-8, 9)
			p.Put32(h+elftest.PhFlags, uint32(elf.PF_R|elf.PF_W))
		}, 0xaeeb9b741355c367},
		{"more tables than the note can hold", "amd64/pltlib.so", ".eh_frame", func(p *elftest.Patcher) {
			p.NewSections(20, func(_, h int) { p.CopySection(h, ".eh_frame") })
		}, 0x49cdfe99456ba59f},
		{"tables, big-endian", "s390x/plt", ".eh_frame", nil, 0xab89212b72d83ba0},
		{"code", "amd64/pltlib.so", ".plt", noTable, 0xaeeb9b741355c367},
		{"a table that is not loaded", "amd64/pltlib.so", ".plt", func(p *elftest.Patcher) {
			p.AddSection(".gopclntab", uint64(elf.SHF_ALLOC), make([]byte, 8))
			p.Put64(p.Section(".gopclntab")+elftest.ShAddr, 1<<40)
		}, 0xaeeb9b741355c367},
		{"no section headers", "amd64/pltlib.so", ".eh_frame_hdr", bare, 0xaca58945ac66a06a},
	} {
		p := elftest.Patch(t.Fatalf, testfile.Read(t, "../testdata/bin/"+tt.file))
		s := elftest.Parse(t, p.B).Section(tt.section)
		if tt.change != nil {
			tt.change(p)
		}
		f := elftest.Parse(t, p.B)
		l := must.Get(PlanDetached(f, 0, Options{}))(t)
		out := write(t, l, p.B, nil)
		d := elftest.Parse(t, out)
		id := d.Section(".note.gnu.build-id")
		if _, want, err := d.BuildID(); err != nil || id == nil || *want != id.Section64 {
			t.Errorf("%s: section %+v for the build-id in %+v, %v", tt.name, id, want, err)
		}
		note := must.Get(d.ReadSection(d.Section(".note.cfi2sframe")))(t)
		if name, typ := f.Order.Uint32(note), f.Order.Uint32(note[8:]); name != 11 || typ != 1 { // walker/README.md
			t.Errorf("%s: a note of type %d with a name of %d bytes", tt.name, typ, name)
		}
		if sum := f.Order.Uint64(note[24+16:]); sum != tt.sum {
			t.Errorf("%s: note %x; want checksum %#x", tt.name, note, tt.sum)
		}
		if err := Belongs(d, f); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		for _, off := range []uint64{0, 7, 8, s.Size - 1} {
			p.B[s.Off+off] ^= 0x80
			if err := Belongs(d, elftest.Parse(t, p.B)); !errors.Is(err, ErrOther) {
				t.Errorf("%s: with byte %d changed: %v; want %v", tt.name, off, err, ErrOther)
			}
			p.B[s.Off+off] ^= 0x80
		}
		for _, off := range []uint64{4, 12} { // the size of the descriptor, and the name
			at := d.Section(".note.cfi2sframe").Off + off
			out[at] ^= 0x40
			err := Belongs(elftest.Parse(t, out), f)
			if err == nil || !strings.Contains(err.Error(), "is not a note from cfi2sframe") {
				t.Errorf("%s: with byte %d of the note changed: %v", tt.name, off, err)
			}
			out[at] ^= 0x40
		}
		d.Section(".note.cfi2sframe").Size = 1 << 40
		if err := Belongs(d, f); err == nil || !strings.Contains(err.Error(), "do not fit in the file") {
			t.Errorf("%s: with a note outside the file: %v", tt.name, err)
		}
		if err := Belongs(f, f); err == nil || errors.Is(err, ErrOther) {
			t.Errorf("%s: without a note: %v", tt.name, err)
		}
	}
}

// TestDetachedRefused expects errors for files that cannot have a separate .sframe.
func TestDetachedRefused(t *testing.T) {
	loads := func(p *elftest.Patcher, change func(h int)) {
		for i := range int(p.U16(elftest.EhPhnum)) {
			if h := int(p.U64(elftest.EhPhoff)) + i*elffile.ProgSize; elf.ProgType(p.U32(h)) == elf.PT_LOAD {
				change(h)
			}
		}
	}
	const vaddr = 16 // offset in a program header
	for _, tt := range []struct {
		want   string
		change func(p *elftest.Patcher)
	}{
		{"machine EM_386 is not supported", func(p *elftest.Patcher) { p.Put16(18, uint16(elf.EM_386)) }},
		{"no loaded segment", func(p *elftest.Patcher) {
			loads(p, func(h int) { p.Put32(h, uint32(elf.PT_NULL)) })
		}},
		{"no addresses left after 0xffffffffffff", func(p *elftest.Patcher) {
			loads(p, func(h int) { p.Put64(h+vaddr, p.U64(h+vaddr)|0xffffffffffffd000) })
		}},
		{ErrExists.Error(), func(p *elftest.Patcher) { // the first program header
			p.Put32(int(p.U64(elftest.EhPhoff)), uint32(sframe.PTGNUSFrame))
		}},
		{ErrExists.Error(), func(p *elftest.Patcher) {
			p.AddSection(sframe.SectionName, uint64(elf.SHF_ALLOC), make([]byte, 8))
		}},
		{"sections 1 and 2 are both .sframe", func(p *elftest.Patcher) {
			p.Put32(p.Header(1)+elftest.ShType, sframe.SHTGNUSFrame)
			p.Put32(p.Header(2)+elftest.ShType, sframe.SHTGNUSFrame)
		}},
	} {
		p := elftest.Patch(t.Fatalf, read(t, "pltlib.so"))
		tt.change(p)
		l, err := PlanDetached(elftest.Parse(t, p.B), 0x1000, Options{})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v, %v; want %q", l, err, tt.want)
		}
	}
}

// FuzzDetached generates an ELF file and makes a detached .sframe for it. A damaged file must be rejected or get a
// valid section.
func FuzzDetached(f *testing.F) {
	for seed := range uint64(60) {
		f.Add(choice.Seeded(seed, 120), uint16(seed*331), uint64(0))
		f.Add(choice.Seeded(seed, 120), uint16(seed*331), generate.Damage(seed))
	}
	f.Fuzz(func(t *testing.T, choices []byte, size uint16, damage uint64) {
		if len(choices) > 4096 {
			return
		}
		b := generate.NewFile(choice.From(choices)).Bytes
		if damage != 0 {
			b = generate.Damaged(b, damage)
		}
		old, err := elffile.New(bytes.NewReader(b), int64(len(b)))
		if err != nil || old.IsObject() {
			return
		}
		section := bytes.Repeat([]byte{0xe2}, int(size))
		if damage == 0 {
			if _, err := detach(t, b, section); err != nil {
				t.Errorf("error %v for a valid file", err)
			}
			return
		}
		l, err := PlanDetached(old, uint64(size), Options{})
		if err != nil {
			return
		}
		out := elftest.Parse(t, write(t, l, b, section))
		at, err := FindSFrame(out)
		if err != nil || at.Section == 0 {
			t.Fatalf("%+v, %v", at, err)
		}
		if got, err := out.ReadSection(&out.Sections[at.Section]); err != nil || !bytes.Equal(got, section) {
			t.Errorf("%d bytes, %v; want %d", len(got), err, len(section))
		}
	})
}

// TestDebugOnly checks that DebugOnly distinguishes debug files from programs and objects.
func TestDebugOnly(t *testing.T) {
	debug := onlyDebug(t, read(t, "alloca"))
	withData := elftest.Patch(t.Fatalf, bytes.Clone(debug))
	withData.Put32(withData.Section(".eh_frame")+elftest.ShType, uint32(elf.SHT_PROGBITS))
	noCode := elftest.Patch(t.Fatalf, bytes.Clone(debug))
	noCode.Put64(noCode.Section(".text")+elftest.ShFlags, uint64(elf.SHF_ALLOC))
	for name, tt := range map[string]struct {
		b    []byte
		want bool
	}{
		"debug information":       {debug, true},
		"a program":               {read(t, "alloca"), false},
		"tables with their bytes": {withData.B, false},
		"no code":                 {noCode.B, false},
		"an object":               {elftest.NewObject().Bytes(), false},
		"without section headers": {patched(t, "alloca", bare), false},
	} {
		if got := DebugOnly(elftest.Parse(t, tt.b)); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

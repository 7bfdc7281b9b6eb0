package elfwrite

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"cfi2sframe/elffile"
)

// A noteKind identifies a kind of note (ELF gABI, "Note Section").
type noteKind struct {
	name string // owner of the type
	typ  uint32
}

func (k noteKind) String() string { return fmt.Sprintf("%.20q of type %#x", k.name, k.typ) }

// gnuBuildID is NT_GNU_BUILD_ID.
var gnuBuildID = noteKind{"GNU", 3}

// headerNotes lists the kinds of notes whose readers, named in the comments, find them only through program or section
// headers. Code may refer to other notes.
var headerNotes = []noteKind{
	gnuBuildID,          // debuggers, tracers, kernels
	{"GNU", 1},          // the ABI: loaders
	{"GNU", 5},          // properties: loaders, kernels
	{"FDO", 0xcafe1a7e}, // package metadata: systemd
	{"FDO", 0x407c0c0a}, // names of libraries to dlopen: packaging tools
	{"Go", 4},           // Go's own build ID: Go's tools
	{"Android", 1},      // API level, and memory tagging (type 4): Android's loader
	{"Android", 4},
	crashpad, // Crashpad's handler; the contents are an offset relative to their own address
}

// crashpad is CRASHPAD_ELF_NOTE_TYPE_CRASHPAD_INFO. Its contents are crashpadSize bytes long.
var crashpad = noteKind{"Crashpad", 0x4f464e49}

const crashpadSize = 8

// maxNoteAlign is the maximum alignment in bytes of a PT_NOTE that moves. Notes are aligned to 4 or 8 bytes, whatever
// their segment declares.
const maxNoteAlign = 16

// A note is the kind and the file range of an ELF note, and the file offset of its contents.
type note struct {
	noteKind
	elffile.Span
	contents uint64
}

// notes returns the notes in range s of the file, which are aligned to 8 bytes if align is 8, otherwise to 4. It
// reports false if the range contains anything but notes.
func (p *Program) notes(s elffile.Span, align uint64) ([]note, bool) {
	if align != 8 {
		align = 4
	}
	b, err := p.f.ReadAt("notes", s.Begin, s.Size())
	if err != nil {
		return nil, false
	}
	const head = 12 // sizes of the name and the contents; type
	var all []note
	for at, size := uint64(0), s.Size(); at < size; {
		if size-at < head {
			return nil, false
		}
		name := uint64(p.f.Order.Uint32(b[at:]))
		contents := elffile.AlignUp(at+head+name, align)
		end := contents + uint64(p.f.Order.Uint32(b[at+4:]))
		if end > size {
			return nil, false
		}
		all = append(all, note{
			noteKind{strings.TrimRight(string(b[at+head:at+head+name]), "\x00"), p.f.Order.Uint32(b[at+8:])},
			span(s.Begin+at, s.Begin+end), s.Begin + contents,
		})
		at = elffile.AlignUp(end, align)
	}
	return all, true
}

// noteUnit extends u, a note section, to the PT_NOTEs and PT_GNU_PROPERTY that contain it. It returns an error if they
// contain anything but notes in headerNotes.
func (p *Program) noteUnit(u *unit, progs []elf.Prog64) error {
	found := false
	for _, h := range byOffset(progs, elf.PT_NOTE, elf.PT_GNU_PROPERTY) {
		t := elf.ProgType(h.Type)
		if !fileSpan(h).Overlaps(u.Span) {
			continue
		}
		if h.Off < u.Begin {
			return fmt.Errorf("%v at file offset %#x starts before it", t, h.Off)
		}
		found = true
		u.notes = u.notes || t == elf.PT_NOTE
		u.align = max(u.align, min(elffile.ValidAlign(h.Align), maxNoteAlign))
		u.End = max(u.End, fileSpan(h).End)
	}
	if !found {
		return errors.New("no PT_NOTE contains it; code may refer to it in another way")
	}
	if len(p.f.Sections) == 0 {
		return p.headerNotesIn(u, u.Span, u.align)
	}
	var parts []elffile.Span
	for _, s := range elffile.Each(p.f.Sections) {
		if !s.HasBytes() || !sectionSpan(s).Overlaps(u.Span) {
			continue
		}
		if elf.SectionType(s.Type) != elf.SHT_NOTE {
			return fmt.Errorf("its PT_NOTE includes %s of type %v", s.Name, elf.SectionType(s.Type))
		}
		if identifier.MatchString(s.Name) {
			return fmt.Errorf("code can refer to section %s through linker-defined __start_ and __stop_ symbols",
				s.Name)
		}
		if err := p.headerNotesIn(u, sectionSpan(s), s.Addralign); err != nil {
			return err
		}
		parts = append(parts, sectionSpan(s))
	}
	if !p.unused(u.Span, parts...) {
		return errors.New("bytes in its PT_NOTE belong to no section")
	}
	return nil
}

// headerNotesIn returns an error if s, a part of u, contains anything but notes in headerNotes. The notes have the
// given alignment.
func (p *Program) headerNotesIn(u *unit, s elffile.Span, align uint64) error {
	all, ok := p.notes(s, align)
	if !ok {
		return errors.New("it contains more than notes")
	}
	for _, n := range all {
		if !slices.Contains(headerNotes, n.noteKind) {
			return fmt.Errorf("the program may read its note %v; link it with mold --spare-program-headers=2, "+
				"or change the type of the section from SHT_NOTE", n.noteKind)
		}
		u.buildID = u.buildID || n.noteKind == gnuBuildID
		if n.noteKind != crashpad {
			continue
		}
		if n.End-n.contents != crashpadSize {
			return fmt.Errorf("its note %v has %d bytes, not %d",
				n.noteKind, n.End-n.contents, crashpadSize)
		}
		u.distances = append(u.distances, n.contents)
	}
	return nil
}

// byOffset returns the program headers of the given types, sorted by file offset.
func byOffset(progs []elf.Prog64, types ...elf.ProgType) []*elf.Prog64 {
	var all []*elf.Prog64
	for _, h := range elffile.Each(progs) {
		if slices.Contains(types, elf.ProgType(h.Type)) {
			all = append(all, h)
		}
	}
	slices.SortStableFunc(all, func(a, b *elf.Prog64) int { return cmp.Compare(a.Off, b.Off) })
	return all
}

// identifier matches section names for which linkers define __start_ and __stop_ symbols.
var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

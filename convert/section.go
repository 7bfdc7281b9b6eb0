package convert

import (
	"debug/elf"
	"errors"
	"fmt"
	"slices"

	"cfi2sframe/elffile"
	"cfi2sframe/elfwrite"
	"cfi2sframe/sframe"
)

// A Format holds the properties of a section that options select.
type Format struct {
	Version   sframe.Version
	PCRel     bool // each start address is relative to its own field
	Outermost bool // code without a caller has rows without data words
}

// Mergers returns the linkers that merge sections of the format in objects; see docs/limits.md. Other linkers drop the
// sections, with or without a warning, or fail.
func (f Format) Mergers() []string {
	switch {
	case f.Version == sframe.V2 && !f.PCRel:
		return []string{"GNU ld 2.41 to 2.44"}
	case f.Version == sframe.V2:
		return []string{"GNU ld 2.45"}
	case f.Version == sframe.V3:
		return []string{"GNU ld 2.46 and later", "mold 3"}
	}
	return nil
}

// String returns the format in words.
func (f Format) String() string {
	text := fmt.Sprintf("V%d", f.Version)
	l, _ := f.Version.Layout()
	if f.PCRel && !l.PCRel {
		text += " with start addresses relative to their own fields"
	}
	if f.Outermost && !l.Outermost {
		text += " with rows for code without a caller"
	}
	return text
}

// complete returns the format with the properties that its version implies.
func (f Format) complete() Format {
	l, _ := f.Version.Layout()
	f.PCRel, f.Outermost = f.PCRel || l.PCRel, f.Outermost || l.Outermost
	return f
}

// A Reader describes a program that reads sections of certain formats.
type Reader struct {
	Formats  []Format
	NoPCMask bool // the program does not support PC-mask FDEs
	Linux    Linux
}

// Refusal returns the reason why the reader cannot read the section s of the file f, which has the given format, or "".
// It does not read rows.
func (r *Reader) Refusal(f *elffile.File, s *sframe.Section, format Format) (string, error) {
	if r.Linux != NotLinux {
		return r.Linux.Refusal(f, s)
	}
	if !slices.ContainsFunc(r.Formats, func(f Format) bool { return f.complete() == format.complete() }) {
		return fmt.Sprintf("it is %v", format), nil
	}
	if !r.NoPCMask {
		return "", nil
	}
	for i, d := range s.FDEs() {
		if d.PCMask {
			return fmt.Sprintf("FDE %d at %#x has a PC mask, which the reader does not support", i,
				d.Start), nil
		}
	}
	return "", nil
}

// maxFormatRows bounds the number of rows searched for rows without data words, because FDEs can share rows.
const maxFormatRows = 1 << 24

// FormatOf returns the format of a section.
func FormatOf(s *sframe.Section) (Format, error) {
	l, _ := s.Version.Layout()
	found := Format{Version: s.Version, PCRel: l.PCRel || s.Flags&sframe.FDEFuncStartPCRel != 0, Outermost: l.Outermost}
	if found.Outermost || !l.Errata2 {
		return found, nil
	}
	reader, rows := s.NewReader(), 0
	for i := range s.Len() {
		_, refs, err := reader.Refs(i)
		if err != nil {
			return Format{}, err
		}
		if rows += len(refs); rows > maxFormatRows {
			return Format{}, fmt.Errorf("FDEs of .sframe share too many rows: more than %d at FDE %d", maxFormatRows, i)
		}
	}
	for i := range reader.Rows {
		found.Outermost = found.Outermost || reader.Rows[i].Outermost
	}
	return found, nil
}

// hasSFrame reports whether a file has an .sframe, or inconsistent headers for one.
func hasSFrame(f *elffile.File) bool {
	at, err := elfwrite.FindSFrame(f)
	return err != nil || at.Section > 0 || at.Segment >= 0
}

// FindSection is like ReadSection, but decodes reserved bytes if symbols START:END are given, or if the file has the
// kernel's symbols and no headers for .sframe.
func FindSection(f *elffile.File, symbols string) (*sframe.Section, error) {
	if symbols = symbolsOf(f, symbols); symbols != "" {
		return readInto(f, symbols)
	}
	return ReadSection(f)
}

// ErrEmpty is returned for an .sframe of size 0, such as that of glibc's Scrt1.o, or without contents in the file, as
// in debug files. It matches sframe.ErrNone.
var ErrEmpty error = emptyError{}

type emptyError struct{}

func (emptyError) Error() string        { return ".sframe has no contents" }
func (emptyError) Is(target error) bool { return target == sframe.ErrNone }

// ReadSection decodes the .sframe of a file, which another tool may have written. It uses the section headers, or
// PT_GNU_SFRAME in a file without section headers. If the file has no section, the error is sframe.ErrNone.
func ReadSection(f *elffile.File) (*sframe.Section, error) {
	at, err := elfwrite.FindSFrame(f)
	switch {
	case err != nil:
		return nil, err
	case at.Section > 0 && (!f.Sections[at.Section].HasBytes() || f.Sections[at.Section].Size == 0):
		return nil, ErrEmpty
	case at.Section > 0 && f.IsObject():
		return readObject(f, &f.Sections[at.Section])
	case at.Section > 0:
		s := &f.Sections[at.Section]
		b, err := f.ReadSection(s)
		if err != nil {
			return nil, err
		}
		return decode(b, s.Addr)
	case at.Segment >= 0 && !f.IsObject():
		h := &f.Progs[at.Segment]
		b, err := f.ReadAt("PT_GNU_SFRAME", h.Off, h.Filesz)
		if err != nil {
			return nil, err
		}
		return decode(b, h.Vaddr)
	}
	return nil, sframe.ErrNone
}

// decode decodes the .sframe in b. Only zeros, such as padding, may follow it: linkers that do not merge .sframe
// concatenate the sections of their inputs, and readers find only the first.
func decode(b []byte, addr uint64) (*sframe.Section, error) {
	s, err := sframe.Decode(b, addr)
	if err != nil {
		return nil, err
	}
	if anyByte(b[s.Size():]) {
		return nil, &sframe.Error{Off: s.Size(), Msg: "readers ignore the bytes after this table; if a linker " +
			"concatenated sections, convert its output with --force"}
	}
	return s, nil
}

// readObject decodes the .sframe of an object after applying its relocations. Relocated start addresses are relative to
// their fields even without the flag, which only the linker needs.
func readObject(f *elffile.File, s *elffile.Section) (*sframe.Section, error) {
	b, err := f.ReadRelocated(s)
	if err != nil {
		return nil, err
	}
	var flags sframe.Flags
	if len(b) > 3 {
		if l, _ := sframe.Version(b[2]).Layout(); l.Flags&sframe.FDEFuncStartPCRel != 0 {
			flags = sframe.Flags(b[3])
			b[3] |= byte(sframe.FDEFuncStartPCRel)
		}
	}
	d, err := decode(b, s.Base)
	if err == nil {
		d.Flags = flags
	}
	return d, err
}

// readResult decodes the .sframe of a new file as a stack tracer does: through PT_GNU_SFRAME, in a loaded segment.
func (o *Options) readResult(f *elffile.File, size uint64) (*sframe.Section, error) {
	switch {
	case f.IsObject():
		return ReadSection(f)
	case o.Reserved != "":
		return readInto(f, o.Reserved)
	}
	b, addr, err := o.sectionBytes(f)
	if err == nil && uint64(len(b)) != size {
		err = fmt.Errorf("PT_GNU_SFRAME is %d bytes long, not %d", len(b), size)
	}
	if err != nil {
		return nil, err
	}
	return decode(b, addr)
}

// sectionBytes returns the contents of the .sframe of a linked file, or all reserved bytes, and their address.
func (o *Options) sectionBytes(f *elffile.File) ([]byte, uint64, error) {
	if o.Reserved != "" {
		return intoBytes(f, o.Reserved)
	}
	h, err := sframeSegment(f)
	if err != nil {
		return nil, 0, err
	}
	b, err := f.ReadAt(sframe.SectionName, h.Off, h.Filesz)
	return b, h.Vaddr, err
}

// sframeSegment returns the PT_GNU_SFRAME of a linked file. It must be in a loaded segment, and agree with any section
// headers.
func sframeSegment(f *elffile.File) (*elf.Prog64, error) {
	at, err := elfwrite.FindSFrame(f)
	if err != nil {
		return nil, err
	}
	if at.Segment < 0 {
		return nil, errors.New("no PT_GNU_SFRAME")
	}
	h := &f.Progs[at.Segment]
	off, ok := f.FileOffset(h.Vaddr, h.Memsz)
	if !ok || off != h.Off || h.Filesz != h.Memsz {
		return nil, errors.New("PT_GNU_SFRAME is not in a loaded segment")
	}
	if len(f.Sections) > 0 {
		s := &f.Sections[at.Section]
		if s.Name != sframe.SectionName || s.Type != sframe.SHTGNUSFrame || s.Size != h.Filesz || s.Addr != h.Vaddr ||
			s.Off != h.Off {
			return nil, errors.New("section .sframe contradicts PT_GNU_SFRAME")
		}
	}
	return h, nil
}

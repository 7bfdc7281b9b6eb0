package convert

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"slices"
	"strings"

	"cfi2sframe/elffile"
	"cfi2sframe/elfwrite"
	"cfi2sframe/internal/arch"
	"cfi2sframe/sframe"
)

// A Linux identifies the Linux unwinder that reads a section. The rules below follow the patch series of the unwinders:
// v14 and later for user space (since May 2026), v4 to v8 for the kernel (April to October 2026). docs/readers.md lists
// the rules of each version.
type Linux uint8

const (
	NotLinux    Linux = iota
	LinuxUser         // programs and libraries
	LinuxKernel       // vmlinux, or vmlinux.o
	LinuxModule       // *.ko
)

// ErrRefused is returned if Linux would reject the result.
var ErrRefused = errors.New("nothing was written: Linux would reject the section")

// Errors for files that the options do not apply to.
var (
	ErrReserved  = errors.New("only linked files can have reserved bytes; linkers merge the sections of objects")
	ErrNotModule = errors.New("modules are relocatable objects (*.ko), but this is a linked file")
	ErrNoSymbols = errors.New("a linked kernel finds .sframe by symbols")
)

// inKernel reports whether the code to unwind is in the kernel.
func (l Linux) inKernel() bool { return l == LinuxKernel || l == LinuxModule }

// KernelSymbols are the symbols at the start and end of a kernel's SFrame section.
const KernelSymbols = "__start_sframe:__end_sframe"

// kernelText lists the symbols around the text of a linked kernel, then those around other code whose FDEs Linux
// accepts.
var kernelText = [][2]string{
	{"_stext", "_etext"},
	{"_sinittext", "_einittext"}, {"__exittext_begin", "__exittext_end"}, {"_srodatatext", "_erodatatext"},
}

// symbolRanges returns the ranges between pairs of symbols. Only the first pair is required to exist.
func symbolRanges(f *elffile.File, pairs ...[2]string) ([]elffile.Span, error) {
	var names []string
	for _, p := range pairs {
		names = append(names, p[:]...)
	}
	symbols, err := f.FindSymbols(names...)
	if err != nil {
		return nil, err
	}
	var ranges []elffile.Span
	for i, p := range pairs {
		begin, ok := symbols[p[0]]
		end, both := symbols[p[1]]
		if ok && both {
			ranges = append(ranges, elffile.Span{Begin: begin.Value, End: end.Value})
		} else if i == 0 {
			return nil, fmt.Errorf("no symbols %s and %s; use the unstripped file, whose linker script defines them",
				p[0], p[1])
		}
	}
	return ranges, nil
}

// withoutRows returns a predicate that reports whether code at pc gets no rows, or nil if no code is excluded.
func (l Linux) withoutRows(f *elffile.File) (func(pc uint64) bool, error) {
	switch {
	case !l.inKernel():
		return nil, nil
	case f.IsObject() && len(f.Sections) > 0: // the module loader frees code in sections with these names
		return func(pc uint64) bool {
			name := f.Sections[f.SectionAt(pc)].Name
			return strings.HasPrefix(name, ".init") || strings.HasPrefix(name, ".exit")
		}, nil
	}
	text, err := symbolRanges(f, kernelText[0])
	if err != nil {
		return nil, err
	}
	return func(pc uint64) bool { return !text[0].Has(pc) }, nil
}

// executableSegments returns the address ranges of the executable PT_LOAD segments.
func executableSegments(f *elffile.File) (ranges []elffile.Span) {
	for _, h := range elffile.Each(f.Progs) {
		if elf.ProgType(h.Type) == elf.PT_LOAD && elf.ProgFlag(h.Flags)&elf.PF_X != 0 {
			ranges = append(ranges, elffile.Span{Begin: h.Vaddr, End: h.Vaddr + h.Memsz})
		}
	}
	return ranges
}

// CodeSegments returns the number of executable segments that contain code with rows. Linux registers the section once
// for each executable segment. With CONFIG_SFRAME_VALIDATION, a debugging option, it rejects the section if any FDE
// starts outside that segment. Without the option, it reads only the FDE that it looks up, but removes the section if
// that FDE starts in another segment, as happens for code without rows. Therefore all segments should have rows.
func CodeSegments(f *elffile.File, s *sframe.Section) (n int) {
	for _, r := range executableSegments(f) {
		for _, d := range s.FDEs() {
			if r.Has(d.Start) {
				n++
				break
			}
		}
	}
	return n
}

// validStart returns a predicate that reports whether an FDE may start at pc.
func (l Linux) validStart(f *elffile.File) (func(pc uint64) bool, error) {
	var ranges []elffile.Span
	switch {
	case f.IsObject() && len(f.Sections) > 0:
		return func(pc uint64) bool { return f.Sections[f.SectionAt(pc)].IsCode() }, nil
	case l == LinuxKernel:
		var err error
		if ranges, err = symbolRanges(f, kernelText...); err != nil {
			return nil, err
		}
	default:
		ranges = executableSegments(f)
	}
	return func(pc uint64) bool {
		return slices.ContainsFunc(ranges, func(r elffile.Span) bool { return r.Has(pc) })
	}, nil
}

// Refusal returns the reason why Linux rejects the section s of the file f, or "".
func (l Linux) Refusal(f *elffile.File, s *sframe.Section) (string, error) {
	if l == NotLinux {
		return "", nil
	}
	validStart, err := l.validStart(f)
	if err != nil {
		return "", err
	}
	if l == LinuxModule {
		if why, err := refuseModule(f, s); why != "" || err != nil {
			return why, err
		}
	}
	return l.refuse(s, l != LinuxModule && !f.IsObject(), validStart), nil
}

// refuse returns the reason why Linux rejects a section, or "". The predicate validStart is from Linux.validStart. The
// checks are those of sframe_read_header and, in kernels, sframe_validate_section, except for those that sframe.Decode
// performs, and for those of rows.
func (l Linux) refuse(s *sframe.Section, sorted bool, validStart func(pc uint64) bool) string {
	switch {
	case s.Version != sframe.V3:
		return fmt.Sprintf("version is %d, not 3", s.Version)
	case s.Flags&sframe.FDEFuncStartPCRel == 0:
		return "flag 0x4 is clear: start addresses are not relative to their own fields"
	case sorted && s.Flags&sframe.FDESorted == 0:
		return "flag 0x1 is clear: FDEs are not sorted"
	case s.AuxLen != 0:
		return fmt.Sprintf("auxiliary header of %d bytes", s.AuxLen)
	case s.NumFDEs == 0 || s.NumFREs == 0:
		return fmt.Sprintf("%d FDEs and %d FREs, but at least one of each is required", s.NumFDEs, s.NumFREs)
	}
	s = s.Sorted()
	last := uint64(0)
	for i := range s.Len() {
		d := s.FDE(i)
		at := func(what string) string {
			return fmt.Sprintf("FDE %d (%d bytes at %#x) %s", i, d.Size, d.Start, what)
		}
		switch {
		case d.Start <= last:
			return at(fmt.Sprintf("is not after the FDE at %#x", last))
		case !validStart(d.Start):
			return at("is outside the text")
		case d.Flexible && l.inKernel():
			return at("is flexible, which the kernel's own unwinder does not support")
		}
		last = d.Start
	}
	return ""
}

// refuseModule returns the reason why the module loader rejects the section of a module, or "".
func refuseModule(f *elffile.File, s *sframe.Section) (string, error) {
	at, err := elfwrite.FindSFrame(f)
	if err != nil {
		return "", err
	}
	a := arch.Of(elf.Machine(f.Machine))
	if !f.IsObject() || at.Section == 0 {
		return "a module must be a relocatable object with .sframe", nil
	}
	if a == nil {
		return fmt.Sprintf("machine %v has no SFrame ABI", elf.Machine(f.Machine)), nil
	}
	h := &f.Sections[at.Section]
	if !h.Alloc() {
		return "section .sframe is not SHF_ALLOC", nil
	}
	l, _ := s.Version.Layout()
	want, _ := a.PCRelType(l.StartSize)
	b, err := f.ReadSection(h)
	if err != nil {
		return "", err
	}
	n := uint32(0)
	for _, r := range elffile.Each(f.Sections) {
		if elf.SectionType(r.Type) != elf.SHT_RELA || int(r.Info) != at.Section {
			continue
		}
		why := ""
		err := f.ReadTable("section "+r.Name, r.Off, r.Size, elffile.RelaSize, func(rela []byte, _ uint64) error {
			for ; len(rela) >= elffile.RelaSize && why == ""; rela = rela[elffile.RelaSize:] {
				off, typ := f.Order.Uint64(rela), uint32(f.Order.Uint64(rela[elffile.RelaInfo:]))
				n++
				switch {
				case typ != want:
					why = fmt.Sprintf("relocation at .sframe+%#x has type %d, not %d", off, typ, want)
				case off > uint64(len(b)) || uint64(len(b))-off < uint64(l.StartSize) ||
					anyByte(b[off:off+uint64(l.StartSize)]):
					why = fmt.Sprintf("the relocated field at .sframe+%#x is not zero", off)
				}
			}
			return nil
		})
		if why != "" || err != nil {
			return why, err
		}
	}
	if n != s.NumFDEs {
		return fmt.Sprintf("%d FDEs have %d relocations", s.NumFDEs, n), nil
	}
	return "", nil
}

// anyByte reports whether any byte is nonzero.
func anyByte(b []byte) bool { return len(bytes.TrimLeft(b, "\x00")) > 0 }

// checkLinux returns an error if the options Linux and Reserved do not apply to a file.
func (o *Options) checkLinux(f *elffile.File) error {
	switch {
	case o.Reserved != "" && f.IsObject():
		return ErrReserved
	case o.Linux == LinuxModule && !f.IsObject():
		return ErrNotModule
	case o.Linux == LinuxKernel && !f.IsObject() && o.Reserved == "":
		return ErrNoSymbols
	}
	return nil
}

// intoRange returns the address range between two symbols of a linked file. Their names are given as START:END.
func intoRange(f *elffile.File, symbols string) (elffile.Span, error) {
	begin, end, _ := strings.Cut(symbols, ":")
	r, err := symbolRanges(f, [2]string{begin, end})
	if err != nil {
		return elffile.Span{}, err
	}
	return r[0], nil
}

// symbolsOf returns symbols, if given, or the symbols around the bytes reserved for .sframe in a linked kernel. It
// returns "" if the section is located by headers, or not at all.
func symbolsOf(f *elffile.File, symbols string) string {
	if symbols != "" || f.IsObject() || hasSFrame(f) {
		return symbols
	}
	if _, err := intoRange(f, KernelSymbols); err != nil {
		return ""
	}
	return KernelSymbols
}

// intoBytes returns the bytes between two symbols of a linked file, and the address of the first byte.
func intoBytes(f *elffile.File, symbols string) ([]byte, uint64, error) {
	r, err := intoRange(f, symbols)
	if err != nil {
		return nil, 0, err
	}
	off, ok := f.FileOffset(r.Begin, r.Size())
	if !ok || r.Begin >= r.End {
		return nil, 0, fmt.Errorf("no loaded segment contains the bytes from %#x to %#x", r.Begin, r.End)
	}
	b, err := f.ReadAt(sframe.SectionName, off, r.Size())
	return b, r.Begin, err
}

// readInto decodes the .sframe between two symbols of a linked file.
func readInto(f *elffile.File, symbols string) (*sframe.Section, error) {
	b, addr, err := intoBytes(f, symbols)
	if err != nil {
		return nil, err
	}
	if !anyByte(b) {
		return nil, sframe.ErrNone
	}
	return decode(b, addr)
}

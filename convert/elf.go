package convert

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/elfwrite"
	"cfi2sframe/internal/outfile"
	"cfi2sframe/internal/padding"
	"cfi2sframe/internal/plt"
	"cfi2sframe/sframe"
	"cfi2sframe/verify"
)

// A single is the state of an operation on one ELF file: the input or a member of an archive.
type single struct {
	*conversion
	f      *elffile.File
	src    io.ReaderAt
	member string // its name in the archive, or ""
	create func() (*os.File, error)
	debug  *Companion // the debug file, or nil
	table  *cfi.Table
	stubs  []plt.Stub
	gaps   *padding.Gaps // gaps that may be padding, or nil; cleared once pads is set
	pads   []uint8       // sizes of the padding after functions, or nil

	facts       *Facts       // nil if nothing was translated
	translation *translation // described by facts
}

// add adds an .sframe. Even after an error, there may be facts to report.
func (s *single) add() error {
	if err := s.load(); err != nil {
		return err
	}
	if s.f.IsObject() {
		return (&object{s}).add()
	}
	return (&linked{single: s, references: s.references}).add()
}

// load loads the CFI, and finds other code that may get rows.
func (s *single) load() (err error) {
	f := s.f
	if elfwrite.DebugOnly(f) {
		return errDebugOnly
	}
	if s.detach {
		if err := s.checkDetachable(); err != nil {
			return err
		}
	}
	if err := cmp.Or(s.opt.checkLinux(f), checkExecutable(f)); err != nil {
		return err
	}
	if s.debug, err = s.opt.Debug.open(f); err != nil {
		return err
	}
	s.reportStart(Work{Size: f.Size, CFI: cfi.Size(f)})
	if s.table, err = LoadCFI(s.ctx, f, s.opt.loading(s.debug)); err != nil {
		return err
	}
	switch {
	case s.table.Len() > 0:
	case len(s.table.Errors) > 0:
		return fmt.Errorf("no usable CFI: %w", s.table.Errors[0])
	case s.opt.Infer:
		return notInferred(s.table, ErrNoCode)
	default:
		return mayInfer(f, ErrNoCode)
	}
	s.stubs, err = plt.Find(f, s.table)
	if err == nil && !s.opt.NoPadding {
		s.gaps = padding.Find(f, s.table, s.stubs)
	}
	return err
}

// references calls refers for each reference to code.
func (s *single) references(refers func(first, last uint64)) error {
	return elfwrite.References(s.f, refers)
}

// checkExecutable returns an error if a linked file has a code section in a segment that is not executable. Packages
// that use sections and packages that use segments disagree about whether the section is code.
func checkExecutable(f *elffile.File) error {
	if f.IsObject() {
		return nil
	}
	for _, s := range f.Code() {
		if s.Filesz == 0 {
			continue
		}
		if err := f.Budget().Spend(1, uint64(len(f.Progs))); err != nil {
			return err
		}
		in := -1
		for j, h := range elffile.Each(f.Progs) {
			if elf.ProgType(h.Type) != elf.PT_LOAD || s.Begin < h.Vaddr || s.Begin-h.Vaddr >= h.Memsz {
				continue
			}
			if in = j; elf.ProgFlag(h.Flags)&elf.PF_X != 0 {
				in = -1
				break
			}
		}
		if in >= 0 {
			return fmt.Errorf("section %s at file offset %#x is code, but its program header %d at file offset %#x "+
				"has flags %#x without PF_X: malformed file", s.Name, s.Off, in,
				f.Phoff+uint64(in)*elffile.ProgSize, f.Progs[in].Flags)
		}
	}
	return nil
}

// checkAppended returns an error if the layout moves data that a program may find by its file offset.
func (s *single) checkAppended(l *elfwrite.Layout) error {
	if l.Appended == 0 || s.opt.Force {
		return nil
	}
	return fmt.Errorf("it has %d bytes of %w", l.Appended, ErrAppended)
}

// output creates the output and writes the new file to it. In a dry run, it returns nil.
func (s *single) output(layout *elfwrite.Layout, section []byte) (*os.File, error) {
	if err := s.ctx.Err(); err != nil || s.create == nil {
		return nil, err
	}
	dst, err := s.create()
	if err != nil {
		return nil, err
	}
	return dst, outfile.Plain(layout.Write(s.ctx, dst, s.src, section, nil))
}

// verify checks the result, unless an object gets no section.
func (s *single) verify(dst *os.File, t *translation) error {
	if s.opt.NoVerify || dst != nil && len(t.section) == 0 {
		return nil
	}
	err := s.reread(dst, t)
	s.facts.Verified = err == nil
	return err
}

// reread decodes the section from the new file as its readers do, compares it with the CFI, and expects rows for
// exactly the translated code. In a dry run, dst is nil.
func (s *single) reread(dst *os.File, t *translation) error {
	f, d, err := s.result(dst, t.layout, t.section)
	if err != nil {
		return err
	}
	if dst != nil {
		if why, err := s.opt.Linux.Refusal(f, d); why != "" || err != nil {
			return cmp.Or(err, fmt.Errorf("%w: %s", ErrRefused, why))
		}
	}
	code := f
	if s.detach {
		code = s.f
	}
	return cmp.Or(s.compare(code, d, t), f.ReadError())
}

// result returns the new file and its section. In a dry run, it returns the old file and the section.
func (s *single) result(dst *os.File, layout *elfwrite.Layout, section []byte) (
	f *elffile.File, d *sframe.Section, err error,
) {
	if dst == nil {
		d, err = sframe.Decode(section, layout.Addr)
		return s.f, d, err
	}
	if f, err = reopen(dst); err == nil {
		d, err = s.opt.readResult(f, layout.Size)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", unsound, err)
	}
	return f, d, err
}

// unsound is the prefix of errors for results that cannot be read, usually because the section headers are
// inconsistent.
const unsound = "nothing was written: no valid layout for this file"

// reopen reads the headers of a newly written file.
func reopen(dst *os.File) (*elffile.File, error) {
	info, err := dst.Stat()
	if err != nil {
		return nil, err
	}
	return elffile.New(dst, info.Size())
}

// compare compares a section with the CFI. It first sorts the section of an object, as a linker would.
func (s *single) compare(f *elffile.File, d *sframe.Section, t *translation) error {
	if f.IsObject() {
		d = d.Sorted()
	}
	res, err := verify.Check(s.table, d, f, verify.Options{Keep: 1, Workers: s.opt.workers(s.table, s.f.Size)})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrWrong, err)
	}
	if res.Total > 0 {
		return fmt.Errorf("%w: %d mismatches between SFrame and CFI, the first at %v",
			ErrWrong, res.Total, res.Mismatches[0])
	}
	if res.Rows() != t.Rows() || res.PLT != t.PLT || res.Padding != t.Padding {
		return fmt.Errorf("%w: SFrame covers %d bytes of code, %d of PLT stubs and %d of padding, "+
			"but %d, %d and %d were translated",
			ErrWrong, res.Rows(), res.PLT, res.Padding, t.Rows(), t.PLT, t.Padding)
	}
	return nil
}

// remove removes .sframe.
func (s *single) remove() error {
	reserved := symbolsOf(s.f, s.opt.Reserved)
	layout, err := s.removal(reserved)
	if err != nil {
		return err
	}
	dst, err := s.output(layout, nil)
	if err != nil || dst == nil {
		return err
	}
	f, err := reopen(dst)
	if err != nil {
		return fmt.Errorf("%s: %w", unsound, err)
	}
	if reserved != "" {
		if _, err := readInto(f, reserved); err != sframe.ErrNone {
			return fmt.Errorf("%w: .sframe is still present", ErrWrong)
		}
		return nil
	}
	at, err := elfwrite.FindSFrame(f)
	if err != nil || at.Section > 0 || f.Prog(elf.ProgType(sframe.PTGNUSFrame)) != nil {
		return fmt.Errorf("%w: .sframe is still present", ErrWrong)
	}
	return nil
}

// removal returns the layout of the file without .sframe. If reserved is not "", it names the symbols START:END around
// the section.
func (s *single) removal(reserved string) (*elfwrite.Layout, error) {
	if reserved == "" {
		return elfwrite.PlanRemoval(s.f)
	}
	r, err := intoRange(s.f, reserved)
	if err == nil {
		_, err = readInto(s.f, reserved)
	}
	if errors.Is(err, sframe.ErrNone) {
		return nil, elfwrite.ErrNone
	}
	if err != nil {
		return nil, err
	}
	return elfwrite.PlanInto(s.f, r.Begin, r.End, 0, elfwrite.Options{Force: true})
}

// The end of a signed kernel module: the signature, struct module_signature (include/linux/module_signature.h), and the
// magic. The last four bytes of the struct are a big-endian length. Bytes 3 and 4 are the lengths of names that precede
// the signature in modules for Linux before 4.3.
const (
	signatureMagic  = "~Module signature appended~\n"
	signatureStruct = 12
	signatureTail   = signatureStruct + len(signatureMagic)
)

// signatureSize returns the size in bytes of the kernel module signature at the end of a file, or 0.
func signatureSize(r io.ReaderAt, size int64) (int64, error) {
	b := make([]byte, signatureTail)
	if size < int64(len(b)) {
		return 0, nil
	}
	if n, err := r.ReadAt(b, size-int64(len(b))); n < len(b) {
		return 0, outfile.Plain(err)
	}
	if string(b[signatureStruct:]) != signatureMagic {
		return 0, nil
	}
	n := int64(len(b)) + int64(b[3]) + int64(b[4]) + int64(binary.BigEndian.Uint32(b[signatureStruct-4:]))
	if n > size {
		return 0, fmt.Errorf("module signature of %d bytes is larger than the file (%d bytes); "+
			"remove the signature, for example with strip", n, size)
	}
	return n, nil
}

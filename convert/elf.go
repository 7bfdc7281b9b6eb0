package convert

import (
	"bytes"
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
	"cfi2sframe/internal/panics"
	"cfi2sframe/internal/plt"
	"cfi2sframe/sframe"
	"cfi2sframe/translate"
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
	gaps   *padding.Gaps                               // gaps that may be padding, or nil; cleared once pads is set
	pads   []uint8                                     // sizes of the padding after functions, or nil
	refers func(func(first, last uint64)) error        // calls a function for each reference to code
	place  func(size uint64) (*elfwrite.Layout, error) // returns the layout of a linked file
	layout *elfwrite.Layout                            // layout of a linked file as if the new section were empty, or nil
	dst    *os.File                                    // output created by begin, or nil
	copies panics.Group                                // copying started by begin
	failed error                                       // error from copying

	facts       *Facts       // nil if nothing was translated
	translation *translation // described by facts
}

// add adds an .sframe. Even after an error, there may be facts to report.
func (s *single) add() (err error) {
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
	if s.table.Len() == 0 {
		if len(s.table.Errors) > 0 {
			return fmt.Errorf("no usable CFI: %w", s.table.Errors[0])
		}
		if s.opt.Infer {
			return notInferred(s.table, ErrNoCode)
		}
		return mayInfer(f, ErrNoCode)
	}
	if err := s.findGaps(); err != nil {
		return err
	}
	old := s.opt.Update && (s.opt.Reserved != "" || hasSFrame(f))
	if old && !f.IsObject() {
		if err := s.checkCurrent(); err != nil {
			return err
		}
	}
	if !f.IsObject() {
		if err := s.planning(); err != nil {
			return err
		}
		if s.layout, err = s.place(0); err != nil {
			return err
		}
		if err := s.begin(); err != nil {
			return err
		}
		defer s.copies.Wait()
	}
	t, err := s.fit()
	if err != nil {
		return err
	}
	if err := s.checkAppended(t.layout); err != nil {
		return err
	}
	s.note(t)
	b := t.content
	s.facts.FDEs, s.facts.FREs, s.facts.Size = b.NumFDEs(), b.NumFREs(), uint64(len(t.section))
	s.facts.MovedCode, s.facts.StaleHeaders = t.layout.MovedCode, t.layout.StaleHeaders
	if old && f.IsObject() {
		if same, err := s.unchanged(t); same || err != nil {
			s.facts.Verified = same
			return cmp.Or(err, errCurrent)
		}
	}
	switch {
	case b.NumFDEs() > 0:
	case !hasSFrame(f):
		return errNoRows
	case !f.IsObject(): // the old section of an object is removed
		return fmt.Errorf("%s; 'cfi2sframe remove' removes the old .sframe", errNoRows)
	}
	return s.write(t)
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
		for j := range f.Progs {
			h := &f.Progs[j]
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
	if l.Appended == 0 || s.opt.Force || s.f.IsObject() {
		return nil
	}
	return fmt.Errorf("it has %d bytes of %w", l.Appended, ErrAppended)
}

// planning prepares layouts of the new file. The input must be a linked file.
func (s *single) planning() error {
	l, _ := s.opt.Version.Layout()
	opt := elfwrite.Options{Force: s.opt.mayReplace(), Near: l.StartSize == 4, Refers: s.gaps.Refer}
	s.refers = func(refers func(first, last uint64)) error { return elfwrite.References(s.f, refers) }
	switch {
	case s.detach:
		s.place = func(size uint64) (*elfwrite.Layout, error) { return elfwrite.PlanDetached(s.f, size, opt) }
	case s.opt.Reserved == "":
		p, err := elfwrite.NewProgram(s.f, opt)
		if err != nil {
			return err
		}
		s.place, s.refers = p.Plan, p.References
	default:
		r, err := intoRange(s.f, s.opt.Reserved)
		if err != nil {
			return err
		}
		s.place = func(size uint64) (*elfwrite.Layout, error) {
			return elfwrite.PlanInto(s.f, r.Begin, r.End, size, opt)
		}
	}
	return nil
}

// write writes the new file and checks it.
func (s *single) write(t *translation) error {
	if s.create == nil {
		if s.opt.NoVerify {
			return nil
		}
		err := s.dryCheck(t)
		s.facts.Verified = err == nil
		return err
	}
	dst, err := s.output(t.layout, t.section)
	if err != nil {
		return err
	}
	if s.opt.NoVerify || len(t.section) == 0 {
		return nil
	}
	var code *elffile.File
	if s.detach {
		code = s.f
	}
	err = reread(dst, &s.opt, t.layout.Size, code, s.table, t.Result, s.opt.workers(s.table, s.f.Size))
	s.facts.Verified = err == nil
	return err
}

// output creates the output and writes the new file to it.
func (s *single) output(layout *elfwrite.Layout, section []byte) (*os.File, error) {
	if err := s.ctx.Err(); err != nil {
		return nil, err
	}
	if s.dst != nil {
		s.copies.Wait()
		err := s.failed
		if err == nil {
			err = layout.Write(s.ctx, s.dst, s.src, section, s.layout)
		}
		return s.dst, outfile.Plain(err)
	}
	dst, err := s.create()
	if err != nil {
		return nil, err
	}
	return dst, outfile.Plain(layout.Write(s.ctx, dst, s.src, section, nil))
}

// begin starts the output of a linked file if several workers share the work: it copies the bytes before .sframe while
// the file is analyzed. Without this overlap, converting libLLVM-14.so.1 takes 1.2 times as long (2026-11-24).
func (s *single) begin() (err error) {
	if s.create == nil || s.detach || s.opt.workers(s.table, s.f.Size) == 1 {
		return nil
	}
	if s.dst, err = s.create(); err == nil {
		s.copies.Go(func() { s.failed = s.layout.Begin(s.ctx, s.dst, s.src) })
	}
	return err
}

// remove removes .sframe.
func (s *single) remove() error {
	reserved := symbolsOf(s.f, s.opt.Reserved)
	layout, err := s.removal(reserved)
	if err != nil || s.create == nil {
		return err
	}
	dst, err := s.output(layout, nil)
	if err != nil {
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

// unsound is the prefix of errors for results that cannot be read, usually because the section headers are
// inconsistent.
const unsound = "nothing was written: no valid layout for this file"

// reread decodes the section of the given size from the new file as its readers do, compares it with the CFI, and
// expects rows for exactly the translated code. If code is nil, instructions are read from the new file.
func reread(dst *os.File, opt *Options, size uint64, code *elffile.File, table *cfi.Table, want *translate.Result,
	workers int) error {
	var d *sframe.Section
	f, err := reopen(dst)
	if err == nil && opt.Reserved != "" {
		d, err = readInto(f, opt.Reserved)
	} else if err == nil {
		d, err = readResult(f, size)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", unsound, err)
	}
	if opt.Linux != NotLinux {
		if why, err := opt.Linux.Refusal(f, d); why != "" || err != nil {
			return cmp.Or(err, fmt.Errorf("%w: %s", ErrRefused, why))
		}
	}
	return cmp.Or(compare(cmp.Or(code, f), d, table, want, workers), f.ReadError())
}

// reopen reads the headers of a newly written file.
func reopen(dst *os.File) (*elffile.File, error) {
	info, err := dst.Stat()
	if err != nil {
		return nil, err
	}
	return elffile.New(dst, info.Size())
}

// dryCheck is like reread, for a result that is not written.
func (s *single) dryCheck(t *translation) error {
	section, addr := t.section, t.layout.Addr
	if s.f.IsObject() { // all assigned addresses are within 2 GiB of the first
		var err error
		addr = s.table.At(0).Begin
		if section, err = t.content.Encode(addr); err != nil {
			return err
		}
	}
	d, err := sframe.Decode(section, addr)
	if err == nil {
		err = compare(s.f, d, s.table, t.Result, s.opt.workers(s.table, s.f.Size))
	}
	return err
}

// compare compares a section with the CFI. It first sorts the section of an object, as a linker would.
func compare(f *elffile.File, d *sframe.Section, table *cfi.Table, want *translate.Result, workers int) error {
	if f.IsObject() {
		d = d.Sorted()
	}
	res, err := verify.Check(table, d, f, verify.Options{Keep: 1, Workers: workers})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrWrong, err)
	}
	if res.Total > 0 {
		return fmt.Errorf("%w: %d mismatches between SFrame and CFI, the first at %v",
			ErrWrong, res.Total, res.Mismatches[0])
	}
	if res.Rows() != want.Rows() || res.PLT != want.PLT || res.Padding != want.Padding {
		return fmt.Errorf("%w: SFrame covers %d bytes of code, %d of PLT stubs and %d of padding, "+
			"but %d, %d and %d were translated",
			ErrWrong, res.Rows(), res.PLT, res.Padding, want.Rows(), want.PLT, want.Padding)
	}
	return nil
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

// checkCurrent returns errCurrent and records the facts if the old .sframe of a linked file is up to date: readers find
// it, and its bytes are those that would be written. Otherwise it returns nil.
func (s *single) checkCurrent() error {
	b, addr, err := s.opt.oldBytes(s.f)
	if err != nil {
		return nil
	}
	old, err := sframe.Decode(b, addr)
	if err != nil {
		return nil
	}
	if why, err := s.opt.Linux.Refusal(s.f, old); why != "" || err != nil {
		return err
	}
	t, err := s.translate(s.reach(addr, old.Len()))
	if err != nil {
		return err
	}
	section, err := t.content.Encode(addr)
	if err != nil || !bytes.HasPrefix(b, section) || anyByte(b[len(section):]) ||
		len(b) > len(section) && s.opt.Reserved == "" ||
		compare(s.f, old, s.table, t.Result, s.opt.workers(s.table, s.f.Size)) != nil {
		return nil
	}
	t.section, t.layout = section, &elfwrite.Layout{Addr: addr}
	s.note(t)
	s.facts.FDEs, s.facts.FREs, s.facts.Size, s.facts.Verified = old.Len(), uint64(old.NumFREs), old.Size(), true
	return errCurrent
}

// oldBytes returns the contents of the old .sframe of a linked file, or all reserved bytes, and their address.
func (o *Options) oldBytes(f *elffile.File) ([]byte, uint64, error) {
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

// unchanged reports whether a new .sframe would leave an object exactly as it is. If so, it checks the section.
func (s *single) unchanged(t *translation) (bool, error) {
	dst, err := outfile.Scratch()
	if err != nil {
		return false, err
	}
	defer dst.Close()
	if err := t.layout.Write(s.ctx, dst, s.src, t.section, nil); err != nil {
		return false, outfile.Plain(err)
	}
	info, err := dst.Stat()
	if err != nil || uint64(info.Size()) != s.f.Size {
		return false, err
	}
	size := info.Size()
	same, err := outfile.Equal(io.NewSectionReader(dst, 0, size), io.NewSectionReader(s.f.Contents(), 0, size))
	if err != nil || !same {
		return false, err
	}
	return true, s.dryCheck(t)
}

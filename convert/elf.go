package convert

import (
	"cmp"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"sync"

	"golang.org/x/sync/errgroup"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/elfwrite"
	"cfi2sframe/internal/debugfile"
	"cfi2sframe/internal/outfile"
	"cfi2sframe/report"
	"cfi2sframe/sframe"
	"cfi2sframe/translate"
	"cfi2sframe/verify"
)

// A single is the work on one ELF file: the input, or a member of an archive.
type single struct {
	*conversion
	f      *elffile.File
	src    io.ReaderAt
	create func() (Target, error)
	table  *cfi.Table
	padded bool
	pads   []uint8 // sizes of the padding after functions, if padded is set
	spare  []byte  // memory for the section

	// The output, which begin prepares. An object has neither a layout nor an output yet.
	layout   *elfwrite.Layout // with an empty section
	dst      Target           // nil if nothing is written yet
	planErr  error
	planned  sync.WaitGroup
	copyHead func() error // waits for the copy of the bytes before the section
}

// add adds an .sframe. With an error there may be coverage to report.
func (s *single) add() (cov *report.Coverage, err error) {
	f := s.f
	if debugOnly(f) {
		return nil, errDebugOnly
	}
	debug, err := debugfile.Open(s.opt.DebugFile, s.opt.Path, f)
	if err != nil {
		return nil, err
	}
	defer debug.Close()
	defer func() {
		if failed := debug.ReadError(); failed != nil {
			cov, err = nil, failed
		}
	}()
	ctx, cancel := context.WithCancel(s.ctx)
	defer func() {
		cancel()
		_ = s.wait()
	}()
	update := s.opt.Update && hasSFrame(f)
	if !update {
		s.begin(ctx)
	}
	s.opt.starting(Work{Size: f.Size, CFI: cfi.Size(f)})
	// If the CFI and the layout both have an error, that of the CFI is returned.
	if s.table, err = cfi.Load(f, s.opt.Source, debug.File()); err != nil {
		if errors.Is(err, cfi.ErrNone) && f.IsObject() && s.opt.DebugFile != "" {
			err = fmt.Errorf("%w; debug files of relocatable objects are not used: "+
				"convert before debug information is split off", err)
		}
		return nil, err
	}
	if s.table.Len() == 0 {
		if len(s.table.Errors) > 0 {
			return nil, fmt.Errorf("no CFI that can be used: %w", s.table.Errors[0])
		}
		return nil, ErrNoCode
	}
	s.spare = s.table.Release()
	if update {
		if cov, err := s.current(debug); cov != nil || err != nil {
			return cov, err
		}
		s.begin(ctx)
	}
	if s.planned.Wait(); s.planErr != nil {
		return nil, s.planErr
	}
	t, err := s.fit()
	if err != nil {
		return nil, err
	}
	if cov, err = s.describe(t, debug); err != nil {
		return nil, err
	}
	b := t.content
	cov.FDEs, cov.FREs, cov.Size = b.NumFDEs(), b.NumFREs(), uint64(len(t.section))
	cov.MovedCode = t.layout.MovedCode
	if l, _ := s.opt.Version.Layout(); f.IsObject() && s.opt.PCRel && !l.PCRel {
		cov.Warnings = append(cov.Warnings, warnPCRel)
	}
	if t.layout.StaleHeaders {
		cov.Warnings = append(cov.Warnings, warnStaleHeaders)
	}
	if b.NumFDEs() == 0 && f.IsObject() && !hasSFrame(f) {
		return cov, errNoRows
	}
	return cov, s.write(t, cov)
}

// Warnings of a conversion. With objects of errata 1, GNU ld 2.44 prints "no .sframe will be created", exits with 0,
// and writes the rows of other objects.
const (
	warnPCRel = "GNU ld 2.44 and earlier leave the .sframe of objects with --pcrel out; " +
		"link with 2.45, or convert without --pcrel"
	warnStaleHeaders = "at __ehdr_start, code finds the program headers without .sframe; " +
		"getauxval(AT_PHDR) and dl_iterate_phdr have it"
)

// write writes the new file, and checks it.
func (s *single) write(t *translation, cov *report.Coverage) error {
	if s.opt.DryRun {
		if s.opt.NoVerify {
			return nil
		}
		err := s.dryCheck(t)
		cov.Verified = err == nil
		return err
	}
	if err := s.wait(); err != nil {
		return outfile.Plain(err)
	}
	if s.dst == nil { // of an object
		var err error
		if s.dst, err = s.open(s.create); err != nil {
			return err
		}
	}
	if err := t.layout.Write(s.ctx, s.dst, s.src, t.section, s.layout); err != nil {
		return outfile.Plain(err)
	}
	if s.opt.NoVerify || len(t.section) == 0 {
		return nil
	}
	err := reread(s.dst, t.section, s.table, t.Result, s.opt.workers(s.table, s.f.Size))
	cov.Verified = err == nil
	return err
}

// smallFile is a size in bytes. Smaller files take longer if they are copied at the same time as other work: 13 % more
// CPU time for 250 files of up to 400 kB (November 2026).
const smallFile = 1 << 20

// begin plans the layout, makes the output and copies the bytes before .sframe. For a large file it does so at the same
// time as other work.
func (s *single) begin(ctx context.Context) {
	if s.f.IsObject() {
		return
	}
	plan := func() {
		s.layout, s.planErr = elfwrite.Plan(s.f, 0, elfwrite.Options{Force: s.opt.replaces()})
		if s.planErr == nil && !s.opt.DryRun {
			s.dst, s.planErr = s.open(s.create)
		}
	}
	copyHead := func() error {
		if s.planErr != nil || s.dst == nil {
			return nil
		}
		return s.layout.CopyHead(ctx, s.dst, s.src)
	}
	if s.f.Size < smallFile {
		plan()
		err := copyHead()
		s.copyHead = func() error { return err }
		return
	}
	var g errgroup.Group
	s.planned.Add(1)
	g.Go(func() error {
		plan()
		s.planned.Done()
		return copyHead()
	})
	s.copyHead = g.Wait
}

// wait waits for the end of the copy that begin has started.
func (s *single) wait() error {
	if s.copyHead == nil {
		return nil
	}
	return s.copyHead()
}

// open makes a target, unless the context has ended.
func (c *conversion) open(create func() (Target, error)) (Target, error) {
	if err := c.ctx.Err(); err != nil {
		return nil, err
	}
	return create()
}

// remove removes .sframe.
func (s *single) remove() error {
	layout, err := elfwrite.PlanRemoval(s.f)
	if err != nil || s.opt.DryRun {
		return err
	}
	dst, err := s.open(s.create)
	if err != nil {
		return err
	}
	if err := layout.Write(s.ctx, dst, s.src, nil, nil); err != nil {
		return outfile.Plain(err)
	}
	f, err := reopen(dst)
	if err != nil {
		return fmt.Errorf("%s: %w", unsound, err)
	}
	at, err := elfwrite.FindSFrame(f)
	if err != nil || at.Section > 0 || f.Prog(elf.ProgType(sframe.PTGNUSFrame)) != nil {
		return fmt.Errorf("%w: .sframe is still there", ErrWrong)
	}
	return nil
}

// unsound begins errors of results that cannot be read. As a rule the section headers contradict each other.
const unsound = "nothing was written: this file has no sound layout"

// reread decodes the section from the new file, compares it with the CFI, and expects rows for as much code as was
// translated. The section is read into the memory in which it was encoded: new memory would have to be mapped page by
// page.
func reread(dst Target, section []byte, table *cfi.Table, want *translate.Result, workers int) error {
	f, err := reopen(dst)
	if err != nil {
		return fmt.Errorf("%s: %w", unsound, err)
	}
	d, err := readResult(f, section)
	if err != nil {
		return fmt.Errorf("%s: %w", unsound, err)
	}
	return cmp.Or(compare(f, d, table, want, workers), f.ReadError())
}

// reopen reads the headers of a file that was just written.
func reopen(dst Target) (*elffile.File, error) {
	size, err := sizeOf(dst)
	if err != nil {
		return nil, err
	}
	return elffile.New(dst, size)
}

// dryCheck is reread for a result that is not written.
func (s *single) dryCheck(t *translation) error {
	section, addr := t.section, t.layout.Addr
	if s.f.IsObject() { // whose sections are all near the first
		var err error
		addr = s.table.At(0).Begin
		if section, err = t.content.EncodeInto(s.spare, addr); err != nil {
			return err
		}
	}
	d, err := sframe.Decode(section, addr)
	if err == nil {
		err = compare(s.f, d, s.table, t.Result, s.opt.workers(s.table, s.f.Size))
	}
	return err
}

// compare compares a section with the CFI. The linker sorts that of an object.
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
	if res.Covered != want.Covered || res.Stubs != want.Synthesised || res.Padding != want.Padding {
		return fmt.Errorf("%w: SFrame describes %d bytes of code, %d of PLT stubs and %d of padding, "+
			"but %d, %d and %d were translated",
			ErrWrong, res.Covered, res.Stubs, res.Padding, want.Covered, want.Synthesised, want.Padding)
	}
	return nil
}

// describe returns the report on a translation.
func (s *single) describe(t *translation, debug *debugfile.File) (*report.Coverage, error) {
	in := report.Input{
		File: s.f, Debug: debug.File(), Table: s.table, ABI: t.abi, Result: t.Result, Stubs: t.stubs,
		Brief: s.opt.Brief, Limits: s.opt.Limits,
	}
	if !s.opt.Limits.Full() { // reports say it of listed gaps only
		var err error
		if in.Format3, err = s.format3(t.Result); err != nil {
			return nil, err
		}
	}
	cov := report.New(in)
	cov.Format = int(s.opt.Version)
	if s.table.Debug {
		cov.DebugFile = debug.Path()
	}
	return cov, nil
}

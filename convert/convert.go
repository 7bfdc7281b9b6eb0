// Package convert adds an SFrame section to ELF files, made from their DWARF call frame information. It
// takes them the whole way: read, translate, lay out, write, verify, and only then hand the
// result over.
//
// Convert does that in memory, for linked files, relocatable objects and archives of these; Check compares
// the section that somebody else wrote with the call frame information, DiffFiles two files with one, and Dump prints it. File,
// CheckFile and DumpFile do the same for files by their names, and a Batch for many, which are
// replaced safely: with all their attributes, and either as a whole or not at all.
//
// Not in here: how the process is set up. Memory limits, the garbage collector's target and signals
// are the program's business; FileOptions.Starting tells what is coming. Debug information in a
// file of its own is found for files that have a name only. What becomes of the single steps is in
// packages cfi, translate, emit, elfwrite and verify, which can be used alone.
package convert

import (
	"cmp"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sync/errgroup"

	"cfi2sframe/arch"
	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/elfwrite"
	"cfi2sframe/emit"
	"cfi2sframe/internal/archive"
	"cfi2sframe/internal/debugfile"
	"cfi2sframe/internal/filecopy"
	"cfi2sframe/internal/outfile"
	"cfi2sframe/padding"
	"cfi2sframe/plt"
	"cfi2sframe/report"
	"cfi2sframe/sframe"
	"cfi2sframe/translate"
	"cfi2sframe/verify"
)

// ErrNoCode is returned for files whose CFI describes no code.
var ErrNoCode = errors.New("the CFI describes no code of this file, so there is nothing to write")

// ErrWrong is returned when the finished result did not pass the check against the
// CFI: a defect of this program, not of its input.
var ErrWrong = errors.New("nothing was written, because the result is wrong")

// A Result says what became of a file.
type Result struct {
	// Coverage is about the file, or about those members of an archive that have an .sframe
	// now. It is empty where .sframe was removed.
	Coverage []*report.Coverage
	Archive  bool
	// Kept are the members of the archive that stayed as they were, or the file itself.
	Kept []Kept
	// Stays is why nothing of the file changes, or "" if something does. Of an archive it is Current if that is why one of its
	// members is kept, and NoCFI otherwise.
	Stays Reason
	// DebugFile is the debug file that got the headers of the result, or "".
	DebugFile string
	// PassedOver says of files that could have been the debug file, but are not, why they did not get the headers.
	PassedOver []error
	// Unsigned says that the signature of a kernel module at the end is removed, as the file has changed.
	Unsigned bool
	// Links is how many other names of the file (hard links) keep the old contents.
	Links int
}

// Convert converts the file of the given size in r, an ELF file or an archive of them, and writes the
// result to w when it is complete and, unless opt says otherwise, checked against the CFI at every pc. Until
// then it is held in memory, and on an error, or when ctx ends, nothing is written; only an error of w's own can
// leave a part. With ErrCoverage there is a Result, too. In it the file has no name.
func Convert(ctx context.Context, r io.ReaderAt, size int64, w io.Writer, opt Options) (*Result, error) {
	out := &memory{}
	c := conversion{
		ctx: ctx, opt: FileOptions{Options: opt}, src: r, size: size,
		create:  func() (target, error) { return out, nil },
		discard: func() { *out = memory{} },
		scratch: func() (target, error) { return &memory{}, nil },
	}
	res, err := c.run()
	if err != nil || opt.DryRun {
		return res, err
	}
	if _, err := out.WriteTo(w); err != nil {
		return nil, err
	}
	return res, nil
}

// Into is Convert for large files: the result is written to dst, an empty file, and not held in memory. On an error dst may have
// a part of it. If the file stays as it is (Result.Stays), dst stays empty.
func Into(ctx context.Context, r io.ReaderAt, size int64, dst *os.File, opt Options) (*Result, error) {
	c := conversion{
		ctx: ctx, opt: FileOptions{Options: opt}, src: r, size: size, inPlace: true,
		create:  func() (target, error) { return dst, nil },
		discard: func() {},
		scratch: scratch,
	}
	return c.run()
}

// run converts a file without a name.
func (c *conversion) run() (*Result, error) {
	c.res = &Result{}
	c.opt.complete(c.size)
	c.opt.Room.Grow(c.size)
	if err := c.convert(); err != nil {
		return nil, err
	}
	if err := cmp.Or(c.ctx.Err(), c.enough()); err != nil {
		return c.res, err
	}
	return c.res, nil
}

// ErrCoverage is returned, with a Result, for a file of which too little code is covered.
var ErrCoverage = errors.New("nothing was written, because too little code is covered")

// enough returns ErrCoverage if too little is covered.
func (c *conversion) enough() error {
	if len(c.res.Coverage) == 0 {
		return nil
	}
	if got := report.Sum(c.in, c.res.Coverage).Percent(); got < c.opt.MinCoverage {
		return fmt.Errorf("%w: %s, and %s were expected", ErrCoverage, report.Percentage(got), report.Percentage(c.opt.MinCoverage))
	}
	return nil
}

// A conversion is the way of one file.
type conversion struct {
	ctx     context.Context
	opt     FileOptions
	in, out string // names for the report
	src     io.ReaderAt
	size    int64
	create  func() (target, error) // makes the output; until then everything only reads
	discard func()                 // gives up an output that create has made
	scratch func() (target, error) // makes what a member of an archive is written to
	inPlace bool                   // without an output, the input stays what it is
	linked  bool                   // the input is an ELF file that is linked
	padded  struct {
		table *cfi.Table
		sizes []uint8 // of the padding after its functions
	}
	spare []byte // memory for the section, if it is large enough
	res   *Result
}

// convert does the work.
func (c *conversion) convert() error {
	c.src = filecopy.Sized(c.src, c.size)
	is, err := archive.Is(c.src)
	if err != nil {
		return outfile.Plain(err)
	}
	var cov *report.Coverage
	if is {
		c.res.Archive = true
		err = c.archive()
	} else {
		cov, err = c.elf(c.src, c.size, c.open)
	}
	var k *kept
	if errors.As(err, &k) {
		c.res.Kept = append(c.res.Kept, k.Kept)
		err = c.stay(k.Reason)
	}
	if cov != nil {
		cov.File, cov.Output = c.in, c.out
		if c.inPlace && c.res.Stays != "" {
			cov.Output = ""
		}
		c.res.Coverage = append(c.res.Coverage, cov)
	}
	return err
}

// open makes the output, unless it is too late.
func (c *conversion) open() (target, error) {
	if err := c.ctx.Err(); err != nil {
		return nil, err
	}
	return c.create()
}

// stay makes the output what the input is.
func (c *conversion) stay(why Reason) error {
	c.res.Stays = why
	c.discard()
	if c.opt.DryRun || c.inPlace {
		return nil
	}
	dst, err := c.open()
	if err != nil {
		return err
	}
	return outfile.Plain(filecopy.Range(c.ctx, dst, 0, c.src, 0, c.size))
}

// elf converts the ELF file src to the file that open returns, and checks that. The
// coverage is nil if .sframe was removed. The error is a *kept if the file is to stay as it is; with Current there is a coverage, too.
func (c *conversion) elf(src io.ReaderAt, size int64, open func() (target, error)) (*report.Coverage, error) {
	signature, err := signatureSize(src, size)
	if err != nil {
		return nil, err
	}
	f, err := openELF(c.opt.Budget, src, size-signature)
	if err != nil {
		return nil, c.opt.keep(nil, err)
	}
	c.linked = !f.IsObject() && !c.res.Archive
	var cov *report.Coverage
	if c.opt.Remove {
		err = c.remove(f, src, open)
	} else {
		cov, err = c.add(f, src, open)
	}
	if failed := f.ReadError(); failed != nil {
		// What could not be read may have been taken for something else.
		return nil, outfile.Plain(failed)
	}
	err = c.opt.keep(f, err)
	var k *kept
	if cov != nil && errors.As(err, &k) {
		cov.Kept = string(k.Reason)
	}
	if err == nil && signature > 0 {
		c.res.Unsigned = true
		if cov != nil {
			cov.Unsigned = true
		}
	}
	return cov, err
}

// add is elf for a file that gets an .sframe.
func (c *conversion) add(f *elffile.File, src io.ReaderAt, open func() (target, error)) (cov *report.Coverage, err error) {
	if debugOnly(f) {
		return nil, errDebugOnly
	}
	debug, err := debugfile.Open(c.opt.DebugFile, c.in, f)
	if err != nil {
		return nil, err
	}
	defer debug.Close()
	defer func() {
		if failed := debug.File().ReadError(); failed != nil {
			cov, err = nil, fmt.Errorf("debug file %s: %w", debug.Path(), outfile.Plain(failed))
		}
	}()
	// If that is impossible, what is said of the CFI comes first.
	var h *head
	var beginErr error
	var begun sync.WaitGroup
	begin := func() { h, beginErr = c.begin(f, src, open) }
	there := c.opt.Update && hasSFrame(f) // which may have to stay
	switch {
	case there:
	case f.Size < smallFile:
		begin()
	default:
		begun.Go(begin)
	}
	c.opt.starting(Work{Size: f.Size, CFI: sizeOfCFI(f)})
	table, err := cfi.Load(f, c.opt.Source, debug.File())
	begun.Wait()
	defer func() { h.stop() }()
	if errors.Is(err, cfi.ErrNone) && f.IsObject() && c.opt.DebugFile != "" {
		err = fmt.Errorf("%w; debug files of relocatable objects are not used: "+
			"convert before debug information is split off", err)
	}
	if err != nil {
		return nil, err
	}
	if table.Len() == 0 {
		if len(table.Errors) > 0 {
			return nil, fmt.Errorf("no CFI that can be used: %w", table.Errors[0])
		}
		return nil, ErrNoCode
	}
	c.spare = table.Release()
	if there {
		if cov, err := c.current(f, table, debug); cov != nil || err != nil {
			return cov, err
		}
		begin()
	}
	if beginErr != nil {
		return nil, beginErr
	}
	r, err := c.fit(f, table, h)
	if err != nil {
		return nil, err
	}
	b, in, layout, section := r.content, r.report, r.layout, r.section
	if cov, err = c.describe(in, debug); err != nil {
		return nil, err
	}
	cov.FDEs, cov.FREs, cov.Size = b.NumFDEs(), b.NumFREs(), uint64(len(section))
	cov.MovedCode = layout.MovedCode
	if l, _ := c.opt.Version.Layout(); f.IsObject() && c.opt.PCRel && !l.PCRel {
		cov.Warnings = append(cov.Warnings, warnPCRel)
	}
	if layout.StaleHeaders {
		cov.Warnings = append(cov.Warnings,
			"at __ehdr_start, code finds the program headers without .sframe; getauxval(AT_PHDR) and dl_iterate_phdr have it")
	}
	if b.NumFDEs() == 0 && f.IsObject() && !hasSFrame(f) {
		return cov, &kept{Kept{Reason: NoRows, Why: errNoRows}}
	}
	if c.opt.DryRun {
		return cov, c.dryCheck(f, b, layout, table, in.Result, cov)
	}
	if err := h.wait(); err != nil {
		return nil, outfile.Plain(err)
	}
	dst := h.dst
	if dst == nil { // of an object
		if dst, err = open(); err != nil {
			return nil, err
		}
	}
	if err := layout.Write(c.ctx, dst, src, section, h.layout); err != nil {
		return nil, outfile.Plain(err)
	}
	if !c.opt.NoVerify && len(section) > 0 {
		if err := reread(dst, section, table, in.Result, c.opt.workers(table, f.Size)); err != nil {
			return nil, err
		}
		cov.Verified = true
	}
	return cov, nil
}

// describe returns the report on a translation.
func (c *conversion) describe(in *report.Input, debug *debugfile.File) (*report.Coverage, error) {
	in.Debug = debug.File()
	if !c.opt.Room.Full() { // it is said of gaps that are listed
		var err error
		if in.Format3, err = c.format3(in.File, in.Table, in.Result); err != nil {
			return nil, err
		}
	}
	cov := report.New(*in)
	cov.Format = int(c.opt.Version)
	if in.Table.Debug {
		cov.DebugFile = debug.Path()
	}
	return cov, nil
}

// warnPCRel is about errata 1 in objects: GNU ld 2.44 prints "no .sframe will be created", exits with 0, and writes the
// rows of other objects.
const warnPCRel = "GNU ld 2.44 and earlier leave the .sframe of objects with --pcrel out; " +
	"link with 2.45, or convert without --pcrel"

// smallFile is how many bytes a file has that is copied, and looked through for room, in less time than
// it takes to start a thread for that.
const smallFile = 1 << 20

// sizeOfCFI is how many bytes of call frame information there are in a file, as they lie there.
func sizeOfCFI(f *elffile.File) uint64 {
	var size uint64
	for _, name := range []string{".eh_frame", ".debug_frame"} {
		if s := f.Section(name); s != nil {
			size += min(s.Size, f.Size)
		}
	}
	return size
}

// translate translates the CFI of f, which may have a layout. It returns the section to be, and what there is to
// report.
func (c *conversion) translate(
	f *elffile.File, table *cfi.Table, reach translate.Reach, layout *elfwrite.Layout,
) (*emit.Section, *report.Input, error) {
	opt := &c.opt
	_, abi, err := arch.Find(table.Machine, table.Order)
	if err != nil {
		return nil, nil, err
	}
	enc := emit.Options{Version: opt.Version, ABI: abi, PCRel: opt.PCRel, Join: opt.Share != ShareOff && !f.IsObject(), Share: opt.Share.on(abi)}
	if enc.Align, err = elfwrite.SizeMultiple(f); err != nil {
		return nil, nil, err
	}
	stubs, err := plt.Find(f, table)
	if err != nil {
		return nil, nil, err
	}
	b, res, err := c.parallel(table, f.Size, enc, translate.Options{
		Version: opt.Version, Outermost: opt.Outermost, Reach: reach, Stubs: stubs,
		Padding: c.padding(f, table, stubs, layout), Moves: f.Moves,
	})
	if err == nil {
		err = f.Budget().Spend(elffile.CostVarying, res.Work())
	}
	return b, &report.Input{File: f, Table: table, ABI: abi, Result: res, Stubs: stubs, Brief: opt.Brief, Room: opt.Room}, err
}

// padding returns what paddingOf does, which it finds once.
func (c *conversion) padding(f *elffile.File, table *cfi.Table, stubs []plt.Stub, layout *elfwrite.Layout) []uint8 {
	if c.opt.NoPadding {
		return nil
	}
	if c.padded.table != table {
		c.padded.table, c.padded.sizes = table, paddingOf(f, table, stubs, layout, c.opt.workers(table, f.Size))
	}
	return c.padded.sizes
}

// paddingOf returns the padding after the functions of f, which may have a layout, as padding.Find does.
func paddingOf(f *elffile.File, table *cfi.Table, stubs []plt.Stub, layout *elfwrite.Layout, workers int) []uint8 {
	if f.IsObject() {
		return nil
	}
	references := func() (*elfwrite.Code, error) { return elfwrite.CodeOf(f) }
	if layout != nil {
		references = layout.Code
	}
	code, err := references()
	if err != nil {
		return nil // it is not known what refers to the padding
	}
	return padding.Find(f, table, stubs, code.Referred, workers)
}

// parallel translates the table of a file of the given size in as many parts as there are workers.
func (c *conversion) parallel(table *cfi.Table, size uint64, enc emit.Options, opt translate.Options) (*emit.Section, *translate.Result, error) {
	parts := table.Split(c.opt.workers(table, size))
	b, res, err := translateParts(parts, enc, opt)
	if err == nil && len(parts) > 1 && res.Bounded() { // the result must not depend on the parts
		b, res, err = translateParts([]*cfi.Table{table}, enc, opt)
	}
	if err != nil {
		return nil, nil, err
	}
	return emit.Join(b), res, nil
}

// translateParts translates all parts at the same time.
func translateParts(parts []*cfi.Table, enc emit.Options, opt translate.Options) ([]*emit.Builder, *translate.Result, error) {
	builders := make([]*emit.Builder, len(parts))
	results := make([]*translate.Result, len(parts))
	var g errgroup.Group
	var err error
	for i := range parts {
		part := opt
		part.Part = len(parts) > 1
		if opt.Padding != nil {
			part.Padding, opt.Padding = opt.Padding[:parts[i].Len()], opt.Padding[parts[i].Len():]
		}
		if i < len(parts)-1 {
			part.Stubs = nil // they come last
		}
		work := func() (err error) {
			if builders[i], err = emit.NewBuilder(enc); err != nil {
				return err
			}
			// Most programs occur in one part only, and each part has its share of them and some more.
			n, share := parts[i].Len(), func(of int) int { return min(of, of/len(parts)*9/8+1) }
			builders[i].Grow(n, min(n, share(parts[i].NumPrograms())), share(parts[i].NumSteps()))
			results[i], err = translate.Translate(parts[i], part, builders[i])
			return err
		}
		if i < len(parts)-1 {
			g.Go(work)
		} else {
			err = work()
		}
	}
	if err := cmp.Or(g.Wait(), err); err != nil {
		return nil, nil, err
	}
	return builders, translate.Merge(results), nil
}

// format3 returns what format 3 would make of those functions that have gaps, or nil where nobody
// wants to know.
func (c *conversion) format3(f *elffile.File, table *cfi.Table, res *translate.Result) (*translate.Result, error) {
	if c.opt.Version == sframe.Newest() || c.opt.Brief || len(res.Gaps) == 0 {
		return nil, nil
	}
	opt := translate.Options{Version: sframe.Newest(), Moves: f.Moves}
	if !res.Bounded() {
		gaps := res.Gaps
		part := table.Only(func(fn *cfi.Function) bool {
			has := false
			for len(gaps) > 0 && gaps[0].Function == fn {
				has, gaps = true, gaps[1:]
			}
			return has
		})
		left, err := translate.Translate(part, opt, translate.Discard())
		if err != nil || res.Varying+left.Varying <= translate.MaxVarying && res.Evaluated+left.Evaluated <= translate.MaxEvaluated {
			return left, err
		}
	}
	return translate.Translate(table, opt, translate.Discard()) // which part is described depends on what comes before
}

// plan finds the layout of the new file, and encodes the section for it. With a
// *emit.RangeError there is a layout, too.
func (c *conversion) plan(f *elffile.File, b *emit.Section, h *head) (*elfwrite.Layout, []byte, error) {
	if f.IsObject() {
		return c.planObject(f, b, elfwrite.Options{Force: c.opt.replaces()})
	}
	layout, err := h.layout.Resize(b.Size())
	if err != nil {
		return nil, nil, err
	}
	section, err := b.EncodeInto(c.spare, layout.Addr)
	return layout, section, err
}

// planObject is plan for a relocatable object.
func (c *conversion) planObject(f *elffile.File, b *emit.Section, opt elfwrite.Options) (*elfwrite.Layout, []byte, error) {
	if l, _ := c.opt.Version.Layout(); !l.Objects {
		return nil, nil, errors.New("relocatable objects are converted to format 2 or 3 only")
	}
	o := elfwrite.Object{Type: c.objectType(), StartSize: b.StartSize()}
	if b.NumFDEs() == 0 { // ld takes an .sframe that says nothing for a damaged one
		if at, err := f.SFrame(); err != nil {
			return nil, nil, err
		} else if at.Section > 0 && !opt.Force {
			return nil, nil, elfwrite.ErrExists
		}
		layout, err := elfwrite.PlanRemoval(f)
		if errors.Is(err, elfwrite.ErrNone) {
			return elfwrite.Unchanged(f), nil, nil
		}
		return layout, nil, err
	}
	section, starts, err := b.EncodeObject()
	if err != nil {
		return nil, nil, err
	}
	for _, s := range starts {
		o.Starts = append(o.Starts, elfwrite.Start(s))
	}
	layout, err := elfwrite.PlanObject(f, b.Size(), o, opt)
	return layout, section, err
}

// objectType is the type of an object's .sframe.
func (c *conversion) objectType() elf.SectionType {
	if l, _ := c.opt.Version.Layout(); l.PCRel || c.opt.PCRel {
		return elf.SectionType(sframe.SHTGNUSFrame) // as binutils 2.45 and later write it
	}
	return elf.SHT_PROGBITS // 2.44
}

// dryCheck is reread for a section that is not written.
func (c *conversion) dryCheck(f *elffile.File, b *emit.Section, layout *elfwrite.Layout, table *cfi.Table, want *translate.Result, cov *report.Coverage) error {
	if c.opt.NoVerify {
		return nil
	}
	addr := layout.Addr
	if f.IsObject() { // whose sections are all near the first
		addr = table.At(0).Begin
	}
	section, err := b.EncodeInto(c.spare, addr)
	if err != nil {
		return err
	}
	s, err := sframe.Decode(section, addr)
	if err == nil {
		err = compare(f, s, table, want, c.opt.workers(table, f.Size))
	}
	cov.Verified = err == nil
	return err
}

// remove takes .sframe out of f.
func (c *conversion) remove(f *elffile.File, src io.ReaderAt, open func() (target, error)) error {
	layout, err := elfwrite.PlanRemoval(f)
	if err != nil || c.opt.DryRun {
		return err
	}
	dst, err := open()
	if err != nil {
		return err
	}
	if err := layout.Write(c.ctx, dst, src, nil, nil); err != nil {
		return outfile.Plain(err)
	}
	g, err := reopen(dst)
	if err != nil {
		return fmt.Errorf("nothing was written, because there is no sound layout for this file: %w", err)
	}
	if err := g.ReadError(); err != nil {
		return outfile.Plain(err)
	}
	if at, err := g.SFrame(); err != nil || at.Section > 0 || g.Prog(elf.ProgType(sframe.PTGNUSFrame)) != nil {
		return fmt.Errorf("%w: .sframe is still there", ErrWrong)
	}
	return nil
}

// A head is the first part of the new file, which is copied while the rest is worked out. For
// an object it is nothing.
type head struct {
	layout *elfwrite.Layout // for an .sframe of no bytes; nil for an object
	dst    target           // nil if nothing is written yet
	cancel context.CancelFunc
	copy   errgroup.Group // copies in the background, or does nothing
	err    error          // of a copy that was made at once
}

// begin opens the output, and starts to copy what does not depend on the size of .sframe.
func (c *conversion) begin(f *elffile.File, src io.ReaderAt, open func() (target, error)) (*head, error) {
	h := &head{}
	if f.IsObject() {
		return h, nil
	}
	var err error
	if h.layout, err = elfwrite.Plan(f, 0, elfwrite.Options{Force: c.opt.replaces()}); err != nil || c.opt.DryRun {
		return h, err
	}
	if h.dst, err = open(); err != nil {
		return h, err
	}
	var ctx context.Context
	if f.Size < smallFile {
		h.err = h.layout.CopyHead(c.ctx, h.dst, src)
		return h, nil
	}
	ctx, h.cancel = context.WithCancel(c.ctx)
	h.copy.Go(func() error { return h.layout.CopyHead(ctx, h.dst, src) })
	return h, nil
}

// wait waits for the end of the copy.
func (h *head) wait() error { return cmp.Or(h.copy.Wait(), h.err) }

// stop ends the copy, if nobody waited for it.
func (h *head) stop() {
	if h != nil && h.cancel != nil {
		h.cancel()
		_ = h.wait() // of no use any more
	}
}

// reread decodes the section from the bytes of the new file and compares it with
// the CFI, and as much code has to be described as was translated. It is read into the memory
// that it was encoded in: new memory would have to be mapped page by page.
func reread(tmp target, section []byte, table *cfi.Table, want *translate.Result, workers int) error {
	f, s, err := read(tmp, section)
	if err != nil {
		// Section headers that contradict each other do that.
		return fmt.Errorf("nothing was written, because there is no sound layout for this file: %w", err)
	}
	if err := compare(f, s, table, want, workers); err != nil {
		return err
	}
	return outfile.Plain(f.ReadError())
}

// compare is reread for a decoded section.
func compare(f *elffile.File, s *sframe.Section, table *cfi.Table, want *translate.Result, workers int) error {
	if f.IsObject() {
		s = s.Sorted() // which is the linker's task
	}
	res, err := verify.Check(table, s, f, verify.Options{Keep: 1, Workers: workers})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrWrong, err)
	}
	if res.Total > 0 {
		return fmt.Errorf("%w: %d mismatches between SFrame and CFI, the first at %v", ErrWrong, res.Total, res.Mismatches[0])
	}
	if res.Covered != want.Covered || res.Stubs != want.Synthesised || res.Padding != want.Padding {
		return fmt.Errorf("%w: SFrame describes %d bytes of code, %d of PLT stubs and %d of padding, but %d, %d and %d were translated",
			ErrWrong, res.Covered, res.Stubs, res.Padding, want.Covered, want.Synthesised, want.Padding)
	}
	return nil
}

// reopen reads the headers of a file that was just written.
func reopen(r target) (*elffile.File, error) {
	size, err := sizeOf(r)
	if err != nil {
		return nil, err
	}
	return elffile.New(r, size)
}

// read decodes the .sframe of a file as a stack tracer finds it: through
// PT_GNU_SFRAME, in loaded memory. It is read into section, which has as many bytes.
func read(r target, section []byte) (*elffile.File, *sframe.Section, error) {
	f, err := reopen(r)
	if err != nil {
		return nil, nil, err
	}
	if f.IsObject() {
		return readObject(f)
	}
	h, err := loaded(f, false)
	if err != nil {
		return nil, nil, err
	}
	if h.Filesz != uint64(len(section)) {
		return nil, nil, fmt.Errorf("PT_GNU_SFRAME has %d bytes; %d were expected", h.Filesz, len(section))
	}
	if err := f.ReadInto(sframe.SectionName, section, h.Off); err != nil {
		return nil, nil, err
	}
	d, err := sframe.Decode(section, h.Vaddr)
	return f, d, err
}

// loaded returns the PT_GNU_SFRAME of a linked file, which lies in loaded memory, and which the section headers agree with if
// there are any. In an old file, which GNU ld may have made, the section's type may be the one of 2.44, and the segment may have
// been sized before ld took out what it does not need.
func loaded(f *elffile.File, old bool) (*elf.Prog64, error) {
	at, err := f.SFrame()
	if err != nil {
		return nil, err
	}
	if at.Segment < 0 {
		return nil, errors.New("there is no PT_GNU_SFRAME")
	}
	h := &f.Progs[at.Segment]
	off, ok := f.FileOffset(h.Vaddr, h.Memsz)
	if !ok || off != h.Off || h.Filesz != h.Memsz {
		return nil, errors.New("PT_GNU_SFRAME does not lie in a loaded segment")
	}
	if len(f.Sections) > 0 {
		s := &f.Sections[at.Section]
		typed := s.Type == sframe.SHTGNUSFrame || old && elf.SectionType(s.Type) == elf.SHT_PROGBITS
		sized := s.Size == h.Filesz || old && s.Size < h.Filesz
		if s.Name != sframe.SectionName || !typed || !sized || s.Addr != h.Vaddr || s.Off != h.Off {
			return nil, errors.New("section .sframe is not what PT_GNU_SFRAME says")
		}
	}
	return h, nil
}

// readObject decodes the .sframe of an object with its relocations applied. They count
// from each field, whatever the flag says: what the flag means is up to the linker.
func readObject(f *elffile.File) (*elffile.File, *sframe.Section, error) {
	at, err := f.SFrame()
	if err != nil {
		return nil, nil, err
	}
	if at.Section == 0 {
		return nil, nil, errNoSection
	}
	s := &f.Sections[at.Section]
	b, err := f.ReadRelocated(s)
	if err != nil {
		return nil, nil, err
	}
	var flags sframe.Flags
	if len(b) > 3 {
		if l, _ := sframe.Version(b[2]).Layout(); l.Flags&sframe.FDEFuncStartPCRel != 0 {
			flags = sframe.Flags(b[3])
			b[3] |= byte(sframe.FDEFuncStartPCRel)
		}
	}
	d, err := sframe.Decode(b, s.Base)
	if err == nil {
		d.Flags = flags
	}
	return f, d, err
}

// Package convert takes files the whole way: read, translate, lay out, write,
// verify, and only then put the result in its place.
package convert

import (
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"

	"cfi2sframe/cfi"
	"cfi2sframe/elfwrite"
	"cfi2sframe/emit"
	"cfi2sframe/internal/archive"
	"cfi2sframe/internal/debugfile"
	"cfi2sframe/internal/elffile"
	"cfi2sframe/internal/outfile"
	"cfi2sframe/plt"
	"cfi2sframe/report"
	"cfi2sframe/sframe"
	"cfi2sframe/translate"
	"cfi2sframe/verify"
)

// Options say how to convert. The zero value is not useful: Version is needed.
type Options struct {
	Version   sframe.Version
	Source    cfi.Source
	DebugFile string // where .debug_frame is if not in the file: a path, debugfile.Auto, or ""
	PCRel     bool   // start addresses count from their own field (errata 1)
	Outermost bool   // rows for code without a caller (errata 2)
	Force     bool   // replace an .sframe that is there
	Remove    bool   // take .sframe out instead
	DryRun    bool   // write nothing
	// MinCoverage is how many percent of the code that CFI describes have to be covered
	// for a result to be written; code without a caller counts as covered.
	MinCoverage float64
	NoVerify    bool  // do not check the result
	Brief       bool  // report without names, source lines and code without CFI
	Share       Share // of rows that occur again
	Workers     int   // at most; 0 stands for as many as there are processors. The result does not depend on it
}

func (o *Options) workers() int {
	if o.Workers > 0 {
		return o.Workers
	}
	return runtime.GOMAXPROCS(0)
}

// Share says whether FDEs with the same rows share them, and functions are divided into FDEs
// for that. In relocatable objects they never do: GNU ld gives each function its own again,
// but no room for that, and overwrites the section behind .sframe.
type Share uint8

const (
	ShareAuto Share = iota // where all readers can cope with it: in little-endian output
	ShareOn
	ShareOff
)

var shareNames = [...]string{ShareAuto: "auto", ShareOn: "on", ShareOff: "off"}

func (s Share) String() string { return shareNames[s] }

// ParseShare returns the Share of the given name.
func ParseShare(name string) (Share, error) {
	if i := slices.Index(shareNames[:], name); i >= 0 {
		return Share(i), nil
	}
	return 0, fmt.Errorf("%q is not known; auto, on or off was expected", name)
}

func (s Share) on(abi sframe.ABI) bool {
	return s == ShareOn || s == ShareAuto && abi.Order() == binary.LittleEndian
}

// ErrNoCode is returned for files whose CFI describes no code.
var ErrNoCode = errors.New("the CFI describes no code of this file, so there is nothing to write")

// ErrWrong is returned when the finished result did not pass the check against the
// CFI: a defect of this program, not of its input.
var ErrWrong = errors.New("nothing was written, because the result is wrong")

// A Result says what became of a file.
type Result struct {
	// Coverage is about the file, or about those members of an archive that were
	// converted. It is empty where .sframe was removed.
	Coverage []*report.Coverage
	Archive  bool
	// Kept are the objects without CFI, which stayed as they were: members of the
	// archive, or the file itself.
	Kept []Kept
	// Links is how many other names of the file (hard links) still have the old contents.
	Links int
}

// A Kept is an object that stayed as it was.
type Kept struct {
	Member string // of an archive, or "" for the file itself
	Why    error
}

// File converts the file in, an ELF file or an archive of them, and writes the result to
// out, which may be the same, or outfile.Stdout. On an error, or when ctx ends, out is as it was.
func File(ctx context.Context, in, out string, opt Options) (*Result, error) {
	src, info, err := openRegular(in)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	if opt.DryRun {
		out = ""
	}
	c := &conversion{ctx: ctx, opt: opt, in: in, out: out}
	defer c.close()
	if archive.Is(src) {
		c.res.Archive = true
		err = c.archive(src, info.Size())
	} else {
		var cov *report.Coverage
		cov, err = c.elf(src, info.Size(), c.open)
		var k *kept
		if errors.As(err, &k) {
			c.res.Kept = append(c.res.Kept, Kept{Why: k.why})
			err = c.copy(src)
		}
		if cov != nil {
			cov.File, cov.Output = in, out
			c.res.Coverage = append(c.res.Coverage, cov)
		}
	}
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := unchanged(src, info); err != nil {
		return nil, err
	}
	if err := c.enough(); err != nil || opt.DryRun {
		return &c.res, err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && c.output.Replaces(info) {
		c.res.Links = int(st.Nlink) - 1
	}
	if !c.output.Stream() {
		if err := likeInput(c.output.File, src, info, c.output.Replaces(info)); err != nil {
			return nil, outfile.Plain(err)
		}
	}
	if err := c.output.Commit(); err != nil {
		return nil, err
	}
	return &c.res, nil
}

// openRegular opens a file for reading, and refuses whatever is no regular one.
func openRegular(path string) (*os.File, fs.FileInfo, error) {
	// Opening a pipe must not wait for a writer; what it is shows below.
	r, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, outfile.Plain(err)
	}
	info, err := r.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%v: a regular file was expected", outfile.Kind(info.Mode()))
	}
	if err != nil {
		r.Close()
		return nil, nil, outfile.Plain(err)
	}
	return r, info, nil
}

// unchanged returns an error if src is not what it was when info was read. Its parts are read at
// different times, and would not belong together.
func unchanged(src *os.File, info fs.FileInfo) error {
	now, err := src.Stat()
	if err == nil && (now.Size() != info.Size() || !now.ModTime().Equal(info.ModTime())) {
		err = errors.New("the input was changed while it was read")
	}
	return outfile.Plain(err)
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

// A conversion is the work of File.
type conversion struct {
	ctx     context.Context
	opt     Options
	in, out string
	output  *outfile.File
	res     Result
}

// open opens the output. Until then everything only reads.
func (c *conversion) open() (*os.File, error) {
	if err := c.ctx.Err(); err != nil {
		return nil, err
	}
	o, err := outfile.Open(c.out)
	if err != nil {
		return nil, err
	}
	c.output = o
	return o.File, nil
}

func (c *conversion) close() {
	if c.output != nil {
		c.output.Close()
	}
}

// copy makes the output what the input is.
func (c *conversion) copy(src *os.File) error {
	if c.opt.DryRun {
		return nil
	}
	dst, err := c.open()
	if err != nil {
		return err
	}
	if _, err := src.Seek(0, io.SeekStart); err != nil {
		return outfile.Plain(err)
	}
	_, err = io.Copy(dst, src)
	return outfile.Plain(err)
}

// kept is the error of an object without CFI. That is nothing unusual: what counts is the
// program that it becomes a part of.
type kept struct{ why error }

func (k *kept) Error() string { return k.why.Error() }

// elf converts the ELF file src to the file that open returns, and checks that. The
// coverage is nil if .sframe was removed.
func (c *conversion) elf(src io.ReaderAt, size int64, open func() (*os.File, error)) (*report.Coverage, error) {
	f, err := elffile.New(src, size)
	if err != nil {
		return nil, err
	}
	var cov *report.Coverage
	if c.opt.Remove {
		err = c.remove(f, src, open)
	} else {
		cov, err = c.add(f, src, open)
	}
	if f.IsObject() && (errors.Is(err, cfi.ErrNone) || errors.Is(err, ErrNoCode) || errors.Is(err, elfwrite.ErrNone)) {
		err = &kept{err}
	}
	return cov, err
}

// add is elf for a file that gets an .sframe.
func (c *conversion) add(f *elffile.File, src io.ReaderAt, open func() (*os.File, error)) (*report.Coverage, error) {
	debug, err := debugfile.Open(c.opt.DebugFile, c.in, f)
	if err != nil {
		return nil, err
	}
	defer debug.Close()
	// If that is impossible, what is said of the CFI comes first.
	h, beginErr := c.begin(f, src, open)
	defer h.stop()
	prepareHeap(f)
	table, err := cfi.Load(f, c.opt.Source, debug.File())
	if err != nil {
		return nil, err
	}
	if len(table.Functions) == 0 {
		if len(table.Errors) > 0 {
			return nil, fmt.Errorf("no CFI that can be used: %w", table.Errors[0])
		}
		return nil, ErrNoCode
	}
	if beginErr != nil {
		return nil, beginErr
	}
	b, in, err := c.translate(f, table, h)
	if err != nil {
		return nil, err
	}
	layout, section, err := c.plan(f, b)
	if err != nil {
		return nil, err
	}
	in.Debug = debug.File()
	if in.Format3, err = c.format3(f, table, in.Result); err != nil {
		return nil, err
	}
	cov := report.New(*in)
	cov.Format, cov.FDEs, cov.FREs, cov.Size = int(c.opt.Version), b.NumFDEs(), b.NumFREs(), uint64(len(section))
	if table.Debug {
		cov.DebugFile = debug.Path()
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
		if err := check(dst, section, table, in.Result, c.opt.workers()); err != nil {
			return nil, err
		}
		cov.Verified = true
	}
	return cov, nil
}

// translate translates the CFI of f. It returns the section to be, and what there is to
// report.
func (c *conversion) translate(f *elffile.File, table *cfi.Table, h *head) (*emit.Builder, *report.Input, error) {
	opt := &c.opt
	abi, err := translate.ABIOf(table.Machine, table.Order)
	if err != nil {
		return nil, nil, err
	}
	enc := emit.Options{Version: opt.Version, ABI: abi, PCRel: opt.PCRel, Share: opt.Share.on(abi) && !f.IsObject()}
	// An interpreter's last section has to end on a page boundary.
	if is, err := elfwrite.IsInterpreter(f); err != nil {
		return nil, nil, err
	} else if is {
		enc.Align = 8
	}
	stubs, err := plt.Find(f, table)
	if err != nil {
		return nil, nil, err
	}
	b, res, err := c.parallel(table, enc, translate.Options{
		Version: opt.Version, Outermost: opt.Outermost, Reach: h.reach(opt.Version), Stubs: stubs, Moves: f.Moves,
	})
	return b, &report.Input{File: f, Table: table, ABI: abi, Result: res, Stubs: stubs, Brief: opt.Brief}, err
}

// parallel translates the table in as many parts as there are workers.
func (c *conversion) parallel(table *cfi.Table, enc emit.Options, opt translate.Options) (*emit.Builder, *translate.Result, error) {
	parts := table.Split(c.opt.workers())
	b, res, err := translateParts(parts, enc, opt)
	if err == nil && len(parts) > 1 && res.Varying > translate.MaxVarying { // the result must not depend on the parts
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
	errs := make([]error, len(parts))
	var wg sync.WaitGroup
	for i := range parts {
		part := opt
		if i < len(parts)-1 {
			part.Stubs = nil // they come last
		}
		wg.Go(func() {
			if builders[i], errs[i] = emit.NewBuilder(enc); errs[i] == nil {
				n := len(parts[i].Functions)
				builders[i].Grow(n, min(n/2, parts[i].Programs))
				results[i], errs[i] = translate.Translate(parts[i], part, builders[i])
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, nil, err
		}
	}
	return builders, translate.Merge(results), nil
}

// format3 returns what format 3 would make of those functions that have gaps, or nil where nobody
// wants to know.
func (c *conversion) format3(f *elffile.File, table *cfi.Table, res *translate.Result) (*translate.Result, error) {
	if c.opt.Version == sframe.V3 || c.opt.Brief || len(res.Gaps) == 0 {
		return nil, nil
	}
	opt := translate.Options{Version: sframe.V3, Moves: f.Moves}
	part := *table
	part.Functions = nil
	var last *cfi.Function
	for i := range res.Gaps {
		if fn := res.Gaps[i].Function; fn != last {
			part.Functions = append(part.Functions, *fn)
			last = fn
		}
	}
	left, err := translate.Translate(&part, opt, translate.Discard)
	if err == nil && res.Varying+left.Varying > translate.MaxVarying { // it counts what comes before
		left, err = translate.Translate(table, opt, translate.Discard)
	}
	return left, err
}

// plan finds the layout of the new file, and encodes the section for it.
func (c *conversion) plan(f *elffile.File, b *emit.Builder) (*elfwrite.Layout, []byte, error) {
	opt := elfwrite.Options{Force: c.opt.Force}
	if f.IsObject() {
		return c.planObject(f, b, opt)
	}
	layout, err := elfwrite.Plan(f, b.Size(), opt)
	if err != nil {
		return nil, nil, err
	}
	section, err := b.Encode(layout.Addr)
	return layout, section, err
}

// planObject is plan for a relocatable object.
func (c *conversion) planObject(f *elffile.File, b *emit.Builder, opt elfwrite.Options) (*elfwrite.Layout, []byte, error) {
	if c.opt.Version == sframe.V1 {
		return nil, nil, errors.New("relocatable objects are converted to format 2 or 3 only")
	}
	// binutils 2.44 writes the former, 2.45 and later the latter.
	o := elfwrite.Object{Type: elf.SHT_PROGBITS, StartSize: b.StartSize()}
	if c.opt.Version > sframe.V2 || c.opt.PCRel {
		o.Type = elf.SectionType(sframe.SHTGNUSFrame)
	}
	if b.NumFDEs() == 0 { // ld takes an .sframe that says nothing for a damaged one
		if !opt.Force && f.Section(".sframe") != nil {
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

// dryCheck is check for a section that is not written.
func (c *conversion) dryCheck(f *elffile.File, b *emit.Builder, layout *elfwrite.Layout, table *cfi.Table, want *translate.Result, cov *report.Coverage) error {
	if c.opt.NoVerify {
		return nil
	}
	section, err := b.Encode(layout.Addr) // 0 in an object, whose sections are all near that
	if err != nil {
		return err
	}
	s, err := sframe.Decode(section, layout.Addr)
	if err == nil {
		err = compare(f, s, table, want, c.opt.workers())
	}
	cov.Verified = err == nil
	return err
}

// remove takes .sframe out of f.
func (c *conversion) remove(f *elffile.File, src io.ReaderAt, open func() (*os.File, error)) error {
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
	if g.Section(".sframe") != nil || g.Prog(elf.ProgType(sframe.PTGNUSFrame)) != nil {
		return fmt.Errorf("%w: .sframe is still there", ErrWrong)
	}
	return nil
}

// A head is the first part of the new file, which is copied while the rest is worked out. For
// an object it is nothing.
type head struct {
	layout *elfwrite.Layout // for an .sframe of no bytes; nil for an object
	dst    *os.File         // nil if nothing is written yet
	cancel context.CancelFunc
	done   chan error // nil if nothing is copied, or the copy is known to have ended
	err    error
}

// begin opens the output, and starts to copy what does not depend on the size of .sframe.
func (c *conversion) begin(f *elffile.File, src io.ReaderAt, open func() (*os.File, error)) (*head, error) {
	h := &head{}
	if f.IsObject() {
		return h, nil
	}
	var err error
	if h.layout, err = elfwrite.Plan(f, 0, elfwrite.Options{Force: c.opt.Force}); err != nil || c.opt.DryRun {
		return h, err
	}
	if h.dst, err = open(); err != nil {
		return h, err
	}
	var ctx context.Context
	ctx, h.cancel = context.WithCancel(c.ctx)
	h.done = make(chan error, 1)
	go func() { h.done <- h.layout.CopyHead(ctx, h.dst, src) }()
	return h, nil
}

// wait waits for the end of the copy.
func (h *head) wait() error {
	if h.done != nil {
		h.err, h.done = <-h.done, nil
	}
	return h.err
}

// stop ends the copy, if nobody waited for it.
func (h *head) stop() {
	if h.cancel != nil {
		h.cancel()
		_ = h.wait() // of no use any more
	}
}

// reach returns from where to where functions can start so that their start addresses have
// room. The section's address does not depend on its size; its size, which is not known
// yet, is allowed for. In objects it is the linker's concern.
func (h *head) reach(v sframe.Version) translate.Reach {
	l, ok := v.Layout()
	if !ok || l.StartSize == 8 || h.layout == nil {
		return translate.Reach{}
	}
	const distance = 1<<31 - 256<<20
	return translate.Reach{First: h.layout.Addr - min(h.layout.Addr, distance), Last: h.layout.Addr + distance}
}

// check decodes the section from the bytes of the new file and compares it with
// the CFI, and as much code has to be described as was translated. It is read into the memory
// that it was encoded in: new memory would have to be mapped page by page.
func check(tmp *os.File, section []byte, table *cfi.Table, want *translate.Result, workers int) error {
	f, s, err := read(tmp, section)
	if err != nil {
		// Section headers that contradict each other do that.
		return fmt.Errorf("nothing was written, because there is no sound layout for this file: %w", err)
	}
	return compare(f, s, table, want, workers)
}

// compare is check for a decoded section.
func compare(f *elffile.File, s *sframe.Section, table *cfi.Table, want *translate.Result, workers int) error {
	if f.IsObject() {
		s.Sort() // which is the linker's task
	}
	res, err := verify.Check(table, s, f, verify.Options{Keep: 1, Workers: workers})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrWrong, err)
	}
	if res.Total > 0 {
		return fmt.Errorf("%w: %d mismatches between SFrame and CFI, the first at %v", ErrWrong, res.Total, res.Mismatches[0])
	}
	if res.Covered != want.Covered || res.Stubs != want.Synthesised {
		return fmt.Errorf("%w: SFrame describes %d bytes of code and %d of PLT stubs, but %d and %d were translated",
			ErrWrong, res.Covered, res.Stubs, want.Covered, want.Synthesised)
	}
	return nil
}

// reopen reads the headers of a file that was just written.
func reopen(r *os.File) (*elffile.File, error) {
	info, err := r.Stat()
	if err != nil {
		return nil, err
	}
	return elffile.New(r, info.Size())
}

// read decodes the .sframe of a file as a stack tracer finds it: through
// PT_GNU_SFRAME, in loaded memory. It is read into section, which has as many bytes.
func read(r *os.File, section []byte) (*elffile.File, *sframe.Section, error) {
	f, err := reopen(r)
	if err != nil {
		return nil, nil, err
	}
	if f.IsObject() {
		return readObject(f)
	}
	h := f.Prog(elf.ProgType(sframe.PTGNUSFrame))
	if h == nil {
		return nil, nil, errors.New("there is no PT_GNU_SFRAME")
	}
	off, ok := f.FileOffset(h.Vaddr, h.Memsz)
	if !ok || off != h.Off || h.Filesz != h.Memsz {
		return nil, nil, errors.New("PT_GNU_SFRAME does not lie in a loaded segment")
	}
	if len(f.Sections) > 0 && !slices.ContainsFunc(f.Sections, func(s elffile.Section) bool {
		return s.Name == ".sframe" && s.Type == sframe.SHTGNUSFrame && s.Addr == h.Vaddr && s.Off == h.Off && s.Size == h.Filesz
	}) {
		return nil, nil, errors.New("section .sframe is not what PT_GNU_SFRAME says")
	}
	if h.Filesz != uint64(len(section)) {
		return nil, nil, fmt.Errorf("PT_GNU_SFRAME has %d bytes; %d were expected", h.Filesz, len(section))
	}
	if err := f.ReadInto(".sframe", section, off); err != nil {
		return nil, nil, err
	}
	d, err := sframe.Decode(section, h.Vaddr)
	return f, d, err
}

// readObject decodes the .sframe of an object with its relocations applied. They count
// from each field, whatever the flag says: what the flag means is up to the linker.
func readObject(f *elffile.File) (*elffile.File, *sframe.Section, error) {
	s := f.Section(".sframe")
	if s == nil {
		return nil, nil, errors.New("there is no section .sframe")
	}
	b, err := f.ReadRelocated(s)
	if err != nil {
		return nil, nil, err
	}
	var flags sframe.Flags
	if len(b) > 3 && b[2] > byte(sframe.V1) {
		flags = sframe.Flags(b[3])
		b[3] |= byte(sframe.FDEFuncStartPCRel)
	}
	d, err := sframe.Decode(b, s.Base)
	if err == nil {
		d.Flags = flags
	}
	return f, d, err
}

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
	"math"
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"

	"cfi2sframe/arch"
	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/elfwrite"
	"cfi2sframe/emit"
	"cfi2sframe/internal/archive"
	"cfi2sframe/internal/debugfile"
	"cfi2sframe/internal/filecopy"
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
	NoSync      bool  // do not wait until what replaces a file is on the disk
	Brief       bool  // report without names, source lines and code without CFI
	Share       Share // of rows that occur again
	Workers     int   // at most; 0 stands for as many as there are processors. The result does not depend on it
	// Room is what there is for the reports on several files together; nil stands for one of each
	// file's own.
	Room *report.Room
}

// What workers may take of memory at most, in bytes: so much for any file, and a part of its size
// more. Each has a table of all different programs of the file.
const (
	anyWorkers  = 96 << 20
	workerShare = 4       // one of so many bytes of the file
	perWorker   = 2 << 20 // of each
	perProgram  = 48      // of each, for each program
)

// workers returns how many workers share the work on a table of a file of the given size.
func (o *Options) workers(t *cfi.Table, size uint64) int {
	n := o.Workers
	if n <= 0 {
		n = runtime.GOMAXPROCS(0)
	}
	most := (anyWorkers + size/workerShare) / (perWorker + perProgram*uint64(t.Programs))
	return max(1, min(n, len(t.Functions), int(min(most, math.MaxInt))))
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
	// Links is how many other names of the file (hard links) keep the old contents.
	Links int
}

// A Kept is an object that stayed as it was.
type Kept struct {
	Member string // of an archive, or "" for the file itself
	Why    error
}

// File converts the file in, an ELF file or an archive of them, or Stdin, and writes the result to
// out, which may be the same, or outfile.Stdout. On an error, or when ctx ends, out is as it was.
func File(ctx context.Context, in, out string, opt Options) (*Result, error) {
	p, err := Prepare(ctx, in, out, opt)
	if p == nil {
		return nil, err
	}
	defer p.Close()
	if err != nil {
		return &p.Result, err
	}
	if err := p.Finish(); err != nil {
		return nil, err
	}
	if err := p.Commit(); err != nil {
		return nil, err
	}
	j := &Job{pending: p, noSync: opt.NoSync}
	if syncFolders([]*Job{j}); j.Err != nil {
		return nil, j.Err
	}
	return &p.Result, nil
}

// A Pending is a result that is not in its place yet. Finish and then Commit put it there.
type Pending struct {
	Result Result
	conversion
}

// Prepare is File up to the point where the result is known to be right, and complete but for
// its place. With ErrCoverage there is a Pending, too, which has nothing but a Result.
func Prepare(ctx context.Context, in, out string, opt Options) (*Pending, error) {
	i, err := openInput(ctx, in, out == in)
	if err != nil {
		return nil, err
	}
	return prepare(ctx, i, out, opt)
}

// prepare is Prepare for an input that is open. It becomes the Pending's.
func prepare(ctx context.Context, in *input, out string, opt Options) (*Pending, error) {
	if opt.DryRun {
		out = ""
	}
	if opt.Room == nil {
		opt.Room = report.NewRoom()
	}
	opt.Room.Grow(in.info.Size())
	p := &Pending{conversion: conversion{ctx: ctx, opt: opt, input: in, in: in.name, out: out}}
	p.res = &p.Result
	err := p.convert()
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = p.unchanged()
	}
	if err == nil {
		if err = p.enough(); err != nil {
			return p, err
		}
	}
	if err == nil {
		err = p.countLinks()
	}
	if err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// convert does the work.
func (p *Pending) convert() error {
	is, err := archive.Is(p.src)
	if err != nil {
		return outfile.Plain(err)
	}
	if is {
		p.Result.Archive = true
		return p.archive(p.src, p.info.Size())
	}
	cov, err := p.elf(p.src, p.info.Size(), p.open)
	var k *kept
	if errors.As(err, &k) {
		p.Result.Kept = append(p.Result.Kept, Kept{Why: k.why})
		err = p.copy(p.src)
	}
	if cov != nil {
		cov.File, cov.Output = p.in, p.out
		p.Result.Coverage = append(p.Result.Coverage, cov)
	}
	return err
}

// countLinks counts the names of the input that keep the old contents.
func (p *Pending) countLinks() error {
	if p.output == nil {
		return nil
	}
	replaced, err := p.output.ReplacesInput(p.src)
	if st, ok := p.info.Sys().(*syscall.Stat_t); ok && replaced {
		p.Result.Links = int(st.Nlink) - 1
	}
	return outfile.Plain(err)
}

// Size is that of what was written, in bytes.
func (p *Pending) Size() int64 {
	if p.output == nil {
		return 0
	}
	info, err := p.output.Stat()
	if err != nil {
		return 0
	}
	return info.Size()
}

// start makes the system begin with what Finish waits for.
func (p *Pending) start() {
	if p.output != nil && !p.opt.NoSync {
		p.output.StartSync()
	}
}

// Finish makes the result ready for its place: it has its attributes, and if it replaces a
// file, it is on the disk.
func (p *Pending) Finish() error {
	if p.output == nil {
		return nil
	}
	return p.output.Finish(!p.opt.NoSync)
}

// Commit puts the result in its place. If it replaces the input, that has to be there, and to be
// what it was.
func (p *Pending) Commit() error {
	if p.output == nil {
		return nil
	}
	if err := p.unchanged(); err != nil {
		return err
	}
	return p.output.Commit()
}

// Close gives up what is not in its place.
func (p *Pending) Close() {
	if p.output != nil {
		p.output.Close()
	}
	p.input.close()
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

// A conversion is the work of Prepare.
type conversion struct {
	*input
	ctx     context.Context
	opt     Options
	in, out string
	linked  bool          // the input is an ELF file that is linked
	output  *outfile.File // or nil
	res     *Result
}

// open opens the output. Until then everything only reads.
func (c *conversion) open() (*os.File, error) {
	if err := c.ctx.Err(); err != nil {
		return nil, err
	}
	var err error
	if c.place != nil {
		c.output, err = outfile.Replace(c.place)
	} else {
		c.output, err = outfile.Open(c.out, c.permissions())
	}
	if err != nil {
		return nil, err
	}
	return c.output.File, nil
}

// permissions are those of a new output.
func (c *conversion) permissions() fs.FileMode {
	switch {
	case !c.spooled:
		return c.info.Mode().Perm()
	case c.linked: // as a linker makes it
		return 0o777
	}
	return 0o666
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
	return outfile.Plain(filecopy.Range(c.ctx, dst, 0, src, 0, c.info.Size()))
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
	if f.IsObject() && (errors.Is(err, cfi.ErrNone) || errors.Is(err, ErrNoCode) || errors.Is(err, elfwrite.ErrNone)) {
		err = &kept{err}
	}
	return cov, err
}

// add is elf for a file that gets an .sframe.
func (c *conversion) add(f *elffile.File, src io.ReaderAt, open func() (*os.File, error)) (cov *report.Coverage, err error) {
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
	begun.Go(func() { h, beginErr = c.begin(f, src, open) })
	prepareHeap(f)
	table, err := cfi.Load(f, c.opt.Source, debug.File())
	begun.Wait()
	defer h.stop()
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
	r, err := c.fit(f, table, h)
	if err != nil {
		return nil, err
	}
	b, in, layout, section := r.builder, r.report, r.layout, r.section
	in.Debug = debug.File()
	if !c.opt.Room.Full() { // it is said of gaps that are listed
		if in.Format3, err = c.format3(f, table, in.Result); err != nil {
			return nil, err
		}
	}
	cov = report.New(*in)
	cov.Format, cov.FDEs, cov.FREs, cov.Size = int(c.opt.Version), b.NumFDEs(), b.NumFREs(), uint64(len(section))
	cov.MovedCode = layout.MovedCode
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
		if err := check(dst, section, table, in.Result, c.opt.workers(table, f.Size)); err != nil {
			return nil, err
		}
		cov.Verified = true
	}
	return cov, nil
}

// translate translates the CFI of f. It returns the section to be, and what there is to
// report.
func (c *conversion) translate(f *elffile.File, table *cfi.Table, reach translate.Reach) (*emit.Builder, *report.Input, error) {
	opt := &c.opt
	_, abi, err := arch.Find(table.Machine, table.Order)
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
	b, res, err := c.parallel(table, f.Size, enc, translate.Options{
		Version: opt.Version, Outermost: opt.Outermost, Reach: reach, Stubs: stubs, Moves: f.Moves,
	})
	return b, &report.Input{File: f, Table: table, ABI: abi, Result: res, Stubs: stubs, Brief: opt.Brief, Room: opt.Room}, err
}

// parallel translates the table of a file of the given size in as many parts as there are workers.
func (c *conversion) parallel(table *cfi.Table, size uint64, enc emit.Options, opt translate.Options) (*emit.Builder, *translate.Result, error) {
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
	errs := make([]error, len(parts))
	var wg sync.WaitGroup
	for i := range parts {
		part := opt
		part.Part = len(parts) > 1
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
	if !res.Bounded() {
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
		if err != nil || res.Varying+left.Varying <= translate.MaxVarying && res.Evaluated+left.Evaluated <= translate.MaxEvaluated {
			return left, err
		}
	}
	return translate.Translate(table, opt, translate.Discard) // which part is described depends on what comes before
}

// plan finds the layout of the new file, and encodes the section for it. With a
// *emit.FarError there is a layout, too.
func (c *conversion) plan(f *elffile.File, b *emit.Builder, h *head) (*elfwrite.Layout, []byte, error) {
	if f.IsObject() {
		return c.planObject(f, b, elfwrite.Options{Force: c.opt.Force})
	}
	layout, err := h.layout.Resize(b.Size())
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
	addr := layout.Addr
	if f.IsObject() { // whose sections are all near the first
		addr = table.Functions[0].Begin
	}
	section, err := b.Encode(addr)
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
	if err := g.ReadError(); err != nil {
		return outfile.Plain(err)
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

// check decodes the section from the bytes of the new file and compares it with
// the CFI, and as much code has to be described as was translated. It is read into the memory
// that it was encoded in: new memory would have to be mapped page by page.
func check(tmp *os.File, section []byte, table *cfi.Table, want *translate.Result, workers int) error {
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

// Package convert adds an .sframe section to ELF files, made from their DWARF call frame information (CFI).
//
// Add reads the input, translates the CFI, encodes and lays out the section, and verifies the result against the CFI.
// The input is a linked file, a relocatable object, or an archive of these. Convert does the same for a writer. Remove
// removes the section, Detach writes it to a separate file, and Attach adds such a file's. Check compares an .sframe,
// which another tool may have written, with the CFI of its file. Dump prints it.
//
// The single steps are in packages cfi, translate, emit, elfwrite and verify, which can be used alone. This package
// does not open or replace files, limit memory, or handle signals.
package convert

import (
	"cmp"
	"context"
	"errors"
	"io"
	"math"
	"os"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/archive"
	"cfi2sframe/internal/filecopy"
	"cfi2sframe/internal/outfile"
)

// ErrNoCode is returned for files whose CFI describes no code.
var ErrNoCode = errors.New("the CFI describes no code of this file, so there is nothing to write")

// ErrWrong is returned if the result does not pass the check against the CFI: a defect of cfi2sframe, not of its input.
var ErrWrong = errors.New("nothing was written: the result is wrong")

// A Run is the work on one file, whatever is done with it.
type Run struct {
	In   io.ReaderAt
	Size int64 // in bytes
	// Create makes the output, empty, before the first write. Until then the input is only read. On an error, and if the
	// file is unchanged (Result.Stays), the output may have a part of a result. If Create is nil, nothing is written.
	Create func() (*os.File, error)
	// SkipUnsupported leaves unsupported files unchanged, which is no error: see Kept.
	SkipUnsupported bool
	// Report, if not nil, is called with the result for each ELF file that was translated or compared, while it is open.
	// An error of Report is that of the conversion.
	Report func(*Details) error
	// Starting, if not nil, is called before work on a file, and on each member of an archive, begins: a program can
	// prepare its heap for large ones.
	Starting func(Work)
	// Workers, if not 0, replaces Options.Workers.
	Workers int
}

// Work is a file, or a member of an archive, that is converted next. Sizes are in bytes.
type Work struct {
	Size    uint64 // of the file, or of the member of an archive
	CFI     uint64 // of its CFI in the file; 0 for an archive
	Archive bool   // an archive, whose members follow
}

// A Result describes a conversion.
type Result struct {
	// Facts are those of the file, or of the members of an archive. Files that were not translated have none.
	Facts   []Facts
	Archive bool
	// Kept are the members of the archive that are unchanged, or the file itself.
	Kept []Kept
	// Stays is why the file is unchanged, or "" if it has changed. For an archive it is Current if one of the members
	// is up to date, and otherwise NoCFI.
	Stays Reason
	// Unsigned says that the signature of a kernel module was removed, because the file has changed.
	Unsigned bool
}

// Convert is Add for the file of the given size in r, and a writer, which gets the complete result. Until then the
// result is in a temporary file. On an error, or when ctx ends, nothing is written, unless w returns the error.
func Convert(ctx context.Context, r io.ReaderAt, size int64, w io.Writer, opt Options) (*Result, error) {
	out, err := outfile.Scratch()
	if err != nil {
		return nil, err
	}
	defer out.Close()
	r = struct{ io.ReaderAt }{r} // to copy from a file would move its position
	res, err := Add(ctx, &Run{In: r, Size: size, Create: func() (*os.File, error) { return out, nil }}, opt)
	if err != nil {
		return nil, err
	}
	result := io.Reader(io.NewSectionReader(out, 0, math.MaxInt64))
	if res.Stays != "" {
		result = io.NewSectionReader(filecopy.Sized(r, size), 0, size)
	}
	if _, err := io.Copy(w, result); err != nil {
		return nil, err
	}
	return res, nil
}

// Add adds an .sframe. Unless opt.NoVerify is set, the new file is checked against the CFI at every pc.
func Add(ctx context.Context, run *Run, opt Options) (*Result, error) {
	opt.Version = cmp.Or(opt.Version, DefaultVersion)
	c := newConversion(ctx, run, (*single).add)
	c.opt = opt
	return c.run()
}

// Remove removes .sframe and its segment. If the section is between two symbols START:END, these have to be given,
// unless they are KernelSymbols.
func Remove(ctx context.Context, run *Run, symbols string) (*Result, error) {
	c := newConversion(ctx, run, (*single).remove)
	c.opt.Reserved = symbols
	return c.run()
}

// Detach writes a file with .sframe and the build-id: see elfwrite.PlanDetached. Files with a shorter build-id are not
// supported. Of the options, Update and Reserved do not count.
func Detach(ctx context.Context, run *Run, buildID int, opt Options) (*Result, error) {
	opt.Version, opt.Update, opt.Reserved = cmp.Or(opt.Version, DefaultVersion), false, ""
	c := newConversion(ctx, run, (*single).add)
	c.opt, c.detach, c.linked, c.buildID = opt, true, true, buildID
	return c.run()
}

// AttachOptions say how to attach a section.
type AttachOptions struct {
	Section Opener     // opens the file with the detached section
	Source  cfi.Source // where the CFI comes from
	Debug   Opener     // opens the debug file, or nil
	Infer   bool       // also find rows from instructions
	Force   bool       // replace an old .sframe
}

// Attach adds the section of another file, if it agrees with the CFI.
func Attach(ctx context.Context, run *Run, opt AttachOptions) (*Result, error) {
	c := newConversion(ctx, run, func(s *single) error { return s.attach(opt.Section) })
	c.opt, c.linked = Options{Source: opt.Source, Infer: opt.Infer, Debug: opt.Debug, Force: opt.Force}, true
	return c.run()
}

// A conversion is the work on one file.
type conversion struct {
	job     *Run
	ctx     context.Context
	src     io.ReaderAt
	opt     Options
	one     func(*single) error // the work on an ELF file
	linked  bool                // archives are not supported
	detach  bool
	buildID int // the least size of a build-id, with detach
	budget  *elffile.Budget
	res     *Result
}

func newConversion(ctx context.Context, run *Run, one func(*single) error) *conversion {
	return &conversion{
		job: run, ctx: ctx, src: filecopy.Sized(run.In, run.Size), one: one, budget: elffile.NewBudget(run.Size),
		res: &Result{},
	}
}

// run converts the file.
func (c *conversion) run() (*Result, error) {
	c.opt.Workers = cmp.Or(c.job.Workers, c.opt.Workers)
	is, err := archive.Is(c.src)
	if err != nil {
		return nil, outfile.Plain(err)
	}
	var kept *Kept
	switch c.res.Archive = is; {
	case is && c.linked:
		kept, err = c.kept(&elffile.File{}, errNotLinked)
	case is:
		kept, err = c.archive()
	default:
		kept, err = c.elf(c.src, c.job.Size, "", c.job.Create)
	}
	if err := cmp.Or(err, c.ctx.Err()); err != nil {
		return nil, err
	}
	if kept != nil {
		c.res.Kept = append(c.res.Kept, *kept)
		c.res.Stays = kept.Reason
	}
	return c.res, nil
}

// starting calls Run.Starting, if it is set.
func (c *conversion) starting(w Work) {
	if c.job.Starting != nil {
		c.job.Starting(w)
	}
}

// elf converts the ELF file src, which is a member of an archive or "", to the file that create makes. If it is
// unchanged, elf returns the reason.
func (c *conversion) elf(src io.ReaderAt, size int64, member string, create func() (*os.File, error)) (*Kept, error) {
	signature, err := signatureSize(src, size)
	if err != nil {
		return nil, err
	}
	f, err := elffile.NewIn(c.budget, src, size-signature)
	if err != nil {
		return c.kept(nil, err)
	}
	s := &single{conversion: c, f: f, src: src, member: member, create: create}
	defer func() { s.debug.Close() }()
	kept, err := c.kept(f, c.one(s))
	unsigned := err == nil && kept == nil && signature > 0
	if err == nil {
		err = s.report(kept, unsigned)
	}
	// Unreadable parts may have been taken for missing ones.
	if err := cmp.Or(f.ReadError(), s.debug.ReadError(), err); err != nil {
		return nil, err
	}
	c.res.Unsigned = c.res.Unsigned || unsigned
	return kept, nil
}

// Package convert adds an .sframe section made from DWARF call frame information (CFI) to ELF files.
//
//	var out bytes.Buffer
//	result, err := convert.Convert(ctx, bytes.NewReader(program), int64(len(program)), &out, convert.Options{})
//	if err != nil {
//		return err
//	}
//	for _, facts := range result.Facts { // one, or one for each member of an archive
//		fmt.Println(facts.Covered, "of", facts.Described, "bytes of code have rows")
//	}
//
// Add reads the input (a linked file, a relocatable object, or an archive of these), translates the CFI, encodes and
// lays out the section, and verifies the result against the CFI. Convert does the same with a writer as output. Detach
// writes the section to a separate file, and Attach adds it. Check compares an .sframe with the CFI of its file.
//
// The steps are in packages cfi, translate, emit, elfwrite and verify, which can be used separately. This package does
// not open or replace files, limit memory, or handle signals.
package convert

import (
	"cmp"
	"context"
	"errors"
	"io"
	"math"
	"os"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/archive"
	"cfi2sframe/internal/filecopy"
	"cfi2sframe/internal/outfile"
)

// ErrNoCode is returned for files whose CFI covers no code.
var ErrNoCode = errors.New("the CFI covers no code in this file, so there is nothing to write")

// ErrWrong is returned if the result fails the check against the CFI. This is a defect in cfi2sframe, not in its input.
var ErrWrong = errors.New("nothing was written: the result is wrong")

// A Run describes an operation on one file.
type Run struct {
	In   io.ReaderAt
	Size int64 // in bytes
	// Create creates the empty output file before the first write. Until then, the input is only read. After an error,
	// or if the file is unchanged (Result.Stays), the output may be incomplete. If Create is nil, nothing is written.
	Create func() (*os.File, error)
	// SkipUnsupported leaves unsupported files unchanged instead of returning an error; see Kept.
	SkipUnsupported bool
	// Report, if not nil, is called with the result for each ELF file that was translated or compared, while the file
	// is open. If it returns an error, the conversion fails with that error.
	Report func(*Details) error
	// Starting, if not nil, is called before work starts on a file, and on each member of an archive. It allows a
	// program to prepare its heap for large files.
	Starting func(Work)
	// Workers, if not 0, overrides Options.Workers.
	Workers int
}

// Work describes the file or archive member to be converted next. Sizes are in bytes.
type Work struct {
	Size    uint64 // size of the file or archive member
	CFI     uint64 // size of its CFI; 0 for an archive
	Archive bool   // whether this is an archive; calls for its members follow
}

// A Result describes a conversion.
type Result struct {
	// Facts contains an element for the file, or for each member of an archive, that was translated.
	Facts   []Facts
	Archive bool
	// Kept holds the unchanged members of the archive, or the unchanged file itself.
	Kept []Kept
	// Stays is the reason why the file is unchanged, or "" if it has changed. For an archive, it is Current if one of
	// the members is up to date, otherwise NoCFI.
	Stays Reason
	// Unsigned reports whether the signature of a kernel module was removed because the file changed.
	Unsigned bool
}

// Convert is like Add for the file of the given size in r, and writes the result to w once it is complete. Until then
// the result is in a temporary file. After an error, or if ctx is done, nothing has been written, unless w returned the
// error.
func Convert(ctx context.Context, r io.ReaderAt, size int64, w io.Writer, opt Options) (*Result, error) {
	out, err := outfile.Scratch()
	if err != nil {
		return nil, err
	}
	defer out.Close()
	r = struct{ io.ReaderAt }{r} // copying from a file would move its position
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

// Add adds an .sframe. Unless opt.NoVerify is set, it checks the new file against the CFI at every pc.
func Add(ctx context.Context, run *Run, opt Options) (*Result, error) {
	opt.Version = cmp.Or(opt.Version, DefaultVersion)
	c := newConversion(ctx, run, (*single).add)
	c.opt = opt
	return c.run()
}

// Remove removes .sframe and its segment. If the section is in bytes reserved between two symbols, these must be given
// as START:END, unless they are KernelSymbols.
func Remove(ctx context.Context, run *Run, symbols string) (*Result, error) {
	c := newConversion(ctx, run, (*single).remove)
	c.opt.Reserved = symbols
	return c.run()
}

// Detach writes a file with .sframe and the build-id; see elfwrite.PlanDetached. Files whose build-id is shorter than
// buildID bytes are rejected. The options Update and Reserved are ignored.
func Detach(ctx context.Context, run *Run, buildID int, opt Options) (*Result, error) {
	opt.Version, opt.Update, opt.Reserved = cmp.Or(opt.Version, DefaultVersion), false, ""
	c := newConversion(ctx, run, (*single).add)
	c.opt, c.detach, c.noArchive, c.buildID = opt, true, true, buildID
	return c.run()
}

// Attach adds the section of another file, which the Opener opens, if it agrees with the CFI. Of the options, it uses
// Source, Infer, Debug and Force.
func Attach(ctx context.Context, run *Run, section Opener, opt Options) (*Result, error) {
	c := newConversion(ctx, run, func(s *single) error { return s.attach(section) })
	c.opt, c.noArchive = Options{Source: opt.Source, Infer: opt.Infer, Debug: opt.Debug, Force: opt.Force}, true
	return c.run()
}

// A conversion is the state of an operation on one file.
type conversion struct {
	job       *Run
	ctx       context.Context
	src       io.ReaderAt
	opt       Options
	one       func(*single) error // operation on an ELF file
	noArchive bool                // archives are not supported
	detach    bool
	buildID   int // minimum size of a build-id for detach
	budget    *elffile.Budget
	res       *Result
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
	case is && c.noArchive:
		kept, err = c.keep(&elffile.File{}, errNotLinked)
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

// reportStart calls Run.Starting, if it is set.
func (c *conversion) reportStart(w Work) {
	if c.job.Starting != nil {
		c.job.Starting(w)
	}
}

// elf converts the ELF file src to the file returned by create; member is its name in an archive, or "". If the file is
// unchanged, elf returns the reason.
func (c *conversion) elf(src io.ReaderAt, size int64, member string, create func() (*os.File, error)) (*Kept, error) {
	signature, err := signatureSize(src, size)
	if err != nil {
		return nil, err
	}
	f, err := elffile.NewIn(c.budget, src, size-signature)
	if err != nil {
		return c.keep(nil, err)
	}
	s := &single{conversion: c, f: f, src: src, member: member, create: create}
	defer func() { s.debug.Close() }()
	kept, err := c.keep(f, c.one(s))
	unsigned := err == nil && kept == nil && signature > 0
	if err == nil {
		err = s.report(kept, unsigned)
	}
	// Unreadable parts may have been treated as missing.
	if err := cmp.Or(f.ReadError(), s.debug.ReadError(), err); err != nil {
		return nil, err
	}
	c.res.Unsigned = c.res.Unsigned || unsigned
	return kept, nil
}

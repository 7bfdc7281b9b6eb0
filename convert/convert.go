// Package convert adds an .sframe section to ELF files, made from their DWARF call frame information (CFI).
//
// Convert reads the input, translates the CFI, encodes and lays out the section, and verifies the result against the
// CFI. The input is a linked file, a relocatable object, or an archive of these. Check compares an .sframe, which
// another tool may have written, with the CFI of its file. Dump prints it.
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

	"cfi2sframe/elffile"
	"cfi2sframe/internal/archive"
	"cfi2sframe/internal/filecopy"
	"cfi2sframe/internal/outfile"
)

// ErrNoCode is returned for files whose CFI describes no code.
var ErrNoCode = errors.New("the CFI describes no code of this file, so there is nothing to write")

// ErrWrong is returned if the result does not pass the check against the CFI: a defect of cfi2sframe, not of its input.
var ErrWrong = errors.New("nothing was written: the result is wrong")

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
	// Attached compares an .sframe with Options.Attach with the CFI.
	Attached *Comparison
	// Unsigned says that the signature of a kernel module was removed, because the file has changed.
	Unsigned bool
}

// Convert converts the file of the given size in r, and writes the complete result to w. Until then the result is in a
// temporary file. Unless opt.NoVerify is set, it is checked against the CFI at every pc. On an error, or when ctx ends,
// nothing is written, unless w returns the error.
func Convert(ctx context.Context, r io.ReaderAt, size int64, w io.Writer, opt Options) (*Result, error) {
	out, err := outfile.Scratch()
	if err != nil {
		return nil, err
	}
	defer out.Close()
	r = struct{ io.ReaderAt }{r} // to copy from a file would move its position
	res, err := Into(ctx, r, size, func() (*os.File, error) { return out, nil }, opt)
	if err != nil || opt.DryRun {
		return res, err
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

// Into is Convert into a file. Function create makes it, empty, before the first write. Until then the input is only
// read. On an error, and if the file is unchanged (Result.Stays), the file may have a part of a result.
func Into(ctx context.Context, r io.ReaderAt, size int64, create func() (*os.File, error),
	opt Options) (*Result, error) {
	opt.complete(size)
	c := &conversion{ctx: ctx, opt: opt, src: filecopy.Sized(r, size), size: size, create: create, res: &Result{}}
	is, err := archive.Is(c.src)
	if err != nil {
		return nil, outfile.Plain(err)
	}
	var kept *Kept
	switch c.res.Archive = is; {
	case is && (opt.Detach || opt.Attach):
		kept, err = c.opt.kept(&elffile.File{}, errNotLinked)
	case is:
		kept, err = c.archive()
	default:
		kept, err = c.elf(c.src, size, "", c.create)
	}
	if err := cmp.Or(err, ctx.Err()); err != nil {
		return nil, err
	}
	if kept != nil {
		c.res.Kept = append(c.res.Kept, *kept)
		c.res.Stays = kept.Reason
	}
	return c.res, nil
}

// A conversion is the work on one file.
type conversion struct {
	ctx    context.Context
	opt    Options
	src    io.ReaderAt
	size   int64
	create func() (*os.File, error) // makes the output
	res    *Result
}

// elf converts the ELF file src, which is a member of an archive or "", to the file that create makes. If it is
// unchanged, elf returns the reason.
func (c *conversion) elf(src io.ReaderAt, size int64, member string, create func() (*os.File, error)) (*Kept, error) {
	signature, err := signatureSize(src, size)
	if err != nil {
		return nil, err
	}
	f, err := elffile.NewIn(c.opt.Budget, src, size-signature)
	if err != nil {
		return c.opt.kept(nil, moduleError(c.opt.Path, err))
	}
	s := &single{conversion: c, f: f, src: src, member: member, create: create}
	defer func() { s.debug.Close() }()
	switch {
	case c.opt.Remove:
		err = s.remove()
	case c.opt.Attach:
		err = s.attach()
	default:
		err = s.add()
	}
	kept, err := c.opt.kept(f, err)
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

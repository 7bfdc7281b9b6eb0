// Package repack converts the ELF files in a Debian or RPM package. All else is unchanged, byte for byte: the order,
// names, owners, modes, dates and attributes of files, links, scripts, and the compression of the parts. The sizes and
// sums of changed files are updated. The same package gives the same bytes each time. If nothing changes, the package
// is copied.
//
// Signed packages are refused: their signatures would become invalid. Parts are unpacked to files without names, as are
// the new files. Archives are copied in ranges: a writer would make other headers.
package repack

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"

	"cfi2sframe/convert"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/compressed"
	"cfi2sframe/internal/filecopy"
	"cfi2sframe/internal/outfile"
	"cfi2sframe/internal/pack"
	"cfi2sframe/report"
)

// ErrKind is the error of unsupported files.
var ErrKind = errors.New("is neither a Debian package (.deb) nor an RPM package")

// ErrSigned is the error of signed packages.
var ErrSigned = errors.New("a signature would become invalid; convert the package before it is signed")

// Options say how to convert.
type Options struct {
	convert.Options
	// Objects converts relocatable objects and static libraries.
	Objects bool
}

// A File is an ELF file or a static library of a package.
type File struct {
	Name          string // its path in the package, without a leading /
	Result        *convert.Result
	Before, After int64 // bytes
}

// A Result is the result of the conversion of a package.
type Result struct {
	Files  []File
	Others int // regular files that are neither ELF files nor static libraries
	// Read and Written are the size of the package in bytes, before and after. Nothing is written with DryRun.
	Read, Written int64
	Same          bool // nothing changed
}

// A packer is the work on a package.
type packer struct {
	ctx     context.Context
	src     *io.SectionReader
	opt     Options
	budget  *elffile.Budget
	res     Result
	scratch []*os.File
	// Of the files that change: their new contents, where the next goes, and a file for the current one.
	contents *os.File
	end      int64
	current  *os.File
}

// Convert converts the package of the given size in r, and writes the result to w, or a part of it on an error. With
// convert.ErrCoverage it also returns a Result.
func Convert(ctx context.Context, r io.ReaderAt, size int64, w io.Writer, opt Options) (*Result, error) {
	src := io.NewSectionReader(filecopy.Sized(r, size), 0, size)
	p := &packer{ctx: ctx, src: src, opt: opt, budget: elffile.NewBudget(size)}
	defer p.close()
	if p.opt.Limits == nil {
		p.opt.Limits = report.NewLimits()
	}
	p.opt.SkipUnsupported = true
	out, err := p.convert()
	if err = cmp.Or(err, ctx.Err()); err != nil {
		if errors.Is(err, convert.ErrCoverage) {
			return &p.res, err
		}
		return nil, err
	}
	p.res.Read = size
	if opt.DryRun {
		return &p.res, nil
	}
	p.res.Same = !out.changed()
	now, _ := out.reader(ctx)
	if p.res.Written, err = io.Copy(w, now); err != nil {
		return nil, err
	}
	return &p.res, nil
}

// convert returns what changes in the package.
func (p *packer) convert() (*changes, error) {
	kind, err := pack.KindOf(p.src, p.src.Size())
	if err != nil {
		return nil, err
	}
	for _, f := range []**os.File{&p.contents, &p.current} {
		if *f, err = p.temporary(); err != nil {
			return nil, err
		}
	}
	switch kind {
	case pack.Deb:
		return p.deb()
	case pack.RPM:
		return p.rpm()
	}
	return nil, ErrKind
}

// close closes all temporary files.
func (p *packer) close() {
	for _, f := range p.scratch {
		f.Close()
	}
}

// temporary makes a file without a name.
func (p *packer) temporary() (*os.File, error) {
	f, err := outfile.Scratch()
	if err == nil {
		p.scratch = append(p.scratch, f)
	}
	return f, err
}

// A contextReader ends with a context.
type contextReader struct {
	ctx context.Context
	io.Reader
}

func (r *contextReader) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(b)
}

// A part of the package, unpacked.
type unpacked struct {
	*io.SectionReader
	form *compressed.Form
}

// unpack unpacks a range of the package.
func (p *packer) unpack(off, size int64) (*unpacked, error) {
	z, err := compressed.Open(p.ctx, p.budget, io.NewSectionReader(p.src, off, size))
	if err != nil {
		return nil, err
	}
	defer z.Close()
	z.Form.Size = p.src.Size()
	f, err := p.temporary()
	if err != nil {
		return nil, err
	}
	n, err := io.Copy(compressed.Output{File: f}, z)
	if err != nil {
		return nil, fmt.Errorf("at offset %#x of the unpacked data: %w", n, err)
	}
	return &unpacked{io.NewSectionReader(f, 0, n), z.Form}, nil
}

// packed compresses new contents of a part as it was compressed.
func (p *packer) packed(u *unpacked, now io.Reader) (*io.SectionReader, error) {
	f, err := p.temporary()
	if err != nil {
		return nil, err
	}
	if err := u.form.Store(p.ctx, f, cmp.Or(p.opt.Workers, runtime.GOMAXPROCS(0)), now); err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return io.NewSectionReader(f, 0, info.Size()), nil
}

// changes are the ranges of an input that others replace, in order.
type changes struct {
	of    *io.SectionReader
	at    int64
	parts []*io.SectionReader // up to offset at
}

// replace replaces a range, after those before.
func (c *changes) replace(off, size int64, by ...*io.SectionReader) {
	c.parts = append(append(c.parts, io.NewSectionReader(c.of, c.at, off-c.at)), by...)
	c.at = off + size
}

func (c *changes) changed() bool { return len(c.parts) > 0 }

// reader reads the result until the context ends. It also returns the size of the result.
func (c *changes) reader(ctx context.Context) (io.Reader, int64) {
	var readers []io.Reader
	var size int64
	for _, part := range append(c.parts, io.NewSectionReader(c.of, c.at, c.of.Size()-c.at)) {
		readers = append(readers, part)
		size += part.Size()
	}
	return &contextReader{ctx, io.MultiReader(readers...)}, size
}

// literal returns a part that has these bytes.
func literal(b []byte) *io.SectionReader {
	return io.NewSectionReader(bytes.NewReader(b), 0, int64(len(b)))
}

// all returns a reader of all bytes of a part.
func all(r *io.SectionReader) io.Reader { return io.NewSectionReader(r, 0, r.Size()) }

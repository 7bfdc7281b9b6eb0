// Package repack converts the ELF files in a package of Debian (.deb) or of RPM, and leaves all else of it as it is, byte for
// byte: the order, names, owners, modes, dates and attributes of files, links, scripts, and how its parts are compressed. What
// depends on the files is made new: their sizes, and the sums by which the package manager verifies them. The same package gives
// the same bytes each time, and one of which nothing changes is copied.
//
// A package that is signed is refused: its signature would be void. Files of packages are never written to the disk under their
// names; what is kept for a while is in files without names, or in memory, one ELF file at a time.
//
// Not in here: reading packages for other purposes, their dependencies and scripts, and where the result goes.
package repack

import (
	"bytes"
	"context"
	"errors"
	"io"
	"runtime"

	"cfi2sframe/convert"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/filecopy"
	"cfi2sframe/internal/rpm"
	"cfi2sframe/report"
)

// ErrKind is returned for what is no package of a kind that is known.
var ErrKind = errors.New("no package; one of Debian (.deb) or of RPM was expected")

// ErrSigned is returned for packages that are signed.
var ErrSigned = errors.New("it is signed, and its signature would be void; convert it before it is signed")

// Options say how to convert.
type Options struct {
	convert.Options
	// Objects says that relocatable objects and static libraries are converted, too.
	Objects bool
}

// workers returns how many threads compress at a time.
func (o *Options) workers() int {
	if o.Workers > 0 {
		return o.Workers
	}
	return runtime.GOMAXPROCS(0)
}

// A File is an ELF file or a static library of a package.
type File struct {
	Name   string // its path in the package, without / at the begin
	Result *convert.Result
	// Failed is why it could not be converted, and stays as it is, or nil.
	Failed        error
	Before, After int64 // bytes
}

// A Result says what became of a package.
type Result struct {
	Files  []File
	Others int // regular files that are neither ELF files nor static libraries
	// Read and Written are how many bytes the package has, before and after. Nothing is written with DryRun.
	Read, Written int64
	Same          bool // it is what it was
}

// Convert converts the package of the given size in r, and writes the result to w. On an error w may have a part of it. With
// convert.ErrCoverage there is a Result, too.
func Convert(ctx context.Context, r io.ReaderAt, size int64, w io.Writer, opt Options) (*Result, error) {
	r = filecopy.Sized(r, size)
	head := make([]byte, max(len(arMagic), len(rpm.Magic)))
	n, err := r.ReadAt(head, 0)
	if err != nil && err != io.EOF {
		return nil, err
	}
	head = head[:n]
	p := &packer{ctx: ctx, src: r, size: size, opt: opt, budget: elffile.NewBudget(size)}
	if p.opt.Room == nil {
		p.opt.Room = report.NewRoom()
	}
	p.opt.SkipUnsupported = true
	var parts []part
	switch {
	case bytes.HasPrefix(head, []byte(arMagic)):
		parts, err = p.deb()
	case bytes.HasPrefix(head, []byte(rpm.Magic)):
		parts, err = p.rpm()
	default:
		err = ErrKind
	}
	defer p.close()
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return p.failed(err)
	}
	if parts == nil {
		p.res.Same = true
		parts = []part{{from: r, size: size}}
	}
	p.res.Read = size
	for _, part := range parts {
		p.res.Written += part.size
		if err := part.copyTo(ctx, w); err != nil {
			return nil, err
		}
	}
	return &p.res, nil
}

// failed returns what Convert does with an error.
func (p *packer) failed(err error) (*Result, error) {
	if errors.Is(err, convert.ErrCoverage) {
		return &p.res, err
	}
	return nil, err
}

// A part is a piece of the result: bytes, or a range of a file.
type part struct {
	bytes     []byte
	from      io.ReaderAt
	off, size int64
}

// literal returns the part that has these bytes.
func literal(b []byte) part { return part{bytes: b, size: int64(len(b))} }

// A contextReader ends with a context.
type contextReader struct {
	ctx context.Context
	io.Reader
}

func (r contextReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}

func (p part) copyTo(ctx context.Context, w io.Writer) error {
	var r io.Reader = bytes.NewReader(p.bytes)
	if p.from != nil {
		r = io.NewSectionReader(p.from, p.off, p.size)
	}
	n, err := io.Copy(w, contextReader{ctx, r})
	if err == nil && n != p.size {
		err = io.ErrUnexpectedEOF
	}
	return err
}

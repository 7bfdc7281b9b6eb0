// Package repack converts the ELF files in a package of Debian (.deb) or RPM. All else is unchanged, byte for byte: the order, names,
// owners, modes, dates and attributes of files, links, scripts, and the compression of the parts. The sizes and sums of changed files
// are updated. The same package gives the same bytes each time. If nothing changes, the package is copied.
//
// Signed packages are refused: their signatures would be void. Contents are in memory, one ELF file at a time, and in files without
// names.
//
// Not in here: reading packages for other purposes (internal/pack), and where the result goes.
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

// ErrKind is the error of unsupported files.
var ErrKind = errors.New("no package; one of Debian (.deb) or of RPM was expected")

// ErrSigned is the error of signed packages.
var ErrSigned = errors.New("it is signed, and its signature would be void; convert it before it is signed")

// Options say how to convert.
type Options struct {
	convert.Options
	// Objects converts relocatable objects and static libraries.
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
	Name   string // its path in the package, without a leading /
	Result *convert.Result
	// Failed is why it could not be converted, and is unchanged, or nil.
	Failed        error
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

// Convert converts the package of the given size in r, and writes the result to w, or a part of it on an error. With
// convert.ErrCoverage it also returns a Result.
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
		if errors.Is(err, convert.ErrCoverage) {
			return &p.res, err
		}
		return nil, err
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

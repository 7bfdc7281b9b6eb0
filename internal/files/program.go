package files

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"cfi2sframe/cfi"
	"cfi2sframe/convert"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/debugfile"
	"cfi2sframe/sframe"
)

// Sources locates the CFI and the .sframe of a program.
type Sources struct {
	CFI       cfi.Source
	Infer     bool // also infer rows from instructions
	Progress  convert.Progress
	DebugFile string // as in debugfile.Open
	SFrame    string // file that contains the detached .sframe, directory to search by build-id, or ""
	Reserved  string // symbols START:END around .sframe, or ""
}

// A Program is an open ELF file. Its methods open the debug file and the detached .sframe.
type Program struct {
	File    *elffile.File
	Debug   *convert.Companion // the debug file, if any; set by CFI
	Sources Sources
	path    string
	in      *Input
}

// OpenProgram opens an ELF file.
func OpenProgram(ctx context.Context, path string, from Sources) (*Program, error) {
	in, err := Open(ctx, path)
	if err != nil {
		return nil, err
	}
	return in.Program(from)
}

// Program parses the input as an ELF file. If that fails, the input is closed.
func (in *Input) Program(from Sources) (*Program, error) {
	f, err := elffile.New(in.File, in.Info.Size())
	if err != nil {
		in.Close()
		return nil, OpenError(in.name, err)
	}
	return &Program{File: f, Sources: from, path: in.name, in: in}, nil
}

// Close closes the files.
func (p *Program) Close() {
	p.Debug.Close()
	p.in.Close()
}

// CFI loads the CFI of the program and of its debug file.
func (p *Program) CFI(ctx context.Context) (table *cfi.Table, err error) {
	if p.Debug, err = debugfile.Open(p.Sources.DebugFile, p.path, p.File); err != nil {
		return nil, err
	}
	s := &p.Sources
	return convert.LoadCFI(ctx, p.File, convert.Loading{
		Source: s.CFI, Debug: p.Debug.File(), Infer: s.Infer, Progress: s.Progress,
	})
}

// WhyNone returns why the file cannot have an .sframe, or "" if it can.
func (p *Program) WhyNone(ctx context.Context, opt convert.Options) (convert.Reason, error) {
	opt.Source, opt.Infer, opt.Debug = p.Sources.CFI, p.Sources.Infer, debugfile.Opener(p.Sources.DebugFile, p.path)
	opt.Reserved, opt.NoVerify = p.Sources.Reserved, true
	run := &convert.Run{In: p.in.File, Size: p.in.Info.Size(), SkipUnsupported: true}
	res, err := convert.Add(ctx, run, opt)
	if err != nil {
		return "", err
	}
	return res.Stays, nil
}

// Section decodes the detached .sframe or, if there is none, the .sframe of the file itself.
func (p *Program) Section() (*sframe.Section, error) {
	if p.Sources.SFrame == "" {
		return convert.FindSection(p.File, p.Sources.Reserved)
	}
	d, err := debugfile.OpenSFrame(p.Sources.SFrame, p.File)
	if err != nil {
		return nil, err
	}
	if d != nil {
		defer d.Close()
		if err := convert.Belongs(d, p.File); err != nil {
			return nil, err
		}
		s, err := convert.ReadSection(d.File())
		return s, cmp.Or(d.ReadError(), err)
	}
	s, err := convert.FindSection(p.File, p.Sources.Reserved)
	if errors.Is(err, sframe.ErrNone) {
		id, _, idErr := p.File.BuildID()
		err = cmp.Or(idErr, error(&StoreError{p.Sources.SFrame, id}))
	}
	return s, err
}

// Err returns a read error if there was one, otherwise err. Read errors take precedence because unreadable parts may
// look missing.
func (p *Program) Err(err error) error { return cmp.Or(p.File.ReadError(), p.Debug.ReadError(), err) }

// A StoreError is returned if neither the directory nor the file has an .sframe.
type StoreError struct {
	Directory string
	BuildID   []byte
}

func (e *StoreError) Error() string {
	if len(e.BuildID) < debugfile.MinBuildID {
		return fmt.Sprintf("no .sframe, and no build-id to find one in the directory %s", e.Directory)
	}
	return fmt.Sprintf("no .sframe, and none for build-id %[2]x in the directory %[1]s", e.Directory, e.BuildID)
}

// Is makes errors.Is match sframe.ErrNone.
func (e *StoreError) Is(target error) bool { return target == sframe.ErrNone }

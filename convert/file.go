package convert

import (
	"context"
	"fmt"
	"io/fs"

	"cfi2sframe/internal/inode"
	"cfi2sframe/internal/outfile"
)

// File converts the file in, an ELF file or an archive of them, or Stdin, and writes the result to
// out, which may be the same, or "-" for standard output. On an error, or when ctx ends, out is as it was.
func File(ctx context.Context, in, out string, opt FileOptions) (*Result, error) {
	p, err := prepareFile(ctx, in, out, opt)
	if p == nil {
		return nil, err
	}
	defer p.close()
	if err != nil {
		return p.res, err
	}
	if err := p.finish(); err != nil {
		return nil, err
	}
	if err := p.commit(); err != nil {
		return nil, err
	}
	j := &Job{pending: p, noSync: opt.NoSync}
	if syncFolders([]*Job{j}); j.Err != nil {
		return nil, j.Err
	}
	return p.res, nil
}

// A pending is a result that is not in its place yet. finish and then commit put it there.
type pending struct {
	conversion
	input  *input
	output *outfile.File // or nil
	debug  *debugUpdate  // or nil
}

// prepareFile is File up to the point where the result is known to be right, and complete but for
// its place. With ErrCoverage there is a pending, too, which has nothing but a Result.
func prepareFile(ctx context.Context, in, out string, opt FileOptions) (*pending, error) {
	i, err := openInput(ctx, in, use{replace: out == in, whole: opt.SkipUnsupported})
	if err != nil {
		return nil, err
	}
	return prepare(ctx, i, out, opt)
}

// prepare is prepareFile for an input that is open. It becomes the pending's.
func prepare(ctx context.Context, in *input, out string, opt FileOptions) (*pending, error) {
	if opt.DryRun {
		out = ""
	}
	opt.complete(in.info.Size())
	p := &pending{input: in}
	p.conversion = conversion{
		ctx: ctx, opt: opt, in: in.name, out: out, src: in.src, size: in.info.Size(), res: &Result{},
		create: p.create, discard: p.discard, scratch: scratch, inPlace: in.place != nil,
	}
	opt.Room.Grow(p.size)
	err := p.convert()
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = in.unchanged()
	}
	if err == nil {
		if err = p.enough(); err != nil {
			return p, err
		}
	}
	if err == nil {
		err = p.updateDebug()
	}
	if err == nil {
		err = p.countLinks()
	}
	if err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// create opens the output.
func (p *pending) create() (target, error) {
	var err error
	if p.input.place != nil {
		p.output, err = outfile.Replace(p.input.place)
	} else {
		p.output, err = outfile.Open(p.out, p.permissions())
	}
	if err != nil {
		return nil, err
	}
	return p.output.File, nil
}

// discard gives up the output, if there is one.
func (p *pending) discard() {
	if p.output != nil {
		p.output.Close()
		p.output = nil
	}
}

// scratch makes a file without a name.
func scratch() (target, error) {
	f, err := outfile.Scratch()
	if err != nil {
		return nil, err
	}
	return f, nil
}

// permissions are those of a new output.
func (p *pending) permissions() fs.FileMode {
	switch {
	case !p.input.spooled:
		return p.input.info.Mode().Perm()
	case p.linked: // as a linker makes it
		return 0o777
	}
	return 0o666
}

// countLinks counts the names of the input that keep the old contents.
func (p *pending) countLinks() error {
	if p.output == nil {
		return nil
	}
	replaced, err := p.output.ReplacesInput(p.input.src)
	if replaced {
		p.res.Links = inode.Links(p.input.info) - 1
	}
	return outfile.Plain(err)
}

// written is the size of what was written, in bytes.
func (p *pending) written() int64 {
	if p.output == nil {
		return 0
	}
	info, err := p.output.Stat()
	if err != nil {
		return 0
	}
	return info.Size()
}

// start makes the system begin with what finish waits for.
func (p *pending) start() {
	if p.output != nil && !p.opt.NoSync {
		p.output.StartSync()
	}
}

// finish makes the result ready for its place: it has its attributes, and if it replaces a
// file, it is on the disk.
func (p *pending) finish() error {
	if err := p.debug.finish(); err != nil || p.output == nil {
		return err
	}
	if p.opt.KeepDates && !p.input.spooled {
		p.output.KeepDates(p.input.info)
	}
	return p.output.Finish(!p.opt.NoSync)
}

// commit puts the result in its place. If it replaces the input, that has to be there, and to be
// what it was. A debug file goes first: with .sframe in it too early it serves the old program, unless that goes by the
// checksum; without it, it does not serve the new one.
func (p *pending) commit() error {
	if p.output == nil {
		return p.debug.commit()
	}
	if err := p.input.unchanged(); err != nil {
		return err
	}
	if err := p.debug.commit(); err != nil {
		return err
	}
	err := p.output.Commit()
	if err != nil && p.res.DebugFile != "" {
		err = fmt.Errorf("%w; its debug file %s is changed already: the same command again makes them agree", err, p.res.DebugFile)
	}
	return err
}

// close gives up what is not in its place.
func (p *pending) close() {
	p.debug.close()
	p.discard()
	p.input.close()
}

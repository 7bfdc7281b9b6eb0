package files

import (
	"context"
	"errors"
	"slices"
	"strings"

	"cfi2sframe/convert"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/debugfile"
)

// A Work is an operation, such as Add, on the file at a path.
type Work func(ctx context.Context, run *convert.Run, path string) (*convert.Result, error)

// Add adds an .sframe. debug is the debug file, as in debugfile.Open.
func Add(opt convert.Options, debug string) Work {
	return func(ctx context.Context, run *convert.Run, path string) (*convert.Result, error) {
		opt := opt
		opt.Debug = debugfile.Opener(debug, path)
		return convert.Add(ctx, run, opt)
	}
}

// Remove removes .sframe. symbols is as in convert.Remove.
func Remove(symbols string) Work {
	return func(ctx context.Context, run *convert.Run, _ string) (*convert.Result, error) {
		return convert.Remove(ctx, run, symbols)
	}
}

// Detach writes .sframe to a separate file, named by build-id if byBuildID is set.
func Detach(byBuildID bool, opt convert.Options, debug string) Work {
	atLeast := 0
	if byBuildID {
		atLeast = debugfile.MinBuildID
	}
	return func(ctx context.Context, run *convert.Run, path string) (*convert.Result, error) {
		opt := opt
		opt.Debug = debugfile.Opener(debug, path)
		return convert.Detach(ctx, run, atLeast, opt)
	}
}

// Attach adds the detached .sframe from a file, or by build-id from a directory.
func Attach(sframe string, opt convert.Options, debug string) Work {
	return func(ctx context.Context, run *convert.Run, path string) (*convert.Result, error) {
		opt := opt
		opt.Debug = debugfile.Opener(debug, path)
		section := func(f *elffile.File) (*convert.Companion, error) { return debugfile.OpenSFrame(sframe, f) }
		return convert.Attach(ctx, run, section, opt)
	}
}

// moduleNames are the suffixes of compressed kernel modules.
var moduleNames = []string{".ko.gz", ".ko.xz", ".ko.zst"}

// OpenError returns a more specific error for a file that is not ELF, depending on its name.
func OpenError(path string, err error) error {
	named := func(end string) bool { return strings.HasSuffix(path, end) }
	if errors.Is(err, elffile.ErrNotELF) && slices.ContainsFunc(moduleNames, named) {
		return convert.ErrCompressed
	}
	return err
}

// work runs a job with the given number of threads, or the default if 0.
func (j *Job) work(ctx context.Context, threads int) {
	run := j.opt.Run
	run.In, run.Size, run.Workers = j.input.File, j.input.Info.Size(), threads
	if !j.opt.DryRun {
		run.Create = j.create
	}
	work := j.opt.Work
	if work == nil {
		work = Add(convert.Options{}, "")
	}
	if j.failed = ctx.Err(); j.failed != nil {
		return
	}
	res, err := work(ctx, &run, j.In)
	if err == nil && res.Stays == convert.NotELF {
		why := OpenError(j.In, res.Kept[0].Why)
		res.Stays = convert.ReasonOf(why)
		res.Kept[0] = convert.Kept{Reason: res.Stays, Why: why}
	}
	j.made, j.failed = res, OpenError(j.In, err)
}

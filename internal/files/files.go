// Package files converts named files. A result replaces its file completely, including attributes, or not at all.
//
// Each converts many files. A file is in place before it is yielded, whatever happens to the others. Results that have
// not replaced a file yet are unnamed files, which vanish if the process ends.
package files

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"cfi2sframe/convert"
	"cfi2sframe/elffile"
	"cfi2sframe/elfwrite"
	"cfi2sframe/internal/debugfile"
	"cfi2sframe/internal/filecopy"
	"cfi2sframe/internal/inode"
	"cfi2sframe/internal/outfile"
)

// Options configures a conversion.
type Options struct {
	Work Work        // nil means Add with zero Options
	Run  convert.Run // without a file
	// DryRun translates and checks, but writes nothing.
	DryRun bool
	// Detach is set if the result is a detached file, not a new version of the input.
	Detach    bool
	NoSync    bool // skip fsync; a power failure may lose the file
	KeepDates bool // preserve access and modification times
	ByBuildID bool // the output is a directory; the build-id names the detached file
	// Accept, if not nil, returns why the result must not be written, or "".
	Accept func() string
}

// ErrRefused is returned, with a Result, if Options.Accept rejects the result.
var ErrRefused = errors.New("nothing was written")

// A Result describes the conversion of a file.
type Result struct {
	*convert.Result
	// Output is the path of the result, or "" if nothing was written.
	Output string
	// Links is the number of other hard links, which keep the old contents.
	Links int
}

// Convert converts the input file (in), or standard input, and writes the result to out, which may be the same file or
// "-" for standard output. On errors, and if ctx is canceled, out is unchanged. The error ErrRefused is accompanied by
// a Result.
func Convert(ctx context.Context, in, out string, opt Options) (*Result, error) {
	set := &Settings{InPlace: in == out, Output: out, Alone: true, Options: func(int) Options { return opt }}
	var res *Result
	var err error
	for j := range Each(ctx, []string{in}, set) {
		res, err = cmp.Or(res, j.Result), cmp.Or(err, j.Err)
	}
	if err != nil && !errors.Is(err, ErrRefused) {
		return nil, err
	}
	return res, err
}

// A Job is the conversion of a file.
type Job struct {
	In string
	// Result is nil after an error. For another name of a file that was already converted, Result is set only if the
	// file is unchanged.
	Result *Result
	// Err says why the result was not written, or may be lost. If Err is ErrRefused, Result is set.
	Err error

	opt    Options
	out    string
	input  *Input        // nil before it is open
	output *outfile.File // or nil

	inPlace bool            // the result replaces the input
	made    *convert.Result // result of the work
	failed  error           // why the work failed, or nil

	detached map[string]string // maps the output paths of this run's detached files to their inputs
}

// open opens the input.
func (j *Job) open(ctx context.Context) (err error) {
	if j.inPlace {
		j.input, err = OpenInPlace(j.In)
	} else {
		j.input, err = open(ctx, j.In, j.opt.Run.SkipUnsupported)
	}
	return err
}

// convert sets the result after the work has ended.
func (j *Job) convert(ctx context.Context) error {
	err := j.failed
	if j.output != nil {
		err = j.full(err)
	}
	if err != nil {
		return err
	}
	j.Result = &Result{Result: j.made}
	if !j.opt.DryRun && (j.made.Stays == "" || j.input.place == nil && !j.opt.Detach) {
		j.Result.Output = j.out
	}
	if j.opt.Accept != nil {
		if why := j.opt.Accept(); why != "" {
			return fmt.Errorf("%w: %s", ErrRefused, why)
		}
	}
	if err := j.complete(ctx); err != nil {
		j.Result = nil
		return err
	}
	return nil
}

// complete finishes a conversion: it copies an unchanged input.
func (j *Job) complete(ctx context.Context) error {
	if err := j.keepDetached(); err != nil {
		return err
	}
	if j.Result.Stays != "" {
		j.discard()
		if !j.opt.DryRun && !j.opt.Detach && j.input.place == nil {
			if err := j.copyInput(ctx); err != nil {
				return err
			}
		}
	}
	if err := j.input.Unchanged(); err != nil {
		return err
	}
	if j.output == nil {
		return nil
	}
	replaces, err := j.output.ReplacesInput(j.input.File)
	if replaces && j.opt.Detach {
		return errors.New("the output is the input; use another file")
	}
	if replaces {
		j.Result.Links = inode.Links(j.input.Info) - 1
	}
	return outfile.Plain(err)
}

// errCurrent says why a detached file is unchanged.
var errCurrent = errors.New("its detached .sframe is up to date")

// keepDetached handles an existing detached file: an equal file is unchanged, and a file named by build-id must not
// belong to a different program.
func (j *Job) keepDetached() error {
	if !j.opt.Detach || j.output == nil {
		return nil
	}
	same, err := j.output.Same()
	if err == nil && !same && j.opt.ByBuildID {
		err = j.otherProgram()
	}
	if err == nil && j.detached[j.out] == "" {
		j.detached[j.out] = j.In
	}
	if err != nil || !same {
		return outfile.Plain(err)
	}
	j.Result.Stays = convert.Current
	j.Result.Kept = append(j.Result.Kept, convert.Kept{Reason: convert.Current, Why: errCurrent})
	return nil
}

// otherProgram returns an error if the output would replace the detached file of a different program with the same
// build-id.
func (j *Job) otherProgram() error {
	f, err := elffile.New(j.input.File, j.input.Info.Size())
	if err != nil {
		return err
	}
	r, info, err := outfile.OpenRegular(j.out)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer r.Close()
	d, err := elffile.New(r, info.Size())
	if err == nil && !elfwrite.DebugOnly(d) {
		return fmt.Errorf("%s contains code and is not a detached .sframe; use another directory", j.out)
	}
	if err == nil {
		err = elfwrite.Belongs(d, f)
	}
	if !errors.Is(err, elfwrite.ErrOther) { // a damaged file is replaced
		return cmp.Or(d.ReadError(), f.ReadError())
	}
	if first := j.detached[j.out]; first != "" {
		return fmt.Errorf("it has the build-id of %s, which is a different program; use -o FILE for each", first)
	}
	return fmt.Errorf("%s: %w; remove that file, or use -o FILE", j.out, elfwrite.ErrOther)
}

// nameDetached sets the output's name according to the build-id, and creates its directory.
func (j *Job) nameDetached() error {
	f, err := elffile.New(j.input.File, j.input.Info.Size())
	if err != nil {
		return err
	}
	id, _, err := f.BuildID()
	if err != nil {
		return err
	}
	j.out = debugfile.SFramePath(j.out, id)
	return os.MkdirAll(filepath.Dir(j.out), 0o777)
}

// create opens the output.
func (j *Job) create() (*os.File, error) {
	perm := j.input.Info.Mode().Perm()
	if j.opt.Detach {
		perm = 0o666
	}
	if j.opt.ByBuildID {
		perm = 0o444 // libsframe-backtrace maps files without a write permission
		if err := j.nameDetached(); err != nil {
			return nil, err
		}
	}
	if j.input.spooled && !j.opt.Detach {
		perm = 0o666
		if f, err := elffile.New(j.input.File, j.input.Info.Size()); err == nil && !f.IsObject() {
			perm = 0o777 // like linkers
		}
	}
	var err error
	if j.output, err = j.input.Output(j.out, perm); err != nil {
		return nil, err
	}
	return j.output.File, nil
}

// copyInput copies the input to the output.
func (j *Job) copyInput(ctx context.Context) error {
	dst, err := j.create()
	if err != nil {
		return err
	}
	return j.full(outfile.Plain(filecopy.Range(ctx, dst, 0, j.input.File, 0, j.input.Info.Size())))
}

// full adds the path of the output to errors about a full disk. Streams are buffered in a temporary file.
func (j *Job) full(err error) error {
	if j.output.Stream() {
		return outfile.Full(os.TempDir(), err)
	}
	return outfile.Full(j.out, err)
}

// discard closes the output, if any.
func (j *Job) discard() {
	if j.output != nil {
		j.output.Close()
		j.output = nil
	}
}

// finish makes the result ready to replace a file: it sets attributes, and syncs.
func (j *Job) finish() error {
	if j.output == nil {
		return nil
	}
	if j.opt.KeepDates && !j.input.spooled {
		j.output.KeepDates(j.input.Info)
	}
	return j.output.Finish(!j.opt.NoSync)
}

// commit replaces the old file, which may have other names, with the result. An input to be replaced must not have
// changed. There is an error for each other name, unless err is set.
func (j *Job) commit(others []string) (errs []error, err error) {
	if j.output == nil {
		return nil, nil
	}
	if err := j.input.Unchanged(); err != nil {
		return nil, err
	}
	errs, err = j.output.CommitNames(others)
	if err != nil && j.opt.Detach {
		if same, _ := j.output.Same(); same { // another run has written the same result
			return nil, nil
		}
	}
	return errs, err
}

// close discards an uncommitted result.
func (j *Job) close() {
	j.discard()
	if j.input != nil {
		j.input.Close()
	}
}

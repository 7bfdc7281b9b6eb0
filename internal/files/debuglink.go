package files

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"slices"

	"cfi2sframe/convert"
	"cfi2sframe/elffile"
	"cfi2sframe/elfwrite"
	"cfi2sframe/internal/debugfile"
	"cfi2sframe/internal/filecopy"
	"cfi2sframe/internal/outfile"
)

// A debugUpdate is a new debug file, with the headers of a result, that has not replaced the old one yet.
type debugUpdate struct {
	path   string
	input  *Input
	output *outfile.File
	noSync bool
}

// updateDebug copies the headers of the result to its debug file, and the new checksum of the debug file to the result.
func (j *Job) updateDebug(ctx context.Context) (err error) {
	if j.opt.DebugLinkUpdate == "" || j.opt.DryRun || j.Result.Archive {
		return nil
	}
	prog, err := j.read()
	switch stays := j.Result.Stays; {
	case outfile.OfMachine(err):
		return err
	case stays != "" && stays != convert.Current && (err != nil || prog.IsObject()):
		return nil
	case err != nil:
		return err
	case prog.IsObject() && j.opt.DebugLinkUpdate == debugfile.Auto && prog.Section(".gnu_debuglink") == nil:
		return nil
	case prog.IsObject():
		return errors.New("its debug file cannot be updated, because it is a relocatable object; " +
			"convert it before its debug information is split off")
	}
	var d *convert.Companion
	if j.opt.DebugLinkUpdate == debugfile.Auto {
		d, j.Result.PassedOver, err = debugfile.Find(j.In, prog)
	} else {
		d, err = debugfile.Open(j.opt.DebugLinkUpdate, j.In, prog)
	}
	if d == nil || err != nil {
		return err
	}
	defer d.Close()
	u := &debugUpdate{path: d.Path, noSync: j.opt.NoSync}
	sum, err := u.write(ctx, j, prog)
	if err == nil {
		err = j.setChecksum(ctx, prog, sum)
	}
	if err != nil || u.output == nil {
		u.close()
		return u.wrap(err)
	}
	j.debug, j.Result.DebugFile = u, u.path
	return nil
}

// write writes the new debug file unless it is up to date, and returns the checksum for .gnu_debuglink.
func (u *debugUpdate) write(ctx context.Context, j *Job, prog *elffile.File) (sum uint32, err error) {
	if u.input, err = OpenInPlace(u.path); err != nil {
		return 0, err
	}
	if own, err := j.input.Stat(); err == nil && os.SameFile(own, u.input.Info) {
		return 0, errors.New("it is the program; name the file that contains its debug information")
	}
	f, err := elffile.New(u.input.File, u.input.Info.Size())
	if err != nil {
		return 0, err
	}
	if slices.ContainsFunc(f.Sections, func(s elffile.Section) bool { return s.IsCode() && s.Size > 0 }) {
		return 0, errors.New("it contains code, like a copy of the program; " +
			"name the file that objcopy --only-keep-debug or eu-strip has split off")
	}
	layout, err := elfwrite.PlanDebug(f, prog)
	if err != nil {
		return 0, err
	}
	if u.output, err = u.input.Output("", 0); err != nil {
		return 0, err
	}
	if err := layout.Write(ctx, u.output.File, u.input.File, nil, nil); err != nil {
		return 0, outfile.Plain(err)
	}
	sum, same, err := u.compare()
	if err != nil {
		return 0, outfile.Plain(err)
	}
	if err := u.input.Unchanged(); err != nil {
		return 0, err
	}
	if j.opt.KeepDates {
		u.output.KeepDates(u.input.Info)
	}
	if same {
		u.output.Close()
		u.output = nil
	}
	return sum, nil
}

// read parses the result: the output, or the input if that is unchanged.
func (j *Job) read() (*elffile.File, error) {
	src := j.input.File
	if j.output != nil {
		src = j.output.File
	}
	info, err := src.Stat()
	if err != nil {
		return nil, outfile.Plain(err)
	}
	return elffile.New(src, info.Size())
}

// setChecksum sets the checksum of the debug file in the result, if the result has .gnu_debuglink.
func (j *Job) setChecksum(ctx context.Context, prog *elffile.File, sum uint32) error {
	link, err := debugfile.LinkOf(prog)
	if err != nil || link.Name == "" || link.Sum == sum {
		return err
	}
	if j.output == nil { // nothing else changes
		if err := j.copyInput(ctx); err != nil {
			return err
		}
		j.Result.Stays = ""
	}
	b := make([]byte, 4)
	prog.Order.PutUint32(b, sum)
	_, err = j.output.WriteAt(b, int64(link.SumOffset))
	return outfile.Plain(err)
}

// compare returns the checksum of the new debug file, and reports whether the new and old debug files are equal.
func (u *debugUpdate) compare() (sum uint32, same bool, err error) {
	info, err := u.output.Stat()
	if err != nil {
		return 0, false, err
	}
	now := func() io.Reader { return io.NewSectionReader(filecopy.Sized(u.output, info.Size()), 0, info.Size()) }
	h := crc32.NewIEEE()
	_, err = io.Copy(h, now())
	if size := u.input.Info.Size(); err == nil && size == info.Size() {
		same, err = outfile.Equal(now(), io.NewSectionReader(filecopy.Sized(u.input, size), 0, size))
	}
	return h.Sum32(), same, err
}

// finish makes the debug file ready to replace the old one.
func (u *debugUpdate) finish() error {
	if u == nil {
		return nil
	}
	return u.wrap(u.output.Finish(!u.noSync))
}

// commit replaces the old debug file.
func (u *debugUpdate) commit() error {
	if u == nil {
		return nil
	}
	err := u.output.Commit()
	if err == nil && !u.noSync {
		err = outfile.SyncDirectory(u.input.place.Dir())
	}
	return u.wrap(err)
}

func (u *debugUpdate) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("debug file %s: %w", u.path, err)
}

// close discards a debug file that was not committed.
func (u *debugUpdate) close() {
	if u == nil {
		return
	}
	if u.output != nil {
		u.output.Close()
	}
	if u.input != nil {
		u.input.Close()
	}
}

// Package convert takes one file the whole way: read, translate, lay out, write,
// verify, and only then put the result in its place.
package convert

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"cfi2sframe/cfi"
	"cfi2sframe/elfwrite"
	"cfi2sframe/emit"
	"cfi2sframe/internal/elffile"
	"cfi2sframe/plt"
	"cfi2sframe/report"
	"cfi2sframe/sframe"
	"cfi2sframe/translate"
	"cfi2sframe/verify"
)

// Options say how to convert. The zero value is not useful: Version is needed.
type Options struct {
	Version   sframe.Version
	Source    cfi.Source
	PCRel     bool // start addresses count from their own field (errata 1)
	Outermost bool // rows for code without a caller (errata 2)
	Force     bool // replace an .sframe that is there
	NoVerify  bool // do not check the result
}

// ErrNoCode is returned for files whose CFI describes no code.
var ErrNoCode = errors.New("the CFI describes no code of this file, so there is nothing to write")

// ErrWrong is returned when the finished result did not pass the check against the
// CFI: a defect of this program, not of its input.
var ErrWrong = errors.New("nothing was written, because the result is wrong")

// File converts the file in and writes the result to out, which may be the same.
// On an error, or when ctx ends, out is as it was.
func File(ctx context.Context, in, out string, opt Options) (*report.Coverage, error) {
	// Opening a pipe must not wait for a writer; what it is shows below.
	src, err := os.OpenFile(in, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, plain(err)
	}
	defer src.Close()
	info, err := src.Stat()
	if err != nil {
		return nil, plain(err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%v: a regular file was expected", fileKind(info.Mode()))
	}
	f, err := elffile.New(src, info.Size())
	if err != nil {
		return nil, err
	}
	table, err := cfi.Load(f, opt.Source)
	if err != nil {
		return nil, err
	}
	abi, err := translate.ABIOf(table.Machine, table.Order)
	if err != nil {
		return nil, err
	}
	if len(table.Functions) == 0 {
		if len(table.Errors) > 0 {
			return nil, fmt.Errorf("no CFI that can be used: %w", table.Errors[0])
		}
		return nil, ErrNoCode
	}
	enc := emit.Options{Version: opt.Version, ABI: abi, PCRel: opt.PCRel}
	// An interpreter's last section has to end on a page boundary.
	if is, err := elfwrite.IsInterpreter(f); err != nil {
		return nil, err
	} else if is {
		enc.Align = 8
	}
	b, err := emit.NewBuilder(enc)
	if err != nil {
		return nil, err
	}
	stubs, err := plt.Find(f, table)
	if err != nil {
		return nil, err
	}
	reach, err := reachOf(f, opt)
	if err != nil {
		return nil, err
	}
	res, err := translate.Translate(table, translate.Options{
		Version: opt.Version, Outermost: opt.Outermost, Reach: reach, Stubs: stubs,
	}, b)
	if err != nil {
		return nil, err
	}
	layout, err := elfwrite.Plan(f, b.Size(), elfwrite.Options{Force: opt.Force})
	if err != nil {
		return nil, err
	}
	section, err := b.Encode(layout.Addr)
	if err != nil {
		return nil, err
	}
	c := report.New(f, table, abi, res)
	c.File, c.Output, c.Format = in, out, int(opt.Version)
	c.FDEs, c.FREs, c.Size = b.NumFDEs(), b.NumFREs(), b.Size()
	if err := ctx.Err(); err != nil {
		return nil, err
	}

	// Everything above only read. The new file is complete, checked and has its
	// mode before it gets its name.
	target, err := targetOf(out)
	if err != nil {
		return nil, err
	}
	tmp, err := os.CreateTemp(filepath.Dir(target), ".cfi2sframe-*")
	if err != nil {
		return nil, fmt.Errorf("cannot write to %s: %w", filepath.Dir(target), plain(err))
	}
	defer os.Remove(tmp.Name()) // fails after the rename, as it should
	defer tmp.Close()
	if err := layout.Write(tmp, src, section); err != nil {
		return nil, plain(err)
	}
	if !opt.NoVerify {
		if err := check(tmp, table, res); err != nil {
			return nil, err
		}
		c.Verified = true
	}
	old, err := os.Stat(target)
	if err := likeInput(tmp, src, info, err == nil && os.SameFile(old, info)); err != nil {
		return nil, plain(err)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := os.Rename(tmp.Name(), target); err != nil {
		return nil, plain(err)
	}
	return c, nil
}

// reachOf returns from where to where functions can start so that their start
// addresses have room. The section's address does not depend on its size; its size,
// which is not known yet, is allowed for.
func reachOf(f *elffile.File, opt Options) (translate.Reach, error) {
	l, ok := opt.Version.Layout()
	if !ok || l.StartSize == 8 {
		return translate.Reach{}, nil
	}
	layout, err := elfwrite.Plan(f, 0, elfwrite.Options{Force: opt.Force})
	if err != nil {
		return translate.Reach{}, err
	}
	const distance = 1<<31 - 256<<20
	return translate.Reach{First: layout.Addr - min(layout.Addr, distance), Last: layout.Addr + distance}, nil
}

// plain takes the operation and path off an error of the file system: messages
// name the file already.
func plain(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return plain(p.Err)
	}
	var l *os.LinkError
	if errors.As(err, &l) {
		return l.Err
	}
	var s *os.SyscallError
	if errors.As(err, &s) {
		return s.Err
	}
	return err
}

func fileKind(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "directory"
	case m&fs.ModeDevice != 0:
		return "device"
	case m&fs.ModeNamedPipe != 0:
		return "pipe"
	case m&fs.ModeSocket != 0:
		return "socket"
	}
	return "special file"
}

// targetOf returns the file that out stands for, symbolic links followed.
func targetOf(out string) (string, error) {
	info, err := os.Stat(out)
	if errors.Is(err, fs.ErrNotExist) {
		if l, err := os.Lstat(out); err == nil && l.Mode()&fs.ModeSymlink != 0 {
			return "", fmt.Errorf("output %s is a symbolic link to nothing", out)
		}
		return out, nil
	}
	if err != nil {
		return "", fmt.Errorf("output %s: %w", out, plain(err))
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("output %s is a %s; a regular file was expected", out, fileKind(info.Mode()))
	}
	return filepath.EvalSymlinks(out)
}

// check decodes the section from the bytes of the new file and compares it with
// the CFI, and as much code has to be described as was translated.
func check(tmp *os.File, table *cfi.Table, want *translate.Result) error {
	f, s, err := read(tmp)
	if err != nil {
		// Section headers that contradict each other do that.
		return fmt.Errorf("nothing was written, because there is no sound layout for this file: %w", err)
	}
	res, err := verify.Check(table, s, f)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrWrong, err)
	}
	if res.Total > 0 {
		return fmt.Errorf("%w: %d mismatches between SFrame and CFI, the first at %v", ErrWrong, res.Total, res.Mismatches[0])
	}
	if res.Covered != want.Covered || res.Stubs != want.Synthesised {
		return fmt.Errorf("%w: SFrame describes %d bytes of code and %d of PLT stubs, but %d and %d were translated",
			ErrWrong, res.Covered, res.Stubs, want.Covered, want.Synthesised)
	}
	return nil
}

// read decodes the .sframe of a file as a stack tracer finds it: through
// PT_GNU_SFRAME, in loaded memory.
func read(r *os.File) (*elffile.File, *sframe.Section, error) {
	info, err := r.Stat()
	if err != nil {
		return nil, nil, err
	}
	f, err := elffile.New(r, info.Size())
	if err != nil {
		return nil, nil, err
	}
	h := f.Prog(elf.ProgType(sframe.PTGNUSFrame))
	if h == nil {
		return nil, nil, errors.New("there is no PT_GNU_SFRAME")
	}
	off, ok := f.FileOffset(h.Vaddr, h.Memsz)
	if !ok || off != h.Off || h.Filesz != h.Memsz {
		return nil, nil, errors.New("PT_GNU_SFRAME does not lie in a loaded segment")
	}
	if len(f.Sections) > 0 && !slices.ContainsFunc(f.Sections, func(s elffile.Section) bool {
		return s.Name == ".sframe" && s.Type == sframe.SHTGNUSFrame && s.Addr == h.Vaddr && s.Off == h.Off && s.Size == h.Filesz
	}) {
		return nil, nil, errors.New("section .sframe is not what PT_GNU_SFRAME says")
	}
	b, err := f.ReadAt(".sframe", off, h.Filesz)
	if err != nil {
		return nil, nil, err
	}
	d, err := sframe.Decode(b, h.Vaddr)
	return f, d, err
}

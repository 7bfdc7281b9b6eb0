package convert

import (
	"cmp"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"slices"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/elfwrite"
	"cfi2sframe/internal/debugfile"
	"cfi2sframe/internal/filecopy"
	"cfi2sframe/internal/outfile"
	"cfi2sframe/internal/plt"
	"cfi2sframe/sframe"
	"cfi2sframe/verify"
)

// A Comparison is that of an .sframe with the CFI of its file. Sizes are in bytes.
type Comparison struct {
	Skipped    Reason // why nothing was compared (with Options.SkipUnsupported or Require), or ""
	ABI        sframe.ABI
	Version    sframe.Version
	FDEs       int
	FREs       uint64
	Sorted     bool
	Described  uint64            // code that CFI describes
	Covered    uint64            // of Described: with rows that agree, and Outermost
	Outermost  uint64            // of Covered: code without a caller that has no row
	Stubs      uint64            // PLT stubs without CFI that have rows
	Padding    uint64            // padding after functions that has their last rows
	Refused    string            // why a reader refuses the section, or ""
	Mismatches []verify.Mismatch // by address
}

// maxMismatches bounds the mismatches that are kept.
const maxMismatches = 1 << 16

// Check compares the .sframe of the ELF file of the given size in r with the CFI of the file. Mismatches are no error,
// unless they are too many. Then the Comparison has the first of them. Check uses the options Source, DebugFile, Path,
// SFrame, SkipUnsupported, Require, Linux, Formats and NoPCMask.
func Check(r io.ReaderAt, size int64, opt Options) (*Comparison, error) {
	opt.SkipUnsupported = opt.SkipUnsupported || opt.Require
	f, err := elffile.New(r, size)
	if err == nil && opt.Require && elf.Type(f.Type) != elf.ET_EXEC && elf.Type(f.Type) != elf.ET_DYN {
		return &Comparison{Skipped: NotLinked}, nil
	}
	var c *Comparison
	var why Reason
	if err != nil {
		err = moduleError(opt.Path, err)
		if kept, _ := opt.kept(nil, err); kept != nil {
			why = kept.Reason
		}
	} else {
		c, err = compared(f, nil, opt)
		if opt.SkipUnsupported && errors.Is(err, sframe.ErrNone) {
			why, err = withoutSFrame(r, size, opt, err)
		} else if opt.SkipUnsupported && errors.Is(err, cfi.ErrNone) && elfwrite.DebugOnly(f) {
			why = DebugOnly // a detached .sframe
		}
	}
	if why != "" {
		return &Comparison{Skipped: why}, nil
	}
	return c, err
}

// withoutSFrame returns why a file cannot have an .sframe, or the error: missing, or that of a conversion.
func withoutSFrame(r io.ReaderAt, size int64, opt Options, missing error) (Reason, error) {
	opt.DryRun, opt.NoVerify, opt.Report = true, true, nil
	res, err := Into(context.Background(), r, size, nil, opt)
	if err != nil {
		return "", err
	}
	return res.Stays, missing
}

// compared compares s, or the section of f if that is nil, with the CFI.
func compared(f *elffile.File, s *sframe.Section, opt Options) (c *Comparison, err error) {
	defer func() {
		if failed := f.ReadError(); failed != nil {
			c, err = nil, failed
		}
	}()
	if s == nil {
		if opt.Linux == LinuxKernel && !f.IsObject() && opt.Reserved == "" {
			opt.Reserved = KernelSymbols
		}
		if s, err = opt.Section(f); err != nil {
			return nil, err
		}
	}
	refused, err := opt.Linux.Refusal(f, s)
	if refused == "" && err == nil {
		refused, err = opt.Refusal(s)
	}
	if err != nil {
		return nil, err
	}
	debug, err := debugfile.Open(opt.DebugFile, opt.Path, f)
	if err != nil {
		return nil, err
	}
	defer debug.Close()
	table, err := LoadCFI(f, opt.Source, debug.File())
	if err != nil {
		return nil, err
	}
	sorted := s.Flags&sframe.FDESorted != 0
	if !sorted {
		s = s.Sorted()
	}
	res, err := verify.Check(table, s, f, verify.Options{Keep: maxMismatches})
	if err != nil {
		return nil, err
	}
	stubs, err := plt.Find(f, table)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(res.Mismatches, func(a, b verify.Mismatch) int { return cmp.Compare(a.Begin, b.Begin) })
	c = &Comparison{
		ABI: s.ABI, Version: s.Version, FDEs: s.Len(), FREs: uint64(s.NumFREs), Sorted: sorted,
		Described: res.Described, Covered: res.Covered + res.Outermost, Outermost: res.Outermost, Stubs: res.Stubs,
		Padding: res.Padding, Refused: refused, Mismatches: res.Mismatches,
	}
	if opt.Report != nil {
		err = opt.Report(&Details{
			Comparison: c, InputSize: f.Size, File: f, Debug: debug.File(), DebugPath: debug.Path(), Table: table,
			Stubs: stubs,
		})
	}
	if err := cmp.Or(debug.ReadError(), err); err != nil {
		return nil, err
	}
	if res.Ended {
		return c, fmt.Errorf("more than %d mismatches; the first %d are listed, the rest of the code is not compared",
			res.Total-1, len(res.Mismatches))
	}
	if res.Total > len(res.Mismatches) {
		return c, fmt.Errorf("%d mismatches; the first %d are listed", res.Total, len(res.Mismatches))
	}
	return c, nil
}

// Dump prints the .sframe of the ELF file of the given size in r as objdump --sframe does. The file may also be a bare
// section, as objcopy -O binary makes it. Of the options, SFrame counts.
func Dump(w io.Writer, r io.ReaderAt, size int64, opt Options) error {
	s, where, err := opt.decode(r, size)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(w, "Contents of the SFrame section .sframe:\n"); err != nil {
		return err
	}
	return s.Dump(w, where)
}

// maxBare is how large a bare section may be, in bytes.
const maxBare = 1 << 30

// decode decodes the .sframe of an ELF file, or a bare section. For an object, where returns the distance of an address
// from the start of its section.
func (o *Options) decode(r io.ReaderAt, size int64) (s *sframe.Section, where func(uint64) uint64, err error) {
	r = filecopy.Sized(r, size)
	magic := make([]byte, 2)
	if n, err := r.ReadAt(magic, 0); err != nil && err != io.EOF {
		return nil, nil, outfile.Plain(err)
	} else if n == len(magic) && sframe.IsSection(magic) && size <= maxBare {
		b, err := io.ReadAll(io.NewSectionReader(r, 0, size))
		if err != nil {
			return nil, nil, outfile.Plain(err)
		}
		s, err = sframe.Decode(b, 0)
		return s, nil, err
	}
	f, err := elffile.New(r, size)
	if err != nil {
		return nil, nil, err
	}
	s, err = o.Section(f)
	if failed := f.ReadError(); failed != nil {
		return nil, nil, failed
	}
	if err == nil && f.IsObject() {
		where = func(addr uint64) uint64 { return addr - f.Sections[f.SectionAt(addr)].Base }
	}
	return s, where, err
}

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
	"cfi2sframe/internal/debugfile"
	"cfi2sframe/internal/filecopy"
	"cfi2sframe/internal/outfile"
	"cfi2sframe/report"
	"cfi2sframe/sframe"
	"cfi2sframe/verify"
)

// A Checked is an .sframe that was compared with the CFI of its file.
type Checked struct {
	Version    sframe.Version
	ABI        sframe.ABI
	FDEs       int
	FREs       uint64
	Unsorted   bool   // the FDEs are in no order, which is legal
	Described  uint64 // bytes of code that CFI describes
	Covered    uint64 // of those, bytes for which SFrame says the same
	Outermost  uint64 // of those, bytes of code without a caller for which SFrame says nothing
	Stubs      uint64 // bytes of PLT stubs without CFI that SFrame describes rightly
	Padding    uint64 // bytes of padding after functions that SFrame describes rightly
	Mismatches []Mismatch
	Skipped    Reason // why there is nothing to compare, if Options.SkipUnsupported or Require is set; or ""
}

// Percent returns how much of the described code is covered, as for a conversion.
func (c *Checked) Percent() float64 {
	return (&report.Coverage{Described: c.Described, Covered: c.Covered, Outermost: c.Outermost}).Percent()
}

// A Mismatch is a range of code for which SFrame and CFI disagree.
type Mismatch struct {
	verify.Mismatch
	Function string // or the section, if no symbol names it
	Offset   uint64 // of the range in it, in bytes
}

// maxMismatches bounds the mismatches that are kept.
const maxMismatches = 1 << 16

// Check compares the .sframe of the ELF file of the given size in r, whoever wrote it, with the file's
// CFI. A section that says something else is no error: that is what Mismatches are for. With an error
// that there are too many of them, there is a Checked, too. Of the options, Source, SkipUnsupported and Require
// count.
func Check(r io.ReaderAt, size int64, opt Options) (*Checked, error) {
	return check(r, size, "", FileOptions{Options: opt})
}

// CheckFile is Check for a file by its name, or Stdin. Of the options, DebugFile counts, too.
func CheckFile(ctx context.Context, path string, opt FileOptions) (*Checked, error) {
	in, err := openInput(ctx, path, use{})
	if err != nil {
		return nil, err
	}
	defer in.close()
	return check(in.src, in.info.Size(), path, opt)
}

// check is CheckFile for a file that is open.
func check(r io.ReaderAt, size int64, path string, opt FileOptions) (*Checked, error) {
	all := opt.SkipUnsupported
	opt.SkipUnsupported = all || opt.Require
	f, err := openELF(elffile.NewBudget(size), r, size)
	if err == nil && opt.Require && elf.Type(f.Type) != elf.ET_EXEC && elf.Type(f.Type) != elf.ET_DYN {
		return &Checked{Skipped: NotLinked}, nil
	}
	var c *Checked
	var why Reason
	if err != nil {
		var k *kept
		if err = opt.keep(nil, err); errors.As(err, &k) {
			why = k.Reason
		}
	} else {
		c, err = compared(f, path, opt)
		if opt.SkipUnsupported && (errors.Is(err, sframe.ErrNone) || errors.Is(err, errNoSection)) {
			why = withoutRows(r, size, path, opt)
		}
	}
	if why != "" && (all || why == NotELF || why == Package || why == DebugOnly) {
		return &Checked{Skipped: why}, nil
	}
	return c, err
}

// withoutRows returns why a file without .sframe need not have one, or "".
func withoutRows(r io.ReaderAt, size int64, path string, opt FileOptions) Reason {
	opt.complete(size)
	opt.DryRun, opt.NoVerify, opt.Brief = true, true, true
	c := conversion{ctx: context.Background(), opt: opt, in: path, src: r, size: size, res: &Result{}, discard: func() {}}
	if err := c.convert(); err != nil {
		return ""
	}
	return c.res.Stays
}

// compared is check for a file whose headers are read.
func compared(f *elffile.File, path string, opt FileOptions) (c *Checked, err error) {
	defer func() {
		if failed := f.ReadError(); failed != nil {
			c, err = nil, outfile.Plain(failed)
		}
	}()
	s, err := section(f)
	if err != nil {
		return nil, err
	}
	debug, err := debugfile.Open(opt.DebugFile, path, f)
	if err != nil {
		return nil, err
	}
	defer debug.Close()
	table, err := cfi.Load(f, opt.Source, debug.File())
	if err != nil {
		return nil, err
	}
	c = &Checked{Version: s.Version, ABI: s.ABI, FDEs: s.Len(), FREs: uint64(s.NumFREs), Unsorted: s.Flags&sframe.FDESorted == 0}
	if c.Unsorted {
		s = s.Sorted()
	}
	res, err := verify.Check(table, s, f, verify.Options{Keep: maxMismatches})
	if err != nil {
		return nil, err
	}
	c.Described, c.Covered, c.Outermost, c.Stubs, c.Padding = res.Described, res.Covered, res.Outermost, res.Stubs, res.Padding
	slices.SortStableFunc(res.Mismatches, func(a, b verify.Mismatch) int { return cmp.Compare(a.Begin, b.Begin) })
	ranges := make([]report.Range, len(res.Mismatches))
	for i, m := range res.Mismatches {
		ranges[i] = report.Range{Begin: m.Begin, End: m.End}
	}
	for i, n := range report.Locate(f, debug.File(), ranges) {
		c.Mismatches = append(c.Mismatches, Mismatch{res.Mismatches[i], n.Function, n.Offset})
	}
	if failed := debug.File().ReadError(); failed != nil {
		return nil, fmt.Errorf("debug file %s: %w", debug.Path(), outfile.Plain(failed))
	}
	if res.Ended {
		return c, fmt.Errorf("more than %d mismatches, of which the first %d are listed; the rest of the code is not compared", res.Total-1, len(res.Mismatches))
	}
	if res.Total > len(res.Mismatches) {
		return c, fmt.Errorf("%d mismatches, of which the first %d are listed", res.Total, len(res.Mismatches))
	}
	return c, nil
}

// DumpFile is Dump for a file by its name, or Stdin.
func DumpFile(ctx context.Context, w io.Writer, path string) error {
	in, err := openInput(ctx, path, use{})
	if err != nil {
		return err
	}
	defer in.close()
	return Dump(w, in.src, in.info.Size())
}

// Dump prints the .sframe of the ELF file of the given size in r as objdump --sframe does. That may
// also be a bare section, such as objcopy -O binary makes.
func Dump(w io.Writer, r io.ReaderAt, size int64) error {
	s, where, err := decode(r, size)
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

// decode decodes the .sframe of an ELF file, or a file that is nothing else. Of an object, where says
// how far an address is from the start of its section.
func decode(r io.ReaderAt, size int64) (s *sframe.Section, where func(uint64) uint64, err error) {
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
	f, err := openELF(elffile.NewBudget(size), r, size)
	if err != nil {
		return nil, nil, err
	}
	s, err = section(f)
	if failed := f.ReadError(); failed != nil {
		return nil, nil, outfile.Plain(failed)
	}
	if err == nil && f.IsObject() {
		where = func(addr uint64) uint64 { return addr - f.Sections[f.SectionAt(addr)].Base }
	}
	return s, where, err
}

// section decodes the .sframe of a file that anybody may have written: through the section
// headers, or PT_GNU_SFRAME where there are none.
func section(f *elffile.File) (*sframe.Section, error) {
	if f.IsObject() {
		_, s, err := readObject(f)
		return s, err
	}
	at, err := f.SFrame()
	switch {
	case err != nil:
		return nil, err
	case at.Section > 0:
		s := &f.Sections[at.Section]
		b, err := f.ReadSection(s)
		if err != nil {
			return nil, err
		}
		return sframe.Decode(b, s.Addr)
	case at.Segment >= 0:
		h := &f.Progs[at.Segment]
		b, err := f.ReadAt("PT_GNU_SFRAME", h.Off, h.Filesz)
		if err != nil {
			return nil, err
		}
		return sframe.Decode(b, h.Vaddr)
	}
	return nil, sframe.ErrNone
}

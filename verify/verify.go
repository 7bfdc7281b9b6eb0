// Package verify checks an SFrame section against the CFI from which it was generated, and rows for code without CFI
// against that code.
//
//	result, err := verify.Check(table, section, f, verify.Options{Keep: 10}) // table and section are those of f
//	if err != nil {
//		return err
//	}
//	fmt.Println(result.Covered, "bytes of code agree")
//	for _, m := range result.Mismatches {
//		fmt.Println(m)
//	}
//
// The comparison is numeric. Registers and memory are assigned arbitrary values, and the rules of SFrame and CFI are
// evaluated as unwinders evaluate them. At every pc covered by SFrame, the CFA and the caller's pc, frame pointer and
// stack pointer must be equal. Equivalent rules agree however they are expressed. Different rules agree by chance with
// probability 2^-64.
//
// This package shares neither code nor register numbers nor decoders with packages translate, plt, padding and
// gopclntab, so that a mistake there is not repeated here. It relies on package cfi for rows, and for the facts that
// functions with the same Program have the same rows, and that rows with the same number have the same rules.
package verify

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sort"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/amounts"
	"cfi2sframe/internal/panics"
	"cfi2sframe/sframe"
)

// A Mismatch is a range of code in which SFrame and CFI disagree.
type Mismatch struct {
	Begin, End uint64 // addresses; End is exclusive
	What       string // what differs, and the rules in SFrame and CFI
}

func (m Mismatch) String() string {
	return fmt.Sprintf("%#x-%#x: %s", m.Begin, m.End, m.What)
}

// Amounts says how much code can be unwound, in bytes.
type Amounts = amounts.Amounts

// A Result holds the outcome of a comparison. Sizes are in bytes of code.
type Result struct {
	Amounts    // CFI and SFrame agree on the rows of Covered
	Mismatches []Mismatch
	Total      int  // number of mismatches
	Ended      bool // the comparison stopped after maxTotal mismatches

	keep int
}

// maxTotal is the number of mismatches after which the comparison stops.
const maxTotal = 1 << 18

// errTotal stops the comparison after maxTotal mismatches.
var errTotal = errors.New("too many mismatches")

func (r *Result) mismatch(begin, end uint64, format string, args ...any) {
	r.Total++
	if len(r.Mismatches) < r.keep {
		r.Mismatches = append(r.Mismatches, Mismatch{begin, end, fmt.Sprintf(format, args...)})
	}
}

// An abi describes an ABI: its DWARF register numbers, and its constants in the SFrame specification.
type abi struct {
	id             sframe.ABI
	machine        elf.Machine
	big            bool // big-endian
	sp, fp, ra, pc uint64
	fixedRA        int8  // fixed RA offset from the CFA in bytes; 0: tracked per row
	caller         int64 // caller's SP - CFA in bytes
	// spSaved reports whether a rule for SP only locates its save slot; the caller's SP is the CFA plus the field
	// caller, whatever the rule.
	spSaved bool
	entry   uint64 // CFA - SP at function entry in bytes
	// injected is the number of bytes, excluding the return address, that Go's signal handlers push before they inject
	// a call.
	injected int64
	// stub decodes the instruction at the start of b, and reports whether it may occur in PLT stubs.
	stub func(b []byte, pc uint64) (effect, bool)
	// padding returns the size in bytes of the no-op, trap or zeros at the start of b, or 0.
	padding func(b []byte) int
	// prologue executes the instruction at the start of b, and returns its size in bytes, or 0 if it cannot.
	prologue func(p *prologue, b []byte) int
	// fpAtFP is the expression for the address in FP, at which prologues save the caller's FP.
	fpAtFP []byte
	// epilogue decodes the code at pc up to where control leaves the function, and returns its size in bytes, or 0 if
	// it does anything but restore SP from register reg. If reg is noReg, SP is already restored. stays reports whether
	// a jump to an address stays in the function.
	epilogue func(code []byte, pc, reg uint64, stays func(pc uint64) bool) int
	// stack decodes the instruction at the start of b. It is nil if Go functions that switch stacks have no rows.
	stack func(b []byte) stackEffect
}

const noReg = ^uint64(0)

// abis holds the supported ABIs. Each machine's file adds the machine's ABIs.
var abis = make(map[sframe.ABI]abi)

// Options control Check.
type Options struct {
	Keep    int // number of mismatches to record; others are only counted
	Workers int // number of workers; 0 means one
}

// costRow is the cost per row of the section, charged to the budget of the file.
const costRow = 40

// Check compares the section with the CFI at every pc that either describes. Code without CFI is read from f: it must
// be padding after a function, described by the function's last row, or PLT stubs, whose control flow is traced. An
// error means that the section could not be read to its end.
func Check(t *cfi.Table, s *sframe.Section, f *elffile.File, opt Options) (*Result, error) {
	a, ok := abis[s.ABI]
	if big := t.Order == binary.BigEndian; !ok || a.machine != t.Machine || a.big != big {
		return nil, fmt.Errorf("ABI %v does not match machine %v, %v", s.ABI, t.Machine, t.Order)
	}
	a.id = s.ABI
	res := &Result{keep: opt.Keep}
	if s.FixedRA != a.fixedRA || s.FixedFP != 0 {
		res.mismatch(0, 0, "fixed offsets of RA and FP are %d and %d, but the ABI has %d and 0", s.FixedRA, s.FixedFP,
			a.fixedRA)
	}
	if s.Flags&sframe.FDESorted == 0 {
		res.mismatch(0, 0, "FDEs are not marked as sorted")
	}
	if s.Flags&sframe.FramePointer != 0 {
		res.mismatch(0, 0, "section claims that every function keeps a frame pointer")
	}
	err := Go(t, f, func(fn *cfi.Function, what string) {
		res.mismatch(fn.Begin, fn.End, ".gopclntab: %s", what)
	})
	if err != nil {
		return nil, err
	}
	maxRows := anyRows + s.Size()
	for i := range t.Sources {
		maxRows += t.Sources[i].Size
	}
	parts := split(t, s, opt.Workers)
	pads := paddings{code: codeReader{file: f}, size: a.padding, ranges: codeRanges(f), starts: sectionStarts(f)}
	errs := make([]error, len(parts))
	var wg panics.Group
	for i := range parts {
		c := &parts[i]
		c.abi, c.res, c.last = a, &Result{keep: opt.Keep}, math.MaxUint64
		c.places, c.code, c.pads = places{f}, codeReader{file: f}, pads
		c.segs.reader, c.segs.limit, c.segs.maxRows = s.NewReader(), codeEnd(t, f), maxRows
		c.vm = machine{order: t.Order, pcReg: a.pc}
		c.noRules = uint32(t.NumRules())
		c.agreed = make([]uint32, c.noRules+1)
		if i+1 < len(parts) && parts[i+1].table.Len() > 0 {
			c.last = parts[i+1].table.At(0).Begin
		}
		if i < len(parts)-1 {
			wg.Go(func() { errs[i] = c.run() })
		} else {
			errs[i] = c.run()
		}
	}
	wg.Wait()
	var rows uint64
	for i := range parts {
		rows += parts[i].segs.rows + parts[i].segs.blocks
	}
	if err := f.Budget().Spend(costRow, rows); err != nil {
		return nil, fmt.Errorf("comparing %d rows of .sframe: %w", rows, err)
	}
	all := checker{abi: a, res: res, vm: machine{order: t.Order, pcReg: a.pc}, table: t}
	for i := range parts {
		if errs[i] == errTotal {
			res.Ended = true
		} else if errs[i] != nil {
			return nil, errs[i]
		}
		res.add(parts[i].res)
		all.orphans = append(all.orphans, parts[i].orphans...)
	}
	if res.Ended {
		return res, nil
	}
	if err := all.shadowed(s, f); err == errTotal {
		res.Ended = true
		return res, nil
	} else if err != nil {
		return nil, err
	}
	return res, all.stubs(f)
}

// add adds the result for another part of the code.
func (r *Result) add(p *Result) {
	r.Amounts.Add(&p.Amounts)
	r.Total += p.Total
	r.Mismatches = append(r.Mismatches, p.Mismatches[:min(len(p.Mismatches), r.keep-len(r.Mismatches))]...)
}

// split divides the comparison into parts at addresses where a function and an FDE start.
func split(t *cfi.Table, s *sframe.Section, n int) []checker {
	var parts []checker
	first, index := 0, 0 // first function and FDE of the part
	add := func(last, after int) {
		parts = append(parts, checker{table: t.Part(first, last), segs: segments{index: index, after: after}})
		first, index = last, after
	}
	if s.Flags&sframe.FDESorted != 0 {
		end := 0
		for _, part := range t.Split(n) {
			end += part.Len()
			const near = 1 << 10 // functions
			for boundary := end; boundary < min(end+near, t.Len()); boundary++ {
				begin := t.At(boundary).Begin
				after := sort.Search(s.Len(), func(i int) bool { return s.FDE(i).Start >= begin })
				if boundary <= first || after <= index || after == s.Len() {
					continue
				}
				if d, e := s.FDE(after-1), s.FDE(after); d.End() <= begin && e.Start == begin {
					add(boundary, after)
					break
				}
			}
		}
	}
	add(t.Len(), s.Len())
	return parts
}

// codeEnd returns the end of the code with the highest address. Rows beyond it are invalid.
func codeEnd(t *cfi.Table, f *elffile.File) (end uint64) {
	if n := t.Len(); n > 0 {
		end = t.At(n - 1).End
	}
	for _, h := range elffile.Each(f.Progs) {
		if elf.ProgType(h.Type) == elf.PT_LOAD && elf.ProgFlag(h.Flags)&elf.PF_X != 0 {
			end = max(end, h.Vaddr+h.Filesz)
		}
	}
	return end
}

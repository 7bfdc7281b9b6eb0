// Package verify checks an SFrame section against the CFI it was made from.
//
// The check is numeric. Registers get arbitrary values and memory gets arbitrary contents, and the rules of both sides
// are evaluated as two unwinders would. At every pc that SFrame describes, the CFA and the caller's pc, frame pointer
// and stack pointer must be equal. Equivalent rules agree in any notation. Rules that differ agree by chance once in
// 2^64.
//
// This package shares neither code nor register numbers with packages translate, plt and padding, so that a
// mistake there cannot hide here. Rows come from package cfi. So does the fact that functions with the same Program
// have the same rows, and rows with the same number the same rules.
package verify

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sort"
	"sync"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/sframe"
)

// A Mismatch is a range of code for which SFrame and CFI disagree.
type Mismatch struct {
	Begin, End uint64 // addresses, End excluded
	What       string // which value, what each side says
}

func (m Mismatch) String() string {
	return fmt.Sprintf("%#x-%#x: %s", m.Begin, m.End, m.What)
}

// A Result is the result of a comparison. Sizes are in bytes of code.
type Result struct {
	Described  uint64 // by CFI
	Covered    uint64 // by CFI and SFrame, which agree
	Outermost  uint64 // by CFI only, and without a caller
	Stubs      uint64 // by SFrame only, and right by the instructions
	Padding    uint64 // the same, after functions
	Mismatches []Mismatch
	Total      int  // number of mismatches
	Ended      bool // before the end, because there are more than maxTotal

	keep int
}

// maxTotal is the number of mismatches after which the comparison ends.
const maxTotal = 1 << 18

// errTotal ends the comparison after maxTotal mismatches.
var errTotal = errors.New("too many mismatches")

func (r *Result) mismatch(begin, end uint64, format string, args ...any) {
	r.Total++
	if len(r.Mismatches) < r.keep {
		r.Mismatches = append(r.Mismatches, Mismatch{begin, end, fmt.Sprintf(format, args...)})
	}
}

// An abi holds the facts of an ABI for this check: DWARF register numbers, and what the format document fixes.
type abi struct {
	machine        elf.Machine
	big            bool // byte order
	sp, fp, ra, pc uint64
	fixedRA        int8  // bytes from the CFA; 0 if rows say where RA is
	caller         int64 // the caller's SP, in bytes from the CFA
	// spSaved says that a rule for SP says where it is saved. Its value is caller all the same.
	spSaved bool
	entry   uint64 // the CFA where a call arrives, in bytes from SP
	// injected is what signal handlers of Go push before they inject a call, in bytes without the return address.
	injected int64
	// decode decodes the instruction of a PLT stub at the start of b. Other instructions are errors.
	decode func(b []byte, pc uint64) (effect, error)
	// padding returns the size in bytes of the no-op, trap or zeros at the start of b, or 0.
	padding func(b []byte) int
	// prologue executes the instruction at the start of b, and returns its size in bytes, or 0 if it cannot.
	prologue func(p *prologue, b []byte) int
	// fpAtFP is the expression for the address in FP: where prologues save the caller's FP.
	fpAtFP []byte
	// epilogue decodes the code at pc, at which SP is restored from register reg, or is restored already for noReg, up
	// to where control leaves the function, and returns its size in bytes. It is 0 if the code does anything else. Stays
	// reports whether a jump to an address does not leave the function.
	epilogue func(code []byte, pc, reg uint64, stays func(pc uint64) bool) int
	// stacks checks the places of a function that leaves its stack against its code, and returns what is wrong. Final says
	// that the function does not come back from the other one. It is nil
	// where no such function has rows.
	stacks func(code []byte, places []place, final bool) string
}

const noReg = ^uint64(0)

// abis are the supported ABIs. Each machine's file adds its own.
var abis = make(map[sframe.ABI]abi)

// Options say how to check.
type Options struct {
	Keep    int // mismatches that are kept; the others are counted
	Workers int // that share the work; 0 stands for one
}

// costRow is what a row of the section costs of the budget.
const costRow = 40

// Check compares the section with the CFI at every pc that either describes. Code without CFI is read from f: it must
// be padding after a function, with the function's last row, or PLT stubs, whose instructions are followed. An error
// means that the section cannot be read to its end.
func Check(t *cfi.Table, s *sframe.Section, f *elffile.File, opt Options) (*Result, error) {
	a, ok := abis[s.ABI]
	if big := t.Order == binary.BigEndian; !ok || a.machine != t.Machine || a.big != big {
		return nil, fmt.Errorf("ABI %v is not that of machine %v, %v", s.ABI, t.Machine, t.Order)
	}
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
	limit := codeEnd(t, f)
	maxRows := anyRows + s.Size()
	for i := range t.Sources {
		maxRows += t.Sources[i].Size
	}
	parts, ranges, borders := split(t, s, opt.Workers), codeRanges(f), bordersOf(f)
	errs := make([]error, len(parts))
	var wg sync.WaitGroup
	for i := range parts {
		c := &parts[i]
		c.abi, c.res, c.places, c.segs.limit, c.segs.maxRows = a, &Result{keep: opt.Keep}, places{f}, limit, maxRows
		c.vm = machine{order: t.Order, pcReg: a.pc}
		c.segs.reader = s.NewReader()
		c.agreed = make([]uint32, t.NumRules())
		c.ranges, c.borders, c.last = ranges, borders, math.MaxUint64
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
	all := checker{abi: a, res: res, vm: machine{order: t.Order, pcReg: a.pc}, segs: segments{sec: s}}
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
	if err := all.stubs(t, f); err != nil {
		return nil, err
	}
	return res, nil
}

// add adds the result for another part of the code.
func (r *Result) add(p *Result) {
	r.Described += p.Described
	r.Covered += p.Covered
	r.Outermost += p.Outermost
	r.Padding += p.Padding
	r.Total += p.Total
	r.Mismatches = append(r.Mismatches, p.Mismatches[:min(len(p.Mismatches), r.keep-len(r.Mismatches))]...)
}

// split divides both sides at addresses at which a function and an FDE begin.
func split(t *cfi.Table, s *sframe.Section, n int) []checker {
	var parts []checker
	first, index := 0, 0 // of the part
	add := func(last, after int) {
		parts = append(parts, checker{table: t.Part(first, last), segs: segments{sec: s, index: index, after: after}})
		first, index = last, after
	}
	if s.Flags&sframe.FDESorted != 0 {
		end := 0
		for _, part := range t.Split(n) {
			end += part.Len()
			const near = 1 << 10 // functions
			for border := end; border < min(end+near, t.Len()); border++ {
				begin := t.At(border).Begin
				after := sort.Search(s.Len(), func(i int) bool { return s.FDE(i).Start >= begin })
				if border <= first || after <= index || after == s.Len() {
					continue
				}
				if d, e := s.FDE(after-1), s.FDE(after); d.End() <= begin && e.Start == begin {
					add(border, after)
					break
				}
			}
		}
	}
	add(t.Len(), s.Len())
	return parts
}

// codeEnd returns the end of the last code. An FDE that reaches beyond is a mismatch as a whole.
func codeEnd(t *cfi.Table, f *elffile.File) uint64 {
	var end uint64
	if n := t.Len(); n > 0 {
		end = t.At(n - 1).End
	}
	for i := range f.Progs {
		if h := &f.Progs[i]; elf.ProgType(h.Type) == elf.PT_LOAD && elf.ProgFlag(h.Flags)&elf.PF_X != 0 {
			end = max(end, h.Vaddr+h.Filesz)
		}
	}
	return end
}

// A checker compares both sides in address order.
type checker struct {
	abi   abi
	res   *Result
	table *cfi.Table
	segs  segments
	row   cfi.Row       // the current row of CFI
	fn    *cfi.Function // the current one
	vm    machine
	places

	// By the number of CFI rules: the number of the section's row that last agreed with them, plus 1, if no rule
	// depends on the pc.
	agreed  []uint32
	orphans []orphan
	proven  uint64 // end of the rows in the current function for which popped is true

	// For padding.
	last     uint64      // where the function after the last one begins
	ranges   []codeRange // all of them
	code     codeRange   // the current one
	borders  borders     // of sections
	text     []byte      // code at address textAt
	textAt   uint64
	buffer   []byte
	paddings [maxPadding][]byte // by size: the bytes that were found to be padding last
}

func (c *checker) run() error {
	c.segs.masked = c.blocks
	if err := c.segs.load(c.segs.index); err != nil {
		return err
	}
	for i := range c.table.Len() {
		next := c.last
		if i+1 < c.table.Len() {
			next = c.table.At(i + 1).Begin
		}
		if err := c.function(c.table.At(i), next); err != nil {
			return err
		}
	}
	return c.orphansTo(math.MaxUint64)
}

// orphansTo checks the code without CFI up to an address.
func (c *checker) orphansTo(pc uint64) error {
	for c.segs.more && c.segs.begin < pc {
		end := min(c.segs.end, pc)
		if err := c.orphan(end); err != nil {
			return err
		}
		if err := c.segs.skip(end); err != nil {
			return err
		}
	}
	return nil
}

// blocks reports whether the code of each row of a PC-mask FDE is certain.
func (c *checker) blocks(d *sframe.FDE) bool {
	if d.Ambiguous() {
		c.res.mismatch(d.Start, d.End(), "PC-mask FDE whose rows hold for other code in some readers than in others")
		return false
	}
	rep := uint64(d.RepSize)
	if _, unit := c.grid(d.Start); unit%rep != 0 {
		c.res.mismatch(d.Start, d.End(),
			"PC-mask FDE whose blocks of %d bytes are others where the code is moved by %d", rep, unit)
		return false
	}
	return true
}

// function compares the rows of a function, and its last row in the padding after it.
func (c *checker) function(fn *cfi.Function, next uint64) error {
	c.fn, c.row, c.proven = fn, cfi.Row{Begin: fn.Begin, End: fn.End}, 0 // without rules
	c.res.Described += fn.End - fn.Begin
	if err := c.orphansTo(fn.Begin); err != nil {
		return err
	}
	if fn.Err() != nil {
		if _, err := c.compareRow(&c.res.Covered); err != nil {
			return err
		}
	} else if at, err := c.skipAgreed(); err != nil {
		return err
	} else if at < fn.End {
		for c.row = range fn.Rows() {
			if c.row.End <= at {
				continue
			}
			c.row.Begin = max(c.row.Begin, at)
			described, err := c.compareRow(&c.res.Covered)
			if err != nil {
				return err
			}
			if c.row.RA.Rule == cfi.RuleUndefined {
				c.res.Outermost += c.row.End - c.row.Begin - described
			}
		}
	}
	if !c.segs.more || c.segs.begin >= next {
		return nil
	}
	end, ok := c.paddingAfter(fn, next)
	if !ok {
		return nil
	}
	c.row.Begin, c.row.End = fn.End, end
	_, err := c.compareRow(&c.res.Padding)
	return err
}

// skipAgreed advances through the current function while its rows are known to agree with the section's, and returns
// the address where it stops. At the end of the function, its last row is the current one.
func (c *checker) skipAgreed() (at uint64, err error) {
	fn, s := c.fn, &c.segs
	at = fn.Begin
	if fn.Program() < 0 {
		return at, nil
	}
	steps, k := fn.Steps(), 0
	for at < fn.End && s.more && s.begin == at && !s.repeats && s.fde.Signal == fn.Signal() && s.fde.KeyB == fn.KeyB() {
		refs, i, limit := s.refs, s.i, min(s.fde.End(), fn.End)
		for at < limit && c.agreed[steps[k].Number] == refs[i].Row+1 {
			stepEnd, rowEnd := fn.End, s.fde.End()
			if k+1 < len(steps) {
				stepEnd = min(stepEnd, fn.Begin+uint64(steps[k+1].Off))
			}
			if i+1 < len(refs) {
				rowEnd = s.block + uint64(refs[i+1].Start)
			}
			if at = min(stepEnd, rowEnd); at == stepEnd {
				k++
			}
			if at == rowEnd {
				i++
			}
		}
		c.res.Covered += at - s.begin
		if at < s.fde.End() {
			s.i = i
			err = s.set()
			s.begin = at
			break
		}
		if err = s.load(s.index + 1); err != nil {
			break
		}
	}
	if at == fn.End {
		n := steps[k-1].Number
		c.row.Number, c.row.Rules = n, c.table.Rules(n)
	}
	return at, err
}

// maxOrphans bounds the rows for code without CFI.
const maxOrphans = 1 << 20

// orphan records the current segment up to end, which has no CFI, for stubs.
func (c *checker) orphan(end uint64) error {
	if len(c.orphans) == maxOrphans {
		return fmt.Errorf("more than %d rows, up to that at %#x, are for code that CFI does not describe", maxOrphans,
			c.segs.begin)
	}
	marked := c.segs.fde.KeyB || c.segs.fde.Signal
	c.orphans = append(c.orphans, orphan{c.segs.begin, end, c.segs.reader.Rows[c.segs.row], marked})
	return nil
}

// compareRow compares the current CFI row with the segments in it. It adds the bytes for which they agree to sum, and
// returns the number of bytes that the segments describe.
func (c *checker) compareRow(sum *uint64) (described uint64, err error) {
	s, r := &c.segs, &c.row
	for s.more && s.begin < r.End {
		end := min(s.end, r.End)
		size := end - s.begin
		described += size
		same := r.Rules != nil && c.agreed[r.Number] == s.row+1 && s.fde.Signal == c.fn.Signal() &&
			s.fde.KeyB == c.fn.KeyB()
		if !same {
			if same, err = c.compare(s.begin, end); err != nil {
				return 0, err
			}
			if c.res.Total > maxTotal {
				return 0, errTotal
			}
		}
		if same {
			*sum += size
		}
		if err := s.skip(end); err != nil {
			return 0, err
		}
	}
	return described, nil
}

// compare compares the current CFI row with the current segment over [begin, end), and reports whether they agree. It
// returns an error if that takes too long.
func (c *checker) compare(begin, end uint64) (bool, error) {
	e, r := &c.segs.reader.Rows[c.segs.row], &c.row
	fail := func(format string, args ...any) (bool, error) {
		c.res.mismatch(begin, end, format, args...)
		return false, nil
	}
	switch {
	case r.Rules == nil:
		return fail("SFrame describes a function whose CFI is malformed (%v)", c.fn.Err())
	case c.segs.fde.Signal != c.fn.Signal():
		return fail("signal frame: %t in SFrame, %t in CFI", c.segs.fde.Signal, c.fn.Signal())
	case c.segs.fde.KeyB != c.fn.KeyB():
		return fail("signing key B: %t in SFrame, %t in CFI", c.segs.fde.KeyB, c.fn.KeyB())
	case e.Outermost != (r.RA.Rule == cfi.RuleUndefined):
		return fail("outermost frame: %t in SFrame, %t in CFI", e.Outermost, !e.Outermost)
	case e.Outermost: // no caller on both sides
		return true, nil
	case e.Signed != (r.Sign == cfi.Signed) || r.Sign > cfi.Signed:
		return fail("return address signed: %t in SFrame, state %d in CFI", e.Signed, r.Sign)
	}
	for pc := begin; pc < end; pc++ {
		c.vm.pc, c.vm.pcRead = pc, false
		want, err := c.byCFI()
		if errors.Is(err, errSteps) {
			return false, fmt.Errorf("function at %#x: %w", c.fn.Begin, err)
		}
		if err != nil {
			return fail("%v", err)
		}
		got := c.bySFrame(e)
		if got != want && pc == begin && c.popped(begin, end, want, got) {
			return true, nil
		}
		if got != want {
			c.res.mismatch(pc, end, "%s: SFrame has CFA %v, RA %v, FP %v; CFI has %v", want.differs(got), e.CFA, e.RA,
				e.FP, r.Rules)
			return false, nil
		}
		if !c.vm.pcRead {
			break // the rules are the same for the other pcs
		}
		at, same, err := c.anywhere(pc, want)
		if err != nil {
			return false, fmt.Errorf("function at %#x: %w", c.fn.Begin, err)
		}
		if !same {
			return fail("CFI says something else if this code is at %#x: SFrame has CFA %v, RA %v, FP %v; CFI has %v",
				at, e.CFA, e.RA, e.FP, r.Rules)
		}
	}
	if !c.vm.pcRead {
		c.agreed[r.Number] = c.segs.row + 1
	}
	return true, nil
}

// A CFI row that depends on the pc is compared at several load addresses: at least one for each pc, and about allPlaces
// in total. Linkers write one such row for a PLT.
const (
	maxPlaces = 64 // for each pc
	allPlaces = 1 << 9
)

// anywhere reports whether the current CFI row gives the frame want at pc for every load address. If not, at is an
// address where it differs. The error is errSteps.
func (c *checker) anywhere(pc uint64, want frameState) (at uint64, same bool, err error) {
	if c.fixed() {
		return 0, true, nil
	}
	n := min(max(allPlaces/(c.row.End-c.row.Begin), 1), maxPlaces)
	for i := range n {
		at = c.elsewhere(pc, pc*maxPlaces+i)
		c.vm.pc = at
		got, err := c.byCFI()
		if errors.Is(err, errSteps) {
			return at, false, err
		}
		if err != nil || got != want {
			return at, false, nil
		}
	}
	return 0, true, nil
}

// A frameState is the result of one step of a stack trace.
type frameState struct{ cfa, ra, fp, sp uint64 }

func (w frameState) differs(g frameState) string {
	switch {
	case w.cfa != g.cfa:
		return "CFA differs"
	case w.ra != g.ra:
		return "return address differs"
	case w.fp != g.fp:
		return "caller's frame pointer differs"
	}
	return "caller's stack pointer differs"
}

// byCFI takes a step up the stack by the current CFI row.
func (c *checker) byCFI() (f frameState, err error) {
	r := &c.row
	switch r.CFA.Rule {
	case cfi.RuleCFA:
		f.cfa = c.vm.reg(r.CFA.Reg) + uint64(r.CFA.Offset)
	case cfi.RuleExpression:
		if f.cfa, err = c.vm.run(r.CFA.Expression); err != nil {
			return f, fmt.Errorf("CFA: %w", err)
		}
	default:
		return f, fmt.Errorf("CFI gives no CFA")
	}
	if f.ra, err = c.value(&r.RA, f.cfa, c.vm.reg(r.RAReg)); err != nil {
		return f, fmt.Errorf("return address: %w", err)
	}
	if r.RA.Rule == cfi.RuleArchitectural || r.RA.Rule == cfi.RuleSameVal {
		// A column without a rule keeps its value. It cannot hold the return address if calls leave none there, or if
		// it is the stack pointer or the pc.
		if col := r.RAReg; c.abi.fixedRA != 0 || col == c.abi.sp || col == c.abi.pc {
			return f, fmt.Errorf("return address: CFI says that it is in no place")
		}
	}
	if f.fp, err = c.value(&r.FP, f.cfa, c.vm.reg(c.abi.fp)); err != nil {
		return f, fmt.Errorf("frame pointer: %w", err)
	}
	if c.implied(&r.SP) {
		f.sp = f.cfa + uint64(c.abi.caller)
	} else if f.sp, err = c.value(&r.SP, f.cfa, c.vm.reg(c.abi.sp)); err != nil {
		return f, fmt.Errorf("stack pointer: %w", err)
	}
	return f, nil
}

// implied reports whether the CFA implies the caller's SP under such a rule.
func (c *checker) implied(rule *cfi.Rule) bool {
	switch rule.Rule {
	case cfi.RuleArchitectural:
		return true
	case cfi.RuleOffset, cfi.RuleRegister, cfi.RuleSameVal:
		return c.abi.spSaved
	}
	return false
}

// value evaluates a register's rule; same is the register's own value.
func (c *checker) value(rule *cfi.Rule, cfa, same uint64) (uint64, error) {
	switch rule.Rule {
	case cfi.RuleArchitectural, cfi.RuleSameVal:
		return same, nil
	case cfi.RuleOffset:
		return c.vm.load(cfa + uint64(rule.Offset)), nil
	case cfi.RuleValOffset:
		return cfa + uint64(rule.Offset), nil
	case cfi.RuleRegister:
		return c.vm.reg(rule.Reg), nil
	case cfi.RuleValExpression:
		return c.vm.run(rule.Expression, cfa)
	case cfi.RuleExpression:
		addr, err := c.vm.run(rule.Expression, cfa)
		return c.vm.load(addr), err
	}
	return 0, fmt.Errorf("CFI leaves it undefined")
}

// bySFrame takes a step up the stack by a row of the section.
func (c *checker) bySFrame(e *sframe.Row) (f frameState) {
	f.cfa = c.rule(e.CFA, 0)
	switch {
	case e.RA.Base != sframe.None:
		f.ra = c.rule(e.RA, f.cfa)
	case c.segs.sec.FixedRA != 0:
		f.ra = c.vm.load(f.cfa + uint64(int64(c.segs.sec.FixedRA)))
	default:
		f.ra = c.vm.reg(c.abi.ra)
	}
	f.fp = c.vm.reg(c.abi.fp)
	if e.FP.Base != sframe.None {
		f.fp = c.rule(e.FP, f.cfa)
	}
	f.sp = f.cfa + uint64(c.abi.caller)
	return f
}

func (c *checker) rule(r sframe.Rule, cfa uint64) uint64 {
	v := cfa
	switch r.Base {
	case sframe.SP:
		v = c.vm.reg(c.abi.sp)
	case sframe.FP:
		v = c.vm.reg(c.abi.fp)
	case sframe.Register:
		v = c.vm.reg(uint64(r.Reg))
	}
	v += uint64(int64(r.Offset))
	if r.Deref {
		v = c.vm.load(v)
	}
	return v
}

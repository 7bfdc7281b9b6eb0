package verify

import (
	"debug/elf"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"sort"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/sframe"
)

// A checker compares the rows of CFI with those of the section, in address order.
type checker struct {
	abi   abi
	res   *Result
	table *cfi.Table
	last  uint64 // start of the first function after all functions of the table, or math.MaxUint64
	segs  segments
	fn    *cfi.Function // current function
	marks marks         // of fn
	rules *cfi.Rules    // current rules of CFI, or nil if fn is malformed
	vm    machine
	places
	code   codeReader
	pads   paddings
	proven uint64 // end of the last row for which popped was true in the current function

	noRules uint32 // rule number for functions whose CFI has no rows
	// agreed contains, for each number of CFI rules, 1 plus the number of the section's row that last agreed with them.
	// It applies only if no rule depends on the pc.
	agreed  []uint32
	cycle   cycle
	cut     []cfi.Step // buffer for the rows of a function whose Program is -1
	orphans []orphan
}

func (c *checker) run() error {
	c.segs.masked = c.checkBlocks
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

// function compares the rows of a function with the section, which may repeat the last row in the padding after the
// function.
func (c *checker) function(fn *cfi.Function, next uint64) error {
	c.fn, c.marks, c.proven = fn, marksOf(fn.Signal(), fn.KeyB()), 0
	c.res.Described += fn.End - fn.Begin
	if err := c.orphansTo(fn.Begin); err != nil {
		return err
	}
	if fn.Err() != nil {
		_, _, err := c.compareRow(fn.Begin, fn.End, c.noRules)
		return err
	}
	number, before := c.noRules, c.res.Rows()
	steps := c.steps(fn)
	for k := 0; k < len(steps); k++ {
		k += c.skipAgreed(steps[k:])
		begin, end := fn.Begin+uint64(steps[k].Off), fn.End
		if k+1 < len(steps) {
			end = fn.Begin + uint64(steps[k+1].Off)
		}
		number = steps[k].Number
		agree, left, err := c.compareRow(begin, end, number)
		if err != nil {
			return err
		}
		c.res.Covered += agree
		if c.table.Rules(number).RA.Rule == cfi.RuleUndefined {
			c.res.Outermost += left
			c.res.Covered += left
		}
	}
	if fn.Inferred() {
		c.res.Inferred += c.res.Rows() - before
	}
	if c.segs.begin >= next {
		return nil
	}
	end, ok := c.pads.paddingEnd(fn, next)
	if !ok {
		return nil
	}
	agree, _, err := c.compareRow(fn.End, end, number)
	c.res.Padding += agree
	return err
}

// steps returns the rows of a function. The first row starts with the function.
func (c *checker) steps(fn *cfi.Function) []cfi.Step {
	if fn.Program() >= 0 {
		steps, size := fn.Steps(), fn.End-fn.Begin
		if n := len(steps); n > 0 && uint64(steps[n-1].Off) >= size { // a larger function has the same program
			steps = steps[:sort.Search(n, func(i int) bool { return uint64(steps[i].Off) >= size })]
		}
		return steps
	}
	c.cut = c.cut[:0]
	for row := range fn.Rows() {
		c.cut = append(c.cut, cfi.Step{Off: uint32(row.Begin - fn.Begin), Number: row.Number})
	}
	return c.cut
}

// skipAgreed advances through the segments and the steps while both have rows at the same addresses that are known to
// agree. It returns the index of the first step that it did not compare. Without it, a conversion of libLLVM-14
// executes 5 % more instructions (2026-11-24).
func (c *checker) skipAgreed(steps []cfi.Step) int {
	s, begin := &c.segs, c.fn.Begin+uint64(steps[0].Off)
	if s.begin != begin || s.repeats || s.marks != c.marks {
		return 0
	}
	refs, shift := s.refs[s.i:], uint32(c.fn.Begin-s.block)
	last, n := min(len(steps), len(refs))-1, 0
	for n < last && c.agreed[steps[n].Number] == refs[n].Row+1 && steps[n+1].Off+shift == refs[n+1].Start {
		n++
	}
	if n > 0 {
		s.i += n
		s.set()
		c.res.Covered += s.begin - begin
	}
	return n
}

// compareRow compares the CFI rules with the given number, which apply to [begin, end), with the segments in that
// range. It returns the number of bytes for which they agree, and the number of bytes without a segment.
func (c *checker) compareRow(begin, end uint64, number uint32) (agree, left uint64, err error) {
	s := &c.segs
	left = end - begin
	for s.begin < end {
		stop := min(s.end, end)
		left -= stop - s.begin
		same := c.agreed[number] == s.row+1 && s.marks == c.marks
		if !same {
			if c.rules = nil; number != c.noRules {
				c.rules = c.table.Rules(number)
			}
			if same, err = c.compare(s.begin, stop, number); err != nil {
				return 0, 0, err
			}
			if c.res.Total > maxTotal {
				return 0, 0, errTotal
			}
		}
		if same {
			agree += stop - s.begin
		}
		if err := s.skip(stop); err != nil {
			return 0, 0, err
		}
	}
	return agree, left, nil
}

// orphansTo records the code, up to an address, that only the section describes; the method stubs checks it later.
func (c *checker) orphansTo(pc uint64) error {
	for s := &c.segs; s.begin < pc; {
		if len(c.orphans) == maxOrphans {
			return fmt.Errorf("SFrame describes code that CFI does not: at %#x, the number of rows exceeds "+
				"the limit of %d", s.begin, maxOrphans)
		}
		end := min(s.end, pc)
		c.orphans = append(c.orphans, orphan{s.begin, end, s.reader.Rows[s.row], s.marks != 0})
		if err := s.skip(end); err != nil {
			return err
		}
	}
	return nil
}

// checkBlocks reports whether each row of a PC-mask FDE applies to the same code in all readers and at all load
// addresses.
func (c *checker) checkBlocks(d *sframe.FDE) bool {
	if d.Ambiguous() {
		c.res.mismatch(d.Start, d.End(), "PC-mask FDE that readers interpret differently")
		return false
	}
	rep := uint64(d.RepSize)
	if _, unit := c.grid(d.Start); unit%rep != 0 {
		c.res.mismatch(d.Start, d.End(),
			"PC-mask FDE whose blocks of %d bytes change if the code moves by %d", rep, unit)
		return false
	}
	return true
}

// both describes a row of SFrame and one of CFI.
func (c *checker) both(e *sframe.Row, r *cfi.Rules) string {
	return fmt.Sprintf("SFrame has %s; CFI has %s", c.abi.id.Text(*e), c.table.Text(r))
}

// compare compares the current rules of CFI, which have the given number, with the current segment over [begin, end),
// and reports whether they agree. It returns an error if that takes too long.
func (c *checker) compare(begin, end uint64, number uint32) (bool, error) {
	e, r := &c.segs.reader.Rows[c.segs.row], c.rules
	fail := func(format string, args ...any) (bool, error) {
		c.res.mismatch(begin, end, format, args...)
		return false, nil
	}
	switch {
	case r == nil:
		return fail("SFrame describes a function whose CFI is malformed (%v)", c.fn.Err())
	case c.segs.marks&signal != c.marks&signal:
		return fail("signal frame: %t in SFrame, %t in CFI", c.segs.fde.Signal, c.fn.Signal())
	case c.segs.marks != c.marks:
		return fail("signing key B: %t in SFrame, %t in CFI", c.segs.fde.KeyB, c.fn.KeyB())
	case e.Outermost != (r.RA.Rule == cfi.RuleUndefined):
		return fail("outermost frame: %t in SFrame, %t in CFI", e.Outermost, !e.Outermost)
	case e.Outermost: // neither SFrame nor CFI has a caller
		return true, nil
	case e.Signed != (r.Sign == cfi.Signed) || r.Sign > cfi.Signed:
		return fail("return address signed: %t in SFrame, state %d in CFI", e.Signed, r.Sign)
	}
	origin, unit := c.grid(begin)
	for pc := begin; pc < end; pc++ {
		known := &c.cycle.rows[pc%cycleSize]
		if c.cycle.number == number && *known == c.segs.row+1 && (origin|unit)%cycleSize == 0 {
			continue
		}
		c.vm.pc, c.vm.pcBits = pc, 0
		want, err := c.byCFI()
		if errors.Is(err, errSteps) {
			return false, fmt.Errorf("function at %#x: %w", c.fn.Begin, err)
		}
		if err != nil {
			return fail("%v", err)
		}
		got := c.bySFrame(e)
		switch {
		case got != want && c.vm.pcBits == 0 && c.popped(begin, end, want, got):
			return true, nil
		case got != want:
			c.res.mismatch(pc, end, "%s: %s", want.differs(got), c.both(e, r))
			return false, nil
		case c.vm.pcBits == 0: // the rules do not depend on the pc
			c.agreed[number] = c.segs.row + 1
			return true, nil
		case (origin|unit)&c.vm.pcBits != 0:
			return fail("CFI depends on the load address: %s", c.both(e, r))
		}
		if c.vm.pcBits < cycleSize {
			if c.cycle.number != number {
				c.cycle = cycle{number: number}
			}
			*known = c.segs.row + 1
		}
	}
	return true, nil
}

// A cycle caches which rows agree with rules that depend on the low bits of the pc. It maps these bits to the number of
// the section's row, plus 1. Linkers emit such rules for a PLT.
type cycle struct {
	number uint32
	rows   [cycleSize]uint32
}

const cycleSize = 16

// A frameState is the result of unwinding one frame.
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

// byCFI unwinds one frame using the current rules.
func (c *checker) byCFI() (f frameState, err error) {
	r := c.rules
	switch r.CFA.Rule {
	case cfi.RuleCFA:
		f.cfa = c.vm.reg(r.CFA.Reg) + uint64(r.CFA.Offset)
	case cfi.RuleExpression:
		if f.cfa, err = c.vm.run(r.CFA.Expression); err != nil {
			return f, fmt.Errorf("CFA: %w", err)
		}
	default:
		return f, fmt.Errorf("CFI defines no CFA")
	}
	if f.ra, err = c.value(&r.RA, f.cfa, c.vm.reg(r.RAReg)); err != nil {
		return f, fmt.Errorf("return address: %w", err)
	}
	if r.RA.Rule == cfi.RuleArchitectural || r.RA.Rule == cfi.RuleSameVal {
		// A column without a rule keeps its value. The column cannot hold the return address if calls do not leave that
		// address in a register, or if the column is the stack pointer or the pc.
		if col := r.RAReg; c.abi.fixedRA != 0 || col == c.abi.sp || col == c.abi.pc {
			return f, fmt.Errorf("return address: CFI gives no location")
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

// implied reports whether the caller's SP follows from the CFA although SP has the given rule.
func (c *checker) implied(rule *cfi.Rule) bool {
	switch rule.Rule {
	case cfi.RuleArchitectural:
		return true
	case cfi.RuleOffset, cfi.RuleRegister, cfi.RuleSameVal:
		return c.abi.spSaved
	}
	return false
}

// value evaluates a register's rule; same is the current value of the register.
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

// bySFrame unwinds one frame using a row of the section.
func (c *checker) bySFrame(e *sframe.Row) (f frameState) {
	f.cfa = c.rule(e.CFA, 0)
	switch {
	case e.RA.Base != sframe.None:
		f.ra = c.rule(e.RA, f.cfa)
	case c.abi.fixedRA != 0:
		f.ra = c.vm.load(f.cfa + uint64(int64(c.abi.fixedRA)))
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

// smallestPage is the smallest page size of supported systems in bytes.
const smallestPage = 0x1000

// A places value describes the addresses at which the code of a file can run.
type places struct{ file *elffile.File }

// grid returns the start of the unit of code that moves together with pc, and the alignment that its run-time addresses
// preserve: in an object, the alignment of the section, otherwise the page size. If nothing moves, the alignment is 0.
func (p places) grid(pc uint64) (origin, unit uint64) {
	switch {
	case elf.Type(p.file.Type) == elf.ET_EXEC:
		return 0, 0
	case elf.Type(p.file.Type) != elf.ET_REL:
		return 0, smallestPage
	case len(p.file.Sections) == 0:
		return 0, 1
	}
	s := &p.file.Sections[p.file.SectionAt(pc)]
	if bits.OnesCount64(s.Addralign) != 1 {
		return s.Base, 1
	}
	return s.Base, min(s.Addralign, smallestPage) // it may be linked into a library
}

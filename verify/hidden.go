package verify

import (
	"slices"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
)

// An Agreement tells how far CFI agrees with rows that were inferred without it. Numbers are bytes of code.
type Agreement struct {
	Described  uint64 // with CFI
	Inferred   uint64 // part of Described with inferred rows
	ByRegister uint64 // part of Inferred where both rows base the CFA on the same register
	ByValue    uint64 // part of Inferred where the distance between both registers is known
	FP         uint64 // part of ByRegister and ByValue where the locations of FP were compared
	Differ     [3]uint64
	// Differences lists the code in which rows differ, in ascending order.
	Differences []Difference
}

// A Part is a part of a row.
type Part uint8

const (
	PartCFA Part = iota
	PartRA
	PartFP
)

// A Difference is code in which a part of two rows differs.
type Difference struct {
	Begin, End uint64 // addresses; End is exclusive
	Part       Part
	CFI        *cfi.Rules
	Inferred   cfi.InferredRow
}

// A comparison compares inferred rows, which must be proved, with the table. It knows more about the frame than the
// rows say: what holds on one path to the instruction. A row of CFI holds on all paths, so it must agree with this one.
type comparison struct {
	walk
	res    *Agreement
	traced bool                  // the frame is that of a path from the start of a function to the instruction
	passed map[uint64]frameFacts // frames at the targets of jumps
	missed map[uint64]bool       // addresses where the frame was not traced
	next   int                   // index of the next function of the table
	rows   []cfi.Row             // remaining rows of the function before it
}

// Compare compares the rows of a table with proved rows that were inferred without it.
func Compare(f *elffile.File, t *cfi.Table, inf *cfi.Inference) (*Agreement, error) {
	p, err := newProof(f, nil, inf)
	if err != nil {
		return nil, err
	}
	p.run() // finds the effects of calls
	p.table = t
	c := &comparison{walk: walk{proof: p}, passed: make(map[uint64]frameFacts), missed: make(map[uint64]bool)}
	c.frame.proofMachine = p.machine
	for range 2 { // the first time, only frames at the targets of backward jumps are collected
		c.res, c.next, c.rows, c.at = &Agreement{}, 0, nil, 0
		p.iterate(p.again, c.visit)
	}
	for fn := range t.Functions() {
		if !fn.Inferred() && fn.Err() == nil {
			c.res.Described += fn.End - fn.Begin
		}
	}
	return c.res, nil
}

// visit compares the rows at the current instruction, and executes it.
func (c *comparison) visit(fn int, pc uint64, r *cfi.InferredRow) {
	passed, ok := c.passed[pc]
	delete(c.passed, pc)
	switch {
	case c.at == pc && c.traced && !c.isStart(fn, pc):
	case ok && !c.isStart(fn, pc):
		c.frame, c.traced = passed, true
	default:
		known, ok := c.table.Lookup(pc)
		c.frame.reduce(r)
		c.traced = ok && known.Begin == pc && c.table.Find(pc).Begin == pc && c.isEntry(r) &&
			known.FP.Rule != cfi.RuleOffset // otherwise, a part of a function
		if !c.traced {
			c.missed[pc] = true
		}
	}
	c.frame.refine(r)
	if m := c.machine; m.registers[r.Reg] != m.sp && m.registers[r.Reg] != m.fp { // in a loop that changes SP
		c.frame.known &^= 1 << m.sp
	}
	c.compareTo(pc, pc+c.size, r)
	c.at = pc + c.size
	if c.skips {
		return
	}
	in := c.in
	switch in.flow() {
	case flowNext, flowSystem:
		in.execute(&c.frame)
	case flowCall, flowCallIndirect:
		c.call(fn, pc)
		c.frame.callers.stale, c.frame.back.stale = 0, 0
	case flowBranch:
		c.frame.clear(in.written())
		c.pass(fn, pc, in.target(pc))
	case flowJump:
		c.pass(fn, pc, in.target(pc))
	case flowIndirect:
		for _, addr := range c.Jumps[pc] {
			c.pass(fn, pc, addr)
		}
	}
	if !in.flow().continues() || c.NoReturn[pc] {
		c.at = 0
	}
}

// refine adds the facts in a proved row.
func (s *frameFacts) refine(r *cfi.InferredRow) {
	old := *s
	s.reduce(r)
	s.known |= old.known
	for _, v := range []struct{ now, old *savedValue }{{&s.callers, &old.callers}, {&s.back, &old.back}} {
		v.now.regs |= v.old.regs
		v.now.stale = v.old.stale
		if v.now.slot == 0 {
			v.now.slot = v.old.slot
		}
	}
}

// pass records the frame at the target of a jump, if it will be needed.
func (c *comparison) pass(fn int, pc, addr uint64) {
	_, known := c.passed[addr]
	to, ok := c.find(fn, addr)
	if c.traced && !known && ok && c.index[to] == c.index[fn] && (addr > pc || c.missed[addr]) {
		c.passed[addr] = c.frame
	}
}

// compareTo compares an inferred row with the rows of the table in [begin, end).
func (c *comparison) compareTo(begin, end uint64, r *cfi.InferredRow) {
	for {
		for len(c.rows) > 0 && c.rows[0].End <= begin {
			c.rows = c.rows[1:]
		}
		switch {
		case len(c.rows) > 0 && c.rows[0].Begin >= end:
			return
		case len(c.rows) > 0:
			row := &c.rows[0]
			c.compareRow(max(begin, row.Begin), min(end, row.End), row.Rules, r)
			if begin = row.End; begin >= end {
				return
			}
		case c.next == c.table.Len():
			return
		default:
			if fn := c.table.At(c.next); fn.End > begin && !fn.Inferred() {
				c.rows = slices.Collect(fn.Rows())
			}
			c.next++
		}
	}
}

// compareRow compares an inferred row with a row of the table.
func (c *comparison) compareRow(begin, end uint64, known *cfi.Rules, r *cfi.InferredRow) {
	m, res, n := c.machine, c.res, end-begin
	res.Inferred += n
	differ := func(part Part) {
		res.Differ[part] += n
		if last := len(res.Differences) - 1; last >= 0 {
			if old := &res.Differences[last]; *old == (Difference{old.Begin, begin, part, known, *r}) {
				old.End = end
				return
			}
		}
		res.Differences = append(res.Differences, Difference{begin, end, part, known, *r})
	}
	if outermost := known.RA.Rule == cfi.RuleUndefined; outermost || r.Outermost {
		if res.ByRegister += n; !outermost || !r.Outermost {
			differ(PartRA)
		}
		return
	}
	reg := -1
	if known.CFA.Rule == cfi.RuleCFA && known.CFA.Reg < uint64(len(m.registers)) {
		reg = m.registers[known.CFA.Reg]
	}
	switch {
	case reg >= 0 && known.CFA.Reg == uint64(r.Reg):
		res.ByRegister += n
	case reg >= 0 && c.frame.known>>reg&1 != 0:
		res.ByValue += n
	default:
		return
	}
	if c.frame.off[reg] != -known.CFA.Offset {
		differ(PartCFA)
		return
	}
	if m.ra < 0 {
		if known.RA.Rule != cfi.RuleOffset || known.RA.Offset != -m.entry {
			differ(PartRA)
		}
	} else if same, certain := c.holds(&c.frame.back, m.ra, &known.RA); certain && !same ||
		(known.Sign == cfi.Signed) != r.Signed {
		differ(PartRA)
	}
	if r.Lost {
		return
	}
	same, certain := c.holds(&c.frame.callers, m.fp, &known.FP)
	if certain {
		res.FP += n
	}
	if certain && !same {
		differ(PartFP)
	}
}

// holds reports whether a value is at the location that a rule gives. If certain is false, this is unknown. The value
// may be in several locations: in its register until that is overwritten, and in memory below the stack pointer until
// that is overwritten.
func (c *comparison) holds(v *savedValue, reg int, rule *cfi.Rule) (same, certain bool) {
	switch rule.Rule {
	case cfi.RuleArchitectural, cfi.RuleSameVal:
		same = v.regs>>reg&1 != 0
	case cfi.RuleRegister:
		same = rule.Reg < uint64(len(c.machine.registers)) && v.regs>>c.machine.registers[rule.Reg]&1 != 0
	case cfi.RuleOffset:
		same = v.slot == rule.Offset || v.stale == rule.Offset
	default:
		return false, false
	}
	return same, same || c.traced
}

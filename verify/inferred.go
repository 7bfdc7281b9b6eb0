package verify

import (
	"debug/elf"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"sort"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
)

// Inferred rows are claims, and this is a proof checker for them: the row before an instruction and the effect of the
// instruction imply the row after it, wherever control goes. There is no search. Instructions are decoded in two
// passes. The first pass finds their starts and the targets of jumps; the second compares their effects with the rows.
// Plain instructions, which change neither general registers nor memory, are decoded only in the first pass.
//
// Between adjacent instructions the checker knows more than the rows say, for example where registers point. At a jump
// target, it knows only the row and, if the row says that the frame pointer is in its register, whether it is also
// saved (see settle).
//
// The calling convention is the contract between components. A component is refused for its own faults only; its
// callers then rely on the convention, as they do for imported functions.

// A Violation tells why rows are rejected.
type Violation struct {
	PC   uint64
	What string
}

func (v Violation) String() string { return fmt.Sprintf("%#x: %s", v.PC, v.What) }

// A component is a set of functions connected by jumps.
type component struct {
	number    int
	lost      uint32 // registers that its functions or their callees may change
	losesFP   bool   // may return with a different frame pointer
	homes     homes
	refused   bool
	outermost bool // has no caller
	callers   []caller
	trusts    []trust
}

// A caller is a component that calls another component or jumps to it.
type caller struct {
	index int32
	jumps bool
}

// A trust is a component whose rows are right only if a call of another component preserves registers that the calling
// convention does not preserve.
type trust struct {
	index     int32
	registers uint32
	pc        uint64 // of the call
}

// A proof checks rows.
type proof struct {
	*cfi.Inference
	table   *cfi.Table // rows of other code, or nil
	code    codeReader
	first   []uint64 // by function: total size of the preceding functions
	starts  []uint64 // a bit per byte: start of an instruction
	plain   []uint64 // a bit per byte: start of a plain instruction
	aimed   []uint64 // a bit per byte: target of a jump or call
	settled []uint64 // a bit per byte: a jump to the byte, or the preceding instruction, was checked
	saved   []uint64 // a bit per byte: the frame pointer was in its slot as well as in its register
	index   []int32  // by function: its component
	slots   []int64  // by function: location of the frame pointer in the first row in which it is saved
	parts   []component
	refused map[int]Violation
	machine *proofMachine
	vm      machine // for expressions of the table
	in      decoder
	size    uint64 // of the current instruction, or of a run of plain instructions
	skips   bool   // the current instructions are plain, and not decoded again
	sp      int64  // in the first pass: location to which the stack pointer points, or 1 if unknown
	decoded int    // number of decoded instructions
	step    func(done float64) error
	visited uint64 // size of the functions visited so far in bytes, in all passes
	err     error  // from step
}

// Code compares inferred rows with the instructions. It returns the rejected components and the reasons. The table
// gives the rows of other code; if it is nil, no other code has rows. The function step is called with the share of the
// work that is done, from 0 to 1; if it returns an error, the comparison ends.
func Code(f *elffile.File, t *cfi.Table, inf *cfi.Inference, step func(done float64) error) (
	map[int]Violation, error,
) {
	p, err := newProof(f, t, inf)
	if err != nil {
		return nil, err
	}
	p.step = step
	p.run()
	return p.refused, p.err
}

func newProof(f *elffile.File, t *cfi.Table, inf *cfi.Inference) (*proof, error) {
	p := &proof{Inference: inf, table: t, code: codeReader{file: f}, refused: make(map[int]Violation)}
	switch elf.Machine(f.Machine) {
	case elf.EM_X86_64:
		p.machine, p.in = &amd64Proof, new(instruction)
	case elf.EM_AARCH64:
		p.machine, p.in = &a64Proof, new(a64)
	default:
		return nil, fmt.Errorf("inferred rows cannot be verified for machine %v", elf.Machine(f.Machine))
	}
	p.vm = machine{order: f.Order, pcReg: uint64(len(p.machine.registers))} // the number after the general registers
	start := int32(-1)                                                      // component with the entry point
	numbers := make(map[int]int32)
	p.first = make([]uint64, len(p.Functions)+1)
	p.index = make([]int32, len(p.Functions))
	p.slots = make([]int64, len(p.Functions))
	end := uint64(0)
	for i := range p.Functions {
		fn := &p.Functions[i]
		if fn.Begin < end || fn.End <= fn.Begin {
			return nil, errors.New("inferred functions are not in order")
		}
		end = fn.End
		c, known := numbers[fn.Component]
		if !known {
			c = int32(len(p.parts))
			numbers[fn.Component] = c
			p.parts = append(p.parts, component{number: fn.Component})
			p.parts[c].outermost = len(fn.Rows) > 0 && fn.Rows[0].Outermost
		}
		p.index[i] = c
		if fn.Begin == f.Entry {
			start = c
		}
		p.first[i+1] = p.first[i] + fn.End - fn.Begin
		if _, ok := f.FileOffset(fn.Begin, fn.End-fn.Begin); !ok {
			p.first[i+1] = p.first[i]
			p.refuse(i, fn.Begin, "code is not in the file")
		} else if what := p.malformed(fn); what != "" {
			p.refuse(i, fn.Begin, what)
		}
		for k := 0; k < len(fn.Rows) && p.slots[i] == 0; k++ {
			p.slots[i] = int64(fn.Rows[k].FP)
		}
	}
	for i := range p.Functions {
		fn, c := &p.Functions[i], &p.parts[p.index[i]]
		other := func(r cfi.InferredRow) bool { return r.Outermost != c.outermost }
		switch {
		case c.outermost && p.index[i] != start:
			p.refuse(i, fn.Begin, "code without a caller is not at the entry point")
		case slices.ContainsFunc(fn.Rows, other):
			p.refuse(i, fn.Begin, "only some rows have a caller")
		}
	}
	words := p.first[len(p.Functions)]/64 + 1
	p.starts, p.plain, p.aimed = make([]uint64, words), make([]uint64, words), make([]uint64, words)
	p.settled, p.saved = make([]uint64, words), make([]uint64, words)
	return p, nil
}

// malformed returns what is wrong with the rows of a function, regardless of its code, or "".
func (p *proof) malformed(fn *cfi.InferredFunction) string {
	if len(fn.Rows) == 0 || fn.Rows[0].Off != 0 {
		return "no row at the start"
	}
	for i := range fn.Rows {
		r, m := &fn.Rows[i], p.machine
		switch {
		case i > 0 && r.Off <= fn.Rows[i-1].Off, uint64(r.Off) >= fn.End-fn.Begin:
			return "rows are not in order"
		case int(r.Reg) >= len(m.registers),
			m.registers[r.Reg] == m.sp && int64(r.Offset) < m.entry && !r.Outermost:
			return "invalid CFA"
		case r.FP != 0 && (int64(r.FP) > -m.entry-8 || r.Lost):
			return "invalid location of the frame pointer"
		case r.RA > 0, int(r.RAReg) >= len(m.registers), m.ra < 0 && (r.RA != 0 || r.RAReg != 0 || r.Kept || r.Signed):
			return "invalid location of the return address"
		}
	}
	return ""
}

// refuse rejects the rows of the component that contains a function.
func (p *proof) refuse(fn int, pc uint64, what string) {
	c := &p.parts[p.index[fn]]
	if !c.refused {
		c.refused = true
		p.refused[c.number] = Violation{pc, what}
	}
}

func (p *proof) run() {
	p.effects()
	for _, start := range slices.Sorted(maps.Keys(p.From)) {
		p.from(start, p.From[start])
	}
	p.walk(p.again, false)
	if callers := p.misled(); len(callers) > 0 {
		p.walk(func(fn int, pc, last uint64) bool { return callers[p.index[fn]] && p.again(fn, pc, last) }, true)
	}
	p.distrust()
}

// walk compares the rows with the instructions that the function decode accepts. In the second walk, components must
// not turn out to change more registers.
func (p *proof) walk(decode func(fn int, pc, end uint64) bool, second bool) {
	w := &walk{proof: p, frame: frameFacts{proofMachine: p.machine}, second: second}
	p.iterate(decode, w.check)
	w.leave()
}

// misled returns the components that call components which may change callee-saved registers. The first walk takes
// these registers to be preserved by all components.
func (p *proof) misled() map[int32]bool {
	callers := make(map[int32]bool)
	p.propagateAll()
	for i := range p.parts {
		if p.parts[i].lost&p.machine.kept() == 0 {
			continue
		}
		callers[int32(i)] = true // it may call itself
		for _, from := range p.parts[i].callers {
			callers[from.index] = true
		}
	}
	return callers
}

// effects finds the starts of instructions, the targets of jumps and calls, and the effects of all components.
func (p *proof) effects() {
	p.iterate(p.decode, p.survey)
	p.propagateAll()
}

// iterate calls visit for each instruction of all functions, with its row. The function decode decodes the instruction
// at pc, whose row extends to end.
func (p *proof) iterate(decode func(fn int, pc, end uint64) bool, visit func(fn int, pc uint64, r *cfi.InferredRow)) {
	for i := range p.Functions {
		fn := &p.Functions[i]
		if p.first[i] == p.first[i+1] || p.malformed(fn) != "" {
			continue
		}
		if p.stopped(fn.End - fn.Begin) {
			return
		}
		row, last := -1, fn.Begin
		for pc := fn.Begin; pc < fn.End; pc += p.size {
			if pc > last {
				p.refuse(i, pc, "row starts inside an instruction")
				break
			}
			if pc == last {
				row++
				if last = fn.End; row+1 < len(fn.Rows) {
					last = fn.Begin + uint64(fn.Rows[row+1].Off)
				}
			}
			if !decode(i, pc, last) {
				break
			}
			visit(i, pc, &fn.Rows[row])
		}
	}
}

// stopped reports whether the comparison is to end before the next function, which has the given size.
func (p *proof) stopped(size uint64) bool {
	const passes = 2 // a third visits few functions
	if p.err == nil && p.step != nil {
		p.err = p.step(min(1, float64(p.visited)/float64(passes*p.first[len(p.Functions)])))
	}
	p.visited += size
	return p.err != nil
}

// decode decodes an instruction of a function.
func (p *proof) decode(fn int, pc, _ uint64) bool {
	p.decoded++
	ok := p.in.decode(p.code.read(pc, min(p.Functions[fn].End-pc, p.machine.reads)))
	if !ok {
		p.refuse(fn, pc, "unknown instruction")
	}
	p.size, p.skips = uint64(p.in.codeSize()), false
	return ok
}

// again is like decode, for the second pass. It skips runs of plain instructions with a single row and no jump targets.
func (p *proof) again(fn int, pc, last uint64) bool {
	word, mask := p.bit(fn, pc)
	if p.starts[word]&mask == 0 { // the first pass did not reach this instruction
		return false
	}
	if p.plain[word]&mask == 0 {
		return p.decode(fn, pc, last)
	}
	n, at := uint64(1), p.first[fn]+pc-p.Functions[fn].Begin+1
	for n < last-pc {
		stops := (p.starts[at/64]&^p.plain[at/64] | p.aimed[at/64]) >> (at % 64)
		if stops != 0 {
			n += uint64(bits.TrailingZeros64(stops))
			break
		}
		n += 64 - at%64
		at += 64 - at%64
	}
	p.size, p.skips = min(n, last-pc), true
	return true
}

// find returns the index of the function that contains an address. It tries p.Functions[near] first.
func (p *proof) find(near int, addr uint64) (fn int, ok bool) {
	if near < len(p.Functions) && p.Functions[near].Begin <= addr && addr < p.Functions[near].End {
		return near, true
	}
	i := sort.Search(len(p.Functions), func(i int) bool { return p.Functions[i].End > addr })
	return i, i < len(p.Functions) && p.Functions[i].Begin <= addr
}

// bit returns the position of an address of a function in the bit sets p.starts, p.plain, p.aimed, p.settled and
// p.saved.
func (p *proof) bit(fn int, addr uint64) (word uint64, mask uint64) {
	n := p.first[fn] + min(addr-p.Functions[fn].Begin, p.first[fn+1]-p.first[fn])
	return n / 64, 1 << (n % 64)
}

// row returns the row of a function that applies at addr, or nil.
func (p *proof) row(fn int, addr uint64) *cfi.InferredRow {
	rows := p.Functions[fn].Rows
	off := addr - p.Functions[fn].Begin
	i := sort.Search(len(rows), func(i int) bool { return uint64(rows[i].Off) > off })
	if i == 0 {
		return nil
	}
	return &rows[i-1]
}

// isEntry reports whether a row is that of a function entry.
func (p *proof) isEntry(r *cfi.InferredRow) bool {
	return r != nil && *r == cfi.InferredRow{Off: r.Off, Reg: r.Reg, Offset: int32(p.machine.entry),
		RAReg: uint8(max(p.machine.ra, 0)), Outermost: r.Outermost} && p.machine.registers[r.Reg] == p.machine.sp
}

// isStart reports whether an address is the start of a function, with the row of a function entry.
func (p *proof) isStart(fn int, addr uint64) bool {
	return addr == p.Functions[fn].Begin && p.isEntry(p.row(fn, addr))
}

// from checks the row at start, to which the instruction at pc jumps. The table must have the same row at pc.
func (p *proof) from(start, pc uint64) {
	fn, ok := p.find(0, start)
	if !ok {
		return
	}
	row, ok, _ := p.rowOf(pc)
	known := frameFacts{proofMachine: p.machine}
	if there := p.row(fn, start); ok && there != nil {
		known.reduce(&row)
		n := min(p.table.Find(pc).End-pc, p.machine.reads)
		if p.in.decode(p.code.read(pc, n)) && p.in.flow().jumps() && p.in.target(pc) == start && known.agrees(there) {
			p.aim(fn, start)
			return
		}
	}
	p.refuse(fn, start, "the row is not that of the jump to it")
}

// rowOf returns the row of the table at pc. If ok is false, there is none, or it cannot be expressed. If described is
// false, the table does not contain the code.
func (p *proof) rowOf(pc uint64) (row cfi.InferredRow, ok, described bool) {
	if p.table == nil || p.table.Find(pc) == nil {
		return row, false, false
	}
	known, ok := p.table.Lookup(pc)
	if !ok {
		return row, false, true
	}
	rules := *known.Rules
	if sp := uint64(slices.Index(p.machine.registers, p.machine.sp)); rules.CFA.Rule == cfi.RuleExpression { // a PLT
		p.vm.pc = pc
		cfa, err := p.vm.run(rules.CFA.Expression)
		if err != nil {
			return row, false, true
		}
		rules.CFA = cfi.Rule{Rule: cfi.RuleCFA, Reg: sp, Offset: int64(cfa - p.vm.reg(sp))}
	}
	if sp := &rules.SP; sp.Rule != cfi.RuleArchitectural && (sp.Rule != cfi.RuleValOffset || sp.Offset != 0) {
		return row, false, true
	}
	lost := rules.FP.Rule == cfi.RuleUndefined
	if lost {
		rules.FP = cfi.Rule{Rule: cfi.RuleArchitectural}
	}
	row, ok = cfi.InferredFrom(p.table.Machine, &rules)
	row.Lost = lost
	return row, ok && int(row.Reg) < len(p.machine.registers) && int(row.RAReg) < len(p.machine.registers), true
}

// survey records what the current instruction implies for other code.
func (p *proof) survey(fn int, pc uint64, r *cfi.InferredRow) {
	in, c := p.in, &p.parts[p.index[fn]]
	word, mask := p.bit(fn, pc)
	p.starts[word] |= mask
	written, control := in.written(), in.flow()
	c.lost |= written &^ p.machine.saved
	p.sp = c.homes.find(p.machine, in, r, p.sp)
	if control == flowNext && written == 0 && in.isPlain() {
		p.plain[word] |= mask
	}
	next := pc + p.size
	switch control {
	case flowJump, flowBranch:
		if to := in.target(pc); to != next+1 || !p.isLocked(fn, next) {
			p.leads(fn, to, r)
		}
	case flowIndirect:
		for _, addr := range p.Jumps[pc] {
			p.leads(fn, addr, r)
		}
		if len(p.Jumps[pc]) == 0 {
			c.leaves(p.machine, r)
		}
	case flowReturn, flowReturnBy:
		c.losesFP = c.losesFP || r.Lost
	case flowCallIndirect:
		c.lost |= ^p.machine.saved
	case flowCall:
		to, ok := p.find(fn, in.target(pc))
		if !ok {
			c.lost |= ^p.machine.saved
			break
		}
		p.aim(to, in.target(pc))
		p.addCaller(fn, to, false)
		switch there := p.row(to, in.target(pc)); {
		case there == nil || p.malformed(&p.Functions[to]) != "":
		case !p.isEntry(there):
			p.refuse(to, in.target(pc), "row at the target of a call is not that of a function entry")
		case there.Outermost:
			p.refuse(to, in.target(pc), "code without a caller is called")
		}
	}
	if next == p.Functions[fn].End && control.continues() && !p.NoReturn[pc] {
		p.leads(fn, next, r)
	}
}

// isLocked reports whether an instruction of a function starts with a lock prefix, without which it does the same. A
// branch to the address after the prefix goes on as if it were not taken.
func (p *proof) isLocked(fn int, pc uint64) bool {
	if p.machine.ra >= 0 || pc >= p.Functions[fn].End {
		return false
	}
	code := p.code.read(pc, min(p.Functions[fn].End-pc, p.machine.reads))
	with, known := decodeAMD64(code)
	return known && code[0] == lock && with.flow() == flowNext && with.written()>>p.machine.sp&1 == 0 && with.rm < 0
}

// leads records that control reaches an address, other than by a call.
func (p *proof) leads(fn int, addr uint64, r *cfi.InferredRow) {
	to, ok := p.find(fn, addr)
	if !ok {
		p.parts[p.index[fn]].leaves(p.machine, r)
		return
	}
	p.aim(to, addr)
	p.addCaller(fn, to, true)
}

// leaves records that control reaches unknown code.
func (c *component) leaves(m *proofMachine, r *cfi.InferredRow) {
	c.losesFP = c.losesFP || r.Lost
	c.lost |= ^m.saved
}

// aim records that control reaches an address other than from the preceding instruction.
func (p *proof) aim(fn int, addr uint64) {
	word, mask := p.bit(fn, addr)
	p.aimed[word] |= mask
}

// addCaller records that a function calls another function or jumps to it.
func (p *proof) addCaller(fn, to int, jumps bool) {
	callee, from := &p.parts[p.index[to]], caller{p.index[fn], jumps}
	if n := len(callee.callers); p.index[fn] != p.index[to] && (n == 0 || callee.callers[n-1] != from) {
		callee.callers = append(callee.callers, from)
	}
}

// propagateAll adds the effects of all components to those of their callers.
func (p *proof) propagateAll() {
	work := make([]int32, len(p.parts))
	for i := range work {
		work[i] = int32(i)
	}
	p.propagate(work)
}

// propagate adds the effects of the given components to those of their callers. It rejects components whose callees
// change registers on which they rely.
func (p *proof) propagate(work []int32) {
	for len(work) > 0 {
		last := len(work) - 1
		callee := &p.parts[work[last]]
		work = work[:last]
		for _, from := range callee.callers {
			c := &p.parts[from.index]
			lost, losesFP := callee.lost, c.losesFP || from.jumps && callee.losesFP
			if !from.jumps { // the second walk checks whether the caller restores what it saves
				lost &^= c.homes.registers
			}
			lost |= c.lost
			if lost != c.lost || losesFP != c.losesFP {
				c.lost, c.losesFP = lost, losesFP
				work = append(work, from.index)
			}
		}
		for _, t := range callee.trusts {
			if c := &p.parts[t.index]; callee.lost&t.registers != 0 && !c.refused {
				c.refused = true
				c.lost |= ^p.machine.saved
				p.refused[c.number] = Violation{t.pc, "the called function may change the register of the CFA"}
				work = append(work, t.index)
			}
		}
	}
}

// distrust lets callers of rejected components assume the calling convention only.
func (p *proof) distrust() {
	var work []int32
	for i := range p.parts {
		if c := &p.parts[i]; c.refused {
			c.lost |= ^p.machine.saved
			work = append(work, int32(i))
		}
	}
	p.propagate(work)
}

// A walk compares rows with instructions.
type walk struct {
	*proof
	frame  frameFacts       // before the current instruction, if control arrives from the preceding one:
	at     uint64           // the address after the preceding instruction, or 0 if execution does not continue there
	from   int              // the function that contains the preceding instruction
	last   *cfi.InferredRow // its row
	second bool
}

// check compares the current instruction with the rows. If a row contradicts what the checker knows, the checker
// continues with what the row says.
func (w *walk) check(fn int, pc uint64, r *cfi.InferredRow) {
	if w.at != pc {
		w.leave()
	}
	word, mask := w.bit(fn, pc)
	arrives, start := w.at == pc, w.isStart(fn, pc)
	joined := w.aimed[word]&mask != 0 || arrives && (start || w.index[w.from] != w.index[fn])
	switch {
	case arrives && w.index[w.from] != w.index[fn]:
		w.cross(fn, pc, w.from, pc, r)
	case arrives && (!w.agrees(fn, r) || joined && !w.enter(fn, pc, r)):
		w.refuse(fn, pc, "preceding instructions imply a different row")
		w.frame.reduce(r)
	case !arrives && !joined && !w.isEntry(r):
		w.refuse(fn, pc, "row of unreachable code is not that of a function entry")
	}
	if w.at != pc && joined { // backward jumps are not checked yet; assume the frame of the component's preceding code
		if w.index[w.from] != w.index[fn] {
			w.frame.reduce(r)
		}
		w.settle(fn, pc, r)
	}
	if c := &w.parts[w.index[fn]]; w.at != pc || joined || w.frame.homes != &c.homes {
		w.frame.reduce(r)
		w.frame.homes = &c.homes
		w.frame.kept, w.frame.stored = c.homes.expected(w.machine, r)
		if w.saved[word]&mask != 0 {
			w.frame.callers.slot = w.slots[fn]
		}
	}
	w.from, w.last, w.at = fn, r, pc+w.size
	if w.skips {
		return
	}
	w.step(fn, pc, r)
	if m := w.machine; w.frame.known>>m.sp&1 != 0 && w.frame.off[m.sp] > -m.entry && w.at != 0 && !r.Outermost {
		w.refuse(fn, pc, "the stack pointer is above the return address")
	}
}

// enter checks that what the frame says about saved registers is what is expected at a jump target.
func (w *walk) enter(fn int, pc uint64, r *cfi.InferredRow) bool {
	c := &w.parts[w.index[fn]]
	kept, stored := c.homes.expected(w.machine, r)
	if kept &^= w.frame.kept; w.frame.homes == &c.homes {
		stored &^= w.frame.stored
	}
	w.lose(fn, pc, kept|stored)
	return w.settle(fn, pc, r)
}

// settle makes all paths to an address agree on whether the frame pointer is in its slot as well as in its register,
// which rows cannot express. The first path to an address decides; on a later path, settle returns false if the slot
// held the frame pointer on the first path, but not on this one.
func (w *walk) settle(fn int, pc uint64, r *cfi.InferredRow) bool {
	if w.slots[fn] == 0 {
		w.slots[fn] = w.frame.callers.slot
	}
	saved := r.FP == 0 && !r.Lost && !w.isEntry(r) && w.frame.callers.slot != 0 && w.frame.callers.slot == w.slots[fn]
	word, mask := w.bit(fn, pc)
	if w.settled[word]&mask == 0 {
		w.settled[word] |= mask
		if saved {
			w.saved[word] |= mask
		}
	}
	return saved || w.saved[word]&mask == 0
}

// agrees reports whether the frame implies a row of a function. In code without a caller, unknown registers may have
// any value, because no reader uses the row.
func (w *walk) agrees(fn int, r *cfi.InferredRow) bool {
	if !w.parts[w.index[fn]].outermost {
		return w.frame.agrees(r)
	}
	reg := w.machine.registers[r.Reg]
	return w.frame.known>>reg&1 == 0 || w.frame.off[reg] == -int64(r.Offset)
}

// cross checks that control goes from pc in one component to addr in another, which has the given row there.
func (w *walk) cross(to int, addr uint64, fn int, pc uint64, there *cfi.InferredRow) {
	w.restores(fn, pc)
	switch {
	case w.parts[w.index[to]].outermost:
		w.refuse(to, addr, "code without a caller is reached from other code")
	case w.isStart(to, addr):
		if !w.parts[w.index[fn]].outermost && !w.frame.agrees(there) {
			w.refuse(fn, pc, "exit to a function with a different frame")
		}
	case !w.frame.agrees(there) || !w.enter(to, addr, there):
		w.refuse(fn, pc, "exit to code with a different row")
		w.refuse(to, addr, "other code goes on here with a different row")
	}
}

// leave checks the code after the last instruction of a function, if that code has no rows.
func (w *walk) leave() {
	switch {
	case w.at == 0:
	case w.code.read(w.at, 1) == nil:
		w.refuse(w.from, w.at, "falls through past the end of the code")
	default:
		w.jump(w.from, w.at, w.at, w.last)
	}
}

// step executes the current instruction.
func (w *walk) step(fn int, pc uint64, r *cfi.InferredRow) {
	in := w.in
	switch in.flow() {
	case flowNext, flowSystem:
		if what := in.execute(&w.frame); what != "" && !r.Outermost {
			w.refuse(fn, pc, what)
		}
		if w.NoReturn[pc] && in.flow() == flowSystem {
			w.at = 0
		}
	case flowCall, flowCallIndirect:
		w.call(fn, pc)
		if w.NoReturn[pc] {
			w.at = 0
		}
	case flowBranch:
		w.frame.clear(in.written())
		if to := in.target(pc); to != pc+w.size+1 || !w.isLocked(fn, pc+w.size) {
			w.jump(fn, to, pc, r)
		}
	case flowJump:
		w.jump(fn, in.target(pc), pc, r)
		w.at = 0
	case flowIndirect:
		targets := w.Jumps[pc]
		for _, addr := range targets {
			w.jump(fn, addr, pc, r)
		}
		if len(targets) == 0 {
			w.exit(fn, pc, r)
		}
		w.at = 0
	case flowReturnBy:
		in.execute(&w.frame)
		fallthrough
	case flowReturn:
		w.exit(fn, pc, r)
		w.at = 0
	case flowBreakpoint:
		if !w.goesOn(fn, pc+w.size) {
			w.at = 0
		}
	case flowTrap:
		w.at = 0
	default:
		w.refuse(fn, pc, "instruction with an unknown effect on the stack")
		w.at = 0
	}
}

// goesOn reports whether control must go from a breakpoint to the next instruction, because nothing else leads there.
func (w *walk) goesOn(fn int, next uint64) bool {
	if next >= w.Functions[fn].End || w.isEntry(w.row(fn, next)) {
		return false
	}
	word, mask := w.bit(fn, next)
	return w.aimed[word]&mask == 0
}

// jump checks a jump to an address.
func (w *walk) jump(fn int, addr, pc uint64, r *cfi.InferredRow) {
	to, ok := w.find(fn, addr)
	if !ok {
		w.outside(fn, addr, pc, r)
		return
	}
	word, mask := w.bit(to, addr)
	there := w.row(to, addr)
	switch {
	case w.starts[word]&mask == 0 && w.index[to] != w.index[fn] && w.parts[w.index[to]].refused:
		w.exit(fn, pc, r)
	case w.starts[word]&mask == 0:
		w.refuse(fn, pc, "jump into the middle of an instruction")
		w.refuse(to, addr, "jump target inside an instruction")
	case w.index[to] != w.index[fn]:
		w.cross(to, addr, fn, pc, there)
	case !w.agrees(fn, there) || !w.enter(to, addr, there):
		w.refuse(fn, pc, "jump to code with a different row")
	}
}

// outside checks that control goes from pc to addr, which is not in a component: the table has the same row there, or
// the frame is the same as at function entry.
func (w *walk) outside(fn int, addr, pc uint64, r *cfi.InferredRow) {
	w.restores(fn, pc)
	switch there, ok, described := w.rowOf(addr); {
	case !described || ok && w.isEntry(&there):
		w.exit(fn, pc, r)
	case !ok || !w.frame.agrees(&there):
		w.refuse(fn, pc, "exit to code whose CFI has a different row")
	}
}

// exit checks that the frame is the same as at function entry.
func (w *walk) exit(fn int, pc uint64, r *cfi.InferredRow) {
	w.restores(fn, pc)
	switch {
	case r.Outermost:
	case !w.frame.pointsTo(w.machine.sp, -w.machine.entry):
		w.refuse(fn, pc, "exit with a different stack pointer")
	case !w.frame.callers.isIn(w.machine.fp, 0) && !r.Lost:
		w.refuse(fn, pc, "exit with a different frame pointer")
	case !w.frame.canReturn():
		w.refuse(fn, pc, "exit with a different return address")
	}
}

// restores records the registers that are not restored where control leaves a component.
func (w *walk) restores(fn int, pc uint64) { w.lose(fn, pc, w.machine.kept()&^w.frame.kept) }

// lose records that a component may change callee-saved registers.
func (w *walk) lose(fn int, pc uint64, regs uint32) {
	c := &w.parts[w.index[fn]]
	if regs &^= c.lost; regs != 0 && w.second {
		w.refuse(fn, pc, "registers that callees change are not restored")
	}
	c.lost |= regs
}

// call executes a call. The calling convention requires callees to preserve some registers. Callees with rows may
// preserve fewer registers, or more.
func (w *walk) call(fn int, pc uint64) {
	m := w.machine
	w.frame.store(m.sp, -m.entry, m.entry, -1)
	w.frame.discardBelowSP()
	w.frame.word.below(m.sp, true)
	lost := ^m.saved
	if to, ok := w.find(fn, w.in.target(pc)); ok && w.in.flow() == flowCall {
		callee := &w.parts[w.index[to]]
		if callee.refused {
			callee.lost |= ^m.saved
		}
		after := w.row(fn, pc+w.size)
		kept := uint32(1) << m.registers[after.Reg]
		if m.ra >= 0 {
			kept |= 1 << m.registers[after.RAReg]
		}
		kept &= (w.frame.known | w.frame.back.regs) &^ (callee.lost | m.saved)
		if kept != 0 && w.index[to] != w.index[fn] {
			callee.trusts = append(callee.trusts, trust{w.index[fn], kept, pc})
		}
		lost = lost&^kept | callee.lost&^(1<<m.sp|1<<m.fp)
		if callee.losesFP {
			lost |= 1 << m.fp
		}
	}
	if m.ra >= 0 {
		lost |= 1 << m.ra
	}
	w.frame.clear(lost)
}

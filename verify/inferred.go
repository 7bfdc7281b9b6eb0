package verify

import (
	"debug/elf"
	"errors"
	"fmt"
	"math/bits"
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

// A Violation tells why rows are rejected.
type Violation struct {
	PC   uint64
	What string
}

func (v Violation) String() string { return fmt.Sprintf("%#x: %s", v.PC, v.What) }

// A component is a set of functions connected by jumps.
type component struct {
	number  int
	written uint32 // registers that its functions or their callees write
	losesFP bool   // may return with a different frame pointer
	refused bool
	exits   bool // leaves with a frame that differs from that at its entry
	callers []caller
}

// A caller is a component that calls another component or jumps to it.
type caller struct {
	index int32
	jumps bool
}

// A proof checks rows.
type proof struct {
	code      codeReader
	functions []cfi.InferredFunction
	jumps     map[uint64][]uint64
	noReturn  map[uint64]bool
	first     []uint64 // by function: total size of the preceding functions
	starts    []uint64 // a bit per byte: start of an instruction
	plain     []uint64 // a bit per byte: start of a plain instruction
	aimed     []uint64 // a bit per byte: target of a jump
	settled   []uint64 // a bit per byte: a jump to the byte, or the preceding instruction, was checked
	saved     []uint64 // a bit per byte: the frame pointer was in its slot as well as in its register
	index     []int32  // by function: its component
	slots     []int64  // by function: location of the frame pointer in the first row in which it is saved
	parts     []component
	refused   map[int]Violation
	machine   *proofMachine
	in        decoder
	size      uint64 // of the current instruction, or of a run of plain instructions
	skips     bool   // the current instructions are plain, and not decoded again
	decoded   int    // number of decoded instructions
}

// Code compares inferred rows with the instructions. It returns the rejected components and the reasons.
func Code(f *elffile.File, inf *cfi.Inference) (map[int]Violation, error) {
	p, err := newProof(f, inf)
	if err != nil {
		return nil, err
	}
	return p.refused, p.run(f)
}

func newProof(f *elffile.File, inf *cfi.Inference) (*proof, error) {
	p := &proof{code: codeReader{file: f}, functions: inf.Functions, jumps: inf.Jumps, noReturn: inf.NoReturn,
		refused: make(map[int]Violation)}
	switch elf.Machine(f.Machine) {
	case elf.EM_X86_64:
		p.machine, p.in = &amd64Proof, new(instruction)
	case elf.EM_AARCH64:
		p.machine, p.in = &a64Proof, new(a64)
	default:
		return nil, fmt.Errorf("inferred rows cannot be verified for machine %v", elf.Machine(f.Machine))
	}
	numbers := make(map[int]int32)
	p.first = make([]uint64, len(p.functions)+1)
	p.index = make([]int32, len(p.functions))
	p.slots = make([]int64, len(p.functions))
	end := uint64(0)
	for i := range p.functions {
		fn := &p.functions[i]
		if fn.Begin < end || fn.End <= fn.Begin {
			return nil, errors.New("inferred functions are not in order")
		}
		end = fn.End
		c, known := numbers[fn.Component]
		if !known {
			c = int32(len(p.parts))
			numbers[fn.Component] = c
			p.parts = append(p.parts, component{number: fn.Component})
		}
		p.index[i] = c
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
	words := p.first[len(p.functions)]/64 + 1
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
		case int(r.Reg) >= len(m.registers), m.registers[r.Reg] == m.sp && int64(r.Offset) < m.entry:
			return "invalid CFA"
		case r.FP != 0 && (int64(r.FP) > -m.entry-8 || r.Lost):
			return "invalid location of the frame pointer"
		case r.RA > 0, int(r.RAReg) >= len(m.registers), m.ra < 0 && (r.RA != 0 || r.Kept || r.Signed):
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

func (p *proof) run(f *elffile.File) error {
	p.iterate(p.decode, p.survey)
	for _, table := range []elf.SectionType{elf.SHT_SYMTAB, elf.SHT_DYNSYM} {
		err := f.Symbols(table, func(_ *elffile.Section, sym elffile.Symbol) {
			if fn, ok := p.find(0, sym.Value); ok && elf.ST_TYPE(sym.Info) == elf.STT_FUNC && sym.Section > 0 {
				p.entry(fn, sym.Value, "row at a function symbol is not that of a function entry")
			}
		})
		if err != nil {
			return err
		}
	}
	p.callees()
	w := &walk{proof: p, frame: frameFacts{proofMachine: p.machine}}
	p.iterate(p.again, w.check)
	w.leave()
	p.spread()
	return nil
}

// iterate calls visit for each instruction of all functions, with its row. The function decode decodes the instruction
// at pc, whose row extends to end.
func (p *proof) iterate(decode func(fn int, pc, end uint64) bool, visit func(fn int, pc uint64, r *cfi.InferredRow)) {
	for i := range p.functions {
		fn := &p.functions[i]
		if p.first[i] == p.first[i+1] || p.malformed(fn) != "" {
			continue
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

// decode decodes an instruction of a function.
func (p *proof) decode(fn int, pc, _ uint64) bool {
	p.decoded++
	ok := p.in.decode(p.code.read(pc, min(p.functions[fn].End-pc, p.machine.reads)))
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
	n, at := uint64(1), p.first[fn]+pc-p.functions[fn].Begin+1
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

// find returns the index of the function that contains an address. It tries p.functions[near] first.
func (p *proof) find(near int, addr uint64) (fn int, ok bool) {
	if near < len(p.functions) && p.functions[near].Begin <= addr && addr < p.functions[near].End {
		return near, true
	}
	i := sort.Search(len(p.functions), func(i int) bool { return p.functions[i].End > addr })
	return i, i < len(p.functions) && p.functions[i].Begin <= addr
}

// bit returns the position of an address of a function in the bit sets p.starts, p.plain, p.aimed, p.settled and
// p.saved.
func (p *proof) bit(fn int, addr uint64) (word uint64, mask uint64) {
	n := p.first[fn] + min(addr-p.functions[fn].Begin, p.first[fn+1]-p.first[fn])
	return n / 64, 1 << (n % 64)
}

// row returns the row of a function that applies at addr, or nil.
func (p *proof) row(fn int, addr uint64) *cfi.InferredRow {
	rows := p.functions[fn].Rows
	off := addr - p.functions[fn].Begin
	i := sort.Search(len(rows), func(i int) bool { return uint64(rows[i].Off) > off })
	if i == 0 {
		return nil
	}
	return &rows[i-1]
}

// isEntry reports whether a row is that of a function entry.
func (p *proof) isEntry(r *cfi.InferredRow) bool {
	return r != nil && *r == cfi.InferredRow{Off: r.Off, Reg: r.Reg, Offset: int32(p.machine.entry),
		RAReg: uint8(max(p.machine.ra, 0))} &&
		p.machine.registers[r.Reg] == p.machine.sp
}

// entry rejects a function if its row at an address that may be called is not the row of a function entry.
func (p *proof) entry(fn int, addr uint64, what string) {
	if p.malformed(&p.functions[fn]) == "" && !p.isEntry(p.row(fn, addr)) {
		p.refuse(fn, addr, what)
	}
}

// survey records what the current instruction implies for other code.
func (p *proof) survey(fn int, pc uint64, r *cfi.InferredRow) {
	in, c := p.in, &p.parts[p.index[fn]]
	word, mask := p.bit(fn, pc)
	p.starts[word] |= mask
	written, control := in.written(), in.flow()
	c.written |= written
	if control == flowNext && written == 0 && in.isPlain() {
		p.plain[word] |= mask
	}
	aim := func(addr uint64) {
		to, ok := p.find(fn, addr)
		if !ok {
			c.losesFP = c.losesFP || r.Lost
			c.written |= ^p.machine.saved
			return
		}
		word, mask := p.bit(to, addr)
		p.aimed[word] |= mask
		p.addCaller(fn, to, true)
	}
	switch control {
	case flowJump, flowBranch:
		aim(in.target(pc))
	case flowIndirect:
		for _, addr := range p.jumps[pc] {
			aim(addr)
		}
		if len(p.jumps[pc]) == 0 {
			c.losesFP = c.losesFP || r.Lost
			c.written |= ^p.machine.saved
		}
	case flowReturn, flowReturnBy:
		c.losesFP = c.losesFP || r.Lost
	case flowCallIndirect:
		c.written |= ^p.machine.saved
	case flowCall:
		to, ok := p.find(fn, in.target(pc))
		if !ok {
			c.written |= ^p.machine.saved
			break
		}
		p.entry(to, in.target(pc), "row at the target of a call is not that of a function entry")
		p.addCaller(fn, to, false)
	}
}

// addCaller records that a function calls another function or jumps to it.
func (p *proof) addCaller(fn, to int, jumps bool) {
	callee, from := &p.parts[p.index[to]], caller{p.index[fn], jumps}
	if n := len(callee.callers); p.index[fn] != p.index[to] && (n == 0 || callee.callers[n-1] != from) {
		callee.callers = append(callee.callers, from)
	}
}

// callees propagates the effects of callees to their callers.
func (p *proof) callees() {
	work := make([]int32, len(p.parts))
	for i := range work {
		work[i] = int32(i)
	}
	for len(work) > 0 {
		last := len(work) - 1
		callee := &p.parts[work[last]]
		work = work[:last]
		for _, from := range callee.callers {
			c := &p.parts[from.index]
			written, losesFP := c.written|callee.written, c.losesFP || from.jumps && callee.losesFP
			if written != c.written || losesFP != c.losesFP {
				c.written, c.losesFP = written, losesFP
				work = append(work, from.index)
			}
		}
	}
}

// spread rejects components that call, or jump to, components that leave with a different frame.
func (p *proof) spread() {
	var work []int32
	for i := range p.parts {
		if p.parts[i].exits {
			work = append(work, int32(i))
		}
	}
	for len(work) > 0 {
		last := len(work) - 1
		callee := &p.parts[work[last]]
		work = work[:last]
		for _, from := range callee.callers {
			if c := &p.parts[from.index]; !c.exits {
				c.exits = true
				if !c.refused {
					c.refused = true
					pc := p.refused[callee.number].PC
					p.refused[c.number] = Violation{pc, "call to code that returns with a different frame"}
				}
				work = append(work, from.index)
			}
		}
		callee.callers = nil
	}
}

// A walk compares rows with instructions.
type walk struct {
	*proof
	frame  frameFacts       // before the current instruction, if control arrives from the preceding one:
	at     uint64           // the address after the preceding instruction, or 0 if execution does not continue there
	from   int              // the function that contains the preceding instruction
	last   *cfi.InferredRow // its row
	called bool             // it was a call
}

// check compares the current instruction with the rows. If a row contradicts what the checker knows, the checker
// continues with what the row says.
func (w *walk) check(fn int, pc uint64, r *cfi.InferredRow) {
	if w.at != pc {
		w.leave()
	}
	word, mask := w.bit(fn, pc)
	joined := w.aimed[word]&mask != 0
	switch arrives := w.at == pc; {
	case arrives && w.index[w.from] != w.index[fn]:
		if !w.called && (!w.frame.agrees(r) || !w.isEntry(r)) {
			w.refuse(w.from, pc, "falls through into another function")
			w.refuse(fn, pc, "another function falls through into it")
		}
		w.frame.reduce(r)
	case arrives && (!w.frame.agrees(r) || joined && !w.settle(fn, pc, r)):
		w.refuse(fn, pc, "preceding instructions imply a different row")
		w.frame.reduce(r)
	case !arrives && !joined && !w.isEntry(r):
		w.refuse(fn, pc, "row of unreachable code is not that of a function entry")
	}
	if w.at != pc && joined { // backward jumps are not checked yet; assume the frame of the preceding code
		w.settle(fn, pc, r)
	}
	if w.at != pc || joined {
		w.frame.reduce(r)
		if w.saved[word]&mask != 0 {
			w.frame.callers.slot = w.slots[fn]
		}
	}
	w.from, w.last, w.called, w.at = fn, r, false, pc+w.size
	if w.skips {
		return
	}
	w.step(fn, pc, r)
	if m := w.machine; w.frame.known>>m.sp&1 != 0 && w.frame.off[m.sp] > -m.entry && w.at != 0 {
		w.refuse(fn, pc, "the stack pointer is above the return address")
	}
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

// leave checks the code after the last instruction of a function, if that code has no rows.
func (w *walk) leave() {
	switch {
	case w.at == 0 || w.called:
	case w.code.read(w.at, 1) == nil:
		w.refuse(w.from, w.at, "falls through past the end of the code")
	default:
		w.exit(w.from, w.at, w.last)
	}
}

// step executes the current instruction.
func (w *walk) step(fn int, pc uint64, r *cfi.InferredRow) {
	in := w.in
	switch in.flow() {
	case flowNext:
		if what := in.execute(&w.frame); what != "" {
			w.refuse(fn, pc, what)
		}
	case flowCall, flowCallIndirect:
		w.called = true
		w.call(fn, pc)
		if w.noReturn[pc] {
			w.at = 0
		}
	case flowBranch:
		w.frame.clear(in.written())
		w.jump(fn, in.target(pc), pc, r)
	case flowJump:
		w.jump(fn, in.target(pc), pc, r)
		w.at = 0
	case flowIndirect:
		targets := w.jumps[pc]
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
	case flowTrap:
		w.at = 0
	default:
		w.refuse(fn, pc, "instruction with an unknown effect on the stack")
		w.at = 0
	}
}

// jump checks a jump to an address.
func (w *walk) jump(fn int, addr, pc uint64, r *cfi.InferredRow) {
	to, ok := w.find(fn, addr)
	if !ok {
		w.exit(fn, pc, r)
		return
	}
	word, mask := w.bit(to, addr)
	there := w.row(to, addr)
	switch {
	case w.starts[word]&mask == 0:
		w.refuse(fn, pc, "jump into the middle of an instruction")
		w.refuse(to, addr, "jump target inside an instruction")
	case there == nil || !w.frame.agrees(there) || !w.settle(to, addr, there),
		w.index[to] != w.index[fn] && !w.isEntry(there):
		w.refuse(fn, pc, "jump to code with a different row")
		w.refuse(to, addr, "jump here with a different row")
		w.parts[w.index[fn]].exits = w.parts[w.index[fn]].exits || w.index[to] != w.index[fn]
	}
}

// exit checks that the frame is the same as at function entry.
func (w *walk) exit(fn int, pc uint64, r *cfi.InferredRow) {
	what := ""
	switch {
	case !w.frame.pointsTo(w.machine.sp, -w.machine.entry):
		what = "exit with a different stack pointer"
	case !w.frame.callers.isIn(w.machine.fp, 0) && !r.Lost:
		what = "exit with a different frame pointer"
	case !w.frame.canReturn():
		what = "exit with a different return address"
	default:
		return
	}
	w.refuse(fn, pc, what)
	w.parts[w.index[fn]].exits = true
}

// call executes a call. The ABI requires callees to preserve some registers, but callees with rows may violate this.
func (w *walk) call(fn int, pc uint64) {
	m := w.machine
	w.frame.store(m.sp, -m.entry, m.entry, -1)
	w.frame.discardBelowSP()
	lost := ^m.saved
	if w.in.flow() == flowCall {
		if to, ok := w.find(fn, w.in.target(pc)); ok {
			callee := &w.parts[w.index[to]]
			lost = callee.written &^ (1<<m.sp | 1<<m.fp)
			if callee.losesFP {
				lost |= 1 << m.fp
			}
		}
	}
	if m.ra >= 0 {
		lost |= 1 << m.ra
	}
	w.frame.clear(lost)
}

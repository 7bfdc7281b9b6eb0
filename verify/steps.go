package verify

import (
	"math/bits"

	"cfi2sframe/cfi"
)

// A decoder decodes and executes the instructions of a machine, one at a time.
type decoder interface {
	decode(code []byte) bool
	codeSize() int  // in bytes
	stores() uint32 // bit set of the general registers that it may store
	flow() flow
	target(pc uint64) uint64             // of a direct jump or call
	written() uint32                     // bit set of the general registers that it writes or may write
	isPlain() bool                       // if written is 0: execute has no effect
	execute(s *frameFacts) (what string) // for instructions that fall through to the next; returns what is wrong, or ""
}

// A proofMachine describes a machine for the check of inferred rows. Registers are numbered as in instruction
// encodings.
type proofMachine struct {
	sp, fp, ra int    // ra is the register that holds the return address after a call, or -1
	entry      int64  // CFA - SP at function entry
	saved      uint32 // callee-saved registers
	reads      uint64 // maximum number of bytes read by decode
	registers  []int  // by DWARF number
}

// Source: System V ABI for AMD64, 3.2 and figure 3.36.
var amd64Proof = proofMachine{
	sp: rsp, fp: rbp, ra: -1, entry: 8, reads: reads,
	saved:     1<<rbx | 1<<rsp | 1<<rbp | 1<<12 | 1<<13 | 1<<14 | 1<<15,
	registers: []int{rax, rdx, rcx, rbx, rsi, rdi, rbp, rsp, 8, 9, 10, 11, 12, 13, 14, 15},
}

// A flow says where control goes after an instruction.
type flow uint8

const (
	flowNext flow = iota
	flowCall
	flowCallIndirect
	flowJump
	flowBranch
	flowIndirect
	flowReturn
	flowReturnBy // a return; execute first authenticates the return address, or copies it to its register
	flowTrap
	flowBreakpoint // a trap, after which a signal handler or a debugger may go on
	flowSystem     // a system call
	flowUnknown
)

// jumps reports whether control goes to a fixed address other than the next instruction, or may go there.
func (f flow) jumps() bool { return f == flowJump || f == flowBranch }

// continues reports whether control may go to the next instruction, at once or after a call.
func (f flow) continues() bool { return f <= flowCallIndirect || f == flowBranch || f == flowSystem }

// flow returns where control goes.
func (in *instruction) flow() flow {
	jump, conditional := in.isJump()
	switch {
	case conditional:
		return flowBranch
	case jump:
		return flowJump
	}
	switch in.op {
	case 0xe8:
		if in.imm != 0 || !in.popNext { // otherwise it only pushes the address of the next instruction
			return flowCall
		}
	case 0xc3:
		return flowReturn
	case 0xcc: // int3
		return flowBreakpoint
	case 0xf1, 0xf4, 0x0f0b, 0x0fb9, 0x0fff: // int1, hlt, ud2, ud1, ud0
		return flowTrap
	case 0x0f05, 0x0f34, 0xcd:
		return flowSystem
	case 0xc2, 0xc8, 0xca, 0xcb, 0xcf, 0x0f07, 0x0f35, 0x0faa: // ret n, enter, far return, iret, sysret, sysexit, rsm
		return flowUnknown
	case 0xff:
		switch in.reg & 7 {
		case 2:
			return flowCallIndirect
		case 4:
			return flowIndirect
		case 3, 5:
			return flowUnknown
		}
	}
	return flowNext
}

// stores returns the registers that it may store as a whole.
func (in *instruction) stores() uint32 {
	switch {
	case in.op&^7 == 0x50:
		return 1 << in.rm
	case in.op == 0x89 && in.rm < 0:
		return 1 << in.reg
	}
	return 0
}

// frameFacts holds what is known about the frame before an instruction. Locations are in bytes from the CFA.
type frameFacts struct {
	*proofMachine
	known   uint32     // registers that point to known locations
	off     [32]int64  // these locations, by register
	callers savedValue // the caller's frame pointer
	back    savedValue // the return address, if it is in a register at function entry
	signed  bool       // the return address is signed
	homes   *homes     // of the component; may be nil if stored is 0 and kept is 0
	word    stackWord
	kept    uint32 // callee-saved registers with their values at function entry
	stored  uint32 // callee-saved registers whose values at function entry are in their homes
	numbers uint32 // registers that contain known numbers
	number  [32]int64
}

// A stackWord holds what is known about a word that points to a location, and whose own location is unknown: where code
// that realigns the stack saves the old stack pointer.
type stackWord struct {
	regs  uint32    // registers whose distance from the word is known; if it is 0, no word is known
	off   [32]int64 // word - register, by register
	place int64     // where the word points to
}

// store records a write of n bytes at base+disp. Other code is assumed not to write the word.
func (x *stackWord) store(base int, disp, n int64, known bool) {
	at := disp - x.off[base]
	if x.regs>>base&1 != 0 && at < 8 && -n < at || known {
		x.regs = 0
	}
}

// below discards a word that is, or may be, below the stack pointer.
func (x *stackWord) below(sp int, may bool) {
	if known := x.regs>>sp&1 != 0; known && x.off[sp] < 0 || may && !known {
		x.regs = 0
	}
}

// A homes holds the locations where a component saves callee-saved registers, except for the frame pointer: where the
// first instruction that stores such a register stores it. At jump targets, the register is expected to be in its home
// if that is above the stack pointer, and otherwise to be unchanged.
type homes struct {
	registers uint32
	slots     [10]int16 // in units of 8 bytes from the CFA, in ascending order of all such registers
}

// kept returns the callee-saved registers other than the stack and frame pointers.
func (m *proofMachine) kept() uint32 { return m.saved &^ (1<<m.sp | 1<<m.fp) }

// slot returns a pointer to the home of a register.
func (h *homes) slot(m *proofMachine, reg int) *int16 {
	return &h.slots[bits.OnesCount32(m.kept()&(1<<reg-1))]
}

// find finds the homes of registers that an instruction stores. SP points to the location sp before the instruction; 1
// means unknown. The result is the same for after it. The check of the rows does not depend on these locations.
func (h *homes) find(m *proofMachine, in decoder, r *cfi.InferredRow, sp int64) int64 {
	moves, after := in.written()>>m.sp&1 != 0, sp
	if m.registers[r.Reg] == m.sp {
		sp = -int64(r.Offset)
		if after = sp; moves {
			moves, after = false, 1 // unless the next row says more
		}
	}
	for regs := in.stores() & m.kept() &^ h.registers; regs != 0 || moves; regs &= regs - 1 {
		s := frameFacts{proofMachine: m}
		s.reduce(r)
		if s.off[m.sp] = sp; sp <= 0 {
			s.known |= 1 << m.sp
		}
		reg := bits.TrailingZeros32(regs)
		s.callers = savedValue{regs: 1 << reg}
		in.execute(&s)
		if at := s.callers.slot; regs != 0 && at%8 == 0 && int64(int16(at/8)) == at/8 && at != 0 {
			h.registers |= 1 << reg
			*h.slot(m, reg) = int16(at / 8)
		}
		if moves {
			if after = s.off[m.sp]; s.known>>m.sp&1 == 0 {
				after = 1
			}
			moves = false
		}
	}
	return after
}

// expected returns which registers are expected to be unchanged, and which to be in their homes, at a jump target.
func (h *homes) expected(m *proofMachine, r *cfi.InferredRow) (kept, stored uint32) {
	for regs := h.registers; regs != 0; regs &= regs - 1 {
		reg := bits.TrailingZeros32(regs)
		if at := 8 * int64(*h.slot(m, reg)); m.registers[r.Reg] != m.sp || at >= -int64(r.Offset) {
			stored |= 1 << reg
		}
	}
	return m.kept() &^ stored, stored
}

// A savedValue holds the locations of a value.
type savedValue struct {
	regs  uint32 // registers that contain it
	slot  int64  // location where it is saved, or 0
	stale int64  // location below the stack pointer where it was saved and not overwritten, or 0
}

// reduce discards everything except the facts in a row.
func (s *frameFacts) reduce(r *cfi.InferredRow) {
	reg := s.registers[r.Reg]
	s.known, s.signed, s.word.regs, s.numbers = 1<<reg, r.Signed, 0, 0
	s.callers, s.back = savedValue{slot: int64(r.FP)}, savedValue{slot: int64(r.RA)}
	s.off[reg] = -int64(r.Offset)
	if r.FP == 0 && !r.Lost {
		s.callers.regs = 1 << s.fp
	}
	if r.RA == 0 {
		s.back.regs = 1 << s.registers[r.RAReg]
	} else if r.Kept {
		s.back.regs = 1 << s.ra
	}
}

// pointsTo reports whether a register points to a location.
func (s *frameFacts) pointsTo(reg int, place int64) bool {
	return s.known>>reg&1 != 0 && s.off[reg] == place
}

// isIn reports whether the value is in register reg or, if slot is not 0, is saved at slot.
func (v *savedValue) isIn(reg int, slot int64) bool {
	if slot != 0 {
		return v.slot == slot
	}
	return v.regs>>reg&1 != 0
}

// canReturn reports whether the return address is where a call puts it.
func (s *frameFacts) canReturn() bool { return s.ra < 0 || s.back.isIn(s.ra, 0) && !s.signed }

// agrees reports whether the facts imply a row.
func (s *frameFacts) agrees(r *cfi.InferredRow) bool {
	back := s.ra < 0 || s.back.isIn(s.registers[r.RAReg], int64(r.RA)) && s.signed == r.Signed &&
		(!r.Kept || s.back.isIn(s.ra, 0))
	return s.pointsTo(s.registers[r.Reg], -int64(r.Offset)) && (r.Lost || s.callers.isIn(s.fp, int64(r.FP))) && back
}

// clear discards facts about registers.
func (s *frameFacts) clear(mask uint32) {
	s.known &^= mask
	s.word.regs &^= mask
	s.callers.regs &^= mask
	s.back.regs &^= mask
	s.kept &^= mask
	s.numbers &^= mask
}

// copy copies the facts about a register to another register, whose value is larger by delta.
func (s *frameFacts) copy(to, from int, delta int64) {
	known, callers, back, near := s.known>>from&1, s.callers.regs>>from&1, s.back.regs>>from&1, s.word.regs>>from&1
	s.clear(1 << to)
	s.known |= known << to
	s.off[to] = s.off[from] + delta
	s.word.regs |= near << to
	s.word.off[to] = s.word.off[from] - delta
	s.word.below(s.sp, false)
	if delta == 0 {
		s.callers.regs |= callers << to
		s.back.regs |= back << to
	}
}

// store records a write of n bytes at base+disp, from register reg unless that is -1. It returns what is wrong, or "".
func (s *frameFacts) store(base int, disp, n int64, reg int) string {
	if base < 0 || n == 0 {
		return ""
	}
	known := s.known>>base&1 != 0
	if s.word.store(base, disp, n, known); !known {
		if base == s.sp && n == 8 && reg >= 0 && s.known>>reg&1 != 0 {
			s.word.regs, s.word.off[base], s.word.place = 1<<base, disp, s.off[reg]
		}
		return ""
	}
	at := s.off[base] + disp
	for _, v := range []*savedValue{&s.callers, &s.back} {
		if at < v.slot+8 && v.slot < at+n {
			v.slot = 0
		}
		if at < v.stale+8 && v.stale < at+n {
			v.stale = 0
		}
		if reg >= 0 && v.regs>>reg&1 != 0 && n == 8 && v.slot == 0 {
			v.slot = at
		}
	}
	for regs := s.stored; regs != 0; regs &= regs - 1 {
		r := bits.TrailingZeros32(regs)
		if home := 8 * int64(*s.homes.slot(s.proofMachine, r)); at < home+8 && home < at+n {
			s.stored &^= 1 << r
		}
	}
	if reg >= 0 && n == 8 && s.kept&(1<<reg) != 0 && s.homes.registers&(1<<reg) != 0 &&
		at == 8*int64(*s.homes.slot(s.proofMachine, reg)) {
		s.stored |= 1 << reg
	}
	if at < 0 && at+n > -s.entry {
		return "it writes the return address"
	}
	return ""
}

// load records that a register is loaded from base+disp.
func (s *frameFacts) load(reg, base int, disp int64) {
	var from [2]uint32
	for i, v := range []*savedValue{&s.callers, &s.back} {
		if base >= 0 && v.slot != 0 && s.pointsTo(base, v.slot-disp) {
			from[i] = 1 << reg
		}
	}
	restored := uint32(0)
	if s.stored&(1<<reg) != 0 && base >= 0 && s.pointsTo(base, 8*int64(*s.homes.slot(s.proofMachine, reg))-disp) {
		restored = 1 << reg
	}
	points := base >= 0 && s.word.regs>>base&1 != 0 && s.word.off[base] == disp
	s.clear(1 << reg)
	if points {
		s.known |= 1 << reg
		s.off[reg] = s.word.place
	}
	s.kept |= restored
	s.callers.regs |= from[0]
	s.back.regs |= from[1]
}

// sign signs the return address, or authenticates it. The address must be in its register, and SP, which modifies the
// signature, must have its value at function entry.
func (s *frameFacts) sign(signed bool) {
	known := s.back.isIn(s.ra, 0) && s.signed != signed && s.pointsTo(s.sp, -s.entry)
	if s.clear(1 << s.ra); known {
		s.back, s.signed = savedValue{regs: 1 << s.ra}, signed
	}
}

// push moves the stack pointer down, or up if n is negative.
func (s *frameFacts) push(n int64) {
	s.off[s.sp] -= n
	s.word.off[s.sp] += n
	s.word.below(s.sp, false)
	if n < 0 {
		s.discardBelowSP()
	}
}

// discardBelowSP discards what is saved below the stack pointer.
func (s *frameFacts) discardBelowSP() {
	if s.known>>s.sp&1 == 0 {
		return
	}
	for _, v := range []*savedValue{&s.callers, &s.back} {
		if v.slot < s.off[s.sp] {
			v.slot, v.stale = 0, v.slot
		}
	}
	for regs := s.stored; regs != 0; regs &= regs - 1 {
		r := bits.TrailingZeros32(regs)
		if 8*int64(*s.homes.slot(s.proofMachine, r)) < s.off[s.sp] {
			s.stored &^= 1 << r
		}
	}
}

// execute executes an instruction that falls through to the next, and returns what is wrong, or "".
func (in *instruction) execute(s *frameFacts) (what string) {
	base, full := in.base, in.wide && in.repeat != 0xf0
	if in.elsewhere {
		base = -1
	}
	group := in.reg & 7
	add := in.op&^2 == 0x81 && in.rm >= 0 && full
	switch op := in.op; {
	case in.short && in.written()>>rsp&1 != 0:
		s.clear(in.written())
	case op&^7 == 0x50, op == 0x68, op == 0x6a, op == 0x9c, op == 0x0fa0, op == 0x0fa8,
		op == 0xff && group == 6: // push
		s.push(8)
		return s.store(rsp, 0, 8, in.rm)
	case op == 0xe8: // call to the next instruction
		s.push(8)
	case op&^7 == 0x58, op == 0x8f && in.rm >= 0: // pop
		if s.load(in.rm, rsp, 0); in.rm != rsp {
			s.push(-8)
		}
	case op == 0x8f:
		s.push(-8)
		return s.store(base, in.disp, 8, -1)
	case op == 0x9d, op == 0x0fa1, op == 0x0fa9: // popf
		s.push(-8)
	case op == 0xc9: // leave
		s.copy(rsp, rbp, 0)
		s.load(rbp, rsp, 0)
		s.push(-8)
	case add && group == 0:
		s.copy(in.rm, in.rm, in.imm)
		if in.rm == rsp && in.imm > 0 {
			s.discardBelowSP()
		}
	case add && group == 5: // sub
		s.copy(in.rm, in.rm, -in.imm)
	case op == 0xff && group < 2 && in.rm >= 0 && full: // inc, dec
		s.copy(in.rm, in.rm, 1-2*int64(group))
	case op == 0x8d && full && base >= 0: // lea
		s.copy(in.reg, base, in.disp)
	case op == 0x8b && full && in.rm >= 0: // mov
		s.copy(in.reg, in.rm, 0)
	case op == 0x8b && full:
		s.load(in.reg, base, in.disp)
	case op == 0x89 && full && in.rm >= 0:
		s.copy(in.rm, in.reg, 0)
	case op == 0x89 && full:
		return s.store(base, in.disp, 8, in.reg)
	default:
		if n := in.stored(); n > 0 {
			disp := in.disp
			if in.scaled {
				disp *= n
			}
			what = s.store(base, disp, n, -1)
		}
		s.clear(in.written())
	}
	return what
}

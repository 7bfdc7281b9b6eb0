package code

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"

	"cfi2sframe/internal/insn"
)

// A value is what is known about the 64-bit contents of a register or stack slot.
type value struct {
	kind kind
	reg  uint8  // for entryValue: register; for entry and target: bytes per table entry, plus the constants below
	site uint16 // for aligned and target: index in sites; for label: in sets; for entry: number of entries, or 0
	off  int32
}

type kind uint8

const (
	unknown    kind = iota
	entryValue      // value of register reg at function entry; off is 0 or the constant signed
	frame           // CFA + off
	aligned         // an address below the CFA, aligned by the instruction with index site, plus off
	constant        // off
	entry           // an entry of the table at off
	target          // an entry of the table at off, plus the number with index site
	label           // an address in the set with index site
	computed        // the address of code, plus an unknown number
	atMost          // a number from 0 to off
)

// signed is the value of field off for a signed return address.
const signed = 1

// Properties of table entries.
const (
	backward   = 1 << (iota + 4) // subtracted from a number
	negative                     // sign-extended
	multiplied                   // the number of an instruction

	entrySize = 1<<4 - 1
)

// onStack reports whether the value is an address in the frame.
func (v value) onStack() bool { return v.kind == frame || v.kind == aligned }

// plus returns the value plus n.
func (v value) plus(n int64) value {
	sum := int64(v.off) + n
	if !v.onStack() && v.kind != constant || sum != int64(int32(sum)) {
		return value{}
	}
	v.off = int32(sum)
	return v
}

// number returns a constant, or an unknown value if n exceeds 32 bits.
func number(n int64) value { return value{kind: constant}.plus(n) }

// A slot is 8 bytes of the stack with a known value. The base of a jump table can also be in a slot.
type slot struct {
	at    value // an address in the frame
	value value
}

// A state is what is known before an instruction.
type state struct {
	machine *machine
	reg     [maxRegs]value
	slots   []slot
}

// isEntry reports whether the stack and the return address are as at function entry.
func (s *state) isEntry() bool {
	m := s.machine
	if s.reg[m.sp] != m.entry.reg[m.sp] {
		return false
	}
	if m.ra == insn.None {
		return s.load(s.reg[m.sp]) == m.back
	}
	return s.reg[m.ra] == m.back
}

// lost returns the registers, other than SP and the one with the return address, that do not contain their values at
// function entry.
func (s *state) lost() (mask uint32) {
	m := s.machine
	for r := range m.dwarf {
		if s.reg[r] != m.entry.reg[r] && insn.Reg(r) != m.sp && insn.Reg(r) != m.ra {
			mask |= 1 << r
		}
	}
	return mask
}

// copyFrom makes s a copy of t.
func (s *state) copyFrom(t *state) {
	s.machine, s.reg, s.slots = t.machine, t.reg, append(s.slots[:0], t.slots...)
}

// meet reduces s to the facts that t shares, and reports whether s changed.
func (w *flow) meet(s, t *state) (changed bool) {
	for i, old := range s.reg {
		if v := t.reg[i]; v != old {
			s.reg[i] = w.union(old, v)
			changed = changed || s.reg[i] != old
		}
	}
	n := len(s.slots)
	s.slots = slices.DeleteFunc(s.slots, func(x slot) bool { return !slices.Contains(t.slots, x) })
	return changed || len(s.slots) < n
}

// maxLabels bounds the number of addresses in a set.
const maxLabels = 256

// union returns what is known about a register that holds one of two values: a set of code addresses, a bound, or
// nothing.
func (w *flow) union(x, y value) value {
	if x.kind == atMost && y.kind == atMost {
		return value{kind: atMost, off: max(x.off, y.off)}
	}
	a, b := w.set(x), w.set(y)
	if a == nil || b == nil {
		return value{}
	}
	union := sorted(slices.Concat(a, b))
	var key []byte
	for _, pc := range union {
		key = binary.LittleEndian.AppendUint64(key, pc)
	}
	i, ok := w.setIndex[string(key)]
	if !ok && len(union) <= maxLabels && len(w.sets) <= math.MaxUint16 {
		i, ok = uint16(len(w.sets)), true
		w.sets = append(w.sets, union)
		w.setIndex[string(key)] = i
	}
	if !ok {
		return value{}
	}
	return value{kind: label, site: i}
}

// set returns the possible addresses of a value if all of them are code, or nil.
func (w *flow) set(v value) []uint64 {
	switch pc := uint64(int64(v.off)); {
	case v.kind == label:
		return w.sets[v.site]
	case v.kind == constant && w.isCode(pc):
		return []uint64{pc}
	}
	return nil
}

// load returns the value of the 8 bytes at an address in the frame.
func (s *state) load(at value) value {
	for i := range s.slots {
		if s.slots[i].at == at {
			return s.slots[i].value
		}
	}
	return value{}
}

// forget removes what is known about size bytes at an address.
func (s *state) forget(at value, size int) {
	s.slots = slices.DeleteFunc(s.slots, func(x slot) bool {
		return x.at.kind == at.kind && x.at.site == at.site && int64(x.at.off) < int64(at.off)+int64(size) &&
			int64(at.off) < int64(x.at.off)+wordSize
	})
}

// isBelow reports whether an address in the frame is known to be below another.
func (v value) isBelow(w value) bool { return v.kind == w.kind && v.site == w.site && v.off < w.off }

// isReliable reports whether a value saved at an address can be relied on. A value saved below SP is used only if no
// other copy exists, and only in the red zone: signal handlers overwrite the stack below that.
func (s *state) isReliable(at value, lost bool) bool {
	sp := s.reg[s.machine.sp]
	return !at.isBelow(sp) || lost && at.off >= sp.off-s.machine.redZone
}

// forgetBelow removes what is known about the stack below an address.
func (s *state) forgetBelow(sp value) {
	s.slots = slices.DeleteFunc(s.slots, func(x slot) bool { return x.at.isBelow(sp) })
}

// forgetPopped removes copies below SP of values that are in their registers.
func (s *state) forgetPopped() {
	sp := s.reg[s.machine.sp]
	s.slots = slices.DeleteFunc(s.slots, func(x slot) bool {
		v := x.value
		v.off = s.reg[v.reg].off // the return address may be signed in one of them
		return x.at.isBelow(sp) && v.kind == entryValue && s.reg[v.reg] == v
	})
}

// call removes what a call may change: registers, and everything below the stack pointer.
func (s *state) call(changed uint32) {
	if s.clobber(changed); s.machine.ra != insn.None {
		s.reg[s.machine.ra] = value{}
	}
	s.forgetBelow(s.reg[s.machine.sp])
}

// maxSlots bounds the number of known stack slots.
const maxSlots = 32

// save records the value of the 8 bytes at an address, if it may be needed later.
func (s *state) save(at, v value) {
	s.forget(at, wordSize)
	if (v.onStack() || v.kind == entryValue || v.kind == constant) && len(s.slots) < maxSlots {
		s.slots = append(s.slots, slot{at, v})
	}
}

// address returns what is known about the address of a memory operand.
func (s *state) address(m *insn.Mem) value {
	switch {
	case m.Elsewhere || m.Vague:
		return value{}
	case m.Relative, m.Base == insn.None && m.Index == insn.None:
		return number(m.Disp)
	case m.Base == insn.None || m.Index != insn.None:
		return value{}
	}
	return s.reg[m.Base].plus(m.Disp)
}

// loadFrom returns the value of 8 bytes of memory.
func (s *state) loadFrom(m *insn.Mem) value {
	if a := s.address(m); a.onStack() {
		return s.load(a)
	}
	return value{}
}

// storeTo records a store of 8 bytes to memory.
func (s *state) storeTo(m *insn.Mem, v value) {
	if a := s.address(m); a.onStack() {
		s.save(a, v)
	}
}

// get returns the value of a register, or an unknown value for None.
func (s *state) get(r insn.Reg) value {
	if r == insn.None {
		return value{}
	}
	return s.reg[r]
}

// sign signs the return address with SP as the modifier, or authenticates it. Unwinders expect SP to be the CFA there.
func (s *state) sign(sign bool) {
	m := s.machine
	old, now := m.back, m.back
	if now.off = signed; !sign {
		old, now = now, old
	}
	if s.reg[m.ra] != old || s.reg[m.sp] != m.entry.reg[m.sp] {
		now = value{}
	}
	s.reg[m.ra] = now
}

func (s *state) push(v value) {
	sp := &s.reg[s.machine.sp]
	*sp = sp.plus(-wordSize)
	if sp.onStack() {
		s.save(*sp, v)
	}
}

func (s *state) pop() value {
	v := value{}
	sp := &s.reg[s.machine.sp]
	if sp.onStack() {
		v = s.load(*sp)
	}
	*sp = sp.plus(wordSize)
	return v
}

// clobber makes registers unknown.
func (s *state) clobber(regs uint32) {
	for ; regs != 0; regs &= regs - 1 {
		s.reg[bits.TrailingZeros32(regs)] = value{}
	}
}

// step executes an instruction other than a jump, call or return. A store to an unknown address is assumed not to
// overwrite saved registers, as in all compiled code.
func (w *flow) step(s *state, in *insn.Inst, pc uint64) {
	to, v := in.Reg, value{}
	switch in.Op {
	case insn.Move:
		v = s.reg[in.Src]
	case insn.Add:
		v = s.reg[to].plus(in.Imm)
	case insn.AddReg:
		v = w.sum(s.reg[to], s.reg[in.Src])
	case insn.SubReg:
		if c := s.reg[in.Src]; c.kind == constant {
			v = s.reg[to].plus(-int64(c.off))
		}
	case insn.And:
		if old := s.reg[to]; old.onStack() && in.Imm < 0 && in.Imm&-in.Imm == -in.Imm {
			if site, ok := w.site(place{at: int64(pc)}); ok {
				v = value{kind: aligned, site: site}
			}
		}
	case insn.Const, insn.Page:
		v = number(in.Imm)
	case insn.Low:
		if old := s.reg[to]; old.kind == constant {
			v = number(int64(old.off)&^0xff | in.Imm&0xff)
		}
	case insn.Address:
		v = s.address(&in.Mem)
		if m := &in.Mem; m.Base != insn.None && m.Index != insn.None && m.Scale == 1 {
			v = w.sum(w.sum(s.reg[m.Base], s.reg[m.Index]), number(m.Disp))
		} else if m.Index != insn.None && m.Base != insn.None && w.set(s.reg[m.Base]) != nil {
			v = value{kind: computed}
		}
	case insn.Multiple:
		base, c := s.reg[in.Mem.Base], s.reg[in.Mem.Index]
		size := int64(c.reg & entrySize)
		switch {
		case c.kind == entry && in.Imm >= size && (in.Mem.Scale == 4 || in.Mem.Scale == 1 && size == 4):
			if v = w.sum(base, c); v.kind != target {
				break
			}
			if in.Mem.Scale == 4 {
				v.reg |= multiplied
			}
			if in.Imm == size {
				v.reg |= negative
			}
		case w.set(base) != nil:
			v = value{kind: computed}
		}
	case insn.Distance:
		base, c := s.reg[in.Mem.Base], s.reg[in.Mem.Index]
		switch {
		case c.kind == constant && c.off >= 0:
			v = base.plus(-int64(c.off))
		case c.kind == entry && c.reg == 2:
			if v = w.sum(base, c); v.kind == target {
				v.reg |= backward
			}
		}
	case insn.Load:
		v = s.loadFrom(&in.Mem)
		if in.Mem.Index != insn.None {
			v = s.entry(&in.Mem, 8)
		}
		if second := s.address(&in.Mem).plus(wordSize); in.Pair != insn.None {
			s.reg[in.Pair] = s.load(second)
		}
	case insn.Extend:
		if v = s.entry(&in.Mem, 4); v.kind == entry {
			v.reg |= negative
		}
	case insn.Word:
		v = s.entry(&in.Mem, 4)
	case insn.Short:
		v = s.entry(&in.Mem, 2)
	case insn.Byte:
		v = s.entry(&in.Mem, 1)
	case insn.Store:
		s.storeTo(&in.Mem, s.get(in.Src))
		if second := s.address(&in.Mem).plus(wordSize); in.Pair != insn.None && second.onStack() {
			s.save(second, s.reg[in.Pair])
		}
	case insn.Sign:
		s.sign(in.Imm != 0)
	case insn.Swap:
		s.reg[to], s.reg[in.Src] = s.reg[in.Src], s.reg[to]
		return
	case insn.Push:
		if in.Src != insn.None {
			v = s.reg[in.Src]
		}
		s.push(v)
	case insn.PushMem:
		s.push(s.loadFrom(&in.Mem))
	case insn.Pop:
		v = s.pop()
	case insn.PopMem:
		v = s.pop()
		s.storeTo(&in.Mem, v)
	case insn.Leave:
		m := s.machine
		if s.reg[m.sp] = s.reg[m.fp]; !s.reg[m.sp].onStack() {
			s.reg[m.sp] = value{}
		}
		to, v = m.fp, s.pop()
	}
	if a := s.address(&in.Mem); in.Stores > 0 && a.onStack() {
		s.forget(a, int(in.Stores))
	}
	s.clobber(in.Writes)
	if in.Mem.Step != 0 {
		s.reg[in.Mem.Base] = s.reg[in.Mem.Base].plus(in.Mem.Step)
	}
	if to != insn.None && in.Op != insn.Push {
		s.reg[to] = v
	}
}

// sum returns the sum of two values if one of them is a constant.
func (w *flow) sum(x, y value) value {
	if y.kind != constant {
		x, y = y, x
	}
	switch {
	case w.set(x) != nil && y.kind != constant:
		return value{kind: computed}
	case y.kind != constant, x.kind == computed:
		return value{}
	case w.set(y) != nil && (x.kind == unknown || x.kind == entryValue || x.kind == computed):
		return value{kind: computed}
	case x.kind == entry:
		site, ok := w.site(place{int64(y.off), x.site})
		if !ok {
			return value{}
		}
		return value{kind: target, reg: x.reg, site: site, off: x.off}
	case x.kind == target:
		p := w.sites[x.site]
		p.at += int64(y.off)
		site, ok := w.site(p)
		if x.site = site; !ok {
			return value{}
		}
		return x
	}
	return x.plus(int64(y.off))
}

// A place is the address of an instruction, or the number to which the entries of a jump table are relative.
type place struct {
	at      int64
	entries uint16 // of the table, or 0 if unknown
}

// site returns the index of a place in sites, and adds the place if necessary.
func (w *flow) site(n place) (uint16, bool) {
	i, ok := w.siteIndex[n]
	if !ok && len(w.sites) <= math.MaxUint16 {
		i, ok = uint16(len(w.sites)), true
		w.sites = append(w.sites, n)
		w.siteIndex[n] = i
	}
	return i, ok
}

// entry returns the value of a table entry of size bytes.
func (s *state) entry(m *insn.Mem, size uint8) value {
	at := value{}
	switch {
	case m.Elsewhere || m.Vague || m.Index == insn.None || m.Scale != int8(size):
	case m.Base == insn.None:
		at = number(m.Disp)
	case s.reg[m.Base].kind == constant:
		at = s.reg[m.Base].plus(m.Disp)
	}
	if at.kind != constant {
		return value{}
	}
	v := value{kind: entry, reg: size, off: at.off}
	if i := s.reg[m.Index]; i.kind == atMost && i.off < maxEntries {
		v.site = uint16(i.off) + 1
	}
	return v
}

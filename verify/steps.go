package verify

import "cfi2sframe/cfi"

// fromDWARF has the numbers of registers in instructions by those of DWARF.
var fromDWARF = [...]int{rax, rdx, rcx, rbx, rsi, rdi, rbp, rsp, 8, 9, 10, 11, 12, 13, 14, 15}

// calleeSaved are the registers that calls do not change.
const calleeSaved = 1<<rbx | 1<<rsp | 1<<rbp | 1<<12 | 1<<13 | 1<<14 | 1<<15

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
	flowTrap
	flowUnknown
)

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
		return flowCall
	case 0xc3:
		return flowReturn
	case 0xcc, 0xf1, 0xf4, 0x0f0b, 0x0fb9, 0x0fff: // int3, int1, hlt, ud2, ud1, ud0
		return flowTrap
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

// frameFacts are what is known of the frame before an instruction. Places are in bytes from the CFA.
type frameFacts struct {
	known uint32    // registers that point to known places:
	off   [16]int64 //
	fp    uint32    // registers that have the caller's frame pointer
	slot  int64     // where the caller's frame pointer is saved, or 0
}

// reduce forgets all but what a row says.
func (s *frameFacts) reduce(r *cfi.InferredRow) {
	reg := fromDWARF[r.Reg]
	s.known, s.fp, s.slot = 1<<reg, 0, r.FP
	s.off[reg] = -r.Offset
	if r.FP == 0 && !r.Lost {
		s.fp = 1 << rbp
	}
}

// is reports whether a register points to a place.
func (s *frameFacts) is(reg int, place int64) bool { return s.known>>reg&1 != 0 && s.off[reg] == place }

// agrees reports whether a row is right.
func (s *frameFacts) agrees(r *cfi.InferredRow) bool {
	fp := s.fp>>rbp&1 != 0
	if r.FP != 0 {
		fp = s.slot == r.FP
	}
	return s.is(fromDWARF[r.Reg], -r.Offset) && (fp || r.Lost)
}

// clear forgets registers.
func (s *frameFacts) clear(mask uint32) {
	s.known &^= mask
	s.fp &^= mask
}

// copy copies what is known of a register to another one, which points delta bytes further.
func (s *frameFacts) copy(to, from int, delta int64) {
	known, fp := s.known>>from&1, s.fp>>from&1
	s.clear(1 << to)
	s.known |= known << to
	s.off[to] = s.off[from] + delta
	if delta == 0 {
		s.fp |= fp << to
	}
}

// store records that the n bytes at base+disp are written, by register reg if that is not -1. It returns what is wrong.
func (s *frameFacts) store(base int, disp, n int64, reg int) string {
	if base < 0 || s.known>>base&1 == 0 || n == 0 {
		return ""
	}
	at := s.off[base] + disp
	if at < s.slot+8 && s.slot < at+n {
		s.slot = 0
	}
	if reg >= 0 && s.fp>>reg&1 != 0 && n == 8 && s.slot == 0 {
		s.slot = at
	}
	if at < 0 && at+n > -8 {
		return "it writes the return address"
	}
	return ""
}

// load records that a register is read from base+disp.
func (s *frameFacts) load(reg, base int, disp int64) {
	saved := base >= 0 && s.slot != 0 && s.is(base, s.slot-disp)
	s.clear(1 << reg)
	if saved {
		s.fp |= 1 << reg
	}
}

// push moves the stack pointer down, or up if n is negative.
func (s *frameFacts) push(n int64) {
	s.off[rsp] -= n
	if n < 0 {
		s.below()
	}
}

// below forgets what is saved below the stack pointer.
func (s *frameFacts) below() {
	if s.known>>rsp&1 != 0 && s.slot < s.off[rsp] {
		s.slot = 0
	}
}

// execute executes an instruction that goes on at the next one, and returns what is wrong.
func (s *frameFacts) execute(in *instruction) (what string) {
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
		reg := in.rm
		if op&^7 != 0x50 && op != 0xff {
			reg = -1
		}
		return s.store(rsp, 0, 8, reg)
	case op&^7 == 0x58: // pop
		s.load(in.rm, rsp, 0)
		s.push(-8)
	case op == 0x8f:
		s.push(-8)
		if in.rm >= 0 {
			s.load(in.rm, rsp, -8)
			return ""
		}
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
			s.below()
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

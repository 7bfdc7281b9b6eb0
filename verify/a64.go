package verify

import "encoding/binary"

// An a64 is an AArch64 instruction (Arm Architecture Reference Manual for A-profile, C4.1). Its encoding does not
// depend on the byte order of data.
type a64 struct{ word uint32 }

// a64Proof follows the Procedure Call Standard for the Arm 64-bit Architecture, 6.1.1. Register 31 is SP.
var a64Proof = proofMachine{
	sp: 31, fp: 29, ra: 30, saved: 0x7ff<<19 | 1<<31, reads: 4,
	registers: []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26,
		27, 28, 29, 30, 31},
}

func (in *a64) decode(code []byte) bool {
	if len(code) < 4 {
		return false
	}
	in.word = binary.LittleEndian.Uint32(code)
	w := in.word
	switch w >> 25 & 15 {
	case 0, 10, 11:
		return in.flow() != flowUnknown
	case 8, 9:
		tags, reserved := w&0x1f800000 == 0x11800000, w&0x7f800000 == 0x32800000
		return !tags && !reserved
	case 5, 13: // without addpt and others
		return w&0x1fe00000 != 0x1a000000 || w>>29&1 != 0 || w>>10&0x3f == 0
	case 7, 15:
		return true
	}
	switch {
	case in.isPair():
		return w>>30 < 3 && (w>>30 != 1 || in.isVector() || w>>22&1 != 0) // without stgp
	case in.isSingle() && w>>24&1 == 0 && w>>21&1 != 0: // without ldraa and others
		atomic := !in.isVector() && w>>10&3 == 0 && (w>>12&15 <= 8 || w>>12&15 == 12)
		return atomic || w>>10&3 == 2
	}
	// SVE and unallocated encodings match none of the following.
	return in.isSingle() || w&0x3b000000 == 0x18000000 || w&0x3f000000 == 0x08000000 ||
		w&0x3f200c00 == 0x19000000 || w&0xbe000000 == 0x0c000000
}

func (in *a64) codeSize() int { return 4 }

// isPlain reports false: every instruction must be executed, because execute discards what is below the stack pointer.
func (in *a64) isPlain() bool { return false }

func (in *a64) isVector() bool { return in.word>>26&1 != 0 }
func (in *a64) isPair() bool   { return in.word&0x3a000000 == 0x28000000 }
func (in *a64) isSingle() bool { return in.word&0x3a000000 == 0x38000000 }

// modifies reports whether a load or store changes its base register.
func (in *a64) modifies() bool {
	w := in.word
	switch {
	case in.isPair():
		return w>>23&1 != 0
	case in.isSingle():
		return w>>24&1 == 0 && w>>21&1 == 0 && w>>10&1 != 0
	}
	return w&0xbe800000 == 0x0c800000
}

// reg returns the number of the register in the 5-bit field that starts at the given bit.
func (in *a64) reg(bit int) int { return int(in.word >> bit & 31) }

// number returns the n-bit field that starts at the given bit, sign-extended.
func (in *a64) number(bit, n int) int64 { return int64(in.word) << (64 - bit - n) >> (64 - n) }

func (in *a64) flow() flow {
	w := in.word
	switch w >> 24 {
	case 0x14, 0x15, 0x16, 0x17:
		return flowJump
	case 0x94, 0x95, 0x96, 0x97:
		return flowCall
	case 0x54, 0x34, 0x35, 0x36, 0x37, 0xb4, 0xb5, 0xb6, 0xb7: // b.eq, cbz, tbz and others
		return flowBranch
	case 0x00:
		if w>>16 == 0 { // udf
			return flowTrap
		}
		return flowUnknown
	case 0xd4:
		switch w >> 21 & 7 {
		case 0:
			if w&31 == 1 { // svc
				return flowSystem
			}
		case 1, 2: // brk, hlt
			return flowTrap
		}
		return flowUnknown
	case 0xd6, 0xd7:
		switch w >> 21 & 15 {
		case 0, 8: // br, braa
			return flowIndirect
		case 1, 9: // blr, blraa
			return flowCallIndirect
		case 2:
			switch {
			case w == 0xd65f03c0:
				return flowReturn
			case w == 0xd65f0bff, w&0xfffffc1f == 0xd65f0000: // retaa; ret with a register other than x30
				return flowReturnBy
			}
		}
		return flowUnknown
	}
	if group := w >> 25 & 15; w>>24 != 0xd5 && (group == 10 || group == 11) {
		return flowUnknown
	}
	return flowNext
}

func (in *a64) target(pc uint64) uint64 {
	switch in.word >> 24 & 0x7f {
	case 0x54, 0x34, 0x35:
		return pc + uint64(4*in.number(5, 19))
	case 0x36, 0x37:
		return pc + uint64(4*in.number(5, 14))
	}
	return pc + uint64(4*in.number(0, 26))
}

// written returns the bit set of the general registers that the instruction writes or may write.
func (in *a64) written() uint32 {
	w := in.word
	general := func(bit int) uint32 { return 1 << in.reg(bit) &^ (1 << 31) } // 31 is zero
	switch w >> 25 & 15 {
	case 8, 9:
		// add, addg, sub, subg, and, orr and eor write SP, unless they set flags.
		if w&0x3f800000 == 0x11000000 || w&0xbfc00000 == 0x91800000 || w&0x1f800000 == 0x12000000 && w>>29&3 != 3 {
			return 1 << in.reg(0)
		}
		return general(0)
	case 5, 13:
		if w&0x3fe00000 == 0x0b200000 || w&0xffe0fc00 == 0x9ac01000 { // add, sub (extended register), irg
			return 1 << in.reg(0)
		}
		if w&0x1fe00000 == 0x1a400000 { // ccmp
			return 0
		}
		return general(0)
	case 7, 15:
		op := w >> 16 & 7
		integer := w&0x5f20fc00 == 0x1e200000 && op != 2 && op != 3 && op != 7             // fcvtzs, fmov and others
		if integer || w&0x5f200000 == 0x1e000000 && op < 2 || w&0xbfe0ec00 == 0x0e002c00 { // and smov, umov
			return general(0)
		}
		return 0
	case 10, 11:
		return in.writtenBySystem()
	}
	mask := uint32(0)
	if in.modifies() {
		mask = 1 << in.reg(5)
	}
	loads := w>>22&1 != 0
	switch {
	case w&0x3f000000 == 0x08000000: // ldxr, stxr, cas and others
		mask = general(16)
		if w>>21&1 != 0 { // casp
			mask |= 1 << (in.reg(16) | 1) &^ (1 << 31)
		}
		if loads {
			mask |= general(0) | general(10)
		}
	case w&0x3f200c00 == 0x38200000: // atomic
		mask |= general(0)
	case in.isVector(), in.isSingle() && w>>30 == 3 && w>>22&3 == 2, w>>24 == 0xd8: // the latter two are prfm
	case in.isPair():
		if loads {
			mask |= general(0) | general(10)
		}
	case w&0x3b000000 == 0x18000000, w>>22&3 != 0: // ldr
		mask |= general(0)
	}
	return mask
}

// writtenBySystem returns the result of written for jumps and system instructions.
func (in *a64) writtenBySystem() uint32 {
	w := in.word
	switch f := in.flow(); {
	case f == flowCall, f == flowCallIndirect:
		return 1 << 30
	case w>>24 == 0xd4: // svc
		return 1
	case w&0xfffff01f == 0xd503201f:
		switch n := w >> 5 & 0x7f; {
		case n == 7, n >= 24 && n < 32: // paciasp and others
			return 1 << 30
		case n == 40: // chkfeat
			return 1 << 16
		case n&^6 == 8: // pacia1716 and others
			return 1 << 17
		}
	case w>>24 == 0xd5 && w>>21&1 != 0: // mrs
		return 1 << in.reg(0) &^ (1 << 31)
	}
	return 0
}

// stores returns the registers that it may store as a whole.
func (in *a64) stores() uint32 {
	switch w := in.word; {
	case w>>22&1 != 0:
	case in.isPair():
		return 1<<in.reg(0) | 1<<in.reg(10)
	case in.isSingle():
		return 1 << in.reg(0)
	}
	return 0
}

// execute executes an instruction that falls through to the next, and returns what is wrong, or "".
func (in *a64) execute(s *frameFacts) (what string) {
	w := in.word
	switch {
	case w&0xbf800000 == 0x91000000: // add, sub
		n := int64(w>>10&0xfff) << (w >> 22 & 1 * 12)
		if w>>30&1 != 0 {
			n = -n
		}
		s.copy(in.reg(0), in.reg(5), n)
	case w&0xff800000 == 0xd2800000 && w&31 != 31: // mov
		to := in.reg(0)
		s.clear(1 << to)
		s.numbers |= 1 << to
		s.number[to] = int64(w>>5&0xffff) << (w >> 21 & 3 * 16)
	case w&0xffe0ffff == 0xcb2063ff && s.numbers>>in.reg(16)&1 != 0: // sub
		s.copy(31, 31, -s.number[in.reg(16)])
	case w&0xffe0ffff == 0x8b2063ff && s.numbers>>in.reg(16)&1 != 0: // add
		s.copy(31, 31, s.number[in.reg(16)])
	case w&0xffe0ffe0 == 0xaa0003e0 && w&31 != 31 && w>>16&31 != 31: // mov
		s.copy(in.reg(0), in.reg(16), 0)
	case w == 0xd503233f: // paciasp
		s.sign(true)
	case w&0xfffffc1f == 0xd65f0000: // ret
		s.copy(30, in.reg(5), 0)
	case w == 0xd50323bf, w == 0xd65f0bff: // autiasp, retaa
		s.sign(false)
	case w>>27&1 != 0 && w>>25&1 == 0:
		what = in.access(s)
	default:
		s.clear(in.written())
	}
	s.discardBelowSP()
	return what
}

// structure returns the number of bytes that ld1, st1 and others access.
func (in *a64) structure() int64 {
	w := in.word
	if w>>24&1 == 0 { // whole registers
		registers := [16]int64{0: 4, 2: 4, 4: 3, 6: 3, 7: 1, 8: 2, 10: 2}[w>>12&15]
		return registers * 8 << (w >> 30 & 1) // 0: no instruction
	}
	size := w >> 14 & 3
	if size == 3 || size == 2 && w>>10&1 != 0 { // ld1r; 8 bytes
		size = 3
	}
	return int64(w>>13&1<<1|w>>21&1+1) << size
}

// access executes a load or store.
func (in *a64) access(s *frameFacts) (what string) {
	w, base := in.word, in.reg(5)
	single := in.isSingle() && (w>>24&1 != 0 || w>>21&1 == 0)
	stores, full := w>>22&1 == 0, false // full: the registers are 64-bit general registers
	disp, each := int64(0), int64(64)   // bytes; the maximum if unknown
	registers, after := 1, false        // after: the access precedes the change to the base
	switch {
	case in.isPair():
		scale := 2 + w>>31
		if in.isVector() {
			scale = 2 + w>>30
		}
		full = w>>30 == 2 && !in.isVector()
		registers, after = 2, w>>23&3 == 1
		disp, each = in.number(15, 7)<<scale, 1<<scale
	case single:
		scale := w >> 30
		if in.isVector() && w>>23&1 != 0 {
			scale = 4
		}
		full = scale == 3 && !in.isVector() && w>>23&1 == 0
		stores = stores && (in.isVector() || w>>23&1 == 0)
		after = in.modifies() && w>>11&1 == 0
		if disp, each = in.number(12, 9), 1<<scale; w>>24&1 != 0 {
			disp = int64(w>>10&0xfff) << scale
		}
	case w&0x3f200c00 == 0x19000000: // stlur, ldapur
		disp, each, stores = in.number(12, 9), 8, w>>22&3 == 0
	case w&0x3b000000 == 0x18000000, in.isSingle() && w>>10&3 != 0: // ldr (literal); with an index
		base = -1
	case w&0xbe000000 != 0x0c000000: // ldxr, stxr, atomic instructions
		stores = true
	default:
		each = in.structure()
	}
	delta := disp
	if after {
		disp = 0
	}
	for i := range registers {
		switch r := in.reg(10 * i); {
		case stores && full:
			what = s.store(base, disp, each, r)
		case stores:
			what = s.store(base, disp, each, -1)
		case full && r != 31:
			s.load(r, base, disp)
		}
		disp += each
	}
	switch {
	case base == 31 && w&0xbfbf0000 == 0x0c9f0000: // ld1 and others with whole registers
		s.copy(31, 31, each)
	case in.modifies() && base == 31 && registers == 2, in.modifies() && base == 31 && single:
		s.copy(31, 31, delta)
	case in.modifies():
		s.clear(1 << base)
	}
	if !full || base < 0 {
		s.clear(in.written() &^ (1 << 31))
	}
	return what
}

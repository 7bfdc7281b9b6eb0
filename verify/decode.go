package verify

import (
	"encoding/binary"
	"strings"
)

// An instruction is an amd64 instruction. Registers are numbered as in the encoding; -1 means none.
type instruction struct {
	size      int  // in bytes
	op        int  // opcode and number of its map
	form      byte // form of its operands: a letter from the opcode maps
	wide      bool // the W bit of the REX, VEX or EVEX prefix is set
	short     bool // prefix 66: 16-bit operands
	rex       bool // has a REX prefix
	evex      bool // has an EVEX prefix
	segment   bool // has a segment prefix
	narrow    bool // prefix 67: 32-bit addresses
	elsewhere bool // memory is in segment fs or gs, or at a 32-bit address
	repeat    byte // prefix f0 (lock), f2 or f3, or 0
	length    int  // size of a vector in bytes
	reg       int  // register in ModRM.reg, or part of the opcode
	rm        int  // register in ModRM.rm or in the opcode; -1 for memory
	vvvv      int  // register in the vvvv field of a VEX or EVEX prefix
	base      int  // base register of memory at base+disp; -1 for other memory
	relative  bool // memory at disp from the next instruction
	scaled    bool // disp is in units of the operand's size
	disp      int64
	imm       int64 // immediate operand, or distance of a jump
	popNext   bool  // the next instruction pops a register
}

// Register numbers in instructions.
const (
	rax = 0
	rcx = 1
	rdx = 2
	rbx = 3
	rsp = 4
	rbp = 5
	rsi = 6
	rdi = 7
	r10 = 10
	r11 = 11
	r13 = 13
)

// lock is the lock prefix.
const lock = 0xf0

// Opcode maps, which are added to opcodes: the legacy maps, then those of VEX and EVEX, and of XOP.
const (
	map0F   = 0x0f00
	map0F38 = 0x3800
	map0F3A = 0x3a00
	mapVEX  = 0x10000 // plus 0x100 times the number of the map
	mapXOP  = 0x20000
)

// The forms of operands. Lowercase letters are forms without an immediate operand, or with only an immediate operand:
//
//	.  none        m  ModRM; neither general registers nor memory are written
//	b  1 byte      r  the register of ModRM is written
//	z  2 or 4      w  the register or memory of ModRM is written
//	i  2           x  both are written
//	e  3           s  memory or a register other than a general register is written
//	o  an address
//
// Capital letters are the same forms followed by a 1-byte immediate operand; for Y and Z (forms r and w), it has 2 or 4
// bytes. Opcodes marked - are unknown or prefixes. Intel SDM, volume 2, appendix A.
const (
	oneByte = "wwrrbz--wwrrbz--" + "wwrrbz--wwrrbz--" + "wwrrbz--wwrrbz--" + "wwrrbz--mmmmbz--" +
		"----------------" + "................" + "---r----zYbR...." + "bbbbbbbbbbbbbbbb" +
		"WZ-Wmmxxwwrrwrmw" + "..........-....." + "oooo....bz......" + "bbbbbbbbzzzzzzzz" +
		"WWi.--WZe.i..b-." + "wwww---.msmsmsms" + "bbbbbbbbzz-b...." + "-.--..ww......ww"
	twoBytes = "wwrr-.....-.-m.M" + "msmsmmmsmmmsmmwm" + "wwmm----msmsrrmm" + "......-.--------" +
		"rrrrrrrrrrrrrrrr" + "rmmmmmmmmmmmmmmm" + "mmmmmmmmmmmmmmmm" + "MMMMmmm.wm--mmws" +
		"zzzzzzzzzzzzzzzz" + "wwwwwwwwwwwwwwww" + "...mWwmm...wWwwr" + "wwrwrrrrrmWwrrrr" +
		"xxMwMRMw........" + "mmmmmmsrmmmmmmmm" + "mmmmmmmsmmmmmmmm" + "mmmmmmmmmmmmmmmm"
)

// decodeAMD64 decodes the instruction at the start of code, and reports whether it is known.
func decodeAMD64(code []byte) (in instruction, ok bool) {
	ok = in.decode(code)
	return in, ok
}

// Maximum size of an instruction in bytes, and the number of bytes that decode may read.
const (
	longest = 15
	reads   = 2*longest + 4
)

func (in *instruction) decode(code []byte) (ok bool) {
	var padded [reads]byte // zeros follow
	b := code
	if len(code) < reads {
		copy(padded[:], code)
		b = padded[:]
	}
	*in = instruction{}
	n := 0
	for ; n < longest-1 && in.prefix(b[n]); n++ {
	}
	in.reg, in.rm, in.base, in.vvvv, in.length = -1, -1, -1, -1, 16
	rex := 0
	if b[n]&0xf0 == 0x40 {
		rex = int(b[n])
		in.rex, in.wide = true, rex&8 != 0
		n++
	}
	switch first := b[n]; {
	case first == 0xc4, first == 0xc5, first == 0x62, first == 0x8f && b[n+1]&0x1f >= 8:
		if in.rex || in.short || in.repeat != 0 {
			return false
		}
		var size int
		if size, rex = in.vector(b[n:]); size == 0 {
			return false
		}
		n += size
	case first == 0x0f && (b[n+1] == 0x38 || b[n+1] == 0x3a):
		in.op = int(b[n+1])<<8 | int(b[n+2])
		n += 3
	case first == 0x0f:
		in.op = map0F | int(b[n+1])
		n += 2
	default:
		in.op = int(first)
		n++
	}
	in.form = in.operands()
	switch {
	case in.form >= 'm' && in.form != 'o' && in.form != 'z', in.form >= 'M' && in.form <= 'Z': // with ModRM
		n += in.modRM(b[n:], rex)
	case in.op&^0xf == 0x50, in.op&^7 == 0x90, in.op&^0xf == 0xb0, in.op&^7 == 0x0fc8:
		in.rm = in.op&7 | rex&1<<3
	}
	if in.form == '-' || in.isUndefined() {
		return false
	}
	size := in.immediate()
	shift := 64 - 8*size
	in.imm = int64(binary.LittleEndian.Uint64(b[n:])) << shift >> shift
	in.size = n + size
	next := b[in.size]
	if next == 0x41 { // REX.B
		next = b[in.size+1]
	}
	in.popNext = next&^7 == 0x58
	jump, _ := in.isJump()
	differs := in.short && !in.wide && (jump || in.op == 0xe8) // between processors
	return in.size <= min(len(code), longest) && !differs
}

// prefix reports whether b is a prefix other than REX.
func (in *instruction) prefix(b byte) bool {
	switch b {
	case 0x66:
		in.short = true
	case 0xf0, 0xf2, 0xf3:
		in.repeat = b
	case 0x26, 0x2e, 0x36, 0x3e:
		in.segment = true
	case 0x64, 0x65, 0x67:
		in.segment, in.narrow = in.segment || b != 0x67, in.narrow || b == 0x67
		in.elsewhere = true
	default:
		return false
	}
	return true
}

// vector decodes a VEX, EVEX or XOP prefix and the following opcode. It returns their size, or 0, and the REX bits.
func (in *instruction) vector(b []byte) (size, rex int) {
	number, flags := 1, int(b[1])
	switch size = 3; b[0] {
	case 0xc5:
		rex = ^flags >> 5 & 4
	case 0x62:
		in.evex = true
		number, rex, flags, size = int(b[1]&7), int(^b[1]>>5), int(b[2]), 5
		if b[1]&8 != 0 || flags&4 == 0 || number == 0 || number == 4 || number == 7 {
			return 0, 0
		}
	default:
		number, rex, flags, size = int(b[1]&0x1f), int(^b[1]>>5), int(b[2]), 4
		if xop := b[0] == 0x8f; xop && number > 10 || !xop && (number == 0 || number > 3) {
			return 0, 0
		}
	}
	in.wide = b[0] != 0xc5 && flags&0x80 != 0
	in.vvvv = ^flags >> 3 & 0xf
	in.short, in.repeat = flags&3 == 1, []byte{0, 0, 0xf3, 0xf2}[flags&3]
	in.length = 16 << (flags >> 2 & 1)
	in.op = mapVEX + number<<8 + int(b[size-1])
	if in.evex {
		in.length = 16 << (b[3] >> 5 & 3)
	}
	if b[0] == 0x8f {
		in.op += mapXOP - mapVEX
	}
	return size, rex & 7
}

// operands returns the letter for the operands of an opcode.
func (in *instruction) operands() byte {
	op := byte(in.op)
	switch in.op &^ 0xff {
	case 0:
		return oneByte[op]
	case map0F:
		return twoBytes[op]
	case map0F38:
		switch {
		case op == 0xf0, op == 0xf1 && in.repeat == 0xf2, op == 0xf6 && (in.short || in.repeat == 0xf3):
			return 'r'
		case op == 0xf1, op == 0xf5, op == 0xf6, op == 0xf9, op == 0xfc:
			return 'w'
		}
	case map0F3A, mapVEX + 0x300:
		switch {
		case op&^3 == 0x14:
			return 'W'
		case op == 0xf0: // rorx
			return 'R'
		case op == 0x19, op == 0x1b, op == 0x1d, op == 0x39, op == 0x3b:
			return 'S'
		}
		return 'M'
	case mapVEX + 0x100, mapVEX + 0x500:
		switch {
		case op == 0x77 && !in.evex:
			return '.'
		case op == 0x7e && in.repeat != 0xf3:
			return 'w'
		case op&^1 == 0x2c, op == 0x93, op&^1 == 0x78 && in.repeat != 0, !in.evex && (op == 0x50 || op == 0xd7):
			return 'r'
		case op == 0x11, op == 0x13, op == 0x17, op == 0x29, op == 0x2b, op == 0x7f, op == 0x91, op == 0xae, op == 0xd6,
			op == 0xe7:
			return 's'
		case in.op>>8&7 == 5:
		case op == 0xc5:
			return 'R'
		case op&^3 == 0x70, op == 0xc2, op == 0xc4, op == 0xc6:
			return 'M'
		}
	case mapVEX + 0x200:
		switch {
		case op == 0xf2, op == 0xf5, op == 0xf6, op == 0xf7:
			return 'r'
		case op&^0xf == 0xe0 && !in.evex: // cmpxadd
			return 'x'
		case op == 0x2e, op == 0x2f, op == 0x49, op == 0x4b, op == 0x63, op == 0x8a, op == 0x8b, op == 0x8e,
			op&^3 == 0xa0, in.evex && in.repeat == 0xf3 && op >= 0x10 && op < 0x40 && op&0xf < 6:
			return 's'
		}
	case mapVEX + 0x600:
	case mapXOP + 0x800:
		return 'M'
	case mapXOP + 0x900:
		if op == 0x12 {
			return 'w'
		}
	case mapXOP + 0xa00:
		return 'Y'
	default:
		return '-'
	}
	return 'm'
}

// isUndefined reports whether the register field of ModRM selects no instruction.
func (in *instruction) isUndefined() bool {
	group := in.reg & 7
	switch in.op {
	case 0x8f:
		return group != 0
	case 0xc6, 0xc7:
		return group != 0 && (group != 7 || in.rm != 0)
	case 0xfe:
		return group > 1
	case 0xff:
		return group == 7
	case 0x0f20, 0x0f21, 0x0f22, 0x0f23: // mov of control registers
		return in.rm < 0
	}
	return false
}

// immediate returns the size of the immediate operand in bytes.
func (in *instruction) immediate() int {
	switch form := in.form; {
	// the latter is test
	case form == 'b', form == 'M', form == 'R', form == 'W', form == 'S', in.op == 0xf6 && in.reg&7 < 2:
		return 1
	case form == 'i', in.op == 0x0f78 && (in.short || in.repeat == 0xf2): // 0f 78 is extrq or insertq
		return 2
	case form == 'e':
		return 3
	case form == 'o' && in.narrow:
		return 4
	case form == 'o', in.op&^7 == 0xb8 && in.wide: // the latter is mov
		return 8
	case form == 'z', form == 'Y', form == 'Z', in.op == 0xf7 && in.reg&7 < 2:
		if in.short && !in.wide && in.op&^0xf != 0x0f80 {
			return 2
		}
		return 4
	}
	return 0
}

// modRM decodes ModRM, SIB and displacement, and returns their size.
func (in *instruction) modRM(b []byte, rex int) (size int) {
	mod, low := b[0]>>6, int(b[0]&7)
	in.reg, in.rm = int(b[0]>>3&7)|rex&4<<1, -1
	size = 1
	base := low
	if low == 4 && mod != 3 { // SIB
		base, size = int(b[1]&7), 2
	}
	if low != 4 || b[1]>>3&7 == 4 && rex&2 == 0 { // without an index
		in.base = base | rex&1<<3
	}
	switch {
	case mod == 3:
		in.rm, in.base = low|rex&1<<3, -1
	case mod == 0 && base == 5:
		in.base, in.relative = -1, low == 5
		in.disp = int64(int32(binary.LittleEndian.Uint32(b[size:])))
		size += 4
	case mod == 1:
		in.disp, in.scaled = int64(int8(b[size])), in.evex
		size++
	case mod == 2:
		in.disp = int64(int32(binary.LittleEndian.Uint32(b[size:])))
		size += 4
	}
	return size
}

// isJump reports whether the instruction is a direct jump, and whether it depends on a condition.
func (in *instruction) isJump() (jump, conditional bool) {
	conditional = in.op&^0xf == 0x70 || in.op&^0xf == 0x0f80 || in.op&^3 == 0xe0 || in.op == 0xc7 && in.reg&7 == 7
	return conditional || in.op == 0xe9 || in.op == 0xeb, conditional
}

func (in *instruction) codeSize() int { return in.size }

func (in *instruction) isPlain() bool { return in.stored() == 0 }

// target returns the target of a direct jump or call at pc.
func (in *instruction) target(pc uint64) uint64 { return pc + uint64(in.size) + uint64(in.imm) }

// written returns the bit set of the general registers that the instruction writes or may write.
func (in *instruction) written() (mask uint32) {
	bit := func(reg int) {
		if reg >= 4 && reg < 8 && !in.rex && in.byteSized() { // ah, ch, dh, bh
			reg -= 4
		}
		if reg >= 0 {
			mask |= 1 << reg
		}
	}
	switch in.form {
	case 'r', 'R', 'Y':
		bit(in.reg)
	case 'w', 'W', 'Z':
		if !in.onlyReads() {
			bit(in.rm)
		}
	case 'x':
		bit(in.reg)
		bit(in.rm)
	}
	if in.op&^0xf == 0xb0 { // mov
		bit(in.rm)
	}
	return mask | in.implied()
}

// byteSized reports whether the operands are 8 bits wide.
func (in *instruction) byteSized() bool {
	switch op := in.op; {
	case op < 0x40:
		return op&5 == 0
	case op&^7 == 0xb0, op&^0xf == 0x0f90, op == 0x0fb0, op == 0x0fc0:
		return true
	}
	return strings.IndexByte("\x80\x84\x86\x88\x8a\xc0\xc6\xd0\xd2\xf6\xfe", byte(in.op)) >= 0 && in.op < 0x100
}

// onlyReads reports whether an instruction only reads the operand that others with its opcode write.
func (in *instruction) onlyReads() bool {
	group := in.reg & 7
	switch op := in.op; {
	case op&^3 == 0x80: // cmp
		return group == 7
	case op&^1 == 0xf6: // test, mul, div
		return group < 2 || group >= 4
	case op == 0xff, op == 0x0f00: // call, jmp, push; lldt, ltr, verr, verw
		return group >= 2
	case op == 0x0f01:
		return in.rm >= 0 && group != 4 || group >= 5
	case op == 0x0fae:
		return in.rm >= 0 && (group > 1 || in.repeat != 0xf3) || in.rm < 0 && 0x59>>group&1 == 0
	case op >= 0xd8 && op < 0xe0: // fld
		return group == 0 || group&^1 == 4
	case op == 0x0fba: // bt
		return group == 4
	case op == 0x0f1e: // endbr64, nop; not rdssp
		return in.rm < 0 || in.repeat != 0xf3 || group != 1
	case op == 0x0f7e: // movq
		return in.repeat == 0xf3
	case op == 0x0f78: // extrq, insertq
		return in.short || in.repeat == 0xf2
	}
	return false
}

// implied returns the registers that the instruction writes although ModRM does not name them.
func (in *instruction) implied() uint32 {
	const (
		stack  = 1 << rsp
		chain  = 1<<rcx | 1<<rsi | 1<<rdi // string instructions
		system = 1<<rax | 1<<rcx | 1<<r11
		four   = 1<<rax | 1<<rcx | 1<<rdx | 1<<rbx
	)
	group := in.reg & 7
	switch op := in.op; {
	case op >= mapVEX:
		switch {
		case op&^3 == mapVEX+0x360: // vpcmpestri
			return 1 << rcx
		case op == mapVEX+0x2f3, op == mapVEX+0x2f6, op&^3 == mapXOP+0x900: // blsr, mulx
			return 1 << in.vvvv
		}
	case op < 0x38 && op&6 == 4: // with al or eax
		return 1 << rax
	case op&^7 == 0x50, op == 0x68, op == 0x6a, op&^1 == 0x9c, op == 0xe8, op == 0x0fa0, op == 0x0fa1, op == 0x0fa8,
		op == 0x0fa9, op&^1 == 0xc2, op&^1 == 0xca, op == 0xcf, op == 0x8f, op == 0xff && (group&^1 == 2 || group == 6):
		return stack
	case op&^7 == 0x58: // pop
		return stack | 1<<in.rm
	case op&^1 == 0xc8: // enter, leave
		return stack | 1<<rbp
	case op == 0x90 && in.rm == 0: // nop
		return 0
	case op&^7 == 0x90: // xchg
		return 1<<rax | 1<<in.rm
	case op&^7 == 0x0fc8: // bswap
		return 1 << in.rm
	case op&^3 == 0x6c, op >= 0xa4 && op < 0xb0 && op&^1 != 0xa8:
		return chain | 1<<rax
	case op&^1 == 0x98: // cwde, cdq
		return 1<<rax | 1<<rdx
	case op == 0xdf && in.rm&7 == 0 && group == 4: // fnstsw
		return 1 << rax
	case op == 0x9f, op&^1 == 0xa0, op == 0xd7, op&^1 == 0xe4, op&^1 == 0xec: // lahf, mov, xlat, in
		return 1 << rax
	case op&^1 == 0xf6 && group >= 4, op&^1 == 0x0fb0, op == 0x0fc7 && in.rm < 0, // mul, div; cmpxchg
		op&^3 == 0x0f30: // rdtsc
		return 1<<rax | 1<<rdx
	case op&^1 == 0xc6 && group == 7: // xbegin
		return 1 << rax
	case op&^3 == 0xe0: // loop
		return 1 << rcx
	case op == 0x0f05, op == 0x0f34, op == 0xcd: // syscall
		return system
	case op == 0x0f01 && in.rm >= 0, op == 0x0fa2, op == 0x0f37: // cpuid
		return four
	case op&^1 == 0x0fa6:
		return four | chain
	case op&^3 == map0F3A|0x60: // pcmpestri
		return 1 << rcx
	}
	return 0
}

// stored returns the number of bytes that the instruction writes to the memory operand of its ModRM, or an upper bound.
func (in *instruction) stored() int64 {
	op, group := in.op&0xff, in.reg&7
	if in.rm >= 0 || in.reg < 0 || strings.IndexByte("wWZxsS", in.form) < 0 || in.onlyReads() {
		return 0
	}
	switch in.op &^ 0xff {
	case 0:
		switch {
		case (op == 0xd9 || op == 0xdd) && group == 6: // fnstenv, fnsave
			return 108
		case op == 0xdb, op == 0xdf: // fstp
			return 10
		case op == 0xdd, op == 0x8f: // fstp, pop
			return 8
		case op == 0xd9: // fst
			return 4
		}
	case map0F, mapVEX + 0x100, mapVEX + 0x500:
		mmx := in.op < mapVEX && !in.short && in.repeat == 0
		switch {
		case op < 2, op == 0xc7: // sgdt, sidt, cmpxchg16b
			return 16
		case op == 0xae && group != 3: // fxsave
			return 512
		case (op == 0x11 || op == 0x2b) && in.repeat == 0xf3, op == 0x7e && !in.wide: // movss, movd
			return 4
		case (op == 0x11 || op == 0x2b) && in.repeat == 0xf2, op == 0x13, op == 0x17, op == 0xd6, op == 0x91, // movsd
			mmx && (op == 0x7f || op == 0xe7):
			return 8
		}
	case map0F3A, mapVEX + 0x300:
		switch op {
		case 0x19, 0x39: // vextractf128
			return 16
		case 0x1b, 0x3b:
			return 32
		case 0x1d: // vcvtps2ph
			return int64(in.length / 2)
		}
	}
	switch {
	case in.form == 's' && in.op >= map0F && op != 0xae:
		return int64(in.length)
	case in.byteSized():
		return 1
	case in.wide:
		return 8
	case in.short && in.op < map0F3A:
		return 2
	}
	return 4
}

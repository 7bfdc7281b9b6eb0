package insn

import "encoding/binary"

// Sources: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, appendix A, for opcodes; AMD64
// Architecture Programmer's Manual, volume 6, for XOP. Registers are numbered as in the instruction encoding.
const (
	rax = iota
	rcx
	rdx
	rbx
	rsp
	rbp
	rsi
	rdi
	r11 = 11
)

// Sizes in bytes.
const (
	longest = 15 // of an instruction
	reads   = 40 // that the decoder may read: 14 prefixes, and then at most 26 bytes
)

// An amd64 is an instruction being decoded.
type amd64 struct {
	Inst
	code    []byte // at least reads bytes that start with the instruction
	pc      uint64
	wide    bool // REX.W
	short   bool // 16-bit operands
	rex     byte // REX, or the equivalent bits of VEX, EVEX and XOP; the high nibble is nonzero if a prefix is present
	repeat  byte // f2 or f3, or 0
	lock    bool
	narrow  bool // 32-bit addresses
	opcode  byte
	vector  int32 // size of vectors in bytes, for VEX and EVEX
	evex    bool
	vvvv    Reg // register in the vvvv field of VEX, EVEX and XOP
	r, rm   Reg // registers of ModRM; rm is None for memory
	operand byte
}

// DecodeAMD64 decodes the instruction at the start of code, which is at pc. It reports whether the instruction is
// known.
func DecodeAMD64(code []byte, pc uint64) (Inst, bool) {
	n := min(len(code), longest)
	if len(code) < reads { // the decoder reads past the end of an instruction
		var b [reads]byte
		copy(b[:longest], code) // zero-padded
		code = b[:]
	}
	d := amd64{code: code, pc: pc, Inst: Inst{Reg: None, Src: None, Pair: None}, r: None, rm: None}
	d.Mem.Base, d.Mem.Index = None, None
	ok := d.decode()
	if d.Op == Other {
		d.Reg, d.Src = None, None
	}
	if d.Mem.Relative {
		d.Mem.Disp += int64(pc) + int64(d.Size)
	}
	return d.Inst, ok && d.Size <= n
}

func (d *amd64) decode() bool {
	for d.Size < longest-1 && d.prefix(d.code[d.Size]) {
		d.Size++
	}
	b := d.next()
	if b&0xf0 == 0x40 {
		d.rex, d.wide = b, b&8 != 0
		b = d.next()
	}
	switch {
	case b == 0xc4, b == 0xc5, b == 0x62:
		return d.rex == 0 && !d.short && !d.lock && d.repeat == 0 && d.vex(b)
	case b == 0x8f && d.code[d.Size]&0x1f >= 8:
		return d.xop()
	case b == 0x0f:
		return d.escape()
	}
	d.opcode, d.operand = b, oneByte[b]
	return d.operands() && d.effects(oneByteWrites[b], d.oneByte)
}

// popFollows reports whether the next instruction pops a register.
func (d *amd64) popFollows() bool {
	b := d.code[d.Size:]
	if b[0] == 0x41 { // REX.B
		b = b[1:]
	}
	return b[0]&^7 == 0x58
}

func (d *amd64) next() byte {
	d.Size++
	return d.code[d.Size-1]
}

// prefix reports whether b is a prefix other than REX.
func (d *amd64) prefix(b byte) bool {
	switch b {
	case 0x66:
		d.short = true
	case 0x67:
		d.narrow = true
	case 0xf2, 0xf3:
		d.repeat = b
	case 0x64, 0x65:
		d.Mem.Elsewhere = true
	case 0xf0:
		d.lock = true
	case 0x26, 0x2e, 0x36, 0x3e:
	default:
		return false
	}
	return true
}

// escape decodes the opcodes that start with 0f.
func (d *amd64) escape() bool {
	switch b := d.next(); b {
	case 0x38:
		d.opcode, d.operand = d.next(), 'm'
		return d.legacy(2) && d.operands() && d.map2()
	case 0x3a:
		d.opcode, d.operand = d.next(), 'B'
		return d.legacy(3) && d.operands() && d.map3()
	default:
		d.opcode, d.operand = b, twoBytes[b]
		return d.legacy(1) && d.operands() && d.form() && d.effects(twoBytesWrites[b], d.twoByte)
	}
}

// legacy reports whether a map contains the opcode with the prefixes of the instruction.
func (d *amd64) legacy(m int) bool {
	prefix := 0
	switch {
	case d.repeat == 0xf3:
		prefix = 2
	case d.repeat == 0xf2:
		prefix = 3
	case d.short:
		prefix = 1
	}
	return legacyMaps[m][prefix].has(d.opcode)
}

// form reports whether an opcode after 0f, or of VEX map 1, is valid with its r/m operand, a register or memory.
func (d *amd64) form() bool {
	memory := d.rm == None
	switch d.opcode {
	case 0x12, 0x16: // movlpd, movhpd
		return memory || !d.short || d.repeat != 0
	case 0x0d, 0x13, 0x17, 0x2b, 0xc3, 0xe7, 0xf0: // prefetch, movlps, movhps, movntps, movnti, movntdq, lddqu
		return memory
	case 0x50, 0xc5, 0xd7, 0xf7: // movmskps, pextrw, pmovmskb, maskmovdqu
		return !memory
	case 0xd6:
		return !memory || d.repeat == 0
	}
	return d.shift()
}

// shift reports whether an opcode from 71 to 73, a vector shift by an immediate, is valid. For XMM registers,
// opcode 73 also encodes shifts by bytes (psrldq, pslldq). Other opcodes are valid.
func (d *amd64) shift() bool {
	kinds := byte(1<<2 | 1<<4 | 1<<6)
	switch {
	case d.opcode < 0x71 || d.opcode > 0x73:
		return true
	case d.opcode == 0x73 && (d.short || d.repeat != 0):
		kinds = 1<<2 | 1<<3 | 1<<6 | 1<<7
	case d.opcode == 0x73:
		kinds = 1<<2 | 1<<6
	}
	return d.rm != None && kinds>>(d.r&7)&1 != 0
}

// The bits of a REX prefix. VEX, EVEX and XOP store these bits inverted.
const (
	rexB = 1 << iota
	rexX
	rexR
	rexW
)

// vex decodes the bytes after c4, c5 (VEX) or 62 (EVEX).
func (d *amd64) vex(b byte) bool {
	p, m := d.next(), byte(1)
	last := p // contains vvvv and pp
	d.rex = 0x40 | ^p>>5&rexR
	if b != 0xc5 {
		d.rex = 0x40 | ^p>>5&7
		m, last = p&0x1f, d.next()
		d.wide = last&0x80 != 0
	}
	d.vvvv, d.vector = Reg(^last>>3&15), 16<<(last>>2&1)
	maps := vexMaps[:]
	if b == 0x62 {
		if m&0x18 != 0 && m&0x08 != 0 || last&4 == 0 { // APX
			return false
		}
		m &= 7
		l := d.next() >> 5 & 3
		d.vector, d.evex, maps = 16<<l, true, evexMaps[:]
	}
	d.opcode = d.next()
	prefix := last & 3
	if int(m) >= len(maps) || !maps[m][prefix].has(d.opcode) {
		return false
	}
	d.short, d.repeat = prefix == 1, [...]byte{0, 0, 0xf3, 0xf2}[prefix]
	d.operand = 'm'
	switch {
	case m == 1 && d.opcode == 0x77: // vzeroupper
		d.operand = '.'
	case m == 1:
		d.operand = twoBytes[d.opcode] // the same immediates as without VEX
		if d.operand != 'B' {
			d.operand = 'm'
		}
	case m == 3:
		d.operand = 'B'
	}
	if !d.operands() {
		return false
	}
	switch m {
	case 1, 5:
		if m == 1 && !d.evex && !d.form() {
			return false
		}
		return d.vector1()
	case 2, 6:
		return d.vector2()
	}
	return d.map3()
}

// xop decodes the bytes after 8f.
func (d *amd64) xop() bool {
	p, last := d.next(), d.next()
	m := int(p&0x1f) - 8
	d.rex, d.wide, d.vvvv = 0x40|^p>>5&7, last&0x80 != 0, Reg(^last>>3&15)
	d.opcode = d.next()
	if m >= len(xopMaps) || last&3 != 0 || !xopMaps[m].has(d.opcode) {
		return false
	}
	d.operand = "BmZ"[m]
	if !d.operands() {
		return false
	}
	switch {
	case m == 1 && d.opcode <= 2: // blcfill and others
		const groups = 0xfe | 1<<(8+1) | 1<<(8+6) // bit sets of the valid reg fields, for opcodes 1 and 2
		d.Writes = 1 << d.vvvv
		return groups>>(d.r&7+8*Reg(d.opcode-1))&1 != 0
	case m == 1 && d.opcode == 0x12, m == 2 && d.opcode == 0x12: // llwpcb, lwpins
		return false
	case m == 2: // bextr
		d.Writes = 1 << d.r
	}
	return true
}

// operands decodes the bytes after the opcode.
func (d *amd64) operands() bool {
	if d.operand == 'm' || d.operand == 'B' || d.operand == 'Z' {
		d.modRM()
	}
	size := 0 // of the immediate operand
	switch d.operand {
	case '-':
		return false
	case 'b', 'B', 'j':
		size = 1
	case 'w':
		size = 2
	case 'e':
		size = 3
	case 'J':
		size = 4
		if d.short && !d.wide { // differs between processors
			return false
		}
	case 'o':
		size = 8
		if d.narrow {
			size = 4
		}
	case 'z', 'Z', 'v':
		size = 4
		if d.wide && d.operand == 'v' {
			size = 8
		} else if d.short && !d.wide {
			size = 2
		}
	}
	d.immediate(size)
	if d.operand == 'o' {
		d.Mem.Disp, d.Imm = d.Imm, 0
		if d.narrow {
			d.Mem.Disp, d.Mem.Elsewhere = int64(uint32(d.Mem.Disp)), true
		}
	}
	return true
}

func (d *amd64) immediate(size int) {
	shift := 64 - 8*size
	d.Imm = int64(binary.LittleEndian.Uint64(d.code[d.Size:])) << shift >> shift
	d.Size += size
}

// modRM decodes ModRM, SIB and displacement.
func (d *amd64) modRM() {
	b := d.next()
	mod, low := b>>6, Reg(b&7)
	d.r = Reg(b>>3&7 | d.rex&rexR<<1)
	if mod == 3 {
		d.rm = low | Reg(d.rex&rexB<<3)
		return
	}
	base := low
	if low == 4 { // SIB
		sib := d.next()
		base = Reg(sib & 7)
		d.Mem.Scale = 1 << (sib >> 6)
		if i := Reg(sib>>3&7 | d.rex&rexX<<2); i != rsp {
			d.Mem.Index = i
		}
	}
	size := [...]int{0, 1, 4}[mod]
	if mod == 0 && base == 5 {
		d.Mem.Relative, size = low == 5, 4
	} else {
		d.Mem.Base = base | Reg(d.rex&rexB<<3)
	}
	d.immediate(size)
	d.Mem.Disp, d.Imm = d.Imm, 0
	d.Mem.Vague = d.evex && mod == 1
	if d.narrow {
		d.Mem.Elsewhere = true
	}
}

// effects records what an opcode writes, according to its letter. For the letter *, it calls special.
func (d *amd64) effects(letter byte, special func() bool) bool {
	switch letter {
	case '*':
		return special()
	case 'b':
		d.writesRM(1)
	case 'E':
		d.writesRM(d.width())
	case 'g':
		d.Writes = 1 << d.byteRegister(d.r)
	case 'G':
		d.Writes = 1 << d.r
	case 'x':
		d.writesRM(1)
		d.Writes |= 1 << d.byteRegister(d.r)
	case 'X':
		d.writesRM(d.width())
		d.Writes |= 1 << d.r
	case 'A':
		d.Writes = 1 << rax
	case 'D':
		d.Writes = 1<<rax | 1<<rdx
	case 'R':
		d.Writes = 1 << d.inOpcode()
	case 'r':
		d.Writes = 1 << d.byteRegister(d.inOpcode())
	case 'S':
		d.Writes = 1<<rax | 1<<rcx | 1<<rsi | 1<<rdi
	case 's':
		d.writesMem(d.vectorStore())
	case 'M':
		d.writesMem(d.width())
	}
	return letter != '-'
}

// vectorStore returns the number of bytes that a store of a vector register writes.
func (d *amd64) vectorStore() int32 {
	scalar := d.opcode == 0x11 || d.opcode == 0x2b
	half := d.opcode == 0x13 || d.opcode == 0x17
	mmx := (d.opcode == 0x7f || d.opcode == 0xe7) && d.vector == 0 && !d.short && d.repeat == 0
	switch {
	case scalar && d.repeat == 0xf3: // movss
		return 4
	case scalar && d.repeat == 0xf2, half, mmx: // movsd, movlps
		return 8
	}
	return max(d.vector, 16)
}

// width returns the size of operands in bytes.
func (d *amd64) width() int32 {
	switch {
	case d.wide:
		return 8
	case d.short:
		return 2
	}
	return 4
}

// inOpcode returns the register encoded in the opcode.
func (d *amd64) inOpcode() Reg { return Reg(d.opcode&7 | d.rex&rexB<<3) }

// byteRegister returns the register that contains a 1-byte register: without REX, 4 to 7 are ah, ch, dh and bh, the
// second bytes of the first four registers.
func (d *amd64) byteRegister(r Reg) Reg {
	if d.rex == 0 && r >= 4 {
		return r - 4
	}
	return r
}

// writesRM records a write of size bytes to operand r/m.
func (d *amd64) writesRM(size int32) {
	switch {
	case d.rm == None:
		d.writesMem(size)
	case size == 1:
		d.Writes |= 1 << d.byteRegister(d.rm)
	default:
		d.Writes |= 1 << d.rm
	}
}

// writesMem records a write of size bytes to operand r/m, if it is in memory.
func (d *amd64) writesMem(size int32) {
	if d.rm == None {
		d.Stores = size
	}
}

// op64 sets d.Op to o if the operands are 64-bit registers; otherwise, it records a write to r/m.
func (d *amd64) op64(o Op, reg, src Reg) bool {
	if d.wide && d.rm != None {
		d.Op, d.Reg, d.Src = o, reg, src
	} else {
		d.writesRM(d.width())
	}
	return true
}

// oneByte handles 1-byte opcodes.
func (d *amd64) oneByte() bool {
	switch o := d.opcode; {
	case o&^7 == 0x50:
		d.Op, d.Src = Push, d.inOpcode()
		return !d.short
	case o&^7 == 0x58:
		d.Op, d.Reg = Pop, d.inOpcode()
		return !d.short
	case o == 0x01, o == 0x29: // add, sub
		return d.op64(addOrSub(o), d.rm, d.r)
	case o == 0x03, o == 0x2b:
		if d.Op, d.Reg, d.Src = addOrSub(o), d.r, d.rm; d.rm == None || !d.wide {
			d.Op, d.Writes = Other, 1<<d.r
		}
		return true
	case o == 0x31, o == 0x33: // xor
		if d.rm == d.r && (d.wide || !d.short) {
			d.Op, d.Reg = Const, d.r
			return true
		}
		if d.Writes = 1 << d.r; o == 0x31 {
			d.Writes = 0
			d.writesRM(d.width())
		}
		return true
	case o == 0x63: // movsxd
		d.load(Extend)
		return true
	case o == 0x05, o == 0x25, o == 0x2d: // add, and, sub
		d.r, d.rm = Reg(o>>3), rax
		return d.group1()
	case o == 0x68, o == 0x6a, o == 0x9c: // push, pushf
		d.Op = Push
		return !d.short
	case o == 0x9d: // popf
		d.Op, d.Reg = Pop, None
		return !d.short
	case o == 0x80:
		if d.r&7 != 7 { // cmp
			d.writesRM(1)
		}
		return true
	case o == 0x81, o == 0x83:
		return d.group1()
	case o == 0x89: // mov
		if d.rm == None && d.wide {
			d.Op, d.Src = Store, d.r
			return true
		}
		return d.op64(Move, d.rm, d.r)
	case o == 0x8b:
		if d.rm != None && d.wide {
			d.Op, d.Reg, d.Src = Move, d.r, d.rm
			return true
		}
		d.load(Load)
		return true
	case o == 0x8d: // lea
		if d.rm != None {
			return false
		}
		d.load(Address)
		return true
	case o == 0x8f: // pop
		if d.short || d.r&7 != 0 {
			return false
		}
		if d.Op = PopMem; d.rm != None {
			d.Op, d.Reg = Pop, d.rm
		}
		return true
	case o == 0x90 && d.rex&rexB == 0: // nop, pause
		return d.nop()
	case o&^7 == 0x90: // xchg
		d.Op, d.Reg, d.Src = Swap, rax, d.inOpcode()
		if !d.wide {
			d.Op, d.Writes = Other, 1<<rax|1<<d.inOpcode()
		}
		return true
	case o == 0x87:
		if d.rm != None && d.wide {
			d.Op, d.Reg, d.Src = Swap, d.r, d.rm
			return true
		}
		d.writesRM(d.width())
		d.Writes |= 1 << d.r
		return true
	case o&^3 == 0xb0: // mov
		d.Op, d.Reg = Low, d.inOpcode()
		return true
	case o&^7 == 0xb8: // mov
		d.Op, d.Reg = Const, d.inOpcode()
		if !d.wide {
			d.Imm = int64(uint32(d.Imm))
		}
		if d.short && !d.wide {
			d.Op, d.Writes = Other, 1<<d.Reg
		}
		return true
	case o&^1 == 0xc6 && d.r == 7 && d.rm == rax: // xabort, xbegin
		if d.Writes = 1 << rax; o == 0xc7 {
			d.jump(Branch)
		}
		return !d.short
	case o == 0xc7:
		if d.r&7 != 0 {
			return false
		}
		if !d.wide && !d.short && d.rm != None {
			d.Op, d.Reg, d.Imm = Const, d.rm, int64(uint32(d.Imm))
			return true
		}
		return d.op64(Const, d.rm, None)
	case o == 0xc6:
		d.writesRM(1)
		return d.r&7 == 0
	case o == 0xc2, o == 0xc3: // ret
		d.Op, d.Mem.Step, d.Imm = Return, int64(uint16(d.Imm)), 0
		return !d.short
	case o == 0xc9:
		d.Op = Leave
		return !d.short
	case o == 0xcc: // int3
		d.Op, d.Imm = Trap, 3
		return true
	case o == 0xf4: // hlt
		d.Op = Trap
		return true
	case o&^7 == 0xd8:
		return d.x87()
	default:
		return d.flow()
	}
}

// nop handles 90 and 0f 1f. With some prefixes, they are other instructions.
func (d *amd64) nop() bool {
	if d.rex|d.repeat == 0 && !d.lock {
		d.Op = Nop
	}
	return true
}

func addOrSub(opcode byte) Op {
	if opcode < 0x08 {
		return AddReg
	}
	return SubReg
}

// load sets an op that writes the reg operand, if r/m is memory and the operand size is 64 bits; otherwise, it records
// a write to the register.
func (d *amd64) load(o Op) {
	if d.Op, d.Reg = o, d.r; !d.wide || d.rm != None {
		d.Op, d.Writes = Other, 1<<d.r
	}
}

// group1 handles add, or, adc, sbb, and, sub, xor and cmp with an immediate.
func (d *amd64) group1() bool {
	switch d.r & 7 {
	case 0:
		return d.op64(Add, d.rm, None)
	case 4:
		return d.op64(And, d.rm, None)
	case 5:
		d.Imm = -d.Imm
		return d.op64(Add, d.rm, None)
	case 7: // cmp
	default:
		d.writesRM(d.width())
	}
	return true
}

// x87 handles d8 to df: fnstsw %ax writes a register; the other instructions write only memory, if anything.
func (d *amd64) x87() bool {
	i, known := d.opcode&7, uint64(0)
	if d.rm == None {
		known = uint64(x87Memory[i]) >> (d.r & 7)
	} else {
		known = x87Registers[i] >> (d.r&7<<3 | d.rm&7)
	}
	d.writesMem(int32(x87Stores[i][d.r&7]))
	if d.opcode == 0xdf && d.rm != None && d.rm&7 == rax && d.r&7 == 4 {
		d.Writes = 1 << rax
	}
	return known&1 != 0
}

// flow handles jumps, and the groups f6, f7, fe and ff.
func (d *amd64) flow() bool {
	switch o := d.opcode; {
	case o&^0xf == 0x70:
		d.jump(Branch)
		return true
	case o&^3 == 0xe0: // loopne, loope, loop, jrcxz
		d.jump(Branch)
		if o < 0xe3 {
			d.Writes = 1 << rcx
		}
		return true
	case o == 0xe8:
		if d.jump(Call); d.Target == d.pc+uint64(d.Size) && d.popFollows() {
			d.Op = Push // the code reads its own address
		}
		return true
	case o == 0xe9, o == 0xeb:
		d.jump(Jump)
		return true
	case o == 0xcd: // int; int $3 is a longer int3
		if d.Writes = 1 << rax; d.Imm == 3 {
			d.Op, d.Writes, d.Imm = Trap, 0, 0
		}
		return true
	case o == 0xf6 || o == 0xf7:
		return d.group3()
	case o == 0xfe:
		d.writesRM(1)
		return d.r&7 < 2
	case o == 0xff:
		return d.group5()
	}
	return false
}

func (d *amd64) jump(o Op) {
	d.Op, d.Target = o, d.pc+uint64(d.Size)+uint64(d.Imm)
}

// group3 handles test, not, neg, mul and div.
func (d *amd64) group3() bool {
	size := int32(1)
	if d.opcode == 0xf7 {
		size = d.width()
	}
	switch d.r & 7 {
	case 0, 1:
		d.immediate(int(min(size, 4)))
	case 2, 3:
		d.writesRM(size)
	default:
		d.Writes = 1<<rax | 1<<rdx
	}
	return true
}

// group5 handles inc, dec, push, and indirect calls and jumps.
func (d *amd64) group5() bool {
	ops := [...][2]Op{2: {CallMem, CallReg}, 4: {JumpMem, JumpReg}, 6: {PushMem, Push}}
	switch r := d.r & 7; r {
	case 0, 1:
		d.Imm = 1 - 2*int64(r)
		return d.op64(Add, d.rm, None)
	case 2, 4, 6:
		if d.Op = ops[r][0]; d.rm != None {
			if d.Op = ops[r][1]; r == 6 {
				d.Src = d.rm
			} else {
				d.Reg = d.rm
			}
		}
		return !d.short
	}
	return false
}

// twoByte handles opcodes after 0f.
func (d *amd64) twoByte() bool {
	memory := d.rm == None
	switch o := d.opcode; {
	case o&^0xf == 0x80:
		d.jump(Branch)
		return true
	case o == 0x01: // xgetbv and others
		return !memory && !d.short && d.repeat == 0 && d.group7()
	case o&^1 == 0x2c: // cvttss2si and others; to MMX without a prefix
		if d.repeat != 0 {
			d.Writes = 1 << d.r
		}
		return true
	case o == 0x05: // syscall
		d.Op, d.Writes = System, 1<<rax|1<<rcx|1<<r11
		return true
	case o == 0x0b: // ud2
		d.Op = Trap
		return true
	case o == 0x1e: // rdssp, endbr64, nop
		if d.repeat == 0xf3 && !memory && d.r&7 == 1 {
			d.writesRM(d.width())
		}
		return true
	case o == 0x1f:
		return d.r != 0 || d.nop()
	case o == 0x7e, o == 0x7f, o == 0xd6:
		return d.moves()
	case o == 0xa0, o == 0xa8:
		d.Op = Push
		return !d.short
	case o == 0xa1, o == 0xa9:
		d.Op = Pop
		return !d.short
	case o == 0xa2: // cpuid
		d.Writes = 1<<rax | 1<<rbx | 1<<rcx | 1<<rdx
		return true
	case o == 0xae:
		return d.group15()
	case o == 0xb0:
		d.writesRM(1)
		d.Writes |= 1 << rax
		return true
	case o == 0xb1:
		d.writesRM(d.width())
		d.Writes |= 1 << rax
		return true
	case o == 0xb7: // movzwl
		if d.Op, d.Reg = Short, d.r; !memory || d.short && !d.wide {
			d.Op, d.Writes = Other, 1<<d.r
		}
		return true
	case o == 0xb8: // popcnt
		d.Writes = 1 << d.r
		return d.repeat == 0xf3
	case o == 0xb9: // ud1
		d.Op = Trap
		return true
	case o == 0xba:
		if d.r&7 > 4 { // bts, btr, btc
			d.writesRM(d.width())
		}
		return d.r&7 >= 4
	case o == 0xc7:
		return d.group9()
	}
	return false
}

// moves handles movd, movq, movdqa and movdqu.
func (d *amd64) moves() bool {
	switch {
	case d.opcode == 0x7e && d.repeat == 0xf3: // a load
	case d.opcode == 0x7e:
		d.writesRM(max(4, d.width()))
	case d.opcode == 0x7f:
		d.writesMem(d.vectorStore())
	case d.short: // movq
		d.writesMem(8)
	}
	return true
}

// group7 handles the register forms of 0f 01 that programs use: those for XCR0, transactions, protection keys and
// others.
func (d *amd64) group7() bool {
	switch d.r<<3 | d.rm {
	case 0o20, 0o56, 0o71: // xgetbv, rdpkru, rdtscp
		d.Writes = 1<<rax | 1<<rcx | 1<<rdx
	case 0o25, 0o26, 0o50, 0o57, 0o72, 0o73, 0o74: // xend, xtest, serialize, wrpkru, monitorx, mwaitx, clzero
	default:
		return false
	}
	return true
}

// group15 handles fxsave, fences and others.
func (d *amd64) group15() bool {
	const most = 512 // size of fxsave's operand in bytes
	r, plain := d.r&7, !d.short && d.repeat == 0
	if d.vector > 0 && r&^1 != 2 { // not vldmxcsr, vstmxcsr
		return false
	}
	switch {
	case d.rm == None && plain && r == 0: // fxsave
		d.writesMem(most)
	case d.rm == None && plain && r == 3: // stmxcsr
		d.writesMem(4)
	case d.rm == None && plain:
		return r != 4 && r != 6 // xsave, xsaveopt: the size is unknown
	case d.rm == None:
		return d.repeat == 0 && r >= 6 // clwb, clflushopt
	case d.repeat == 0xf3 && r < 2 && !d.short: // rdfsbase, rdgsbase
		d.writesRM(8)
	case d.repeat == 0xf3: // wrfsbase, wrgsbase, ptwrite, incssp, umonitor
		return !d.short && r != 7
	case d.repeat == 0xf2: // umwait
		return r == 6
	case d.short: // tpause
		return r == 6
	default: // lfence, mfence, sfence
		return r >= 5 && d.rm&7 == 0
	}
	return true
}

// group9 handles cmpxchg8b, rdrand and others.
func (d *amd64) group9() bool {
	switch r := d.r & 7; {
	case d.rm == None && r == 1:
		d.writesMem(16)
		d.Writes = 1<<rax | 1<<rdx
	case d.rm != None && (d.repeat == 0 && r >= 6 || d.repeat == 0xf3 && r == 7): // rdrand, rdseed, rdpid
		d.writesRM(8)
	default:
		return false
	}
	return true
}

// map2 handles opcodes after 0f 38.
func (d *amd64) map2() bool {
	switch o := d.opcode; {
	case o == 0xf1 && d.repeat == 0: // movbe
		d.writesMem(d.width())
		return d.rm == None
	case o == 0xf0 && d.repeat == 0:
		d.Writes = 1 << d.r
		return d.rm == None
	case o == 0xf0, o == 0xf1, o == 0xf6: // crc32, adcx, adox
		d.Writes = 1 << d.r
	case o == 0xf9: // movdiri
		d.writesMem(8)
		return d.rm == None
	case o == 0x2a: // movntdqa
		return d.rm == None
	}
	return true
}

// map3 handles opcodes after 0f 3a, and those in map 3 of VEX and EVEX.
func (d *amd64) map3() bool {
	switch o := d.opcode; {
	case o >= 0x14 && o <= 0x17: // pextrb and others
		d.writesRM(8)
	case o == 0x19, o == 0x1b, o == 0x1d, o == 0x39, o == 0x3b: // vextracti128 and others
		if d.vector > 0 {
			d.writesMem(32)
		}
	case o == 0x61, o == 0x63: // pcmpestri, pcmpistri
		d.Writes = 1 << rcx
	case o == 0xf0: // rorx
		d.Writes = 1 << d.r
	}
	return true
}

// vector1 handles maps 1 and 5 of VEX and EVEX.
func (d *amd64) vector1() bool {
	switch o := d.opcode; {
	case o >= 0x90 && o <= 0x99: // kmov and others
		if o == 0x91 {
			d.writesMem(8)
		}
		if o == 0x93 {
			d.Writes = 1 << d.r
		}
		return true
	case o >= 0x41 && o <= 0x4b: // kand and others; cmov without VEX
		return true
	case o == 0x78, o == 0x79: // vcvttss2usi
		if d.repeat != 0 {
			d.Writes = 1 << d.r
		}
		return true
	case o == 0x7a, o == 0x7b, o == 0x7e && d.repeat == 0xf3:
		return true
	}
	if d.opcode == 0x11 || d.opcode == 0x29 || d.opcode == 0x2b || d.opcode == 0x7f || d.opcode == 0xe7 {
		if d.Mem.Vague && d.repeat == 0 {
			d.Mem.Disp, d.Mem.Vague = d.Mem.Disp*int64(d.vector), false
		}
	}
	return d.effects(twoBytesWrites[d.opcode], d.twoByte)
}

// vector2 handles maps 2 and 6 of VEX and EVEX.
func (d *amd64) vector2() bool {
	if o := d.opcode &^ 3; o == 0x90 || d.evex && o == 0xa0 { // vpgatherdd, vpscatterdd: the index is a vector
		d.Mem.Index, d.Mem.Vague = None, true
	}
	switch o := d.opcode; {
	case d.evex && d.repeat == 0xf3 && o&^0x3f == 0 && o&0xf <= 5 && o >= 0x10, // vpmovqb and others
		d.evex && (o == 0x63 || o == 0x8a || o == 0x8b), // vpcompressb and others
		o == 0x2e, o == 0x2f, o == 0x8e, // vmaskmov
		d.evex && o&^3 == 0xa0: // vpscatterdd and others
		d.writesMem(max(d.vector, 16))
	case d.evex:
	case o == 0xf2, o == 0xf5, o == 0xf7: // andn, bzhi, bextr and others
		d.Writes = 1 << d.r
	case o == 0xf3: // blsr and others
		d.Writes = 1 << d.vvvv
	case o == 0xf6: // mulx
		d.Writes = 1<<d.r | 1<<d.vvvv
	}
	return true
}

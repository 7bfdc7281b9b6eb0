package insn

import (
	"encoding/binary"
	"math/bits"
)

// Source: Arm Architecture Reference Manual for A-profile, C4.1: A64 instruction set encoding. Register 31 is SP or
// zero, depending on the instruction.
const (
	linkRegister = 30
	stackPointer = 31
	zero         = 31
)

// An aarch64 is an instruction being decoded.
type aarch64 struct {
	Inst
	word uint32
	pc   uint64
}

// DecodeAArch64 decodes the instruction at the start of code, which is at pc. It reports whether the instruction is
// known.
func DecodeAArch64(code []byte, pc uint64) (Inst, bool) {
	d := aarch64{pc: pc, Inst: Inst{Size: 4, Reg: None, Src: None, Pair: None}}
	d.Mem.Base, d.Mem.Index = None, None
	if len(code) < d.Size || pc%4 != 0 {
		return d.Inst, false
	}
	d.word = binary.LittleEndian.Uint32(code)
	ok := d.decode()
	d.Flags = d.changesFlags()
	return d.Inst, ok
}

func (d *aarch64) decode() bool {
	switch d.bits(25, 4) {
	case 8, 9:
		return d.immediate()
	case 10, 11:
		return d.flow()
	case 4, 6, 12, 14:
		return d.memory()
	case 5, 13:
		return d.register()
	case 7, 15:
		return d.simple(vectorForms)
	}
	d.Op = Trap // udf
	return d.word>>16 == 0
}

// changesFlags reports whether the instruction may change the flags.
func (d *aarch64) changesFlags() bool {
	w := d.word
	bitwise := w&0x1f000000 == 0x0a000000 || w&0x1f800000 == 0x12000000
	switch d.bits(25, 4) {
	case 5, 8, 9, 13: // adds, ands, ccmp and others
		return w>>29&1 != 0 && w&0x1f000000 != 0x10000000 && (!bitwise || w>>30&1 != 0)
	case 10, 11:
		return w>>24 == 0xd5 && w&0xfffff01f != 0xd503201f // msr and others, but no hints
	case 7, 15:
		return w&0xff203c07 == 0x1e202000 || w&0xff200c00 == 0x1e200400 // fcmp, fccmp
	}
	return false
}

// bits returns the n bits that start at bit low.
func (d *aarch64) bits(low, n int) uint32 { return d.word >> low & (1<<n - 1) }

// signed returns the n bits that start at bit low, sign-extended.
func (d *aarch64) signed(low, n int) int64 { return int64(d.word) << (64 - low - n) >> (64 - n) }

// reg returns the register whose number starts at bit low.
func (d *aarch64) reg(low int) Reg { return Reg(d.bits(low, 5)) }

// general returns the register whose number starts at bit low, or None for the zero register.
func (d *aarch64) general(low int) Reg {
	if r := d.reg(low); r != zero {
		return r
	}
	return None
}

// write records a write to a register, unless it is None.
func (d *aarch64) write(r Reg) {
	if r != None {
		d.Writes |= 1 << r
	}
}

// A pattern matches the instructions for which the bits selected by mask equal value.
type pattern struct {
	mask, value uint32
	effect      byte // for the register in bits 0 to 4: 'd': written; 's': written, 31 is SP; '.': not written
}

// simple looks up the instruction in a list of patterns.
func (d *aarch64) simple(list []pattern) bool {
	for i := range list {
		p := &list[i]
		if d.word&p.mask != p.value {
			continue
		}
		switch p.effect {
		case 'd':
			d.write(d.general(0))
		case 's':
			d.write(d.reg(0))
		}
		return true
	}
	return false
}

// immediateForms lists data-processing instructions with an immediate operand that are not handled in immediate().
var immediateForms = []pattern{
	{0x7f800000, 0x31000000, 'd'}, {0x7f800000, 0x71000000, 'd'}, // adds, subs
	{0xbf800000, 0x11000000, 's'},                                // 32-bit add, sub
	{0x7ff00000, 0x11c00000, 'd'}, {0xbfc0c000, 0x91800000, 's'}, // smax and others; addg, subg
	{0xff800000, 0xf2000000, 'd'}, {0xffc00000, 0x72000000, 'd'}, // ands
	{0x9f800000, 0x92000000, 's'}, {0x9fc00000, 0x12000000, 's'}, // and, orr, eor
	{0xff800000, 0xf2800000, 'd'}, {0xffc00000, 0x72800000, 'd'}, // movk
	{0xffc00000, 0x12800000, 'd'}, {0xffc00000, 0x52800000, 'd'}, // 32-bit movn, movz
	{0xffc00000, 0x93400000, 'd'}, {0xffe08000, 0x13000000, 'd'}, // sbfm
	{0xffc00000, 0xb3400000, 'd'}, {0xffe08000, 0x33000000, 'd'}, // bfm
	{0xffc00000, 0xd3400000, 'd'}, {0xffe08000, 0x53000000, 'd'}, // ubfm
	{0xffe00000, 0x93c00000, 'd'}, {0xffe08000, 0x13800000, 'd'}, // extr
}

// immediate handles data-processing instructions with an immediate operand.
func (d *aarch64) immediate() bool {
	w, to := d.word, d.general(0)
	switch {
	case w&0x1f000000 == 0x10000000: // adr, adrp
		n := d.signed(5, 19)<<2 | int64(d.bits(29, 2))
		if w>>31 == 0 {
			d.Op, d.Reg = Address, to
			d.Mem.Disp, d.Mem.Relative = int64(d.pc)+n, true
		} else {
			d.Op, d.Reg, d.Imm = Page, to, int64(d.pc&^0xfff)+n<<12
		}
		return true
	case w&0xbf800000 == 0x91000000: // add, sub
		d.Op, d.Reg, d.Mem.Base = Address, d.reg(0), d.reg(5)
		d.Mem.Disp = int64(d.bits(10, 12)) << (12 * d.bits(22, 1))
		if w>>30&1 != 0 {
			d.Mem.Disp = -d.Mem.Disp
		}
		return true
	case w&0x7f80001f == 0x7100001f: // cmp
		d.Op, d.Src = Compare, d.reg(5)
		d.Imm = int64(d.bits(10, 12)) << (12 * d.bits(22, 1))
		return true
	case w&0x1f800000 == 0x12000000: // and, orr and others with a bitmask immediate
		size := bits.Len32(d.bits(22, 1)<<6|d.bits(10, 6)^0x3f) - 1
		return size > 0 && d.bits(10, size) != 1<<size-1 && d.simple(immediateForms)
	case w&0xff800000 == 0xd2800000: // movz
		d.Op, d.Reg, d.Imm = Const, to, int64(d.bits(5, 16))<<(16*d.bits(21, 2))
		return true
	case w&0xff800000 == 0x92800000: // movn
		d.Op, d.Reg, d.Imm = Const, to, ^(int64(d.bits(5, 16)) << (16 * d.bits(21, 2)))
		return true
	}
	return d.simple(immediateForms)
}

// registerForms lists data-processing instructions with register operands, including some that register() handles.
var registerForms = []pattern{
	{0x9f000000, 0x8a000000, 'd'}, {0x9f008000, 0x0a000000, 'd'}, // and, orr and others
	{0x9fa00000, 0x8b000000, 'd'}, {0x9fe00000, 0x8b800000, 'd'}, // add and others, by shift amount and type
	{0x9fa08000, 0x0b000000, 'd'}, {0x9fe08000, 0x0b800000, 'd'},
	{0x3fe01000, 0x2b200000, 'd'}, {0x3fe01c00, 0x2b201000, 'd'}, // adds, subs (extended register)
	{0x3fe01000, 0x0b200000, 's'}, {0x3fe01c00, 0x0b201000, 's'}, // add, sub
	{0x3fe00410, 0x3a400000, '.'}, {0x3fe00800, 0x1a800000, 'd'}, // ccmp, ccmn; csel and others
	{0x7fe00000, 0x1b000000, 'd'}, {0xff600000, 0x9b200000, 'd'}, // madd, msub; smaddl and others
	{0xff608000, 0x9b400000, 'd'}, {0x1fe0fc00, 0x1a000000, 'd'}, // smulh, umulh; adc, sbc
	{0x7fe0f800, 0x1ac00800, 'd'}, {0x7fe0f000, 0x1ac02000, 'd'}, // udiv, sdiv; lsl and others
	{0xffe0f800, 0x1ac04000, 'd'}, {0xffe0fc00, 0x1ac04800, 'd'}, // crc32
	{0xffe0f800, 0x1ac05000, 'd'}, {0xffe0fc00, 0x1ac05800, 'd'},
	{0xffe0fc00, 0x9ac04c00, 'd'}, {0xffe0fc00, 0x9ac05c00, 'd'},
	{0x7fe0f000, 0x1ac06000, 'd'}, {0xffe0fc00, 0x9ac03000, 'd'}, // smax and others; pacga
	{0x7ffff800, 0x5ac00000, 'd'}, {0x7ffffc00, 0x5ac00800, 'd'}, // rbit, rev16; rev
	{0xfffffc00, 0xdac00c00, 'd'}, {0x7ffff000, 0x5ac01000, 'd'}, // rev; clz and others
	{0x7ffffc00, 0x5ac02000, 'd'}, {0xffffe000, 0xdac10000, 'd'}, // abs; pacia and others
	{0xffffe3e0, 0xdac123e0, 'd'}, {0xfffffbe0, 0xdac143e0, 'd'}, // paciza and others; xpaci, xpacd
	{0xffe07c10, 0xba000400, '.'}, {0xffffbc1f, 0x3a00080d, '.'}, // rmif; setf8, setf16
	{0xdfe0fc00, 0x9ac00000, 'd'}, {0xffe0fc00, 0x9ac01000, 's'}, // subp, subps; irg
	{0xffe0fc00, 0x9ac01400, 'd'}, // gmi
}

// register handles data-processing instructions with register operands.
func (d *aarch64) register() bool {
	to, n, m := d.reg(0), d.reg(5), d.reg(16)
	plain := d.word&0xffe0fc00 == 0x8b000000 && n != zero && to != zero // 64-bit, without a shift
	extended := d.word&0xffe0fc00 == 0x8b206000
	shifted := d.word&0xffe0e000 == 0x8b000000 && n != zero && to != zero || d.word&0xffe0e000 == 0x8b206000
	subtracts := d.word&0xffe0fc00 == 0xcb204000 || d.word&0xffe0fc00 == 0xcb206000
	switch {
	case m == zero:
	case d.word&0xffe0ffe0 == 0xaa0003e0 && to != zero: // mov
		d.Op, d.Reg, d.Src = Move, to, m
		return true
	case plain, extended: // add
		d.Op, d.Reg, d.Mem.Base, d.Mem.Index, d.Mem.Scale = Address, to, n, m, 1
		return true
	case shifted && d.bits(10, 3) <= 4: // add with a multiple of m
		d.Op, d.Reg, d.Imm, d.Mem.Base, d.Mem.Index = Multiple, to, 8, n, m
		d.Mem.Scale = 1 << d.bits(10, 3)
		return true
	case d.word&0xffe08000 == 0x8b208000 && d.bits(10, 3) <= 4: // add with a part of m
		d.Op, d.Reg, d.Imm, d.Mem.Base, d.Mem.Index = Multiple, to, 1<<d.bits(13, 2), n, m
		d.Mem.Scale = 1 << d.bits(10, 3)
		return true
	case d.word&0xffe08000 == 0x8b200000 && d.bits(10, 3) <= 4:
		d.Op, d.Reg, d.Mem.Base, d.Mem.Index = Address, to, n, m
		return true
	case subtracts: // sub
		d.Op, d.Reg, d.Mem.Base, d.Mem.Index, d.Mem.Scale = Distance, to, n, m, 1
		return true
	}
	return d.simple(registerForms)
}

// flow handles branches, exceptions and system instructions.
func (d *aarch64) flow() bool {
	w := d.word
	switch {
	case w&0xfc000000 == 0x14000000: // b
		d.jump(Jump, d.signed(0, 26))
	case w&0xfc000000 == 0x94000000: // bl
		d.jump(Call, d.signed(0, 26))
	case w&0xff000000 == 0x54000000, w&0x7e000000 == 0x34000000: // b.eq and others, bc.eq and others, cbz, cbnz
		if d.jump(Branch, d.signed(5, 19)); w>>24 == 0x54 {
			d.Imm = conditions[d.bits(0, 4)]
		}
	case w&0x7e000000 == 0x36000000: // tbz, tbnz
		d.jump(Branch, d.signed(5, 14))
	case w&0xffe0001f == 0xd4000001: // svc
		d.Op, d.Writes = System, 1<<0
	case w&0xffe0001f == 0xd4200000, w&0xffe0001f == 0xd4400000: // brk, hlt
		d.Op = Trap
	case w&0xfffff01f == 0xd503201f:
		d.hint()
	case w&0xfffff01f == 0xd503301f: // clrex, dsb, dmb, isb, sb
		return 1<<2|1<<4|1<<5|1<<6|1<<7>>d.bits(5, 3)&1 != 0
	case w&0xfff8f01f == 0xd500401f, w&0xfff00000 == 0xd5100000: // msr
	case w&0xfff80000 == 0xd5280000, w&0xfff00000 == 0xd5300000: // sysl, mrs
		d.write(d.general(0))
	case w&0xfff80000 == 0xd5080000: // sys
		if d.bits(8, 8) == 0x74 { // dc zva: clears an aligned block
			const most = 2048
			d.Mem.Base, d.Mem.Disp, d.Stores = d.general(0), -most, 2*most
		}
	case w&0xfffffc1f == 0xd61f0000, w&0xfffff81f == 0xd61f081f, w&0xfffff800 == 0xd71f0800: // br, braaz, braa
		d.Op, d.Reg = JumpReg, d.general(5)
		return d.Reg != None
	case w&0xfffffc1f == 0xd63f0000, w&0xfffff81f == 0xd63f081f, w&0xfffff800 == 0xd73f0800: // blr, blraaz, blraa
		d.Op, d.Reg = CallReg, d.general(5)
	case w == 0xd65f0bff: // retaa
		d.Op, d.Imm = Return, 1
	case w&0xfffffc1f == 0xd65f0000: // ret
		if d.Op = Return; d.reg(5) != linkRegister {
			d.Op, d.Reg = JumpReg, d.general(5)
			return d.Reg != None
		}
	default:
		return false
	}
	return true
}

// conditions holds the conditions of b.hs, b.lo, b.hi and b.ls.
var conditions = [16]int64{2: HigherOrSame, 3: Lower, 8: Higher, 9: LowerOrSame}

func (d *aarch64) jump(o Op, words int64) { d.Op, d.Target = o, d.pc+uint64(4*words) }

func (d *aarch64) hint() {
	switch n := d.bits(5, 7); n {
	case 0:
		d.Op = Nop
	case 25, 29: // paciasp, autiasp
		if d.Op = Sign; n == 25 {
			d.Imm = 1
		}
	case 7, 24, 26, 27, 28, 30, 31: // xpaclri, paciaz and others
		d.Writes = 1 << linkRegister
	case 8, 10, 12, 14: // pacia1716 and others
		d.Writes = 1 << 17
	case 40: // chkfeat
		d.Writes = 1 << 16
	}
}

// memory handles loads and stores.
func (d *aarch64) memory() bool {
	w := d.word
	d.Mem.Base = d.reg(5)
	switch {
	case w&0x3b000000 == 0x18000000: // ldr (literal), prfm
		d.Mem.Base = None
		if w>>26&1 != 0 {
			return w>>30 != 3
		}
		if w>>30 != 3 {
			d.write(d.general(0))
		}
		return true
	case w&0x3a000000 == 0x28000000:
		return d.pair()
	case w&0x3a000000 == 0x38000000:
		return d.single()
	case w&0x3f000000 == 0x08000000:
		return d.exclusive()
	case w&0x3f200c00 == 0x19000000: // stlur, ldapur
		d.Mem.Disp = d.signed(12, 9)
		return d.access(w>>30, d.bits(22, 2))
	}
	return w&0xbe000000 == 0x0c000000 && d.structure()
}

// modify sets the displacement. Mode 1 is post-indexed, and 3 pre-indexed: both write back the base register, which the
// instruction must then neither load nor store.
func (d *aarch64) modify(mode uint32, disp int64) bool {
	if d.Mem.Disp = disp; mode&1 == 0 {
		return true
	}
	if d.Mem.Step = disp; mode == 1 {
		d.Mem.Disp = 0
	}
	base := d.Mem.Base
	return base == stackPointer || base != d.Reg && base != d.Pair && base != d.Src && d.Writes>>base&1 == 0
}

// access handles loads and stores of a general register that access 1<<size bytes of memory.
func (d *aarch64) access(size, opc uint32) bool {
	switch t := d.general(0); {
	case opc == 0 && size == 3:
		d.Op, d.Src = Store, t
	case opc == 0:
		d.Stores = 1 << size
	case opc == 1 && size == 3:
		d.Op, d.Reg = Load, t
	case opc == 1 && d.Mem.Index != None:
		d.Op, d.Reg = [...]Op{Byte, Short, Word}[size], t
	case opc == 2 && size == 2 && d.Mem.Index != None:
		d.Op, d.Reg = Extend, t
	default:
		d.write(t)
		return opc == 1 || opc+size < 5
	}
	return true
}

// pair handles ldp, stp and others.
func (d *aarch64) pair() bool {
	kind, mode, loads := d.word>>30, d.bits(23, 2), d.bits(22, 1) != 0
	t, u := d.general(0), d.general(10)
	scale := 2 + kind>>1
	switch {
	case d.bits(26, 1) != 0:
		if scale = 2 + kind; !loads {
			d.Stores = 2 << scale
		}
		if kind == 3 || loads && d.reg(0) == d.reg(10) {
			return false
		}
	case kind == 3, kind == 1 && (!loads || mode == 0), loads && t == u:
		return false
	case kind == 2 && loads:
		d.Op, d.Reg, d.Pair = Load, t, u
	case kind == 2:
		d.Op, d.Src, d.Pair = Store, t, u
	case loads:
		d.write(t)
		d.write(u)
	default:
		d.Stores = 2 << scale
	}
	return d.modify(mode, d.signed(15, 7)<<scale)
}

// single handles ldr, str and others, and atomic instructions.
func (d *aarch64) single() bool {
	size, opc, vector := d.word>>30, d.bits(22, 2), d.bits(26, 1) != 0
	scale := size
	if vector && opc >= 2 {
		if scale = 4; size != 0 {
			return false
		}
	}
	disp, mode := d.signed(12, 9), d.bits(10, 2)
	switch register := d.bits(21, 1) != 0; {
	case d.bits(24, 1) != 0:
		disp, mode = int64(d.bits(10, 12))<<scale, 0
	case register && mode == 2:
		d.Mem.Index, d.Mem.Scale = d.reg(16), 1<<(scale*d.bits(12, 1))
		if disp, mode = 0, 0; d.bits(14, 1) == 0 {
			return false
		}
	case register:
		return mode == 0 && !vector && d.atomic(size)
	case mode == 2 && vector:
		return false
	}
	switch {
	case vector:
		if opc&1 == 0 {
			d.Stores = 1 << scale
		}
	case size == 3 && opc == 2: // prfm
		return mode == 0
	case !d.access(size, opc):
		return false
	}
	return d.modify(mode, disp)
}

// atomic handles ldadd and others, swp and ldapr.
func (d *aarch64) atomic(size uint32) bool {
	d.write(d.general(0))
	if d.bits(12, 4) <= 8 {
		d.Stores = 1 << size
		return true
	}
	return d.bits(12, 4) == 12 && d.bits(22, 2) == 2 && d.reg(16) == zero
}

// exclusive handles ldxr, stxr, ldar, stlr, cas and others. Unused register fields are all ones.
func (d *aarch64) exclusive() bool {
	size, kind, loads := d.word>>30, d.bits(21, 1)|d.bits(23, 1)<<1, d.bits(22, 1) != 0
	s, t, u := d.general(16), d.general(0), d.general(10)
	if !loads || kind == 3 || kind == 1 && size < 2 {
		d.Stores = 1 << size
	}
	switch {
	case kind == 1 && size < 2: // casp
		d.Stores = 8 << size
		if s != None {
			d.Writes = 3 << s &^ (1 << zero)
		}
		return d.reg(0)&1 == 0 && d.reg(16)&1 == 0 && u == None
	case kind == 1: // ldxp, stxp
		d.Stores *= 2
		if loads {
			d.write(t)
			d.write(u)
			return s == None
		}
		d.write(s)
		return true
	case kind == 0 && !loads, kind == 3: // stxr, cas
		d.write(s)
	case loads:
		d.write(t)
		return s == None && u == None
	default:
		return s == None && u == None
	}
	return u == None
}

// structure handles ld1, st1 and others.
func (d *aarch64) structure() bool {
	n, full, size := int64(0), d.bits(30, 1), d.bits(10, 2)
	post, loads := d.bits(23, 1) != 0, d.bits(22, 1) != 0
	if d.bits(24, 1) == 0 { // whole registers
		opcode := d.bits(12, 4)
		n = int64("\x04\x00\x04\x00\x03\x00\x03\x01\x02\x00\x02\x00\x00\x00\x00\x00"[opcode]) * 8 << full
		if opcode&3 == 0 && size == 3 && full == 0 || d.bits(21, 1) != 0 {
			return false
		}
	} else {
		opcode, s := d.bits(13, 3), d.bits(12, 1)
		n = int64(opcode&1<<1|d.bits(21, 1)) + 1
		switch scale := opcode >> 1; {
		case scale == 3: // ld1r
			if n <<= size; !loads || s != 0 {
				return false
			}
		case scale == 2 && size == 1:
			if n *= 8; s != 0 {
				return false
			}
		case scale == 1 && size&1 != 0, scale == 2 && size > 1:
			return false
		default:
			n <<= scale
		}
	}
	if !loads {
		d.Stores = int32(n)
	}
	switch m := d.reg(16); {
	case !post:
		return n > 0 && m == 0
	case m == zero:
		d.Mem.Step = n
	default:
		d.Writes = 1 << d.Mem.Base
	}
	return n > 0
}

// vectorForms lists the vector and floating-point data-processing instructions. Reserved encodings within these groups
// are not excluded.
var vectorForms = []pattern{
	{0x9f000400, 0x0f000000, '.'}, {0xdf000400, 0x5f000000, '.'}, // by element
	{0x9f200400, 0x0e200400, '.'}, {0x9f200c00, 0x0e200000, '.'}, // three registers
	{0x9f800400, 0x0f000400, '.'}, {0xdf800400, 0x5f000400, '.'}, // immediate operands and shifts
	{0x9f3e0c00, 0x0e200800, '.'}, {0x9f3e0c00, 0x0e300800, '.'}, // two-register and across-lanes instructions
	{0xbfe0fc00, 0x0e002c00, 'd'}, {0xbfe0fc00, 0x0e003c00, 'd'}, // smov, umov
	{0x9fe08400, 0x0e000400, '.'}, {0xbf208c00, 0x0e000800, '.'}, // dup and others, zip1 and others
	{0xbfe08c00, 0x0e000000, '.'}, {0xbfe08400, 0x2e000000, '.'}, // tbl, ext
	{0x5f26fc00, 0x1e200000, 'd'}, {0x5f3efc00, 0x1e240000, 'd'}, // fcvtns and others, fcvtas, fcvtau
	{0x5f3efc00, 0x1e220000, '.'}, {0x5f37fc00, 0x1e260000, 'd'}, // scvtf, ucvtf; fmov
	{0x5f37fc00, 0x1e270000, '.'}, {0xfffffc00, 0x1e7e0000, 'd'}, // fmov, fjcvtzs
	{0x5f3e0000, 0x1e180000, 'd'}, {0x5f3e0000, 0x1e020000, '.'}, // fcvtzs, fcvtzu; scvtf, ucvtf
	{0xff200c00, 0x1e200800, '.'}, {0xff200c00, 0x1e200c00, '.'}, // fmul and others, fcsel
	{0xff207c00, 0x1e204000, '.'}, {0xff203c07, 0x1e202000, '.'}, // fmov and others, fcmp
	{0xff201fe0, 0x1e201000, '.'}, {0xff200c00, 0x1e200400, '.'}, // fmov, fccmp
	{0xff000000, 0x1f000000, '.'},                                // fmadd and others
	{0x9f60c400, 0x0e400400, '.'}, {0x9f7e0c00, 0x0e780800, '.'}, // FP16
	{0x9f208400, 0x0e008400, '.'}, {0xdf208400, 0x5e008400, '.'}, // sdot and others
	{0xdfe08400, 0x5e000400, '.'}, {0xdf200400, 0x5e200400, '.'}, // scalar forms
	{0xdf200c00, 0x5e200000, '.'}, {0xdf3e0c00, 0x5e200800, '.'},
	{0xdf3e0c00, 0x5e300800, '.'}, {0xdf60c400, 0x5e400400, '.'}, {0xdf7e0c00, 0x5e780800, '.'},
	{0xff3e0c00, 0x4e280800, '.'}, {0xffe08c00, 0x5e000000, '.'}, {0xfffe0c00, 0x5e280800, '.'}, // aese, sha1c, sha1h
	{0xffe0b000, 0xce600000, '.'}, {0xff808000, 0xce000000, '.'}, {0xffe00000, 0xce800000, '.'}, // sha512h, eor3, xar
	// sm3tt1a, sm3partw1, sm4e
	{0xffe0c000, 0xce408000, '.'}, {0xffe0b000, 0xce608000, '.'}, {0xfffff000, 0xcec08000, '.'},
}

package insn

// Operands of opcodes after the legacy prefixes: none (.), ModRM (m), an immediate of 1 byte (b), 2 bytes (w), or 4
// bytes, or 2 with the operand-size prefix (z); ModRM and an immediate (B, Z); an immediate of the operand size (v), an
// 8-byte address (o), branch displacements of 1 and 4 bytes (j, J), and the operands of enter (e). Other opcodes (-)
// are unknown: prefixes, escapes, and undefined or privileged opcodes.
const (
	oneByte = "mmmmbz--mmmmbz--" + "mmmmbz--mmmmbz--" + "mmmmbz--mmmmbz--" + "mmmmbz--mmmmbz--" +
		"----------------" + "................" + "---m----zZbB----" + "jjjjjjjjjjjjjjjj" +
		"BZ-Bmmmmmmmmmm-m" + "..........-....." + "oooo....bz......" + "bbbbbbbbvvvvvvvv" +
		"BBw.--BZe.--.b--" + "mmmm---.mmmmmmmm" + "jjjj----JJ-j----" + "----..mm..--..mm"
	twoBytes = "-mmm-.-----.-m.-" + "mmmmmmmmmmmmmmmm" + "--------mmmmmmmm" + "-.-.------------" +
		"mmmmmmmmmmmmmmmm" + "mmmmmmmmmmmmmmmm" + "mmmmmmmmmmmmmmmm" + "BBBBmmm.----mmmm" +
		"JJJJJJJJJJJJJJJJ" + "mmmmmmmmmmmmmmmm" + "...mBm--..-mBmmm" + "mmmmmmmmmmBmmmmm" +
		"mmBmBBBm........" + "mmmmmmmmmmmmmmmm" + "mmmmmmmmmmmmmmmm" + "mmmmmmmmmmmmmmm-"
)

// What opcodes write: nothing that matters (.), the byte (b) or the whole (E) of r/m, the byte (g) or the whole (G) of
// the other register of ModRM, both (x, X), rax (A), rax and rdx (D), the register in the opcode (R, or r for a byte),
// the registers of string instructions (S), or memory only (s, M). Methods oneByte and twoByte handle opcodes
// whose effects no letter describes (*).
const (
	oneByteWrites = "b*g*A*--bEgGAA--" + "bEgGAA--bEgGAA--" + "bEgGA*--b*g*A*--" + "b*g*AA--......--" +
		"----------------" + "****************" + "---*----*G*G----" + "****************" +
		"**-*..x*b*g*E*-*" + "********AD-.**.A" + "AAMMSSSS..SSSSSS" + "****rrrr********" +
		"bE**--**-*--**--" + "bEbE---A********" + "****----**-*----" + "----*.**..--..**"
	twoBytesWrites = "-*GG-*-----*-..-" + ".s.s...s......**" + "--------.s.s**.." + "-D-D------------" +
		"GGGGGGGGGGGGGGGG" + "G..............." + "................" + "........----..*s" +
		"****************" + "bbbbbbbbbbbbbbbb" + "***.EE--**-EEE*G" + "**-E--G****EGGGG" +
		"xX.E.G.*RRRRRRRR" + "......*G........" + ".......s........" + "...............-"
)

// The valid opcodes, by map (1 after 0f, 2 after 0f 38, 3 after 0f 3a) and by prefix (none, 66, f3, f2). VEX and EVEX
// encode the map and the prefix; maps 5 and 6 contain FP16 instructions. AMX and other instructions that compilers emit
// only for intrinsics are treated as unknown.
type opcodes [4]uint64

func (o *opcodes) has(op byte) bool { return o[op>>6]>>(op&63)&1 != 0 }

var legacyMaps = [...][4]opcodes{
	1: {
		{0xaff00f3ff682e, 0xc0ffcfffffffffff, 0xfffffb3fffffffff, 0x7ffeffbfffbeffff},
		{0xaff00f3ff282e, 0xf07ffffffff3ffff, 0xfffffb3fffffffff, 0x7ffefffffffffff7},
		{0xa3c00f347282e, 0xc0018000ff0effff, 0xfffffb3fffffffff, 0x400040ff87},
		{0xa3c00f307282e, 0x30010000f702ffff, 0xcffffb3fffffffff, 0x100400041ff87},
	},
	2: {
		{0x70000fff, 0x0, 0x0, 0x203000000003f00},
		{0xffbf0f3f70b10fff, 0x3, 0x0, 0x430000f8008000},
		{0x0, 0x0, 0x0, 0x40000000000000},
		{0x0, 0x0, 0x0, 0x3000000000000},
	},
	3: {
		{0x8000, 0x0, 0x0, 0x1000},
		{0x700f0ff00, 0xf00000017, 0x0, 0x8000c000},
	},
}

var vexMaps = [...][4]opcodes{
	1: {
		{0xcb0000ff0000, 0x800000ffff0cf6, 0x4000030f0000, 0x44},
		{0xcb0000ff0000, 0xf0fffffffff30cf6, 0x30f0000, 0x7ffeffffffff0074},
		{0x340000470000, 0xc0818000ff0e0000, 0x0, 0x4000000004},
		{0x340000070000, 0x30810000f7020000, 0xc0000, 0x1004000010004},
	},
	2: {
		{0x0, 0x30000, 0x1000000000000, 0xac0000040c0000},
		{0xffffff3f77c8ffff, 0x3000000070f00e3, 0xfff3ffc0ffcf5000, 0x800000fc0c8000},
		{0x0, 0x4000000030000, 0x3000000000000, 0xa00000040c0000},
		{0x0, 0x30000, 0x1000000000000, 0xe0000004003800},
	},
	3: {
		{},
		{0x30f000723f0ff77, 0xff00ff0ff0001f57, 0x0, 0xc000c000},
		{},
		{0x0, 0x0, 0x0, 0x1000000000000},
	},
}

var evexMaps = [...][4]opcodes{
	1: {
		{0xcb0000ff0000, 0x3000000fff20000, 0xf0000, 0x44},
		{0xcb0000ff0000, 0xcf7ffffffff20000, 0xf0000, 0x7f7effffff7e0074},
		{0xf40000470000, 0xcf018000ff020000, 0x0, 0x4000000004},
		{0xf40000070000, 0x8f018000f7020000, 0xc0000, 0x4000000004},
	},
	2: {
		{0x0, 0x10e00040074000, 0x0, 0x40c0000},
		{0xffff3fffff7f3811, 0xffefe0fc4f3ffcfd, 0xfff0ffcfffcfaf08, 0xf40cbd10},
		{0x73f07ff003f0000, 0x14200050074000, 0x0, 0x40c0000},
		{0x0, 0x142100400f4000, 0xc000c000000, 0x4000000},
	},
	3: {
		{0x200000c000000580, 0x500c000cc0000, 0x2000, 0x4},
		{0xcf0080efeff08fbb, 0xf00c000ff001c, 0x2000, 0xc000},
		{0x80, 0x85000000000004, 0x2000, 0x4},
		{0x4000000180, 0x85004000440000, 0xa000, 0x1000000000004},
	},
	5: {
		{0xfc0c00029000000, 0x33103f00ff020000, 0x0, 0x300000000000000},
		{0x580800020000000, 0x7f007f00ff020000, 0x0, 0x300000000000000},
		{0x7f00f40009030000, 0x2b10c000ff020000, 0x0, 0x0},
		{0x49000000, 0x24108f0004000000, 0x0, 0x0},
	},
	6: {
		{0x100000080000, 0x5004, 0x5500550055000003, 0x0},
		{0x300000080000, 0xf00c, 0xffc0ffc0ffc00000, 0x0},
		{0x0, 0xc00000, 0x0, 0xc00000},
		{0x0, 0xc00000, 0x0, 0xc00000},
	},
}

// XOP opcodes, by map minus 8. XOP has no mandatory prefixes.
var xopMaps = [...]opcodes{
	{0x0, 0x0, 0x40004cc0e0c0e0, 0xf0000000f00f},
	{0x40006, 0x0, 0xfff000f, 0xe08ce08ce},
	{0x50000, 0x0, 0x0, 0x0},
}

// The valid forms of opcodes d8 to df, by opcode: memory forms by the reg field of ModRM, and register forms by the low
// six bits of ModRM.
var (
	// x87Stores lists the number of bytes that the memory forms write.
	x87Stores = [8][8]byte{1: {2: 4, 4, 6: 28, 2}, 3: {1: 4, 4, 4, 7: 10}, 5: {1: 8, 8, 8, 6: 108, 2},
		7: {1: 2, 2, 2, 6: 10, 8}}
	x87Memory    = [8]byte{0xff, 0xfd, 0xff, 0xaf, 0xff, 0xdf, 0xff, 0xff}
	x87Registers = [8]uint64{0xffffffffffffffff, 0xffff7f330001ffff, 0x200ffffffff, 0xffff3fffffffff,
		0xffffffff0000ffff, 0xffffffff00ff, 0xffffffff0200ffff, 0xffff01000000ff}
)

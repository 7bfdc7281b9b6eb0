// Package insn decodes instructions as far as they affect a stack: their size, their effects on registers and on memory
// that may be in the stack, and their effects on control flow. It does not decode mnemonics, other operands, or vector
// contents; of flags, only what bounds the indexes of aarch64's jump tables.
//
// An unknown instruction is reported as such; nothing is guessed.
package insn

// An Op is the effect of an instruction. Registers and memory operands are 64 bits wide.
type Op uint8

const (
	Other    Op = iota // only the effects in Writes and Stores
	Nop                // nothing; the forms that assemblers emit
	Move               // Reg = Src
	Add                // Reg += Imm
	AddReg             // Reg += Src
	SubReg             // Reg -= Src
	And                // Reg &= Imm
	Const              // Reg = Imm
	Low                // the low byte of Reg = Imm
	Page               // Reg = Imm, the start of a page
	Address            // Reg = address of Mem
	Multiple           // Reg = Base + Scale * Index of Mem, with only the low Imm bytes of Index, sign-extended
	Distance           // Reg = Base - Index of Mem, possibly with only the low 32 bits of Index
	Load               // Reg = Mem
	Extend             // Reg = 4 bytes of Mem, sign-extended
	Word               // Reg = 4 bytes of Mem, zero-extended
	Short              // Reg = 2 bytes of Mem, zero-extended
	Byte               // Reg = 1 byte of Mem, zero-extended
	Compare            // set the flags as Src - Imm does (only on aarch64)
	Store              // Mem = Src
	Swap               // exchange Reg and Src
	Push               // Src, or an unknown value if Src is None
	PushMem            // Mem
	Pop                // to Reg
	PopMem             // to Mem
	Leave              // SP = FP; pop FP
	Sign               // sign the return address with SP if Imm is 1, otherwise authenticate it
	Branch             // to Target, or continue; Imm is the condition, if it is one of those below
	Jump               // to Target
	JumpReg            // to Reg
	JumpMem            // to the address in Mem
	Call               // Target
	CallReg            // Reg
	CallMem            // the address in Mem
	Return             // to a signed address if Imm is 1; the callee pops Mem.Step bytes of arguments
	System             // a system call, which changes Writes
	Trap               // execution does not continue, except after a breakpoint (Imm is 3)
)

// Leaves reports whether control never falls through to the next instruction.
func (op Op) Leaves() bool {
	switch op {
	case Jump, JumpReg, JumpMem, Return, Trap:
		return true
	}
	return false
}

// Calls reports whether the instruction is a call.
func (op Op) Calls() bool { return op == Call || op == CallReg || op == CallMem }

// A Reg is the number of a register in encodings, or None.
type Reg int8

// None means no register.
const None = -1

// An Inst is an instruction.
type Inst struct {
	Size   int // in bytes
	Imm    int64
	Target uint64
	Mem    Mem
	Op     Op
	Reg    Reg
	Src    Reg
	Pair   Reg    // of Load and Store: a second register, for the next 8 bytes of memory
	Writes uint32 // bit set of other registers, whose new values are unknown
	Stores int32  // number of bytes of Mem written by an op other than Store
	Flags  bool   // may change the flags (only on aarch64)
}

// Conditions of branches, for unsigned numbers.
const (
	Lower = iota + 1
	LowerOrSame
	HigherOrSame
	Higher
)

// A Mem is a memory operand, at Base + Index * Scale + Disp.
type Mem struct {
	Disp        int64 // in bytes; an address if Relative
	Step        int64 // added to Base after the access
	Base, Index Reg
	Scale       int8
	Relative    bool // pc-relative
	Elsewhere   bool // relative to FS or GS, or computed with 32-bit addressing
	Vague       bool // Disp is in unknown units
}

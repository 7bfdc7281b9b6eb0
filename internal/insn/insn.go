// Package insn decodes instructions, as far as they matter to a stack: their size, what they do to registers and to
// memory whose address may be in the stack, and where control goes. Names and operands of instructions are out, as are
// the contents of vectors and flags.
//
// An instruction that is not known is reported as unknown, and nothing is guessed.
package insn

// An Op is what an instruction does. Registers and memory are of 64 bits.
type Op uint8

const (
	Other   Op = iota // nothing but what Writes and Stores say
	Move              // Reg = Src
	Add               // Reg += Imm
	AddReg            // Reg += Src
	SubReg            // Reg -= Src
	And               // Reg &= Imm
	Const             // Reg = Imm
	Address           // Reg = address of Mem
	Load              // Reg = Mem
	Extend            // Reg = 4 bytes of Mem, sign-extended
	Short             // Reg = 2 bytes of Mem, zero-extended
	Store             // Mem = Src
	Swap              // Reg and Src
	Push              // Src, or an unknown value if that is None
	PushMem           // Mem
	Pop               // to Reg
	PopMem            // to Mem
	Leave             // SP = FP; pop FP
	Branch            // to Target, or on
	Jump              // to Target
	JumpReg           // to Reg
	JumpMem           // to the address in Mem
	Call              // Target
	CallReg           // Reg
	CallMem           // the address in Mem
	Return
	Trap // does not go on
)

// Leaves reports whether control does not reach the next instruction.
func (op Op) Leaves() bool {
	switch op {
	case Jump, JumpReg, JumpMem, Return, Trap:
		return true
	}
	return false
}

// None is no register.
const None = -1

// An Inst is an instruction. Registers have the numbers of their encoding.
type Inst struct {
	Size   int // in bytes
	Op     Op
	Reg    int
	Src    int
	Imm    int64
	Target uint64
	Mem    Mem
	Writes uint32 // bits of other registers, whose new values are not known
	Stores int    // bytes of Mem that another op than Store writes
}

// A Mem is a memory operand, at Base + Index * Scale + Disp.
type Mem struct {
	Base, Index int // registers or None
	Scale       int
	Disp        int64 // in bytes; an address if Relative
	Relative    bool  // to the instruction
	Elsewhere   bool  // in a segment of its own, or at an address of 32 bits
	Vague       bool  // Disp counts in units that are not known
}

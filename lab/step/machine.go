package step

import (
	"debug/elf"
	"encoding/binary"

	"golang.org/x/arch/x86/x86asm"

	"cfi2sframe/internal/arch"
)

// A class is the effect of an instruction on the stack of frames.
type class uint8

const (
	plain    class = iota
	call           // leaves a return address
	ret            // jumps to a return address
	indirect       // jumps to an address in a register or in memory
	kernel         // a system call
	trap           // a breakpoint
)

// An insn holds the properties of an instruction that affect the stack of frames.
type insn struct {
	class class
	size  uint8
	loads bool // the new stack pointer does not depend on the old one
}

// A machine is an ABI with its instructions.
type machine struct {
	*arch.Arch
	order    binary.ByteOrder
	classify func(code []byte) insn
}

// linked reports whether calls leave the return address in a register.
func (m *machine) linked() bool { return m.FixedRA == 0 }

func (m *machine) fullName() string {
	if m.Little != 0 && m.Big != 0 && m.order == binary.BigEndian {
		return m.Name + "_be"
	}
	return m.Name
}

// classifiers maps the name of each machine to a function that decodes its instructions.
var classifiers = map[string]func([]byte) insn{
	"amd64": classifyAMD64, "aarch64": classifyAArch64, "s390x": classifyS390X,
}

func newMachine(m elf.Machine, order binary.ByteOrder) (*machine, error) {
	a, _, err := arch.Find(m, order)
	if err != nil {
		return nil, err
	}
	return &machine{a, order, classifiers[a.Name]}, nil
}

// classifyAMD64 decodes an instruction. Instructions unknown to the decoder neither transfer control nor load rsp.
func classifyAMD64(b []byte) insn {
	i, err := x86asm.Decode(b, 64)
	if err != nil {
		return insn{}
	}
	n := insn{size: uint8(i.Len)}
	switch i.Op {
	case x86asm.CALL:
		n.class = call
	case x86asm.RET:
		n.class = ret
	case x86asm.JMP:
		if _, direct := i.Args[0].(x86asm.Rel); !direct {
			n.class = indirect
		}
	case x86asm.SYSCALL:
		n.class = kernel
	case x86asm.INT:
		n.class = trap
	case x86asm.LEAVE:
		n.loads = true
	case x86asm.MOV, x86asm.POP:
		n.loads = i.Args[0] == x86asm.RSP
	case x86asm.XCHG:
		n.loads = i.Args[0] == x86asm.RSP || i.Args[1] == x86asm.RSP
	}
	return n
}

// classifyAArch64 decodes an instruction (Arm Architecture Reference Manual, C4.1), which is always little-endian.
func classifyAArch64(b []byte) insn {
	if len(b) < 4 {
		return insn{}
	}
	w := binary.LittleEndian.Uint32(b)
	switch {
	case w>>26 == 0b100101, w&^0x3ff == 0xd63f0000&^0x3ff, w&0xfefff800 == 0xd63f0800: // bl, blr, blra*
		return insn{class: call, size: 4}
	case w&0xfffff000 == 0xd65f0000: // ret, reta*
		return insn{class: ret, size: 4}
	case w&0xfefff000 == 0xd61f0000: // br, bra*
		return insn{class: indirect, size: 4}
	case w&0xffe0001f == 0xd4000001: // svc
		return insn{class: kernel, size: 4}
	case w&0xbf80001f == 0x9100001f && w>>5&31 != 31: // add or sub sp, x, #n
		return insn{size: 4, loads: true}
	}
	return insn{size: 4}
}

// classifyS390X decodes an instruction (z/Architecture Principles of Operation, chapter 7).
func classifyS390X(b []byte) insn {
	if len(b) < 6 {
		return insn{}
	}
	size := uint8([]int{2, 4, 4, 6}[b[0]>>6])
	reg := b[1] >> 4
	switch op := b[0]; {
	case (op == 0xc0 || op == 0xa7) && b[1]&15 == 5 && reg == 14, // brasl, bras
		op == 0x0d && reg == 14 && b[1]&15 != 0: // basr
		return insn{class: call, size: size}
	case op == 0x07 && reg != 0 && b[1]&15 == 14: // b*r %r14
		return insn{class: ret, size: size}
	case op == 0x07 && reg != 0 && b[1]&15 != 0, op == 0x47 && reg != 0: // bcr, bc
		return insn{class: indirect, size: size}
	case op == 0x0a: // svc
		return insn{class: kernel, size: size}
	case op == 0xb9 && b[1] == 0x04 && b[3]>>4 == 15, // lgr
		op == 0xe3 && reg == 15 && b[5] == 0x04,                                  // lg
		(op == 0xe3 && b[5] == 0x71 || op == 0x41) && reg == 15 && b[2]>>4 != 15, // lay, la
		op == 0xeb && b[1]&15 == 15 && b[5] == 0x04:                              // lmg
		return insn{size: size, loads: true}
	}
	return insn{size: size}
}

package verify

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"slices"

	"golang.org/x/arch/arm64/arm64asm"
	"golang.org/x/arch/s390x/s390xasm"
	"golang.org/x/arch/x86/x86asm"
)

// An effect is what an instruction does.
type effect struct {
	size   uint64
	push   uint64 // bytes by which SP goes down
	saveRA uint64 // how far above the new SP the return address is saved, 0: not at all
	ends   bool   // control does not reach the next instruction
	pad    bool   // it does nothing, or traps
	target uint64 // of a direct jump, or 0
}

// decoders tell what an instruction of a PLT stub does. Any other one is an error.
var decoders = map[elf.Machine]func(b []byte, pc uint64) (effect, error){
	elf.EM_X86_64:  decodeAMD64,
	elf.EM_AARCH64: decodeAArch64,
	elf.EM_S390:    decodeS390X,
}

func decodeAMD64(b []byte, pc uint64) (effect, error) {
	if e, ok := frequentAMD64(b, pc); ok {
		return e, nil
	}
	return anyAMD64(b, pc)
}

// frequentAMD64 is anyAMD64 for the instructions that make up most of PLTs, and reports whether
// it is one of them. A PLT of some MB would take seconds.
func frequentAMD64(b []byte, pc uint64) (effect, bool) {
	if len(b) < 6 {
		return effect{}, false
	}
	switch {
	case b[0] == 0x90: // nop
		return effect{size: 1, pad: true}, true
	case b[0] == 0x66 && b[1] == 0x90: // xchg %ax,%ax
		return effect{size: 2, pad: true}, true
	case b[0] == 0xcc: // int3
		return effect{size: 1, pad: true, ends: true}, true
	case b[0] == 0x68: // push $n
		return effect{size: 5, push: 8}, true
	case b[0] == 0xe9: // jmp x
		rel := int32(binary.LittleEndian.Uint32(b[1:]))
		return effect{size: 5, ends: true, target: pc + 5 + uint64(int64(rel))}, true
	case b[0] == 0xff && b[1] == 0x25: // jmp *x(%rip)
		return effect{size: 6, ends: true}, true
	}
	return effect{}, false
}

// anyAMD64 asks the decoder.
func anyAMD64(b []byte, pc uint64) (effect, error) {
	if bytes.HasPrefix(b, []byte{0xf3, 0x0f, 0x1e, 0xfa}) { // endbr64, which the decoder does not know
		return effect{size: 4}, nil
	}
	in, err := x86asm.Decode(b, 64)
	if err != nil {
		return effect{}, err
	}
	e := effect{size: uint64(in.Len)}
	switch in.Op {
	case x86asm.NOP, x86asm.XCHG:
		e.pad = true
		if in.Op == x86asm.XCHG && in.Args[0] != in.Args[1] {
			return effect{}, fmt.Errorf("%v", in)
		}
	case x86asm.MOV:
		if in.Args[0] != x86asm.R11L {
			return effect{}, fmt.Errorf("%v", in)
		}
	case x86asm.INT:
		if in.Args[0] != x86asm.Imm(3) {
			return effect{}, fmt.Errorf("%v", in)
		}
		e.ends, e.pad = true, true
	case x86asm.PUSH:
		if in.DataSize == 16 { // which pushes 2 bytes
			return effect{}, fmt.Errorf("%v of 16 bits", in)
		}
		e.push = 8
	case x86asm.JMP:
		if in.DataSize == 16 { // not the same on all processors
			return effect{}, fmt.Errorf("%v of 16 bits", in)
		}
		e.ends = true
		if rel, ok := in.Args[0].(x86asm.Rel); ok {
			e.target = pc + e.size + uint64(int64(rel))
		}
	default:
		return effect{}, fmt.Errorf("%v", in)
	}
	return e, nil
}

// scratchAArch64 are the registers that stubs write to.
var scratchAArch64 = []string{"X2", "X3", "X16", "X17"}

func decodeAArch64(b []byte, pc uint64) (effect, error) {
	if len(b) >= 4 && (bytes.Equal(b[:4], []byte{0x5f, 0x24, 0x03, 0xd5}) || bytes.Equal(b[:4], []byte{0x9f, 0x21, 0x03, 0xd5})) {
		return effect{size: 4}, nil // bti c and autia1716: hints, which the decoder does not name
	}
	in, err := arm64asm.Decode(b)
	if err != nil {
		return effect{}, err
	}
	e := effect{size: 4}
	// Nothing here writes SP, x29 or x30 but stp. Other hints than nop sign the latter, for example.
	switch in.Op {
	case arm64asm.NOP:
		e.pad = true
	case arm64asm.ADRP, arm64asm.ADD, arm64asm.LDR:
		m, ok := in.Args[1].(arm64asm.MemImmediate)
		if !slices.Contains(scratchAArch64, in.Args[0].String()) || ok && m.Mode != arm64asm.AddrOffset {
			return effect{}, fmt.Errorf("%v", in)
		}
	case arm64asm.STP:
		m, ok := in.Args[2].(arm64asm.MemImmediate)
		if !ok || m.Mode != arm64asm.AddrPreIndex || m.Base != arm64asm.RegSP(arm64asm.SP) || in.String() != fmt.Sprintf("STP %v, %v, [SP,#-16]!", in.Args[0], in.Args[1]) {
			return effect{}, fmt.Errorf("%v", in)
		}
		e.push = 16
		if in.Args[1] == arm64asm.X30 {
			e.saveRA = 8
		}
	case arm64asm.BR, arm64asm.BRK:
		e.ends, e.pad = true, in.Op == arm64asm.BRK
	default:
		return effect{}, fmt.Errorf("%v", in)
	}
	return e, nil
}

func decodeS390X(b []byte, pc uint64) (effect, error) {
	if bytes.HasPrefix(b, []byte{0, 0}) { // no instruction
		return effect{size: 2, pad: true, ends: true}, nil
	}
	// The decoder takes for granted that all of the instruction is there.
	if len(b) < 2 || len(b) < []int{2, 4, 4, 6}[b[0]>>6] {
		return effect{}, fmt.Errorf("a part of an instruction")
	}
	in, err := s390xasm.Decode(b)
	if err != nil {
		return effect{}, err
	}
	e := effect{size: uint64(in.Len)}
	// Nothing here writes r14 or r15.
	switch in.Op {
	case s390xasm.STG, s390xasm.MVC:
	case s390xasm.BCR:
		e.ends, e.pad = b[1]>>4 == 15, b[1]>>4 == 0
	case s390xasm.BASR, s390xasm.LARL, s390xasm.LG, s390xasm.LGF, s390xasm.SGR, s390xasm.AGR, s390xasm.AGHI, s390xasm.SRLG:
		if in.Args[0] != s390xasm.R0 && in.Args[0] != s390xasm.R1 {
			return effect{}, fmt.Errorf("%v", in)
		}
		e.ends = in.Op == s390xasm.BASR && b[1]&0xf != 0 // by r0 it does not branch
	case s390xasm.BRCL:
		// A jump, and the relocation's offset behind it.
		e.ends = true
		e.size += 4
		if uint64(len(b)) < e.size {
			return effect{}, fmt.Errorf("%v without a word behind it", in)
		}
	default:
		return effect{}, fmt.Errorf("%v", in)
	}
	return e, nil
}

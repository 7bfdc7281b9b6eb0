package verify

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"slices"

	"golang.org/x/arch/x86/x86asm"

	"cfi2sframe/sframe"
)

// System V ABI for AMD64: register numbers. A call leaves the return address on top of the stack.
func init() {
	abis[sframe.AMD64Little] = abi{
		machine: elf.EM_X86_64, sp: 7, fp: 6, ra: noReg, pc: 16,
		entry: 8, fixedRA: -8, decode: decodeAMD64, padding: paddingAMD64,
		prologue: prologueAMD64, stacks: stacksAMD64,
		fpAtFP: []byte{0x76, 0}, epilogue: epilogueAMD64, // breg6 (rbp) 0
	}
}

func decodeAMD64(b []byte, pc uint64) (effect, error) {
	if e, ok := frequentAMD64(b, pc); ok {
		return e, nil
	}
	return anyAMD64(b, pc)
}

// frequentAMD64 decodes the most frequent instructions of PLTs, and reports whether it did. With the general decoder
// alone, a PLT of some MB would take seconds.
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

// anyAMD64 decodes any instruction with a general decoder.
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
		from, _ := in.Args[1].(x86asm.Mem)
		to, _ := in.Args[0].(x86asm.Mem)
		switch {
		case in.Args[0] == x86asm.R11L:
		case in.Args[0] == x86asm.R11 && from.Base == x86asm.RIP:
		case to == x86asm.Mem{Base: x86asm.RSP, Scale: to.Scale} && in.Args[1] == x86asm.R11:
			e.loses = true
		default:
			return effect{}, fmt.Errorf("%v", in)
		}
	case x86asm.PAUSE, x86asm.LFENCE:
	case x86asm.CALL:
		rel, ok := in.Args[0].(x86asm.Rel)
		if !ok || in.DataSize == 16 {
			return effect{}, fmt.Errorf("%v", in)
		}
		e.call, e.target = true, pc+e.size+uint64(int64(rel))
	case x86asm.RET:
		if in.Args[0] != nil || in.DataSize == 16 {
			return effect{}, fmt.Errorf("%v", in)
		}
		e.ret, e.ends = true, true
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

// paddingAMD64 accepts all forms of nop, int3, and zeros. A truncated instruction is not padding.
func paddingAMD64(b []byte) int {
	if b[0] == 0 || b[0] == 0xcc {
		return 1
	}
	in, err := x86asm.Decode(b, 64)
	switch {
	case err != nil:
		return 0
	case in.Op == x86asm.NOP:
		return in.Len
	// with prefixes for the operand size
	case in.Op == x86asm.XCHG && b[in.Len-1] == 0x90 && in.Args[0] == in.Args[1]:
		return in.Len
	}
	return 0
}

// prologueAMD64 knows what the first instructions of Go's functions do to rsp, and where they save rbp.
func prologueAMD64(p *prologue, b []byte) int {
	in, err := x86asm.Decode(b, 64)
	if err != nil {
		return 0
	}
	n, isImm := in.Args[1].(x86asm.Imm)
	mem, isMem := in.Args[0].(x86asm.Mem)
	rel, isRel := in.Args[0].(x86asm.Rel)
	switch {
	case in.Op == x86asm.PUSH:
		p.sp += 8
		if in.Args[0] == x86asm.RBP {
			p.saved, p.slot = true, p.sp
		}
	case in.Args[0] == x86asm.RSP && in.Op == x86asm.SUB && isImm:
		p.sp += int64(n)
	case in.Args[0] == x86asm.RSP && in.Op == x86asm.ADD && isImm:
		p.sp -= int64(n)
	case in.Op == x86asm.MOV && isMem && mem.Base == x86asm.RSP && mem.Index == 0 && in.Args[1] == x86asm.RBP:
		p.saved, p.slot = true, p.sp-mem.Disp
	case in.Op == x86asm.CMP, in.Op == x86asm.TEST:
	case in.Args[0] == x86asm.RSP, in.Args[0] == x86asm.RBP, in.Op == x86asm.CALL, in.Op == x86asm.RET,
		in.Op == x86asm.JMP, in.Op == x86asm.POP:
		return 0
	case isRel:
		p.skip = int64(rel)
	}
	return in.Len
}

// stackRegsAMD64 are the names of rbp and rsp and their parts.
var stackRegsAMD64 = []x86asm.Reg{x86asm.RBP, x86asm.EBP, x86asm.BP, x86asm.BPB, x86asm.RSP, x86asm.ESP, x86asm.SP,
	x86asm.SPB}

// epilogueAMD64 takes lea from the register that has the CFA, pop of that register, moves between others, no-ops, and ret
// or jmp.
func epilogueAMD64(code []byte, pc, reg uint64, stays func(pc uint64) bool) int {
	base, ok := map[uint64]x86asm.Reg{10: x86asm.R10, 13: x86asm.R13}[reg]
	if !ok && reg != noReg {
		return 0
	}
	for n := 0; n < len(code); {
		in, err := x86asm.Decode(code[n:], 64)
		if err != nil {
			return 0
		}
		n += in.Len
		mem, _ := in.Args[1].(x86asm.Mem)
		switch in.Op {
		case x86asm.LEA:
			if reg == noReg || in.Args[0] != x86asm.RSP || mem.Base != base || mem.Index != 0 || mem.Segment != 0 {
				return 0
			}
			reg = noReg
		case x86asm.POP:
			if reg != noReg || in.Args[0] != x86asm.R13 {
				return 0
			}
		case x86asm.MOV, x86asm.MOVAPS, x86asm.MOVAPD:
			to, ok := in.Args[0].(x86asm.Reg)
			_, fromReg := in.Args[1].(x86asm.Reg)
			if reg != noReg || !ok || !fromReg || slices.Contains(stackRegsAMD64, to) {
				return 0
			}
		case x86asm.NOP:
		case x86asm.RET:
			if reg != noReg {
				return 0
			}
			return n
		case x86asm.JMP:
			rel, direct := in.Args[0].(x86asm.Rel)
			if reg != noReg || in.DataSize == 16 || direct && stays(pc+uint64(n)+uint64(int64(rel))) {
				return 0
			}
			return n
		default:
			return 0
		}
	}
	return 0
}

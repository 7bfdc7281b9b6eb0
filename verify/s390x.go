package verify

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"

	"golang.org/x/arch/s390x/s390xasm"

	"cfi2sframe/sframe"
)

// zSeries ELF ABI supplement: the DWARF numbers of its registers, and the register save area of 160 bytes
// that a caller has on top of its stack. A call leaves the return address in r14.
func init() {
	abis[sframe.S390XBig] = abi{
		machine: elf.EM_S390, big: true, sp: 15, fp: 11, ra: 14, pc: noReg,
		entry: 160, caller: -160, spSaved: true, decode: decodeS390X,
	}
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
		mask, to := b[1]>>4, b[1]&0xf
		if mask != 0 && (mask != 15 || to == 0) { // on a condition, or nowhere: by r0 it does not branch
			return effect{}, fmt.Errorf("%v", in)
		}
		e.ends, e.pad = mask == 15, mask == 0
	case s390xasm.BASR, s390xasm.LARL, s390xasm.LG, s390xasm.LGF, s390xasm.SGR, s390xasm.AGR, s390xasm.AGHI, s390xasm.SRLG:
		if in.Args[0] != s390xasm.R0 && in.Args[0] != s390xasm.R1 {
			return effect{}, fmt.Errorf("%v", in)
		}
		e.ends = in.Op == s390xasm.BASR && b[1]&0xf != 0 // by r0 it does not branch
	case s390xasm.BRCL:
		if b[1]>>4 != 15 { // on a condition
			return effect{}, fmt.Errorf("%v", in)
		}
		// A jump, by halfwords from its start, and the relocation's offset after it.
		e.ends, e.target = true, pc+uint64(2*int64(int32(binary.BigEndian.Uint32(b[2:]))))
		e.size += 4
		if uint64(len(b)) < e.size {
			return effect{}, fmt.Errorf("%v without a word behind it", in)
		}
	default:
		return effect{}, fmt.Errorf("%v", in)
	}
	return e, nil
}

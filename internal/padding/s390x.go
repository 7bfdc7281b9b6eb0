package padding

import (
	"encoding/binary"

	"cfi2sframe/elffile"
)

// Source: z/Architecture Principles of Operation, chapter 7 and appendix B. A branch with mask 0 is a no-op.
var s390x = instructionSet{pad: padS390X, mayEnd: leavesS390X, mayJump: jumpsS390X}

func padS390X(b []byte) (size int, runs bool) {
	switch {
	case b[0] == 0 && len(b) == 1, len(b) >= 2 && b[0] == 0 && b[1] == 0: // not an instruction
		return min(len(b), 2), false
	case len(b) >= 2 && b[0] == 0x07 && b[1]&0xf0 == 0: // bcr 0
		return 2, true
	case len(b) >= 4 && b[0] == 0x47 && b[1]&0xf0 == 0: // bc 0
		return 4, true
	case len(b) >= 4 && b[0] == 0xa7 && b[1] == 0x04: // brc 0
		return 4, true
	case len(b) >= 6 && b[0] == 0xc0 && b[1] == 0x04: // brcl 0
		return 6, true
	}
	return 0, false
}

func leavesS390X(b []byte) bool {
	at := func(i int) byte { // i-th byte from the end
		if i > len(b) {
			return 0
		}
		return b[len(b)-i]
	}
	switch {
	case at(2) == 0x07 && at(1) >= 0xf1, at(2) == 0x0d && at(1)&0xf != 0: // br, basr
		return true
	case at(4) == 0xa7 && (at(3) == 0xf4 || at(3)&0xf == 5): // j, bras
		return true
	case at(6) == 0xc0 && (at(5) == 0xf4 || at(5)&0xf == 5): // jg, brasl
		return true
	}
	return len(b) >= 2 && at(2) == 0 && at(1) == 0 // not an instruction
}

// jumpsS390X treats every halfword as a possible instruction. Displacements count halfwords from the start of
// the instruction, and are stored in its second halfword, or in its second and third.
func jumpsS390X(b []byte, pc uint64, to elffile.Span) bool {
	for i := 0; i+4 <= len(b); i += 2 {
		var halfwords int64
		switch op := b[i+1] & 0xf; {
		// brc, bras, brct, brxh, brxle, crj
		case b[i] == 0xa7 && op >= 4 && op <= 7, b[i] == 0x84, b[i] == 0x85, b[i] == 0xec:
			halfwords = int64(int16(binary.BigEndian.Uint16(b[i+2:])))
		case (b[i] == 0xc0 && (op == 4 || op == 5) || b[i] == 0xcc && op == 6) && i+6 <= len(b): // brcl, brasl, brcth
			halfwords = int64(int32(binary.BigEndian.Uint32(b[i+2:])))
		default:
			continue
		}
		if to.Has(pc + uint64(i) + 2*uint64(halfwords)) {
			return true
		}
	}
	return false
}

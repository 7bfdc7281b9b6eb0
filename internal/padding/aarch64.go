package padding

import (
	"encoding/binary"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/insn"
)

// Source: Arm Architecture Reference Manual for A-profile, C4.1: branches, hints. Instructions are little-endian
// regardless of the byte order of data.
var aarch64 = instructionSet{pad: padAArch64, mayEnd: leavesAArch64, mayJump: jumpsAArch64}

func padAArch64(b []byte) (size int, runs bool) {
	if len(b) < 4 {
		if b[0] == 0 {
			return 1, false
		}
		return 0, false
	}
	switch binary.LittleEndian.Uint32(b) {
	case 0xd503201f: // nop
		return 4, true
	case 0: // udf #0
		return 4, false
	}
	return 0, false
}

func leavesAArch64(b []byte) bool {
	in, ok := insn.DecodeAArch64(b[max(0, len(b)-4):], 0)
	return ok && mayLeave(in.Op)
}

func jumpsAArch64(b []byte, pc uint64, to elffile.Span) bool {
	for ; len(b) >= 4; b, pc = b[4:], pc+4 {
		w := binary.LittleEndian.Uint32(b)
		var words int32 // displacement in words
		switch {
		case w&0x7c000000 == 0x14000000: // b, bl
			words = int32(w<<6) >> 6
		case w&0xff000000 == 0x54000000, w&0x7e000000 == 0x34000000: // b.cond, cbz, cbnz
			words = int32(w<<8) >> 13
		case w&0x7e000000 == 0x36000000: // tbz, tbnz
			words = int32(w<<13) >> 18
		default:
			continue
		}
		if to.Has(pc + 4*uint64(int64(words))) {
			return true
		}
	}
	return false
}

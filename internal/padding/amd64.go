package padding

import (
	"bytes"
	"encoding/binary"
	"math/bits"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/insn"
)

// Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2: INT3, Jcc, JMP, LOOP.
var amd64 = instructionSet{padAMD64, 7, leavesAMD64, switchesAMD64, jumpsAMD64}

// switchesAMD64 recognizes mov %reg,%rsp, the first instruction of glibc's __start_context.
func switchesAMD64(b []byte) bool {
	const rsp = 4
	b = bytes.TrimPrefix(b, []byte{0xf3, 0x0f, 0x1e, 0xfa}) // endbr64
	in, ok := insn.DecodeAMD64(b, 0)
	return ok && in.Op == insn.Move && in.Reg == rsp
}

func padAMD64(b []byte) (size int, runs bool) {
	switch b[0] {
	case 0x00, 0xcc: // zeros; int3
		return 1, false
	}
	if in, ok := insn.DecodeAMD64(b, 0); ok && in.Op == insn.Nop {
		return in.Size, true
	}
	return 0, false
}

func leavesAMD64(b []byte) bool {
	at := func(i int) byte { // i-th byte from the end
		if i > len(b) {
			return 0x90
		}
		return b[len(b)-i]
	}
	switch {
	case at(1) == 0xc3, at(3) == 0xc2: // ret
		return true
	case at(5)&0xfe == 0xe8, at(2) == 0xeb: // call, jmp
		return true
	case at(2) == 0x0f && at(1) == 0x0b, at(1) == 0xf4, at(1) == 0xcc: // ud2, hlt, int3
		return true
	}
	for n := 2; n <= 7; n++ { // call or jmp through a register or memory
		if at(n) == 0xff {
			in, ok := insn.DecodeAMD64(b[len(b)-n:], 0)
			if ok && in.Size == n && mayLeave(in.Op) {
				return true
			}
		}
	}
	return false
}

// jumpsAMD64 finds only jumps to the start of the range, because a label elsewhere would be inside a long no-op. It
// treats every byte as the possible start of an instruction. It does not find long backward jumps.
func jumpsAMD64(b []byte, pc uint64, to elffile.Span) bool {
	// A displacement is relative to its own end, so the displacement that reaches the target decreases by 1 per byte.
	target := int(int64(to.Begin - pc))
	first, last := max(target-128, 1), min(target+127, len(b)-1)
	isShort := func(at int) bool { // 70 to 7f, eb, e0 to e3
		op := b[at-1]
		return b[at] == byte(target-at-1) && (op&0xf0 == 0x70 || op == 0xeb || op&0xfc == 0xe0)
	}
	if search8(b, first, last, target-1, isShort) {
		return true
	}
	isNear := func(at int) bool { // 0f 80 to 0f 8f, e8, e9
		return binary.LittleEndian.Uint32(b[at:]) == uint32(target-at-4) &&
			(b[at-1]&0xfe == 0xe8 || b[at-1]&0xf0 == 0x80 && at > 1 && b[at-2] == 0x0f)
	}
	at, last := 1, min(target, len(b))-4
	// The second byte of the displacement changes only every 256 offsets.
	for target-4-at >= 256 && at <= last {
		stop := min(last, at+(target-4-at)&0xff) // the last offset with this second byte
		for second := byte((target - 4 - at) >> 8); at <= stop; at++ {
			i := bytes.IndexByte(b[at+1:stop+2], second)
			if i < 0 {
				break
			}
			if at += i; isNear(at) {
				return true
			}
		}
		at = stop + 1
	}
	return search8(b, at, last, target-4, isNear)
}

// search8 reports whether match(i) is true for an index i from first to last. It calls match(i) only where b[i] equals
// the low byte of end-i; the upper bits of end-i must not change within the range.
func search8(b []byte, first, last, end int, match func(i int) bool) bool {
	for i := first; i <= last; i++ {
		if i += index8(b[i:last+1], byte(end-i)); i <= last && match(i) {
			return true
		}
	}
	return false
}

// index8 returns the lowest i for which b[i] is first minus i (modulo 256), or len(b).
func index8(b []byte, first byte) int {
	const ones = 0x0101010101010101
	want := uint64(first)*ones - 0x0706050403020100 // the next 8 bytes
	i := 0
	for ; i < len(b)-7; i += 8 {
		x := binary.LittleEndian.Uint64(b[i:]) ^ want
		if zeros := (x - ones) &^ x & (ones << 7); zeros != 0 {
			return i + bits.TrailingZeros64(zeros)/8
		}
		want -= 8 * ones
	}
	for ; i < len(b) && b[i] != first-byte(i); i++ {
	}
	return i
}

package verify

import (
	"bytes"
	"debug/elf"
	"encoding/binary"

	"cfi2sframe/sframe"
)

// Source: zSeries ELF ABI supplement, for the register numbers and the register save area of 160 bytes at the top of
// the caller's stack. A call leaves the return address in r14.
func init() {
	abis[sframe.S390XBig] = abi{
		machine: elf.EM_S390, big: true, sp: 15, fp: 11, ra: 14, pc: noReg,
		entry: 160, injected: 8, caller: -160, spSaved: true, stub: stubS390X, padding: paddingS390X,
		prologue: prologueS390X,
	}
}

// stubS390X decodes the instructions of PLT stubs (z/Architecture Principles of Operation, appendix B).
func stubS390X(b []byte, pc uint64) (e effect, known bool) {
	if bytes.HasPrefix(b, []byte{0, 0}) { // not an instruction
		return effect{size: 2, pad: true, ends: true}, true
	}
	if len(b) < 2 || len(b) < sizeS390X(b) {
		return e, false
	}
	e.size = uint8(sizeS390X(b))
	first, second := b[1]>>4, b[1]&0xf // registers, or a mask and part of the opcode
	switch b[0] {
	case 0x07: // BCR
		mask, to := first, second
		e.ends, e.pad = mask == 15, mask == 0
		known = mask == 0 || mask == 15 && to != 0 // otherwise conditional, or no branch: r0 is not a target
	case 0x0d: // BASR
		e.ends = second != 0 // with r0, it does not branch
		known = isScratch(first)
	case 0xa7: // AGHI
		known = second == 0xb && isScratch(first)
	case 0xb9: // AGR, SGR
		known = (b[1] == 0x08 || b[1] == 0x09) && b[2] == 0 && isScratch(b[3]>>4)
	case 0xc0:
		switch second {
		case 0: // LARL
			known = isScratch(first)
		case 4: // BRCL, whose target is relative to its start in halfwords; the 4-byte relocation offset follows it
			e.ends, e.target = true, pc+uint64(2*int64(int32(binary.BigEndian.Uint32(b[2:]))))
			e.size += 4
			known = first == 15 && len(b) >= int(e.size) // otherwise conditional, or the offset is truncated
		}
	case 0xd2: // MVC
		known = true
	case 0xe3:
		switch b[5] {
		case 0x24: // STG
			known = true
		case 0x04, 0x14: // LG, LGF
			known = isScratch(first)
		}
	case 0xeb: // SRLG
		known = b[5] == 0x0c && isScratch(first)
	}
	return e, known
}

// sizeS390X returns the size in bytes of the instruction at the start of b.
func sizeS390X(b []byte) int { return []int{2, 4, 4, 6}[b[0]>>6] }

// isScratch reports whether stubs may write the register, which is true only of r0 and r1.
func isScratch(reg byte) bool { return reg <= 1 }

// paddingS390X accepts branches that are never taken (BCR, BC, BRC, BRCL with mask 0), and zeros.
func paddingS390X(b []byte) int {
	if zeros := b[:min(len(b), 2)]; bytes.Count(zeros, []byte{0}) == len(zeros) {
		return len(zeros)
	}
	size := sizeS390X(b)
	if len(b) < size || b[1]>>4 != 0 {
		return 0
	}
	if short := b[0] == 0x07 || b[0] == 0x47; short || (b[0] == 0xa7 || b[0] == 0xc0) && b[1] == 0x04 {
		return size
	}
	return 0
}

// prologueS390X tracks how the first instructions of Go functions change r15.
func prologueS390X(p *prologue, b []byte) int {
	if len(b) < 6 {
		return 0
	}
	switch {
	case b[0] == 0xa7 && b[1] == 0xfb: // aghi %r15,n
		p.sp -= int64(int16(binary.BigEndian.Uint16(b[2:])))
	case b[0] == 0xc2 && b[1] == 0xf8: // agfi %r15,n
		p.sp -= int64(int32(binary.BigEndian.Uint32(b[2:])))
	case b[0] == 0xc0 && b[1] == 0xa1: // lgfi %r10,n
		p.scratch = int64(int32(binary.BigEndian.Uint32(b[2:])))
	case bytes.HasPrefix(b, []byte{0x41, 0xff, 0xa0, 0}): // la %r15,0(%r15,%r10)
		p.sp -= p.scratch
	case b[0] == 0xe3 && b[1] == 0xff && b[2]>>4 == 0 && b[5] == 0x71, // lay %r15,n(%r15,%r0)
		b[0] == 0xe3 && b[1] == 0xf0 && b[2]>>4 == 15 && b[5] == 0x71: // lay %r15,n(%r15)
		p.sp -= int64(int8(b[4]))<<12 | int64(b[2]&15)<<8 | int64(b[3])
	}
	return sizeS390X(b)
}

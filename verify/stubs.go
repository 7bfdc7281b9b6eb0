package verify

import (
	"bytes"
	"debug/elf"
	"fmt"
	"sort"

	"golang.org/x/arch/arm64/arm64asm"
	"golang.org/x/arch/s390x/s390xasm"
	"golang.org/x/arch/x86/x86asm"

	"cfi2sframe/internal/elffile"
	"cfi2sframe/sframe"
)

// An orphan is code that SFrame describes and CFI does not.
type orphan struct {
	begin, end uint64
	fre        sframe.FRE
	special    bool // says more than where the frame is
}

// A depth is what a stub has done to the stack before an instruction.
type depth struct {
	pushed uint64 // bytes by which SP is lower than where the call arrived
	ra     uint64 // where the return address was saved, in bytes below that; 0: not saved
}

// An effect is what an instruction does.
type effect struct {
	size   uint64
	push   uint64 // bytes by which SP goes down
	saveRA uint64 // how far above the new SP the return address is saved, 0: not at all
	ends   bool   // control does not reach the next instruction
	pad    bool   // it does nothing, or traps
	target uint64 // of a direct jump, or 0
}

// What is followed at most: instructions, of which package plt reads no more bytes, and bytes of code
// that is none.
const (
	maxInstructions = 1 << 21
	maxCode         = 32 << 20
)

// stubs follows the instructions of the orphans, which have to be those of PLT
// stubs: a call arrives, something is pushed, and control goes on by a jump.
func (c *checker) stubs(f *elffile.File) error {
	if len(c.orphans) == 0 {
		return nil
	}
	decode := decoders[c.abi.machine]
	type instruction struct {
		pc    uint64
		at    depth
		size  uint64
		first bool // of a stub
		dead  bool // padding behind a jump, which is never run
	}
	var code []instruction
	targets := make(map[uint64]depth)
	room := uint64(maxCode)
	for i := 0; i < len(c.orphans); {
		// Rows that follow each other are one piece of code.
		j := i + 1
		for j < len(c.orphans) && c.orphans[j].begin == c.orphans[j-1].end {
			j++
		}
		begin, end := c.orphans[i].begin, c.orphans[j-1].end
		fail := func(format string, args ...any) {
			c.res.mismatch(begin, end, "SFrame describes code that CFI does not: %s", fmt.Sprintf(format, args...))
		}
		i = j
		if room -= min(room, end-begin); room == 0 {
			return fmt.Errorf("more than %d bytes of code, up to those at %#x, are described by SFrame and not by CFI", maxCode, begin)
		}
		off, ok := f.FileOffset(begin, end-begin)
		if !ok {
			fail("it is not in the file")
			continue
		}
		b, err := f.ReadAt("PLT stubs", off, end-begin)
		if err != nil {
			return err
		}
		var now depth
		first := true
		for pc := begin; pc < end; {
			e, err := decode(b[pc-begin:], pc)
			if err == nil && len(code) == maxInstructions {
				return fmt.Errorf("more than %d instructions, up to that at %#x, are of code that CFI does not describe", maxInstructions, pc)
			}
			if err != nil {
				fail("%v at %#x, which is not part of a PLT stub", err, pc)
				code = code[:0]
				break
			}
			dead := first && e.pad && pc > begin
			code = append(code, instruction{pc, now, e.size, first && !dead, dead})
			first = dead
			if now.pushed += e.push; e.saveRA > 0 {
				now.ra = now.pushed - e.saveRA
			}
			if e.target != 0 {
				targets[e.target] = now
			}
			pc += e.size
			if e.ends && !dead {
				now, first = depth{}, true
			}
		}
	}
	// The start of a PLT is jumped to by its entries, with what they pushed.
	var from depth
	for i := range code {
		in := &code[i]
		if in.dead {
			c.res.Stubs += in.size
			continue
		}
		if in.first {
			from = targets[in.pc]
		}
		in.at.pushed += from.pushed
		c.followed(in.pc, in.pc+in.size, in.at)
	}
	return nil
}

// followed compares the rows for an instruction with the depth of the stack there.
func (c *checker) followed(begin, end uint64, at depth) {
	// The orphans are in address order.
	first := sort.Search(len(c.orphans), func(i int) bool { return c.orphans[i].end > begin })
	for i := first; i < len(c.orphans) && c.orphans[i].begin < end; i++ {
		o := &c.orphans[i]
		lo, hi := max(begin, o.begin), min(end, o.end)
		e := &o.fre
		c.segs.fre = e
		got := c.bySFrame()
		sp := c.vm.reg(c.abi.sp) + at.pushed // where the call arrived
		var want frameState
		switch c.abi.machine {
		case elf.EM_X86_64: // with the return address on top
			want.cfa = sp + 8
			want.ra = c.vm.load(sp)
		case elf.EM_S390:
			want.cfa = sp + 160
			want.ra = c.vm.reg(c.abi.ra)
		default:
			want.cfa = sp
			want.ra = c.vm.reg(c.abi.ra)
			if at.ra > 0 {
				want.ra = c.vm.load(sp - at.ra)
			}
		}
		want.fp = c.vm.reg(c.abi.fp)
		want.sp = want.cfa + uint64(c.abi.caller)
		if got != want || e.Outermost || e.Signed || o.special {
			c.res.mismatch(lo, hi, "PLT stub: %s: SFrame has CFA %v, RA %v, FP %v", want.differs(got), e.CFA, e.RA, e.FP)
			continue
		}
		c.res.Stubs += hi - lo
	}
}

var decoders = map[elf.Machine]func(b []byte, pc uint64) (effect, error){
	elf.EM_X86_64:  decodeAMD64,
	elf.EM_AARCH64: decodeAArch64,
	elf.EM_S390:    decodeS390X,
}

func decodeAMD64(b []byte, pc uint64) (effect, error) {
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
		e.ends, e.pad = true, true
	case x86asm.PUSH:
		e.push = 8
	case x86asm.JMP:
		e.ends = true
		if rel, ok := in.Args[0].(x86asm.Rel); ok {
			e.target = pc + e.size + uint64(int64(rel))
		}
	default:
		return effect{}, fmt.Errorf("%v", in)
	}
	return e, nil
}

func decodeAArch64(b []byte, pc uint64) (effect, error) {
	if len(b) >= 4 && (bytes.Equal(b[:4], []byte{0x5f, 0x24, 0x03, 0xd5}) || bytes.Equal(b[:4], []byte{0x9f, 0x21, 0x03, 0xd5})) {
		return effect{size: 4}, nil // bti c and autia1716: hints, which the decoder does not name
	}
	in, err := arm64asm.Decode(b)
	if err != nil {
		return effect{}, err
	}
	e := effect{size: 4}
	// Nothing here writes SP or x30 but stp.
	switch in.Op {
	case arm64asm.NOP, arm64asm.HINT:
		e.pad = true
	case arm64asm.ADRP:
	case arm64asm.ADD, arm64asm.LDR:
		if in.Args[0] == arm64asm.RegSP(arm64asm.SP) {
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

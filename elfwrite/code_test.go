package elfwrite

import (
	"debug/elf"
	"errors"
	"math"
	"testing"

	"cfi2sframe/elffile"
)

// TestCode has references at the ends of the code, to multiples of codeAlign and others, and across the ends.
func TestCode(t *testing.T) {
	exec := func(addr, size uint64) elf.Prog64 {
		return elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_X), Vaddr: addr, Filesz: size, Memsz: size}
	}
	c, err := newCode(&elffile.File{Progs: []elf.Prog64{exec(0x1010, 0x100), exec(0x3000, 0x23)}})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range [][2]uint64{
		{0, 7}, {0xff0, 0x1008}, {0x1020, 0x1020}, {0x1033, 0x1033}, {0x2ffe, 0x3001}, {0x3022, 0x3040},
		{math.MaxUint64, math.MaxUint64},
	} {
		c.mark(r[0], r[1])
	}
	marked := map[uint64]bool{0x1020: true, 0x1033: true, 0x2ffe: true, 0x2fff: true, 0x3000: true, 0x3001: true,
		0x3022: true}
	for pc := uint64(0x1010); pc < 0x3023; pc++ {
		if got := c.Referred(pc, pc+1); got != marked[pc] {
			t.Errorf("%#x: referred is %t", pc, got)
		}
	}
	if c.Referred(0x1034, 0x2ffe) || !c.Referred(0x1034, 0x2fff) {
		t.Error("the range before 0x2ffe is wrong")
	}
	_, err = newCode(&elffile.File{Progs: []elf.Prog64{exec(0x1000, 0x100), exec(1<<40, 0x100)}})
	if !errors.Is(err, errCode) {
		t.Errorf("code at 0x1000 and at 1<<40: error %v", err)
	}
}

package arch

import (
	"debug/elf"
	"reflect"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/sframe"
)

// TestTables compares each Arch with the documents: DWARF register numbers from the ABI supplements, relocation types
// from the ELF supplements, and page sizes from linkers and loaders.
func TestTables(t *testing.T) {
	fields := func(pairs ...any) map[uint32]Field {
		all := make(map[uint32]Field)
		for i := 0; i < len(pairs); i += 2 {
			all[uint32(pairs[i].(int))] = pairs[i+1].(Field)
		}
		return all
	}
	four, eight := Field{Size: 4}, Field{Size: 8}
	four4, eight8 := Field{Size: 4, PCRel: true}, Field{Size: 8, PCRel: true}
	for _, tt := range []struct {
		machine   elf.Machine
		registers string // starting at number 0
		want      Arch
	}{
		{62, "rax rdx rcx rbx rsi rdi rbp rsp r8 r9 r10 r11 r12 r13 r14 r15 rip", Arch{
			Name: "amd64", Little: 3, SP: 7, FP: 6, RA: 16, PC: 16, RAState: NoReg,
			EntryCFA: 8, FixedRA: -8, MaxPage: 0x1000,
			PLTCFA:   []byte{0x77, 0x08, 0x80, 0x00, 0x3f, 0x1a, 0xff, 0x2a, 0x33, 0x24, 0x22},
			Fields:   fields(1, eight, 2, four4, 10, four, 11, Field{Size: 4, Signed: true}, 24, eight8),
			Relative: []uint32{8, 37, 38},
		}},
		{183, "x0 x1 x2 x3 x4 x5 x6 x7 x8 x9 x10 x11 x12 x13 x14 x15 x16 x17 x18 x19 x20 x21 x22 x23 x24 x25 x26 x27 " +
			"x28 x29 x30 sp", Arch{
			Name: "aarch64", Little: 2, Big: 1, SP: 31, FP: 29, RA: 30, PC: 32, RAState: 34,
			MaxPage: 0x10000, MappingSymbols: true,
			Fields:   fields(257, eight, 258, four, 260, eight8, 261, four4),
			Relative: []uint32{1027, 1032},
		}},
		{22, "r0 r1 r2 r3 r4 r5 r6 r7 r8 r9 r10 r11 r12 r13 r14 r15 f0 f2 f4 f6 f1 f3 f5 f7 f8 f10 f12 f14 " +
			"f9 f11 f13 f15", Arch{
			Name: "s390x", Big: 4, SP: 15, FP: 11, RA: 14, PC: NoReg, RAState: NoReg,
			EntryCFA: 160, CallerSP: -160, SavesSP: true, MaxPage: 0x1000,
			Fields:   fields(4, four, 5, four4, 22, eight, 23, eight8),
			Relative: []uint32{12, 61},
		}},
	} {
		want := tt.want
		want.Machine, want.Registers = tt.machine, strings.Fields(tt.registers)
		got := Of(tt.machine)
		if got == nil {
			t.Errorf("no Arch for %v", tt.machine)
			continue
		}
		data := *got
		data.Branch, data.Epilogue = nil, nil // functions are not comparable; see TestBranch and TestEpilogue
		if !reflect.DeepEqual(data, want) {
			t.Errorf("%v: %+v\nwant %+v", tt.machine, got, want)
			continue
		}
		for n, name := range want.Registers {
			if got.Register(uint64(n)) != name {
				t.Errorf("%v: register %d is %s, want %s", tt.machine, n, got.Register(uint64(n)), name)
			}
		}
		for size := 2; size <= 8; size *= 2 {
			typ, ok := got.PCRelType(size)
			if field := got.Fields[typ]; ok != (size > 2) || !ok && typ != 0 ||
				ok && field != (Field{Size: size, PCRel: true}) {
				t.Errorf("%v, %d bytes: type %d, %v", tt.machine, size, typ, ok)
			}
		}
		for _, abi := range []sframe.ABI{want.Little, want.Big} {
			if abi != 0 && OfABI(abi) != got {
				t.Errorf("ABI %d does not belong to %v", abi, tt.machine)
			}
		}
	}
	if Of(elf.EM_386) != nil || OfABI(5) != nil || Names() != "amd64, aarch64 and s390x" || MinPage != 4096 {
		t.Error("another machine is known")
	}
	if last := len(amd64.Registers); amd64.Register(uint64(last)) != "r17" || !slices.Contains(amd64.Registers, "rip") {
		t.Errorf("register %d is %s", last, amd64.Register(uint64(last)))
	}
}

// TestBranch decodes jumps and calls; the expected values are from objdump.
func TestBranch(t *testing.T) {
	for _, tt := range []struct {
		machine elf.Machine
		pc      uint64
		code    string
		size    int
		target  uint64
		call    bool
	}{
		{62, 0x1137, "\xe8\x64\xff\xff\xff", 5, 0x10a0, true},
		{62, 0x1154, "\xe9\x77\xff\xff\xff\x90", 5, 0x10d0, false},
		{62, 0xbb8414, "\xeb\x8a", 2, 0xbb83a0, false},
		{62, 0x1137, "\xe8\x64\xff\xff", 0, 0, false},    // truncated
		{62, 0xbb8414, "\xeb", 0, 0, false},              // truncated
		{183, 0x770, "\xd8\xff\xff", 0, 0, false},        // truncated
		{22, 0x740, "\xc0\xf4\xff\xff\xff", 0, 0, false}, // truncated
		{62, 0x100e, "\x74\x02\xff\xd0\x48", 0, 0, false},
		{183, 0x770, "\xd8\xff\xff\x97", 4, 0x6d0, true},
		{183, 0x5c4, "\x3c\x00\x00\x94", 4, 0x6b4, true},
		{183, 0x790, "\xdc\xff\xff\x17", 4, 0x700, false},
		{183, 0x792, "\xdc\xff\xff\x17", 0, 0, false}, // misaligned
		{183, 0x5cc, "\xc0\x03\x5f\xd6", 0, 0, false},
		{183, 0x6bc, "\x40\x00\x00\xb4", 0, 0, false},
		{22, 0x72e, "\xc0\xe5\xff\xff\xff\xb5", 6, 0x698, true},
		{22, 0x740, "\xc0\xf4\xff\xff\xff\xbc", 6, 0x6b8, false},
		{22, 0x741, "\xc0\xf4\xff\xff\xff\xbc", 0, 0, false},
		{22, 0x698, "\xc0\x10\x00\x00\x0c\xc8", 0, 0, false},
	} {
		size, target, call := Of(tt.machine).Branch([]byte(tt.code), tt.pc)
		if size != tt.size || target != tt.target || call != tt.call {
			t.Errorf("%v, %x at %#x: %d bytes to %#x, call %t; want %d bytes to %#x, call %t", tt.machine, tt.code,
				tt.pc, size, target, call, tt.size, tt.target, tt.call)
		}
	}
}

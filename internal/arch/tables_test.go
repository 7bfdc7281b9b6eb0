package arch

import (
	"debug/elf"
	"reflect"
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
		want.Machine = tt.machine
		got := Of(tt.machine)
		if got == nil {
			t.Errorf("no Arch for %v", tt.machine)
			continue
		}
		data := *got
		data.Epilogue = nil // functions are not comparable; see TestEpilogue
		if !reflect.DeepEqual(data, want) {
			t.Errorf("%v: %+v\nwant %+v", tt.machine, got, want)
			continue
		}
		for n, name := range strings.Fields(tt.registers) {
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
	if name := amd64.Register(17); name != "r17" {
		t.Errorf("register 17 is %s", name)
	}
}

package arch

import (
	"debug/elf"
	"encoding/binary"
	"testing"

	"cfi2sframe/sframe"
)

// TestABIs checks that each ABI of the format belongs to exactly one machine, with the format's byte order and return
// address offset, and that other machines have no ABI.
func TestABIs(t *testing.T) {
	known := 0
	for abi := sframe.ABI(1); abi.Order() != nil; abi++ {
		known++
		a := OfABI(abi)
		if a == nil {
			t.Errorf("%v has no machine", abi)
			continue
		}
		if found, got, err := Find(a.Machine, abi.Order()); err != nil || found != a || got != abi {
			t.Errorf("%v: machine %v, %v has %v: %v", abi, a.Machine, abi.Order(), got, err)
		}
		if int64(abi.FixedRA()) != a.FixedRA {
			t.Errorf("%v: return address at CFA%+d, but CFA%+d in the format", abi, a.FixedRA, abi.FixedRA())
		}
		if a.Name != abi.String() && a.Name+"_be" != abi.String() {
			t.Errorf("%v: the machine's name is %s", abi, a.Name)
		}
	}
	if known < 4 { // V2 with errata 1 has four ABIs
		t.Errorf("%d ABIs", known)
	}
	for machine, order := range map[elf.Machine]binary.ByteOrder{
		elf.EM_X86_64: binary.BigEndian, elf.EM_S390: binary.LittleEndian, elf.EM_PPC64: binary.BigEndian,
		elf.EM_AARCH64: nil,
	} {
		if a, abi, err := Find(machine, order); err == nil || abi != 0 {
			t.Errorf("%v, %v is %v, %v", machine, order, a, abi)
		}
	}
	if a := OfABI(0); a != nil {
		t.Errorf("ABI 0 belongs to %s", a.Name)
	}
}

// TestPushAt checks that only GNU ld's expressions for PLTs with and without IBT are recognized.
func TestPushAt(t *testing.T) {
	with := func(at int, b byte) []byte {
		code := []byte{0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22}
		code[at] = b
		return code
	}
	for _, tt := range []struct {
		arch *Arch
		code []byte
		want uint64 // 0: none
	}{
		{&amd64, with(6, 0x3b), 11},
		{&amd64, with(6, 0x39), 9},
		{&amd64, with(6, 0x31), 1},
		{&amd64, with(6, 0x3f), 15},
		{&amd64, with(6, 0x30), 0},
		{&amd64, with(6, 0x40), 0},
		{&amd64, with(6, 0x2f), 0},
		{&amd64, with(1, 16), 0},
		{&amd64, with(10, 0x1c), 0},
		{&amd64, with(6, 0x3b)[:10], 0},
		{&amd64, append(with(6, 0x3b), 0x96), 0},
		{&amd64, nil, 0},
		{&aarch64, with(6, 0x3b), 0},
		{&aarch64, nil, 0},
	} {
		if got, ok := tt.arch.PushAt(tt.code); ok != (tt.want > 0) || ok && got != tt.want {
			t.Errorf("%s: % x: from byte %d on, %v; want %d", tt.arch.Name, tt.code, got, ok, tt.want)
		}
	}
}

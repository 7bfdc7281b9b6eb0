package cfi

import (
	"encoding/binary"
	"slices"
	"testing"
)

// TestShortInstruction expects the instruction's bytes, without those that follow it, if the instruction is common and
// at most four bytes long (DWARF 5, section 7.24).
func TestShortInstruction(t *testing.T) {
	for _, tt := range []struct {
		code []byte
		size int // 0: uncommon or too long
	}{
		{[]byte{0xc6, 0xff, 0xff, 0xff}, 1}, // restore
		{[]byte{0x86, 0x7f, 0xff, 0xff}, 2}, // offset
		{[]byte{0x86, 0x81, 0x7f, 0xff}, 3},
		{[]byte{0x86, 0x81, 0x80, 0x7f}, 0},
		{[]byte{0x0e, 0x10, 0xff, 0xff}, 2}, // def_cfa_offset
		{[]byte{0x0e, 0x90, 0x01, 0xff}, 3},
		{[]byte{0x0e, 0x90, 0x81, 0x01}, 0},
		{[]byte{0x0d, 0x06, 0xff, 0xff}, 2}, // def_cfa_register
		{[]byte{0x0d, 0x86, 0x80, 0x00}, 0},
		{[]byte{0x0c, 0x7f, 0x7f, 0xff}, 3}, // def_cfa
		{[]byte{0x0c, 0x07, 0x90, 0x7f}, 4},
		{[]byte{0x0c, 0x07, 0x90, 0x81}, 0},
		{[]byte{0x0c, 0x87, 0x00, 0x10}, 0},
		{[]byte{0x12, 0x07, 0x7f, 0x00}, 0}, // def_cfa_sf
		{[]byte{0x0a, 0x00, 0x00, 0x00}, 0}, // remember_state
	} {
		var want [4]byte
		copy(want[:], tt.code[:tt.size])
		got := binary.LittleEndian.AppendUint32(nil, shortInstruction(binary.LittleEndian.Uint32(tt.code)))
		if !slices.Equal(got, want[:]) {
			t.Errorf("% x: % x, want % x", tt.code, got, want)
		}
	}
}

// TestEffects expects the effect of each instruction in each state to be cached, except in CIEs and after errors, even
// if only four bytes of the section are left.
func TestEffects(t *testing.T) {
	w := ehFrame(amd64)
	cie, noCFA := w.Shared(plainCIE), w.Shared([]byte{1, 0, 1, 0x78, 16})
	for i, tt := range []struct {
		cie  int
		code []byte
	}{
		{cie, []byte{0x41, 0x0e, 16, 0x86, 2}},
		{cie, []byte{0x42, 0x0e, 16, 0x86, 2, 0x44, 0x0d, 6}},
		{noCFA, []byte{0x0e, 32}}, // error
		{cie, []byte{0x0e, 24, 0, 0}},
	} {
		w.Entry(tt.cie, w.Addresses(textAddr+0x100*uint64(i), 0x40), tt.code)
	}
	x := parse(t, w).exec
	var got []uint32
	for _, e := range x.effects {
		if e.code != 0 {
			got = append(got, e.code)
		}
	}
	slices.Sort(got)
	if want := []uint32{0x0286, 0x060d, 0x100e, 0x180e}; !slices.Equal(got, want) {
		t.Errorf("effects of %#x are cached, want %#x", got, want)
	}
}

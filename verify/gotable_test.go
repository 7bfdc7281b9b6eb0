package verify

import (
	"testing"

	"cfi2sframe/sframe"
)

// TestPrologue has first instructions of functions, as assembled by GNU as, and where they save the frame pointer.
func TestPrologue(t *testing.T) {
	const (
		frame  = "\x48\x83\xec\x30\x48\x89\x6c\x24\x28" // sub $0x30,%rsp; mov %rbp,0x28(%rsp)
		test   = "\x48\x83\xff\x00"                     // cmp $0,%rdi
		read   = "\x48\x8b\x3f\xc3"                     // mov (%rdi),%rdi; ret
		absent = "\x0f\x1f\x44\x00\x00"                 // nopl 0(%rax,%rax,1)
	)
	for _, tt := range []struct {
		name, code string
		begins     uint64 // the pc from which on the table has a frame
		slot       goSlot
		wrong      string
	}{
		{"at once", frame, 4, goSlot{true, 9, 48, 8}, ""},
		// jne, as in racecallbackthunk
		{"after a branch over the end", test + "\x75\x04" + read + frame, 14, goSlot{true, 19, 48, 8}, ""},
		{"after two branches", test + "\x74\x06\x75\x04" + read + frame, 16, goSlot{true, 21, 48, 8}, ""},
		{"in code that nothing leads to", test + "\x90\x90" + read + frame, 14, goSlot{}, ""},
		{"after a branch beyond it", test + "\x75\x0d" + read + frame + absent, 14, goSlot{}, ""},
		{"back", "\x90" + test + "\x75\xf9" + read + frame, 15, goSlot{}, ""},
		{"another size", "\x48\x83\xec\x38\x48\x89\x6c\x24\x28", 4, goSlot{},
			"at 0x4: frame of 48 bytes in the table, and of 56 by the code"},
	} {
		g := goTable{abi: abis[sframe.AMD64Little], window: []byte(tt.code), frames: goFrames{{0, 0}, {tt.begins, 48}}}
		if slot, wrong := g.saves(uint64(len(tt.code))); slot != tt.slot || wrong != tt.wrong {
			t.Errorf("%s: %+v, %q; want %+v, %q", tt.name, slot, wrong, tt.slot, tt.wrong)
		}
	}
}

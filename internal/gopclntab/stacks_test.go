package gopclntab

import (
	"slices"
	"testing"
)

// TestFlow follows functions assembled by GNU as, and checks the Base of the frame after each change.
func TestFlow(t *testing.T) {
	const frame = "\x55\x48\x89\xe5"             // push %rbp; mov %rsp,%rbp
	const switches = "\x48\x8b\x62\x38"          // mov 0x38(%rdx),%rsp
	const clear = "\x48\xc7\xc5\x00\x00\x00\x00" // mov $0,%rbp
	for _, tt := range []struct {
		name, code string
		at         uint32
		base       Base
		want       []Base // bases by offset, or nil if follow must fail
	}{
		{"return", frame + switches + "\xff\xd7\x5d\xc3", 4, OfFP, []Base{4: OfFP, 8: OfFP, 10: OfFP, 11: OfSP}},
		{"not immediately", frame + "\x5d\x90\xc3", 4, OfFP, []Base{4: OfFP, 5: OfSP, 6: Unknown}},
		{"cleared", frame + switches + clear + "\xff\xd0\x0f\x0b", 4, OfFP,
			[]Base{4: OfFP, 8: OfFP, 15: NoCaller, 17: NoCaller}},
		{"cleared by mov to ebp", "\xbd\x00\x00\x00\x00\xff\xd0\xcc", 0, Unknown,
			[]Base{0: Unknown, 5: NoCaller, 7: NoCaller}},
		{"final", frame + switches + "\xff\xd0\xcc", 4, OfFP, []Base{4: OfFP, 8: NoCaller, 10: NoCaller}},
		{"final", switches + "\x48\x8b\x6b\x68\xcc", 0, Unknown, // mov 0x68(%rbx),%rbp
			[]Base{0: Unknown, 4: NoCaller, 8: NoCaller}},
		{"cleared by xor", "\x31\xed\xff\xd0\xcc", 0, Unknown, []Base{0: Unknown, 2: NoCaller, 4: NoCaller}},
		{"loaded", frame + "\x48\x8b\x68\x60\xc3", 4, OfFP, []Base{4: OfFP, 8: Unknown}},
		{"exchanged", frame + "\x48\x87\xe8\xc3", 4, OfFP, []Base{4: OfFP, 7: Unknown}}, // xchg %rbp,%rax
		{"left", frame + "\xc9\xc3", 4, OfFP, []Base{4: OfFP, 5: Unknown}},
		{"read", frame + "\x48\x89\xe8\x55\x48\x39\xc5\xc9\xc3", 4, OfFP, // mov %rbp,%rax; push %rbp; cmp %rax,%rbp
			[]Base{4: OfFP, 7: OfFP, 8: OfFP, 11: OfFP, 12: Unknown}},
		// je to a backward jump after the return
		{"far block", frame + "\x74\x03\x90\x5d\xc3\xeb\xfb", 4, OfFP,
			[]Base{4: OfFP, 6: OfFP, 7: OfFP, 8: OfSP, 9: OfFP}},
		{"a loop after the return", frame + "\x90\x5d\xeb\xfc", 4, OfFP, nil},
		{"the end without a return", frame + "\x90", 4, OfFP, nil},
		{"an unknown instruction", frame + "\x0f\x04\xc3", 4, OfFP, nil},
		{"a tail call", frame + "\x5d\xff\xe7", 4, OfFP, []Base{4: OfFP, 5: OfSP}},
	} {
		f := flow{code: []byte(tt.code), final: tt.name == "final", base: make([]Base, len(tt.code)),
			size: make([]uint8, len(tt.code))}
		ok := f.follow(tt.at, tt.base)
		if ok != (tt.want != nil) {
			t.Errorf("%s: follow returns %t", tt.name, ok)
			continue
		}
		for i, size := range f.size {
			if ok && size > 0 && (i >= len(tt.want) || f.base[i] != tt.want[i]) {
				t.Errorf("%s: at %d: %v; want %v", tt.name, i, f.base[i], tt.want)
			}
			if ok && size == 0 && i < len(tt.want) && tt.want[i] != 0 {
				t.Errorf("%s: no instruction at %d; want %v", tt.name, i, tt.want[i])
			}
		}
		if n := len(tt.want); ok && !slices.Contains(f.size[n-1:], uint8(len(tt.code)-n+1)) {
			t.Errorf("%s: no last instruction at %d", tt.name, n-1)
		}
	}
}

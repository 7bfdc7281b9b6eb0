package verify

import (
	"strings"
	"testing"
)

// TestStacks checks functions assembled by GNU as. The letters in places stand for the row at each byte: S, a CFA based
// on SP, with the table's frame size; F, a CFA based on FP; O, no caller; a dot, no row.
func TestStacks(t *testing.T) {
	const (
		frame    = "\x55\x48\x89\xe5"             // push %rbp; mov %rsp,%rbp
		switches = "\x48\x8b\x62\x38"             // mov 0x38(%rdx),%rsp
		clear    = "\x48\xc7\xc5\x00\x00\x00\x00" // mov $0,%rbp
		back     = "\x4c\x89\xe4"                 // mov %r12,%rsp
		align    = "\x48\x83\xe4\xf0"             // and $-16,%rsp
		call     = "\xff\xd0"                     // call *%rax
		pop      = "\x5d"                         // pop %rbp
		ret      = "\xc3"
	)
	for _, tt := range []struct{ name, code, places, want string }{
		{"a frame", frame + switches + call + back + pop + ret, "SSSS FFFF FF FFF F .", ""},
		{"its end", frame + switches + call + back + pop + ret, "SSSS FFFF FF FFF F S", ""},
		{"more than its end", frame + pop + "\x90" + ret, "SSSS F S S", "contradicts the code"},
		{"a different end", frame + "\x58" + ret, "SSSS F S", "contradicts the code"},
		{"a frame too long", frame + switches + call + back + pop + ret, "SSSS FFFF FF FFF F F",
			"contradicts the code"},
		{"a frame too early", frame + call + pop + ret, "SFFF FF F .", "contradicts the code"},
		{"no push", "\x90\x48\x89\xe5" + call + pop + ret, "SSSS FF F .", "contradicts the code"},
		{"a different base", "\x55\x48\x89\xc5" + call + pop + ret, "SSSS FF F .", "contradicts the code"},
		{"the stack pointer after the frame", frame + switches + back + ret, "SSSS SSSS SSS .", "contradicts the code"},
		{"cleared", frame + clear + call + "\x0f\x0b", "SSSS FFFFFFF OO OO", ""},
		{"cleared by xor", "\x31\xed" + call + "\xcc", ".. OO O", ""},
		{"cleared by xor of 16 bits", "\x66\x31\xed" + call + "\xcc", "... OO O", "contradicts the code"},
		{"cleared by mov to ebp", "\xbd\x00\x00\x00\x00" + call + "\xcc", "..... OO O", ""},
		{"final", frame + switches + call + "\xcc", "SSSS FFFF OO O", ""},
		{"final, then a different frame pointer", switches + "\x48\x8b\x6b\x68\xcc", ".... OOOO O", ""},
		{"a different frame pointer", clear + "\x48\x8b\x6b\x68\xcc", "....... OOOO O", "contradicts the code"},
		{"final, with the frame", frame + switches + call + "\xcc", "SSSS FFFF FF F", "contradicts the code"},
		{"final, cleared later", frame + switches + clear + call + "\xcc", "SSSS FFFF OOOOOOO OO O", ""},
		{"not final: from a register", frame + back + call + "\xcc", "SSSS FFF FF F", ""},
		{"not final: from the stack", frame + "\x48\x8b\x24\x24" + call + "\xcc", "SSSS FFFF FF F", ""},
		{"not final: loaded again", frame + switches + call + back + "\x0f\x0b", "SSSS FFFF OO OOO OO",
			"contradicts the code"},
		{"cleared before", frame + clear + call + "\x0f\x0b", "SSSS OOOOOOO OO OO", "contradicts the code"},
		{"a different value", frame + "\x48\xc7\xc5\x01\x00\x00\x00" + call + "\x0f\x0b", "SSSS FFFFFFF OO OO",
			"contradicts the code"},
		{"Go on a stack that comes back", frame + switches + call + back + pop + ret, "SSSS FFFF FF FFF F S", ""},
		{"Go, and the collector shrinks stacks", frame + switches + call + back + pop + ret, "SSSS FFFF FF FFF F S",
			"contradicts the code"},
		{"C, and the collector shrinks stacks", frame + switches + align + call + back + pop + ret,
			"SSSS FFFF FFFF FF FFF F S", ""},
		{"leave", frame + "\xc9" + ret, "SSSS F F", "contradicts the code"},
		{"load", frame + "\x48\x8b\x68\x60" + ret, "SSSS FFFF F", "contradicts the code"},
		{"exchange", frame + "\x48\x87\xe8" + ret, "SSSS FFF F", "contradicts the code"},
		{"read", frame + "\x48\x89\xe8\x55\x48\x39\xc5" + pop + ret, "SSSS FFF F FFF F .", ""},
		{"a block after the return", frame + "\x74\x03\x90\x5d\xc3\xeb\xfb", "SSSS FF F F . FF", ""},
		{"a jump from there", frame + "\x90\x5d\xeb\xfc", "SSSS F F ..", "contradicts the code"},
		{"a jump before the function", frame + "\xeb\x80", "SSSS FF", ""},
		{"unreachable code", frame + "\xeb\x01\xc5\x5d" + ret, "SSSS FF . F .", ""},
		{"an unknown instruction", frame + "\x06\x90\x90" + pop + ret, "SSSS FFF F .", "unknown instruction"},
		{"a row within an instruction", frame + switches + back + pop + ret, "SSSS FFF. FFF F .",
			"inside an instruction"},
	} {
		var places []place
		for _, c := range strings.ReplaceAll(tt.places, " ", "") {
			places = append(places, place(strings.IndexRune(".SFO", c)))
		}
		if len(places) != len(tt.code) {
			t.Fatalf("%s: %d places of %d bytes", tt.name, len(places), len(tt.code))
		}
		s := stackSwitch{code: []byte(tt.code), decode: stackAMD64, targets: make(map[int]bool)}
		got := s.check(places, strings.Contains(tt.name, "shrinks"))
		if got == "" != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q; want %q", tt.name, got, tt.want)
		}
	}
}

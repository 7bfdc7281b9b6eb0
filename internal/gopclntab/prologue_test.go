package gopclntab

import (
	"encoding/hex"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/must"
)

// TestPrologues decodes prologues that save the frame pointer, save it in an unexpected slot, or do not save it. The
// instructions are from GNU as.
func TestPrologues(t *testing.T) {
	const (
		push      = "55"                      // push %rbp
		mov       = "48 89 e5"                // mov %rsp,%rbp
		sub8      = "48 83 ec 08"             // sub $8,%rsp
		save0     = "48 89 2c 24"             // mov %rbp,(%rsp)
		sub64     = "48 83 ec 40"             // sub $0x40,%rsp
		save56    = "48 89 6c 24 38"          // mov %rbp,0x38(%rsp)
		add128    = "48 83 c4 80"             // add $-128,%rsp
		save120   = "48 89 6c 24 78"          // mov %rbp,0x78(%rsp)
		sub288    = "48 81 ec 20 01 00 00"    // sub $0x120,%rsp
		save280   = "48 89 ac 24 18 01 00 00" // mov %rbp,0x118(%rsp)
		save276   = "48 89 ac 24 14 01 00 00" // mov %rbp,0x114(%rsp)
		str48     = "fe 0f 1d f8"             // str x30,[sp,#-48]!
		stur      = "fd 83 1f f8"             // stur x29,[sp,#-8]
		frame512  = "f4 03 08 d1 9d fa 3f a9" // sub x20,sp,#0x200; stp x29,x30,[x20,#-8]
		movSP     = "9f 02 00 91"             // mov sp,x20
		load      = "fd 83 5f f8"             // ldur x29,[sp,#-8]
		sub496    = "ff c3 07 d1"             // sub sp,sp,#0x1f0
		stp288    = "fd fb 2e a9"             // stp x29,x30,[sp,#-280]
		sub272    = "ff 43 04 d1"             // sub sp,sp,#0x110
		otherSlot = "f4 03 08 d1 9d fa 3e a9" // stp x29,x30,[x20,#-24]
	)
	for _, tt := range []struct {
		name          string
		find          finder
		before, after string
		frame         uint32
		done          int
		saved         uint32 // 0: not proven
	}{
		{"push", prologueAMD64, push, mov, 8, 0, 8},
		{"push after a conditional jump of 0x41 bytes", prologueAMD64, "76 41" + push, mov, 8, 0, 8},
		{"push of r13", prologueAMD64, "90 41" + push, mov, 8, 0, 0},
		{"push without mov", prologueAMD64, push, "48 89 e6", 8, 0, 0},
		{"push and a larger frame", prologueAMD64, push, mov, 16, 0, 0},
		{"the smallest frame", prologueAMD64, sub8, save0, 8, 4, 8},
		{"a frame size of one byte", prologueAMD64, sub64, save56, 64, 5, 8},
		{"add", prologueAMD64, add128, save120, 128, 5, 8},
		{"a frame size of four bytes", prologueAMD64, sub288, save280, 288, 8, 8},
		{"three bytes", prologueAMD64, "90 90 90", save0, 8, 0, 0},
		{"six bytes", prologueAMD64, "90 90 90 90 90 90", save0, 8, 0, 0},
		{"another slot", prologueAMD64, sub64, save120, 64, 0, 0},
		{"another slot of four bytes", prologueAMD64, sub288, save276, 288, 0, 0},
		{"the smallest frame's slot in a larger one", prologueAMD64, sub64, save0, 64, 0, 0},
		{"another frame", prologueAMD64, sub64, save56, 72, 0, 0},
		{"not saved", prologueAMD64, sub64, "90 90 90 90 90", 64, 0, 0},
		{"aarch64", prologueAArch64, str48, stur, 48, 4, 56},
		// str x30,[x27]; mov sp,x27
		{"aarch64, large, Go 1.18", prologueAArch64, "7e 03 00 f9 7f 03 00 91", stur, 272, 4, 280},
		{"aarch64, asyncPreempt", prologueAArch64, sub496, stur, 496, 4, 504},
		{"aarch64, debugCallV2", prologueAArch64, stp288 + sub272, "", 272, 0, 280},
		{"aarch64, another pair", prologueAArch64, stp288 + sub496, "", 496, 0, 0},
		{"aarch64, another number", prologueAArch64, sub496, stur, 272, 0, 0},
		{"aarch64, another frame", prologueAArch64, str48, stur, 64, 0, 0},
		{"aarch64, not saved", prologueAArch64, str48, load, 48, 0, 0},
		{"aarch64, large", prologueAArch64, frame512 + movSP, "", 512, 0, 520},
		{"aarch64, another slot", prologueAArch64, otherSlot + movSP, "", 512, 0, 0},
	} {
		done, saved, ok := tt.find(decode(t, tt.before), decode(t, tt.after), tt.frame)
		if ok != (tt.saved != 0) || ok && (done != tt.done || saved != tt.saved) {
			t.Errorf("%s: done %d, saved %d, %t; want %d, %d", tt.name, done, saved, ok, tt.done, tt.saved)
		}
	}
}

func decode(t *testing.T, text string) []byte {
	t.Helper()
	return must.Get(hex.DecodeString(strings.ReplaceAll(text, " ", "")))(t)
}

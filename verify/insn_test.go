package verify

import (
	"bytes"
	"debug/elf"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"cfi2sframe/internal/insn"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/testfile"
)

// TestDecoders compares the decoder with that of package insn, whose tests compare it with objdump: sizes, targets,
// memory operands and written registers of all instructions of libc, and of all opcodes with common prefixes and
// operands. For these opcodes, the number of bytes stored is compared with the operand size that objdump prints.
func TestDecoders(t *testing.T) {
	t.Parallel()
	f := must.Get(elf.Open(peer.File(t, "/lib/x86_64-linux-gnu/libc.so.6")))(t)
	defer f.Close()
	compared := 0
	compare := func(code []byte, pc uint64, text string) (size int) {
		want, known := insn.DecodeAMD64(code, pc)
		if !known {
			return 1
		}
		compared++
		in, ok := decodeAMD64(code)
		bad := func(problem string, got, want any) {
			t.Errorf("%#x: % x %s: %s %#v, want %#v", pc, code[:min(len(code), 15)], text, problem, got, want)
		}
		writes, least := in.written(), writtenBy(&want)
		mem := &want.Mem
		base, disp := int(mem.Base), in.disp
		if mem.Index != insn.None {
			base = -1
		}
		if in.scaled {
			disp *= in.stored()
		}
		switch {
		case !ok:
			if want.Target == 0 { // jumps with 16-bit operands are not decoded
				bad("known", false, true)
			}
		case in.size != want.Size:
			bad("size", in.size, want.Size)
		case want.Target != 0 && in.target(pc) != want.Target:
			bad("target", in.target(pc), want.Target)
		case !mem.Vague && in.reg >= 0 &&
			(in.base != base || base >= 0 && disp != mem.Disp || in.relative != mem.Relative):
			bad("memory", in.base, base)
		// The decoder may overstate what cvtps2pi, pcmpestrm, cwde, cmpxchg, int, jrcxz and system instructions write.
		case writes&least != least, writes != least && strings.IndexByte("\x01\x2c\x2d\x60\x62\x98\xb0\xb1\xcd\xe3",
			byte(in.op)) < 0:
			bad("writes", writes, least)
		case text != "" && text != "(bad)":
			stores := want.Stores > 0 || want.Op == insn.Store || want.Op == insn.PopMem
			size := int64(0)
			if stores && (in.op&^7 != 0xd8 || x87Store.MatchString(text)) {
				size = storedBytes(text)
			}
			if got := in.stored(); got < size || got > size && in.op != 0x8c && !atMost.MatchString(text) {
				bad("stores", got, size)
			}
		}
		return want.Size
	}
	for _, s := range f.Sections {
		if s.Flags&elf.SHF_EXECINSTR != 0 {
			code := must.Get(s.Data())(t)
			for at := 0; at < len(code); {
				at += compare(code[at:], s.Addr+uint64(at), "")
			}
		}
	}
	if t.Logf("%d instructions", compared); compared < 100_000 {
		t.Error("too few")
	}
	encodings := encodingsAMD64()
	path := filepath.Join(t.TempDir(), "code")
	testfile.Write(t, path, encodings)
	cmd := peer.Tool(t, "sid", "objdump")("-D", "-w", "-M", "intel", "-b", "binary", "-m", "i386:x86-64", path)
	for line := range strings.Lines(string(must.Run(t, cmd))) {
		address, text, _ := strings.Cut(line, ":\t")
		if pc, err := strconv.ParseUint(strings.TrimSpace(address), 16, 64); err == nil && pc%distance == 0 {
			_, text, _ = strings.Cut(text, "\t")
			compare(encodings[pc:][:distance], pc, strings.TrimSpace(text))
		}
	}
	t.Logf("%d instructions", compared)
}

// TestUndefined checks encodings that are not instructions (Intel SDM, volume 2, 2.3, 2.7 and table A-6), and xbegin.
func TestUndefined(t *testing.T) {
	for text, meaning := range map[string]string{
		"62f07c4800c0": "EVEX map 0", "62f47c4800c0": "EVEX map 4", "62f77c4800c0": "EVEX map 7",
		"62f97c4800c0": "EVEX with APX", "62f1784858c0": "EVEX with APX", "c4e07800c0": "VEX map 0",
		"c4e47800c0": "VEX map 4", "8feb7800c000": "XOP map 11", "66c5f858c0": "VEX after 66",
		"f3c5f858c0": "VEX after f3", "48c5f858c0": "VEX after REX", "8fc8": "8f /1", "c6c800": "c6 /1",
		"c70800000000": "c7 /1", "c6f901": "c6 /7 with cl", "fed0": "fe /2", "fff8": "ff /7",
		"0f2000": "mov %cr0 to memory", "66e800000000": "call with a 16-bit operand",
		strings.Repeat("2e", 16) + "62f37d481d840500000000": "16 prefixes",
	} {
		if in, ok := decodeAMD64(bytesOf(t, text)); ok {
			t.Errorf("%s, %s: %+v", text, meaning, in)
		}
	}
	in, ok := decodeAMD64(bytesOf(t, "c7f810000000")) // xbegin .+0x16
	if jump, conditional := in.isJump(); !ok || !jump || !conditional || in.target(0x1000) != 0x1016 ||
		in.written() != 1<<rax {
		t.Errorf("xbegin: %+v", in)
	}
}

// TestImplied checks instructions that write registers, or do not write them, unlike others with the same opcode
// (Intel SDM, volume 2).
func TestImplied(t *testing.T) {
	const stack, ad = 1 << rsp, 1<<rax | 1<<rdx
	for text, want := range map[string]uint32{
		"ec": 1 << rax, "ed": 1 << rax, "e400": 1 << rax, "e500": 1 << rax, // in
		"c20000": stack, "ca0000": stack, "cb": stack, "cf": stack, // returns
		"0fc70e": ad, "0fc7f1": 1 << rcx, // cmpxchg8b (%rsi); rdrand %ecx
		"c4e271e010":   1 << rdx,                                 // cmpoxadd %ecx,%edx,(%rax)
		"660f78c00000": 0, "f20f78c10000": 0, "0f78c8": 1 << rax, // extrq, insertq, vmread
		"f30f1ec8": 1 << rax, "f20f1ec8": 0, "f30f1ed0": 0, // rdsspd %eax, nops
		"0f01ee":   ad | 1<<rcx | 1<<rbx,    // rdpkru, for which the registers of cpuid are assumed
		"f30faec1": 1 << rcx, "f30faed1": 0, // rdfsbase, wrfsbase
	} {
		in, ok := decodeAMD64(bytesOf(t, text))
		if got := in.written(); !ok || got != want {
			t.Errorf("%s writes %04x; want %04x", text, got, want)
		}
	}
}

// operand matches the size of a memory operand. x87Store matches floating-point instructions that store. atMost matches
// stores for which the decoder returns an upper bound on the size.
var (
	operand  = regexp.MustCompile(`([A-Z]+) PTR`)
	x87Store = regexp.MustCompile(`f(n?st|ist|bst|nsave)`)
	atMost   = regexp.MustCompile(`(^| )(\{evex}|f(n|is|xs)\w+|cmpxchg8b|kmov\w|v?pextr[bw]|set\w+|tile\w+|` +
		`vextractps|vldmxcsr|vmov[dws]\S*|vp(mov|scatter)\w+|vscatter\w+|rex.W fst) `)
)

// storedBytes returns the size of the memory operand that objdump prints.
func storedBytes(text string) int64 {
	m := operand.FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	return map[string]int64{"BYTE": 1, "WORD": 2, "DWORD": 4, "FWORD": 6, "QWORD": 8, "TBYTE": 10, "XMMWORD": 16,
		"YMMWORD": 32, "ZMMWORD": 64}[m[1]]
}

// distance is the size of the slots of the instructions that encodingsAMD64 returns.
const distance = 16

// encodingsAMD64 returns the known instructions among all opcodes with common prefixes and operands. No-ops follow.
func encodingsAMD64() (all []byte) {
	var leads []string
	for _, prefix := range []string{"", "\x66", "\xf3", "\xf2", "\x48", "\x64\x67\x45"} {
		for _, escape := range []string{"", "\x0f", "\x0f\x38", "\x0f\x3a"} {
			leads = append(leads, prefix+escape)
		}
	}
	for last := range byte(32) {
		last = 0x70 | last<<7 | last>>1 // W, one of 2 registers, L and pp
		leads = append(leads, string([]byte{0xc5, last}))
		for _, m := range []byte{1, 2, 3, 5, 6, 8, 9, 10} {
			leads = append(leads, string([]byte{0xc4, 0xe0 | m, last}), string([]byte{0x8f, 0xe0 | m, last}),
				string([]byte{0x62, 0xf0 | m, last | 4, 0x08}), string([]byte{0x62, 0xf0 | m, last | 4, 0x48}))
		}
	}
	for _, lead := range leads {
		for op := range 256 {
			for _, modRM := range []byte{0x01, 0x05, 0x44, 0xc5} {
				for r := range byte(8) {
					if r != 2 && lead != "" && lead != "\x0f" && lead != "\xf3\x0f" {
						continue
					}
					code := append([]byte(lead), byte(op), modRM|r<<3, 0x10)
					code = append(code, bytes.Repeat([]byte{0x90}, distance-len(code))...)
					if _, known := insn.DecodeAMD64(code, 0); known {
						all = append(all, code...)
					}
				}
			}
		}
	}
	return all
}

// writtenBy returns the bit set of the general registers that an instruction writes.
func writtenBy(in *insn.Inst) (mask uint32) {
	mask = in.Writes
	switch in.Op {
	case insn.Push, insn.PushMem, insn.PopMem, insn.Call, insn.CallReg, insn.CallMem, insn.Return:
		return mask | 1<<rsp
	case insn.Leave:
		return mask | 1<<rsp | 1<<rbp
	case insn.JumpReg:
		return mask
	case insn.Swap:
		mask |= 1 << in.Src
	case insn.Pop:
		mask |= 1 << rsp
	}
	if in.Reg != insn.None {
		mask |= 1 << in.Reg
	}
	return mask
}

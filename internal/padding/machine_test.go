package padding

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/long"
	"cfi2sframe/internal/testkit/must"
)

// TestDecode classifies padding and other code; instructions are from the manuals and from objdump.
func TestDecode(t *testing.T) {
	for _, tt := range []struct {
		m    elf.Machine
		code string
		want kind
	}{
		{elf.EM_X86_64, "90", filled},
		{elf.EM_X86_64, "6690", filled},
		{elf.EM_X86_64, "0f1f00", filled},
		{elf.EM_X86_64, "0f1f4000", filled},
		{elf.EM_X86_64, "0f1f440000", filled},
		{elf.EM_X86_64, "660f1f440000", filled},
		{elf.EM_X86_64, "0f1f8000000000", filled},
		{elf.EM_X86_64, "0f1f840000000000", filled},
		{elf.EM_X86_64, "660f1f840000000000", filled},
		{elf.EM_X86_64, "662e0f1f840000000000", filled},             // cs nopw
		{elf.EM_X86_64, "666666666666662e0f1f840000000000", other},  // 16 bytes: too long
		{elf.EM_X86_64, "6666666666662e0f1f840000000000", filled},   // data16, 15 bytes
		{elf.EM_X86_64, "66662e0f1f8400000000000f1f4000", filled},   // 11 and 4: GNU as fills 15 bytes
		{elf.EM_X86_64, "662e0f1f8400000000000f1f440000", filled},   // 10 and 5: LLVM
		{elf.EM_X86_64, "0f1f80000000000f1f840000000000", filled},   // 7 and 8: older GNU as
		{elf.EM_X86_64, "0f1f80000000000f1f8000000000", filled},     // 7 and 7
		{elf.EM_X86_64, "90662e0f1f840000000000", two},              // .align 2
		{elf.EM_X86_64, "9090", pieces},                             // written by hand
		{elf.EM_X86_64, "669090", pieces},                           // the same
		{elf.EM_X86_64, "9090904863d2", other},                      // movslq %edx,%rdx after no-ops
		{elf.EM_X86_64, "906690669066902e0f1f840000000000", pieces}, // the same
		{elf.EM_X86_64, "0f1f440000660f1f440000", pieces},           // two fills
		{elf.EM_X86_64, "cccccc", traps},                            // lld
		{elf.EM_X86_64, "000000", traps},                            // linkers
		{elf.EM_X86_64, "0f1f440000000000", filled},                 // assembler, then linker
		{elf.EM_X86_64, "cc0f1f00", filled},                         //
		{elf.EM_X86_64, "f390", other},                              // pause
		{elf.EM_X86_64, "0f1f4800", other},                          // reserved hint
		{elf.EM_X86_64, "0f1f6000", other},                          // reserved hint
		{elf.EM_X86_64, "f30f1efa", other},                          // endbr64
		{elf.EM_X86_64, "4190", other},                              // xchg %eax,%r8d
		{elf.EM_X86_64, "87c0", other},                              // xchg %eax,%eax
		{elf.EM_X86_64, "0f1f48", other},                            // truncated
		{elf.EM_X86_64, "0f1f", other},                              // truncated
		{elf.EM_X86_64, "0f1f8400000000", other},                    // truncated
		{elf.EM_X86_64, "0f1f04", other},                            // truncated
		{elf.EM_X86_64, "66", other},                                // truncated
		{elf.EM_X86_64, "900f0b", other},                            // ud2
		{elf.EM_X86_64, "90c3", other},                              // ret
		{elf.EM_X86_64, "", other},                                  //
		{elf.EM_AARCH64, "1f2003d5", filled},                        // nop
		{elf.EM_AARCH64, "1f2003d51f2003d5", filled},                //
		{elf.EM_AARCH64, "00000000", traps},                         // udf #0
		{elf.EM_AARCH64, "000000000000", traps},                     // truncated zeros
		{elf.EM_AARCH64, "3f2003d5", other},                         // yield
		{elf.EM_AARCH64, "5f2403d5", other},                         // bti c
		{elf.EM_AARCH64, "01000000", other},                         // udf #1
		{elf.EM_AARCH64, "1f2003d51f20", other},                     // truncated
		{elf.EM_S390, "0707", filled},                               // nopr %r7
		{elf.EM_S390, "0700", filled},                               // nopr
		{elf.EM_S390, "47000000", filled},                           // nop
		{elf.EM_S390, "c00400000000", filled},                       // jgnop
		{elf.EM_S390, "c004000000000707", filled},                   //
		{elf.EM_S390, "a7040000", filled},                           // jnop
		{elf.EM_S390, "470f0000", filled},                           // nop 0(%r15)
		{elf.EM_S390, "47100000", other},                            // bo
		{elf.EM_S390, "0717", other},                                // bor
		{elf.EM_S390, "0000", traps},                                //
		{elf.EM_S390, "07fe", other},                                // br %r14
		{elf.EM_S390, "07e0", other},                                // bcr 14,%r0: serialization
		{elf.EM_S390, "c0040000", other},                            // truncated
		{elf.EM_S390, "a7f40000", other},                            // j
		{elf.EM_S390, "c0e500000000", other},                        // brasl
	} {
		b := must.Get(hex.DecodeString(tt.code))(t)
		x := Gaps{instructionSet: machines[tt.m]}
		if got := x.decode(b); got != tt.want {
			t.Errorf("%v: %s is of kind %d; want %d", tt.m, tt.code, got, tt.want)
		}
	}
}

// TestLeaves checks the last instructions of functions.
func TestLeaves(t *testing.T) {
	for _, tt := range []struct {
		m    elf.Machine
		code string
		want bool
	}{
		{elf.EM_X86_64, "5bc3", true},           // pop; ret
		{elf.EM_X86_64, "c20800", true},         // ret $8
		{elf.EM_X86_64, "e800000000", true},     // call
		{elf.EM_X86_64, "e900000000", true},     // jmp
		{elf.EM_X86_64, "eb10", true},           // jmp
		{elf.EM_X86_64, "ffe0", true},           // jmp *%rax
		{elf.EM_X86_64, "3e41ffd3", true},       // notrack call *%r11
		{elf.EM_X86_64, "ff1500000000", true},   // call *0(%rip)
		{elf.EM_X86_64, "ff5010", true},         // call *16(%rax)
		{elf.EM_X86_64, "ff24c500000000", true}, // jmp *0(,%rax,8)
		{elf.EM_X86_64, "0f0b", true},           // ud2
		{elf.EM_X86_64, "f4", true},             // hlt
		{elf.EM_X86_64, "0f8400000000", false},  // je
		{elf.EM_X86_64, "b801000000", false},    // mov
		{elf.EM_X86_64, "fff0", false},          // push %rax
		{elf.EM_X86_64, "ff00", false},          // incl (%rax)
		{elf.EM_X86_64, "0f05", false},          // syscall
		{elf.EM_X86_64, "", false},              //
		{elf.EM_AARCH64, "00000014", true},      // b
		{elf.EM_AARCH64, "01000014", true},      // b
		{elf.EM_AARCH64, "00000094", true},      // bl
		{elf.EM_AARCH64, "c0035fd6", true},      // ret
		{elf.EM_AARCH64, "20023fd6", true},      // blr x17
		{elf.EM_AARCH64, "ff0b5fd6", true},      // retaa
		{elf.EM_AARCH64, "207d20d4", true},      // brk
		{elf.EM_AARCH64, "34120000", true},      // udf #0x1234
		{elf.EM_AARCH64, "00000100", false},     // reserved
		{elf.EM_AARCH64, "00000054", false},     // b.eq
		{elf.EM_AARCH64, "010000d4", false},     // svc
		{elf.EM_AARCH64, "0000", false},         // truncated
		{elf.EM_S390, "07fe", true},             // br %r14
		{elf.EM_S390, "c0e500000010", true},     // brasl
		{elf.EM_S390, "c0f400000010", true},     // jg
		{elf.EM_S390, "a7f40001", true},         // j
		{elf.EM_S390, "a7e50001", true},         // bras
		{elf.EM_S390, "0000", true},             // not an instruction
		{elf.EM_S390, "00000700", false},        // nopr after it
		{elf.EM_S390, "0de1", true},             // basr
		{elf.EM_S390, "a7840001", false},        // je
		{elf.EM_S390, "0707", false},            // nopr
		{elf.EM_S390, "0de0", false},            // basr %r14,0 does not branch
	} {
		b := must.Get(hex.DecodeString(tt.code))(t)
		if got := machines[tt.m].mayEnd(b); got != tt.want {
			t.Errorf("%v: %s leaves: %t; want %t", tt.m, tt.code, got, tt.want)
		}
	}
}

// jumpsTo is a byte-by-byte reference for jumpsAMD64: it finds all short jumps, and forward near jumps.
func jumpsTo(b []byte, pc, target uint64) bool {
	for i := 1; i < len(b); i++ {
		op := b[i-1]
		if short := op&0xf0 == 0x70 || op == 0xeb || op >= 0xe0 && op <= 0xe3; short &&
			pc+uint64(i)+1+uint64(int8(b[i])) == target {
			return true
		}
		if long := op == 0xe8 || op == 0xe9 || i > 1 && b[i-2] == 0x0f && op&0xf0 == 0x80; long && i+4 <= len(b) &&
			target > pc && pc+uint64(i)+4+uint64(int32(binary.LittleEndian.Uint32(b[i:]))) == target {
			return true
		}
	}
	return false
}

// TestSwitches recognizes moves to the stack pointer.
func TestSwitches(t *testing.T) {
	for _, tt := range []struct {
		code string
		want bool
	}{
		{"4889dc", true},         // mov %rbx,%rsp
		{"4c89e4", true},         // mov %r12,%rsp
		{"f30f1efa4889dc", true}, // endbr64
		{"4889e5", false},        // mov %rsp,%rbp
		{"48891c24", false},      // mov %rbx,(%rsp)
		{"89dc90", false},        // mov %ebx,%esp
		{"4889", false},          // truncated
		{"", false},
	} {
		b := must.Get(hex.DecodeString(tt.code))(t)
		if got := switchesAMD64(b); got != tt.want {
			t.Errorf("%s: got %v", tt.code, got)
		}
	}
}

// TestJumps places a jump at each offset of a function, with each kind of displacement, and compares the results with
// the reference loop.
func TestJumps(t *testing.T) {
	const pc = 0x1000
	for _, size := range []int{2, 5, 6, 7, 12, 13, 14, 31, 300, 70000} {
		for _, target := range []uint64{pc + uint64(size), pc + uint64(size) + 1, pc - 1, pc - 63} {
			step := max(1, size/long.Pick(t, 20, 150))
			for at := 0; at < size; at += step {
				for _, op := range []string{"74", "eb", "e3", "0f85", "e9", "e8", "c7", "85"} {
					b := bytes.Repeat([]byte{0xb8, 0, 0, 0, 0}, size/5+1)[:size]
					code, _ := hex.DecodeString(op)
					disp := binary.LittleEndian.AppendUint32(nil, uint32(target-pc-uint64(at+len(code)+4)))
					if slices.Contains([]string{"74", "eb", "e3"}, op) {
						disp = []byte{byte(target - pc - uint64(at+len(code)+1))}
					}
					copy(b[at:], append(code, disp...))
					got, want := jumpsAMD64(b, pc, span(target, target+5)), jumpsTo(b, pc, target)
					if got != want {
						t.Fatalf("%d bytes, %s at %d to %#x: %t; want %t", size, op, at, target, got, want)
					}
				}
			}
		}
	}
	// Displacements are either small or the largest that can be encoded.
	for _, tt := range []struct {
		m    elf.Machine
		code string // at pc
		to   int64  // distance of the target from pc, or 0
	}{
		{elf.EM_AARCH64, "04000014", 16},         // b
		{elf.EM_AARCH64, "ffffff95", 1<<27 - 4},  // bl
		{elf.EM_AARCH64, "00000016", -1 << 27},   // b
		{elf.EM_AARCH64, "81000054", 16},         // b.ne
		{elf.EM_AARCH64, "e1ff7f54", 1<<20 - 4},  // b.ne
		{elf.EM_AARCH64, "000080b4", -1 << 20},   // cbz
		{elf.EM_AARCH64, "81000035", 16},         // cbnz
		{elf.EM_AARCH64, "9f000837", 16},         // tbnz
		{elf.EM_AARCH64, "e0ff03b6", 1<<15 - 4},  // tbz
		{elf.EM_AARCH64, "00000436", -1 << 15},   // tbz
		{elf.EM_AARCH64, "1f2003d503000014", 16}, // nop; b
		{elf.EM_AARCH64, "04000010", 0},          // adr
		{elf.EM_AARCH64, "81000018", 0},          // ldr (literal)
		{elf.EM_AARCH64, "81000055", 0},          // unallocated
		{elf.EM_AARCH64, "8100003a", 0},          // adcs
		{elf.EM_AARCH64, "8100ff", 0},            // truncated
		{elf.EM_S390, "a7f40008", 16},            // j
		{elf.EM_S390, "a7847fff", 1<<16 - 2},     // je
		{elf.EM_S390, "a7e58000", -1 << 16},      // bras
		{elf.EM_S390, "a7160008", 16},            // brct
		{elf.EM_S390, "a7170008", 16},            // brctg
		{elf.EM_S390, "84130008", 16},            // brxh
		{elf.EM_S390, "85130008", 16},            // brxle
		{elf.EM_S390, "ec1200088064", 16},        // cgrj
		{elf.EM_S390, "c0f400000008", 16},        // jg
		{elf.EM_S390, "c0e57fffffff", 1<<32 - 2}, // brasl
		{elf.EM_S390, "c0e580000000", -1 << 32},  // brasl
		{elf.EM_S390, "cc1600000008", 16},        // brcth
		{elf.EM_S390, "0707a7f40007", 16},        // nopr; j
		{elf.EM_S390, "a7130008", 0},             // tmhl
		{elf.EM_S390, "a7180008", 0},             // lhi
		{elf.EM_S390, "83130008", 0},             // diag
		{elf.EM_S390, "86130008", 0},             // bxh
		{elf.EM_S390, "eb1200088064", 0},         // another format
		{elf.EM_S390, "c01600000008", 0},         // xihf
		{elf.EM_S390, "c01300000008", 0},         // unassigned
		{elf.EM_S390, "cc1700000008", 0},         // unassigned
		{elf.EM_S390, "cc1800000008", 0},         // aih
		{elf.EM_S390, "c0f40000", 0},             // truncated
	} {
		code, m, to := must.Get(hex.DecodeString(tt.code))(t), machines[tt.m], uint64(pc+tt.to)
		if tt.to == 0 {
			if m.mayJump(code, pc, span(0, 1<<63)) {
				t.Errorf("%v: %s jumps", tt.m, tt.code)
			}
		} else if !m.mayJump(code, pc, span(to, to+2)) || m.mayJump(code, pc, span(to+2, to+8)) ||
			m.mayJump(code, pc, span(to-2, to)) {
			t.Errorf("%v: %s does not jump to %#x, or elsewhere", tt.m, tt.code, to)
		}
	}
}

// FuzzAMD64 compares jumps with the reference loop.
func FuzzAMD64(f *testing.F) {
	for _, s := range []string{"90", "e900000000eb10"} {
		b, _ := hex.DecodeString(s)
		f.Add(b, uint16(3))
	}
	f.Fuzz(func(t *testing.T, b []byte, distance uint16) {
		for _, target := range []uint64{0x10000 + uint64(len(b)) + uint64(distance), 0x10000 - uint64(distance)} {
			if got, want := jumpsAMD64(b, 0x10000, span(target, target+1)), jumpsTo(b, 0x10000, target); got != want {
				t.Fatalf("% x to %#x: %t; want %t", b, target, got, want)
			}
		}
	})
}

// TestSearch8 checks that search8 finds a byte at any index, whatever the other bytes.
func TestSearch8(t *testing.T) {
	const end = 200
	for other := range byte(255) {
		for at := range end - 8 {
			b := make([]byte, end)
			for i := range b {
				b[i] = byte(end-i) ^ (other + 1)
			}
			b[at] = byte(end - at)
			if !search8(b, 0, end-1, end, func(i int) bool { return b[i] == byte(end-i) }) {
				t.Fatalf("the byte at %d is not found", at)
			}
		}
	}
}

// TestMeter measures padding at both ends of code, including code with bytes that look like padding.
func TestMeter(t *testing.T) {
	const long = "66662e0f1f840000000000" // data16 cs nopw 0(%rax,%rax,1)
	for _, tt := range []struct {
		name    string
		machine elf.Machine
		code    string
		want    uint64
	}{
		{"nothing", elf.EM_X86_64, "", 0},
		{"no-ops only", elf.EM_X86_64, "90" + long, 12},
		{"traps only", elf.EM_X86_64, "cccccc", 3},
		{"no-ops before code", elf.EM_X86_64, "0f1f4000" + "31c0c3", 4},
		{"no-ops after ret", elf.EM_X86_64, "31c0c3" + long, 11},
		{"at both ends, and between functions", elf.EM_X86_64, "90" + "c3" + "9090" + "c3" + "cccc", 3},
		{"no-ops after code that falls through", elf.EM_X86_64, "31c0" + "0f1f4000", 0},
		{"a displacement like int3", elf.EM_X86_64, "31c0" + "ebcc" + "cccc", 2},
		{"a displacement like a prefix", elf.EM_X86_64, "eb66" + long, 11},
		{"a jump over zeros", elf.EM_X86_64, "e912340000", 0},
		{"zeros after a jump over zeros", elf.EM_X86_64, "e912340000" + "0000", 2},
		{"an immediate of zeros", elf.EM_X86_64, "c3" + "b800000000", 0},
		{"two returns", elf.EM_X86_64, "c3c3", 0},
		{"a truncated no-op", elf.EM_X86_64, "c3" + "0f1f", 0},
		{"more than one read", elf.EM_X86_64, strings.Repeat(long, 1000) + "c3" + strings.Repeat("cc", 3000), 14_000},
		{"code after more than one read", elf.EM_X86_64,
			strings.Repeat("90", 4100) + "31c0c3" + strings.Repeat("90", 40) + "31c0c3", 4100},
		{"no-ops after ret on aarch64", elf.EM_AARCH64, "00008052" + "c0035fd6" + "1f2003d5" + "1f2003d5", 8},
		{"an odd end on aarch64", elf.EM_AARCH64, "c0035fd6" + "0000", 2},
		{"no-ops after br on s390x", elf.EM_S390, "a7290000" + "07fe" + "0707" + "47000000", 6},
	} {
		code := must.Get(hex.DecodeString(tt.code))(t)
		size := uint64(len(code))
		b := append(make([]byte, elffile.HeaderSize+1), code...) // 1 byte of other code at the same address
		h := elf.Header64{Type: uint16(elf.ET_DYN), Machine: uint16(tt.machine)}
		m := NewMeter(elftest.Parse(t, elftest.Encode(b, binary.LittleEndian, h, nil)))
		m.Enter(0x1000, 1, elffile.HeaderSize)
		if begin, end := m.Trim(0x1000, 0x1001); begin != end {
			t.Errorf("%s: before it, %d bytes", tt.name, end-begin)
		}
		m.Enter(0x1000, size, elffile.HeaderSize+1)
		if begin, end := m.Trim(0x1000, 0x1000+size); size-(end-begin) != tt.want {
			got := size - (end - begin)
			t.Errorf("%s: %d bytes; want %d", tt.name, got, tt.want)
		}
	}
	m := NewMeter(&elffile.File{Header64: elf.Header64{Machine: uint16(elf.EM_RISCV)}})
	m.Enter(1, 2, 3)
	if begin, end := m.Trim(1, 2); m != nil || begin != 1 || end != 2 {
		t.Errorf("RISC-V: from %d to %d", begin, end)
	}
}

func span(begin, end uint64) elffile.Span { return elffile.Span{Begin: begin, End: end} }

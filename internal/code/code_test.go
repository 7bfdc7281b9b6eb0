package code

import (
	"debug/elf"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/cfi"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/testfile"
)

// base is the address of the code.
const base = 0x1000

// A source is assembly code: a gap, code outside the gap (after label described@), and data (after data@). Functions
// start at the beginning and at labels whose names begin with f; labels that begin with g are other known addresses.
// Words at labels that begin with n contain the address of a function that does not return; with r, that of
// _Unwind_Resume. @ makes labels unique;
// start@ is the address of the beginning, and at@ is that address minus base.
type source struct {
	name string
	asm  string
	want string // as printed by describe
}

// describe returns what was found: functions with their rows, jump targets in them, and refused code. Numbers are
// relative to base. A row extends to the next row; fp is the offset from the CFA at which the caller's RBP is saved.
func describe(t *Text) string {
	inf, refused, err := Find(t)
	if err != nil {
		return err.Error()
	}
	names := strings.Fields("rax rdx rcx rbx rsi rdi rbp rsp r8 r9 r10 r11 r12 r13 r14 r15")
	if t.Machine == elf.EM_AARCH64 {
		names = strings.Fields("x0 x1 x2 x3 x4 x5 x6 x7 x8 x9 x10 x11 x12 x13 x14 x15 x16 x17 x18 x19 x20 x21 x22 " +
			"x23 x24 x25 x26 x27 x28 fp lr sp")
	}
	said := map[uint64]string{}
	for _, fn := range inf.Functions {
		var rows []string
		for _, r := range fn.Rows {
			s := fmt.Sprintf("%s%+d", names[r.Reg], r.Offset)
			if r.Off > 0 {
				s = fmt.Sprintf("%d %s", fn.Begin-base+uint64(r.Off), s)
			}
			switch {
			case r.Lost:
				s += " lost"
			case r.FP != 0:
				s += fmt.Sprintf(" fp%+d", r.FP)
			}
			switch {
			case r.RA != 0:
				s += fmt.Sprintf(" ra%+d", r.RA)
			case t.Machine == elf.EM_AARCH64 && names[r.RAReg] != "lr":
				s += " ra " + names[r.RAReg]
			}
			if r.Kept {
				s += " kept"
			}
			if r.Signed {
				s += " signed"
			}
			rows = append(rows, s)
		}
		said[fn.Begin] = fmt.Sprintf("%d-%d: %s", fn.Begin-base, fn.End-base, strings.Join(rows, ", "))
	}
	for _, r := range refused {
		said[r.Begin] += fmt.Sprintf("%d-%d %s", r.Begin-base, r.End-base,
			strings.TrimPrefix(r.Reason.String(), "code-"))
	}
	var all []string
	for _, pc := range slices.Sorted(maps.Keys(said)) {
		all = append(all, said[pc])
	}
	for _, pc := range slices.Sorted(maps.Keys(inf.Jumps)) {
		s := fmt.Sprintf("%d to", pc-base)
		for _, to := range inf.Jumps[pc] {
			s += fmt.Sprintf(" %d", to-base)
		}
		all = append(all, s)
	}
	return strings.Join(all, "; ")
}

// assemble assembles sources.
func assemble(t *testing.T, sources []source) []*Text {
	t.Helper()
	return assembleFor(t, elf.EM_X86_64, sources, "as", "--64")
}

// assembleFor assembles sources for a machine.
func assembleFor(t *testing.T, m elf.Machine, sources []source, as ...string) []*Text {
	t.Helper()
	var asm strings.Builder
	for i, s := range sources {
		text := fmt.Sprintf(".section .text.%d,\"ax\"\nstart@:\n.set at@, start@-%#x\n%s\nend@:\n", i, base, s.asm)
		asm.WriteString(strings.ReplaceAll(text, "@", fmt.Sprintf("_%d", i)))
	}
	dir := t.TempDir()
	in, out := filepath.Join(dir, "code.s"), filepath.Join(dir, "code.o")
	testfile.Write(t, in, asm.String())
	must.Run(t, exec.Command(peer.Look(t, as[0]), append(as[1:], "-o", out, in)...))
	f := must.Get(elf.Open(out))(t)
	defer f.Close()
	symbols := must.Get(f.Symbols())(t)
	var texts []*Text
	for i := range sources {
		section := f.Section(fmt.Sprintf(".text.%d", i))
		code := must.Get(section.Data())(t)
		text := &Text{Machine: m, Functions: []uint64{base}, NoReturn: map[uint64]bool{},
			Resume: map[uint64]bool{}}
		text.Step = func(uint64) error { return nil }
		at := map[string]int{"described": len(code), "data": len(code)}
		for _, s := range symbols {
			name, number, _ := strings.Cut(s.Name, "_")
			if number != fmt.Sprint(i) {
				continue
			}
			switch at[name] = int(s.Value); name[0] {
			case 'f':
				text.Functions = append(text.Functions, base+s.Value)
			case 'g':
				text.Entries = append(text.Entries, base+s.Value)
			case 'n':
				text.NoReturn[base+s.Value] = true
			case 'r':
				text.NoReturn[base+s.Value], text.Resume[base+s.Value] = true, true
			}
		}
		described := min(at["described"], at["data"])
		text.Gaps = []Gap{{base, code[:described]}}
		text.Described = func(f func(addr uint64, code []byte)) error {
			f(base+uint64(described), code[described:at["data"]])
			return nil
		}
		text.Data = func(addr uint64, n int) []byte {
			if addr < base || addr >= base+uint64(len(code)) {
				return nil
			}
			return code[addr-base:][:min(n, len(code)-int(addr-base))]
		}
		text.Row = func(pc uint64) (row cfi.InferredRow, ok, known bool) {
			row, _ = machines[m].entry.row(false)
			known = pc >= base+uint64(described) && pc < base+uint64(at["data"])
			return row, known, known
		}
		texts = append(texts, text)
	}
	return texts
}

// pushes returns the rows for n one-byte push instructions at pc, in a function that has already executed others.
func pushes(pc, n, before int) string {
	var s []string
	for i := range n {
		s = append(s, fmt.Sprintf("%d rsp%+d", pc+i, 8+8*(before+i)))
	}
	return strings.Join(s, ", ")
}

// TestFind checks rows against the System V ABI: at entry, the CFA is RSP+8, and the return address is at CFA-8.
func TestFind(t *testing.T) {
	sources := []source{
		{"leaf", "xor %eax,%eax; ret", "0-3: rsp+8"},
		{"push", "push %rbx; push %rbp; xor %ebp,%ebp; pop %rbp; pop %rbx; ret",
			"0-7: rsp+8, 1 rsp+16, 2 rsp+24 fp-24, 5 rsp+16, 6 rsp+8"},
		{"sub", "sub $24,%rsp; nop; add $24,%rsp; ret", "0-10: rsp+8, 4 rsp+32, 9 rsp+8"},
		{"leave", "push %rbp; mov %rsp,%rbp; sub $32,%rsp; leave; ret",
			"0-10: rsp+8, 1 rsp+16 fp-16, 4 rbp+16 fp-16, 9 rsp+8"},
		{"lea from FP", "push %rbp; mov %rsp,%rbp; push %rbx; sub $16,%rsp; lea -8(%rbp),%rsp; pop %rbx; pop %rbp; ret",
			"0-16: rsp+8, 1 rsp+16 fp-16, 4 rbp+16 fp-16, 15 rsp+8"},
		{"FP is not needed", "push %rbp; mov %rsp,%rbp; pop %rbp; ret", "0-6: rsp+8, 1 rsp+16 fp-16, 5 rsp+8"},
		{"copy", "mov %rsp,%rax; sub $64,%rsp; mov %rax,%rsp; ret", "0-11: rsp+8, 7 rsp+72, 10 rsp+8"},
		{"exchange", "xchg %rsp,%rax; xchg %rsp,%rax; ret", "0-5: rsp+8, 2 rax+8, 4 rsp+8"},
		{"memory", "push (%rdi); pop (%rdi); ret", "0-5: rsp+8, 2 rsp+16, 4 rsp+8"},
		{"copy in the stack", "mov %rsp,%rax; sub $24,%rsp; and $-32,%rsp; mov %rax,8(%rsp); xor %eax,%eax; mov " +
			"8(%rsp),%rsp; ret", "0-24 unknown-stack"}, // before the last load, no register locates the CFA
		{"realigned, with a new frame", `lea 8(%rsp),%r10
			and $-32,%rsp; push -8(%r10); push %rbp; mov %rsp,%rbp; push %r10
			pop %r10; pop %rbp; lea -8(%r10),%rsp; ret`, "0-27: rsp+8, 9 r10+0, 17 r10+0 lost, 22 r10+0, 26 rsp+8"},
		{"aligned to no power of two", "mov %rsp,%r11; and $-24,%rsp; mov %r11,%rsp; ret",
			"0-11: rsp+8, 7 r11+8, 10 rsp+8"},
		{"constant size", "mov $0x1000,%eax; sub %rax,%rsp; add %rax,%rsp; ret", "0-12: rsp+8, 8 rsp+4104, 11 rsp+8"},
		{"callee that does not return to its caller", "push %rbx; call f@; pop %rbx; ret; f@: add $8,%rsp; pop %rbx; " +
			"ret", "0-8 unknown-stack; 8-14 unbalanced"},
		{"label with an address", "ret; g@: nop; ret", "0-1: rsp+8; 1-3: rsp+8"},
		{"label with an address, which leaves by an address", "ret; g@: nop; jmp *%rax", "0-1: rsp+8; 1-4 not-called"},
		{"label with an address, which leaves by a jump", "1: jmp *(%rax); g@: jmp 1b", "0-4 not-called"},
		{"label with an address, whose jump leads to a return", "1: ret; g@: jmp 1b", "0-1: rsp+8; 1-3: rsp+8"},
		{"label that code jumps to", "push %rbx; jmp g@; g@: pop %rbx; ret",
			"0-3: rsp+8, 1 rsp+16; 3-5: rsp+16, 4 rsp+8"},
		{"computed size", "sub %r11,%rsp; add %r11,%rsp; ret", "0-7 unknown-stack"},
		{"computed size, with FP", "push %rbp; mov %rsp,%rbp; sub %rax,%rsp; leave; ret",
			"0-9: rsp+8, 1 rsp+16 fp-16, 4 rbp+16 fp-16, 8 rsp+8"},
		{"sum with an unknown number", "sub $24,%rsp; add %rax,%rsp; ret", "0-8 unknown-stack"},
		{"address with an index", "lea 8(%rsp,%rax),%rsp; ret", "0-6 unknown-stack"},
		{"leave after a branch", "push %rbp; mov %rsp,%rbp; jz 1f; nop; 1: leave; ret",
			"0-9: rsp+8, 1 rsp+16 fp-16, 4 rbp+16 fp-16, 8 rsp+8"},
		{"SP from elsewhere", "mov %rdi,%rsp; ret", "0-4 unknown-stack"},
		{"leave without a frame", "leave; ret", "0-2 unknown-stack"},

		{"lost FP", "xor %ebp,%ebp; ret", "0-3: rsp+8, 2 rsp+8 lost"},
		{"call of code that loses FP", "call f@; ret; f@: call f2@; ret; f2@: xor %ebp,%ebp; ret",
			"0-6: rsp+8, 5 rsp+8 lost; 6-12: rsp+8, 11 rsp+8 lost; 12-15: rsp+8, 14 rsp+8 lost"},
		{"call of code that restores FP", "call f@; ret; f@: push %rbp; xor %ebp,%ebp; pop %rbp; ret",
			"0-6: rsp+8; 6-11: rsp+8, 7 rsp+16 fp-16, 10 rsp+8"},
		{"call, with FP saved", "push %rbp; call f@; pop %rbp; ret; f@: xor %ebp,%ebp; ret",
			"0-8: rsp+8, 1 rsp+16 fp-16, 7 rsp+8; 8-11: rsp+8, 10 rsp+8 lost"},
		{"call of code that saves FP before a call", "call f@; ret; f@: push %rbp; call f2@; pop %rbp; ret; f2@: xor " +
			"%ebp,%ebp; ret", "0-6: rsp+8; 6-14: rsp+8, 7 rsp+16 fp-16, 13 rsp+8; 14-17: rsp+8, 16 rsp+8 lost"},
		{"code that runs on into a function with another FP", "xor %ebp,%ebp; f@: nop; ret",
			"0-2 unbalanced; 2-4: rsp+8"},
		{"jump to a function with another FP", "xor %ebp,%ebp; jmp f@; f@: push %rbp; pop %rbp; ret",
			"0-4 unbalanced; 4-7: rsp+8, 5 rsp+16 fp-16, 6 rsp+8"},
		{"refused code that jumps to a function with another FP",
			"push %rbx; xor %ebp,%ebp; pop %rbx; jz f@; push %rbx; ret; f@: nop; ret",
			"0-8 unbalanced; 8-10: rsp+8"},
		{"call of code that changes RBX", "mov %rsp,%rbx; and $-16,%rsp; call f@; mov %rbx,%rsp; ret; f@: xor " +
			"%ebx,%ebx; ret", "0-16 unknown-stack; 16-19: rsp+8"},
		{"call of code that exchanges RBX", "mov %rsp,%rbx; and $-16,%rsp; call f@; mov %rbx,%rsp; ret; f@: xchg " +
			"%rbx,%rcx; ret", "0-16 unknown-stack; 16-20: rsp+8"},
		{"call of code that exchanges RCX", "mov %rsp,%rbx; and $-16,%rsp; call f@; mov %rbx,%rsp; ret; f@: xchg " +
			"%rcx,%rbx; ret", "0-16 unknown-stack; 16-20: rsp+8"},
		// As in libstdc++: the code after the call has a different frame.
		{"call that does not return",
			"push %rbx; jz 1f; pop %rbx; ret; 1: call *n@(%rip); nop; 2: pop %rbx; ret; data@: n@: .quad 0",
			"0-11: rsp+8, 1 rsp+16, 4 rsp+8, 5 rsp+16; 11-14 unreached"},
		// A landing pad of another function, which has a different frame.
		{"call of an unknown function that does not return", `push %rbx; jz 1f; pop %rbx; ret; 1: call *(%rax)
			mov %rax,%rdi; jz 2f; nop; 2: call *n@(%rip); data@: n@: .quad 0`,
			"0-19: rsp+8, 1 rsp+16, 4 rsp+8, 5 rsp+16"},
		{"call that only padding separates from another function", `push %rbx; jz 1f; pop %rbx; ret; 1: call *(%rax)
			.p2align 4; push %rbx; pop %rbx; ret`, "0-7: rsp+8, 1 rsp+16, 4 rsp+8, 5 rsp+16; 7-19 unreached"},
		{"call by name, before padding", `push %rbx; jz 1f; pop %rbx; ret; 1: call *n@(%rip); .p2align 4; ret
			data@: n@: .quad 0`, "0-11: rsp+8, 1 rsp+16, 4 rsp+8, 5 rsp+16; 11-17 unreached"},
		{"call that does not return, before a landing pad", `push %rbx; jz 1f; pop %rbx; ret; 1: call *(%rax); nop
			mov %rax,%rdi; call *r@(%rip); data@: r@: .quad 0`, "0-17 runs-on"},
		{"call that does not return, before a function that does not return", `push %rbx; jz 1f; pop %rbx; ret
			1: call *(%rax); push %rbx; mov %rdi,%rbx; call *n@(%rip); data@: n@: .quad 0`,
			"0-7: rsp+8, 1 rsp+16, 4 rsp+8, 5 rsp+16; 7-17 unreached"},
		{"function that is not seen to return", `push %rbx; jz 1f; pop %rbx; ret; 1: call 9f; mov %rdi,%rsi
			call *n@(%rip); described@: 9: nop; data@: n@: .quad 0`,
			"0-10: rsp+8, 1 rsp+16, 4 rsp+8, 5 rsp+16; 10-19 unreached"},
		{"function that is seen to return", `push %rbx; jz 1f; call 9f; call 9f; pop %rbx; ret; 1: call 9f
			mov %rdi,%rsi; call *n@(%rip); described@: 9: nop; data@: n@: .quad 0`,
			"0-29: rsp+8, 1 rsp+16, 14 rsp+8, 15 rsp+16"},
		{"call of the next function", "push %rbx; call 1f; 1: push %rbx; mov %rdi,%rsi; call *n@(%rip); data@: n@: " +
			".quad 0", "0-6: rsp+8, 1 rsp+16; 6-16: rsp+8, 7 rsp+16"},
		{"label in a frame", "ret; g@: push %rbx; pop %rbx; call 9f; jmp *(%rbx); described@: 9: nop",
			"0-1: rsp+8; 1-10 not-called"},
		{"label that jumps to code without rows", "jz 1f; push %rbx; 1: nop; ret; g@: push %rbx; pop %rbx; jmp 1b",
			"0-5 unknown-stack; 5-9 unbalanced"},
		{"by a stub", "push %rbx; call f@; pop %rbx; ret; f@: endbr64; jmp *n@(%rip); data@: n@: .quad 0",
			"0-6: rsp+8, 1 rsp+16; 6-8 unreached; 8-18: rsp+8"},
		{"by a stub in other code",
			"push %rbx; call 1f; pop %rbx; ret; described@: 1: endbr64; jmp *n@(%rip); data@: n@: .quad 0",
			"0-6: rsp+8, 1 rsp+16; 6-8 unreached"},
		{"direct call", "push %rbx; call f@; pop %rbx; ret; f@: push %rbx; call n@; described@: nop; n@: hlt",
			"0-6: rsp+8, 1 rsp+16; 6-8 unreached; 8-14: rsp+8, 9 rsp+16"},
		{"direct jump", "push %rbx; call f@; pop %rbx; ret; f@: jmp n@; described@: nop; n@: hlt",
			"0-6: rsp+8, 1 rsp+16; 6-8 unreached; 8-10: rsp+8"},
		{"by a function that does not return itself", `push %rbx; call f@; pop %rbx; ret
			f2@: push %rbx; call *n@(%rip); f@: push %rbx; 1: test %edi,%edi; jz 1b; call f2@; data@: n@: .quad 0`,
			"0-6: rsp+8, 1 rsp+16; 6-8 unreached; 8-15: rsp+8, 9 rsp+16; 15-25: rsp+8, 16 rsp+16"},
		{"call of a function that returns after a call of its caller", `push %rbx; call f@; pop %rbx; ret
			f@: test %edi,%edi; jz 1f; call start@; 1: ret`, "0-8: rsp+8, 1 rsp+16, 7 rsp+8; 8-18: rsp+8"},
		{"FP in the red zone", "mov %rbp,-8(%rsp); xor %ebp,%ebp; mov -8(%rsp),%rbp; ret",
			"0-13: rsp+8, 7 rsp+8 fp-16, 12 rsp+8"},
		{"below the red zone, a signal overwrites FP", "mov %rbp,-136(%rsp); xor %ebp,%ebp; ret",
			"0-11: rsp+8, 10 rsp+8 lost"},
		{"a call overwrites FP", "mov %rbp,-8(%rsp); xor %ebp,%ebp; call *%rax; ret",
			"0-10: rsp+8, 7 rsp+8 fp-16, 9 rsp+8 lost"},
		{"a call overwrites what was popped", "push %rbp; pop %rax; xor %ebp,%ebp; call *%rax; ret",
			"0-7: rsp+8, 1 rsp+16 fp-16, 2 rsp+8, 4 rsp+8 fp-16, 6 rsp+8 lost"},
		{"a store overwrites FP", "push %rbp; xor %ebp,%ebp; mov %rax,(%rsp); pop %rbp; ret",
			"0-9: rsp+8, 1 rsp+16 fp-16, 7 rsp+16 lost, 8 rsp+8 lost"},
		{"a store overwrites a part of FP", "push %rbp; xor %ebp,%ebp; movl $0,4(%rsp); pop %rbp; ret",
			"0-13: rsp+8, 1 rsp+16 fp-16, 11 rsp+16 lost, 12 rsp+8 lost"},
		{"a vector overwrites FP", "push %rbp; xor %ebp,%ebp; movups %xmm0,-8(%rsp); pop %rbp; ret",
			"0-10: rsp+8, 1 rsp+16 fp-16, 8 rsp+16 lost, 9 rsp+8 lost"},
		{"a store with an index", "push %rbp; xor %ebp,%ebp; mov %rcx,(%rsp,%rax,8); pop %rbp; ret",
			"0-9: rsp+8, 1 rsp+16 fp-16, 8 rsp+8"},
		{"a store beside FP", "push %rbp; xor %ebp,%ebp; mov %rax,-8(%rsp); pop %rbp; ret",
			"0-10: rsp+8, 1 rsp+16 fp-16, 9 rsp+8"},
		{"more slots than are followed", ".rept 32; push %rbx; .endr; push %rbp; xor %ebp,%ebp; mov %rsp,%rax; add " +
			"$264,%rsp; ret", "0-46: rsp+8, " + pushes(1, 33, 1) + ", 35 rsp+272 lost, 45 rsp+8 lost"},

		{"callee that allocates on the stack of its caller", `push %rbx; mov %rsp,%rbx; call f@; mov %rbx,%rsp; pop %rbx
			ret; f@: mov (%rsp),%rax; sub %rdi,%rsp; and $-16,%rsp; jmp *%rax`, "0-27 unknown-stack"},
		{"callee that pops its arguments", `push %r12; mov %rsp,%r12; push %rdi; call f@; mov %r12,%rsp; pop %r12; ret
			f@: mov 8(%rsp),%rax; ret $8`, "0-17 unknown-stack; 17-25 unbalanced"},
		{"callee that leaves a word on the stack", `call f@; pop %rbx; ret
			f@: mov (%rsp),%rax; mov %rbx,(%rsp); jmp *%rax`, "0-17 unknown-stack"},
		{"callee that changes FP after a computed jump", `sub $8,%rsp; call f@; add $8,%rsp; ret
			f@: lea 1f(%rip),%rax; add %rdi,%rax; jmp *%rax; 1: mov %rsi,%rbp; ret`,
			"0-14: rsp+8, 4 rsp+16, 9 rsp+16 lost, 13 rsp+8 lost; 14-26 indirect; 26-30 unreached"},
		{"callee that changes FP beside unknown bytes", `sub $8,%rsp; call f@; add $8,%rsp; ret
			f@: jz 1f; .byte 6; 1: mov %rsi,%rbp; ret`,
			"0-14: rsp+8, 4 rsp+16, 9 rsp+16 lost, 13 rsp+8 lost; 14-21 overlap"},
		{"labels after a computed jump", `mov %rbp,-8(%rsp); mov %rdi,%rbp; lea g@(%rip),%rax; add %rsi,%rax; jmp *%rax
			g@: lea 1(%rbp),%rbp; mov -8(%rsp),%rbp; ret`, "0-20 indirect; 20-30 unreached"},
		{"system calls that do not return", `f@: mov $15,%eax; syscall; f2@: mov $60,%edi; mov $231,%eax; syscall`,
			"0-19 not-called"},
		{"system call with an unknown number", "mov %edi,%eax; syscall; ret", "0-5: rsp+8"},
		{"system call that starts a child on another stack", "mov $56,%eax; syscall; ret", "0-8 unknown-stack"},
		{"its number in a byte", "xor %eax,%eax; mov $56,%al; syscall; ret", "0-7 unknown-stack"},
		{"code that is only jumped to and never returns", "jmp f@; f@: jmp *(%rbx)", "0-4 not-called"},
		{"breakpoint before other code", "int3; nop; ret", "0-1 not-called; 1-3 unreached"},
		{"breakpoint that execution passes", "int3; xor %eax,%eax; ret", "0-4: rsp+8"},

		{"branches", "test %edi,%edi; jz 1f; push %rbx; pop %rbx; 1: ret", "0-7: rsp+8, 5 rsp+16, 6 rsp+8"},
		{"branches at two depths", "test %edi,%edi; jz 1f; push %rbx; 1: ret", "0-6 unknown-stack"},
		{"loop", "push %rbx; 1: dec %edi; jnz 1b; pop %rbx; ret", "0-7: rsp+8, 1 rsp+16, 6 rsp+8"},
		{"endless loop", "nop; 1: jmp 1b", "0-3 not-called"},
		{"trap", "test %edi,%edi; jz 1f; ret; 1: ud2", "0-7: rsp+8"},
		{"end of the code", "nop", "0-1 runs-on"},
		{"runs into other code", "nop; described@: ret", "0-1: rsp+8"},
		{"runs into a function", "nop; f@: ret", "0-1: rsp+8; 1-2: rsp+8"},
		{"runs into a function at another depth", "push %rbx; f@: ret", "0-1 unbalanced; 1-2: rsp+8"},
		{"unreached", "ret; nop; ret", "0-1: rsp+8; 1-3 unreached"},
		{"return at another depth", "push %rbx; ret", "0-2 unbalanced"},
		{"return that pops arguments", "ret $8", "0-3 unbalanced"},
		{"above the return address", "pop %rax; push %rax; ret", "0-3 unbalanced"},
		{"call of the next instruction", "call 1f; 1: pop %rax; ret", "0-7: rsp+8, 5 rsp+16, 6 rsp+8"},
		{"call of the function that follows", "push %rbx; call 1f; 1: mov %rdi,%rax; ret",
			"0-6: rsp+8, 1 rsp+16; 6-10: rsp+8"},
		{"data that looks like a call into a loop", "push %rbx; jz 3f; 2: nop; 1: dec %eax; jnz 2b; 3: pop %rbx; " +
			"ret; g@: call 1b; ret", "0-4 unknown-stack; 4-8 unbalanced; 8-10 unknown-stack; 10-16: rsp+8"},
		{"into an instruction", "jz 1f+1; 1: mov $0xc3c3c3c3,%eax; ret", "0-8 overlap"},
		{"call into an instruction", "call 1f+1; 1: mov $0xc3c3c3c3,%eax; ret", "0-11 overlap"},
		{"past a lock prefix", "push %rbx; jz 1f; lock; 1: cmpxchg %ecx,(%rdx); pop %rbx; ret",
			"0-9: rsp+8, 1 rsp+16, 8 rsp+8"},
		{"past another prefix", "jz 1f; rep; 1: cmpsb; ret", "0-5 overlap"},
		{"transaction", "push %rbx; xbegin 1f; xabort $1; pop %rbx; ret; 1: pop %rbx; ret",
			"0-14: rsp+8, 1 rsp+16, 11 rsp+8, 12 rsp+16, 13 rsp+8"},
		{"unknown bytes", "nop; .byte 6; nop", "0-2 overlap; 2-3 unreached"},
		{"unknown bytes after a branch", "jz 1f; ret; 1: .byte 6", "0-4 overlap"},
		{"tail call", "push %rbx; pop %rbx; jmp f@; f@: ret", "0-4: rsp+8, 1 rsp+16, 2 rsp+8; 4-5: rsp+8"},
		{"tail call at another depth", "push %rbx; jmp f@; f@: ret", "0-3 unbalanced; 3-4: rsp+8"},
		{"tail call of other code", "jmp 1f; described@: 1: ret", "0-2: rsp+8"},
		{"indirect tail calls", "jz 1f; jmp *%rax; 1: jmp *(%rax)", "0-6 not-called"},
		{"indirect jump", "push %rbx; jmp *%rax", "0-3 indirect"},
		{"entries from other code", "ret; 1: ret; 2: ret; 3: ret; nop; described@: call 1b; lea 2b(%rip),%rax; jz " +
			"3b; .byte 6; call 4f; 4:", "0-1: rsp+8; 1-2: rsp+8; 2-3: rsp+8; 3-4: rsp+8; 4-5 unreached"},
		{"entry from an address", "lea 1f(%rip),%rax; ret; 1: push %rbx; pop %rbx; ret",
			"0-8: rsp+8; 8-11: rsp+8, 9 rsp+16, 10 rsp+8"},
		{"joined functions", "push %rbx; jmp 1f; f@: push %rbx; nop; 1: pop %rbx; ret",
			"0-3: rsp+8, 1 rsp+16; 3-7: rsp+8, 4 rsp+16, 6 rsp+8"},
		{"one of two joined functions is odd", "jz 2f; push %rbx; jmp 1f; f@: push %rbx; 2: jmp *%rax; 1: pop %rbx; " +
			"ret", "0-5 unbalanced; 5-8 unknown-stack; 8-10 unbalanced"},

		{"table of 8 bytes", "jmp *(data@-at@)(,%rax,8); 1: ret; 2: push %rbx; pop %rbx; ret; data@: .quad 1b-at@, " +
			"2b-at@, 0", "0-11: rsp+8, 9 rsp+16, 10 rsp+8; 0 to 7 8"},
		{"address from a table of 8 bytes", `lea data@(%rip),%rdx; mov (%rdx,%rax,8),%rax; jmp *%rax; 1: ret; 2: ret
			data@: .quad 0, 1b-at@, 2b-at@`, "0-15: rsp+8; 11 to 13 14"},
		{"table of functions", "jmp *(data@-at@)(,%rax,8); f@: ret; 2: push %rbx; pop %rbx; ret; data@: .quad " +
			"f@-at@, 2b-at@", "0-7 not-called; 7-8: rsp+8; 8-11 unreached"},
		{"table of 4 bytes", `lea data@(%rip),%rdx
			movslq (%rdx,%rax,4),%rax; add %rdx,%rax; jmp *%rax; 1: ret; 2: ret; nop
			data@: .long 1b-data@, 2b-data@, -1`, "0-18: rsp+8; 18-19 unreached; 14 to 16 17"},
		{"table of 2 bytes", `lea data@(%rip),%rdx; lea start@(%rip),%rcx
			movzwl (%rdx,%rax,2),%eax; lea 1(%rcx,%rax),%rax
			jmp *%rax; 1: push %rbx; nop; pop %rbx; ret; 2: ret; data@: .short 1b-start@-1, 2b-start@-1`,
			"0-30: rsp+8, 26 rsp+16, 28 rsp+8; 23 to 25 29"},
		{"table with distances of 0", `push %rbx; lea data@(%rip),%rdx; lea start@(%rip),%rcx
			movzwl (%rdx,%rax,2),%eax; add %rcx,%rax; jmp *%rax; 1: pop %rbx; ret; data@: .short 0, 1b-start@, 0`,
			"0-26: rsp+8, 1 rsp+16, 25 rsp+8; 22 to 24"},
		{"table that other data follows", `jmp *(data@-at@)(,%rax,8); 1: ret; 2: mov $0xc3c3c3c3,%eax; ret
			data@: .quad 1b-at@, 2b-at@, 1b-at@, 2b-at@, 1b-at@, 2b+1-at@, 0, 1b-at@`, "0-14: rsp+8; 0 to 7 8"},
		{"table that another one follows", `jmp *(data@-at@)(,%rax,8); 1: jmp *(3f-at@)(,%rax,8); 2: ret
			data@: .quad 1b-at@; 3: .quad 2b-at@`, "0-15: rsp+8; 0 to 7; 7 to 14"},
		{"table that one of unreached code follows", `jmp *(data@-at@)(,%rax,8); 1: ret; jmp *(3f-at@)(,%rax,8); 2: ret
			data@: .quad 1b-at@; 3: .quad 2b-at@`, "0-8: rsp+8; 8-16 unreached; 0 to 7"},
		// Code refers to entry 0 of the second table, which overlaps an entry of the first.
		{"tables indexed from 2", `lea data@(%rip),%rdx; movslq (%rdx,%rax,4),%rax; add %rdx,%rax; jmp *%rax
			2: ret; 3: ret; 1: ret
			f@: lea data@+12(%rip),%rdx; movslq (%rdx,%rax,4),%rax; add %rdx,%rax; jmp *%rax; 4: ret; 5: ret
			data@: .long 1<<30, 1<<30, 1b-data@, 2b-data@, 3b-data@, 4b-data@-12, 5b-data@-12`,
			"0-19: rsp+8; 19-37: rsp+8; 14 to 16 17 18; 33 to 35 36"},
		{"table after an entry that leads into an instruction", `lea data@(%rip),%rdx
			movslq (%rdx,%rax,4),%rax; add %rdx,%rax; jmp *%rax; 1: ret; 2: ret; g@: mov $0xc3c3c3c3,%eax; ret
			data@: .long g@+1-data@, 1b-data@, 2b-data@`, "0-18: rsp+8; 18-24: rsp+8; 14 to 16 17"},
		{"table after an entry that leads into a function", `lea data@(%rip),%rdx
			movslq (%rdx,%rax,4),%rax; add %rdx,%rax; jmp *%rax; 1: ret; 2: ret; .p2align 4
			f@: push %rbx; nop; 3: pop %rbx; ret; data@: .long 3b-data@, 1b-data@, 2b-data@`,
			"0-18: rsp+8; 18-32 unreached; 32-36: rsp+8, 33 rsp+16, 35 rsp+8; 14 to 16 17"},
		{"table that contains the address of a jump", `jmp *(data@-at@)(,%rax,8); 1: ret; 2: jmp *%rax
			data@: .quad 1b-at@, 2b-at@, 1b-at@`, "0-8: rsp+8; 8-10 unreached; 0 to 7"},
		{"address in a table, plus a register", `mov (data@-at@+8)(%rbx),%eax; jmp *(data@-at@)(,%rax,8)
			1: ret; 2: ret; data@: .quad 1b-at@, 2b-at@`, "0-15: rsp+8; 6 to 13 14"},
		{"table with an address outside of the gap", `jmp *(data@-at@)(,%rax,8); 1: ret; described@: 2: ret
			data@: .quad 1b-at@, 2b-at@`, "0-8: rsp+8; 0 to 7"},
		{"table in another segment", "jmp *%fs:(data@-at@)(,%rax,8); 1: ret; data@: .quad 1b-at@",
			"0-8 not-called; 8-9 unreached"},
		{"table of what is no code", "push %rbx; jmp *(data@-at@)(,%rax,8); ret; data@: .quad 1, 1<<40",
			"0-8 indirect; 8-9 unreached"},
		{"constant address", "push %rbx; lea 1f(%rip),%rax; jmp *%rax; 1: pop %rbx; ret",
			"0-12: rsp+8, 1 rsp+16, 11 rsp+8; 8 to 10"},
		{"addresses at two depths", `test %edi,%edi; lea 1f(%rip),%r8; jz 4f; lea 2f(%rip),%r8; 4: jmp *%r8; 1: ret
			2: push %rbx; lea 3f(%rip),%r8; test %esi,%esi; jz 6f; lea 5f(%rip),%r8; 6: jmp *%r8; 3: pop %rbx; ret
			5: pop %rbx; ret`, "0-48: rsp+8, 23 rsp+16, 45 rsp+8, 46 rsp+16, 47 rsp+8; 18 to 21 22; 41 to 44 46"},
		{"one of two addresses is unknown",
			"push %rbx; test %edi,%edi; lea 2f(%rip),%r8; jz 4f; mov %rsi,%r8; 4: jmp *%r8; 2: pop %rbx; ret",
			"0-18 indirect; 18-20 unreached"},
		{"addresses from three functions", `lea 1f(%rip),%r8; jmp 4f; f@: lea 2f(%rip),%r8; jmp 4f
			f2@: lea 3f(%rip),%r8; jmp 4f; 4: push %rbx; jmp *%r8; 1: pop %rbx; ret; 2: pop %rbx; ret
			3: pop %rbx; ret`,
			"0-9: rsp+8; 9-18: rsp+8; 18-37: rsp+8, 28 rsp+16, 32 rsp+8, 33 rsp+16, 34 rsp+8, 35 rsp+16, 36 rsp+8; " +
				"28 to 31 33 35"},
		{"address from a function that calls another", `lea 1f(%rip),%r8; call 4f; jmp 3f
			f@: lea 2f(%rip),%r8; jmp 3f; 4: ret; 3: push %rbx; jmp *%r8; 1: pop %rbx; ret; 2: pop %rbx; ret`,
			"0-14: rsp+8; 14-23: rsp+8; 23-24: rsp+8; 24-32: rsp+8, 25 rsp+16, 29 rsp+8, 30 rsp+16, 31 rsp+8; " +
				"25 to 28 30"},
		{"address of the next part", `test %edi,%edi; jz 1f; lea 2f(%rip),%r8; jmp 4f; 1: lea 3f(%rip),%r8; jmp 4f
			2: ret; 3: ret; 4: push %rbx; pop %rbx; jmp *%r8`, "0-29: rsp+8, 25 rsp+16, 26 rsp+8; 26 to 22 23"},
	}
	calls, callees, want := "", "", "0-83: rsp+8, 1 rsp+16, 82 rsp+8"
	for i := range 16 {
		calls += fmt.Sprintf("call c%d@; ", i)
		callees += fmt.Sprintf("c%d@: call k%[1]d@; ret; k%[1]d@: mov %%rdi,%%rbx; ret; ", i)
		want += fmt.Sprintf("; %d-%d: rsp+8; %[2]d-%d: rsp+8", 83+10*i, 89+10*i, 93+10*i)
	}
	sources = append(sources, source{"many callees whose callees change a register",
		"push %rbx; " + calls + "pop %rbx; ret; " + callees, want})
	for _, r := range strings.Fields("rax rcx rdx rbx rsi rdi r8 r9 r10 r11 r12 r13 r14 r15") {
		saved := fmt.Sprintf("0-13: rsp+8, 7 %s+8, 12 rsp+8", r)
		if !slices.Contains([]string{"rbx", "r12", "r13", "r14", "r15"}, r) { // a call may change it
			saved = "0-13 unknown-stack"
		}
		aligned := fmt.Sprintf("mov %%rsp,%%%s; and $-16,%%rsp; @call mov %%%[1]s,%%rsp; ret", r)
		sources = append(sources,
			source{"frame in " + r, strings.Replace(aligned, "@call ", "", 1),
				fmt.Sprintf("0-11: rsp+8, 7 %s+8, 10 rsp+8", r)},
			source{"call with the frame in " + r, strings.Replace(aligned, "@call", "call *(%rax);", 1), saved})
	}
	checkRows(t, assemble(t, sources), sources)
}

// TestTailCall checks a function to which described code jumps. GCC's CFI does not say that RBP was restored.
func TestTailCall(t *testing.T) {
	sources := []source{{"tail call", "push %rbp; xor %ebp,%ebp; pop %rbp; ret; described@: jmp start@",
		"0-5: rsp+8, 1 rsp+16 fp-16, 4 rsp+8"}}
	texts := assemble(t, sources)
	texts[0].Functions = nil
	texts[0].Row = func(uint64) (row cfi.InferredRow, ok, known bool) {
		return cfi.InferredRow{Reg: 7, Offset: 8, FP: -16}, true, true
	}
	checkRows(t, texts, sources)
}

// TestFixed checks code at fixed addresses: labels that begin with g are addresses in data.
func TestFixed(t *testing.T) {
	sources := []source{
		{"address in an instruction", "mov $(1f-at@),%edi; ret; nop; 1: push %rbx; pop %rbx; ret",
			"0-6: rsp+8; 6-7 unreached; 7-10: rsp+8, 8 rsp+16, 9 rsp+8"},
		{"address of a label in an instruction", "mov $(1f-at@),%edi; ret; 2: push %rbx; 1: pop %rbx; ret",
			"0-6: rsp+8; 6-9 unreached"},
		{"function after zeros", "ret; .byte 0; g@: push %rbx; pop %rbx; ret",
			"0-1: rsp+8; 1-2 unreached; 2-5: rsp+8, 3 rsp+16, 4 rsp+8"},
	}
	texts := assemble(t, sources)
	for _, text := range texts {
		pointers := text.Entries
		text.Entries = nil
		text.Pointers = func(visit func(addr uint64)) error {
			for _, addr := range pointers {
				visit(addr)
			}
			return nil
		}
	}
	checkRows(t, texts, sources)
}

// TestStart checks that the entry point has no caller, unless it is called.
func TestStart(t *testing.T) {
	sources := []source{
		{"left by a jump", "push %rbx; pop %rbx; jmp f@; f@: ret", "outermost"},
		{"called", "push %rbx; pop %rbx; ret; f@: call start@; ret", "ordinary"},
	}
	for i, text := range assemble(t, sources) {
		text.Start = base
		inf, _, err := Find(text)
		must.Do(t, err)
		if len(inf.Functions) == 0 || inf.Functions[0].Begin != base {
			t.Fatalf("%s: %+v", sources[i].name, inf.Functions)
		}
		for _, r := range inf.Functions[0].Rows {
			if r.Outermost != (sources[i].want == "outermost") {
				t.Errorf("%s: %+v; want %s", sources[i].name, r, sources[i].want)
			}
		}
	}
}

// checkRows checks the rows of each source twice, because the first run must not affect the second.
func checkRows(t *testing.T, texts []*Text, sources []source) {
	t.Helper()
	for i, text := range texts {
		t.Run(sources[i].name, func(t *testing.T) {
			for range 2 {
				if got := describe(text); got != sources[i].want {
					t.Fatalf("got  %s\nwant %s", got, sources[i].want)
				}
			}
		})
	}
}

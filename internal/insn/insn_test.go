package insn

import (
	"encoding/hex"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/must"
)

// mem returns an operand with a base and a displacement.
func mem(base Reg, disp int64) Mem { return Mem{Base: base, Index: None, Disp: disp} }

// TestDecodeAMD64 decodes an instruction for each op, and similar instructions. The code is from GNU as, and the
// effects are from the Intel SDM.
func TestDecodeAMD64(t *testing.T) {
	const pc = 0x1000
	noMem := mem(None, 0)
	op := func(o Op, reg, src Reg) Inst { return Inst{Op: o, Reg: reg, Src: src, Mem: noMem} }
	imm := func(o Op, reg Reg, n int64) Inst { return Inst{Op: o, Reg: reg, Src: None, Imm: n, Mem: noMem} }
	with := func(o Op, reg, src Reg, m Mem) Inst { return Inst{Op: o, Reg: reg, Src: src, Mem: m} }
	to := func(o Op, target uint64) Inst { return Inst{Op: o, Reg: None, Src: None, Target: target, Mem: noMem} }
	writes := func(set uint32) Inst { return Inst{Reg: None, Src: None, Writes: set, Mem: noMem} }
	stores := func(n int32, m Mem) Inst { return Inst{Reg: None, Src: None, Stores: n, Mem: m} }
	for _, tt := range []struct {
		code, text string
		want       Inst
	}{
		{"90", "nop", writes(0)},
		{"4889e5", "mov %rsp,%rbp", op(Move, rbp, rsp)},
		{"488bec", "mov %rsp,%rbp", op(Move, rbp, rsp)},
		{"89e5", "mov %esp,%ebp", writes(1 << rbp)},
		{"4883ec18", "sub $24,%rsp", imm(Add, rsp, -24)},
		{"4881c400010000", "add $256,%rsp", imm(Add, rsp, 256)},
		{"4883c480", "add $-128,%rsp", imm(Add, rsp, -128)},
		{"48ffc4", "inc %rsp", imm(Add, rsp, 1)},
		{"48ffcc", "dec %rsp", imm(Add, rsp, -1)},
		{"4805ff000000", "add $255,%rax", imm(Add, rax, 255)},
		{"6683c408", "add $8,%sp", writes(1 << rsp)},
		{"83ec08", "sub $8,%esp", writes(1 << rsp)},
		{"4801c4", "add %rax,%rsp", op(AddReg, rsp, rax)},
		{"4803e0", "add %rax,%rsp", op(AddReg, rsp, rax)},
		{"4829c4", "sub %rax,%rsp", op(SubReg, rsp, rax)},
		{"4c2bd8", "sub %rax,%r11", op(SubReg, r11, rax)},
		{"4883e4e0", "and $-32,%rsp", imm(And, rsp, -32)},
		{"4881e400f0ffff", "and $-4096,%rsp", imm(And, rsp, -4096)},
		{"4883cc01", "or $1,%rsp", writes(1 << rsp)},
		{"4883fc01", "cmp $1,%rsp", writes(0)},
		{"b8ffffffff", "mov $0xffffffff,%eax", imm(Const, rax, 0xffffffff)},
		{"48c7c0ffffffff", "mov $-1,%rax", imm(Const, rax, -1)},
		{"c7c0ffffffff", "mov $0xffffffff,%eax", imm(Const, rax, 0xffffffff)},
		{"48b8efcdab8967452301", "movabs $0x123456789abcdef,%rax", imm(Const, rax, 0x123456789abcdef)},
		{"31ed", "xor %ebp,%ebp", imm(Const, rbp, 0)},
		{"6631ed", "xor %bp,%bp", writes(1 << rbp)},
		{"66b80100", "mov $1,%ax", writes(1 << rax)},
		{"488d642410", "lea 16(%rsp),%rsp", with(Address, rsp, None, mem(rsp, 16))},
		{"488d0d10000000", "lea 16(%rip),%rcx", with(Address, rcx, None,
			Mem{Base: None, Index: None, Disp: pc + 7 + 16, Relative: true})},
		{"8d6580", "lea -128(%rbp),%esp", Inst{Reg: None, Src: None, Writes: 1 << rsp, Mem: mem(rbp, -128)}},
		{"488b5dc0", "mov -64(%rbp),%rbx", with(Load, rbx, None, mem(rbp, -64))},
		{"64488b042528000000", "mov %fs:40,%rax", with(Load, rax, None,
			Mem{Base: None, Index: None, Scale: 1, Disp: 40, Elsewhere: true})},
		{"67488b03", "mov (%ebx),%rax", with(Load, rax, None, Mem{Base: rbx, Index: None, Elsewhere: true})},
		{"48630487", "movslq (%rdi,%rax,4),%rax", with(Extend, rax, None, Mem{Base: rdi, Index: rax, Scale: 4})},
		{"0fb70447", "movzwl (%rdi,%rax,2),%eax", with(Short, rax, None, Mem{Base: rdi, Index: rax, Scale: 2})},
		{"660fb707", "movzww (%rdi),%ax", Inst{Reg: None, Src: None, Writes: 1 << rax, Mem: mem(rdi, 0)}},
		{"48895c2408", "mov %rbx,8(%rsp)", with(Store, None, rbx, Mem{Base: rsp, Index: None, Scale: 1, Disp: 8})},
		{"895df8", "mov %ebx,-8(%rbp)", stores(4, mem(rbp, -8))},
		{"665d", "pop %bp", Inst{}},
		{"48894df8", "mov %rcx,-8(%rbp)", with(Store, None, rcx, mem(rbp, -8))},
		{"4887ec", "xchg %rsp,%rbp", op(Swap, rbp, rsp)},
		{"4894", "xchg %rax,%rsp", op(Swap, rax, rsp)},
		{"4190", "xchg %eax,%r8d", writes(1<<rax | 1<<8)},
		{"94", "xchg %eax,%esp", writes(1<<rax | 1<<rsp)},
		{"55", "push %rbp", op(Push, None, rbp)},
		{"4155", "push %r13", op(Push, None, 13)},
		{"fff5", "push %rbp", op(Push, None, rbp)},
		{"6a08", "push $8", Inst{Op: Push, Reg: None, Src: None, Imm: 8, Mem: noMem}},
		{"9c", "pushf", op(Push, None, None)},
		{"0fa0", "push %fs", op(Push, None, None)},
		{"ff75f8", "push -8(%rbp)", with(PushMem, None, None, mem(rbp, -8))},
		{"5d", "pop %rbp", op(Pop, rbp, None)},
		{"8fc5", "pop %rbp", op(Pop, rbp, None)},
		{"9d", "popf", op(Pop, None, None)},
		{"8f45f8", "pop -8(%rbp)", with(PopMem, None, None, mem(rbp, -8))},
		{"c9", "leave", op(Leave, None, None)},
		{"7410", "je", to(Branch, pc+2+16)},
		{"0f85f0ffffff", "jne", to(Branch, pc+6-16)},
		{"e2fe", "loop", Inst{Op: Branch, Reg: None, Src: None, Target: pc, Writes: 1 << rcx, Mem: noMem}},
		{"ebfe", "jmp", to(Jump, pc)},
		{"e900010000", "jmp", to(Jump, pc+5+256)},
		{"66e900000000", "jmp, with a prefix that processors disagree about", Inst{}},
		{"ffe0", "jmp *%rax", op(JumpReg, rax, None)},
		{"3effe2", "notrack jmp *%rdx", op(JumpReg, rdx, None)},
		{"ff24c7", "jmp *(%rdi,%rax,8)", with(JumpMem, None, None, Mem{Base: rdi, Index: rax, Scale: 8})},
		{"e800000000", "call", to(Call, pc+5)},
		{"ffd0", "call *%rax", op(CallReg, rax, None)},
		{"ff5008", "call *8(%rax)", with(CallMem, None, None, mem(rax, 8))},
		{"c3", "ret", op(Return, None, None)},
		{"f3c3", "repz ret", op(Return, None, None)},
		{"c20800", "ret $8", Inst{}},
		{"c8100000", "enter $16,$0", Inst{}},
		{"cc", "int3", op(Trap, None, None)},
		{"cd03", "int $3", op(Trap, None, None)},
		{"f4", "hlt", op(Trap, None, None)},
		{"0f0b", "ud2", op(Trap, None, None)},
		{"0f05", "syscall", writes(1<<rax | 1<<rcx | 1<<r11)},
		{"0fa2", "cpuid", writes(1<<rax | 1<<rbx | 1<<rcx | 1<<rdx)},
		{"f7e1", "mul %ecx", writes(1<<rax | 1<<rdx)},
		{"88e0", "mov %ah,%al", writes(1 << rax)},
		{"88c4", "mov %al,%ah", writes(1 << rax)},
		{"4088c4", "mov %al,%spl", writes(1 << rsp)},
		{"f3aa", "rep stos %al,(%rdi)", writes(1<<rax | 1<<rcx | 1<<rsi | 1<<rdi)},
		{"0f1105f9ff0f00", "movups %xmm0,0xffff9(%rip)", stores(16,
			Mem{Base: None, Index: None, Disp: pc + 7 + 0xffff9, Relative: true})},
		{"c5fe7f4424e0", "vmovdqu %ymm0,-32(%rsp)", stores(32, Mem{Base: rsp, Index: None, Scale: 1, Disp: -32})},
		{"62f17f487f45ff", "vmovdqu8 %zmm0,-64(%rbp)", stores(64, Mem{Base: rbp, Index: None, Disp: -1, Vague: true})},
		{"62f1fe487f45ff", "vmovdqu64 %zmm0,-64(%rbp)", stores(64, Mem{Base: rbp, Index: None, Disp: -1, Vague: true})},
		{"62f1fd487f45ff", "vmovdqa64 %zmm0,-64(%rbp)", stores(64, mem(rbp, -64))},
		{"c4e2fbf6da", "mulx %rdx,%rax,%rbx", writes(1<<rax | 1<<rbx)},
		{"c4e1f97ec4", "vmovq %xmm0,%rsp", writes(1 << rsp)},
		{"8fe97801c9", "blcfill %ecx,%eax", writes(1 << rax)},
		{"d5004889e5", "REX2", Inst{}},
		{"06", "undefined", Inst{}},
		{"0f04", "undefined", Inst{}},
		{"660fff00", "undefined", Inst{}},
		{"f30f3800c0", "undefined with this prefix", Inst{}},
		{"", "nothing", Inst{}},
		{"48", "a part", Inst{}},
		{"488b", "a part", Inst{}},
		{"e8000000", "a part", Inst{}},
		{"666666666666666666666666666690", "15 bytes", writes(0)},
		{"66666666666666666666666666666690", "16 bytes", Inst{}},
	} {
		code := must.Get(hex.DecodeString(tt.code))(t)
		got, ok := DecodeAMD64(code, pc)
		if known := tt.want != (Inst{}); ok != known {
			t.Errorf("%s, %s: known %t", tt.code, tt.text, ok)
			continue
		} else if !known {
			continue
		}
		tt.want.Pair = None // only aarch64 has such instructions
		if tt.want.Size = len(code); tt.want.Mem.Index == None && !strings.Contains(tt.text, ",1)") {
			got.Mem.Scale, tt.want.Mem.Scale = 0, 0
		}
		if tt.want.Imm == 0 && tt.want.Op != Const && tt.want.Op != Add && tt.want.Op != And {
			got.Imm = 0 // has no meaning
		}
		if got != tt.want {
			t.Errorf("%s, %s:\n%+v; want\n%+v", tt.code, tt.text, got, tt.want)
		}
	}
}

// FuzzDecodeAMD64 decodes instructions alone and before others.
func FuzzDecodeAMD64(f *testing.F) {
	for _, s := range []string{"4883ec18", "62f1fe487f45ff", "c4e2fbf6da", "8fe97801c9", "0f8400000000",
		"660f3a0fc108"} {
		b := must.Get(hex.DecodeString(s))(f)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		in, ok := DecodeAMD64(b, 0)
		if !ok {
			return
		}
		if in.Size < 1 || in.Size > min(longest, len(b)) {
			t.Fatalf("% x has %d bytes", b, in.Size)
		}
		if in.Reg < None || in.Reg > 15 || in.Src < None || in.Src > 15 || in.Writes>>16 != 0 {
			t.Fatalf("% x: %+v", b, in)
		}
		code := b[:in.Size:in.Size]
		for _, rest := range []string{"", "\x00\x00", "\xff\xff\xff"} {
			if again, ok := DecodeAMD64(append(code, rest...), 0); !ok || again != in {
				t.Fatalf("% x: %+v; before % x %+v", code, in, rest, again)
			}
		}
		if _, ok := DecodeAMD64(code[:in.Size-1], 0); ok {
			t.Fatalf("% x is known without its last byte", code)
		}
	})
}

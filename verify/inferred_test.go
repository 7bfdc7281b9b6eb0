package verify

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/testfile"
)

// dwarfNames lists registers by DWARF number (System V ABI for AMD64, figure 3.36).
var dwarfNames = strings.Fields("ax dx cx bx si di bp sp r8 r9 r10 r11 r12 r13 r14 r15")

// claims assembles, with GNU as, a program in which rows precede instructions: "sp+16 -16" means that the CFA is rsp+16
// and the caller's frame pointer is saved at CFA-16, "sp+16 lost" that it is lost, and "sp+8 outermost" that there is
// no caller. The line "fn" starts a function, "fn apart" a function of a different component, and "gap" code without
// rows, or with CFI. "targets a b" precedes an indirect jump, and "stops" a call or system call that does not return.
// "from a" says that the jump at a leads here. The entry point is the label start.
func claims(t *testing.T, text string) (*elffile.File, *cfi.Table, *cfi.Inference) {
	t.Helper()
	var source strings.Builder
	inf := &cfi.Inference{Jumps: make(map[uint64][]uint64), NoReturn: make(map[uint64]bool),
		From: make(map[uint64]uint64)}
	type place struct {
		label string
		set   func(addr func(label string) uint64, pc uint64)
	}
	var places []place
	mark := func(set func(addr func(string) uint64, pc uint64)) {
		label := fmt.Sprintf("place%d", len(places))
		places = append(places, place{label, set})
		source.WriteString(label + ":\n")
	}
	open, parts := false, 0
	end := func() {
		if i := len(inf.Functions) - 1; open {
			mark(func(_ func(string) uint64, pc uint64) { inf.Functions[i].End = pc })
		}
		open = false
	}
	for line := range strings.Lines("fn\n" + text) {
		f := strings.Fields(line)
		if len(f) > 0 && strings.HasSuffix(f[0], ":") {
			source.WriteString(f[0] + "\n")
			f = f[1:]
		}
		if len(f) == 0 {
			continue
		}
		if name, offset, ok := strings.Cut(f[0], "+"); ok {
			r := cfi.InferredRow{Reg: uint8(slices.Index(dwarfNames, name))}
			r.Offset = int32(must.Get(strconv.Atoi(offset))(t))
			f = f[1:]
			if len(f) > 0 && (f[0] == "lost" || f[0] == "outermost" || f[0][0] == '-') {
				n, _ := strconv.Atoi(f[0])
				r.FP, r.Lost, r.Outermost = int32(n), f[0] == "lost", f[0] == "outermost"
				f = f[1:]
			}
			i := len(inf.Functions) - 1
			mark(func(_ func(string) uint64, pc uint64) {
				r.Off = uint32(pc - inf.Functions[i].Begin)
				inf.Functions[i].Rows = append(inf.Functions[i].Rows, r)
			})
		}
		switch i := len(inf.Functions); {
		case len(f) == 0:
		case f[0] == "gap":
			end()
		case f[0] == "fn":
			end()
			parts += len(f) - 1
			inf.Functions = append(inf.Functions, cfi.InferredFunction{Component: parts})
			mark(func(_ func(string) uint64, pc uint64) { inf.Functions[i].Begin = pc })
			open = true
		case f[0] == "targets":
			mark(func(addr func(string) uint64, pc uint64) {
				for _, label := range f[1:] {
					inf.Jumps[pc] = append(inf.Jumps[pc], addr(label))
				}
			})
		case f[0] == "from":
			mark(func(addr func(string) uint64, pc uint64) { inf.From[pc] = addr(f[1]) })
		case f[0] == "stops":
			mark(func(_ func(string) uint64, pc uint64) { inf.NoReturn[pc] = true })
			source.WriteString(strings.Join(f[1:], " ") + "\n")
		default:
			source.WriteString(strings.Join(f, " ") + "\n")
		}
	}
	end()
	dir := t.TempDir()
	object, program := filepath.Join(dir, "a.o"), filepath.Join(dir, "a")
	as := exec.Command(peer.Look(t, "as"), "--64", "-o", object)
	as.Stdin = strings.NewReader(source.String())
	if out, err := as.CombinedOutput(); err != nil {
		t.Fatalf("as: %v\n%s\n%s", err, out, source.String())
	}
	ld := exec.Command(peer.Look(t, "ld"), "-m", "elf_x86_64", "-Ttext=0x1000", "-e", "0", "-o", program, object)
	must.Run(t, ld)
	b := testfile.Read(t, program)
	file := openImage(t, bytes.NewReader(b), len(b))
	addrs := make(map[string]uint64)
	must.Do(t, file.Symbols(elf.SHT_SYMTAB, func(table *elffile.Section, sym elffile.Symbol) {
		addrs[file.SymbolName(table, sym.Name)] = sym.Value
	}))
	for _, p := range places {
		p.set(func(label string) uint64 { return addrs[label] }, addrs[p.label])
	}
	inf.Functions = slices.DeleteFunc(inf.Functions, func(fn cfi.InferredFunction) bool { return fn.Begin == fn.End })
	file.Entry = addrs["start"]
	table, err := cfi.Load(file, cfi.Auto, nil)
	if err != nil && !errors.Is(err, cfi.ErrNone) {
		t.Fatal(err)
	}
	return file, table, inf
}

// usesRBX starts a function that needs rbx after a call of the following function.
const usesRBX = "sp+8 push %rbx \n sp+16 mov %rsp,%rbx \n sub $8,%rsp \n sp+24 push $0 \n sp+32 call 1f \n " +
	"mov %rbx,%rsp \n sp+16 pop %rbx \n sp+8 ret \n fn apart \n sp+8 1: "

// rspInMemory saves rsp below an aligned address, to which rbp points.
const rspInMemory = "sp+8 push %rbp \n sp+16 -16 mov %rsp,%rax \n and $-16,%rsp \n ax+16 -16 sub $16,%rsp \n " +
	"mov %rax,(%rsp) \n mov %rsp,%rbp \n lea -32(%rbp),%rsp \n push %r10 \n movaps %xmm0,-32(%rbp) \n pop %r10 \n "

// correctRows holds functions with the rows that follow from the ABI and the instructions.
var correctRows = map[string]string{
	"leaf":         "sp+8 xor %eax,%eax \n ret",
	"push and pop": "sp+8 push %rbx \n sp+16 xor %ebx,%ebx \n pop %rbx \n sp+8 ret",
	"sub and add":  "sp+8 sub $0x108,%rsp \n sp+272 nop \n add $0x108,%rsp \n sp+8 ret",
	"lea":          "sp+8 lea -24(%rsp),%rsp \n sp+32 nop \n lea 24(%rsp),%rsp \n sp+8 ret",
	"frame pointer": "sp+8 push %rbp \n sp+16 -16 mov %rsp,%rbp \n bp+16 -16 and $-32,%rsp \n add $64,%rsp \n " +
		"call *%rax \n leave \n sp+8 ret",
	"lea from rbp": "sp+8 push %rbp \n sp+16 -16 mov %rsp,%rbp \n bp+16 -16 push %rbx \n sub %rax,%rsp \n" +
		"1: dec %eax \n jne 1b \n lea -8(%rbp),%rsp \n pop %rbx \n pop %rbp \n sp+8 ret",
	"realigned by r10": "sp+8 mov %rsp,%r10 \n r10+8 and $-64,%rsp \n sub $256,%rsp \n" +
		"vmovdqu64 %zmm0,(%rsp) \n mov %r10,%rsp \n sp+8 ret",
	"realigned by rax": "sp+8 lea 8(%rsp),%rax \n ax+0 and $-16,%rsp \n movaps %xmm0,-16(%rsp) \n " +
		"lea -8(%rax),%rsp \n sp+8 ret",
	"rbp as a number": "sp+8 push %rbp \n sp+16 pop %rbp \n sp+8 push %rbp \n sp+16 -16 lea 1(%rdi),%ebp \n" +
		"1: sub $1,%ebp \n jnz 1b \n pop %rbp \n sp+8 ret",
	"rbp saved by mov": "sp+8 sub $24,%rsp \n sp+32 mov %rbp,8(%rsp) \n test %edi,%edi \n je 1f \n" +
		"sp+32 -24 mov %edi,%ebp \n mov 8(%rsp),%rbp \n sp+32 1: add $24,%rsp \n sp+8 ret",
	"rbp in the red zone": "sp+8 mov %rbp,-24(%rsp) \n mov %rax,-24(%rsp) \n mov %rbp,-24(%rsp) \n push %rax \n" +
		"sp+16 -32 xor %ebp,%ebp \n mov -16(%rsp),%rbp \n sp+16 pop %rax \n sp+8 ret",
	"rbp saved before a loop": "sp+8 sub $24,%rsp \n sp+32 mov %rbp,8(%rsp) \n jmp 2f \n 1: mov %edi,%ebp \n" +
		"sp+32 -24 mov 8(%rsp),%rbp \n sp+32 2: dec %edi \n jne 1b \n add $24,%rsp \n sp+8 ret",
	"rbp in rdx": "sp+8 mov %rbp,%rdx \n sp+8 lost xor %ebp,%ebp \n nop \n nop \n sp+8 lost nop \n " +
		"mov %rdx,%rbp \n sp+8 ret",
	"other pushes and pops": "sp+8 .byte 0xff,0xf5 \n sp+16 -16 pushf \n sp+24 -16 push %fs \n sp+32 -16 push %gs \n" +
		"sp+40 -16 push $1 \n sp+48 -16 push $256 \n sp+56 -16 push (%rax) \n sp+64 -16 pop (%rdx) \n" +
		"sp+56 -16 xor %ebp,%ebp \n .byte 0x8f,0xc1 \n sp+48 -16 pop %rax \n sp+40 -16 pop %gs \n" +
		"sp+32 -16 pop %fs \n sp+24 -16 popf \n sp+16 -16 .byte 0x8f,0xc5 \n sp+8 ret",
	"jump table": "sp+8 push %rbx \n sp+16 lea a(%rip),%rbx \n targets a b \n jmp *%rbx \n a: nop \n" +
		"b: pop %rbx \n sp+8 ret",
	"return by a register":   "sp+8 jmp *%rdx",
	"tail call":              "sp+8 push %rbx \n sp+16 pop %rbx \n sp+8 jmp other \n gap \n other: ret",
	"tail call to rows":      "sp+8 jmp other \n fn apart \n other: sp+8 ret",
	"call of the next":       "sp+8 call 1f \n sp+16 1: pop %rax \n sp+8 ret",
	"into code without rows": "sp+8 push %rbx \n sp+16 pop %rbx \n sp+8 nop \n gap \n ret",
	"call at the end":        "sp+8 push %rbx \n sp+16 stops call 1f \n gap \n nop \n 1: ret",
	"exit":                   "sp+8 push %rbx \n sp+16 mov $60,%eax \n stops syscall \n gap \n nop",
	"no return": "sp+8 push %rbx \n sp+16 test %edi,%edi \n jne 1f \n pop %rbx \n sp+8 je 2f \n stops call *%rax \n " +
		"sp+16 1: pop %rbx \n sp+8 2: ret",
	"breakpoint":    "sp+8 push %rbx \n sp+16 je 1f \n pop %rbx \n sp+8 ret \n sp+16 1: int3 \n ud2",
	"two parts":     "sp+8 push %rbx \n sp+16 jmp 1f \n gap \n int3 \n fn \n sp+16 1: pop %rbx \n sp+8 ret",
	"falls through": "sp+8 push %rbx \n fn \n sp+16 pop %rbx \n sp+8 ret",
	"a private callee that loses rbp": "sp+8 push %rbp \n sp+16 -16 call 1f \n pop %rbp \n sp+8 ret \n fn apart \n" +
		"sp+8 1: nop \n sp+8 lost xor %ebp,%ebp \n ret",
	"a private callee that keeps rax": "sp+8 mov %rsp,%rax \n ax+8 and $-32,%rsp \n call 1f \n " +
		"mov %rax,%rsp \n sp+8 ret \n" +
		"fn apart \n sp+8 1: mov %rdi,%rdx \n targets a \n jmp *%rdx \n a: ret",
	"rbx across a call": "sp+8 push %rbx \n sp+16 mov %rsp,%rbx \n bx+16 and $-32,%rsp \n call *%rax \n " +
		"mov %rbx,%rsp \n" +
		"sp+16 pop %rbx \n sp+8 ret",
	"a callee that saves rbx": usesRBX + "push %rbx \n sp+16 push %r12 \n sp+24 2: xor %ebx,%ebx \n je 3f \n " +
		"mov %rax,%r12 \n dec %edi \n jne 2b \n 3: pop %r12 \n sp+16 pop %rbx \n sp+8 ret",
	"a callee that saves rbx by mov": usesRBX + "sub $24,%rsp \n sp+32 mov %rbx,16(%rsp) \n xor %ebx,%ebx \n " +
		"2: dec %ebx \n " +
		"jne 2b \n mov 16(%rsp),%rbx \n add $24,%rsp \n sp+8 ret",
	"a callee that calls itself": usesRBX + "push %rbx \n sp+16 xor %ebx,%ebx \n call 1b \n pop %rbx \n sp+8 ret",
	"vectors": "sp+8 sub $64,%rsp \n sp+72 vmovups %zmm17,(%rsp) \n vpaddd %ymm1,%ymm2,%ymm3 \n" +
		"vpermq $1,%zmm1,%zmm2{%k1} \n vzeroupper \n andn %eax,%ecx,%edx \n add $64,%rsp \n sp+8 ret",
	"high bytes": "sp+8 mov $1,%ah \n mov $2,%ch \n setc %dh \n ret",
	"notrack":    "sp+8 endbr64 \n targets a \n notrack jmp *%rax \n a: ret",
	"a function after a frame that ends": "sp+8 push %rbp \n sp+16 -16 ud2 \n fn apart \n f: sp+8 ret \n " +
		"fn apart \n sp+8 jmp f",
	"symbol of a label": "sp+8 push %rbx \n sp+16 f: .type f,@function \n pop %rbx \n sp+8 ret",
	"past a lock prefix": "sp+8 push %rbx \n sp+16 je 1f \n lock \n " +
		"1: cmpxchg %ecx,(%rdx) \n pop %rbx \n sp+8 ret",
	"rsp in memory":              rspInMemory + "mov %rbp,%rsp \n pop %rsp \n sp+16 -16 pop %rbp \n sp+8 ret",
	"rsp in memory, as a number": rspInMemory + "mov (%rbp),%r9 \n mov %r9,%rsp \n sp+16 -16 pop %rbp \n sp+8 ret",
	"a part before its function": "sp+8 mov %rbp,-24(%rsp) \n ret \n fn apart \n sp+16 1: pop %rbx \n sp+8 ret \n " +
		"fn \n sp+8 push %rbx \n sp+16 test %edi,%edi \n je 1b \n pop %rbx \n sp+8 ret",
	"inc and dec": "sp+8 dec %rsp \n sp+9 inc %rsp \n sp+8 ret",
	"unknown stores": "sp+8 push %rbp \n sp+16 -16 mov %rsp,%rbp \n bp+16 -16 mov %rax,(%rdi) \n " +
		"mov %rax,(%rdi,%rax,8) \n mov %rax,0 \n addq $8,(%rdi) \n subq $8,(%rdi) \n incq (%rdi) \n pop %rbp \n " +
		"sp+8 ret",
}

func TestCodeRight(t *testing.T) {
	t.Parallel()
	for name, text := range correctRows {
		if refused, err := checkCode(claims(t, text)); err != nil || len(refused) > 0 {
			t.Errorf("%s: %v, error %v", name, refused, err)
		}
	}
}

// TestCodeRegisters checks functions whose CFA is based on each register, without and with a call. Only some
// registers are preserved.
func TestCodeRegisters(t *testing.T) {
	t.Parallel()
	preserved := strings.Fields("bx r12 r13 r14 r15")
	for _, name := range dwarfNames {
		if name == "sp" || name == "bp" {
			continue
		}
		for _, call := range []string{"", "call *(%rsp) \n "} {
			reg := "%r" + strings.TrimPrefix(name, "r")
			text := "sp+8 mov %rsp," + reg + " \n and $-16,%rsp \n " + name + "+8 nop \n " + call + "mov " + reg +
				",%rsp \n sp+8 ret"
			right := call == "" || slices.Contains(preserved, name)
			if refused, err := checkCode(claims(t, text)); err != nil || right != (len(refused) == 0) {
				t.Errorf("%s: %v, error %v", text, refused, err)
			}
		}
	}
}

func TestCodeWrong(t *testing.T) {
	t.Parallel()
	const before, jumps = "preceding instructions imply a different row", "jump to code with a different row"
	for name, tt := range map[string]struct{ text, want string }{
		"a missing pop":       {"sp+8 push %rbx \n sp+16 nop \n ret", "exit with a different stack pointer"},
		"a wrong offset":      {"sp+8 push %rbx \n sp+24 pop %rbx \n sp+16 ret", before},
		"an offset too early": {"sp+8 nop \n sp+16 push %rbx \n pop %rbx \n sp+8 ret", before},
		"ret n":               {"sp+8 ret $8", "instruction with an unknown effect on the stack"},
		"enter": {"sp+8 enter $8,$0 \n leave \n " +
			"ret", "instruction with an unknown effect on the stack"},
		"a computed size": {"sp+8 sub %rax,%rsp \n nop \n add %rax,%rsp \n ret", before},
		"half of rsp":     {"sp+8 add $8,%esp \n sub $8,%esp \n ret", before},
		"16 bits pushed":  {"sp+8 pushw $1 \n nop \n ret", before},
		"64 bits pushed":  {"sp+8 pushw $1 \n sp+16 add $8,%rsp \n sp+8 ret", before},
		"push in a loop":  {"sp+8 1: push %rax \n sp+16 dec %edi \n jne 1b \n pop %rax \n sp+8 ret", jumps},
		"above the return": {"sp+8 add $8,%rsp \n sub $8,%rsp \n " +
			"ret", "the stack pointer is above the return address"},
		"popped return":              {"sp+8 pop %rax \n jmp *%rax", "the stack pointer is above the return address"},
		"overwritten return address": {"sp+8 mov %rax,(%rsp) \n ret", "it writes the return address"},
		"exit at depth":              {"sp+8 push %rbx \n sp+16 jmp *%rax", "exit with a different stack pointer"},
		"tail call at depth": {"sp+8 push %rbx \n sp+16 jmp 1f \n gap \n " +
			"1: ret", "exit with a different stack pointer"},
		"a branch at depth": {"sp+8 push %rbx \n sp+16 je 1f \n pop %rbx \n sp+8 ret \n gap \n " +
			"1: ret", "exit with a different stack pointer"},
		"a jump table": {"sp+8 push %rbx \n sp+16 targets a b \n jmp *%rbx \n a: pop %rbx \n " +
			"sp+8 b: ret", jumps},
		"rsp in memory overwritten": {rspInMemory + "movl $0,4(%rbp) \n mov %rbp,%rsp \n pop %rsp \n " +
			"sp+16 -16 pop %rbp \n sp+8 ret", before},
		"rsp in memory overwritten by a register": {rspInMemory + "mov %rdx,-24(%rax) \n mov %rbp,%rsp \n " +
			"pop %rsp \n sp+16 -16 pop %rbp \n sp+8 ret", before},
		"rsp in memory, below rsp": {rspInMemory + "lea 8(%rbp),%rsp \n mov -8(%rsp),%rsp \n " +
			"sp+16 -16 pop %rbp \n sp+8 ret", before},
		"beside rsp in memory": {rspInMemory + "mov 8(%rbp),%rsp \n sp+16 -16 pop %rbp \n sp+8 ret", before},
		"past another prefix":  {"sp+8 je 1f \n rep \n 1: cmpsb \n ret", "jump into the middle of an instruction"},
		"a misaligned target":  {"sp+8 je 1f+1 \n 1: mov $1,%eax \n ret", "jump into the middle of an instruction"},
		"a target in the gap": {"sp+8 push %rbx \n sp+16 targets a \n jmp *%rbx \n gap \n " +
			"a: ret", "exit with a different stack pointer"},
		"a breakpoint": {"sp+8 push %rbx \n sp+16 int3 \n sp+24 pop %rbx \n sp+8 ret", before},
		"a call of the next function": {"sp+8 call 1f \n sp+16 1: nop \n pop %rax \n " +
			"sp+8 ret", "row at the target of a call is not that of a function entry"},
		"unreachable code": {"sp+8 ret \n sp+16 nop \n pop %rbx \n " +
			"sp+8 ret", "row of unreachable code is not that of a function entry"},
		"an entry with frame": {"sp+16 pop %rbx \n sp+8 ret",
			"row of unreachable code is not that of a function entry"},
		"call of an inner row": {"sp+8 push %rbx \n sp+16 1: pop %rbx \n sp+8 ret \n fn apart \n " +
			"sp+8 call 1b \n ret", "row at the target of a call is not that of a function entry"},
		"runs on at depth":   {"sp+8 push %rbx \n gap \n pop %rbx \n ret", "exit with a different stack pointer"},
		"at the end":         {"sp+8 nop", "falls through past the end of the code"},
		"truncated":          {"sp+8 .byte 0xe9,0,0", "unknown instruction"},
		"not an instruction": {"sp+8 .byte 6 \n ret", "unknown instruction"},
		"a row inside an instruction": {"sp+8 .byte 0xb8 \n sp+8 .byte 0,0,0,0 \n " +
			"ret", "row starts inside an instruction"},
		"far return": {"sp+8 lretq", "instruction with an unknown effect on the stack"},
		"far jump":   {"sp+8 ljmp *(%rax)", "instruction with an unknown effect on the stack"},
		"rbp not restored": {"sp+8 push %rbp \n sp+16 -16 xor %ebp,%ebp \n add $8,%rsp \n " +
			"sp+8 lost nop \n sp+8 ret", before},
		"rbp lost at ret": {"sp+8 xor %ebp,%ebp \n ret", before},
		"rbp of a wrong slot": {"sp+8 push %rbp \n sp+16 -16 push %rbx \n sp+24 -16 pop %rbp \n " +
			"sp+16 pop %rbx \n sp+8 ret", before},
		"the slot overwritten": {"sp+8 push %rbp \n sp+16 -16 xor %ebp,%ebp \n mov %ebp,4(%rsp) \n " +
			"pop %rbp \n sp+8 ret", before},
		"a vector overwrites the slot": {"sp+8 push %rbp \n sp+16 -16 push %rbx \n sp+24 -16 vmovups %xmm0,(%rsp) \n " +
			"pop %rbx \n sp+16 -16 pop %rbp \n sp+8 ret", before},
		"an EVEX displacement": {"sp+8 push %rbp \n sp+16 -16 sub $64,%rsp \n " +
			"sp+80 -16 vmovups %zmm0,-64(%rsp) \n vmovups %xmm0,64(%rsp){%k1} \n add $64,%rsp \n " +
			"sp+16 -16 pop %rbp \n sp+8 ret", "it writes the return address"},
		"a callee overwrites the slot": {"sp+8 mov %rbp,-8(%rsp) \n sp+8 -16 xor %ebp,%ebp \n call *%rax \n " +
			"mov -8(%rsp),%rbp \n sp+8 ret", before},
		"rbp by mov, or not": {"sp+8 test %edi,%edi \n je 1f \n push %rbp \n sp+16 -16 xor %ebp,%ebp \n " +
			"pop %rax \n sp+8 1: ret", before},
		"rbp at a target": {"sp+8 push %rbp \n sp+16 -16 mov %rsp,%rbp \n 1: nop \n bp+16 -16 dec %edi \n " +
			"jne 1b \n leave \n sp+8 ret", before},
		"rax across a call": {"sp+8 mov %rsp,%rax \n ax+8 and $-32,%rsp \n call *%rdx \n mov %rax,%rsp \n " +
			"sp+8 ret", before},
		"rbx and its callee": {usesRBX + "xor %ebx,%ebx \n ret", before},
		"rbx and a nested callee": {"sp+8 push %rbx \n sp+16 mov %rsp,%rbx \n bx+16 and $-32,%rsp \n call 1f \n " +
			"mov %rbx,%rsp \n sp+16 pop %rbx \n sp+8 ret \n fn apart \n sp+8 1: jmp 2f \n fn apart \n " +
			"sp+8 2: xor %ebx,%ebx \n ret", before},
		"rbx not restored on one path": {usesRBX + "push %rbx \n sp+16 xor %ebx,%ebx \n je 2f \n pop %rbx \n " +
			"sp+8 ret \n " +
			"sp+16 2: pop %rax \n sp+8 ret", before},
		"rbx not saved on one path": {usesRBX + "sub $8,%rsp \n sp+16 test %edi,%edi \n je 2f \n mov %rbx,(%rsp) \n " +
			"2: xor %ebx,%ebx \n mov (%rsp),%rbx \n add $8,%rsp \n sp+8 ret", before},
		"rbx not saved in a loop": {usesRBX + "sub $8,%rsp \n sp+16 test %edi,%edi \n jmp 3f \n " +
			"2: mov (%rsp),%rbx \n " +
			"add $8,%rsp \n sp+8 ret \n sp+16 3: mov %rdi,%rbx \n mov %rbx,(%rsp) \n jmp 2b", before},
		"rbx changed before it is saved": {usesRBX + "xor %ebx,%ebx \n push %rbx \n sp+16 pop %rbx \n " +
			"sp+8 ret", before},
		"rbx from another slot": {usesRBX + "push %rbx \n sp+16 push %rax \n sp+24 xor %ebx,%ebx \n pop %rbx \n " +
			"sp+16 pop %rax \n sp+8 ret", before},
		"the slot of rbx overwritten": {usesRBX + "push %rbx \n sp+16 xor %ebx,%ebx \n mov %eax,4(%rsp) \n " +
			"pop %rbx \n " +
			"sp+8 ret", before},
		"the slot of rbx overwritten by a callee": {usesRBX + "push %rbx \n sp+16 xor %ebx,%ebx \n pop %rax \n " +
			"sp+8 call *%rax \n " +
			"mov -8(%rsp),%rbx \n ret", before},
		"half of rbx saved": {usesRBX + "sub $8,%rsp \n sp+16 mov %ebx,(%rsp) \n xor %ebx,%ebx \n pop %rbx \n " +
			"sp+8 ret", before},
		"rbx restored by another component": {usesRBX + "push %rax \n sp+16 xor %ebx,%ebx \n jmp 2f \n fn apart \n " +
			"sp+8 push %rbx \n " +
			"sp+16 2: pop %rbx \n sp+8 ret", before},
		"rbx and a later callee": {usesRBX + "push %rax \n sp+16 call 2f \n pop %rax \n sp+8 ret \n fn apart \n " +
			"sp+8 2: xor %ebx,%ebx \n ret", before},
		"rbx in recursion": {"sp+8 1: push %rbx \n sp+16 mov %rsp,%rbx \n sub $8,%rsp \n sp+24 push $0 \n " +
			"sp+32 call 1b \n " +
			"mov %rbx,%rsp \n sp+16 pop %rax \n sp+8 ret", before},
		"rbp and its callee": {"sp+8 call 1f \n ret \n fn apart \n sp+8 1: nop \n " +
			"sp+8 lost xor %ebp,%ebp \n ret", before},
		"rbp and a callee's tail call": {"sp+8 call 1f \n ret \n fn apart \n sp+8 1: push %rbp \n " +
			"sp+16 -16 xor %ebp,%ebp \n pop %rbp \n sp+8 jmp 2f \n fn apart \n " +
			"sp+8 2: nop \n sp+8 lost xor %ebp,%ebp \n ret", before},
		"rbp and a callee's tail call to code without rows": {"sp+8 call 1f \n ret \n fn apart \n sp+8 1: nop \n " +
			"sp+8 lost xor %ebp,%ebp \n jmp 2f \n gap \n 2: ret", before},
		"rbp and a callee's jump by a register": {"sp+8 call 1f \n ret \n fn apart \n sp+8 1: nop \n " +
			"sp+8 lost xor %ebp,%ebp \n jmp *%rdx", before},
		"rbp saved at ret": {"sp+8 mov %rbp,-8(%rsp) \n sp+8 -16 xor %ebp,%ebp \n " +
			"ret", "exit with a different frame pointer"},
		"rbp+8 in rdx": {"sp+8 lea 8(%rbp),%rdx \n sp+8 lost xor %ebp,%ebp \n mov %rdx,%rbp \n sp+8 ret", before},
		"a jump target among no-ops": {"sp+8 .skip 4096,0x90 \n je 1f \n mov %rsp,%rax \n nop \n 1: nop \n " +
			"mov %rax,%rsp \n ret", before},
		"rbp in rcx, and a number pushed": {"sp+8 mov %rbp,%rcx \n push $1 \n sp+16 -16 xor %ebp,%ebp \n " +
			"pop %rbp \n sp+8 ret", before},
		"popped to the return address": {"sp+8 push %rax \n sp+16 pop (%rsp) \n " +
			"sp+8 ret", "it writes the return address"},
		"call at the end": {"sp+8 push %rbx \n sp+16 call 1f \n gap \n nop \n 1: ret",
			"exit with a different stack pointer"},
		"a system call that returns": {"sp+8 push %rbx \n sp+16 syscall \n gap \n " +
			"nop", "exit with a different stack pointer"},
		"stops at another instruction": {"sp+8 push %rbx \n sp+16 stops nop \n gap \n nop",
			"exit with a different stack pointer"},
		"exchanged": {"sp+8 push %rbx \n sp+16 mov %rsp,%rbx \n xchg %rsp,%rax \n bx+16 nop \n " +
			"sp+16 pop %rbx \n sp+8 ret", before},
	} {
		refused, err := checkCode(claims(t, tt.text))
		if err != nil || refused[0].What != tt.want {
			t.Errorf("%s: %v, error %v; want %q", name, refused, err, tt.want)
		}
	}
}

// TestCodeComponents expects exactly the given components to be rejected. A component is rejected only for what it does
// itself: its callers may rely on the calling convention.
func TestCodeComponents(t *testing.T) {
	t.Parallel()
	const inner, other = "exit to code with a different row", "other code goes on here with a different row"
	const depth, frame = "exit with a different stack pointer", "exit to a function with a different frame"
	const cfiRow, from = "exit to code whose CFI has a different row", "the row is not that of the jump to it"
	// described has CFI, in which the CFA is rsp+32 and rbp is saved at CFA-16 before the jump, and at label in.
	const described = "gap \n .cfi_startproc \n push %rbp \n .cfi_def_cfa_offset 16 \n .cfi_offset 6,-16 \n " +
		"push %rbx \n " +
		".cfi_def_cfa_offset 24 \n sub $8,%rsp \n .cfi_def_cfa_offset 32 \n out: jmp cold \n in: add $8,%rsp \n " +
		".cfi_def_cfa_offset 24 \n pop %rbx \n .cfi_def_cfa_offset 16 \n pop %rbp \n .cfi_def_cfa_offset 8 \n " +
		".cfi_restore 6 \n ret \n .cfi_endproc \n entry: .cfi_startproc \n ret \n .cfi_endproc \n " +
		"lazy: .cfi_startproc \n .cfi_escape 0x0f,0x0b,0x77,0x08,0x80,0x00,0x3f,0x1a,0x3b,0x2a,0x33,0x24,0x22 \n " +
		"nop \n .cfi_endproc \n .weak cold \n"
	for name, tt := range map[string]struct {
		text string
		want map[int]string
	}{
		"a callee that does not pop": {"sp+8 call 1f \n ret \n fn apart \n sp+8 1: push %rbx \n sp+16 ret",
			map[int]string{1: depth}},
		"a callee that jumps to an entry at depth": {"sp+8 call 1f \n ret \n fn apart \n sp+8 1: push %rbx \n " +
			"sp+16 jmp 2f \n fn apart \n sp+8 2: ret", map[int]string{1: frame}},
		"a branch to an entry at depth": {"sp+8 push %rbx \n sp+16 je 1f \n pop %rbx \n sp+8 ret \n fn apart \n " +
			"sp+8 1: ret", map[int]string{0: frame}},
		"a jump to an entry without rbp": {"sp+8 nop \n sp+8 lost xor %ebp,%ebp \n jmp 1f \n fn apart \n sp+8 1: ret",
			map[int]string{0: frame}},
		"a fall into an entry at depth": {"sp+8 push %rbx \n fn apart \n sp+8 ret", map[int]string{0: frame}},
		"a fall into an entry after a call": {"sp+8 push %rbx \n sp+16 call *%rax \n fn apart \n sp+8 ret",
			map[int]string{0: frame}},
		"a call that does not return, before an entry": {"sp+8 push %rbx \n sp+16 stops call *%rax \n fn apart \n " +
			"sp+8 ret", nil},
		"a fall into an entry": {"sp+8 push %rbx \n sp+16 pop %rbx \n fn apart \n sp+8 ret", nil},
		"facts end where functions start": {"sp+8 mov %rsp,%rax \n fn apart \n sp+8 mov %rax,%rsp \n sp+8 ret",
			map[int]string{1: "preceding instructions imply a different row"}},
		"facts end at targets of calls": {"sp+8 mov %rsp,%rax \n 1: mov %rax,%rsp \n sp+8 ret \n fn apart \n " +
			"sp+8 call 1b \n ret", map[int]string{0: "preceding instructions imply a different row"}},
		"into the middle": {"sp+8 push %rbx \n sp+16 1: pop %rbx \n sp+8 ret \n fn apart \n sp+8 push %rax \n " +
			"sp+16 jmp 1b", nil},
		"into the middle at another depth": {"sp+8 push %rbx \n sp+16 1: pop %rbx \n sp+8 ret \n fn apart \n " +
			"sp+8 jmp 1b", map[int]string{0: other, 1: inner}},
		"into an epilogue at another depth": {"sp+8 push %rbx \n sp+16 pop %rbx \n sp+8 1: ret \n fn apart \n " +
			"sp+8 push %rax \n sp+16 jmp 1b", map[int]string{0: other, 1: inner}},
		"a fall into the middle at another depth": {"sp+8 nop \n fn apart \n sp+16 1: pop %rbx \n sp+8 ret \n fn \n " +
			"sp+8 push %rax \n sp+16 jmp 1b", map[int]string{0: inner, 1: other}},
		"into code that is not decoded": {"sp+8 jmp 1f \n fn apart \n sp+8 .byte 6 \n 1: ret",
			map[int]string{1: "unknown instruction"}},
		"a callee without rows for rbx": {"sp+8 push %rbx \n sp+16 mov %rsp,%rbx \n bx+16 and $-32,%rsp \n " +
			"call 1f \n " +
			"mov %rbx,%rsp \n sp+16 pop %rbx \n sp+8 ret \n fn apart \n sp+8 1: ret $8",
			map[int]string{1: "instruction with an unknown effect on the stack"}},
		"rax across a call of refused code": {"sp+8 mov %rsp,%rax \n ax+8 and $-32,%rsp \n call 1f \n " +
			"mov %rax,%rsp \n sp+8 ret \n fn apart \n sp+8 1: push %rdx \n sp+16 ret",
			map[int]string{0: "the called function may change the register of the CFA", 1: depth}},
		"rax across a call of code that jumps to refused code": {"sp+8 mov %rsp,%rax \n ax+8 and $-32,%rsp \n " +
			"call 1f \n " +
			"mov %rax,%rsp \n sp+8 ret \n fn apart \n sp+8 1: jmp 2f \n fn apart \n sp+8 2: push %rdx \n sp+16 ret",
			map[int]string{0: "the called function may change the register of the CFA", 2: depth}},
		"rax and a callee that falls into another": {"sp+8 mov %rsp,%rax \n ax+8 and $-32,%rsp \n call 1f \n " +
			"mov %rax,%rsp \n sp+8 ret \n fn apart \n sp+8 1: nop \n fn apart \n sp+8 xor %eax,%eax \n ret",
			map[int]string{0: "preceding instructions imply a different row"}},
		"a jump into CFI": {described + "fn apart \n sp+8 push %rbp \n sp+16 -16 push %rax \n sp+24 -16 push %rax \n " +
			"sp+32 -16 xor %ebp,%ebp \n jmp in", nil},
		"a jump into CFI at another depth": {described + "fn apart \n sp+8 push %rbp \n sp+16 -16 push %rax \n " +
			"sp+24 -16 jmp in",
			map[int]string{1: cfiRow}},
		"a jump into CFI without rbp": {described + "fn apart \n sp+8 sub $24,%rsp \n sp+32 jmp in",
			map[int]string{1: cfiRow}},
		"a fall into CFI":          {"sp+8 nop \n" + described, map[int]string{}},
		"a fall into CFI at depth": {"sp+8 push %rax \n" + described, map[int]string{0: depth}},
		"a tail call of CFI":       {described + "fn apart \n sp+8 jmp entry", nil},
		"a tail call of CFI at depth": {described + "fn apart \n sp+8 push %rax \n sp+16 jmp entry",
			map[int]string{1: depth}},
		"a tail call of a PLT": {described + "fn apart \n sp+8 jmp lazy", nil},
		"a tail call of a PLT at depth": {described + "fn apart \n sp+8 push %rax \n sp+16 jmp lazy",
			map[int]string{1: depth}},
		"from CFI": {described + "fn apart \n cold: from out \n sp+32 -16 jmp in", nil},
		"from CFI, exits": {described + "fn apart \n cold: from out \n sp+32 -16 add $16,%rsp \n " +
			"sp+16 -16 pop %rbp \n sp+8 ret", nil},
		"from CFI at another depth": {described + "fn apart \n cold: from out \n sp+24 -16 add $16,%rsp \n sp+8 ret",
			map[int]string{1: from}},
		"from CFI with another rbp": {described + "fn apart \n cold: from out \n sp+32 add $24,%rsp \n sp+8 ret",
			map[int]string{1: from}},
		"from another instruction": {described + "fn apart \n cold: from in \n sp+32 -16 jmp in",
			map[int]string{1: from}},
		"from code without CFI": {"gap \n out: jmp cold \n fn apart \n cold: from out \n sp+8 ret",
			map[int]string{1: from}},
		"no caller": {"start: sp+8 outermost pop %rsi \n sp+0 outermost and $-16,%rsp \n " +
			"call *%rax \n hlt", nil},
		"no caller, elsewhere": {"sp+8 outermost hlt",
			map[int]string{0: "code without a caller is not at the entry point"}},
		"no caller, a wrong row": {"start: sp+8 outermost pop %rsi \n push %rsi \n sp+16 outermost hlt",
			map[int]string{0: "preceding instructions imply a different row"}},
		"no caller in some rows": {"start: sp+8 outermost push %rax \n sp+16 hlt",
			map[int]string{0: "only some rows have a caller"}},
		"no caller, exits": {"start: sp+8 outermost pop %rdi \n sp+0 outermost jmp 1f \n fn apart \n " +
			"sp+8 1: ret", nil},
		"no caller, but called": {"start: sp+8 outermost hlt \n fn apart \n sp+8 call start \n ret",
			map[int]string{0: "code without a caller is called"}},
		"no caller, but reached by a jump": {"start: sp+8 outermost hlt \n fn apart \n sp+8 jmp start",
			map[int]string{0: "code without a caller is reached from other code"}},
		"no caller, but reached by a fall": {"sp+8 nop \n fn apart \n start: sp+8 outermost hlt",
			map[int]string{1: "code without a caller is reached from other code"}},
	} {
		refused, err := checkCode(claims(t, tt.text))
		got := make(map[int]string)
		for c, v := range refused {
			got[c] = v.What
		}
		if err != nil || !maps.Equal(got, tt.want) {
			t.Errorf("%s: %v, error %v; want %v", name, refused, err, tt.want)
		}
	}
}

// TestCodeChanged changes each row of correct functions, and expects a rejection.
func TestCodeChanged(t *testing.T) {
	t.Parallel()
	for name, text := range correctRows {
		if strings.Contains(text, "lost") {
			continue
		}
		f, table, inf := claims(t, text)
		for i := range inf.Functions {
			for k := range inf.Functions[i].Rows {
				for what, change := range map[string]func(r *cfi.InferredRow){
					"register":  func(r *cfi.InferredRow) { r.Reg = (r.Reg + 5) % 16 },
					"offset":    func(r *cfi.InferredRow) { r.Offset += 8 },
					"offset -8": func(r *cfi.InferredRow) { r.Offset -= 8 },
					"slot":      func(r *cfi.InferredRow) { r.FP = min(r.FP-8, -16) - 8 },
					"start":     func(r *cfi.InferredRow) { r.Off++ },
					"start -1":  func(r *cfi.InferredRow) { r.Off-- },
				} {
					r := &inf.Functions[i].Rows[k]
					old := *r
					if what == "start" && k > 0 && r.Reg != inf.Functions[i].Rows[k-1].Reg {
						continue // both registers point to the frame
					}
					change(r)
					refused, err := checkCode(f, table, inf)
					if err != nil || len(refused) == 0 {
						t.Errorf("%s: function %d, row %d, %s: %+v is accepted, error %v", name, i, k, what, *r, err)
					}
					*r = old
				}
			}
		}
	}
}

// TestCodeForms expects rejections of claims that are wrong for any code.
func TestCodeForms(t *testing.T) {
	f, table, inf := claims(t, "sp+8 push %rbp \n sp+16 -16 pop %rbp \n sp+8 ret")
	for _, rows := range [][]cfi.InferredRow{
		nil, {{Off: 1, Reg: 7, Offset: 8}}, {{Reg: 7, Offset: 8}, {Reg: 7, Offset: 8}}, {{Reg: 16, Offset: 8}},
		{{Reg: 7, Offset: 8}, {Off: 3, Reg: 7, Offset: 8}}, {{Reg: 7, Offset: 8, FP: -8}},
		{{Reg: 7, Offset: 8, FP: -15}}, {{Reg: 7, Offset: 8, FP: -16, Lost: true}}, {{Reg: 7, Offset: 7}},
		{{Reg: 7, Offset: 8, RA: -8}}, {{Reg: 7, Offset: 8, RA: 8}}, {{Reg: 7, Offset: 8, RAReg: 16}},
		{{Reg: 7, Offset: 8, Kept: true}}, {{Reg: 7, Offset: 8, Signed: true}},
	} {
		inf.Functions[0].Rows = rows
		if p, err := newProof(f, nil, inf); err != nil || len(p.refused) != 1 { // regardless of the code
			t.Errorf("%+v: %v, error %v", rows, p.refused, err)
		}
	}
	fn := inf.Functions[0]
	for _, fns := range [][]cfi.InferredFunction{{fn, fn}, {{Begin: 2, End: 1}}} {
		if _, err := checkCode(f, table, &cfi.Inference{Functions: fns}); err == nil {
			t.Errorf("%+v: no error", fns)
		}
	}
	inf.Functions[0] = cfi.InferredFunction{Begin: 1 << 60, End: 1 << 62, Rows: []cfi.InferredRow{{Reg: 7, Offset: 8}}}
	if refused, err := checkCode(f, table, inf); err != nil || len(refused) != 1 {
		t.Errorf("code elsewhere: %v, error %v", refused, err)
	}
	if _, err := checkCode(bareFile(elf.ET_DYN), nil, inf); err == nil && bareFile(elf.ET_DYN).Machine != f.Machine {
		t.Error("an unsupported machine: no error")
	}
}

// FuzzCode checks arbitrary rows of arbitrary code. Each instruction is decoded at most three times.
func FuzzCode(f *testing.F) {
	f.Add([]byte{0x55, 0x48, 0x89, 0xe5, 0xc9, 0xc3}, []byte{0, 7, 8, 0, 1, 7, 16, 16, 3, 6, 16, 16, 1, 7, 8, 0})
	f.Add([]byte{0x55, 0xff, 0xe0, 0x5d, 0xc3, 0xeb, 0xfe}, []byte{0, 7, 8, 0, 1, 7, 16, 16, 255, 0, 2, 4})
	f.Fuzz(func(t *testing.T, code, choices []byte) {
		if len(code) == 0 || len(code) > 1<<16 {
			return
		}
		text := region{name: ".text", addr: 0x1000, code: code}
		end := 0x1000 + uint64(len(code))
		inf := &cfi.Inference{Jumps: make(map[uint64][]uint64)}
		inf.Functions = []cfi.InferredFunction{{Begin: 0x1000, End: end}}
		for ; len(choices) >= 4; choices = choices[4:] {
			fn := &inf.Functions[len(inf.Functions)-1]
			at := uint64(choices[0] & 0x7f)
			switch choices[0] >> 6 {
			case 3:
				pc := fn.Begin + uint64(choices[1])
				inf.Jumps[pc] = append(inf.Jumps[pc], fn.Begin+uint64(choices[2]), 0x1000+uint64(choices[3]))
				continue
			case 2:
				if at++; at < end-fn.Begin {
					fn.End = fn.Begin + at
					next := cfi.InferredFunction{Begin: fn.End, End: end, Component: int(choices[1] & 3)}
					inf.Functions = append(inf.Functions, next)
				}
				continue
			}
			if n := len(fn.Rows); n > 0 {
				at += uint64(fn.Rows[n-1].Off)
			}
			fn.Rows = append(fn.Rows, cfi.InferredRow{Off: uint32(at), Reg: choices[1] & 31,
				Offset: int32(int8(choices[2])), FP: -int32(choices[3] &^ 1), Lost: choices[3]&1 != 0,
				RAReg: choices[1] >> 3})
		}
		for _, m := range []elf.Machine{elf.EM_X86_64, elf.EM_AARCH64} {
			file := fileOf(t, elf.ET_DYN, m, binary.LittleEndian, text)
			p := must.Get(newProof(file, nil, inf))(t)
			p.run()
			if p.decoded > 3*len(code) {
				t.Errorf("%d instructions decoded in %d bytes", p.decoded, len(code))
			}
		}
	})
}

// checkCode calls Code without a function for progress.
func checkCode(f *elffile.File, t *cfi.Table, inf *cfi.Inference) (map[int]Violation, error) {
	return Code(f, t, inf, nil)
}

package insn

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// prefixNames holds the prefixes that disassemblers print before an instruction's name.
var prefixNames = words("lock rep repz repnz bnd notrack data16 addr32 xacquire xrelease cs ds es ss fs gs repe repne")

func words(s string) map[string]bool {
	m := make(map[string]bool)
	for w := range strings.FieldsSeq(s) {
		m[w] = true
	}
	return m
}

// registers maps the names of general registers to numbers, and registerSize to sizes in bytes.
var registers, registerSize = map[string]Reg{}, map[string]int{}

func init() {
	add := func(name string, number, size int) {
		registers["%"+name], registerSize["%"+name] = Reg(number), size
	}
	for i, n := range strings.Fields("ax cx dx bx sp bp si di") {
		add("r"+n, i, 8)
		add("e"+n, i, 4)
		add(n, i, 2)
		if i < 4 {
			add(n[:1]+"l", i, 1)
			add(n[:1]+"h", i, 1)
		} else {
			add(n+"l", i, 1)
		}
	}
	for i := 8; i < 16; i++ {
		r := "r" + strconv.Itoa(i)
		add(r, i, 8)
		add(r+"d", i, 4)
		add(r+"w", i, 2)
		add(r+"b", i, 1)
	}
}

// A text is an instruction as a disassembler prints it in AT&T syntax.
type text struct {
	name     string
	operands []string
}

func parseText(s string) text {
	var t text
	s, _, _ = strings.Cut(s, "#")
	s, _, _ = strings.Cut(s, " <")
	s = strings.NewReplacer("(8087 only)", "", "(287 only)", "").Replace(s)
	for {
		var rest string
		t.name, rest, _ = strings.Cut(strings.Replace(strings.TrimSpace(s), "\t", " ", 1), " ")
		name, _, _ := strings.Cut(t.name, ",") // jne,pn
		if !prefixNames[name] && !strings.HasPrefix(name, "rex") && !strings.HasPrefix(name, "{") {
			t.name, s = name, strings.TrimSpace(rest)
			break
		}
		if t.name = ""; rest == "" {
			return t
		}
		s = rest
	}
	depth, begin := 0, 0
	for i := 0; i <= len(s); i++ {
		switch {
		case i == len(s) || s[i] == ',' && depth == 0:
			op := strings.TrimSpace(s[begin:i])
			if j := strings.IndexByte(op, '{'); j > 0 { // a mask
				op = strings.TrimSpace(op[:j])
			}
			if op != "" {
				t.operands = append(t.operands, op)
			}
			begin = i + 1
		case s[i] == '(':
			depth++
		case s[i] == ')':
			depth--
		}
	}
	return t
}

func (t *text) operand(i int) string {
	if i < 0 || i >= len(t.operands) {
		return ""
	}
	return t.operands[i]
}

func (t *text) last() string { return t.operand(len(t.operands) - 1) }

func number(s string) (int64, bool) {
	negative := strings.HasPrefix(s, "-")
	n, err := strconv.ParseUint(strings.TrimPrefix(s, "-"), 0, 64)
	if negative {
		n = -n
	}
	return int64(n), err == nil
}

func isMem(op string) bool {
	op = strings.TrimPrefix(op, "*")
	return op != "" && (strings.HasSuffix(op, ")") && op[0] != '%' || op[0] == '%' && strings.Contains(op, ":") ||
		op[0] >= '0' && op[0] <= '9' || op[0] == '-')
}

// parseMem returns a memory operand, and whether its index is a vector.
func parseMem(op string, next uint64) (m Mem, vector bool, err error) {
	m = Mem{Base: None, Index: None}
	op = strings.TrimPrefix(op, "*")
	if segment, rest, ok := strings.Cut(op, ":"); ok {
		m.Elsewhere = segment == "%fs" || segment == "%gs"
		op = rest
	}
	disp, inner, _ := strings.Cut(op, "(")
	if disp != "" {
		d, ok := number(disp)
		if !ok {
			return m, false, fmt.Errorf("displacement %q", disp)
		}
		m.Disp = d
	}
	parts := strings.Split(strings.TrimSuffix(inner, ")"), ",")
	switch base := strings.TrimSpace(parts[0]); base {
	case "":
	case "%rip":
		m.Relative = true
		m.Disp += int64(next)
	case "%eip":
		m.Elsewhere, m.Relative = true, true
	default:
		r, ok := registers[base]
		if !ok {
			return m, false, fmt.Errorf("base %q", base)
		}
		m.Base = r
		m.Elsewhere = m.Elsewhere || registerSize[base] == 4
	}
	if len(parts) > 1 {
		index := strings.TrimSpace(parts[1])
		r, ok := registers[index]
		if vector = len(index) > 3 && strings.HasSuffix(strings.TrimRight(index, "0123456789"), "mm"); !ok && !vector &&
			index != "%riz" && index != "%eiz" {
			return m, false, fmt.Errorf("index %q", index)
		}
		if ok {
			m.Index = r
			m.Elsewhere = m.Elsewhere || registerSize[index] == 4
		}
		m.Scale = 1
		if len(parts) > 2 {
			scale, _ := strconv.Atoi(strings.TrimSpace(parts[2]))
			m.Scale = int8(scale)
		}
	}
	return m, vector, nil
}

// readOnly lists instructions that do not write their last operand. The other lists hold registers that instructions
// write implicitly, and registers that the decoder may report as written although they are not.
var (
	readOnly = words(`cmp test bt push call jmp nop mul div idiv comiss comisd ucomiss ucomisd vcomiss vcomisd vucomiss
		vucomisd vcomish vucomish vcomxsd vcomxss vcomxsh vucomxsd vucomxss vucomxsh ptest vptest
		vtestps vtestpd ud1 ud0
		wrfsbase wrgsbase ptwrite incsspq incsspd umonitor umwait tpause ret out cmpsb cmps scas outs outsb outsl outsw
		ldmxcsr vldmxcsr prefetchnta prefetcht0 prefetcht1 prefetcht2 prefetch prefetchw prefetchit0 prefetchit1
		clflush clflushopt clwb cldemote fxrstor fxrstor64 xrstor xrstor64 invlpg kortestb kortestw
		kortestd kortestq ktestb
		ktestw ktestd ktestq llwpcb lwpins prefetchwt1 prefetchrst2 bndcl bndcu bndcn bndmk int fldenv frstor enter
		prefetchw xrstors xrstors64 lods lodsb lodsw lodsl lodsq movs stos lgdt lidt lmsw`)
	alsoWrites = map[string]string{
		"mul": "%rax %rdx", "div": "%rax %rdx", "idiv": "%rax %rdx", "cltq": "%rax", "cwtl": "%rax", "cbtw": "%rax",
		"cqto": "%rdx", "cltd": "%rdx", "cwtd": "%rdx", "lahf": "%rax", "loop": "%rcx", "loope": "%rcx",
		"loopne":  "%rcx",
		"syscall": "%rax %rcx %r11", "cpuid": "%rax %rbx %rcx %rdx", "rdtsc": "%rax %rdx", "rdtscp": "%rax %rdx %rcx",
		"rdpmc": "%rax %rdx", "rdpkru": "%rax %rdx", "xgetbv": "%rax %rdx", "cmpxchg": "%rax",
		"cmpxchg8b": "%rax %rdx", "cmpxchg16b": "%rax %rdx",
		"pcmpestri": "%rcx", "pcmpistri": "%rcx", "vpcmpestri": "%rcx", "vpcmpistri": "%rcx", "xlat": "%rax",
		"pcmpestriq": "%rcx", "vpcmpestriq": "%rcx", "movs": "%rsi %rdi", "cmps": "%rsi %rdi", "stos": "%rdi",
		"scas": "%rdi", "lods": "%rsi %rax", "int": "%rax",
	}
	mayWrite = map[string]string{
		"cqto": "%rax", "cltd": "%rax", "cwtd": "%rax", "xgetbv": "%rcx", "rdpkru": "%rcx", "movs": "%rcx %rax",
		"cmps": "%rcx %rax",
		"stos": "%rcx %rax %rsi", "scas": "%rcx %rax %rsi", "lods": "%rcx %rdi",
	}
	stringInstructions = words("movs cmps stos scas lods xlat ins outs maskmovq maskmovdqu vmaskmovdqu")
	suffixed           = words(`mov movabs add sub and or xor adc sbb inc dec neg not cmp test push pop call jmp lea
		xchg xadd
		cmpxchg mul div idiv imul bt bts btr btc ret leave shl shr sar sal rol ror rcl rcr nop movs cmps stos scas lods
		pushf popf loop
		shld shrd mulx xlat scas sldt bsf bsr bswap movnti ptwrite sysret fst fstp fist fistp fisttp`)
)

// base returns the name without its operand-size suffix.
func base(name string) string {
	if n := len(name) - 1; n > 1 && strings.IndexByte("bwlq", name[n]) >= 0 && suffixed[name[:n]] && !suffixed[name] {
		return name[:n]
	}
	return name
}

func bitsOf(names string) uint32 {
	var set uint32
	for n := range strings.FieldsSeq(names) {
		set |= 1 << registers[n]
	}
	return set
}

// want returns the decoded form of the instruction that t describes, which is at pc and has the given size.
func (t *text) want(pc uint64, size int) (want Inst, err error) {
	want = Inst{Size: size, Reg: None, Src: None, Mem: Mem{Base: None, Index: None}}
	name := base(t.name)
	first, last := t.operand(0), t.last()
	isReg := func(op string) bool { return registerSize[op] == 8 }
	two := len(t.operands) == 2
	imm, hasImm := int64(0), false
	if strings.HasPrefix(first, "$") {
		imm, hasImm = number(first[1:])
	}
	jumps := strings.HasPrefix(name, "j") || strings.HasPrefix(name, "loop") || name == "call"
	for _, op := range t.operands {
		if isMem(op) && (!jumps || op[0] == '*') && !stringInstructions[name] {
			if want.Mem, _, err = parseMem(op, pc+uint64(size)); err != nil {
				return want, err
			}
		}
	}
	switch {
	case strings.HasPrefix(name, "loop"):
		name = strings.TrimSuffix(name, "l")
	case name == "xchg" && first == last && (last == "%ax" || last == "%rax"):
		name = "nop"
	}
	set := func(o Op, reg, src Reg, imm int64) { want.Op, want.Reg, want.Src, want.Imm = o, reg, src, imm }
	to, from := Reg(None), Reg(None)
	if r, ok := registers[last]; ok && !readOnly[name] {
		want.Writes |= 1 << r
		to = r
	}
	if r, ok := registers[first]; ok {
		from = r
	}
	want.Writes |= bitsOf(alsoWrites[name])
	stores := isMem(last) && !jumps && !readOnly[name] && !stringInstructions[name]
	switch {
	case name == "imul" && len(t.operands) == 1:
		want.Writes = bitsOf("%rax %rdx")
		stores = false
	case name == "xchg" || name == "xadd" || name == "mulx":
		for _, op := range t.operands[len(t.operands)-2:] {
			if r, ok := registers[op]; ok {
				want.Writes |= 1 << r
			}
		}
		stores = stores || isMem(first) && name == "xchg"
	case strings.HasPrefix(t.name, "cmp") && strings.HasSuffix(t.name, "xadd"):
		want.Writes |= 1 << registers[t.operand(1)]
	}
	if stores {
		want.Stores = 1
	}
	switch {
	case name == "push" && isMem(first):
		want.Op = PushMem
	case name == "push":
		want.Op, want.Src = Push, from
	case name == "pushf":
		want.Op = Push
	case name == "popf":
		want.Op = Pop
	case name == "pop" && isMem(first):
		want.Op, want.Stores = PopMem, 0
	case name == "pop":
		want.Op, want.Reg = Pop, from
	case name == "leave":
		want.Op = Leave
	case name == "ret":
		want.Op, want.Mem.Step = Return, imm
	case name == "syscall":
		want.Op = System
	case name == "int3" || name == "int" && first == "$0x3" || name == "hlt" || strings.HasPrefix(name, "ud1") ||
		name == "ud2":
		want.Op = Trap
	case jumps && strings.HasPrefix(first, "*"):
		ops := [2]Op{JumpReg, JumpMem}
		if name == "call" {
			ops = [2]Op{CallReg, CallMem}
		}
		if want.Op = ops[1]; !isMem(first) {
			want.Op, want.Reg = ops[0], registers[first[1:]]
		}
	case jumps:
		switch want.Op = Branch; name {
		case "jmp":
			want.Op = Jump
		case "call":
			want.Op = Call
		}
		want.Target, err = strconv.ParseUint(strings.TrimPrefix(first, "0x"), 16, 64)
	case two && (name == "mov" || name == "movabs") && hasImm && registerSize[last] >= 4:
		if registerSize[last] == 4 {
			imm = int64(uint32(imm))
		}
		set(Const, to, None, imm)
	case two && name == "xor" && first == last && registerSize[last] >= 4:
		set(Const, to, None, 0)
	case two && name == "mov" && isReg(first) && isReg(last):
		set(Move, to, from, 0)
	case two && name == "mov" && isReg(first) && isMem(last):
		set(Store, None, from, 0)
		want.Stores = 0
	case two && name == "mov" && isMem(first) && isReg(last):
		set(Load, to, None, 0)
	case two && (name == "add" || name == "sub" || name == "and") && hasImm && isReg(last):
		set(map[string]Op{"add": Add, "sub": Add, "and": And}[name], to, None, imm)
		if name == "sub" {
			want.Imm = -imm
		}
	case (name == "inc" || name == "dec") && isReg(last):
		set(Add, to, None, map[string]int64{"inc": 1, "dec": -1}[name])
	case two && (name == "add" || name == "sub") && isReg(first) && isReg(last):
		set(map[string]Op{"add": AddReg, "sub": SubReg}[name], to, from, 0)
	case name == "lea" && isReg(last):
		set(Address, to, None, 0)
	case name == "movslq" && isMem(first) && isReg(last):
		set(Extend, to, None, 0)
	case (name == "movzwl" || name == "movzwq") && isMem(first):
		set(Short, to, None, 0)
	case name == "xchg" && isReg(first) && isReg(last):
		set(Swap, to, from, 0)
	}
	switch want.Op {
	case Store, PushMem, PopMem, Push, Branch, Jump, JumpReg, JumpMem, Call, CallReg, CallMem, Return, System, Other:
	default: // Reg implies the write
		want.Writes = 0
	}
	return want, err
}

// compare compares a decoded instruction with its text.
func (t *text) compare(got Inst, pc uint64, size int) error {
	want, err := t.want(pc, size)
	if err != nil {
		return err
	}
	if got.Size != size {
		return fmt.Errorf("size %d", got.Size)
	}
	name := base(t.name)
	if got.Op == Low && name == "mov" && strings.HasPrefix(t.operand(0), "$") && registerSize[t.last()] == 1 {
		want.Op, want.Reg, want.Writes = Low, registers[t.last()], 0
		want.Imm, _ = number(t.operand(0)[1:])
		got.Imm, want.Imm = got.Imm&0xff, want.Imm&0xff
	}
	if got.Op == Nop && (name == "nop" || name == "xchg" && t.last() == "%ax") {
		want.Op = Nop
	}
	may := bitsOf(mayWrite[name])
	if got.Op == Branch && want.Op == Branch {
		want.Writes |= got.Writes & may
	}
	if want.Writes&^got.Writes != 0 || got.Writes&^want.Writes&^may != 0 {
		return fmt.Errorf("writes %#x; want %#x", got.Writes, want.Writes)
	}
	x87 := name[0] == 'f'
	loads := x87 && !slices.ContainsFunc([]string{"fst", "fnst", "fist", "fbst", "fnsave", "fxsave"},
		func(s string) bool {
			return strings.HasPrefix(name, s)
		})
	if (got.Stores > 0) != (want.Stores > 0) && !loads {
		return fmt.Errorf("stores %d bytes; want %t", got.Stores, want.Stores > 0)
	}
	if got.Op == want.Op && (got.Op == CallReg || got.Op == JumpReg) {
		want.Src = got.Src // not compared
	}
	if got.Op == want.Op && got.Op == Swap && got.Reg == want.Src {
		want.Reg, want.Src = want.Src, want.Reg
	}
	if got.Op != want.Op || got.Target != want.Target || got.Op != Other &&
		(got.Reg != want.Reg || got.Src != want.Src) {
		return fmt.Errorf("op %d, %d, %d, target %#x; want %d, %d, %d, %#x", got.Op, got.Reg, got.Src, got.Target,
			want.Op, want.Reg, want.Src, want.Target)
	}
	switch got.Op {
	case Add, And, Const, Low, Return:
		if got.Imm != want.Imm {
			return fmt.Errorf("number %#x; want %#x", got.Imm, want.Imm)
		}
	}
	if want.Mem == (Mem{Base: None, Index: None}) && !strings.Contains(strings.Join(t.operands, " "), "(") {
		want.Mem.Scale = got.Mem.Scale
	}
	m := got.Mem
	for _, segment := range []string{"%cs:", "%ds:", "%es:", "%ss:"} { // after another prefix
		if strings.HasPrefix(t.operand(0), segment) || strings.HasPrefix(t.last(), segment) {
			m.Elsewhere = want.Mem.Elsewhere
		}
	}
	if m.Base == None && m.Index == None && (stringInstructions[name] ||
		!strings.Contains(t.last()+t.operand(0), ":")) {
		m.Elsewhere = want.Mem.Elsewhere // a prefix without effect
	}
	if m.Vague {
		m.Disp, m.Vague = want.Mem.Disp, false
	}
	if m.Index == None || want.Mem.Index == None {
		m.Scale, want.Mem.Scale = 0, 0
	}
	if m.Elsewhere && want.Mem.Elsewhere {
		m.Disp, want.Mem.Disp = 0, 0
	}
	if m != want.Mem {
		return fmt.Errorf("memory %+v; want %+v", got.Mem, want.Mem)
	}
	return nil
}

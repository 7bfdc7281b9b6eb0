package insn

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/testfile"
)

var (
	generalName = regexp.MustCompile(`^(?:([wx])(\d+|zr)|(w?sp))$`)
	vectorName  = regexp.MustCompile(`^([bhsdq])(\d+)$`)
	memoryText  = regexp.MustCompile(`\[(x\d+|sp)(?:, #(-?\d+))?(, [wx].*)?\](!?)(?:, (?:#(-?\d+)|(x\d+)))?$`)
	form0       = regexp.MustCompile(`^st(l?xp|l?xr[bh]?)$`)
	form1       = regexp.MustCompile(`^ld(add|clr|eor|set|[su]max|[su]min)`)
	form2       = regexp.MustCompile(`^ld(n?p|psw|a?xp)$`)
	form3       = regexp.MustCompile(`^(swp|cas|(ld|st)(add|clr|eor|set|[su]max|[su]min))`)
	form4       = regexp.MustCompile(`^stl?x`)
	form5       = regexp.MustCompile(`^(stn?p|casp|stl?xp)`)
	form6       = regexp.MustCompile(`^ld(u?r|tr|apur)$`)
	form7       = regexp.MustCompile(`^st(u?r|tr|lur)$`)
	listText    = regexp.MustCompile(`^\{v\d+\.(\d*)([bhsd])(?:-v(\d+)\.\w+)?(.*)\}(\[\d+\])?`)
)

// An a64 is an instruction as objdump prints it.
type a64 struct {
	name     string
	operands []string
	text     string
}

func parseA64(text string) a64 {
	text, _, _ = strings.Cut(text, "//")
	name, rest, _ := strings.Cut(strings.TrimSpace(text), "\t")
	in := a64{name: strings.TrimSpace(name), text: strings.TrimSpace(rest)}
	depth, start := 0, 0
	for i, c := range in.text {
		switch {
		case c == '[' || c == '{':
			depth++
		case c == ']' || c == '}':
			depth--
		case c == ',' && depth == 0:
			in.operands, start = append(in.operands, strings.TrimSpace(in.text[start:i])), i+1
		}
	}
	in.operands = append(in.operands, strings.TrimSpace(in.text[start:]))
	return in
}

// general returns the general register that an operand names, and its size in bytes.
func general(operand string) (r Reg, size int) {
	m := generalName.FindStringSubmatch(operand)
	switch {
	case m == nil:
		return None, 0
	case m[3] == "sp":
		return stackPointer, 8
	case m[3] == "wsp":
		return stackPointer, 4
	}
	size = map[string]int{"w": 4, "x": 8}[m[1]]
	if m[2] == "zr" {
		return None, size
	}
	n, _ := strconv.Atoi(m[2])
	return Reg(n), size
}

// readers64 lists instructions that write none of their general register operands.
var readers64 = strings.Fields("cmp cmn tst ccmp ccmn b bl br blr ret cbz cbnz tbz tbnz prfm prfum msr sys dc ic at " +
	"tlbi brk hlt svc " +
	"udf braa brab braaz brabz blraa blrab blraaz blrabz rmif setf8 setf16 cmpp rprfm cfp cpp dvp cosp trcit gic " +
	"gcsss1 gcspushm gcspushx gcspopx gcspopcx")

// writtenRegs returns the general registers that an instruction writes.
func (in *a64) writtenRegs() (mask uint32) {
	bit := func(operand string) {
		if r, _ := general(operand); r != None {
			mask |= 1 << r
		}
	}
	stores := strings.HasPrefix(in.name, "st")
	switch {
	case strings.HasPrefix(in.name, "b."), strings.HasPrefix(in.name, "bc."), slices.Contains(readers64, in.name):
	case form0.MatchString(in.name):
		bit(in.operands[0])
	case strings.HasPrefix(in.name, "swp"), form1.MatchString(in.name):
		bit(in.operands[1])
	case strings.HasPrefix(in.name, "casp"):
		bit(in.operands[0])
		bit(in.operands[1])
	case form2.MatchString(in.name):
		bit(in.operands[0])
		bit(in.operands[1])
	case !stores:
		bit(in.operands[0])
	}
	if m := memoryText.FindStringSubmatch(in.text); m != nil && (in.step(m) != 0 || m[6] != "") {
		bit(m[1])
	}
	switch in.name {
	case "svc":
		mask |= 1
	case "xpaclri", "paciaz", "pacibz", "pacibsp", "autiaz", "autibz", "autibsp":
		mask |= 1 << linkRegister
	case "pacia1716", "pacib1716", "autia1716", "autib1716":
		mask |= 1 << 17
	case "chkfeat":
		mask |= 1 << 16
	}
	return mask
}

// step returns the number that is added to the base register.
func (in *a64) step(memory []string) int64 {
	text := memory[5]
	if memory[4] == "!" {
		text = memory[2]
	}
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

// storeSize returns how many bytes of memory an instruction writes.
func (in *a64) storeSize() int {
	atomic := form3.MatchString(in.name)
	if !strings.HasPrefix(in.name, "st") && !atomic {
		return 0
	}
	operand := in.operands[0]
	exclusive := form4.MatchString(in.name)
	if exclusive {
		operand = in.operands[1]
	}
	if m := listText.FindStringSubmatch(operand); m != nil {
		width := map[string]int{"b": 1, "h": 2, "s": 4, "d": 8}[m[2]]
		n := 1 + strings.Count(m[4], "v")
		if m[3] != "" {
			first, _, _ := strings.Cut(operand[2:], ".")
			a, _ := strconv.Atoi(first)
			b, _ := strconv.Atoi(m[3])
			n += (b - a + 32) % 32
		}
		if lanes, err := strconv.Atoi(m[1]); err == nil && m[5] == "" {
			width *= lanes
		}
		return n * width
	}
	_, size := general(operand)
	if m := vectorName.FindStringSubmatch(operand); m != nil {
		size = map[string]int{"b": 1, "h": 2, "s": 4, "d": 8, "q": 16}[m[1]]
	}
	plain := strings.TrimSuffix(in.name, "lr")
	switch {
	case form5.MatchString(in.name):
		return 2 * size
	case strings.HasSuffix(plain, "b"):
		return 1
	case strings.HasSuffix(plain, "h"):
		return 2
	}
	return size
}

// compare compares an instruction with the decoded one.
func (in *a64) compare(got *Inst, pc uint64) error {
	writes := got.Writes
	bit := func(r Reg) {
		if r != None {
			writes |= 1 << r
		}
	}
	switch got.Op {
	case Store, JumpReg, CallReg:
	case Load:
		bit(got.Reg)
		bit(got.Pair)
	default:
		bit(got.Reg)
	}
	if got.Mem.Step != 0 {
		bit(got.Mem.Base)
	}
	if want := in.writtenRegs(); writes != want {
		return fmt.Errorf("writes %x, want %x", writes, want)
	}
	stores := got.Stores
	if got.Op == Store {
		stores = 8
		if strings.HasSuffix(in.name, "p") {
			stores = 16
		}
	}
	if zva := strings.HasPrefix(in.text, "zva") || strings.HasPrefix(in.text, "g"); in.name != "dc" || !zva {
		if want := in.storeSize(); stores != int32(want) {
			return fmt.Errorf("stores %d, want %d", stores, want)
		}
	}
	if m := memoryText.FindStringSubmatch(in.text); m != nil &&
		(got.Op == Load || got.Op == Store || stores > 0 || m[4] == "!") {
		base, _ := general(m[1])
		disp, _ := strconv.ParseInt(m[2], 10, 64)
		step := in.step(m)
		x := &got.Mem
		if x.Base != base || x.Disp != disp || x.Step != step || (x.Index != None) != (m[3] != "") {
			return fmt.Errorf("memory %+v", *x)
		}
	}
	return in.compareOp(got, pc)
}

// a64Number returns the value of an immediate operand, or of an address.
func a64Number(s string) int64 {
	s, _, _ = strings.Cut(strings.TrimPrefix(s, "#"), " ")
	v, err := strconv.ParseInt(s, 0, 64)
	if err != nil {
		u, _ := strconv.ParseUint(s, 0, 64)
		v = int64(u)
	}
	return v
}

// address parses an address that objdump prints, in hexadecimal.
func address(s string) int64 {
	s, _, _ = strings.Cut(strings.TrimPrefix(s, "0x"), " ")
	u, _ := strconv.ParseUint(s, 16, 64)
	return int64(u)
}

// setsFlags matches the names of instructions that change the flags.
var setsFlags = regexp.MustCompile("^(adds|subs|ands|bics|cmp|cmn|tst|adcs|sbcs|negs|ngcs|ccmp|ccmn|fcmpe?|fccmpe?|" +
	"rmif|setf8|setf16|subps|cmpp|cfinv|axflag|xaflag|msr)$")

// compareOp compares the ops.
func (in *a64) compareOp(got *Inst, pc uint64) error {
	if setsFlags.MatchString(in.name) && !got.Flags {
		return fmt.Errorf("%+v: flags", *got)
	}
	last := in.operands[len(in.operands)-1]
	reg, size := general(in.operands[0])
	second, third := Reg(None), Reg(None)
	if len(in.operands) > 1 {
		second, _ = general(in.operands[1])
	}
	if len(in.operands) > 2 {
		third, _ = general(in.operands[2])
	}
	want := Inst{Size: 4, Reg: None, Src: None, Pair: None, Mem: Mem{Base: None, Index: None}}
	target := func(op Op) {
		want.Op, want.Target = op, uint64(address(last))
	}
	memory := got.Mem
	literal := !strings.Contains(in.text, "[")
	switch name := in.name; {
	case name == "b":
		target(Jump)
	case name == "bl":
		target(Call)
	case strings.HasPrefix(name, "b."), strings.HasPrefix(name, "bc."),
		slices.Contains(strings.Fields("cbz cbnz tbz tbnz"), name):
		target(Branch)
		conditions := map[string]int64{"hs": HigherOrSame, "cs": HigherOrSame, "lo": Lower, "cc": Lower, "hi": Higher,
			"ls": LowerOrSame}
		_, condition, _ := strings.Cut(name, ".")
		want.Imm = conditions[condition]
	case name == "ret" && (reg == None || reg == linkRegister):
		want.Op = Return
	case name == "retaa":
		want.Op, want.Imm = Return, 1
	case slices.Contains(strings.Fields("ret br braa brab braaz brabz"), name):
		want.Op, want.Reg = JumpReg, reg
	case strings.HasPrefix(name, "blr"):
		want.Op, want.Reg = CallReg, reg
	case name == "paciasp":
		want.Op, want.Imm = Sign, 1
	case name == "autiasp":
		want.Op = Sign
	case name == "brk", name == "hlt", name == "udf":
		want.Op = Trap
	case name == "svc":
		want.Op = System
	case name == "nop":
		want.Op = Nop
	case size == 8 && form6.MatchString(name) && !literal:
		want.Op, want.Reg, want.Mem = Load, reg, memory
	case size == 8 && form7.MatchString(name):
		want.Op, want.Src, want.Mem = Store, reg, memory
	case size == 8 && (name == "ldp" || name == "ldnp"):
		want.Op, want.Reg, want.Pair, want.Mem = Load, reg, second, memory
	case size == 8 && (name == "stp" || name == "stnp"):
		want.Op, want.Src, want.Pair, want.Mem = Store, reg, second, memory
	case size == 8 && (name == "add" || name == "sub") && len(in.operands) > 2 && third == None &&
		strings.HasPrefix(in.operands[2], "#"):
		n := a64Number(in.operands[2])
		if last == "lsl #12" {
			n <<= 12
		}
		if name == "sub" {
			n = -n
		}
		want.Op, want.Reg, want.Mem = Address, reg, Mem{Base: second, Index: None, Disp: n}
	case size == 8 && name == "mov" && second != None && (reg == stackPointer || second == stackPointer):
		want.Op, want.Reg, want.Mem = Address, reg, Mem{Base: second, Index: None}
	case size == 8 && name == "mov" && second != None && reg != None:
		want.Op, want.Reg, want.Src = Move, reg, second
	case size == 8 && name == "add" && third != None && second != None && reg != None && len(in.operands) == 3:
		want.Op, want.Reg, want.Mem = Address, reg, Mem{Base: second, Index: third, Scale: 1}
	case size == 8 && name == "add" && third != None && second != None && reg != None && got.Op == Multiple:
		kind, shift, _ := strings.Cut(last, " ")
		want.Op, want.Reg, want.Imm = Multiple, reg, 8
		if size, ok := map[string]int64{"sxtb": 1, "sxth": 2, "sxtw": 4}[kind]; ok {
			want.Imm = size
		}
		want.Mem = Mem{Base: second, Index: third, Scale: 1}
		if shift != "" {
			want.Mem.Scale = 1 << a64Number(shift)
		}
	case size == 8 && name == "add" && third != None && second != None && reg != None && got.Op == Address:
		want.Op, want.Reg, want.Mem = Address, reg, Mem{Base: second, Index: third}
	case name == "cmp" && got.Op == Compare:
		want.Op, want.Src, want.Imm = Compare, second, a64Number(in.operands[1])
		if want.Src = reg; last == "lsl #12" {
			want.Imm <<= 12
		}
	case size == 4 && name == "ldr" && memory.Index != None:
		want.Op, want.Reg, want.Mem = Word, reg, memory
	case name == "ldrb" && memory.Index != None:
		want.Op, want.Reg, want.Mem = Byte, reg, memory
	case size == 8 && name == "sub" && third != None && second != None && got.Op == Distance:
		want.Op, want.Reg, want.Mem = Distance, reg, Mem{Base: second, Index: third, Scale: 1}
		if last != "uxtx" && last != "uxtw" && (reg != stackPointer && second != stackPointer || len(in.operands) > 3) {
			return fmt.Errorf("%+v", *got)
		}
	case name == "ldrh" && memory.Index != None:
		want.Op, want.Reg, want.Mem = Short, reg, memory
	case name == "ldrsw" && memory.Index != None:
		want.Op, want.Reg, want.Mem = Extend, reg, memory
	case name == "adr":
		want.Op, want.Reg, want.Mem = Address, reg, Mem{Base: None, Index: None, Relative: true, Disp: address(last)}
	case name == "adrp":
		want.Op, want.Reg, want.Imm = Page, reg, address(last)
	case size == 8 && name == "mov" && got.Op == Const:
		want.Op, want.Reg, want.Imm = Const, reg, a64Number(in.operands[1])
	case size == 8 && (name == "movz" || name == "movn"):
		want.Op, want.Reg, want.Imm = Const, reg, 0
	default:
		if got.Op != Other {
			return fmt.Errorf("%+v", *got)
		}
		return nil
	}
	g := *got
	g.Writes, g.Stores, g.Flags = 0, 0, false
	if got.Op == Const || got.Op == Page {
		g.Mem = want.Mem
	}
	if want != g {
		return fmt.Errorf("%v want %v", g, want)
	}
	return nil
}

// newA64 matches the names of instructions outside of SVE and SME that are unknown on purpose: privileged instructions,
// and those of CMPBR, CPA, GCS, LOR, LS64, LSE128, LSFE, LSUI, LUT, MOPS, MTE, PAuth_LR, RCPC3, SYSINSTR128, THE, TME.
var newA64 = regexp.MustCompile("^(" + strings.Join(strings.Fields(`dcps\d ereta[ab] hvc smc
	cb[bh]?(eq|g[et]|h[is]|l[ot]|ne) \w+pt gcss\w+ ldlar[bh]? stllr[bh]? st64\w+ (ld(clr|set)|swp)p\w*
	(ld|st)b?f(add|max|min)\w* (cas|swp)p?a?l?ta?l? (ldt|stt)(add|clr|n?p|set)a?l? (ldat|ldt|stlt|stt)xr
	luti[24] (cpy|set)\w+ ldg stz?2?gp? ldra[ab] \w+sppc ldi?app? sti?lp mrrs msrr sysp rcw\w+ tcancel tchangef`),
	"|") + ")$")

// isNew reports whether an instruction is new, or has a new form: FPRCVT, and vector forms of RCPC3.
func (in *a64) isNew() bool {
	isVector := vectorName.MatchString(in.operands[0])
	return newA64.MatchString(in.name) || isVector && (in.name == "ldapur" || in.name == "stlur") ||
		isVector && strings.Contains(in.name, "cvt") && vectorName.MatchString(in.operands[1])
}

// isUnpredictable reports whether an instruction has no defined effect because reserved bits are set or registers are
// the same.
func (in *a64) isUnpredictable(word uint32) bool {
	registers := strings.NewReplacer("w", "x", "xsp", "sp").Replace(in.text)
	first, rest, _ := strings.Cut(registers, ", ")
	second, memory, _ := strings.Cut(rest, ", ")
	writesBack := strings.Contains(registers, "]!") || strings.Contains(registers, "], ")
	return strings.Contains(in.text, "s0_") || strings.HasPrefix(in.name, "br") && first == "xzr" ||
		word>>24&0x3f == 8 && (word>>10&0x1f != 0x1f || word>>16&0x1f != 0x1f) ||
		strings.HasPrefix(in.name, "ld") && first == second ||
		writesBack && (strings.Contains(rest, "["+first+"]") || strings.Contains(rest, "["+first+",") ||
			strings.Contains(memory, "["+second+"]") || strings.Contains(memory, "["+second+","))
}

// An a64Tally counts the results of comparisons.
type a64Tally struct {
	instructions, bad, differences int
	unknown                        map[string]int // by name
	undefined                      []uint32       // words that decode, but are not instructions
}

// compareA64 compares decoded code with objdump's output.
func compareA64(t *testing.T, args ...string) *a64Tally {
	c := &a64Tally{unknown: map[string]int{}}
	listing(t, peer.Tool(t, "sid", "aarch64-linux-gnu-objdump")(args...), func(pc uint64, code []byte, text string) {
		if len(code) != 4 || pc%4 != 0 {
			return
		}
		slices.Reverse(code)
		word := binary.LittleEndian.Uint32(code)
		got, ok := DecodeAArch64(code, pc)
		in := parseA64(text)
		switch {
		case strings.HasPrefix(in.name, "."), strings.Contains(text, "undefined"):
			if c.bad++; ok {
				c.undefined = append(c.undefined, word)
			}
		case !ok:
			if c.unknown[in.name]++; !in.isNew() && !in.isUnpredictable(word) && word>>25&0xd != 0 {
				t.Errorf("%08x %s: unknown", word, text)
			}
		default:
			c.instructions++
			if err := in.compare(&got, pc); err != nil {
				if c.differences++; c.differences < 12 {
					t.Errorf("%x: %08x %s: %v", pc, word, text, err)
				}
			}
		}
	})
	return c
}

// TestObjdumpA64 compares each instruction of libraries with objdump's output, like TestObjdump.
func TestObjdumpA64(t *testing.T) {
	for _, file := range filesOf(t, elf.EM_AARCH64, filepath.Join("usr", "aarch64-linux-gnu", "lib", "libc.so.6")) {
		c := compareA64(t, "-d", file)
		if *files != "" {
			printRow(file, 4*c.instructions, c.instructions, c.bad, c.unknown, c.differences)
		} else if n := len(c.unknown); c.instructions < 100_000 || n > 30 { // SVE, MTE and MOPS
			t.Errorf("%s: %d instructions; unknown: %v", file, c.instructions, c.unknown)
		}
	}
}

// TestEncodingsA64 decodes random words, most of which contain a register field of all ones. Reserved encodings may
// decode only in the groups of vector instructions.
func TestEncodingsA64(t *testing.T) {
	var b []byte
	r := rand.New(rand.NewPCG(1, 2))
	for range 1 << 20 {
		w := r.Uint32()
		for _, field := range []int{0, 5, 10, 16} {
			if r.IntN(2) == 0 {
				w |= 31 << field
			}
		}
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	path := filepath.Join(t.TempDir(), "code")
	testfile.Write(t, path, b)
	c := compareA64(t, "-D", "-z", "-b", "binary", "-m", "aarch64", path)
	t.Logf("%d instructions; %d words are none, and %d of these are decoded", c.instructions, c.bad, len(c.undefined))
	for _, w := range c.undefined {
		if w>>25&7 != 7 {
			t.Errorf("%08x is no instruction", w)
		}
	}
	if c.instructions < 250_000 || 10*len(c.undefined) > c.bad {
		t.Errorf("%d instructions, %d of %d undefined words decoded", c.instructions, len(c.undefined), c.bad)
	}
}

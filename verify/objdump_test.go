package verify

import (
	"bufio"
	"encoding/hex"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
)

// TestObjdump compares decoded instructions with GNU objdump's output: their sizes, jump targets, and the general
// registers that they write. The variable DISASSEMBLE lists programs to compare instead of libc, and OBJDUMP selects a
// different disassembler.
func TestObjdump(t *testing.T) {
	files := strings.Fields(os.Getenv("DISASSEMBLE"))
	if len(files) == 0 {
		files = []string{libc(t)}
	}
	for _, file := range files {
		compareObjdump(t, file)
	}
}

// libc returns the path of the C library that objdump uses.
func libc(t *testing.T) string {
	out := must.Get(exec.Command("ldd", peer.Look(t, "objdump")).Output())(t)
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) > 2 && strings.HasPrefix(f[0], "libc.so") {
			return f[2]
		}
	}
	t.Fatalf("objdump uses no libc: %s", out)
	return ""
}

var objdumpLine = regexp.MustCompile(`^ *([0-9a-f]+):\t([0-9a-f ]+)\t(.*)$`)

func compareObjdump(t *testing.T, file string) {
	objdump := os.Getenv("OBJDUMP")
	if objdump == "" {
		objdump = peer.Look(t, "objdump")
	}
	args := strings.Fields(objdump)
	cmd := exec.Command(args[0], append(args[1:], "-d", "-w", file)...)
	out := must.Get(cmd.StdoutPipe())(t)
	must.Do(t, cmd.Start())
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	compared, unknown, wrong := 0, 0, make(map[string]int)
	for lines.Scan() {
		m := objdumpLine.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		pc, err := strconv.ParseUint(m[1], 16, 64)
		b, err2 := hex.DecodeString(strings.ReplaceAll(m[2], " ", ""))
		if err != nil || err2 != nil {
			t.Fatalf("%s: %s", file, m[0])
		}
		text, _, _ := strings.Cut(m[3], "#")
		for len(b) > 0 && b[0] == 0x9b { // objdump treats fwait as a prefix
			b, pc = b[1:], pc+1
		}
		words := strings.Fields(text)
		words = slices.DeleteFunc(words, func(w string) bool {
			return slices.Contains(prefixes, w) || strings.HasPrefix(w, "rex")
		})
		if len(words) == 0 || len(b) == 0 || strings.Contains(text, "(bad)") || strings.HasPrefix(text, ".byte") {
			continue
		}
		in, ok := decodeAMD64(append(slices.Clone(b), make([]byte, 16)...))
		if !ok {
			if unknown++; unknown < 20 {
				t.Logf("%s: unknown: %s", file, m[0])
			}
			continue
		}
		compared++
		what := ""
		if in.size != len(b) {
			what = "size"
		} else if target, ok := textTarget(words); ok && target != in.target(pc) {
			what = "target"
		} else if want := textWritten(words); in.written() != want {
			what = strconv.FormatUint(uint64(want), 16) + " registers " + strconv.FormatUint(uint64(in.written()), 16)
		}
		if what != "" {
			key := what + " " + words[0]
			if wrong[key]++; wrong[key] < 3 {
				t.Errorf("%s: %s: %+v: %s", file, what, in, m[0])
			}
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%s: %v", objdump, err)
	}
	t.Logf("%s: %d instructions, %d unknown", file, compared, unknown)
	if compared < 100 || unknown > compared/1000 {
		t.Errorf("%s: %d instructions compared, %d unknown", file, compared, unknown)
	}
}

// prefixes are words that may precede mnemonics.
var prefixes = []string{"lock", "rep", "repz", "repnz", "bnd", "notrack", "data16", "addr32", "cs", "ds", "es", "ss",
	"fs", "gs", "xacquire", "xrelease", "{vex}", "{evex}", "fwait"}

// textTarget returns the target of a direct jump or call.
func textTarget(words []string) (uint64, bool) {
	name, _, _ := strings.Cut(words[0], ",") // of a predicted branch
	direct := strings.HasPrefix(name, "j") || strings.HasPrefix(name, "call") || strings.HasPrefix(name, "loop") ||
		name == "xbegin"
	if !direct || len(words) < 2 {
		return 0, false
	}
	v, err := strconv.ParseUint(strings.TrimPrefix(words[1], "0x"), 16, 64)
	return v, err == nil
}

// general maps names of general registers to numbers.
var general = func() map[string]int {
	m := make(map[string]int)
	for i, n := range strings.Fields("ax cx dx bx sp bp si di") {
		m["%r"+n], m["%e"+n], m["%"+n] = i, i, i
		m["%"+strings.TrimSuffix(n, "x")+"l"] = i
		if i < 4 {
			m["%"+n[:1]+"h"] = i
		}
	}
	for i := 8; i < 16; i++ {
		for _, s := range []string{"", "d", "w", "b"} {
			m["%r"+strconv.Itoa(i)+s] = i
		}
	}
	return m
}()

// implicit maps mnemonics, without size suffix, to registers that are written but are not operands.
var implicit = map[string]string{
	"push": "sp", "pop": "sp", "pushf": "sp", "popf": "sp", "call": "sp", "ret": "sp", "lret": "sp", "iret": "sp",
	"lcall": "sp", "leave": "sp bp", "enter": "sp bp", "mul": "ax dx", "div": "ax dx", "idiv": "ax dx", "cqto": "ax dx",
	"cltd": "ax dx", "cltq": "ax dx", "cwtl": "ax dx", "cwtd": "ax dx", "cbtw": "ax dx", "lahf": "ax",
	"movs": "ax cx si di", "stos": "ax cx si di", "lods": "ax cx si di", "scas": "ax cx si di", "cmps": "ax cx si di",
	"ins": "ax cx si di", "outs": "ax cx si di", "cmpxchg": "ax dx", "cmpxchg8b": "ax dx", "cmpxchg16b": "ax dx",
	"rdtsc": "ax dx", "rdmsr": "ax dx", "rdpmc": "ax dx", "wrmsr": "ax dx", "syscall": "ax cx 11", "int": "ax cx 11",
	"cpuid": "ax bx cx dx", "xgetbv": "ax bx cx dx", "rdtscp": "ax bx cx dx", "xbegin": "ax", "xabort": "ax",
	"loop": "cx", "loope": "cx", "loopne": "cx", "jrcxz": "cx", "jecxz": "cx", "xlat": "ax", "in": "ax",
	"pcmpestri": "cx", "pcmpistri": "cx", "pcmpestrm": "cx", "pcmpistrm": "cx", "vpcmpestri": "cx", "vpcmpistri": "cx",
	"sysenter": "ax cx 11", "rdrand": "ax dx", "rdseed": "ax dx", "rdpid": "ax dx", "xstore-rng": "ax bx cx dx si di",
	"xcrypt-ecb": "ax bx cx dx si di", "xcrypt-cbc": "ax bx cx dx si di", "xcrypt-cfb": "ax bx cx dx si di",
	"xcrypt-ctr": "ax bx cx dx si di", "xcrypt-ofb": "ax bx cx dx si di", "xsha1": "ax bx cx dx si di",
	"xsha256": "ax bx cx dx si di", "montmul": "ax bx cx dx si di", "xtest": "ax bx cx dx", "xend": "ax bx cx dx",
	"rdpkru": "ax bx cx dx", "wrpkru": "ax bx cx dx", "xsetbv": "ax bx cx dx", "xsavec64": "dx ax", "xsavec": "ax dx",
}

// readers lists mnemonics of instructions that do not write their last operand.
var readers = strings.Fields("cmp test push bt nop call jmp mul div idiv ptwrite wrfsbase wrgsbase verr verw lldt " +
	"ltr lmsw incsspq incsspd out endbr64 invpcid invept invvpid")

// textWritten returns the general registers that an instruction writes, as bits.
func textWritten(words []string) (mask uint32) {
	name := words[0]
	known := func(name string) bool { return implicit[name] != "" || slices.Contains(readers, name) }
	if short := name[:len(name)-1]; !known(name) && known(short) && strings.Contains("bwlq", name[len(short):]) {
		name = short
	}
	var operands []string
	depth, start := 0, 0
	text := strings.Join(words[1:], "")
	for i, c := range text {
		switch {
		case c == '(' || c == '{':
			depth++
		case c == ')' || c == '}':
			depth--
		case c == ',' && depth == 0:
			operands, start = append(operands, text[start:i]), i+1
		}
	}
	operands = append(operands, text[start:])
	set := func(i int) {
		if r, ok := general[operands[i]]; ok {
			mask |= 1 << r
		}
	}
	last := len(operands) - 1
	switch {
	case strings.HasPrefix(name, "imul") && last == 0:
		return 5
	case name == "xchg" && text == "%ax,%ax": // nop
		return 0
	case name == "movs" && last > 0 && strings.Contains(text, "%xmm"): // movsd, movss
		return 0
	case (name == "xchg" || name == "xadd" || strings.HasPrefix(name, "mulx")) && last > 0:
		set(last - 1)
		set(last)
	case !slices.Contains(readers, name):
		set(last)
	}
	for _, r := range strings.Fields(implicit[name]) {
		mask |= 1 << general["%r"+r]
	}
	return mask
}

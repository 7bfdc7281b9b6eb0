package insn

import (
	"bufio"
	"debug/elf"
	"encoding/hex"
	"flag"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/testfile"
)

// Flags for `scripts/lab instructions`.
var (
	files = flag.String("files", "", "compare the code of `FILES`, separated by blanks, and print a table")
	tool  = flag.String("disassembler", "objdump", "`PROGRAM` of sid that -files compares with")
)

// listing calls fn for each instruction that a disassembler prints.
func listing(t *testing.T, cmd *exec.Cmd, fn func(pc uint64, code []byte, text string)) {
	t.Helper()
	out := must.Get(cmd.StdoutPipe())(t)
	must.Do(t, cmd.Start())
	sc := bufio.NewScanner(out)
	for sc.Scan() {
		address, rest, _ := strings.Cut(sc.Text(), ":")
		digits, text, ok := strings.Cut(strings.TrimSpace(rest), "\t")
		pc, err := strconv.ParseUint(strings.TrimSpace(address), 16, 64)
		if !ok || err != nil {
			continue
		}
		code, err := hex.DecodeString(strings.ReplaceAll(digits, " ", ""))
		if err != nil {
			t.Fatalf("%q: %v", sc.Text(), err)
		}
		fn(pc, code, text)
	}
	must.Do(t, sc.Err())
	must.Do(t, cmd.Wait())
}

// filesOf returns the files in -files that are for a machine, or the given file from Debian sid if -files is not set.
func filesOf(t *testing.T, m elf.Machine, file string) (list []string) {
	t.Helper()
	for _, path := range strings.Fields(*files) {
		f := must.Get(elf.Open(path))(t)
		if f.Machine == m {
			list = append(list, path)
		}
		f.Close()
	}
	if *files == "" {
		list = []string{filepath.Join(peer.Root(t, "sid"), file)}
	}
	return list
}

// printRow prints the table row with the results for a file.
func printRow(file string, bytes, instructions, bad int, unknown map[string]int, differences int) {
	var names []string
	for name, n := range unknown {
		names = append(names, fmt.Sprintf("%s %d", name, n))
	}
	slices.Sort(names)
	fmt.Printf("| %s | %d | %d | %d | %s | %d |\n", filepath.Base(file), bytes, instructions, bad,
		strings.Join(names, ", "), differences)
}

// A tally counts the results of comparisons.
type tally struct {
	bytes, instructions, bad, differences int
	unknown                               map[string]int
	incomplete                            bool // the disassembler does not know all instructions
}

// add decodes an instruction, and compares it with the disassembler's text and size for it.
func (c *tally) add(t *testing.T, pc uint64, code []byte, size int, printed string) {
	t.Helper()
	wait := 0 // size of a wait instruction, which objdump prints as part of the next instruction
	if size > 2 && code[1] == 0x9b && strings.IndexByte("\x66\xf2\xf3", code[0]) >= 0 {
		wait = 2
	} else if size > 1 && code[0] == 0x9b {
		wait = 1
	}
	code, pc, size = code[wait:], pc+uint64(wait), size-wait
	in, ok := DecodeAMD64(code, pc)
	differs := func(err error) {
		if c.differences++; c.differences < 20 {
			t.Errorf("%x: % x: %s: %v", pc, code[:size], printed, err)
		}
	}
	if strings.Contains(printed, "(bad)") || strings.Contains(printed, "<unknown>") {
		// Reserved bits of VEX and EVEX are not checked.
		vex := code[0]&^1 == 0xc4 || code[0] == 0x62
		if c.bad++; ok && !vex && !c.incomplete {
			differs(fmt.Errorf("size %d; want none", in.Size))
		}
		return
	}
	parsed := parseText(printed)
	if parsed.name == "" { // prefixes without an instruction
		return
	}
	c.instructions++
	c.bytes += size
	if !ok {
		c.unknown[parsed.name]++
	} else if err := parsed.compare(in, pc, size); err != nil {
		differs(err)
	}
}

// TestObjdump compares each instruction of libraries with objdump's output: its size, target, memory operands, the
// registers and memory that it writes, and its effect on the stack pointer.
func TestObjdump(t *testing.T) {
	for _, file := range filesOf(t, elf.EM_X86_64, "usr/lib/x86_64-linux-gnu/libc.so.6") {
		c := tally{unknown: map[string]int{}, incomplete: *tool != "objdump"}
		args := []string{"-d", "-w", "--insn-width=16", file}
		if c.incomplete { // LLVM's
			args = []string{"-d", "--print-imm-hex", file}
		}
		var prefix []byte // LLVM prints prefixes as separate instructions
		listing(t, peer.Tool(t, "sid", *tool)(args...), func(pc uint64, code []byte, text string) {
			pc -= uint64(len(prefix))
			if code, prefix = append(prefix, code...), nil; prefixNames[text] {
				prefix = code
				return
			}
			c.add(t, pc, code, len(code), text)
		})
		if *files != "" {
			printRow(file, c.bytes, c.instructions, c.bad, c.unknown, c.differences)
		} else if c.instructions < 100_000 || len(c.unknown) > 5 {
			t.Errorf("%s: %d instructions; unknown: %v", file, c.instructions, c.unknown)
		}
	}
}

// slot is the distance between instructions in TestEncodings. The no-ops before each instruction complete any
// instruction that starts in the zeros.
const slot = 32

// An encodingList is code with an instruction in each slot.
type encodingList struct {
	code   []byte
	group  string   // of the next encodings; a group is known or unknown as a whole
	groups []string // of each slot
}

func (e *encodingList) add(opcode []byte, operands ...byte) {
	const noOps = "\x90\x90\x90\x90\x90\x90"
	b := slices.Concat([]byte(noOps), opcode, operands)
	e.code = append(append(e.code, b...), make([]byte, slot-len(b))...)
	e.groups = append(e.groups, e.group)
}

// forms adds an opcode with a memory and with a register operand.
func (e *encodingList) forms(r byte, opcode ...byte) {
	e.add(opcode, r<<3|1)
	e.add(opcode, 0xc0|r<<3|1)
}

// vector adds an instruction with VEX or EVEX. In the groups that contain shifts, vldmxcsr and blsr, the reg field
// selects the instruction. The index register may be a vector.
func (e *encodingList) vector(opcode ...byte) {
	if op := opcode[len(opcode)-1]; op >= 0x71 && op <= 0x73 || op == 0xae || op == 0xf3 {
		for r := range byte(8) {
			e.forms(r, opcode...)
		}
	} else {
		r := 1 + op%7
		e.add(opcode, r<<3|4, 0x10)
		e.add(opcode, 0xc0|r<<3|1)
	}
}

// unknown matches instructions that are unknown on purpose: they are privileged, newer than AVX10.1 (and APX), or have
// a 16-bit operand that processors disagree about.
var unknown = regexp.MustCompile("^(" + strings.Join(strings.Fields(`
	a(add|and|or|xor) aes\w+kl bnd\w+ cli clts encodekey\w+ enter extrq femms fxrstor fxsave getsec in ins[bl] insertq
	int1 0x[cdef][19]} inv\w+ iret j\w+w lcall ldmxcsr l[fgs]s lidt ljmp lkgs lldt lmsw loadiwkey lret ltr mov
	movdir64b movrs mwait nop out outs[bl] popw pushw rdmsr rdtscp ret rsm rstorssp senduipi s[gil]dt sm[234] smsw
	sti stmxcsr str sysenter sysexitl sysretl ud0 udb u?rdmsr u?wrmsr verr verw vm\w+ wbinvd wbnoinvd wru?ssd
	xresldtrk xrstors xsave\w* xsetbv andn bextr blsi bzhi mulx pdep pext sarx sh[lr]x
	cmp\w+xadd (ld|st)tilecfg t\w+ vcvt\w*[bh]f[468]\w* vcvtbias\w+ vcvtt\w+2u?sis vmov[dw] vpmovssdb v(ld|st)mxcsr`),
	"|") + ")$")

// TestEncodings compares the decoder with objdump for all opcodes, with the relevant prefixes and forms of ModRM. The
// decoder must know exactly the groups of encodings that objdump knows, except those that the pattern unknown matches.
func TestEncodings(t *testing.T) {
	var e encodingList
	prefixes := []string{"", "\x66", "\xf3", "\xf2", "\x48", "\x66\x48", "\xf3\x48", "\xf2\x48", "\x64\x67\x45"}
	for n := range 256 {
		op := byte(n)
		for i, prefix := range prefixes {
			for _, escape := range []string{"", "\x0f", "\x0f\x38", "\x0f\x3a"} {
				for r := range byte(8) {
					if e.group = ""; i == 0 || i < 4 && escape != "" {
						e.group = fmt.Sprintf("% x %x/%d", prefix+escape, op, r)
					}
					e.forms(r, append([]byte(prefix+escape), op)...)
				}
			}
		}
		e.group = ""
		for r := range byte(8) {
			e.forms(r, 0x8f, 0xe9, 0x78, op)
		}
		for _, m := range []byte{1, 2, 3, 5, 6} {
			for pp := range byte(4) {
				e.group = fmt.Sprintf("VEX %d %d %x", m, pp, op)
				for _, last := range []byte{0x78, 0x7c, 0xf8, 0xfc} { // VEX.L, VEX.W
					if m <= 3 {
						e.vector(0xc4, 0xe0|m, last|pp, op)
					}
				}
				e.group = fmt.Sprintf("EVEX %d %d %x", m, pp, op)
				for _, last := range []byte{0x7c, 0xfc} { // EVEX.W
					e.vector(0x62, 0xf0|m, last|pp, 0x48, op)
					e.vector(0x62, 0xf0|m, last|pp, 0x08, op)
					if op&^0x33 == 0x80 { // vpgatherdd and vpscatterdd have a mask
						e.vector(0x62, 0xf0|m, last|pp, 0x49, op)
					}
				}
			}
		}
	}
	path := filepath.Join(t.TempDir(), "code")
	testfile.Write(t, path, e.code)
	c := tally{unknown: map[string]int{}}
	cmd := peer.Tool(t, "sid", "objdump")("-D", "-w", "-b", "binary", "-m", "i386:x86-64", "--insn-width=16", path)
	known, name := map[string]bool{}, map[string]string{} // of each group
	listing(t, cmd, func(pc uint64, code []byte, text string) {
		if pc%slot != 6 {
			return
		}
		c.add(t, pc, e.code[pc:pc+longest], len(code), text)
		group := e.groups[pc/slot]
		if _, ok := DecodeAMD64(e.code[pc:pc+longest], pc); ok {
			known[group] = true
		}
		if !strings.Contains(text, "(bad)") {
			name[group] = parseText(text).name
		}
	})
	t.Logf("%d instructions; %d do not exist", c.instructions, c.bad)
	if c.instructions < 60_000 {
		t.Error("too few")
	}
	for _, group := range slices.Compact(e.groups) {
		if known[group] != (name[group] != "") && !unknown.MatchString(name[group]) {
			t.Errorf("%s %s: %t", group, name[group], known[group])
		}
	}
}

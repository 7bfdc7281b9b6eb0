// Package gotables walks the stacks of Go programs with .sframe, and compares the walks with runtime.Callers and the
// bounds of the stacks: at known calls, after faults, and in preempted goroutines. lab/sh/gotables builds and runs the
// programs.
package gotables

import (
	"bufio"
	"debug/elf"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"cfi2sframe/internal/arch"
	"cfi2sframe/lab/kit"
	"cfi2sframe/sframe"
)

// Command returns the subcommand. DIR contains a program, its records, and converted copies of the files that it loads.
func Command() *kit.Command {
	c := kit.New("gotables", "DIR", 1, 1)
	c.Run = func(args []string) error {
		counts, wrong, err := judgeRecords(args[0])
		if err != nil {
			return fmt.Errorf("%s: %w", args[0], err)
		}
		fmt.Printf("%s: %s\n", filepath.Base(args[0]), strings.Join(kit.Ranked(counts), "; "))
		if wrong > 0 {
			return fmt.Errorf("%s: %d walks are wrong", args[0], wrong)
		}
		return nil
	}
	return c
}

// A record is what the program in testdata/judge writes about a stack.
type record struct {
	Kind       string
	PC, SP, FP uint64
	Stacks     []region
	Callers    []uint64
}

// A region is a stack, or a part of it.
type region struct {
	Lo, Hi, At uint64
	Memory     []byte
}

// word returns the word at an address in one of the stacks.
func (r *record) word(order binary.ByteOrder, addr uint64) (uint64, bool) {
	for _, s := range r.Stacks {
		if at := addr - s.At; addr >= s.At && at+8 <= uint64(len(s.Memory)) {
			return order.Uint64(s.Memory[at:]), true
		}
	}
	return 0, false
}

// stack returns the index of the stack that contains an address, or -1. The end of a stack counts as part of it.
func (r *record) stack(addr uint64) int {
	return slices.IndexFunc(r.Stacks, func(s region) bool { return s.Lo <= addr && addr <= s.Hi })
}

// A module is a file that the program has loaded.
type module struct {
	begin, end, bias uint64
	section          *sframe.Section
	functions        kit.Functions
}

// A judge compares walks that use .sframe with those of the runtime.
type judge struct {
	arch    *arch.Arch
	order   binary.ByteOrder
	modules []*module
}

// load adds a file that the program has mapped, at its address according to maps (/proc/self/maps).
func (j *judge) load(path, maps string) error {
	f, err := elf.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	converted, err := elf.Open(path + ".sframe")
	if err != nil {
		return err
	}
	defer converted.Close()
	m := &module{functions: kit.FunctionsOf(f)}
	if m.section, err = sframe.FromELF(converted); err != nil {
		return err
	}
	j.arch, j.order = arch.Of(f.Machine), f.ByteOrder
	for i := len(f.Progs) - 1; i >= 0; i-- {
		if p := f.Progs[i]; p.Type == elf.PT_LOAD {
			m.begin, m.end = p.Vaddr, max(m.end, p.Vaddr+p.Memsz)
		}
	}
	for line := range strings.Lines(maps) {
		var begin, end, off uint64
		var flags, device, inode, name string
		fmt.Sscanf(line, "%x-%x %s %x %s %s %s", &begin, &end, &flags, &off, &device, &inode, &name)
		if name == path && off == 0 {
			m.bias = begin - m.begin&^0xfff
			m.begin, m.end = m.begin+m.bias, m.end+m.bias
			j.modules = append(j.modules, m)
			return nil
		}
	}
	return fmt.Errorf("the program has not loaded %s", path)
}

func (j *judge) module(pc uint64) *module {
	for _, m := range j.modules {
		if m.begin <= pc && pc < m.end {
			return m
		}
	}
	return nil
}

// function returns the name of the function at a pc.
func (j *judge) function(pc uint64) string {
	name := ""
	if m := j.module(pc); m != nil {
		name, _ = m.functions.At(pc - m.bias)
	}
	if name == "" {
		return fmt.Sprintf("%#x", pc)
	}
	return name
}

// How walks end.
const (
	atStart = "start"                // in code without a caller
	inGap   = "gap"                  // in code without a row
	onOther = "on C's stack"         // at the call to cgocallback
	inReg   = "interrupted leaf"     // the return address is in the link register, whose value is unknown
	lost    = "IN NO CODE"           // at a pc outside of all modules
	outside = "OUTSIDE OF THE STACK" // the caller's frame is not on the stack
	endless = "WITHOUT END"
	unlike  = "NOT LIKE RUNTIME.CALLERS"
)

// walk returns the pcs of the callers, as runtime.Callers returns them, and how the walk ends.
func (j *judge) walk(r *record) (pcs []uint64, end string) {
	a, pc, sp, fp, haveFP := j.arch, r.PC, r.SP, r.FP, r.FP != 0
	interrupted := false
	for range 2000 {
		lookup := pc - 1
		if pcs = append(pcs, pc); interrupted {
			lookup, pcs[len(pcs)-1] = pc, pc+1
		}
		m := j.module(lookup)
		if m == nil {
			return pcs, lost
		}
		row, ok, err := m.section.Lookup(lookup - m.bias)
		if err != nil {
			return pcs, err.Error()
		}
		if !ok {
			return pcs, inGap
		}
		if row.Outermost {
			return pcs, atStart
		}
		value := func(rule sframe.Rule, cfa uint64) (v uint64, ok bool) {
			switch {
			case rule.Base == sframe.CFA:
				v = cfa
			case rule.Base == sframe.SP, rule.Base == sframe.Register && uint64(rule.Reg) == a.SP:
				v = sp
			case rule.Base == sframe.FP, rule.Base == sframe.Register && uint64(rule.Reg) == a.FP:
				if v = fp; !haveFP {
					return 0, false
				}
			default:
				return 0, false
			}
			v += uint64(int64(rule.Offset))
			if rule.Deref {
				return r.word(j.order, v)
			}
			return v, true
		}
		cfa, ok := value(row.CFA, 0)
		caller := cfa + uint64(a.CallerSP)
		switch on := r.stack(caller); {
		case ok && on < r.stack(sp) && usesFP(row.Row): // C code also runs on the thread's stack
			return pcs, onOther
		case !ok, on < 0, caller < sp && (on == r.stack(sp) || !usesFP(row.Row)):
			return pcs, outside
		}
		ra := row.RA
		if ra.Base == sframe.None && a.FixedRA == 0 {
			return pcs, inReg
		}
		if pc, ok = value(ra, cfa); !ok {
			return pcs, outside
		}
		if row.FP.Base != sframe.None {
			fp, haveFP = value(row.FP, cfa) // on arm64 the slot of the first frame is below its stack pointer
		}
		sp, interrupted = caller, row.FDE.Signal
	}
	return pcs, endless
}

// usesFP reports whether a row locates the caller's frame through the frame pointer, as after stack switches.
func usesFP(r sframe.Row) bool { return r.CFA.Base == sframe.FP && !r.CFA.Deref }

// compare returns the result of comparing a walk with that of the runtime, which omits wrappers.
func (j *judge) compare(r *record) string {
	pcs, end := j.walk(r)
	i := 0
	var extra []string
	for k, pc := range pcs {
		// Before Go 1.21, the runtime adds 1 to the pc of a fault, but not to the pc of a preempted goroutine.
		same := func(want uint64) bool {
			return pc == want || pc-1 == want && k > 0 && strings.Contains(j.function(pcs[k-1]-1), "asyncPreempt")
		}
		if i < len(r.Callers) && same(r.Callers[i]) {
			i++
		} else if i > 0 {
			extra = append(extra, j.function(pc-1))
		}
	}
	how := end
	// The runtime omits functions generated by the compiler and the linker.
	made := func(name string) bool {
		return strings.HasSuffix(name, ".abi0") || strings.Contains(name, "deferwrap") || strings.HasSuffix(name, "-fm")
	}
	switch last := j.function(pcs[len(pcs)-1] - 1); {
	case i == 0 && end == inGap && strings.Contains(last, "runtime.systemstack"):
	case slices.ContainsFunc(extra, func(name string) bool { return !made(name) }), i == 0,
		end == atStart && i < len(r.Callers):
		how = unlike
	}
	return how
}

// judgeRecords judges all records of a program. It returns the number of records by outcome, and how many are wrong.
func judgeRecords(dir string) (counts map[string]uint64, wrong int, err error) {
	f, err := os.Open(filepath.Join(dir, "records"))
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	in := json.NewDecoder(bufio.NewReader(f))
	var maps string
	if err := in.Decode(&maps); err != nil {
		return nil, 0, err
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.sframe"))
	if err != nil {
		return nil, 0, err
	}
	j := &judge{}
	for _, path := range files {
		if err := j.load(strings.TrimSuffix(path, ".sframe"), maps); err != nil {
			return nil, 0, err
		}
	}
	counts = make(map[string]uint64)
	for {
		var r record
		if err := in.Decode(&r); err == io.EOF {
			return counts, wrong, nil
		} else if err != nil {
			return nil, 0, err
		}
		how := j.compare(&r)
		counts[r.Kind+": "+how]++
		if !slices.Contains([]string{atStart, inGap, onOther, inReg}, how) {
			wrong++
		}
	}
}

package verify

import (
	"golang.org/x/arch/x86/x86asm"

	"cfi2sframe/cfi"
)

// What rows of a function that leaves its stack say of an instruction.
type place uint8

const (
	nowhere   place = iota // no row
	belowSP                // the frame is as the table says
	belowFP                // the frame pointer is saved right below the return address, and points there
	outermost              // there is no caller
)

// A step is an instruction of a function, by its offset.
type step struct {
	x86asm.Inst
	at    uint64
	known bool
}

// onStacks checks a function that leaves its stack, and returns what is wrong: what the rows say before an instruction
// and after it must be what the instruction does.
func (g *goTable) onStacks(fn *cfi.Function, first uint64, name string) string {
	places := make([]place, fn.End-fn.Begin)
	any := false
	for row := range fn.Rows() {
		var is place
		switch {
		case row.CFA.Rule == cfi.RuleUndefined:
			continue
		case g.stacks == nil || fn.Begin != first:
			return "rows of a function on another stack"
		case row.RA.Rule == cfi.RuleUndefined:
			is = outermost
		case row.CFA.Reg == g.fp:
			is = belowFP
			if g.shrinks && name == "runtime.systemstack" {
				return "the stack that the frame pointer leads to may have moved"
			}
			if row.CFA.Offset != 16 || row.RA.Offset != -8 || row.FP.Rule != cfi.RuleOffset || row.FP.Offset != -16 {
				return "another frame than that of its prologue"
			}
		default:
			is = belowSP
			saved := goSlot{true, 1, 8, 8}
			if what := g.row(&row, g.sizeAt(row.Begin-first), saved, row.Begin-first); what != "" {
				return what
			}
		}
		any = true
		for pc := row.Begin; pc < row.End; pc++ {
			places[pc-fn.Begin] = is
		}
	}
	if !any {
		return ""
	}
	if places[0] != nowhere && places[0] != belowSP {
		return "no stack pointer at the start of the function"
	}
	// Their callers may go on in another thread, or on a larger stack, while these are on the scheduler's.
	return g.stacks(g.code(fn.Begin, fn.End), places, name == "runtime.mcall" || name == "runtime.morestack")
}

// stacksAMD64 checks what each instruction does against the places before and after it.
func stacksAMD64(code []byte, places []place, final bool) string {
	var all []step
	targets := make(map[uint64]bool)
	for at := uint64(0); at < uint64(len(code)); {
		in, err := x86asm.Decode(code[at:], 64)
		avx := code[at] == 0x62 || code[at] == 0xc4 || code[at] == 0xc5 // the decoder's sizes may be wrong
		known := err == nil && !avx
		if !known {
			in = x86asm.Inst{Len: 1}
		}
		all = append(all, step{in, at, known})
		at += uint64(in.Len)
		if rel, ok := in.Args[0].(x86asm.Rel); ok && in.Op != x86asm.CALL {
			targets[at+uint64(int64(rel))] = true
		}
	}
	live := true
	for _, in := range all {
		if live = live || targets[in.at]; !live {
			continue
		}
		next := in.at + uint64(in.Len)
		if !in.known {
			return "an instruction that is not known"
		}
		live = in.Op != x86asm.RET && in.Op != x86asm.JMP && in.Op != x86asm.UD2 && in.Op != x86asm.HLT &&
			in.Op != x86asm.INT
		if what := in.leadsTo(next, places, final); live && what != "" {
			return what
		}
		if rel, ok := in.Args[0].(x86asm.Rel); ok && in.Op != x86asm.CALL {
			if what := in.leadsTo(next+uint64(int64(rel)), places, final); what != "" {
				return what
			}
		}
	}
	return ""
}

// leadsTo checks that what the rows say of another place is so after the instruction.
func (in *step) leadsTo(to uint64, places []place, final bool) string {
	if to >= uint64(len(places)) {
		return ""
	}
	here, next := in.at+uint64(in.Len), places[to]
	is := places[in.at]
	for _, p := range places[in.at:here] {
		if p != is {
			return "a row begins within an instruction"
		}
	}
	loads := in.Op == x86asm.MOV && in.Args[0] == x86asm.RSP
	switch {
	case next == nowhere:
	case next == belowSP && in.at == 0 && to == here && in.Op == x86asm.PUSH && in.Args[0] == x86asm.RBP:
	case next == belowSP && is == belowFP && to == here && in.Op == x86asm.POP && in.Args[0] == x86asm.RBP:
	case next == belowFP && is == belowSP && in.at == 1 && to == here && in.Op == x86asm.MOV &&
		in.Args[0] == x86asm.RBP && in.Args[1] == x86asm.RSP:
	case next == outermost && in.Op == x86asm.MOV && in.Args[1] == x86asm.Imm(0) &&
		(in.Args[0] == x86asm.RBP || in.Args[0] == x86asm.EBP):
	case next == outermost && in.Op == x86asm.XOR && in.Args[0] == x86asm.EBP && in.Args[1] == x86asm.EBP:
	case next == outermost && final && (loads || is == outermost):
	case next == is && is != belowSP && in.keepsFP() && (is == outermost || !loads || !final):
	default:
		return "a row that the code does not keep"
	}
	return ""
}

// keepsFP reports whether the frame pointer has the same value after the instruction.
func (in *step) keepsFP() bool {
	for i, arg := range in.Args {
		if r, ok := arg.(x86asm.Reg); ok && (r == x86asm.RBP || r == x86asm.EBP || r == x86asm.BP || r == x86asm.BPB) {
			read := in.Op == x86asm.PUSH || in.Op == x86asm.CMP || in.Op == x86asm.TEST || in.Op == x86asm.MOV && i == 1
			if !read {
				return false
			}
		}
	}
	return in.Op != x86asm.LEAVE && in.Op != x86asm.ENTER
}

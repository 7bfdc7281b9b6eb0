// Package code infers rows for code without CFI from its instructions.
//
// Each function is analysed by itself, with the calling convention as its contract: at its entry, the stack is as a
// call leaves it; calls return, and preserve SP and the callee-saved registers. The steps:
//
//   - find.go collects the entries of functions, in order of trust: targets of calls and symbols, jumps out of
//     described code, relocated addresses, and addresses that code loads or that data contains.
//   - flow.go follows a function from its entries, block by block, until the states at the starts of its blocks no
//     longer change. state.go defines states, marks.go the marks of reached code, and tables.go reads jump tables.
//   - rows.go records the rows of a function, its calls, and its effects: the registers that it changes, whether it
//     returns, and with which SP. returns.go determines which functions never return, doubts.go which calls may not.
//   - find.go analyses callers again if a callee keeps less than the convention demands.
//
// A function has rows only if there is evidence that it is one (a direct call, or a path to a return at the depth of
// the entry), all its code decodes, SP or another register always locates the frame, and the stack is restored at every
// exit. A function that is not understood does not affect its callers, unless it is seen to break the convention.
//
// The analysis assumes that stores to unknown addresses do not change saved registers. Time and memory are linear in
// the size of the code.
//
// Only amd64 and aarch64 are supported. Frames that can be found only through a value in memory are not supported,
// because SFrame cannot express most of them. Package verify proves the rows and shares no code with this package.
package code

import (
	"debug/elf"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
)

// A Text is the code of a file.
type Text struct {
	Machine elf.Machine
	// Gaps lists the code without rows, sorted by address and disjoint.
	Gaps []Gap
	// Described calls f for all other code, in pieces that start and end at instruction boundaries.
	Described func(f func(addr uint64, code []byte)) error
	// Row returns the row of described code at an address; false if it has none or it cannot be expressed. If described
	// is false, no CFI describes the address (PLT stubs).
	Row func(pc uint64) (row cfi.InferredRow, ok, described bool)
	// Start is the entry point of the program, or 0. It has no caller.
	Start uint64
	// Functions holds the addresses of functions with global symbols.
	Functions []uint64
	// Entries holds other addresses from symbols and relocations: functions, or labels in them.
	Entries []uint64
	// Pointers calls f for each word of data that may be the address of code. If it is nil, code has no absolute
	// addresses either.
	Pointers func(f func(addr uint64)) error
	// NoReturn holds the addresses of functions that do not return, and of words that contain such an address (GOT).
	NoReturn map[uint64]bool
	// Words holds the functions whose addresses the loader writes to words (GOT), by address of the word.
	Words map[uint64]uint64
	// Returns holds such words with the addresses of other files' functions that always return.
	Returns map[uint64]bool
	// Resume holds those addresses in NoReturn that belong to _Unwind_Resume, which only landing pads call.
	Resume map[uint64]bool
	// Step is called with the number of bytes analysed so far, which is at most the size of the gaps. If it returns an
	// error, the analysis ends.
	Step func(analysed uint64) error
	// Data returns up to n bytes of constant data at an address, for jump tables.
	Data func(addr uint64, n int) []byte
}

// A Gap is contiguous code without rows.
type Gap struct {
	Addr uint64
	Code []byte
}

func (g *Gap) end() uint64 { return g.Addr + uint64(len(g.Code)) }

// A Refusal is a range of code without rows, with the reason.
type Refusal struct {
	elffile.Span
	Reason Reason
}

// A Reason tells why code has no rows.
type Reason uint8

const (
	Unreached    Reason = iota + 1 // not reachable from a known entry
	Overlap                        // instructions overlap or are unknown
	UnknownStack                   // no register is known to locate the frame
	Unbalanced                     // control leaves with a different stack depth than at the entry
	Indirect                       // a jump to an unknown address
	RunsOn                         // control runs into bytes that are not code
	NotCalled                      // nothing shows that the code is entered by calls
	TooComplex                     // the analysis takes too long
	Unproved                       // the rows could not be proved
)

var reasonNames = [...]string{
	Unreached: "code-unreached", Overlap: "code-overlap", UnknownStack: "code-unknown-stack",
	Unbalanced: "code-unbalanced", Indirect: "code-indirect", RunsOn: "code-runs-on", NotCalled: "code-not-called",
	TooComplex: "code-too-complex", Unproved: "code-unproved",
}

// String returns the name of the reason, as used in reports.
func (r Reason) String() string { return reasonNames[r] }

// Supports reports whether rows are inferred for a machine.
func Supports(m elf.Machine) bool { return machines[m] != nil }

// Find infers rows for the gaps of t. It also returns the ranges for which this is impossible, with the reasons.
func Find(t *Text) (*cfi.Inference, []Refusal, error) {
	f := newFinder(t)
	if err := f.find(); err != nil {
		return nil, nil, err
	}
	inf, refused := f.claim()
	return inf, refused, nil
}

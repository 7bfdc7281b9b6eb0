// Package code infers rows for code without CFI from its instructions.
//
// It works in three steps:
//
//   - find.go marks the instructions reachable from known entries: symbols, relocations, and targets of calls and jumps
//     in other code. Unreachable code has no rows.
//   - flow.go tracks the stack pointer and the contents of registers and stack slots through blocks of code until it
//     reaches a fixed point. state.go defines the values, and tables.go reads jump tables.
//   - rows.go merges blocks connected by jumps into components. A component has rows only if all its code decodes, SP
//     or another register always locates the frame, and the stack is restored at every exit.
//
// The analysis assumes well-behaved code: a call returns and preserves callee-saved registers, unless the called code
// is known to change them; and stores to unknown addresses do not change saved registers. Time and memory are linear in
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
	// Functions holds the addresses of functions with global symbols.
	Functions []uint64
	// Entries holds other addresses from symbols and relocations: functions, or labels in them.
	Entries []uint64
	// NoReturn holds the addresses of functions that do not return, and of words that contain such an address (GOT).
	NoReturn map[uint64]bool
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

// Supports reports whether rows are inferred for a machine.
func Supports(m elf.Machine) bool { return machineOf(m) != nil }

// Find infers rows for the gaps of t. It also returns the ranges for which this is impossible, with the reasons.
func Find(t *Text) (*cfi.Inference, []Refusal, error) {
	f := newFinder(t)
	if err := t.Described(f.scan); err != nil {
		return nil, nil, err
	}
	inf, refused := f.find()
	return inf, refused, nil
}

// find infers rows, and returns the ranges for which this is impossible, with the reasons.
func (f *finder) find() (*cfi.Inference, []Refusal) {
	// The length of a jump table is unknown. Each round excludes targets within instructions.
	for range maxRounds {
		w := &flow{finder: f, siteIndex: map[int64]uint16{}, setIndex: map[string]uint16{}}
		w.begin()
		if !w.run() {
			break
		}
		if !w.excludes() {
			return w.claim()
		}
	}
	f.forget()
	return &cfi.Inference{}, f.unmarked(TooComplex)
}

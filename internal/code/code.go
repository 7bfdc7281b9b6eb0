// Package code finds where the frame is in code without CFI, from its instructions.
//
// It has four steps, each in a file:
//
//   - find.go marks the instructions that are reached from known entries: symbols, relocations, and what other code
//     calls or jumps to. Code that nothing reaches has no rows.
//   - flow.go follows the stack pointer and what registers and stack slots hold, through blocks of code up to a fixed
//     point. state.go has the values, and tables.go reads tables of jumps.
//   - rows.go joins blocks that jumps connect to components. Rows are for whole components in which nothing is odd:
//     the code decodes, SP is always known or the frame is in another register, and control leaves with the stack as it
//     was at the entry.
//
// Code is followed as compilers and people write it: a call returns and keeps the registers that the ABI saves, unless
// the called code is known to change them; and stores to addresses that are not known do not change saved registers.
// Time and memory are linear in the size of the code.
//
// Machines other than amd64 are out, as are frames whose place is in memory: SFrame has no form for most of these.
// Package verify proves the rows, and shares nothing with this package.
package code

import (
	"debug/elf"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
)

// A Text is the code of a file.
type Text struct {
	Machine elf.Machine
	// Gaps is code without rows, sorted by address and disjoint.
	Gaps []Gap
	// Described calls f for all other code, in pieces that begin and end between instructions.
	Described func(f func(addr uint64, code []byte)) error
	// Functions are addresses of functions, by global symbols.
	Functions []uint64
	// Entries are other addresses that symbols and relocations have: of functions, or of labels in them.
	Entries []uint64
	// NoReturn are the addresses of functions that do not return, and of words with such an address, as in the GOT.
	NoReturn map[uint64]bool
	// Data returns up to n bytes of the file at an address that the program does not change, for tables of jumps.
	Data func(addr uint64, n int) []byte
}

// A Gap is contiguous code.
type Gap struct {
	Addr uint64
	Code []byte
}

func (g *Gap) end() uint64 { return g.Addr + uint64(len(g.Code)) }

// A Refusal is code that has no rows.
type Refusal struct {
	elffile.Span
	Reason Reason
}

// Supports reports whether rows are found in code of a machine.
func Supports(m elf.Machine) bool { return machineOf(m) != nil }

// Find finds the rows of the code, and says why other code has none.
func Find(t *Text) (*cfi.Inference, []Refusal, error) {
	f := newFinder(t)
	if err := t.Described(f.scan); err != nil {
		return nil, nil, err
	}
	inf, refused := f.find()
	return inf, refused, nil
}

// find finds the rows, and says why other code has none.
func (f *finder) find() (*cfi.Inference, []Refusal) {
	// A table of jumps has no length. Each round excludes targets that lie in the middle of instructions.
	for range maxRounds {
		w := &flow{finder: f, index: map[uint64]int32{}, siteIndex: map[int64]uint16{}}
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

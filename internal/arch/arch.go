// Package arch holds the facts about each machine that SFrame is defined for: from its ABI, from its ELF and DWARF
// supplements, and from the conventions of assemblers and linkers. Each machine has a file with one value.
//
// Not in this package: what the SFrame format defines for an ABI (package sframe), the instructions of PLT stubs
// (package plt), and the numbers that package verify uses, which are separate so that a mistake here cannot hide there.
//
// docs/architecture.md lists the files to change for a new machine.
package arch

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"cfi2sframe/sframe"
)

// NoReg stands for a register that a machine does not have.
const NoReg = ^uint64(0)

// MinPage is the smallest page size in bytes of all machines. Loaders move code by multiples of it.
const MinPage = 1 << 12

// PLTEntry is the size in bytes of the PLT entries that PLTCFA describes.
const PLTEntry = 16

const pltByte = 0xff

// An Arch is a machine. Registers are DWARF numbers; offsets and sizes are in bytes. Values are shared and must not be
// changed.
type Arch struct {
	Machine elf.Machine
	Name    string // without the byte order: amd64, aarch64, s390x
	// The SFrame ABIs of the byte orders, or 0.
	Little, Big sframe.ABI

	SP, FP uint64
	RA     uint64 // the register that a call leaves the return address in; on amd64 a column that stands for its slot
	PC     uint64 // the register that reads as pc in expressions, or NoReg
	// RAState is the pseudo-register that says whether the return address is signed, or NoReg.
	RAState   uint64
	Registers []string // names, by number

	EntryCFA int32 // the CFA from SP where a call arrives
	FixedRA  int64 // where the return address is always saved, from the CFA; 0: it is not always
	CallerSP int64 // the caller's SP, from the CFA
	// SavesSP says that CFI may have rules for saved SPs. Their value is CallerSP by definition.
	SavesSP bool
	// PLTCFA is the expression for the CFA that GNU ld writes for a whole PLT, or nil: EntryCFA from SP, and 8 more
	// from a byte of each entry on. pltByte stands for the operation that pushes the number of that byte.
	PLTCFA []byte

	// Epilogue recognises the end of a function that realigns its stack; see its type. Nil stands for none.
	Epilogue Epilogue

	MaxPage uint64 // the largest pages
	// MappingSymbols says that assemblers mark code and data with symbols $x and $d.
	MappingSymbols bool
	// Branch returns the size of a direct jump or call at the start of b, which is at pc, or 0; and its target.
	Branch func(b []byte, pc uint64) (size int, target uint64, call bool)
	// Fields are the relocation types of objects in sections that are not code.
	Fields map[uint32]Field
	// Relative are the types of dynamic relocations without a symbol whose addend is an address in the file:
	// R_*_RELATIVE first, then R_*_IRELATIVE.
	Relative []uint32
}

// An Epilogue recognises the end of a function that realigns its stack. Its rows until there say that FP is saved where
// FP points, although FP has the caller's value again.
//
// Code lies at pc, and its instruction that ends at offset at restores SP from register reg. The result is the range of
// offsets from that instruction on in which FP is the caller's: up to where control leaves the function, with the
// no-ops after it. Stays reports whether an address is in the function, but not its first one. Without such an epilogue
// the range is empty.
type Epilogue func(code []byte, pc uint64, at int, reg uint64, stays func(pc uint64) bool) (first, last int)

// A Field is the field of a relocation.
type Field struct {
	Size   int  // in bytes: 4 or 8
	PCRel  bool // counts from the field's own address
	Signed bool // absolute, but extended with its sign
}

// all are the machines, in the order of messages.
var all = [...]*Arch{&amd64, &aarch64, &s390x}

// Of returns the Arch of a machine, or nil if SFrame is not defined for it.
func Of(m elf.Machine) *Arch {
	for _, a := range all {
		if a.Machine == m {
			return a
		}
	}
	return nil
}

// OfABI returns the Arch of an SFrame ABI, or nil.
func OfABI(abi sframe.ABI) *Arch {
	for _, a := range all {
		if abi != 0 && (a.Little == abi || a.Big == abi) {
			return a
		}
	}
	return nil
}

// ErrABI is the error for a machine and byte order without an SFrame ABI.
var ErrABI = errors.New("no SFrame ABI that is supported")

// Find returns the Arch of a machine, and its SFrame ABI in the given byte order.
func Find(m elf.Machine, o binary.ByteOrder) (*Arch, sframe.ABI, error) {
	if a := Of(m); a != nil && a.ABI(o) != 0 {
		return a, a.ABI(o), nil
	}
	return nil, 0, fmt.Errorf("machine %v, %v: %w", m, o, ErrABI)
}

// ABI returns the machine's SFrame ABI in the given byte order, or 0.
func (a *Arch) ABI(o binary.ByteOrder) sframe.ABI {
	switch o {
	case binary.LittleEndian:
		return a.Little
	case binary.BigEndian:
		return a.Big
	}
	return 0
}

// Register returns the name of a register.
func (a *Arch) Register(n uint64) string {
	if n < uint64(len(a.Registers)) {
		return a.Registers[n]
	}
	return fmt.Sprintf("r%d", n)
}

// PCRelType returns the relocation type of a pc-relative field of 4 or 8 bytes, and whether the machine has one.
func (a *Arch) PCRelType(size int) (uint32, bool) {
	for t, f := range a.Fields {
		if f == (Field{Size: size, PCRel: true}) {
			return t, true
		}
	}
	return 0, false
}

// PushAt reports whether cfa is PLTCFA, and returns the byte of an entry from which on the stack has 8 more bytes.
func (a *Arch) PushAt(cfa []byte) (uint64, bool) {
	i := bytes.IndexByte(a.PLTCFA, pltByte)
	if i < 0 || len(cfa) != len(a.PLTCFA) {
		return 0, false
	}
	if !bytes.Equal(cfa[:i], a.PLTCFA[:i]) || !bytes.Equal(cfa[i+1:], a.PLTCFA[i+1:]) {
		return 0, false
	}
	at := cfa[i] - 0x30 // DW_OP_lit0
	return uint64(at), 0 < at && at < PLTEntry
}

// Names returns the names of all machines, for a message: "amd64, aarch64 and s390x".
func Names() string {
	var names []string
	for _, a := range all {
		names = append(names, a.Name)
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

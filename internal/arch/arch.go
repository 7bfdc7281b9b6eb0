// Package arch describes the machines for which SFrame is defined: facts from their ABIs, from the ELF and DWARF
// supplements, and from the conventions of assemblers and linkers. There is one file and one Arch per machine.
//
// Package sframe holds what the SFrame format defines for an ABI, and package plt holds the instructions of PLT stubs.
// Package verify has a separate set of numbers, so that it does not repeat a mistake made here.
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

// NoReg marks a register that a machine does not have.
const NoReg = ^uint64(0)

// MinPage is the smallest page size in bytes that any of the machines uses. Loaders relocate code by multiples of
// MinPage.
const MinPage = 1 << 12

// PLTEntry is the size in bytes of the PLT entries that PLTCFA describes.
const PLTEntry = 16

const pltByte = 0xff

// An Arch describes a machine. Registers are DWARF numbers; offsets and sizes are in bytes. Callers must not modify an
// Arch.
type Arch struct {
	Machine elf.Machine
	Name    string // without the byte order: amd64, aarch64, s390x
	// The SFrame ABI for each byte order, or 0.
	Little, Big sframe.ABI

	SP, FP uint64
	RA     uint64 // holds the return address after a call; on amd64 a virtual column for its stack slot
	PC     uint64 // register number that denotes the pc in CFI expressions, or NoReg
	// RAState is the pseudo-register that tells whether the return address is signed, or NoReg.
	RAState uint64

	EntryCFA int32 // CFA - SP at function entry
	FixedRA  int64 // fixed offset of the saved return address from the CFA, or 0
	CallerSP int64 // caller's SP - CFA
	// SavesSP is set if CFI may have rules for a saved SP. The saved value is the caller's SP by definition.
	SavesSP bool
	// PLTCFA is the CFA expression that GNU ld emits for a whole PLT, or nil: SP+EntryCFA, plus 8 after a certain
	// instruction of each entry. pltByte stands for the operation that pushes the offset of that instruction's end.
	PLTCFA []byte

	// Epilogue recognizes the end of a function that realigns its stack, or is nil; see the type Epilogue.
	Epilogue Epilogue

	MaxPage uint64 // largest page size in bytes
	// MappingSymbols is set if assemblers mark code and data with the symbols $x and $d.
	MappingSymbols bool
	// Fields maps the relocation types of non-code sections in objects to their fields.
	Fields map[uint32]Field
	// Relative lists the types of dynamic relocations that name no symbol, and whose addend is an address in the file:
	// R_*_RELATIVE first, then R_*_IRELATIVE.
	Relative []uint32
}

// An Epilogue recognizes the end of a function that realigns its stack. There, CFI still says that FP is saved where FP
// points, although FP already has the caller's value.
//
// code starts at pc; the instruction that restores SP from register reg ends at offset end. The result is the range of
// offsets, starting at that instruction, in which FP has the caller's value. The range ends where control leaves the
// function, after any no-ops. If there is no such epilogue, the range is empty. isInside reports whether an address is
// within the function but not its start.
type Epilogue func(code []byte, pc uint64, end int, reg uint64, isInside func(pc uint64) bool) (first, last int)

// A Field is the kind of field that a relocation type sets.
type Field struct {
	Size   int  // in bytes: 4 or 8
	PCRel  bool // relative to the field's address
	Signed bool // absolute and sign-extended
}

// machines lists the Arch of each machine in the order used in messages.
var machines = [...]*Arch{&amd64, &aarch64, &s390x}

// PerMachine returns a table with one value for each machine. A new machine is a new parameter, so the compiler finds
// all tables that lack it.
func PerMachine[T any](forAMD64, forAArch64, forS390X T) map[elf.Machine]T {
	return map[elf.Machine]T{amd64.Machine: forAMD64, aarch64.Machine: forAArch64, s390x.Machine: forS390X}
}

// Of returns the Arch of an ELF machine, or nil if SFrame is not defined for it.
func Of(m elf.Machine) *Arch {
	for _, a := range machines {
		if a.Machine == m {
			return a
		}
	}
	return nil
}

// OfABI returns the Arch of an SFrame ABI, or nil.
func OfABI(abi sframe.ABI) *Arch {
	for _, a := range machines {
		if abi != 0 && (a.Little == abi || a.Big == abi) {
			return a
		}
	}
	return nil
}

// ErrABI is the error for a machine and byte order without an SFrame ABI.
var ErrABI = errors.New("no supported SFrame ABI")

// Find returns the Arch of a machine and its SFrame ABI for the byte order.
func Find(m elf.Machine, o binary.ByteOrder) (*Arch, sframe.ABI, error) {
	if a := Of(m); a != nil && a.ABI(o) != 0 {
		return a, a.ABI(o), nil
	}
	return nil, 0, fmt.Errorf("machine %v, %v: %w", m, o, ErrABI)
}

// ABI returns the machine's SFrame ABI for the byte order, or 0.
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
func (a *Arch) Register(n uint64) string { return max(a.Little, a.Big).Register(n) }

// PCRelType returns the relocation type for a pc-relative field of 4 or 8 bytes, and whether the machine has one.
func (a *Arch) PCRelType(size int) (uint32, bool) {
	for t, f := range a.Fields {
		if f == (Field{Size: size, PCRel: true}) {
			return t, true
		}
	}
	return 0, false
}

// PushAt reports whether cfa has the form of PLTCFA, and returns the offset in an entry at which the CFA offset grows
// by 8.
func (a *Arch) PushAt(cfa []byte) (uint64, bool) {
	before, after, ok := bytes.Cut(a.PLTCFA, []byte{pltByte})
	if !ok || len(cfa) != len(a.PLTCFA) || !bytes.HasPrefix(cfa, before) || !bytes.HasSuffix(cfa, after) {
		return 0, false
	}
	at := cfa[len(before)] - 0x30 // DW_OP_lit0
	return uint64(at), 0 < at && at < PLTEntry
}

// Names returns the names of all machines for a message: "amd64, aarch64 and s390x".
func Names() string {
	var names []string
	for _, a := range machines {
		names = append(names, a.Name)
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

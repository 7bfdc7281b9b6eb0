// Package arch holds what is fixed for each machine that SFrame is defined for: by its ABI, by the
// ELF and DWARF supplements to that, and by what assemblers and linkers make of them. Each machine
// has a file with one value, which all other packages ask.
//
// What the SFrame format itself fixes for an ABI comes from package sframe. Not in here: instructions
// of PLT stubs (package plt), and what package verify knows of machines, which keeps numbers of its
// own so that a mistake here cannot hide there.
//
// A new machine takes its ABI in sframe/sframe.go, a file here and its place among all of them in this one, a file
// for its stubs in plt, one in verify, and a line in the README.
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

// MinPage is the size in bytes of the smallest pages that loaders use, on every machine. Machines
// with larger ones move code by multiples of these.
const MinPage = 1 << 12

// PLTEntry is the size in bytes of the entries of PLTs that PLTCFA describes.
const PLTEntry = 16

const pltByte = 0xff

// An Arch is a machine, in one byte order or in both. Registers are DWARF numbers, and offsets and
// sizes are in bytes. There is one for all who ask, which must not be changed.
type Arch struct {
	Machine elf.Machine
	Name    string // without the byte order: amd64, aarch64, s390x
	// The SFrame ABIs of the byte orders; 0 for one that has none.
	Little, Big sframe.ABI

	SP, FP uint64
	RA     uint64 // the register that a call leaves the return address in; on amd64 a column that stands for its slot
	PC     uint64 // the register that reads as pc in expressions, or NoReg
	// RAState is the pseudo-register that says whether the return address is signed, or NoReg where
	// it never is.
	RAState   uint64
	Registers []string // names, by number
	// Probing are the names of the registers that compilers keep the frame in while they probe the stack
	// page by page: GCC's and LLVM's.
	Probing []string

	EntryCFA int32 // the CFA from SP where a call arrives
	FixedRA  int64 // where the return address is always saved, from the CFA; 0: it is not always
	CallerSP int64 // the caller's SP, from the CFA
	// SavesSP says that SP may have save rules: they say where the caller's SP is
	// saved, which is CallerSP by definition.
	SavesSP bool
	// PLTCFA is the expression for the CFA that GNU ld writes for a whole PLT, if it writes one: EntryCFA from SP, and
	// 8 more from some byte of each entry on. pltByte stands for the operation with the number of that byte.
	PLTCFA []byte

	MaxPage  uint64 // the largest pages
	HashWord int    // a word of DT_HASH
	// MappingSymbols says that assemblers mark code and data by symbols $x and $d.
	MappingSymbols bool
	// Fields are the relocations of objects in sections that the linker does not load as code, by type.
	Fields map[uint32]Field
	// Relative are the types of dynamic relocations without a symbol whose addend is an address of
	// the file: R_*_RELATIVE, which comes first, and R_*_IRELATIVE.
	Relative []uint32
}

// A Field is what a relocation fills in.
type Field struct {
	Size   int  // in bytes: 4 or 8
	PCRel  bool // counts from the field's own address
	Signed bool // absolute, but extended with its sign
}

// all are the machines, in the order in which they are named.
var all = [...]*Arch{&amd64, &aarch64, &s390x}

// Of returns what is known of a machine, or nil if SFrame is not defined for it.
func Of(m elf.Machine) *Arch {
	for _, a := range all {
		if a.Machine == m {
			return a
		}
	}
	return nil
}

// OfABI returns the machine of an SFrame ABI, or nil for an unknown one.
func OfABI(abi sframe.ABI) *Arch {
	for _, a := range all {
		if abi != 0 && (a.Little == abi || a.Big == abi) {
			return a
		}
	}
	return nil
}

// ErrABI is the error of a machine, or a byte order of it, that SFrame is not defined for.
var ErrABI = errors.New("no SFrame ABI that is supported")

// Find returns what is known of a machine, and its SFrame ABI in the given byte order. It is an
// error if there is none.
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

// PCRelType returns the relocation type of a field of size bytes, 4 or 8, that counts from
// its own address, and whether the machine has one.
func (a *Arch) PCRelType(size int) (uint32, bool) {
	for t, f := range a.Fields {
		if f == (Field{Size: size, PCRel: true}) {
			return t, true
		}
	}
	return 0, false
}

// PushAt returns from which byte on a PLT entry has 8 more bytes on the stack, and whether cfa is PLTCFA.
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

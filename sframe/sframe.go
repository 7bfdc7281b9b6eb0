// Package sframe is the SFrame format: the contents of sections, the versions and ABIs of the format, encoding and
// decoding. It depends on the standard library only.
//
// An SFrame section describes functions. A function descriptor entry (FDE) names a range of code, and has a list of
// frame row entries (FREs). Each FRE holds from its start address to the next FRE's. A row says how to find the
// canonical frame address (CFA), and from it the return address (RA) and the caller's frame pointer (FP). The CFA
// implies the caller's stack pointer.
//
// FromELF and Decode return a Section, in which Lookup finds the row for a pc. A Codec encodes and decodes the parts of
// a section: header, FDEs and rows. Layout says what a version can express; Codec.Default and Codec.Flexible, whether
// it can express a row.
//
// Names of sections in the comments below are those of "The SFrame format", version 2 errata 1; for version 3, those of
// binutils' include/sframe.h.
//
// Not in this package: which functions share rows (package emit), which rows they have (package translate), and whether
// they are correct (package verify).
package sframe

import "fmt"

// Magic is the first field of a section, in the byte order of its ABI (section
// "SFrame Magic Number and Endianness").
const Magic = 0xdee2

// SectionName is the name of the section in an ELF file.
const SectionName = ".sframe"

// Section and segment types of linked files (ELF vocabulary, since errata 1).
const (
	SHTGNUSFrame = 0x6ffffff4
	PTGNUSFrame  = 0x6474e554
)

// Flags are the section-wide flags of the preamble (section "SFrame Flags").
type Flags uint8

const (
	FDESorted         Flags = 1 << 0 // FDEs are sorted by start address
	FramePointer      Flags = 1 << 1 // every function keeps a frame pointer
	FDEFuncStartPCRel Flags = 1 << 2 // start addresses count from their own field (errata 1)
)

// A Base is the value from which a rule's offset counts.
type Base uint8

const (
	None     Base = iota // no rule: FP keeps its value, and RA is in its register, unless the header has fixed offsets
	CFA                  // the canonical frame address
	SP                   // the stack pointer
	FP                   // the frame pointer
	Register             // the register Reg
)

var baseNames = [...]string{None: "none", CFA: "c", SP: "sp", FP: "fp", Register: "r"}

// A Rule is a value: Base + Offset, loaded from there if Deref.
type Rule struct {
	Offset int32  // in bytes
	Reg    uint16 // DWARF number, for Base Register
	Base   Base
	Deref  bool
}

func (r Rule) String() string {
	if r.Base == None {
		return "u"
	}
	s := baseNames[r.Base]
	if r.Base == Register {
		s += fmt.Sprint(r.Reg)
	}
	s += fmt.Sprintf("%+d", r.Offset)
	if r.Deref {
		return "*(" + s + ")"
	}
	return s
}

// A Row says how to find the caller's frame.
type Row struct {
	CFA, RA, FP Rule
	Signed      bool // the return address is signed (AArch64)
	Outermost   bool // there is no caller: no rule is meaningful (errata 2)
}

// String returns the row's rules, such as "CFA sp+16, RA *(c-8), FP *(c-16)". A missing rule is "u".
func (r Row) String() string {
	if r.Outermost {
		return "outermost"
	}
	s := fmt.Sprintf("CFA %v, RA %v, FP %v", r.CFA, r.RA, r.FP)
	if r.Signed {
		s += ", signed"
	}
	return s
}

// An FRE is a frame row entry: a row and its start.
type FRE struct {
	// Start is the first pc of the row, in bytes from the FDE's start, or from the start of each repetition for a
	// PC-mask FDE.
	Start uint32
	Row
}

// An FDE is a function descriptor entry: a range of code and its attributes.
type FDE struct {
	Start uint64 // address of the first byte
	Size  uint32 // in bytes
	// PCMask is the PC type: FREs are looked up by pc modulo RepSize, the size in bytes of a repeated block. RepSize is
	// zero in V1 and for other FDEs.
	PCMask  bool
	RepSize uint8
	KeyB    bool // return addresses are signed with key B (AArch64)
	Signal  bool // signal frame (V3)
	// Flexible is the type of the FDE (V3): its rows may use any register, dereferenced or not.
	Flexible bool
}

// End returns the address after the last byte.
func (d *FDE) End() uint64 { return d.Start + uint64(d.Size) }

// Ambiguous reports whether readers disagree about the code of the rows, if there are several. Without a repetition
// size (V1), some readers use pc modulo the size of the function, others the distance from its start. If a PC-mask FDE
// starts inside a block, some use pc modulo the repetition size, others the distance from the start.
func (d *FDE) Ambiguous() bool {
	return d.PCMask && (d.RepSize == 0 || d.Start%uint64(d.RepSize) != 0)
}

// An Error describes a malformed section.
type Error struct {
	Off uint64 // in bytes from the start of the section
	Msg string // what is wrong
}

func (e *Error) Error() string { return fmt.Sprintf("%s+%#x: %s", SectionName, e.Off, e.Msg) }

func errorf(off int, format string, args ...any) error {
	return &Error{uint64(off), fmt.Sprintf(format, args...)}
}

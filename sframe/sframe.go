// Package sframe implements the SFrame format: it encodes and decodes sections of all versions and ABIs. It depends
// only on the standard library.
//
//	f, err := elf.Open("program") // debug/elf; for an *elffile.File, see Load
//	if err != nil {
//		return err
//	}
//	section, err := sframe.FromELF(f)
//	if err != nil {
//		return err
//	}
//	if m, ok, err := section.Lookup(0x451); ok && err == nil {
//		fmt.Println(section.ABI.Text(m.Row)) // CFA rbp+16, RA *(c-8), FP *(c-16)
//	}
//
// An SFrame section describes functions. A function descriptor entry (FDE) covers a range of code and has a list of
// frame row entries (FREs). Each FRE applies from its start address to the start of the next FRE. A row says how to
// compute the canonical frame address (CFA), and how to find the return address (RA) and the caller's frame pointer
// (FP) from it. The CFA implies the caller's stack pointer.
//
// A profiler opens a section (Open) and finds the row for each pc (Encoded.Lookup), without decoding the whole section.
// FromELF and Decode check the section and return a Section, which also lists all FDEs and rows. A Codec encodes and
// decodes the parts of a section: header, FDEs and rows. A Layout describes what a version can express. Codec.Default
// and Codec.Flexible report whether a row can be expressed.
//
// Section names quoted in comments are from "The SFrame format", version 2 errata 1; for version 3, comments refer to
// binutils' include/sframe.h.
package sframe

import "fmt"

// Magic is the first field of a section, in the byte order of its ABI (section "SFrame Magic Number and Endianness").
const Magic = 0xdee2

// SectionName is the name of the section in an ELF file.
const SectionName = ".sframe"

// Section and segment types in linked files (ELF constants, since errata 1).
const (
	SHTGNUSFrame = 0x6ffffff4
	PTGNUSFrame  = 0x6474e554
)

// Flags are the flags in the preamble of a section (section "SFrame Flags").
type Flags uint8

const (
	FDESorted         Flags = 1 << 0 // FDEs are sorted by start address
	FramePointer      Flags = 1 << 1 // all functions use a frame pointer
	FDEFuncStartPCRel Flags = 1 << 2 // each start address is relative to its own field (errata 1)
)

// A Base is the value to which a rule adds its offset.
type Base uint8

const (
	None     Base = iota // no rule: FP is unchanged and RA is in its register, unless the header fixes their offsets
	CFA                  // the canonical frame address
	SP                   // the stack pointer
	FP                   // the frame pointer
	Register             // the register Reg
)

var baseNames = [...]string{None: "none", CFA: "c", SP: "sp", FP: "fp", Register: "r"}

// A Rule computes a value: Base + Offset, or the value in memory at that address if Deref is set.
type Rule struct {
	Offset int32  // in bytes
	Reg    uint16 // DWARF number, if Base is Register
	Base   Base
	Deref  bool
}

func (r Rule) String() string { return ABI(0).RuleText(r) }

// RuleText is like Rule.String, but names the register of a rule with base Register.
func (a ABI) RuleText(r Rule) string {
	if r.Base == None {
		return "none"
	}
	s := baseNames[r.Base]
	if r.Base == Register {
		s = a.Register(uint64(r.Reg))
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
	Outermost   bool // there is no caller, and the rules are meaningless (errata 2)
}

// String returns the row's rules, for example "CFA sp+16, RA *(c-8), FP *(c-16)". A missing rule is "none".
func (r Row) String() string { return r.text(0) }

// text is String with the names of an ABI's registers.
func (r Row) text(a ABI) string {
	if r.Outermost {
		return "outermost"
	}
	s := fmt.Sprintf("CFA %s, RA %s, FP %s", a.RuleText(r.CFA), a.RuleText(r.RA), a.RuleText(r.FP))
	if r.Signed {
		s += ", signed"
	}
	return s
}

// An FRE is a frame row entry: a row and its start.
type FRE struct {
	// Start is the offset of the row's first pc in bytes from the start of the FDE, or of the repeated block of a
	// PC-mask FDE.
	Start uint32
	Row
}

// An FDE is a function descriptor entry: a range of code and its attributes.
type FDE struct {
	Start uint64 // address of the first byte
	Size  uint32 // in bytes
	// PCMask is the PC type: FREs are looked up by pc modulo RepSize, the size in bytes of a repeated block. RepSize is
	// 0 in V1 and if PCMask is false.
	PCMask  bool
	RepSize uint8
	KeyB    bool // return addresses are signed with the B key (AArch64)
	Signal  bool // signal frame (V3)
	// Flexible is the FDE type (V3): rules may be based on any register and may be dereferenced.
	Flexible bool
}

// End returns the address after the last byte of the FDE.
func (d *FDE) End() uint64 { return d.Start + uint64(d.Size) }

// Ambiguous reports whether readers may find different rows for the same pc of an FDE with several rows. In a PC-mask
// FDE without a repetition size (V1), some readers use pc modulo the size of the function, others the offset from its
// start. If a PC-mask FDE does not start at a multiple of its repetition size, some readers use pc modulo that size,
// others the offset from the start modulo that size.
func (d *FDE) Ambiguous() bool {
	return d.PCMask && (d.RepSize == 0 || d.Start%uint64(d.RepSize) != 0)
}

// An Error describes a malformed section.
type Error struct {
	Off uint64 // offset from the start of the section in bytes
	Msg string
}

func (e *Error) Error() string { return fmt.Sprintf("%s+%#x: %s", SectionName, e.Off, e.Msg) }

func errorf(off int, format string, args ...any) error {
	return &Error{uint64(off), fmt.Sprintf(format, args...)}
}

// Package sframe is the vocabulary of the SFrame format: the types that say what
// an SFrame section says, the constants and record layouts of its versions, and
// Decode, which reads a section back.
//
// An SFrame section describes functions. A function descriptor entry (FDE) names
// a range of code, and has a list of frame row entries (FREs), each holding from
// its start address to the next one's. A row says how to find the canonical frame
// address (CFA), and from it the return address (RA) and the caller's frame
// pointer (FP). The caller's stack pointer is implied by the CFA.
//
// Names of sections below are those of "The SFrame format", version 2 errata 1.
// Writing a section is package emit's work, and registers are known here only by
// their role: which DWARF register is SP or FP is for those who know the ABI.
package sframe

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Magic is the first field of a section, in the byte order of its ABI (section
// "SFrame Magic Number and Endianness").
const Magic = 0xdee2

// Section and segment types of linked files (ELF vocabulary, since errata 1).
const (
	SHTGNUSFrame = 0x6ffffff4
	PTGNUSFrame  = 0x6474e554
)

// A Version is a version of the format.
type Version uint8

const (
	V1 Version = 1 // binutils 2.40
	V2 Version = 2 // binutils 2.41, with errata 1 in 2.45
	V3 Version = 3 // binutils 2.46
)

func (v Version) String() string { return fmt.Sprintf("SFRAME_VERSION_%d", uint8(v)) }

// A Layout says how a version's records are laid out and what they can say.
// Sizes are in bytes.
type Layout struct {
	HeaderSize int // without the auxiliary header
	FDESize    int // of a function descriptor; in V3 of its index entry
	AttrSize   int // of the attribute before a function's FREs, or 0
	StartSize  int // of the start address in a function descriptor
	Flags      Flags
	MaxFREs    uint32 // of one function
	ABIs       []ABI

	PCRel     bool // start addresses always count from their own field
	RepSize   bool // PC-mask FDEs give the size of their blocks
	Signal    bool // FDEs can mark signal frames
	Flexible  bool // FDEs of the flexible type: rules may use any register, dereferenced or not
	Outermost bool // rows without data words mean that there is no caller, for every reader of the version
	RegWords  bool // s390x: a data word with its lowest bit set is a register number
}

var layouts = [...]Layout{
	V1: {
		HeaderSize: 28, FDESize: 17, StartSize: 4, MaxFREs: math.MaxUint32, Flags: FDESorted | FramePointer,
		ABIs: []ABI{AArch64Big, AArch64Little, AMD64Little},
	},
	V2: {
		HeaderSize: 28, FDESize: 20, StartSize: 4, MaxFREs: math.MaxUint32, Flags: FDESorted | FramePointer | FDEFuncStartPCRel,
		ABIs:    []ABI{AArch64Big, AArch64Little, AMD64Little, S390XBig},
		RepSize: true, RegWords: true,
	},
	V3: {
		HeaderSize: 28, FDESize: 16, AttrSize: 5, StartSize: 8, MaxFREs: math.MaxUint16, Flags: FDESorted | FDEFuncStartPCRel,
		ABIs:  []ABI{AArch64Big, AArch64Little, AMD64Little, S390XBig},
		PCRel: true, RepSize: true, Signal: true, Flexible: true, Outermost: true,
	},
}

// layout returns the version's layout, or an empty one.
func (v Version) layout() *Layout {
	if int(v) < len(layouts) {
		return &layouts[v]
	}
	return &layouts[0]
}

// Layout returns the version's layout, and whether the version is known.
func (v Version) Layout() (Layout, bool) {
	l := v.layout()
	return *l, l.HeaderSize > 0
}

// Flags are the section-wide flags of the preamble (section "SFrame Flags").
type Flags uint8

const (
	FDESorted         Flags = 1 << 0 // FDEs are sorted by start address
	FramePointer      Flags = 1 << 1 // every function keeps a frame pointer
	FDEFuncStartPCRel Flags = 1 << 2 // start addresses count from their own field (errata 1)
)

// An ABI is an ABI and byte order (section "SFrame ABI/arch Identifier").
type ABI uint8

const (
	AArch64Big    ABI = 1
	AArch64Little ABI = 2
	AMD64Little   ABI = 3
	S390XBig      ABI = 4
)

// An abiInfo holds what the format fixes for an ABI.
type abiInfo struct {
	name    string
	order   Order
	fixedRA int8   // offset in bytes of the RA slot from the CFA; 0: RA is tracked row by row
	sp, fp  uint16 // DWARF register numbers, which flexible FDEs use
	// A data word of the CFA's offset is (offset - cfaBias) / cfaScale.
	cfaBias, cfaScale int32
	// Data words are CFA, RA, FP. padRA says that an FP without an RA has a word 0
	// in RA's place, and regWords that words may be register numbers.
	padRA, regWords bool
}

var abis = [...]abiInfo{
	AArch64Big:    {name: "aarch64_be", order: binary.BigEndian, sp: 31, fp: 29, cfaScale: 1},
	AArch64Little: {name: "aarch64", order: binary.LittleEndian, sp: 31, fp: 29, cfaScale: 1},
	AMD64Little:   {name: "amd64", order: binary.LittleEndian, fixedRA: -8, sp: 7, fp: 6, cfaScale: 1},
	S390XBig:      {name: "s390x", order: binary.BigEndian, sp: 15, fp: 11, cfaBias: 160, cfaScale: 8, padRA: true, regWords: true},
}

// info returns what is known of the ABI, or an empty one.
func (a ABI) info() *abiInfo {
	if int(a) < len(abis) {
		return &abis[a]
	}
	return &abis[0]
}

func (a ABI) String() string {
	if i := a.info(); i.name != "" {
		return i.name
	}
	return fmt.Sprintf("ABI(%d)", uint8(a))
}

// An Order reads and appends integers in one byte order.
type Order interface {
	binary.ByteOrder
	binary.AppendByteOrder
}

// Order returns the byte order of the ABI, or nil for an unknown ABI.
func (a ABI) Order() Order { return a.info().order }

// FixedRA returns the offset in bytes from the CFA at which every function's
// return address is saved, for the header's field of that name. Zero means that
// rows track it.
func (a ABI) FixedRA() int8 { return a.info().fixedRA }

// FREType is the width of the start addresses of a function's FREs (section
// "The SFrame FRE Types").
type FREType uint8

const (
	Addr1 FREType = iota // 1 byte
	Addr2                // 2 bytes
	Addr4                // 4 bytes
)

// Size returns the width in bytes.
func (t FREType) Size() int { return 1 << t }

// Bits of the FDE info word (section "The SFrame FDE Info Word"), from bit 0:
// FREType in four bits, then these.
const (
	FDEInfoFREType = 0x0f
	FDEInfoPCMask  = 1 << 4
	FDEInfoKeyB    = 1 << 5
	FDEInfoSignal  = 1 << 7 // V3
)

// FDE types of V3, in the second info byte of the attribute.
const (
	FDETypeDefault  = 0
	FDETypeFlexible = 1
)

// Bits of the control word that comes before each offset word in flexible FDEs. A
// control word of zero means that there is no rule, and no offset word follows.
const (
	ControlReg      = 1 << 0 // the register in the bits from ControlRegShift on is the base, not the CFA
	ControlDeref    = 1 << 1 // the value is in memory there
	ControlRegShift = 3
)

// Bits of the FRE info word (section "The SFrame FRE Info Word").
const (
	FREInfoSP        = 1 << 0 // CFA is based on SP, not FP
	FREInfoCount     = 1      // shift of the number of data words, four bits
	FREInfoSize      = 5      // shift of the binary logarithm of their size in bytes, two bits
	FREInfoMangledRA = 1 << 7 // return address is signed
)

// RowSize returns the size in bytes of a row with the given FRE info word: of that and of the
// data words, without the start address.
func RowSize(info byte) int {
	return 1 + int(info>>FREInfoCount&0xf)<<(info>>FREInfoSize&3)
}

// A Base is what a rule's offset counts from.
type Base uint8

const (
	None     Base = iota // no rule: FP keeps its value; RA is at the ABI's fixed offset or in its register
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

// An FRE is a frame row entry.
type FRE struct {
	// Start is the first pc the row holds for, in bytes from the FDE's start,
	// or from the start of each repetition for a PC-mask FDE.
	Start uint32

	CFA, RA, FP Rule
	Signed      bool // the return address is signed (AArch64)
	Outermost   bool // there is no caller: no rule is meaningful (errata 2)
}

// SameRow reports whether a and b say the same, wherever they start.
func SameRow(a, b *FRE) bool {
	return a.CFA == b.CFA && a.RA == b.RA && a.FP == b.FP && a.Signed == b.Signed && a.Outermost == b.Outermost
}

// An FDE is a function descriptor entry: a range of code and its attributes.
type FDE struct {
	Start uint64 // address of the first byte
	Size  uint32 // in bytes
	// PCMask is the PC type: the FREs are looked up by pc modulo RepSize, the size
	// in bytes of a repeated block. V1 has no RepSize; it is zero there, and for
	// other FDEs.
	PCMask  bool
	RepSize uint8
	KeyB    bool // return addresses are signed with key B (AArch64)
	Signal  bool // signal frame (V3)
	// Flexible is the type of a decoded FDE (V3). For one that is to be encoded
	// it follows from the rows.
	Flexible bool
}

// End returns the address behind the last byte.
func (d *FDE) End() uint64 { return d.Start + uint64(d.Size) }

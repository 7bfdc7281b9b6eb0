package sframe

import (
	"fmt"
	"math"
)

// A Version is a version of the format.
type Version uint8

const (
	V1 Version = 1 // binutils 2.40
	V2 Version = 2 // binutils 2.41, with errata 1 in 2.45
	V3 Version = 3 // binutils 2.46
)

func (v Version) String() string { return fmt.Sprintf("SFRAME_VERSION_%d", uint8(v)) }

// A Layout describes the records of a version and what they can express. Sizes are in bytes.
type Layout struct {
	HeaderSize int // size without the auxiliary header
	FDESize    int // size of a function descriptor entry; in V3, of its index entry
	AttrSize   int // size of the attribute before a function's FREs, or 0 if there is none
	StartSize  int // size of the start address in a function descriptor entry
	Flags      Flags
	MaxFREs    uint32 // per function
	ABIs       []ABI

	PCRel     bool // each start address is relative to its own field, regardless of flags
	RepSize   bool // PC-mask FDEs have a repetition size
	Signal    bool // FDEs can mark signal frames
	Flexible  bool // FDEs may be flexible: rules may use any register, dereferenced or not
	Outermost bool // a row without data words means that there is no caller
	Errata2   bool // for readers that implement errata 2, a row without data words means that there is no caller
	RegWords  bool // s390x: a data word with its lowest bit set is a register number
	Objects   bool // linkers merge the sections of relocatable objects
}

// layouts holds all differences between versions.
var layouts = [...]Layout{
	V1: {
		HeaderSize: 28, FDESize: 17, StartSize: 4, MaxFREs: math.MaxUint32, Flags: FDESorted | FramePointer,
		ABIs: []ABI{AArch64Big, AArch64Little, AMD64Little},
	},
	V2: {
		HeaderSize: 28, FDESize: 20, StartSize: 4, MaxFREs: math.MaxUint32,
		Flags:   FDESorted | FramePointer | FDEFuncStartPCRel,
		ABIs:    []ABI{AArch64Big, AArch64Little, AMD64Little, S390XBig},
		Errata2: true, RepSize: true, RegWords: true, Objects: true,
	},
	V3: {
		HeaderSize: 28, FDESize: 16, AttrSize: 5, StartSize: 8, MaxFREs: math.MaxUint16,
		Flags: FDESorted | FDEFuncStartPCRel,
		ABIs:  []ABI{AArch64Big, AArch64Little, AMD64Little, S390XBig},
		PCRel: true, RepSize: true, Signal: true, Flexible: true, Outermost: true, Errata2: true, Objects: true,
	},
}

// Versions returns all versions, oldest first.
func Versions() []Version {
	var all []Version
	for v := range layouts {
		if layouts[v].HeaderSize != 0 {
			all = append(all, Version(v))
		}
	}
	return all
}

// layout returns the version's layout. It is zero for an unknown version.
func (v Version) layout() *Layout {
	if int(v) < len(layouts) {
		return &layouts[v]
	}
	return &layouts[0]
}

// Layout returns the version's layout, and whether the version is known.
func (v Version) Layout() (Layout, bool) {
	l := v.layout()
	return *l, l.HeaderSize != 0
}

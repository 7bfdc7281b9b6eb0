package translate

import "cfi2sframe/sframe"

// DWARF for the Arm 64-bit Architecture, "DWARF register names". The two byte
// orders differ in nothing else.
var (
	aarch64   = abi{id: sframe.AArch64Little, sp: 31, fp: 29, ra: 30, pc: 32, names: aarch64Names}
	aarch64BE = abi{id: sframe.AArch64Big, sp: 31, fp: 29, ra: 30, pc: 32, names: aarch64Names}
)

var aarch64Names = []string{
	"x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10",
	"x11", "x12", "x13", "x14", "x15", "x16", "x17", "x18", "x19", "x20",
	"x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", "x29", "x30", "sp",
}

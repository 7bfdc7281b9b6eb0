package sframe

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// An ABI identifies a processor ABI and its byte order (section "SFrame ABI/arch Identifier").
type ABI uint8

const (
	AArch64Big    ABI = 1
	AArch64Little ABI = 2
	AMD64Little   ABI = 3
	S390XBig      ABI = 4
)

// An abiInfo holds the format's constants for an ABI.
type abiInfo struct {
	name      string
	order     Order
	fixedRA   int8   // offset of the RA slot from the CFA in bytes; 0: tracked per row
	sp, fp    uint16 // DWARF register numbers, used by flexible FDEs
	registers string // names by DWARF number
	// The data word of a CFA offset is (offset - cfaBias) / cfaScale (section "s390x").
	cfaBias, cfaScale int32
	// Data words are CFA, RA, FP. With padRA, a row with an FP but no RA has a zero RA word. With regWords, words may
	// be register numbers.
	padRA, regWords bool
}

// abis holds the constants of each ABI.
var abis = [...]abiInfo{
	AArch64Big:    {name: "aarch64_be", order: binary.BigEndian, sp: 31, fp: 29, cfaScale: 1, registers: aarch64Names},
	AArch64Little: {name: "aarch64", order: binary.LittleEndian, sp: 31, fp: 29, cfaScale: 1, registers: aarch64Names},
	AMD64Little: {name: "amd64", order: binary.LittleEndian, fixedRA: -8, sp: 7, fp: 6, cfaScale: 1,
		registers: "rax rdx rcx rbx rsi rdi rbp rsp r8 r9 r10 r11 r12 r13 r14 r15 rip"},
	S390XBig: {name: "s390x", order: binary.BigEndian, sp: 15, fp: 11, cfaBias: 160, cfaScale: 8, padRA: true,
		regWords: true, registers: "r0 r1 r2 r3 r4 r5 r6 r7 r8 r9 r10 r11 r12 r13 r14 r15 " +
			"f0 f2 f4 f6 f1 f3 f5 f7 f8 f10 f12 f14 f9 f11 f13 f15"},
}

const aarch64Names = "x0 x1 x2 x3 x4 x5 x6 x7 x8 x9 x10 x11 x12 x13 x14 x15 x16 x17 x18 x19 x20 x21 x22 x23 x24 x25 " +
	"x26 x27 x28 x29 x30 sp"

// info returns the abiInfo of the ABI. It is zero for an unknown ABI.
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

// FixedRA returns the fixed offset of the return address from the CFA in bytes, as in the header. If it is 0, each row
// locates the return address.
func (a ABI) FixedRA() int8 { return a.info().fixedRA }

// SP returns the DWARF number of the stack pointer, as used in flexible FDEs.
func (a ABI) SP() uint16 { return a.info().sp }

// FP returns the DWARF number of the frame pointer, as used in flexible FDEs.
func (a ABI) FP() uint16 { return a.info().fp }

// Register returns the name of the register with a DWARF number, for example "rbp"; if it has none, "r" and the number.
func (a ABI) Register(n uint64) string {
	if names := strings.Fields(a.info().registers); n < uint64(len(names)) {
		return names[n]
	}
	return fmt.Sprint("r", n)
}

// Text is like Row.String, but with the names of registers: "CFA rbp+16, RA *(c-8), FP *(c-16)".
func (a ABI) Text(r Row) string { return a.Normal(r).text(a) }

// SameRow reports whether two rows are equivalent. Rows of flexible FDEs refer to SP and FP by register number.
func (a ABI) SameRow(x, y Row) bool { return a.Normal(x) == a.Normal(y) }

// Normal returns the row with SP and FP replaced by their register numbers. Two rows are equivalent if and only if
// their normal forms are equal.
func (a ABI) Normal(r Row) Row {
	for _, rule := range []*Rule{&r.CFA, &r.RA, &r.FP} {
		switch rule.Base {
		case SP:
			rule.Base, rule.Reg = Register, a.SP()
		case FP:
			rule.Base, rule.Reg = Register, a.FP()
		}
	}
	return r
}

// Package translate translates CFI rows to SFrame.
//
//	builder, err := emit.NewBuilder(emit.Options{Version: sframe.V3, ABI: translate.ABIOf(table), Join: true})
//	if err != nil {
//		return err
//	}
//	rows, err := translate.Translate(table, translate.Options{Version: sframe.V3, Moves: f.Moves}, builder)
//	if err != nil {
//		return err
//	}
//	fmt.Println(rows.Covered, "of", rows.Described, "bytes of code have rows; gaps:", len(rows.Gaps))
//
// Each row of a function becomes an FRE, or a gap with a Reason if the version cannot express it. A gap affects only
// its pc range: package emit receives each maximal run of expressible rows as a function. DWARF expressions are
// translated if they amount to a register, an offset and a load. The row that GNU ld emits for a PLT, whose CFA depends
// on the pc, becomes a PC-mask FDE.
package translate

import (
	"cfi2sframe/cfi"
	"cfi2sframe/internal/amounts"
	"cfi2sframe/internal/arch"
	"cfi2sframe/internal/plt"
	"cfi2sframe/sframe"
)

// Types of parameters and results.
type (
	Amounts    = amounts.Amounts    // how much code can be unwound, in bytes
	Restricted = amounts.Restricted // the parts of Amounts.Covered whose rows not all readers can use
	Stub       = plt.Stub           // a PLT stub: Begin, End, and Steps in ascending order
	Step       = plt.Step           // from an instruction of a Stub: Offset, CFA (minus SP), RA (from the CFA)
)

// ABIOf returns the SFrame ABI for a table's machine and byte order, or 0.
func ABIOf(t *cfi.Table) sframe.ABI {
	_, abi, _ := arch.Find(t.Machine, t.Order)
	return abi
}

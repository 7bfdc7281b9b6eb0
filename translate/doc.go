// Package translate translates CFI rows to SFrame.
//
// Each row of a function becomes an FRE, or a gap with a Reason if the version cannot express it. A gap affects only
// its pc range: package emit receives each maximal run of expressible rows as a function. DWARF expressions are
// translated if they amount to a register, an offset and a load.
//
// The row that GNU ld emits for a PLT, whose CFA depends on the pc, becomes a PC-mask FDE.
//
// Package emit encodes the result. Package verify checks it and shares no code with this package.
package translate

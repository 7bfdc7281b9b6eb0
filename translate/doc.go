// Package translate maps CFI rows to SFrame.
//
// Each row of a function becomes an FRE, or a gap with a Reason if the version has no form for it. A gap affects only
// its own pc range: each longest run of rows with a form is a function for package emit. DWARF expressions are
// translated if they amount to a register, an offset and a load.
//
// The row that GNU ld writes for a PLT, with a CFA that depends on the pc, becomes a PC-mask FDE.
//
// Not in this package: the encoding (package emit), and the check of the result (package verify, which shares no code
// with this one).
package translate

// Package translate maps CFI rows to SFrame.
//
// Each row of a function becomes an FRE, or a gap with a typed Reason when the
// version has no form for it. A gap costs its own pc range only: every maximal run
// of expressible rows is an FDE. DWARF expressions that are a register, an offset
// and a load are taken as that.
//
// The row that GNU ld writes for a PLT, with a CFA that depends on the pc, becomes
// a PC-mask FDE.
//
// Not in here: the encoding (package emit), and the check of the result (package
// verify, which shares no code with this one).
package translate

// Package translate maps CFI rows to SFrame.
//
// Each row of a function becomes an FRE, or a gap with a typed Reason when the
// version at hand has no form for it. A gap costs its own pc range only: every
// maximal run of expressible rows is an FDE of its own. What counts is what a row
// means, not how it is spelled: DWARF expressions are evaluated symbolically, and
// those that come down to a register, an offset and a load are taken as that.
//
// Rows whose CFA depends on the pc, as linkers write for the PLT, are evaluated
// for every pc and become PC-mask FDEs where the outcome repeats.
//
// Not in here: how anything is encoded (package emit), and the check of what was
// encoded (package verify, which shares no code with this one).
package translate

// Package cfi reads DWARF call frame information and executes it into rows.
//
// Load finds the .eh_frame of an ELF file, linked or an object (through section headers or, without
// them, through PT_GNU_EH_FRAME), and its .debug_frame (plain, SHF_COMPRESSED or .zdebug_frame); Parse
// takes sections in memory. Both decode the CIE and FDE records, execute the instructions, and return a
// Table of functions that do not overlap, by address. A function has rows: each is a range of
// addresses with the rules for the CFA, the return address, the frame pointer and the stack pointer,
// which is all that a stack trace needs. Other registers' rules are decoded and passed over.
//
//	for fn := range table.Functions() {
//		for row := range fn.Rows() {
//			... row.Begin, row.End, row.CFA, row.RA ...
//		}
//	}
//
// A program has many rows, and few rules that differ: these are numbered, and rows with the same
// Number have the same rules. So are the instructions of functions: those with the same
// Function.Program have the same rows. What was worked out for one can be used for others.
//
// In: CIE versions 1, 3 and 4; 32-bit and 64-bit DWARF; both byte orders; the
// augmentations z, R, P, L, S, B, G and eh (S, B and G also without z); every DW_EH_PE pointer form; every
// DW_CFA opcode of DWARF 5 and the GNU, MIPS and AArch64 ones in use. What a
// damaged record costs is that record: it is reported with its offset, and the
// others are read.
//
// Out: evaluating DWARF expressions (rules carry them as bytes), and any notion of SFrame.
//
// # Vocabulary
//
// The rule type and its kinds are those of github.com/go-delve/delve's pkg/dwarf/frame, where they say what DWARF says.
// That package's reader (v1.27.2) is not used: it assumes little-endian sections, rejects a whole section for one
// unknown augmentation, panics on truncated records, and executes a function from its start for each row.
//
// A register without a rule has RuleArchitectural, which is not RuleUndefined: the ABI defines its value
// (callee-saved registers keep it, and SP is derived from the CFA).
package cfi

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
// The rule type and its kinds are those of github.com/go-delve/delve's
// pkg/dwarf/frame, where they say what DWARF says; they also have names here. That package's own
// reader is not used; as of v1.27.2 it
//   - reads lengths and CIE ids as little-endian, so that a big-endian section
//     yields no function and no error;
//   - knows neither AArch64's negate_ra_state nor GNU_negative_offset_extended;
//   - takes DW_CFA_restore to mean "undefined" instead of the CIE's rule, and
//     does not factor val_offset;
//   - rejects a whole section for one unknown augmentation, has no 64-bit
//     DWARF, and panics on truncated records and unbalanced restore_state;
//   - executes a function from its start for each row.
//
// A register that has no rule has RuleArchitectural here: what that means is
// the ABI's to say (callee-saved registers keep their value, and SP is derived
// from the CFA), and it is not the same as an explicit RuleUndefined.
package cfi

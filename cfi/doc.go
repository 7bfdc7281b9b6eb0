// Package cfi reads DWARF call frame information and executes it into rows.
//
// Load finds the .eh_frame of a linked file or an object (through section headers, or else PT_GNU_EH_FRAME) and its
// .debug_frame (plain, SHF_COMPRESSED or .zdebug_frame). Parse takes sections in memory. Both return a Table of
// functions by address, without overlaps. A function has rows: ranges of addresses with the rules for the CFA, the
// return address, the frame pointer and the stack pointer. Rules of other registers are decoded and dropped.
//
//	for fn := range table.Functions() {
//		for row := range fn.Rows() {
//			... row.Begin, row.End, row.CFA, row.RA ...
//		}
//	}
//
// A file has many rows, but few distinct rules. Rows with the same Number have the same rules, and functions with the
// same Program have the same rows, so that later work can be done once for each.
//
// In: CIE versions 1, 3 and 4; 32-bit and 64-bit DWARF; both byte orders; the augmentations z, R, P, L, S, B, G and eh
// (S, B and G also without z); every DW_EH_PE pointer form; every DW_CFA opcode of DWARF 5 and the GNU, MIPS and
// AArch64 ones in use. A damaged record is reported with its offset, and the others are read.
//
// Out: evaluating DWARF expressions (rules contain them as bytes), and any notion of SFrame.
//
// The rule type and its kinds are those of github.com/go-delve/delve's pkg/dwarf/frame, where they say what DWARF says.
// That package's reader (v1.27.2) is not used: it assumes little-endian sections, rejects a whole section for one
// unknown augmentation, panics on truncated records, and executes a function from its start for each row.
//
// A register without a rule has RuleArchitectural, which is not RuleUndefined: the ABI defines its value
// (callee-saved registers keep it, and SP is derived from the CFA).
package cfi

// Package cfi decodes DWARF call frame information (CFI) and executes it to get rows.
//
//	table, err := cfi.Load(f, cfi.Auto, nil) // f is from package elffile
//	if err != nil {
//		return err
//	}
//	if fn := table.Find(symbols["main"].Value); fn != nil {
//		for row := range fn.Rows() {
//			fmt.Printf("%#x: %s\n", row.Begin, table.Text(row.Rules)) // 0x401136: CFA rsp+8, RA c-8, ...
//		}
//	}
//
// Load finds .eh_frame in a linked file or object (through section headers, or else PT_GNU_EH_FRAME), and .debug_frame
// (plain, SHF_COMPRESSED or .zdebug_frame). Parse decodes sections in memory. Both return a Table of non-overlapping
// functions sorted by address. A function has rows: address ranges with rules for the CFA, the return address, the
// frame pointer and the stack pointer. Rules for other registers are decoded and dropped.
//
// A file has many rows, but few distinct rules. Rows with the same Number have the same rules, and functions with the
// same Program have the same rows, so clients can process each only once.
//
// Supported: CIE versions 1, 3 and 4; 32-bit and 64-bit DWARF; both byte orders; augmentations z, R, P, L, S, B, G and
// eh (S, B and G also without z); all DW_EH_PE pointer encodings; all DW_CFA opcodes of DWARF 5 and the GNU, MIPS and
// AArch64 extensions in use. A malformed record is reported with its offset, and the remaining records are decoded.
//
// The package does not evaluate DWARF expressions (rules contain them as bytes). Rules use the type and kinds of
// github.com/go-delve/delve/pkg/dwarf/frame, which follow the DWARF standard.
//
// A register without a rule has RuleArchitectural, which differs from RuleUndefined: the ABI defines its value
// (callee-saved registers are preserved, and SP is derived from the CFA).
package cfi

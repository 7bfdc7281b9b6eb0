// Package elfwrite adds a loaded .sframe section to an ELF file, replaces one, or removes it.
//
// Plan finds a layout for a section of a given size, and with it the section's address. Write then produces the new
// file: mostly copies of ranges of the old one, with new headers. PlanRemoval, PlanObject and PlanDebug do the same for
// a file that is to lose its section, for a relocatable object, and for the debug file of a program. PlanDetached is for
// a separate file with the section, and PlanInto for bytes that a linker script reserves: no header changes.
//
// # Layout
//
// A layout is made in steps. Each has a result, which does not change afterwards: the old file (program), the space of
// the program headers and what moves for it (table), the new segment (segment), and where each part of the old file is
// in the new one (move).
//
// The program header table stays at its offset, because loaders and tools compute its address from e_phoff. It grows by
// two entries, PT_LOAD and PT_GNU_SFRAME. Their space comes from, in this order:
//
//   - unused entries: PT_NULL, a PT_GNU_SFRAME without a section, or those of the .sframe that is replaced;
//   - unused bytes after the table: zeros, what patchelf left, section headers and the old .sframe;
//   - the sections after the table that can move (see below). The fewest bytes that suffice go to the new segment, and
//     the other sections after the table again;
//   - unused bytes after the segment that holds the table, which grows by them;
//   - adjacent PT_NOTEs, which are merged. This comes before many bytes have to move;
//   - a PT_NOTE that repeats PT_GNU_PROPERTY. Loaders and kernels read the latter;
//   - in an executable with fixed addresses, a page before everything: static ones have .rela.plt after the table,
//     which cannot move. See insertPage.
//
// The new segment is read-only, last in address order, and begins with .sframe. In the file it follows the last PT_LOAD.
// Contents that are not loaded move up by a multiple of their alignment.
//
// # What can move
//
// A section can move if only headers or dynamic entries lead to it, which are changed with it:
//
//   - .interp, by PT_INTERP;
//   - .gnu.hash, .hash, .dynsym, .dynstr, .gnu.version*, .rela.dyn and .relr.dyn, by the dynamic entry with their
//     address;
//   - notes, by PT_NOTE and PT_GNU_PROPERTY, all in one of these together, if their readers find them by headers
//     (headerNotes). Code may have the address of others. They stay in the segment with the ELF header:
//     runtimes look for them in memory at __ehdr_start + p_offset, as compiler-rt's profile writer does. The build-id
//     stays in the first page, where debuggers and kernels look for it in core files.
//
// None of them moves if anything else refers to it: another header or dynamic entry, a symbol that code may use, or a
// relocation. Nor do notes whose section name is an identifier, for which linkers define __start_ and __stop_ symbols.
// In stripped files, an address in code cannot be detected. Without section headers, no loaded bytes count as unused.
//
// # Again, and back
//
// Replacing .sframe gives the same layout as adding it. When it is removed, sections return to where linkers have them:
// after the table, without gaps, in the order of the section headers. That restores the original bytes of nearly every
// file. Without section headers, program headers become PT_NULL. An .sframe of a linker is replaced in place if the new
// one fits.
//
// Program interpreters (ld.so) get a layout that old kernels load, for which the size of .sframe has to be a multiple
// of SizeMultiple. In relocatable objects, .sframe and its relocations come last, and nothing else changes.
package elfwrite

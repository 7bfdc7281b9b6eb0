// Package elfwrite adds a loaded .sframe section to an ELF file, replaces one, or takes
// it out again.
//
// Plan finds a layout for a section of a given size, and with it the address that
// the section will have. Write then produces the new file: mostly copies of
// ranges of the old one, with the headers and what refers to moved parts
// rewritten. PlanRemoval and PlanObject do the same for a file that is to lose its
// section, and for a relocatable object.
//
// # Layout
//
// The program header table stays where it is, because loaders and tools compute
// its address from e_phoff. The two entries that are needed, PT_LOAD and
// PT_GNU_SFRAME, take their room from, in this order:
//
//   - entries that are unused: PT_NULL, a PT_GNU_SFRAME without a section, or those of
//     the .sframe that is replaced;
//   - unused bytes behind the table: zeros, what patchelf left behind, or section
//     headers, which are written anew elsewhere;
//   - a PT_NOTE that repeats PT_GNU_PROPERTY, which is dropped;
//   - the sections behind the table. Those that are found through program headers
//     (.interp, notes) or dynamic tags (.gnu.hash, .dynsym and the like) can move.
//     The shortest run of them that makes enough room gives up its place; what
//     fits is put back, the build-id note first, and the rest goes to the new
//     segment. Without section headers, .interp and notes are all that can move;
//   - in an executable with fixed addresses, a page in front of everything: static ones
//     have .rela.plt at their head, which cannot move.
//
// The new segment is read-only, last in address order, and begins with .sframe.
// Its bytes go right behind those of the last PT_LOAD in the file; what is not
// loaded (debug information, symbols, section headers) moves up by a multiple of
// its alignment. Bytes behind everything the headers know of stay at the end.
//
// A segment of this kind is laid out anew when .sframe is replaced: what comes out
// does not depend on what was there before. An .sframe that a linker made is replaced
// where it is, if the new one has room there.
//
// Program interpreters (ld.so) get a layout that old kernels load, too; see
// IsInterpreter.
//
// In relocatable objects, .sframe and its relocations come last, and nothing else
// changes.
package elfwrite

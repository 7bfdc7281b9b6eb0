// Package elfwrite adds a loaded .sframe section to a linked ELF file.
//
// Plan finds a layout for a section of a given size, and with it the address that
// the section will have. Write then produces the new file: mostly copies of
// ranges of the old one, with the headers and what refers to moved parts
// rewritten.
//
// # Layout
//
// The program header table stays where it is, because loaders and tools compute
// its address from e_phoff. The two entries that are needed, PT_LOAD and
// PT_GNU_SFRAME, take their room from, in this order:
//
//   - entries that are unused: PT_NULL, or a PT_GNU_SFRAME without a section;
//   - unused bytes behind the table: zeros, or what patchelf left behind;
//   - a PT_NOTE that repeats PT_GNU_PROPERTY, which is dropped;
//   - the sections behind the table. Those that are found through program headers
//     (.interp, notes) or dynamic tags (.gnu.hash, .dynsym and the like) can move.
//     The shortest run of them that makes enough room gives up its place; what
//     fits is put back, the build-id note first, and the rest goes to the new
//     segment.
//
// The new segment is read-only, last in address order, and begins with .sframe.
// Its bytes go right behind those of the last PT_LOAD in the file; what is not
// loaded (debug information, symbols, section headers) moves up by a multiple of
// its alignment. Bytes behind everything the headers know of stay at the end.
//
// Program interpreters (ld.so) get a layout that old kernels load, too; see
// IsInterpreter.
//
// Not in here: executables whose head cannot move (static ones, mostly),
// relocatable objects, and files of more than 65,279 sections. Plan refuses them
// with the reason.
package elfwrite

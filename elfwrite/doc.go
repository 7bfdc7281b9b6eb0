// Package elfwrite adds a loaded .sframe section to an ELF file, replaces it, or removes it.
//
// Plan computes a layout for a section of a given size, which determines the section's address. Write then produces the
// new file: mostly copies of ranges of the old file, with new headers. PlanRemoval plans the removal of a section,
// and PlanObject a section in a relocatable object. PlanDetached plans a separate file with the section. PlanInto uses
// bytes reserved by a linker script, so headers do not change.
//
// # Layout
//
// A layout is computed in steps. The result of each step is immutable: the old file (Program), the space for the
// program headers and the parts that move to make room (table), the new segment (segment), and the new position of each
// part of the old file (move).
//
// The program header table keeps its offset because loaders and tools compute its address from e_phoff. It grows by two
// entries, PT_LOAD and PT_GNU_SFRAME. Their space comes from the first of these that suffices:
//
//   - unused entries: PT_NULL, a PT_GNU_SFRAME without a section, or those of the replaced .sframe;
//   - unused bytes after the table: zeros, patchelf's filler, section headers and the old .sframe;
//   - movable sections after the table (see below). As few bytes as possible move to the new segment; the other
//     sections are placed after the table again;
//   - unused bytes after the segment that contains the table; the segment grows;
//   - adjacent PT_NOTEs, which are merged, unless moving few bytes suffices;
//   - a PT_NOTE that duplicates PT_GNU_PROPERTY, because loaders and kernels read the latter;
//   - in an executable with fixed addresses, a page before all segments, because in static executables .rela.plt
//     follows the table and cannot move. See insertPage.
//
// The new segment is read-only, is the last in address order, and starts with .sframe. In the file it follows the last
// PT_LOAD. Contents that are not loaded move up by a multiple of their alignment. If 32-bit start addresses would not
// reach the code from there, because .bss is large, the segment precedes another one: in a gap between segments, or in
// an executable with fixed addresses, between an inserted page and the first segment.
//
// # What can move
//
// A section can move if it is located only by headers or dynamic entries, which are then updated:
//
//   - .interp, located by PT_INTERP;
//   - .gnu.hash, .hash, .dynsym, .dynstr, .gnu.version*, .rela.dyn and .relr.dyn, located by a dynamic entry;
//   - notes, located by PT_NOTE and PT_GNU_PROPERTY, if their readers use these headers (headerNotes); code may refer
//     to other notes. All notes of a PT_NOTE move together, within the segment that contains the ELF header, because
//     runtimes such as compiler-rt's profile writer compute their address as __ehdr_start + p_offset. The build-id
//     stays in the first page, where debuggers and kernels look for it in core files.
//
// A section does not move if anything else refers to it: another header or dynamic entry, a symbol that code may use,
// or a relocation. Nor do notes whose section name is a C identifier: linkers define __start_ and __stop_ symbols for
// such sections. In stripped files, references from code cannot be detected. Without section headers, loaded bytes
// never count as unused.
//
// # Replacing and removing
//
// Replacing .sframe gives the same layout as adding it. When it is removed, sections return to where linkers place
// them: after the table, without gaps, in the order of the section headers. This restores the original bytes of almost
// every file. In a file without section headers, the program headers that were added become PT_NULL. An .sframe from a
// linker is replaced in place if the new one fits.
//
// Program interpreters (ld.so) get a layout that old kernels can load; it requires the size of .sframe to be a multiple
// of SizeMultiple. In relocatable objects, .sframe and its relocations come last, and nothing else changes.
package elfwrite

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
//     headers and the old .sframe, which are written anew elsewhere;
//   - the sections after the table that can move; see below. They are put back after it but for those, of the first
//     ones, that free enough with the fewest bytes: these go to the new segment;
//   - unused bytes after the segment that holds the table, which grows by them;
//   - PT_NOTEs that lie one after the other, of which one is made. This comes before many bytes have to move;
//   - a PT_NOTE that repeats PT_GNU_PROPERTY, which is dropped. Loaders and kernels go by the latter;
//   - in an executable with fixed addresses, a page in front of everything: static ones
//     have .rela.plt at their head, which cannot move. In the file that page takes the
//     place of the segment that begins with the ELF header, which goes after what is
//     loaded, so that code keeps its place. If that segment has code, everything moves up.
//
// # What can move
//
// A section can move if it is found through headers or dynamic entries only, which are
// changed with it:
//
//   - .interp, through PT_INTERP;
//   - .gnu.hash, .hash, .dynsym, .dynstr, .gnu.version*, .rela.dyn and .relr.dyn, through the
//     dynamic entry that has their address. They are what loaders read, and debuggers;
//   - notes, through PT_NOTE and PT_GNU_PROPERTY, all that are in one of these together,
//     if each is of a kind whose readers go by headers (headerNotes). Notes of other kinds
//     are there for the program that they are in, as a rule, and its code has their address.
//     They stay in the segment with the ELF header: runtimes look for them in memory at
//     __ehdr_start + p_offset, as compiler-rt's profile writer does.
//
// None of them moves if anything else leads into it: another header or dynamic entry; a symbol,
// but those of sections and what assemblers and start files define without using it; a
// dynamic relocation that fills it in or has an address in it; or a relocation that the linker has kept.
// Nor does a section of notes that has an identifier for a name, for which linkers define
// __start_ and __stop_ symbols. What no symbol or relocation tells of, an address in the
// code of a file that was stripped, cannot be seen.
//
// Without section headers it is not known what the bytes are that lie between those that
// program headers lead to: nothing that is loaded counts as unused.
//
// The new segment is read-only, last in address order, and begins with .sframe.
// Its bytes go right after those of the last PT_LOAD in the file; what is not
// loaded (debug information, symbols, section headers) moves up by a multiple of
// its alignment. Bytes after everything the headers know of stay at the end.
//
// A segment of this kind is laid out anew when .sframe is replaced: what comes out
// does not depend on what was there before, nor does it where .sframe was removed and is
// added again. Where it is removed, what moved goes back to where linkers have it: to the head, without gaps, in the
// order of the section headers. That restores the original bytes of nearly every file. Without section headers, the
// program headers that were for it stay as PT_NULL, because nothing else would say that they are free. An .sframe
// that a linker made is replaced where it is, if the new one has room there.
//
// # What programs find in memory
//
// Code that goes from the ELF header (__ehdr_start, or the first mapping of the file) to the program headers finds
// them: the table grows in place. What it does then, as far as known (2026-11):
//
//   - addresses (p_vaddr) from the load address on: loaders, their own relocation (glibc, musl, Android, elfhack),
//     glibc's start of static programs, hwasan, sanitizers, dl_iterate_phdr and its users (libgcc, libunwind, Rust,
//     Mesa), Breakpad, Crashpad, Chromium's base/debug. They find whatever moves;
//   - file offsets from the header on: notes, by compiler-rt's profile writer, older base/debug, readers of
//     build-ids in core files (gdb, the kernel). Notes therefore stay, and the build-id in the first page;
//   - symbols of sections, and no headers: gcov, XRay, Go.
//
// A page in front leaves the old headers at __ehdr_start, unchanged; see insertFront.
//
// Program interpreters (ld.so) get a layout that old kernels load, too, for which the size of
// .sframe has to be a multiple of SizeMultiple.
//
// PlanDebug gives the debug file of a program the headers that the program has now.
//
// In relocatable objects, .sframe and its relocations come last, and nothing else
// changes.
package elfwrite

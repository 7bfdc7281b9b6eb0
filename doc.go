// Module cfi2sframe adds SFrame stack trace tables to linked ELF files. The command is cmd/cfi2sframe.
//
// Packages for other programs:
//
//   - sframe finds the row for a pc in an .sframe section, and encodes and decodes sections
//   - cfi returns the rows of .eh_frame and .debug_frame
//   - convert converts and checks files
//   - elffile reads ELF files that may be damaged
//   - translate, emit, elfwrite and verify are the steps of a conversion
//
// docs/architecture.md describes the other packages.
package cfi2sframe

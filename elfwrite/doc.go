// Package elfwrite adds a loaded .sframe section to an ELF file, replaces it, or removes it.
//
//	layout, err := elfwrite.Plan(f, section.Size(), elfwrite.Options{}) // section is an *emit.Section
//	if err != nil {
//		return err
//	}
//	contents, err := section.Encode(layout.Addr)
//	if err != nil {
//		return err
//	}
//	if err := layout.Write(ctx, out, f.Contents(), contents, nil); err != nil { // out is an empty *os.File
//		return err
//	}
//
// The new file consists mostly of copies of ranges of the old file, with new headers. PlanRemoval plans the removal of
// a section, and PlanObject a section in a relocatable object. PlanDetached plans a separate file with the section.
// PlanInto uses bytes reserved by a linker script, so headers do not change. docs/architecture.md describes how a
// layout is found, and what can move. Program interpreters (ld.so) get a layout that old kernels can load; it requires
// the size of .sframe to be a multiple of SizeMultiple.
package elfwrite

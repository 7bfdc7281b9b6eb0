package sframe_test

import (
	"bytes"
	"debug/elf"
	"fmt"
	"log"

	"cfi2sframe/sframe"
)

// program returns an ELF file with the .sframe of a program in conformance/vectors.
func program() *elf.File {
	f, err := elf.NewFile(bytes.NewReader(newFile().bytes()))
	if err != nil {
		log.Fatal(err)
	}
	return f
}

// Check a section, then look up the row for a pc.
func ExampleFromELF() {
	s, err := sframe.FromELF(program())
	if err != nil {
		log.Fatal(err)
	}
	m, ok, err := s.Lookup(0x451)
	fmt.Println(m.Row, ok, err)
	// Output: CFA fp+16, RA *(c-8), FP *(c-16) true <nil>
}

// A profiler opens the section of each mapped file once, and looks up one row per frame; neither decodes the whole
// section. In a process, addresses of position-independent code differ from those in the file by the load bias: the
// start of the file's first mapping in /proc/PID/maps minus the page of the first PT_LOAD's address. For frames other
// than the topmost, the pc is the return address minus 1.
func ExampleEncoded_Lookup() {
	f := program()
	header := f.Section(sframe.SectionName)
	data, err := header.Data()
	if err != nil {
		log.Fatal(err)
	}
	s, err := sframe.Open(data, header.Addr)
	if err != nil {
		log.Fatal(err)
	}
	const firstMapping, pc = 0x555555554000, 0x555555554451
	var first uint64
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD {
			first = p.Vaddr &^ 0xfff // mappings are page-aligned
			break
		}
	}
	bias := firstMapping - first
	m, ok, err := s.Lookup(pc - bias)
	if err != nil || !ok {
		log.Fatal("no row: ", err)
	}
	fmt.Printf("%#x: FDE at %#x, row at %#x: %v\n", pc, m.FDE.Start+bias, m.FDE.Start+bias+
		uint64(m.Start), m.Row)
	// Output:
	// 0x555555554451: FDE at 0x555555554438, row at 0x555555554448: CFA fp+16, RA *(c-8), FP *(c-16)
}

// Print all FDEs of a section and their rows.
func ExampleSection_FDEs() {
	s, err := sframe.FromELF(program())
	if err != nil {
		log.Fatal(err)
	}
	for i, d := range s.FDEs() {
		rows, err := s.FREs(i, nil)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%#x, %d bytes:", d.Start, d.Size)
		for _, r := range rows[:3] {
			fmt.Printf(" +%d CFA %v", r.Start, r.CFA)
		}
		fmt.Println()
	}
	// Output:
	// 0x438, 80 bytes: +0 CFA sp+8 +13 CFA sp+16 +16 CFA fp+16
	// 0x488, 27 bytes: +0 CFA sp+32 +1 CFA sp+24 +2 CFA sp+16
}

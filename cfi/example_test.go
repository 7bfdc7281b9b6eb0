package cfi_test

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"log"
	"os"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
)

// Print the call frame information of a program, row by row.
func ExampleLoad() {
	r, err := os.Open("../testdata/bin/amd64/prologue")
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()
	info, err := r.Stat()
	if err != nil {
		log.Fatal(err)
	}
	f, err := elffile.New(r, info.Size())
	if err != nil {
		log.Fatal(err)
	}
	table, err := cfi.Load(f, cfi.Auto, nil)
	if err != nil {
		log.Fatal(err)
	}
	for fn := range table.Functions() {
		if fn.Begin > 0x440 {
			break
		}
		fmt.Printf("function at %#x, %d bytes\n", fn.Begin, fn.End-fn.Begin)
		for row := range fn.Rows() {
			fmt.Printf("  from %#x: %v\n", row.Begin, row.Rules)
		}
	}
	// Output:
	// function at 0x438, 8 bytes
	//   from 0x438: CFA r7+8, RA c-8, FP none, SP none
	// function at 0x440, 45 bytes
	//   from 0x440: CFA r7+8, RA c-8, FP none, SP none
	//   from 0x445: CFA r7+16, RA c-8, FP c-16, SP none
	//   from 0x448: CFA r6+16, RA c-8, FP c-16, SP none
	//   from 0x46c: CFA r7+8, RA c-8, FP c-16, SP none
}

// Parse call frame information in memory: a .debug_frame section with a CIE and an FDE.
func ExampleParse() {
	data := []byte{
		20, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, // length, CIE
		4, 0, 8, 0, // version, no augmentation, 8-byte addresses, no segment selectors
		1, 0x78, 16, // code alignment 1, data alignment -8, return address column 16
		0x0c, 7, 8, // DW_CFA_def_cfa: r7+8
		0x90, 1, // DW_CFA_offset: r16 at CFA-8
		0, 0, 0, 0,

		28, 0, 0, 0, 0, 0, 0, 0, // length, offset of the CIE
		0, 0x10, 0, 0, 0, 0, 0, 0, // starts at 0x1000
		0x20, 0, 0, 0, 0, 0, 0, 0, // 32 bytes
		0x41, 0x0e, 16, // DW_CFA_advance_loc: 1; DW_CFA_def_cfa_offset: 16
		0, 0, 0, 0, 0,
	}
	table, err := cfi.Parse(elf.EM_X86_64, binary.LittleEndian, cfi.Section{Source: cfi.DebugFrame, Data: data})
	if err != nil {
		log.Fatal(err)
	}
	row, ok := table.Lookup(0x1008)
	fmt.Println(ok, row.CFA.Offset, row.RA.Offset)
	// Output: true 16 -8
}

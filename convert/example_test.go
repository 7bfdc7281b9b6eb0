package convert_test

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"log"
	"os"

	"cfi2sframe/convert"
	"cfi2sframe/elffile"
	"cfi2sframe/sframe"
)

// Add an .sframe section to a program in memory, and find it with debug/elf.
func ExampleConvert() {
	prog, err := os.ReadFile("../testdata/bin/amd64/prologue")
	if err != nil {
		log.Fatal(err)
	}
	var out bytes.Buffer
	res, err := convert.Convert(context.Background(), bytes.NewReader(prog), int64(len(prog)), &out, convert.Options{})
	if err != nil {
		log.Fatal(err)
	}
	for _, c := range res.Facts {
		fmt.Printf("%d of %d bytes of code covered, %d functions, verified: %v\n", c.Covered, c.Described, c.Functions,
			c.Verified)
	}
	f, err := elf.NewFile(bytes.NewReader(out.Bytes()))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(".sframe found:", f.Section(".sframe") != nil)
	// Output:
	// 107 of 107 bytes of code covered, 4 functions, verified: true
	// .sframe found: true
}

// Code that the version of SFrame cannot describe is a gap, with a reason.
func ExampleAdd() {
	prog, err := os.ReadFile("../testdata/bin/amd64/drap1")
	if err != nil {
		log.Fatal(err)
	}
	for _, version := range []sframe.Version{sframe.V2, sframe.V3} {
		run := &convert.Run{In: bytes.NewReader(prog), Size: int64(len(prog)), Report: func(d *convert.Details) error {
			fmt.Printf("%v: %d of %d bytes covered\n", version, d.Facts.Covered, d.Facts.Described)
			for _, g := range d.Translation.Gaps {
				fmt.Printf("  %#x-%#x: %v\n", g.Begin, g.End, g.Reason)
			}
			return nil
		}}
		if _, err := convert.Add(context.Background(), run, convert.Options{Version: version}); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// SFRAME_VERSION_2: 8 of 53 bytes covered
	//   0x38e-0x39c: stack realignment (DRAP)
	//   0x39c-0x3b5: stack realignment (DRAP)
	//   0x3b5-0x3ba: stack realignment (DRAP)
	//   0x3ba-0x3bb: unsupported frame pointer rule
	// SFRAME_VERSION_3: 53 of 53 bytes covered
}

// The .sframe section of a file, which may be from another tool, is compared with the call frame information.
func ExampleCheck() {
	prog, err := os.ReadFile("../testdata/bin/amd64/prologue")
	if err != nil {
		log.Fatal(err)
	}
	var out bytes.Buffer
	if _, err := convert.Convert(context.Background(), bytes.NewReader(prog), int64(len(prog)), &out,
		convert.Options{}); err != nil {
		log.Fatal(err)
	}
	f, err := elffile.New(bytes.NewReader(out.Bytes()), int64(out.Len()))
	if err != nil {
		log.Fatal(err)
	}
	section, err := convert.ReadSection(f)
	if err != nil {
		log.Fatal(err)
	}
	table, err := convert.LoadCFI(context.Background(), f, convert.Loading{})
	if err != nil {
		log.Fatal(err)
	}
	c, err := convert.Check(f, section, table)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(c)
	for _, m := range c.Mismatches {
		fmt.Println(m)
	}
	// Output:
	// amd64, SFRAME_VERSION_3, 2 FDEs: 107 of 107 bytes of code agree, mismatches: 0
}

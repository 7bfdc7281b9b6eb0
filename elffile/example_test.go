package elffile_test

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"log"
	"os"

	"cfi2sframe/elffile"
)

// FileOffset uses segments, so it locates code even in a file without section headers.
func ExampleFile_FileOffset() {
	b, err := os.ReadFile("../testdata/bin/amd64/prologue")
	if err != nil {
		log.Fatal(err)
	}
	f, err := elffile.New(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range f.Sections {
		if s.Alloc() && s.Flags&uint64(elf.SHF_EXECINSTR) != 0 {
			off, ok := f.FileOffset(s.Addr, s.Size)
			fmt.Printf("%s at address %#x is in the file at %#x: %v\n", s.Name, s.Addr, off, ok)
		}
	}
	// Output:
	// .text at address 0x438 is in the file at 0x438: true
}

// An Error identifies the malformed part of the file, and its offset.
func ExampleError() {
	b, err := os.ReadFile("../testdata/bin/amd64/prologue")
	if err != nil {
		log.Fatal(err)
	}
	_, err = elffile.New(bytes.NewReader(b[:1000]), 1000)
	var e *elffile.Error
	if errors.As(err, &e) {
		fmt.Printf("%s, offset %#x\n%v\n", e.Where, e.Off, err)
	}
	// Output:
	// section header table, offset 0x1220
	// section header table at file offset 0x1220: 14 headers of 64 bytes do not fit in the file of 1000 bytes
}

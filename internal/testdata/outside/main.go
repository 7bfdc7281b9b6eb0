// Command outside is what somebody else writes who imports this module. TestOutside builds and runs it.
package main

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"log"
	"os"

	"cfi2sframe/cfi"
	"cfi2sframe/convert"
	"cfi2sframe/elffile"
	"cfi2sframe/sframe"
)

func main() {
	prog, err := os.ReadFile(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	f, err := elffile.New(bytes.NewReader(prog), int64(len(prog)))
	if err != nil {
		log.Fatal(err)
	}
	table, err := cfi.Load(f, cfi.Auto, nil)
	if err != nil {
		log.Fatal(err)
	}
	rows := 0
	for fn := range table.Functions() {
		for row := range fn.Rows() {
			if row.CFA.Rule == cfi.RuleCFA {
				rows++
			}
		}
	}
	row, ok := table.Lookup(0x448)
	fmt.Println(table.Len(), rows, ok, row.CFA.Reg, row.CFA.Offset)
	var out bytes.Buffer
	res, err := convert.Convert(context.Background(), bytes.NewReader(prog), int64(len(prog)), &out, convert.Options{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.Facts[0].Covered, res.Facts[0].Described)
	e, err := elf.NewFile(bytes.NewReader(out.Bytes()))
	if err != nil {
		log.Fatal(err)
	}
	s, err := sframe.FromELF(e)
	if err != nil {
		log.Fatal(err)
	}
	fre, ok, err := s.Lookup(0x448)
	fmt.Println(fre.CFA, fre.FP, ok, err)
	converted, err := elffile.New(bytes.NewReader(out.Bytes()), int64(out.Len()))
	if err != nil {
		log.Fatal(err)
	}
	c, err := convert.Check(converted, s, table)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(c.Covered, len(c.Mismatches))
}

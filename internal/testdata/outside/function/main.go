// Command function lists the rows of a function's CFI.
package main

import (
	"fmt"
	"log"
	"os"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
)

func main() {
	name := os.Args[2]
	f, err := elffile.Open(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.FindSymbols(name)
	if err != nil {
		log.Fatal(err)
	}
	table, err := cfi.Load(f, cfi.Auto, nil)
	if err != nil {
		log.Fatal(err)
	}
	fn := table.Find(symbols[name].Value)
	if fn == nil {
		log.Fatalf("no CFI describes %q", name)
	}
	for row := range fn.Rows() {
		fmt.Printf("%#x %s\n", row.Begin, table.Text(row.Rules))
	}
}

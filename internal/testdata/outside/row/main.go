// Command row prints the row for a pc in the .sframe of a program.
package main

import (
	"fmt"
	"log"
	"os"
	"strconv"

	"cfi2sframe/elffile"
	"cfi2sframe/sframe"
)

func main() {
	f, err := elffile.Open(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	section, err := sframe.Load(f)
	if err != nil {
		log.Fatal(err)
	}
	pc, err := strconv.ParseUint(os.Args[2], 0, 64)
	if err != nil {
		log.Fatal(err)
	}
	m, ok, err := section.Lookup(pc)
	if err != nil || !ok {
		log.Fatal("no row: ", err)
	}
	fmt.Println(section.ABI.Text(m.Row))
}

// Command convert converts a program in memory, and checks the result.
package main

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"os"

	"cfi2sframe/cfi"
	"cfi2sframe/convert"
	"cfi2sframe/elffile"
	"cfi2sframe/sframe"
)

func main() {
	program, err := os.ReadFile(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	var out bytes.Buffer
	opt := convert.Options{Version: sframe.V2, Outermost: true}
	result, err := convert.Convert(context.Background(), bytes.NewReader(program), int64(len(program)), &out, opt)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.Facts[0].Covered, result.Facts[0].Described)
	f, err := elffile.New(bytes.NewReader(out.Bytes()), int64(out.Len()))
	if err != nil {
		log.Fatal(err)
	}
	section, err := sframe.Load(f)
	if err != nil {
		log.Fatal(err)
	}
	table, err := cfi.Load(f, cfi.Auto, nil)
	if err != nil {
		log.Fatal(err)
	}
	c, err := convert.Check(f, section, table)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(c)
}

// Package walker compares the stack walker in C (walker/sframe_walker.h) with package sframe: both must find the same
// row at every boundary of rows and functions, in gaps and at random pcs, and unwind to the same frame. It also makes
// seeds for the walker's fuzzer.
package walker

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"

	"cfi2sframe/lab/kit"
	"cfi2sframe/sframe"
)

// Forms are the conversion flags to test with.
var Forms = []string{
	"--format 1", "--format 2", "--format 2 --pcrel --outermost", "--format 3", "--format 3 --share off",
}

// Compile builds the program that queries the walker, and writes it to dir.
func Compile(dir string) error {
	return kit.Run("", "cc", "-std=c11", "-O2", "-Iwalker", "lab/walker/c/query.c", "-o", filepath.Join(dir, "query"))
}

// Check looks up rows in a file's section with the program that Compile built in dir, and with package sframe.
func Check(dir, path string) error {
	s, err := readSection(path)
	if err != nil {
		return err
	}
	return compare([]*section{s}, filepath.Join(dir, "query"))
}

// WriteSeed writes an input for c/fuzz.c, made from a file's section, to a directory, unless the section is large. It
// consists of a pc, the section's address, the stack pointer, flags, the stack and the section.
func WriteSeed(dir, path string) error {
	const largest, words = 2048, 8
	const sp = 0x7e8000001000 - 8*words // where the fuzzer maps the stack
	s, err := readSection(path)
	if err != nil {
		return err
	}
	sec, err := sframe.Decode(s.data, s.addr)
	if err != nil || len(s.data) > largest || sec.Len() == 0 {
		return err
	}
	sum := crc32.ChecksumIEEE(s.data)
	var b []byte
	for _, v := range []uint64{sec.FDE(0).Start, s.addr, sp} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	b = append(b, byte(sum%32), words)
	for i := range words / 2 { // frame pointers and return addresses
		b = sec.ABI.Order().AppendUint64(b, sp+uint64(16*i))
		b = sec.ABI.Order().AppendUint64(b, sec.FDE(i%sec.Len()).Start)
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, fmt.Sprintf("seed-%08x", sum)), append(b, s.data...), 0o666)
}

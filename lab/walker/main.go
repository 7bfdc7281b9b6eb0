// Package walker compares the stack walker in C (walker/sframe_walker.h) with package sframe, for all linked files
// below the paths in every version: both have to find the same row at every border of rows and functions, in holes and
// at random pcs, and steps have to lead where the rows say. It also writes seeds for the walker's fuzzer.
package walker

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"cfi2sframe/lab/kit"
	"cfi2sframe/sframe"
)

// Command returns the subcommand.
func Command() *kit.Command {
	c := kit.New("walker", "PATH...", 1, math.MaxInt)
	seeds := c.String("seeds", "", "write seeds for the fuzzer to `DIR`, made of the files, and compare nothing")
	most := c.Int("files", 0, "compare up to `N` files, spread over all; 0 for all")
	c.Run = func(paths []string) error {
		files, err := linkedFiles(paths)
		if err != nil {
			return err
		}
		files = kit.Spread(files, *most)
		return kit.WithProduct(func(program, dir string) error {
			converter := &converter{program, dir}
			if *seeds != "" {
				return writeSeeds(*seeds, files, converter)
			}
			return compareAll(files, converter)
		})
	}
	return c
}

// linkedFiles returns the programs and libraries below the paths.
func linkedFiles(paths []string) ([]string, error) {
	files, err := kit.ELFFiles(paths...)
	files = slices.DeleteFunc(files, func(path string) bool {
		f, err := elf.Open(path)
		if err != nil {
			return true
		}
		defer f.Close()
		return f.Type != elf.ET_EXEC && f.Type != elf.ET_DYN
	})
	if err == nil && len(files) == 0 {
		err = errors.New("no linked 64-bit ELF file")
	}
	return files, err
}

// compareAll compares all files.
func compareAll(files []string, converter *converter) error {
	query := filepath.Join(converter.dir, "query")
	cc := exec.Command("cc", "-std=c11", "-O2", "-Iwalker", "lab/walker/c/query.c", "-o", query)
	if out, err := cc.CombinedOutput(); err != nil {
		return fmt.Errorf("cc: %w\n%s", err, out)
	}
	w, err := start(query)
	if err != nil {
		return err
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	sections, refused, asked := 0, 0, 0
	for _, f := range files {
		found, no, err := converter.sections(f)
		if err != nil {
			return fmt.Errorf("%s: %w", f, err)
		}
		refused += no
		for _, s := range found {
			list := pcs(s, rnd)
			if err := w.compare(s, list); err != nil {
				return err
			}
			sections++
			asked += len(list)
		}
	}
	fmt.Printf("%d files: %d sections, %d conversions refused; %d pcs: the same rows, and the steps that they say\n",
		len(files), sections, refused, asked)
	return w.close()
}

// writeSeeds writes inputs of c/fuzz.c: a pc, the section's address, the stack pointer, flags, the stack and a section.
func writeSeeds(dir string, files []string, converter *converter) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	const largest, words = 2048, 8
	const sp = 0x7e8000001000 - 8*words // where the fuzzer maps it
	n := 0
	for _, path := range files {
		found, _, err := converter.sections(path)
		if err != nil {
			return err
		}
		for _, s := range found {
			sec, err := sframe.Decode(s.data, s.addr)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			if len(s.data) > largest || sec.Len() == 0 {
				continue
			}
			first := sec.FDE(0).Start
			var b []byte
			for _, v := range []uint64{first, s.addr, sp} {
				b = binary.LittleEndian.AppendUint64(b, v)
			}
			b = append(b, byte(n%32), words)
			for i := range words / 2 { // frame pointers and return addresses
				b = sec.ABI.Order().AppendUint64(b, sp+uint64(16*i))
				b = sec.ABI.Order().AppendUint64(b, sec.FDE(i%sec.Len()).Start)
			}
			n++
			name := filepath.Join(dir, fmt.Sprintf("seed-%03d", n))
			if err := os.WriteFile(name, append(b, s.data...), 0o666); err != nil {
				return err
			}
		}
	}
	fmt.Printf("%d seeds\n", n)
	return nil
}

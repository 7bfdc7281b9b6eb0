// Package walker compares the stack walker in C (walker/sframe_walker.h) with package sframe: both have to find the
// same row at every border of rows and functions, in holes and at random pcs, of all ELF files below the given folders
// in every version, and steps have to lead where the rows say. It also writes seeds for its fuzzer.
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
	seeds := c.String("seeds", "", "write seeds for the fuzzer to `FOLDER`, made of the files, and compare nothing")
	most := c.Int("files", 0, "compare `N` files at most, spread over all; 0 for all")
	cc := c.String("cc", "cc", "the compiler")
	c.Run = func(paths []string) error {
		files, err := elfFiles(paths, *most)
		if err != nil {
			return err
		}
		if *seeds != "" {
			return writeSeeds(*seeds, files)
		}
		return compareAll(*cc, files)
	}
	return c
}

// elfFiles returns up to so many programs and libraries below the paths; 0 stands for all. Objects have no addresses.
func elfFiles(paths []string, most int) ([]string, error) {
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
		err = errors.New("there is no linked 64-bit ELF file")
	}
	return kit.Spread(files, most), err
}

// source returns the path of a C file of this package.
func source(name string) string { return filepath.Join("lab/walker/c", name) }

// compareAll compares all files.
func compareAll(cc string, files []string) error {
	dir, err := os.MkdirTemp("", "walker-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	query := filepath.Join(dir, "query")
	if out, err := exec.Command(cc, "-std=c11", "-O2", "-Iwalker", source("query.c"), "-o", query).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cc, err, out)
	}
	w, err := start(query)
	if err != nil {
		return err
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	var sections, refused, none int
	var asked uint64
	for _, f := range files {
		found, no, err := all(f)
		if err != nil {
			return fmt.Errorf("%s: %w", f, err)
		}
		refused += no
		if len(found) == 0 {
			none++
		}
		for _, s := range found {
			list := pcs(s, rnd)
			if err := w.compare(s, list); err != nil {
				return err
			}
			sections++
			asked += uint64(len(list))
		}
	}
	fmt.Printf("%d files, of which %d have no SFrame in any form; %d sections, %d conversions refused; %d pcs: the same rows, and steps as they say\n",
		len(files), none, sections, refused, asked)
	return w.close()
}

// writeSeeds writes inputs of c/fuzz.c: a section each, a pc in it, and return addresses on the stack.
func writeSeeds(dir string, files []string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	const largest, words = 2048, 8
	n := 0
	le := binary.LittleEndian
	for _, path := range files {
		found, _, err := all(path)
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
			rnd := rand.New(rand.NewPCG(uint64(n), 0))
			pc := func() uint64 {
				d := sec.FDE(rnd.IntN(sec.Len()))
				return d.Start + uint64(rnd.Uint32N(max(d.Size, 1)))
			}
			const sp = 0x7e8000001000 - 8*words // where the fuzzer maps it
			var b []byte
			for _, v := range []uint64{pc(), s.addr, sp} {
				b = le.AppendUint64(b, v)
			}
			b = append(b, byte(n%32), words)
			for i := range words {
				v := pc()
				if i%2 == 0 {
					v = sp + uint64(8*i)
				}
				b = sec.ABI.Order().AppendUint64(b, v)
			}
			n++
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("seed-%03d", n)), append(b, s.data...), 0o666); err != nil {
				return err
			}
		}
	}
	if n == 0 {
		return errors.New("no file has a section that is small enough for a seed")
	}
	fmt.Printf("%d seeds\n", n)
	return nil
}

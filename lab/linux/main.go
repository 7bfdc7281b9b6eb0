// Package linux converts kernels and kernel modules with debug information, loads modules as the kernel's module loader
// does, and compares the rows with the CFI at every pc. Loading and comparing share no code with the product.
package linux

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"cfi2sframe/convert"
	"cfi2sframe/lab/kit"
	"cfi2sframe/sframe"
)

// Command returns the subcommand.
func Command() *kit.Command {
	c := kit.New("linux", "PATH...", 1, math.MaxInt)
	most := c.Int("files", 0, "compare up to `N` files, spread over all; 0 for all")
	jobs := c.Int("jobs", 2, "`N` files at a time")
	memory := c.Bool("memory", false, "compare modules with their .sframe in a kernel's memory, which standard input has")
	c.Run = func(paths []string) error {
		if *memory {
			return compareMemory(os.Stdin, paths[0])
		}
		found, err := kit.ELFFiles(paths...)
		if err != nil {
			return err
		}
		found = slices.DeleteFunc(found, func(path string) bool {
			return filepath.Ext(path) != ".ko" && !strings.HasPrefix(filepath.Base(path), "vmlinux")
		})
		if len(found) == 0 {
			return errors.New("no *.ko and no vmlinux")
		}
		return compareAll(kit.Spread(found, *most), *jobs)
	}
	return c
}

// A sum adds up results. Sizes are in bytes of code.
type sum struct {
	files              int
	stays              map[string]int // files that get no section, by reason
	functions          int
	described, covered uint64
	padding            uint64
	pcs                int // at which rows were compared
	gaps               map[string]uint64
}

// compareAll compares all files, and prints a line for each kind.
func compareAll(paths []string, jobs int) error {
	sums := make(map[string]*sum)
	var mu sync.Mutex
	err := kit.Each(jobs, paths, func(_ int, path string) error {
		kind, s, err := compareFile(path)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		mu.Lock()
		defer mu.Unlock()
		if sums[kind] == nil {
			sums[kind] = newSum()
		}
		sums[kind].add(s)
		return nil
	})
	for _, kind := range slices.Sorted(maps.Keys(sums)) {
		s := sums[kind]
		fmt.Printf("%s: %d files, %d functions, %d of %d bytes covered, %d bytes of padding; rows equal at %d pcs\n",
			kind, s.files, s.functions, s.covered, s.described, s.padding, s.pcs)
		for _, reason := range slices.Sorted(maps.Keys(s.stays)) {
			fmt.Printf("  without a section, %s: %d files\n", reason, s.stays[reason])
		}
		for _, reason := range slices.Sorted(maps.Keys(s.gaps)) {
			fmt.Printf("  gaps, %s: %d bytes\n", reason, s.gaps[reason])
		}
	}
	return err
}

func newSum() *sum { return &sum{stays: make(map[string]int), gaps: make(map[string]uint64)} }

func (s *sum) add(t *sum) {
	s.files, s.functions, s.pcs = s.files+t.files, s.functions+t.functions, s.pcs+t.pcs
	s.described, s.covered, s.padding = s.described+t.described, s.covered+t.covered, s.padding+t.padding
	for reason, n := range t.stays {
		s.stays[reason] += n
	}
	for reason, n := range t.gaps {
		s.gaps[reason] += n
	}
}

// compareFile converts and compares a file. The result has the name of its kind.
func compareFile(path string) (kind string, s *sum, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", nil, err
	}
	e, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		return "", nil, err
	}
	opt := convert.Options{Version: sframe.V3, Linux: convert.LinuxModule, Share: convert.ShareOn, Brief: true}
	kind = e.Machine.String() + " modules"
	if e.Type != elf.ET_REL {
		kind = e.Machine.String() + " vmlinux"
		opt.Linux = convert.LinuxKernel
		if opt.Reserved, err = reserve(b, e); err != nil {
			return "", nil, err
		}
	}
	s = newSum()
	s.files = 1
	var out bytes.Buffer
	res, err := convert.Convert(context.Background(), bytes.NewReader(b), int64(len(b)), &out, opt)
	if err != nil {
		return "", nil, err
	}
	if res.Stays != "" {
		s.stays[string(res.Stays)]++
		return kind, s, nil
	}
	cov := res.Coverage[0]
	for _, r := range cov.Reasons {
		s.gaps[r.Name] += r.Bytes
	}
	l, err := load(out.Bytes(), opt.Reserved)
	if err != nil {
		return "", nil, err
	}
	if err := l.compare(s); err != nil {
		return "", nil, err
	}
	if s.covered != cov.Covered || s.described != cov.Described || s.padding != cov.Padding {
		return "", nil, fmt.Errorf("%d of %d bytes are covered, and %d of padding; the report says %d of %d, and %d",
			s.covered, s.described, s.padding, cov.Covered, cov.Described, cov.Padding)
	}
	if opt.Linux == convert.LinuxModule {
		c, err := convert.Check(bytes.NewReader(out.Bytes()), int64(out.Len()), opt)
		if err == nil && (c.Refused != "" || len(c.Mismatches) > 0) {
			err = fmt.Errorf("check: refused %q, %d mismatches", c.Refused, len(c.Mismatches))
		}
		if err != nil {
			return "", nil, err
		}
	}
	return kind, s, nil
}

// reserve makes bytes of a linked kernel free that only debuggers read, and returns the symbols around them: those of
// .BTF become zero, and its first symbol moves to a multiple of 8.
func reserve(b []byte, e *elf.File) (string, error) {
	const first, last = "__start_BTF", "__stop_BTF"
	btf, table := e.Section(".BTF"), e.SectionByType(elf.SHT_SYMTAB)
	symbols, err := e.Symbols()
	if btf == nil || table == nil || err != nil {
		return "", fmt.Errorf("a kernel without .BTF, whose place .sframe takes here, or without symbols: %w", err)
	}
	clear(b[btf.Offset : btf.Offset+btf.Size])
	for i, s := range symbols { // without the first symbol of the table
		if s.Name == first {
			const value = 8 // offset of st_value
			e.ByteOrder.PutUint64(b[table.Offset+uint64(i+1)*elf.Sym64Size+value:], (s.Value+7)&^7)
		}
	}
	return first + ":" + last, nil
}

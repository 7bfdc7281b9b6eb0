// Package readers has the readers that people use look up what the tool writes, by their own functions, and compares what
// they say with the call frame information.
package readers

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"cfi2sframe/cfi"
	"cfi2sframe/convert"
	"cfi2sframe/lab/kit"
	"cfi2sframe/sframe"
)

// A format is one that a library is asked about.
type format struct {
	lib  string
	name string
	opt  convert.Options
}

var formats = []format{
	{"2.44", "V2", convert.Options{Version: sframe.V2}},
	{"2.47", "V2 --pcrel", convert.Options{Version: sframe.V2, PCRel: true}},
	{"2.47", "V2 --pcrel --outermost", convert.Options{Version: sframe.V2, PCRel: true, Outermost: true}},
	{"2.47", "V3", convert.Options{Version: sframe.V3}},
	{"2.47", "V3 --share=on", convert.Options{Version: sframe.V3, Share: convert.ShareOn}},
}

// takes reports whether the library takes the format for the ABI. What it does not is in the table of known errors.
func (f *format) takes(abi sframe.ABI) bool {
	if f.lib == "2.44" {
		return abi != sframe.S390XBig
	}
	return f.opt.Share != convert.ShareOn || abi == sframe.AMD64Little || abi == sframe.AArch64Little
}

// Command returns the subcommand.
func Command() *kit.Command {
	c := kit.New("readers", "libsframe FILE... | glibc", 1, math.MaxInt)
	folder := c.String("find", "", "`FOLDER` with the programs find-trixie and find-sid, for libsframe")
	testdata := c.String("testdata", "testdata/bin", "`FOLDER` with the fixtures")
	lookups := c.Uint64("lookups", 0, "at least so many `LOOKUPS`, by more pcs at random")
	perFunction := c.Int("random", 10, "`PCS` at random in every function")
	jobs := c.Int("jobs", 2, "`FILES` at a time")
	root := c.String("root", "", "`FOLDER` of the system with a glibc in /opt/glibc/lib, for glibc")
	samples := c.Int("samples", 2000, "`TIMES` that each program is interrupted, in each of two threads")
	c.Run = func(args []string) error {
		switch {
		case args[0] == "libsframe" && len(args) > 1 && *folder != "":
			return run(*folder, *testdata, args[1:], *lookups, *perFunction, *jobs)
		case args[0] == "glibc" && len(args) == 1 && *root != "":
			return runGlibc(*root, *samples)
		}
		return errors.New("expected libsframe --find FOLDER FILE..., or glibc --root FOLDER; scripts/readers does both")
	}
	return c
}

// A key is what counts are summed up by.
type key struct{ lib, format, abi string }

type sums struct {
	mu     sync.Mutex
	by     map[key]*counts
	files  map[string]bool
	kept   map[string]string // files that are not converted, and why
	errors []error
	funcs  uint64 // asked about, in all formats
}

// run asks the libraries about files.
func run(folder, testdata string, files []string, lookups uint64, perFunction, jobs int) error {
	start := time.Now()
	libs, err := libraries(folder)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "cfi2sframe-readers-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	sum := &sums{by: make(map[key]*counts), files: make(map[string]bool), kept: make(map[string]string)}
	for _, w := range wholeErrors {
		if err := w.check(libs, dir, testdata); err != nil {
			sum.errors = append(sum.errors, err)
		}
	}
	// What is missing after the first round is asked for by the same share in each function.
	for round := uint64(0); round == 0 || sum.funcs > 0 && sum.total().lookups < lookups && len(sum.errors) == 0; round++ {
		n := perFunction
		if round > 0 {
			n = int((lookups-sum.total().lookups)/sum.funcs) + 1
		}
		err := kit.Each(jobs, files, func(worker int, path string) error {
			own := fmt.Sprintf("%s/%d", dir, worker)
			if err := os.MkdirAll(own, 0o777); err != nil {
				return err
			}
			var errs []error
			for _, f := range formats {
				if err := sum.file(libs, own, path, &f, round == 0, n, round+1); err != nil {
					errs = append(errs, fmt.Errorf("%s, %s: %w", path, f.name, err))
				}
			}
			return errors.Join(errs...)
		})
		if err != nil {
			sum.errors = append(sum.errors, err)
		}
	}
	sum.print(libs, time.Since(start))
	return sum.judge()
}

func (s *sums) file(libs []*library, dir, path string, f *format, first bool, perFunction int, seed uint64) error {
	subject, err := convertFile(path, dir, f.opt)
	if errors.Is(err, cfi.ErrNone) || errors.Is(err, convert.ErrNoCode) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.kept[path] = err.Error()
		return nil
	}
	if err != nil {
		return err
	}
	if !f.takes(subject.section.ABI) {
		return nil
	}
	pcs := subject.pcs(rand.New(rand.NewPCG(seed, uint64(len(subject.bytes)))), first, perFunction)
	c, err := subject.lookUp(find(libs, f.lib), subject.bytes, pcs)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if first {
		s.funcs += uint64(subject.table.Len())
	} else {
		c.files = 0
	}
	k := key{f.lib, f.name, subject.section.ABI.String()}
	if s.by[k] == nil {
		s.by[k] = new(counts)
	}
	s.by[k].add(c)
	s.files[path] = true
	return nil
}

func (s *sums) total() *counts {
	var t counts
	for _, c := range s.by {
		t.add(c)
	}
	return &t
}

func (s *sums) print(libs []*library, took time.Duration) {
	for _, l := range libs {
		fmt.Printf("libsframe %s of %s: %s\n", l.name, l.suite, l.version)
	}
	table := kit.NewTable(os.Stdout, "libsframe", "format", "ABI", ">files", ">lookups", ">right rows", ">rightly nothing", ">right for stubs", ">known errors", ">wrong")
	keys := slices.SortedFunc(maps.Keys(s.by), func(a, b key) int {
		return cmp.Or(cmp.Compare(a.lib, b.lib), cmp.Compare(a.format, b.format), cmp.Compare(a.abi, b.abi))
	})
	row := func(lib, format, abi string, c *counts) {
		table.Row(lib, format, abi, c.files, c.lookups, c.rows, c.none, c.stubs, c.known, c.wrong)
	}
	for _, k := range keys {
		row(k.lib, k.format, k.abi, s.by[k])
	}
	t := s.total()
	row("all", "", "", t)
	fmt.Printf("%d different files, %d without CFI; %.0f s\n", len(s.files), len(s.kept), took.Seconds())
	for _, path := range slices.Sorted(maps.Keys(s.kept)) {
		fmt.Printf("  not converted: %s: %s\n", path, s.kept[path])
	}
	for i := range knownErrors {
		k := &knownErrors[i]
		fmt.Printf("known error of %s in %d of %d lookups where it could show: %s\n", k.lib, t.seen[k].did, t.seen[k].could, k.name)
	}
	for _, w := range wholeErrors {
		fmt.Printf("known of %s, seen with %s: %s\n", w.lib, w.file, w.name)
	}
}

// judge returns an error if anything is not as it should be.
func (s *sums) judge() error {
	errs := s.errors
	t := s.total()
	for _, what := range t.first {
		errs = append(errs, errors.New(what))
	}
	if t.wrong > 0 {
		errs = append(errs, fmt.Errorf("%d lookups are wrong", t.wrong))
	}
	if t.rows == 0 || t.none == 0 || t.stubs == 0 {
		errs = append(errs, errors.New("there was too little to compare: rows, holes and stubs were expected"))
	}
	for i := range knownErrors {
		if h := t.seen[&knownErrors[i]]; h.did == 0 {
			errs = append(errs, fmt.Errorf("known error of %s did not show in any of %d lookups, and is to be taken from the table: %s",
				knownErrors[i].lib, h.could, knownErrors[i].name))
		}
	}
	return errors.Join(errs...)
}

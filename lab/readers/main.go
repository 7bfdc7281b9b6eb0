// Command readers has the readers that people use look up what the tool writes, by their own functions, and compares what
// they say with the call frame information. It is run by scripts/readers.
//
//	readers libsframe --find FOLDER [--lookups N] [--random N] [--seed N] [--jobs N] FILE...
//	readers glibc --root FOLDER [--samples N]
package readers

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"cfi2sframe/cfi"
	"cfi2sframe/convert"
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
func (f *format) takes(a *abi) bool {
	if f.lib == "2.44" {
		return a.machine != elf.EM_S390
	}
	return f.opt.Share != convert.ShareOn || a.order == binary.LittleEndian
}

// Main runs the subcommand.
func Main() {
	folder := pflag.String("find", "", "`FOLDER` with the programs find-trixie and find-sid")
	testdata := pflag.String("testdata", "testdata/bin", "`FOLDER` with the fixtures")
	lookups := pflag.Uint64("lookups", 0, "at least so many `LOOKUPS`, by more pcs at random")
	perFunction := pflag.Int("random", 10, "`PCS` at random in every function")
	seed := pflag.Uint64("seed", 1, "`NUMBER` that pcs at random depend on")
	jobs := pflag.Int("jobs", 2, "`FILES` at a time")
	root := pflag.String("root", "", "`FOLDER` of the system with a glibc in /opt/glibc/lib")
	samples := pflag.Int("samples", 2000, "`TIMES` that each program is interrupted, in each of two threads")
	pflag.Parse()
	var err error
	switch args := pflag.Args(); {
	case len(args) > 1 && args[0] == "libsframe" && *folder != "":
		err = run(*folder, *testdata, args[1:], *lookups, *perFunction, *seed, *jobs)
	case len(args) == 1 && args[0] == "glibc" && *root != "":
		err = runGlibc(*root, *samples)
	default:
		err = errors.New("libsframe --find FOLDER FILE..., or glibc --root FOLDER was expected; scripts/readers does both")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "readers:", err)
		os.Exit(1)
	}
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
func run(folder, testdata string, files []string, lookups uint64, perFunction int, seed uint64, jobs int) error {
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
		sum.round(libs, dir, files, round == 0, n, seed+round, jobs)
	}
	sum.print(libs, time.Since(start))
	return sum.judge()
}

// round asks about all files in all formats.
func (s *sums) round(libs []*library, dir string, files []string, first bool, perFunction int, seed uint64, jobs int) {
	work := make(chan string)
	var wg sync.WaitGroup
	for i := range jobs {
		wg.Go(func() {
			own := fmt.Sprintf("%s/%d", dir, i)
			os.Mkdir(own, 0o777)
			for path := range work {
				for _, f := range formats {
					if err := s.file(libs, own, path, &f, first, perFunction, seed); err != nil {
						s.mu.Lock()
						s.errors = append(s.errors, fmt.Errorf("%s, %s: %w", path, f.name, err))
						s.mu.Unlock()
					}
				}
			}
		})
	}
	for _, path := range files {
		work <- path
	}
	close(work)
	wg.Wait()
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
	if !f.takes(subject.abi) {
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
	k := key{f.lib, f.name, subject.abi.name}
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
	fmt.Println("| libsframe | format | ABI | files | lookups | right rows | rightly nothing | right for stubs | known errors | wrong |")
	fmt.Println("| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
	keys := slices.SortedFunc(maps.Keys(s.by), func(a, b key) int {
		return cmp.Or(cmp.Compare(a.lib, b.lib), cmp.Compare(a.format, b.format), cmp.Compare(a.abi, b.abi))
	})
	row := func(lib, format, abi string, c *counts) {
		fmt.Printf("| %s | %s | %s | %d | %d | %d | %d | %d | %d | %d |\n", lib, format, abi, c.files, c.lookups, c.rows, c.none, c.stubs, c.known, c.wrong)
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

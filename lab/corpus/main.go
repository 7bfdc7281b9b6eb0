// Package corpus converts every ELF file below the given directories, and checks the results: programs must see the
// same bytes, and the rows of programs and libraries must agree with their CFI at every pc. Flags add checks.
package corpus

import (
	"debug/elf"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/image"
	"cfi2sframe/internal/testkit/linked"
	"cfi2sframe/lab/kit"
	"cfi2sframe/lab/linux"
	"cfi2sframe/lab/readers"
	"cfi2sframe/lab/walker"
)

// A corpus holds the checks to run on each file, and the results.
type corpus struct {
	program string   // cfi2sframe
	forms   []string // flags for each conversion
	linux   bool     // files are kernels and modules
	checks  []func(*job) error
	end     func() error // prints the results of a check; may be nil

	mu    sync.Mutex
	wrong int
	sums  map[string]*sum // by kind of file
}

// A job is one conversion of a file.
type job struct {
	path, out, dir string // dir is temporary
	form           string // flags
	machine        elf.Machine
	object         bool
}

// A sum holds the totals for one kind of file.
type sum struct {
	kit.Rows
	files int
	kept  map[string]uint64 // files without a section, by reason
	gaps  map[string]uint64 // bytes of code, by reason
}

// Command returns the subcommand.
func Command() *kit.Command {
	cmd := kit.New("corpus", "PATH...", 1, math.MaxInt)
	c := corpus{sums: make(map[string]*sum)}
	formats := cmd.StringSlice("format", []string{"3"}, "SFrame `VERSIONS`, if they support a file's machine")
	detached := cmd.Bool("detached", false, "detach and attach the section, and expect the same bytes as before")
	start := cmd.Bool("start", false, "start the originals and the results, and compare")
	root := cmd.String("root", "/", "the files belong to the system in `DIR`; each argument is a path inside it")
	query := cmd.Bool("walker", false, "convert to all formats, and compare the walker in C with package sframe")
	seeds := cmd.String("seeds", "", "convert to all formats, and write seeds of the walker's fuzzer to `DIR`")
	libsframe := cmd.Bool("libsframe", false, "convert to all formats of libsframe, and look up all rows with it")
	dumps := cmd.Bool("dumps", false, "compare what dump and objdump print")
	cmd.BoolVar(&c.linux, "linux", false, "convert modules and kernels for Linux, and compare them as they are loaded")
	infers := cmd.Bool("infer", false, "hide the CFI, infer rows from instructions, and compare them with the CFI")
	most := cmd.Int("files", 0, "convert `N` files, evenly spaced in the list; 0: all")
	cmd.Run = func(paths []string) error {
		if *infers {
			files, err := c.find(*root, paths)
			if err != nil {
				return err
			}
			return c.infer(kit.Spread(files, *most))
		}
		return kit.WithProduct(func(program, temp string) error {
			c.program = program
			for _, f := range *formats {
				c.forms = append(c.forms, "--format "+f)
			}
			if c.linux {
				c.forms = []string{""}
			}
			if *query || *seeds != "" {
				c.forms = walker.Forms
			}
			if *detached {
				c.checks = append(c.checks, c.attach)
			}
			if *query {
				if err := walker.Compile(temp); err != nil {
					return err
				}
				c.checks = append(c.checks, func(j *job) error {
					if j.object { // start addresses are relocations
						return nil
					}
					return walker.Check(temp, j.out)
				})
			}
			if *seeds != "" {
				c.checks = append(c.checks, func(j *job) error { return walker.WriteSeed(*seeds, j.out) })
			}
			if *dumps {
				c.checks = append(c.checks, c.dump)
			}
			if *libsframe {
				libraries, err := readers.Start(".", temp)
				if err != nil {
					return err
				}
				c.forms, c.end = readers.Forms(), libraries.Print
				c.checks = append(c.checks, func(j *job) error { return libraries.Check(j.out, j.form) })
			}
			files, err := c.find(*root, paths)
			if err != nil {
				return err
			}
			files = kit.Spread(files, *most)
			if !*start {
				return c.run(files, temp)
			}
			s, err := newStarter(*root)
			if err != nil {
				return err
			}
			defer s.close()
			c.checks = append(c.checks, s.check)
			err = c.run(files, s.dir)
			for _, line := range kit.Ranked(s.counts) {
				fmt.Println(" ", line)
			}
			return err
		})
	}
	return cmd
}

// find returns the files below the given paths in a root directory.
func (c *corpus) find(root string, paths []string) ([]string, error) {
	for i, path := range paths {
		if root != "/" {
			path = filepath.Join(root, path)
		}
		path, err := filepath.EvalSymlinks(path)
		if err == nil {
			paths[i], err = filepath.Abs(path)
		}
		if err != nil {
			return nil, err
		}
	}
	found, err := kit.ELFFiles(paths...)
	if c.linux {
		found = slices.DeleteFunc(found, func(path string) bool {
			return filepath.Ext(path) != ".ko" && !strings.HasPrefix(filepath.Base(path), "vmlinux")
		})
	}
	if err == nil && len(found) == 0 {
		err = errors.New("no 64-bit ELF file found")
	}
	return found, err
}

// run converts all files, and prints the totals for each kind of file.
func (c *corpus) run(files []string, temp string) error {
	err := kit.Each(files, func(_ int, path string) error {
		for _, form := range c.forms {
			dir, err := os.MkdirTemp(temp, "file-")
			if err != nil {
				return err
			}
			c.file(&job{path: path, out: filepath.Join(dir, "out"), dir: dir, form: form})
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
		}
		return nil
	})
	for _, kind := range slices.Sorted(maps.Keys(c.sums)) {
		s := c.sums[kind]
		fmt.Printf("%s: %d files, %d functions, %d of %d bytes covered, %d bytes of padding; rows equal at %d pcs\n",
			kind, s.files, s.Functions, s.Covered, s.Described, s.Padding, s.PCs)
		for _, line := range kit.Ranked(s.kept) {
			fmt.Println("  files without a section:", line)
		}
		for _, line := range kit.Ranked(s.gaps) {
			fmt.Println("  bytes in gaps:", line)
		}
	}
	fmt.Printf("%d files, %d results are wrong\n", len(files), c.wrong)
	if c.end != nil {
		err = errors.Join(err, c.end())
	}
	if err == nil && c.wrong > 0 {
		err = kit.ErrFound
	}
	return err
}

// file converts a file, compares it with the result, and adds to the totals.
func (c *corpus) file(j *job) {
	kind, rows, report, err := c.convert(j)
	for _, check := range c.checks {
		if err == nil && report.Kept == "" && kind != "" {
			err = check(j)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err != nil:
		c.wrong++
		fmt.Printf("WRONG %s %s: %v\n", j.path, j.form, err)
		return
	case kind == "":
		return
	case c.sums[kind] == nil:
		c.sums[kind] = &sum{kept: make(map[string]uint64), gaps: make(map[string]uint64)}
	}
	s := c.sums[kind]
	s.files++
	s.Rows.Add(rows)
	if report.Kept != "" {
		s.kept[report.Kept]++
	}
	for _, g := range report.Gaps {
		s.gaps[g.Reason] += g.Bytes
	}
}

// convert converts a file, checks that programs see the same bytes as before, and compares the rows with the CFI. The
// kind is "" if the version does not support the machine.
func (c *corpus) convert(j *job) (kind string, rows kit.Rows, report kit.Report, err error) {
	if c.linux {
		return linux.Compare(c.program, j.path, j.out)
	}
	before, err := linked.Open(j.path)
	if err != nil {
		return "", rows, report, err
	}
	j.machine, j.object = elf.Machine(before.Machine), before.IsObject()
	if strings.HasPrefix(j.form, "--format 1") && (j.object || j.machine == elf.EM_S390) {
		return "", rows, report, nil
	}
	kind = fmt.Sprint(j.machine, " ", j.form)
	if j.object {
		kind += ", objects"
	}
	if report, err = kit.Convert(c.program, j.path, j.out, strings.Fields(j.form)...); err != nil || report.Kept != "" {
		return kind, rows, report, err
	}
	rows, err = compare(before, j.out)
	return kind, rows, report, err
}

// compare compares a file with its converted copy.
func compare(before *elffile.File, out string) (rows kit.Rows, err error) {
	after, section, err := linked.Load(out)
	if err != nil {
		return rows, err
	}
	if err := image.Compare(before, after); err != nil || after.IsObject() { // start addresses are relocations
		return rows, err
	}
	table, err := cfi.Load(after, cfi.Auto, nil)
	if err != nil {
		return rows, err
	}
	return kit.CompareRows(table, section, kit.Stubs(after))
}

// attach detaches the section of a converted file, attaches it, and expects the same bytes as before.
func (c *corpus) attach(j *job) error {
	if j.object {
		return nil
	}
	separate, attached := j.out+".sframe", j.out+".attached"
	detach := append([]string{c.program, "detach", "-q", j.path, "-o", separate}, strings.Fields(j.form)...)
	for _, command := range [][]string{
		detach, {c.program, "attach", "-q", j.path, "--sframe", separate, "-o", attached}, {"cmp", attached, j.out},
	} {
		if err := kit.Run("", command...); err != nil {
			return err
		}
	}
	return nil
}

var numbers = regexp.MustCompile(`0x[0-9a-f]+|[0-9]+`)

// generalize returns the same string for messages that differ only in numbers.
func generalize(s string) string {
	return numbers.ReplaceAllString(s[strings.LastIndex(strings.TrimSpace(s), "\n")+1:], "N")
}

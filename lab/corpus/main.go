// Package corpus converts every ELF file below some directories. It expects that nothing changes that a program sees, and
// that the rows of programs and libraries agree with their CFI at every pc. With --start it also starts the originals
// and the results.
package corpus

import (
	"bytes"
	"debug/elf"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/image"
	"cfi2sframe/internal/testkit/linked"
	"cfi2sframe/lab/kit"
)

// A corpus is the files, what is done with them, and what came of it.
type corpus struct {
	program  string // cfi2sframe
	formats  []string
	detached bool
	starter  *starter // or nil

	mu               sync.Mutex
	converted, wrong int
	kept             map[string]uint64 // files that get no section, by reason
	rows             kit.Rows
}

// Command returns the subcommand.
func Command() *kit.Command {
	cmd := kit.New("corpus", "DIR...", 1, math.MaxInt)
	c := corpus{kept: make(map[string]uint64)}
	cmd.StringSliceVar(&c.formats, "format", []string{"3"}, "SFrame `VERSIONS`, those that know a file's machine")
	cmd.BoolVar(&c.detached, "detached", false, "detach and attach the section, and expect the bytes of a conversion")
	start := cmd.Bool("start", false, "start the originals and the results, and compare")
	root := cmd.String("root", "/", "the files belong to the system in `DIR`; each argument is a path inside it")
	cmd.Run = func(dirs []string) error {
		return kit.WithProduct(func(program, temp string) error {
			c.program = program
			return c.run(*root, dirs, *start, temp)
		})
	}
	return cmd
}

func (c *corpus) run(root string, dirs []string, start bool, temp string) error {
	root, err := filepath.EvalSymlinks(root)
	if err != nil {
		return err
	}
	for i, dir := range dirs {
		if root != "/" {
			dir = filepath.Join(root, dir)
		}
		if dir, err = filepath.EvalSymlinks(dir); err == nil {
			dirs[i], err = filepath.Abs(dir)
		}
		if err != nil {
			return err
		}
	}
	found, err := kit.ELFFiles(dirs...)
	if err != nil {
		return err
	}
	if start {
		if c.starter, err = newStarter(root); err != nil {
			return err
		}
		defer c.starter.close()
		temp = c.starter.dir
	}
	err = kit.Each(2, found, func(_ int, path string) error {
		for _, format := range c.formats {
			dir, err := os.MkdirTemp(temp, "file-")
			if err != nil {
				return err
			}
			c.file(path, format, dir)
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
		}
		return nil
	})
	fmt.Printf("%d files: %d converted, %d wrong; rows equal at %d pcs, %d of %d bytes covered\n",
		len(found), c.converted, c.wrong, c.rows.PCs, c.rows.Covered, c.rows.Described)
	for _, line := range kit.Ranked(c.kept) {
		fmt.Println("  without a section:", line)
	}
	if start {
		for _, line := range kit.Ranked(c.starter.counts) {
			fmt.Println(" ", line)
		}
	}
	if err == nil && (c.wrong > 0 || start && c.starter.differ > 0) {
		err = kit.ErrFound
	}
	return err
}

// file converts a file, compares it with the result, and counts.
func (c *corpus) file(path, format, dir string) {
	before, err := linked.Open(path)
	if err == nil && format == "1" && (before.IsObject() || elf.Machine(before.Machine) == elf.EM_S390) {
		return // V1 has none
	}
	out := filepath.Join(dir, "out")
	report, err := kit.Convert(c.program, path, out, "--format", format)
	var rows kit.Rows
	if err == nil && report.Kept == "" {
		rows, err = c.compare(before, path, out, format)
	}
	if err == nil && report.Kept == "" && c.starter != nil {
		err = c.starter.check(path, out, dir)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err != nil:
		c.wrong++
		fmt.Printf("WRONG %s, format %s: %v\n", path, format, err)
	case report.Kept != "":
		c.kept[report.Kept]++
	default:
		c.converted++
		c.rows.Add(rows)
	}
}

// compare checks that the conversion changed nothing that the program sees, and the rows.
func (c *corpus) compare(before *elffile.File, path, out, format string) (rows kit.Rows, err error) {
	after, err := linked.Open(out)
	if err != nil {
		return rows, err
	}
	if err := image.Compare(before, after); err != nil || after.IsObject() { // whose start addresses are relocations
		return rows, err
	}
	if c.detached {
		if err := c.attach(path, out, format); err != nil {
			return rows, err
		}
	}
	table, err := cfi.Load(after, cfi.Auto, nil)
	if err != nil {
		return rows, err
	}
	_, section, err := linked.Load(out)
	if err != nil {
		return rows, err
	}
	return kit.CompareRows(table, section, kit.Stubs(after))
}

// attach detaches the section of a file, attaches it, and expects the bytes of the conversion.
func (c *corpus) attach(path, out, format string) error {
	separate, attached := out+".sframe", out+".attached"
	for _, args := range [][]string{
		{"detach", "-q", "--format", format, path, "-o", separate},
		{"attach", "-q", path, "--sframe", separate, "-o", attached},
	} {
		if text, err := exec.Command(c.program, args...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", args[0], err, text)
		}
	}
	want, err := os.ReadFile(out)
	if err != nil {
		return err
	}
	got, err := os.ReadFile(attached)
	if err == nil && !bytes.Equal(got, want) {
		err = fmt.Errorf("attached, it has other bytes than converted")
	}
	return err
}

var numbers = regexp.MustCompile(`0x[0-9a-f]+|[0-9]+`)

// generalize makes one reason of messages that differ in numbers only.
func generalize(s string) string {
	return numbers.ReplaceAllString(s[strings.LastIndex(strings.TrimSpace(s), "\n")+1:], "N")
}

// Package corpus converts every ELF file below some directories and expects that nothing changes that a program sees.
// With --start it also starts the originals and the results.
package corpus

import (
	"cmp"
	"context"
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

	"cfi2sframe/convert"
	"cfi2sframe/internal/files"
	"cfi2sframe/internal/testkit/image"
	"cfi2sframe/internal/testkit/linked"
	"cfi2sframe/lab/kit"
	"cfi2sframe/sframe"
)

// Command returns the subcommand.
func Command() *kit.Command {
	c := kit.New("corpus", "DIR...", 1, math.MaxInt)
	format := c.Int("format", int(convert.DefaultVersion), "SFrame version")
	start := c.Bool("start", false, "start the originals and the results, and compare")
	root := c.String("root", "/", "the files belong to the system in `DIR`; each argument is a path inside it")
	c.Run = func(dirs []string) error {
		return run(*root, dirs, *start, convert.Options{Version: sframe.Version(*format)})
	}
	return c
}

// totals are the sums over all files.
type totals struct {
	mu               sync.Mutex
	converted, wrong int
	refused          map[string]int // by reason
	starter          *starter       // or nil
}

func run(root string, dirs []string, start bool, opt convert.Options) error {
	root, err := filepath.EvalSymlinks(root)
	if err != nil {
		return err
	}
	for i, dir := range dirs {
		if root != "/" {
			dir = filepath.Join(root, dir)
		}
		if dirs[i], err = filepath.EvalSymlinks(dir); err != nil {
			return err
		}
	}
	found, err := kit.ELFFiles(dirs...)
	if err != nil {
		return err
	}
	t := &totals{refused: make(map[string]int)}
	temp := os.TempDir()
	if start {
		if t.starter, err = newStarter(root); err != nil {
			return err
		}
		defer t.starter.close()
		temp = t.starter.dir
	}
	err = kit.Each(2, found, func(_ int, path string) error {
		dir, err := os.MkdirTemp(temp, "file-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		if path, err = filepath.Abs(path); err != nil {
			return err
		}
		t.file(path, dir, opt)
		return nil
	})
	refused := 0
	for _, n := range t.refused {
		refused += n
	}
	fmt.Printf("%d files: %d converted, %d refused, %d wrong\n", len(found), t.converted, refused, t.wrong)
	printCounts(t.refused)
	if start {
		t.starter.print()
	}
	if err == nil && (t.wrong > 0 || start && t.starter.differ > 0) {
		err = kit.ErrFound
	}
	return err
}

// file converts a file and compares it with the result.
func (t *totals) file(path, dir string, opt convert.Options) {
	out := filepath.Join(dir, "out")
	res, err := files.Convert(context.Background(), path, out, files.Options{Options: opt})
	refused := err != nil && !errors.Is(err, convert.ErrWrong)
	if err == nil {
		err = same(path, out)
	}
	if err == nil && len(res.Kept) > 0 { // an object without CFI
		refused, err = true, res.Kept[0].Why
	}
	if err == nil && t.starter != nil {
		err = t.starter.check(path, out, dir)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case refused:
		t.refused[generalize(err.Error())]++
	case err != nil:
		t.wrong++
		fmt.Printf("WRONG %s: %v\n", path, err)
	default:
		t.converted++
	}
}

// same checks that the conversion changed nothing that the program sees.
func same(before, after string) error {
	x, err := linked.Open(before)
	if err != nil {
		return err
	}
	y, err := linked.Open(after)
	if err != nil {
		return err
	}
	return image.Compare(x, y)
}

var numbers = regexp.MustCompile(`0x[0-9a-f]+|[0-9]+`)

// generalize makes one reason of messages that differ in numbers only.
func generalize(s string) string {
	return numbers.ReplaceAllString(s[strings.LastIndex(strings.TrimSpace(s), "\n")+1:], "N")
}

func printCounts(counts map[string]int) {
	for _, k := range slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	}) {
		fmt.Printf("  %6d: %s\n", counts[k], k)
	}
}

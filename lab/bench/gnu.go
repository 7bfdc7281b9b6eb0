package bench

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"cfi2sframe/internal/testkit/linked"
	"cfi2sframe/lab/kit"
	"cfi2sframe/sframe"
)

// compare measures sections that GNU as and ld made beside those of cfi2sframe, one FDE per function ("off") and by
// default: sizes, and times of lookups.
func compare(tool, dir string, rounds int, files []string) error {
	t := kit.NewTable(os.Stdout, "file", "version", "GNU", "off", "default", "x GNU", "FDEs: GNU, off, default",
		"lookup in ns: GNU", "off", "default", "x GNU, x off")
	for _, path := range files {
		if err := compareFile(t, tool, filepath.Join(dir, "out"), path, rounds); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

func compareFile(t kit.Table, tool, out, path string, rounds int) error {
	var sections [3]*sframe.Section // of GNU, off, default
	var sizes [3]uint64
	load := func(i int, path string) error {
		f, s, err := linked.Load(path)
		if err != nil {
			return err
		}
		sections[i], sizes[i] = s.Sorted(), f.Section(".sframe").Size
		return nil
	}
	if err := load(0, path); err != nil {
		return err
	}
	version := fmt.Sprint(uint8(sections[0].Version))
	for i, share := range []string{"off", "on"} {
		cmd := exec.Command(tool, "-q", "--force", "--share", share, "--format", version, path, "-o", out)
		if b, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w\n%s", err, b)
		}
		if err := load(i+1, out); err != nil {
			return err
		}
	}
	pcs, err := sample(sections[0], sections[2])
	if err != nil {
		return err
	}
	var times [3][]time.Duration
	for range rounds {
		for i, s := range sections {
			start := time.Now()
			for _, pc := range pcs {
				if _, _, err := s.Lookup(pc); err != nil {
					return err
				}
			}
			times[i] = append(times[i], time.Since(start))
		}
	}
	var ns [3]float64
	for i := range times {
		slices.Sort(times[i])
		ns[i] = float64(times[i][rounds/2].Nanoseconds()) / float64(len(pcs))
	}
	t.Row(filepath.Base(path), "V"+version, sizes[0], sizes[1], sizes[2],
		fmt.Sprintf("%.3f", float64(sizes[2])/float64(sizes[0])),
		fmt.Sprintf("%d, %d, %d", sections[0].Len(), sections[1].Len(), sections[2].Len()),
		fmt.Sprintf("%.0f", ns[0]), fmt.Sprintf("%.0f", ns[1]), fmt.Sprintf("%.0f", ns[2]),
		fmt.Sprintf("%.2f, %.2f", ns[2]/ns[0], ns[2]/ns[1]))
	return nil
}

// sample returns random addresses of code that both sections describe.
func sample(a, b *sframe.Section) ([]uint64, error) {
	const number, tries = 200_000, 20_000_000
	first, last := a.FDE(0), a.FDE(a.Len()-1)
	begin, size := first.Start, last.End()-first.Start
	r := rand.New(rand.NewPCG(1, 2))
	var pcs []uint64
	for range tries {
		pc := begin + r.Uint64N(size)
		if a.Find(pc) >= 0 && b.Find(pc) >= 0 {
			if pcs = append(pcs, pc); len(pcs) == number {
				return pcs, nil
			}
		}
	}
	return nil, fmt.Errorf("both sections describe %d of %d addresses", len(pcs), tries)
}

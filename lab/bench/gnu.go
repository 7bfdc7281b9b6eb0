package bench

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/linked"
	"cfi2sframe/sframe"
)

// compare measures files that have an .sframe of GNU as and ld: its size, the size of ours,
// and how long it takes to find the row for a pc in either.
func compare(tool string, rounds int, files []string) error {
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	fmt.Println("| file | version | GNU | off | default | x GNU | no less than | FDEs: GNU, off, default | lookup in ns: GNU | off | default | x GNU, x off |")
	fmt.Println("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, path := range files {
		if err := compareFile(tool, dir, path, rounds); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

// A sized is a section and its size in bytes.
type sized struct {
	*sframe.Section
	size uint64
}

// load reads the .sframe of a file.
func load(path string) (sized, error) {
	f, s, err := linked.Load(path)
	if err != nil {
		return sized{}, err
	}
	return sized{s.Sorted(), size(f)}, nil
}

func size(f *elffile.File) uint64 { return f.Section(".sframe").Size }

func compareFile(tool, dir, path string, rounds int) error {
	gnu, err := load(path)
	if err != nil {
		return err
	}
	convert := func(share string) (sized, error) {
		out := filepath.Join(dir, "out")
		if b, err := exec.Command(tool, "-q", "--force", "--share", share, "--format", fmt.Sprint(uint8(gnu.Version)), path, "-o", out).CombinedOutput(); err != nil {
			return sized{}, fmt.Errorf("%w\n%s", err, b)
		}
		return load(out)
	}
	plain, err := convert("off")
	if err != nil {
		return err
	}
	ours, err := convert("on")
	if err != nil {
		return err
	}
	least, err := bound(plain.Section)
	if err != nil {
		return err
	}
	pcs, err := sample(gnu.Section, ours.Section)
	if err != nil {
		return err
	}
	var times [3][]time.Duration
	for range rounds {
		for i, s := range []*sframe.Section{gnu.Section, plain.Section, ours.Section} {
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
	part := func(size uint64) float64 { return float64(size) / float64(gnu.size) }
	fmt.Printf("| %s | V%d | %d | %d | %d | %.3f | %.3f | %d, %d, %d | %.0f | %.0f | %.0f | %.2f, %.2f |\n", filepath.Base(path), gnu.Version, gnu.size, plain.size,
		ours.size, part(ours.size), part(least), gnu.Len(), plain.Len(), ours.Len(), ns[0], ns[1], ns[2], ns[2]/ns[0], ns[2]/ns[1])
	return nil
}

// sample returns addresses of code that both sections describe, each as likely as any other.
func sample(a, b *sframe.Section) ([]uint64, error) {
	const n = 200_000
	ends := make([]uint64, a.Len()) // of the FDEs, one after the other
	var total uint64
	for i, d := range a.FDEs() {
		total += uint64(d.Size)
		ends[i] = total
	}
	r := rand.New(rand.NewPCG(1, 2))
	pcs := make([]uint64, 0, n)
	for tried := 0; len(pcs) < n; tried++ {
		if tried == 10*n {
			return nil, fmt.Errorf("of %d addresses %d are described by both", tried, len(pcs))
		}
		at := r.Uint64N(total)
		i, _ := slices.BinarySearch(ends, at+1)
		d := a.FDE(i)
		pc := d.End() - (ends[i] - at)
		_, inA, errA := a.Lookup(pc)
		_, inB, errB := b.Lookup(pc)
		if err := errors.Join(errA, errB); err != nil {
			return nil, fmt.Errorf("at %#x: %w", pc, err)
		}
		if inA && inB {
			pcs = append(pcs, pc)
		}
	}
	return pcs, nil
}

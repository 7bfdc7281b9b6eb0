package bench

import (
	"fmt"
	"math"

	"cfi2sframe/convert"
	"cfi2sframe/internal/testkit/linked"
	"cfi2sframe/lab/kit"
	"cfi2sframe/sframe"
)

// Reads returns the subcommand that prints how many rows linear readers, such as Linux, read per frame: from the first
// row of an FDE up to the row that covers a pc, averaged over the code of all FILEs. scripts/bench uses it.
func Reads() *kit.Command {
	c := kit.New("reads", "FILE...", 1, math.MaxInt)
	c.Run = func(paths []string) error {
		var code, rows uint64
		for _, path := range paths {
			f, _, err := linked.Load(path)
			if err != nil {
				return err
			}
			s, err := convert.ReadSection(f)
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			if err := addReads(s, &code, &rows); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
		}
		_, err := fmt.Printf("%.2f\n", float64(rows)/float64(max(code, 1)))
		return err
	}
	return c
}

// addReads adds the bytes of code with rows, and the rows that a linear reader reads if it looks up each of them once.
func addReads(s *sframe.Section, code, rows *uint64) error {
	var fres []sframe.FRE
	for i, d := range s.FDEs() {
		var err error
		if fres, err = s.FREs(i, fres[:0]); err != nil {
			return err
		}
		size, blocks := uint64(d.Size), uint64(1)
		if d.PCMask {
			size = min(size, uint64(d.RepSize))
			blocks = uint64(d.Size) / max(size, 1)
		}
		for _, e := range fres {
			*rows += blocks * (size - min(size, uint64(e.Start)))
		}
		*code += blocks * size
	}
	return nil
}

package bench

import (
	"fmt"
	"math"

	"cfi2sframe/internal/testkit/linked"
	"cfi2sframe/lab/kit"
	"cfi2sframe/sframe"
)

// Reads returns the subcommand that prints, for each FILE, the bytes of code with rows, how many rows linear readers
// such as Linux read if they look up each byte once, and the average. They read from the first row of the FDE up to the
// row that covers the pc. scripts/bench uses it.
func Reads() *kit.Command {
	c := kit.New("reads", "FILE...", 1, math.MaxInt)
	c.Run = func(paths []string) error {
		for _, path := range paths {
			_, s, err := linked.Load(path)
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			code, rows, err := reads(s)
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			fmt.Println(code, rows, fmt.Sprintf("%.2f", float64(rows)/float64(max(code, 1))), path)
		}
		return nil
	}
	return c
}

// reads returns the bytes of code with rows, and how many rows a linear reader reads if it looks up each of them once.
func reads(s *sframe.Section) (code, rows uint64, err error) {
	var fres []sframe.FRE
	for i, d := range s.FDEs() {
		if fres, err = s.FREs(i, fres[:0]); err != nil {
			return 0, 0, err
		}
		size, blocks := uint64(d.Size), uint64(1)
		if d.PCMask {
			size = min(size, uint64(d.RepSize))
			blocks = uint64(d.Size) / max(size, 1)
		}
		for _, e := range fres {
			rows += blocks * (size - min(size, uint64(e.Start)))
		}
		code += blocks * size
	}
	return code, rows, nil
}

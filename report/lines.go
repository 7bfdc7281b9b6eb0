package report

import (
	"errors"
	"fmt"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/dwline"
)

// maxLineGaps bounds the gaps whose source lines are looked up.
const maxLineGaps = 4096

// sourceLines finds the source file and line of each gap's first instruction, from the debug information of the file
// or of its debug file. Gaps still have addresses, also in an object.
func (c *Coverage) sourceLines(in *Input) {
	gaps := c.Gaps[:min(len(c.Gaps), maxLineGaps)]
	if len(gaps) == 0 {
		return
	}
	err := findLines(in.File, gaps)
	if errors.Is(err, dwline.ErrNone) && in.Debug != nil {
		err = findLines(in.Debug, gaps)
	}
	switch {
	case errors.Is(err, dwline.ErrNone):
	case err != nil:
		c.Notes = append(c.Notes, fmt.Sprintf("source lines: %v", err))
	case len(gaps) < len(c.Gaps):
		c.Notes = append(c.Notes, fmt.Sprintf("source lines of %s: those of the first %s are looked up",
			plural(len(c.Gaps)-len(gaps), "gap"), Digits(maxLineGaps)))
	}
}

// findLines fills in the source lines of gaps, which are sorted by address.
func findLines(f *elffile.File, gaps []Gap) error {
	addrs := make([]uint64, len(gaps))
	for i := range gaps {
		addrs[i] = gaps[i].Begin
	}
	return dwline.Find(f, addrs, func(i int, file string, line int) { gaps[i].Source, gaps[i].Line = file, line })
}

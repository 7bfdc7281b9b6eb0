package report

import (
	"errors"
	"fmt"
	"sort"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/dwline"
)

// maxLineGaps bounds the gaps whose source lines are looked up.
const maxLineGaps = 4096

// sourceLines finds the source file and line of each gap's first instruction, from the debug
// information of the file or of its debug file. Without that there are none.
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
			plural(len(c.Gaps)-len(gaps), "gap"), digits(maxLineGaps)))
	}
}

// findLines fills in the source lines of gaps.
func findLines(f *elffile.File, gaps []Gap) error {
	order := make([]int, len(gaps))
	for i := range order {
		order[i] = i
	}
	sort.Slice(order, func(i, j int) bool { return gaps[order[i]].addr < gaps[order[j]].addr })
	addrs := make([]uint64, len(gaps))
	for i, j := range order {
		addrs[i] = gaps[j].addr
	}
	return dwline.Find(f, addrs, func(i int, file string, line int) {
		gaps[order[i]].Source, gaps[order[i]].Line = file, line
	})
}

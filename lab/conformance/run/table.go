package run

import (
	"fmt"
	"strings"
)

// Features are the groups of vectors in the order of tables.
var Features = []string{
	"cfa", "fp", "ra", "register-words", "row-starts", "pc-mask", "functions", "shared-rows", "padding", "unsorted", "addresses", "header", "fixed-offsets",
	"signed", "outermost", "signal", "flexible", "programs", "gnu", "refuse-bounds", "refuse-undefined", "refuse-contradiction",
}

// Table returns a table in Markdown of features by readers: how many vectors of those that a reader
// claims to read it reads right.
func Table(names []string, all [][]Result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| feature | %s |\n|---%s|\n", strings.Join(names, " | "), strings.Repeat("|---:", len(names)))
	for _, feature := range append(Features, "") {
		title := feature
		if feature == "" {
			title = "all"
		}
		fmt.Fprintf(&b, "| %s |", title)
		for _, results := range all {
			pass, sum := 0, 0
			for _, r := range results {
				if feature != "" && r.Vector.Feature != feature || r.Status == Other {
					continue
				}
				sum++
				if r.Status == Right || r.Status == Mended {
					pass++
				}
			}
			switch {
			case sum == 0:
				b.WriteString(" - |")
			case pass == sum:
				fmt.Fprintf(&b, " %d |", sum)
			default:
				fmt.Fprintf(&b, " **%d of %d** |", pass, sum)
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

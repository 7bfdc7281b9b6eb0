package conformance

import (
	"fmt"
	"io"

	"cfi2sframe/lab/kit"
)

// features are the groups of vectors, in the order of the tables.
var features = []string{
	"cfa", "fp", "ra", "register-words", "row-starts", "pc-mask", "functions", "shared-rows", "padding", "unsorted",
	"addresses", "header", "fixed-offsets", "signed", "outermost", "signal", "flexible", "programs", "gnu",
	"refuse-bounds", "refuse-undefined", "refuse-contradiction",
}

// writeTable writes a table of features and readers: how many vectors of supported formats are answered correctly.
func writeTable(w io.Writer, names []string, all [][]Result) {
	columns := []string{"feature"}
	for _, name := range names {
		columns = append(columns, ">"+name)
	}
	table := kit.NewTable(w, columns...)
	for _, feature := range append(features, "all") {
		row := []any{feature}
		for _, results := range all {
			pass, sum := 0, 0
			for _, r := range results {
				if feature != "all" && r.Vector.Feature != feature || r.Status == Other {
					continue
				}
				sum++
				if r.Status == Right {
					pass++
				}
			}
			switch {
			case sum == 0:
				row = append(row, "-")
			case pass == sum:
				row = append(row, sum)
			default:
				row = append(row, fmt.Sprintf("**%d of %d**", pass, sum))
			}
		}
		table.Row(row...)
	}
}

// Package objects judges what a linker makes of converted objects. scripts/lab objects runs it.
package objects

import (
	"fmt"
	"maps"
	"slices"

	"cfi2sframe/internal/testkit/linked"
	"cfi2sframe/lab/kit"
)

// Command returns the subcommand.
func Command() *kit.Command {
	c := kit.New("objects", "LINKED", 1, 1)
	format := c.Int("format", 3, "SFrame version of the objects")
	allow := c.StringSlice("allow", nil, "`FUNCTIONS` of objects that were not converted")
	c.Run = func(args []string) error { return check(args[0], *format, *allow) }
	return c
}

// check prints a line about a linked file, and fails if anything in it is wrong.
func check(path string, format int, allow []string) error {
	r, err := linked.Check(path)
	if err != nil {
		return err
	}
	fmt.Printf("V%d: %d of %d bytes covered, %d FDEs, %d mismatches\n",
		r.Version, r.Covered, r.Described, r.FDEs, r.Total)
	if int(r.Version) != format {
		return fmt.Errorf("the linker wrote V%d, of objects of V%d", r.Version, format)
	}
	for _, f := range slices.Sorted(maps.Keys(r.Wrong)) {
		if f != ".plt.got" { // GNU ld's own, with the CFA at sp+16, where the code has it at sp+8
			return fmt.Errorf("%s is wrong: %v", f, r.Mismatches)
		}
	}
	for _, f := range slices.Sorted(maps.Keys(r.Missing)) {
		if !slices.Contains(allow, f) {
			return fmt.Errorf("%d bytes of %s are missing in what the linker merged", r.Missing[f], f)
		}
	}
	return nil
}

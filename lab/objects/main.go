// Package objects converts the objects of a project in place, and judges what a linker
// makes of them. It is run by scripts/lab objects.
//
//	objects convert --format N --totals FILE OBJECT...
//	objects check --name NAME --totals FILE [--allow FUNCTION,...] LINKED
package objects

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"

	"cfi2sframe/cfi"
	"cfi2sframe/convert"
	"cfi2sframe/internal/files"
	"cfi2sframe/internal/testkit/linked"
	"cfi2sframe/lab/kit"
	"cfi2sframe/sframe"
)

// totals are the sums over the objects of a project.
type totals struct {
	Format             int
	Objects            int // given, members of archives included
	Converted          int
	Functions          int
	Described, Covered uint64 // bytes of code
	FDEs               int
	Gaps               map[string]uint64 // bytes by reason
}

// Command returns the subcommand.
func Command() *kit.Command {
	c := kit.New("objects", "convert OBJECT... | check LINKED", 2, math.MaxInt)
	format := c.Int("format", int(sframe.V3), "SFrame version")
	file := c.String("totals", "", "`FILE` with the sums over the objects")
	name := c.String("name", "", "`NAME` of the project")
	allow := c.StringSlice("allow", nil, "`FUNCTIONS` of objects that were not converted")
	c.Run = func(args []string) error {
		switch {
		case args[0] == "convert":
			return convertAll(args[1:], *format, *file)
		case args[0] == "check" && len(args) == 2:
			return check(args[1], *name, *file, *allow)
		}
		return errors.New("expected convert and objects, or check and a linked file")
	}
	return c
}

// convertAll converts objects and archives in place. Those without CFI stay.
func convertAll(paths []string, format int, totalsFile string) error {
	t := totals{Format: format, Gaps: make(map[string]uint64)}
	for _, path := range paths {
		res, err := files.Convert(context.Background(), path, path, files.Options{Options: convert.Options{Version: sframe.Version(format)}, NoSync: true})
		if errors.Is(err, cfi.ErrNone) || errors.Is(err, convert.ErrNoCode) {
			t.Objects++
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		t.Objects += len(res.Coverage) + len(res.Kept)
		for _, c := range res.Coverage {
			if !c.Verified && c.FDEs > 0 || c.Malformed.Count > 0 {
				return fmt.Errorf("%s: verified %t, %d malformed records", c.File, c.Verified, c.Malformed.Count)
			}
			t.Converted++
			t.Functions += c.Functions
			t.Described += c.Described
			t.Covered += c.Covered
			t.FDEs += c.FDEs
			for _, r := range c.Reasons {
				t.Gaps[r.Name] += r.Bytes
			}
		}
	}
	b, err := json.Marshal(t)
	if err != nil {
		return err
	}
	return os.WriteFile(totalsFile, b, 0o666)
}

// check prints a line about a linked file, and fails if anything in it is wrong.
func check(path, name, totalsFile string, allow []string) error {
	b, err := os.ReadFile(totalsFile)
	if err != nil {
		return err
	}
	var t totals
	if err := json.Unmarshal(b, &t); err != nil {
		return err
	}
	r, err := linked.Check(path)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	fmt.Printf("%s V%d: %d objects, %d converted: %d functions, %d of %d bytes covered, %d FDEs; linked: %d of %d bytes covered, %d FDEs, %d mismatches",
		name, r.Version, t.Objects, t.Converted, t.Functions, t.Covered, t.Described, t.FDEs, r.Covered, r.Described, r.FDEs, r.Total)
	list("; left out", t.Gaps)
	list("; wrong", r.Wrong)
	list("; of other objects", r.Missing)
	fmt.Println()
	if int(r.Version) != t.Format {
		return fmt.Errorf("%s: the linker wrote V%d, of objects of V%d", name, r.Version, t.Format)
	}
	for _, f := range slices.Sorted(maps.Keys(r.Wrong)) {
		if f != ".plt.got" { // GNU ld's own, with the CFA at sp+16, where the code has it at sp+8
			return fmt.Errorf("%s: %s is wrong: %v", name, f, r.Mismatches)
		}
	}
	for _, f := range slices.Sorted(maps.Keys(r.Missing)) {
		if !slices.Contains(allow, f) {
			return fmt.Errorf("%s: %d bytes of %s are missing in what the linker merged", name, r.Missing[f], f)
		}
	}
	return nil
}

func list(what string, bytes map[string]uint64) {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(bytes)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, bytes[name]))
	}
	if len(parts) > 0 {
		fmt.Printf("%s %s", what, strings.Join(parts, ", "))
	}
}

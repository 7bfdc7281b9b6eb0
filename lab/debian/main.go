// Package debian has the steps of scripts/lab debian that are not cfi2sframe's: it takes the ELF files out of packages,
// has each converted and checked, chooses some at random, and makes the tables of docs/debian.md.
//
//	debian unpack DEBS TREE RESULTS     ELF files of packages, and the list of packages
//	debian convert TOOL TREE RESULTS    all files of the survey
//	debian sample RESULTS               names of files
//	debian tables RESULTS DOCUMENT
//
// RESULTS of unpack and convert is RESULTS/SYSTEM, without a suffix.
package debian

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"

	"cfi2sframe/lab/kit"
)

// Command returns the subcommand.
func Command() *kit.Command {
	steps := "unpack DEBS TREE RESULTS | convert TOOL TREE RESULTS | sample RESULTS | tables RESULTS DOCUMENT"
	c := kit.New("debian", steps, 2, 4)
	first := c.Int("first", 0, "unpack the first `N` packages only")
	jobs := c.Int("jobs", runtime.NumCPU(), "packages or batches of files at a time")
	number := c.Int("number", 300, "files of the sample")
	c.Run = func(args []string) error {
		switch step := args[0]; {
		case step == "unpack" && len(args) == 4:
			return unpackAll(args[1], args[2], args[3], *first, *jobs)
		case step == "convert" && len(args) == 4:
			return convertAll(args[1], args[2], args[3], *jobs)
		case step == "sample" && len(args) == 2:
			return sample(args[1], *number)
		case step == "tables" && len(args) == 3:
			return update(args[1], args[2])
		}
		return errors.New("wrong step or number of arguments; scripts/lab debian runs all steps")
	}
	return c
}

// sample prints files at random, among those that are converted in both versions.
func sample(results string, number int) error {
	all, err := loadAll(results)
	if err != nil {
		return err
	}
	var names []string
	for _, s := range all {
		for _, f := range s.files {
			if f.converted(2) && f.converted(3) {
				names = append(names, f.name)
			}
		}
	}
	r := rand.New(rand.NewPCG(1, 0))
	r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	names = names[:min(len(names), number)]
	slices.Sort(names)
	for _, name := range names {
		fmt.Println(name)
	}
	return nil
}

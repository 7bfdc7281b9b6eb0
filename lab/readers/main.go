// Package readers has the libraries that people use look up what cfi2sframe writes, and compares their answers with the
// call frame information.
package readers

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"cfi2sframe/cfi"
	"cfi2sframe/convert"
	"cfi2sframe/lab/conformance"
	"cfi2sframe/lab/conformance/vector"
	"cfi2sframe/lab/kit"
	"cfi2sframe/sframe"
)

// A format is one that a library is asked about.
type format struct {
	library string
	name    string
	vectors string // its name in conformance
	opt     convert.Options
	abis    string // 2.44 does not know s390x; 2.47 refuses shared rows in the other byte order
}

const allABIs = "amd64 aarch64 aarch64_be s390x"

var formats = []format{
	{"libsframe-2.44", "V2", "2", convert.Options{Version: sframe.V2}, "amd64 aarch64 aarch64_be"},
	{"libsframe-2.47", "V2 --pcrel", "2e1", convert.Options{Version: sframe.V2, PCRel: true}, allABIs},
	{
		"libsframe-2.47", "V2 --pcrel --outermost", "2e2",
		convert.Options{Version: sframe.V2, PCRel: true, Outermost: true}, allABIs,
	},
	{"libsframe-2.47", "V3", "3", convert.Options{Version: sframe.V3}, allABIs},
	{
		"libsframe-2.47", "V3 --share=on", "3",
		convert.Options{Version: sframe.V3, Share: convert.ShareOn}, "amd64 aarch64",
	},
}

// Command returns the subcommand.
func Command() *kit.Command {
	c := kit.New("readers", "libsframe FILE... | chains FLAGS PROGRAM LIBGCC SCENES <OUTPUT", 2, math.MaxInt)
	c.Run = func(args []string) error {
		switch {
		case args[0] == "libsframe":
			return run(".", args[1:])
		case args[0] == "chains" && len(args) == 5:
			out, err := io.ReadAll(os.Stdin)
			if err != nil {
				return err
			}
			p := &program{flags: args[1], name: args[2], libgcc: args[3]}
			if p.scenes, err = strconv.Atoi(args[4]); err != nil {
				return err
			}
			return p.judge(string(out))
		}
		return errors.New("scripts/readers runs this")
	}
	return c
}

// counts are what lookups came to.
type counts struct {
	files, lookups, rows int
	known                int // wrong RA by the known error flexible-padding
	wrong                []error
}

// run asks the libraries about files. The top is that of the repository.
func run(top string, files []string) error {
	begin := time.Now()
	dir, err := os.MkdirTemp("", "readers-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	table := kit.NewTable(os.Stdout, "library", "format", ">files", ">lookups", ">rows", ">known errors", ">wrong")
	var errs []error
	for i := range formats {
		f := &formats[i]
		r, err := conformance.StartReader(f.library, top, dir)
		if err != nil {
			return err
		}
		var sum counts
		for _, path := range files {
			if err := f.file(r, path, &sum); err != nil {
				sum.wrong = append(sum.wrong, fmt.Errorf("%s, %s, %s: %w", f.library, f.name, path, err))
			}
		}
		table.Row(f.library, f.name, sum.files, sum.lookups, sum.rows, sum.known, len(sum.wrong))
		errs = append(errs, sum.wrong...)
		if sum.rows == 0 {
			errs = append(errs, fmt.Errorf("%s, %s: no rows were compared", f.library, f.name))
		}
	}
	fmt.Printf("%.0f s\n", time.Since(begin).Seconds())
	return errors.Join(errs...)
}

// file asks about a file. Files without CFI or of other ABIs are skipped.
func (f *format) file(r *conformance.Reader, path string, sum *counts) error {
	v, err := conformance.FromFile(path, f.vectors, f.opt)
	if errors.Is(err, cfi.ErrNone) || errors.Is(err, convert.ErrNoCode) {
		return nil
	}
	if err != nil {
		return err
	}
	if !slices.Contains(strings.Fields(f.abis), v.ABI) {
		return nil
	}
	sum.files++
	return f.ask(r, v, sum)
}

// ask asks a reader for all rows of a vector, some thousand at a time, and returns the first wrong answer.
func (f *format) ask(r *conformance.Reader, v *vector.Vector, sum *counts) error {
	const most = 20000
	for all := v.Expect; len(all) > 0; {
		part := *v
		part.Expect, all = all[:min(most, len(all))], all[min(most, len(all)):]
		q := &vector.Question{ABI: v.ABI, Address: v.Address, PCs: part.PCs(), Section: v.Section}
		reply, err := r.Ask(q)
		if err != nil {
			return err
		}
		for i, a := range reply.Answers {
			want := part.Expect[i/3].Row
			if a == nil {
				continue
			}
			sum.rows++
			// libsframe 2.47 takes FP's control word for RA's offset: flexible-padding in known.json.
			fpOnly := want != nil && want.FP != nil && (want.RA == nil || v.ABI == "amd64")
			if f.vectors == "3" && fpOnly && a.RA != nil && a.RA.Base == "cfa" && a.RA.String() != want.RA.String() {
				a.RA = want.RA
				sum.known++
			}
		}
		sum.lookups += len(q.PCs)
		if what := conformance.Judge(&part, q, &reply, r.Hello.Cannot); what != "" {
			return errors.New(what)
		}
	}
	return nil
}

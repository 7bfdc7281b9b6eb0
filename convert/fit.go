package convert

import (
	"errors"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/elfwrite"
	"cfi2sframe/emit"
	"cfi2sframe/report"
	"cfi2sframe/translate"
)

// A fitted is a translation that the section has room for where it will be.
type fitted struct {
	content *emit.Section
	report  *report.Input
	layout  *elfwrite.Layout
	section []byte
}

// fit translates the CFI of f and finds the layout of the new file. What 32-bit start addresses
// can say depends on where the section is. That is known beforehand, as a rule, and then this
// is done once. But there may be room for a small section only where the old one was; and where
// start addresses count from their own fields, too many of these may lie between the section's
// start and the last of them.
func (c *conversion) fit(f *elffile.File, table *cfi.Table, h *head) (*fitted, error) {
	var reach translate.Reach
	var addr uint64
	if h.layout != nil { // not in an object, where this is the linker's concern
		addr = h.layout.Addr
		reach = c.reach(addr, 1)
	}
	const settled = 4 // rounds, after which addresses that come in turns have to share a reach
	for round := 1; ; round++ {
		r := &fitted{}
		var err error
		if r.content, r.report, err = c.translate(f, table, reach, h.layout); err != nil {
			return nil, err
		}
		r.layout, r.section, err = c.plan(f, r.content, h)
		var far *emit.RangeError
		if err != nil && !errors.As(err, &far) {
			return nil, err
		}
		next := c.reach(r.layout.Addr, 1)
		switch {
		case err == nil && (r.layout.Addr == addr || round > settled || all(r.report, reach) && all(r.report, next)):
			return r, nil
		case r.layout.Addr == addr:
			next = c.reach(addr, r.content.NumFDEs())
		}
		if round > settled {
			next = translate.Reach{First: max(next.First, reach.First), Last: min(next.Last, reach.Last)}
			if next == reach {
				return nil, err
			}
		}
		addr, reach = r.layout.Addr, next
	}
}

// reach is translate.ReachOf for a section at addr.
func (c *conversion) reach(addr uint64, fdes int) translate.Reach {
	return translate.ReachOf(c.opt.Version, addr, c.opt.PCRel, fdes)
}

// all reports whether all code that is described is within reach.
func all(in *report.Input, reach translate.Reach) bool {
	t := in.Table
	ok := reach.Has(t.At(0).Begin, t.At(t.Len()-1).End-1)
	if n := len(in.Stubs); n > 0 {
		ok = ok && reach.Has(in.Stubs[0].Begin, in.Stubs[n-1].End-1)
	}
	return ok
}

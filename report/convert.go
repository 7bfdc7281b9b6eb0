package report

import (
	"encoding/hex"

	"cfi2sframe/cfi"
	"cfi2sframe/convert"
	"cfi2sframe/sframe"
	"cfi2sframe/translate"
)

const warnStaleHeaders = "at __ehdr_start, code finds the program headers without .sframe; " +
	"getauxval(AT_PHDR) and dl_iterate_phdr have it"

// Converted returns the report on a conversion, of a file without a name or of a member of an archive.
func Converted(d *convert.Details, limits *Limits) (*Coverage, error) {
	f := d.Facts
	in := Input{
		File: d.File, Debug: d.Debug, Table: d.Table, ABI: f.ABI, Result: d.Result, Stubs: d.Stubs, Padding: d.Pads,
		Limits: limits,
	}
	if f.Format.Version != sframe.Newest() && len(d.Result.Gaps) > 0 && !limits.Full() {
		var err error
		if in.Format3, err = toNewest(d); err != nil {
			return nil, err
		}
	}
	c := New(in)
	if f.Member != "" {
		c.File = "(" + f.Member + ")"
	}
	c.Kept, c.Format, c.Unsigned, c.Verified = string(f.Stays), int(f.Format.Version), f.Unsigned, f.Verified
	c.FDEs, c.FREs, c.Size, c.MovedCode = f.FDEs, f.FREs, f.Size, f.MovedCode
	if f.StaleHeaders {
		c.Warnings = append(c.Warnings, warnStaleHeaders)
	}
	if d.File.IsObject() {
		c.MergedBy = f.Format.Mergers()
	}
	if d.Table.Debug {
		c.DebugFile = d.DebugPath
	}
	if id, _, err := d.File.BuildID(); err == nil { // damaged notes are reported where they matter
		c.BuildID = hex.EncodeToString(id)
	}
	return c, nil
}

// toNewest returns the translation of the functions with gaps to the newest format.
func toNewest(d *convert.Details) (*translate.Result, error) {
	with := make(map[*cfi.Function]bool)
	for i := range d.Result.Gaps {
		with[d.Result.Gaps[i].Function] = true
	}
	part := d.Table.Only(func(fn *cfi.Function) bool { return with[fn] })
	opt := translate.Options{Version: sframe.Newest(), Moves: d.File.Moves, Budget: d.File.Budget()}
	return translate.Translate(part, opt, translate.Discard())
}

// Checked returns the report on a comparison, of a file without a name.
func Checked(d *convert.Details) *Check {
	c := d.Comparison
	code, _ := MeasureCode(d.File, d.Table, d.Stubs)
	check := &Check{
		Schema: Schema, ABI: c.ABI.String(), Format: int(c.Version), FDEs: c.FDEs, FREs: c.FREs, Sorted: c.Sorted,
		Amounts: NewAmounts(code, Amounts{
			Described: c.Described, Covered: c.Covered, Outermost: c.Outermost, PLT: c.Stubs,
		}),
		Padding: c.Padding, Refused: c.Refused, Mismatches: []Mismatch{},
	}
	ranges := make([]Range, len(c.Mismatches))
	for i, m := range c.Mismatches {
		ranges[i] = Range{m.Begin, m.End}
	}
	for i, at := range Locate(d.File, d.Debug, ranges) {
		m := &c.Mismatches[i]
		check.Mismatches = append(check.Mismatches, Mismatch{
			Begin: m.Begin, End: m.End, Function: at.Function, Offset: at.Offset, What: m.What,
		})
	}
	return check
}

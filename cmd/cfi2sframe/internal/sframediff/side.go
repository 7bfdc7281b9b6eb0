package sframediff

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math"

	"cfi2sframe/cfi"
	"cfi2sframe/cmd/cfi2sframe/internal/report"
	"cfi2sframe/convert"
	"cfi2sframe/elffile"
	"cfi2sframe/elfwrite"
	"cfi2sframe/internal/arch"
	"cfi2sframe/internal/files"
	"cfi2sframe/internal/padding"
	"cfi2sframe/internal/plt"
	"cfi2sframe/sframe"
	"cfi2sframe/translate"
)

// maxSharedRows is the number of rows that may be held in memory beyond one per two bytes of the section. FDEs may
// share and repeat rows without limit.
const maxSharedRows = 1 << 22

// A Side is one of the two files to compare.
type Side struct {
	Summary   report.DiffSide
	object    bool
	code      [sha256.Size]byte // hash of the code
	functions []function        // by address
}

// A function is code that an FDE describes, or code without CFI for which .sframe has rows.
type function struct {
	report.DiffFunction // Begin is an address until Load sets the names
	cfi                 bool
	name                string
	rows                []row
	gaps                map[string]uint64 // bytes without a row, by reason
	partner             *function         // in the other file, or nil
}

// A row takes effect at an offset in its function. Equivalent rows have equal words; "" means no row.
type row struct {
	offset uint64
	words  string
}

// Load reads the program at path.
func Load(ctx context.Context, path string, p *files.Program) (*Side, error) {
	f := p.File
	section, err := p.Section()
	if err != nil {
		return nil, err
	}
	format, err := convert.FormatOf(section)
	if err != nil {
		return nil, err
	}
	table, err := p.CFI(ctx)
	if err != nil {
		return nil, err
	}
	_, abi, err := arch.Find(table.Machine, table.Order)
	if err == nil && abi != section.ABI {
		err = fmt.Errorf("ABI %v of .sframe does not match machine %v", section.ABI, table.Machine)
	}
	if err != nil {
		return nil, err
	}
	s := &Side{object: f.IsObject(), Summary: report.DiffSide{
		File: path, ABI: section.ABI.String(), Format: int(section.Version), PCRel: format.PCRel,
		Sorted: section.Flags&sframe.FDESorted != 0, FDEs: section.Len(), FREs: uint64(section.NumFREs),
		Size: section.Size(), Functions: table.Len(),
	}}
	if s.code, err = hashCode(f); err != nil {
		return nil, err
	}
	opts := translate.Options{Version: section.Version, Outermost: format.Outermost, Moves: f.Moves, Budget: f.Budget()}
	res, err := translate.Translate(table, opts, translate.Discard())
	if err != nil {
		return nil, err
	}
	missing := &gaps{res.Gaps, res.ListedTo()}
	if err := s.addFunctions(table, section.Sorted(), paddingOf(f, table), missing); err != nil {
		return nil, err
	}
	stubs, err := plt.Find(f, table)
	if err != nil {
		return nil, err
	}
	code, _ := report.MeasureCode(f, table, stubs)
	s.Summary.Amounts = report.NewAmounts(code, s.Summary.Amounts)
	ranges := make([]elffile.Span, len(s.functions))
	for i, fn := range s.functions {
		ranges[i] = elffile.Span{Begin: fn.Begin, End: fn.Begin + fn.Size}
	}
	for i, l := range report.Locate(f, p.Debug.File(), ranges) {
		fn := &s.functions[i]
		fn.name = l.Function
		if s.object {
			in := &f.Sections[f.SectionAt(fn.Begin)]
			fn.Section, fn.Begin = in.Name, fn.Begin-in.Base
		}
	}
	return s, nil
}

// paddingOf returns the sizes of the padding after the functions of a file, as padding.Gaps.Sizes does, or nil.
func paddingOf(f *elffile.File, table *cfi.Table) []uint8 {
	gaps := padding.Find(f, table, nil)
	if gaps == nil || elfwrite.References(f, gaps.Refer) != nil {
		return nil
	}
	return gaps.Sizes(1)
}

// hashCode hashes a file's code and, in linked files, its addresses. hashCode skips overlapping parts of the file,
// which no linker writes, and which could multiply the work.
func hashCode(f *elffile.File) (sum [sha256.Size]byte, err error) {
	h := sha256.New()
	var total uint64
	for _, c := range f.Code() {
		if total += c.Filesz; total > f.Size {
			break
		}
		if f.IsObject() {
			c.Begin = 0
		}
		fmt.Fprintln(h, c.Begin, c.Filesz)
		b, err := f.ReadAt(c.Name, c.Off, c.Filesz)
		if err != nil {
			return sum, err
		}
		h.Write(b)
	}
	return [sha256.Size]byte(h.Sum(nil)), nil
}

// addFunctions adds the functions of the CFI table, and code without CFI for which .sframe has rows.
func (s *Side) addFunctions(table *cfi.Table, section *sframe.Section, padding []uint8, gaps *gaps) error {
	rest, err := spans(section)
	if err != nil {
		return err
	}
	// takeBefore removes the spans before the address end from the list rest, and returns them.
	takeBefore := func(end uint64) (parts []span) {
		for len(rest) > 0 && rest[0].begin < end {
			part := rest[0]
			part.end = min(part.end, end)
			if rest[0].begin = part.end; rest[0].begin == rest[0].end {
				rest = rest[1:]
			}
			parts = append(parts, part)
		}
		return parts
	}
	for i := range table.Len() + 1 {
		begin := uint64(math.MaxUint64)
		if i < table.Len() {
			begin = table.At(i).Begin
		}
		if i > 0 && padding != nil {
			end := min(begin, table.At(i-1).End+uint64(padding[i-1]))
			for _, part := range takeBefore(end) {
				s.Summary.Padding += part.end - part.begin
			}
		}
		for _, part := range takeBefore(begin) {
			n := len(s.functions)
			if n == 0 || s.functions[n-1].cfi || s.functions[n-1].Begin+s.functions[n-1].Size != part.begin {
				s.functions = append(s.functions, function{})
				s.functions[n].Begin = part.begin
			}
			f := &s.functions[len(s.functions)-1]
			f.add(part)
			f.Size = part.end - f.Begin
			s.Summary.PLT += part.end - part.begin
		}
		if i == table.Len() {
			break
		}
		f, at, end := function{cfi: true}, begin, table.At(i).End
		f.Begin, f.Size = begin, end-begin
		for _, part := range takeBefore(end) {
			gaps.addTo(&f, at, part.begin)
			f.add(part)
			at = part.end
		}
		gaps.addTo(&f, at, end)
		s.Summary.Described += f.Size
		outermost := f.gaps[translate.Outermost.Name()]
		s.Summary.Covered += f.Covered + outermost
		s.Summary.Outermost += outermost
		s.functions = append(s.functions, f)
	}
	return nil
}

// add adds the row of a span.
func (f *function) add(s span) {
	if s.words != "" {
		f.Covered += s.end - s.begin
	}
	if n := len(f.rows); n > 0 && f.rows[n-1].words == s.words {
		return
	}
	f.rows = append(f.rows, row{s.begin - f.Begin, s.words})
	if s.words != "" {
		f.Rows++
	}
}

// gaps holds the gaps of a translation after the current address.
type gaps struct {
	list     []translate.Gap
	listedTo uint64 // end of the code whose gaps are listed
}

// addTo adds a range without rows to a function, with the reasons.
func (g *gaps) addTo(f *function, begin, end uint64) {
	if begin >= end {
		return
	}
	f.add(span{begin, end, ""})
	if f.gaps == nil {
		f.gaps = make(map[string]uint64)
	}
	for begin < end {
		for len(g.list) > 0 && g.list[0].End <= begin {
			g.list = g.list[1:]
		}
		part, reason := end, notWritten
		switch {
		case len(g.list) > 0 && g.list[0].Begin <= begin:
			part, reason = min(end, g.list[0].End), g.list[0].Reason.Name()
		case len(g.list) > 0:
			part = min(end, g.list[0].Begin)
		case begin >= g.listedTo:
			reason = notKnown
		}
		f.gaps[reason] += part - begin
		begin = part
	}
}

// A span is an address range with a single row. The field words describes the row.
type span struct {
	begin, end uint64
	words      string
}

// spans returns the address ranges for which a section has rows, sorted by address. For PC-mask FDEs, each block has
// its own spans.
func spans(section *sframe.Section) ([]span, error) {
	type key struct {
		row          uint32
		signal, keyB bool
	}
	words := make(map[key]string)
	reader := section.NewReader()
	var all []span
	var last, rows uint64
	most := maxSharedRows + section.Size()/2
	for i, d := range section.FDEs() {
		if d.Start < last || d.Start > math.MaxUint64-uint64(d.Size) {
			return nil, fmt.Errorf("FDE %d at %#x overlaps the previous one, or wraps around", i, d.Start)
		}
		last = d.End()
		_, refs, err := reader.Refs(i)
		if err != nil {
			return nil, err
		}
		step := uint64(d.Size)
		if d.PCMask && (len(refs) > 1 || len(refs) == 1 && refs[0].Start > 0) {
			if step = uint64(d.RepSize); step == 0 {
				continue // V1 only; readers disagree on the meaning of such rows
			}
		}
		for block := d.Start; block < last; block += step {
			if rows += uint64(len(refs)) + 1; rows > most {
				return nil, fmt.Errorf("FDEs of .sframe share too many rows: FDE %d at %#x exceeds the limit of %d",
					i, d.Start, most)
			}
			for j, ref := range refs {
				begin, end := block+uint64(ref.Start), min(block+step, last)
				if j+1 < len(refs) {
					end = min(end, block+uint64(refs[j+1].Start))
				}
				if begin >= end {
					continue
				}
				k := key{ref.Row, d.Signal, d.KeyB}
				if words[k] == "" {
					words[k] = wordsOf(section.ABI, reader.Rows[ref.Row], d.Signal, d.KeyB)
				}
				all = append(all, span{begin, end, words[k]})
			}
		}
	}
	return all, nil
}

// wordsOf formats a row. Equivalent rows yield equal strings.
func wordsOf(abi sframe.ABI, row sframe.Row, signal, keyB bool) string {
	for _, rule := range []*sframe.Rule{&row.CFA, &row.RA, &row.FP} {
		switch {
		case rule.Base == sframe.Register && rule.Reg == abi.SP():
			rule.Base = sframe.SP
		case rule.Base == sframe.Register && rule.Reg == abi.FP():
			rule.Base = sframe.FP
		}
	}
	fixed := abi.FixedRA()
	if fixed != 0 && row.RA == (sframe.Rule{Base: sframe.CFA, Offset: int32(fixed), Deref: true}) {
		row.RA = sframe.Rule{} // equivalent
	}
	s := fmt.Sprintf("CFA %v, RA %v, FP %v", row.CFA, row.RA, row.FP)
	if row.Outermost {
		s = "no caller"
	}
	if row.Signed {
		s += ", signed"
	}
	if keyB {
		s += ", key B"
	}
	if signal {
		s += ", signal frame"
	}
	return s
}

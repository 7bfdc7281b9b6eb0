package convert

import (
	"cmp"
	"context"
	"crypto/sha256"
	"debug/elf"
	"fmt"
	"io"
	"math"
	"slices"

	"cfi2sframe/arch"
	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/debugfile"
	"cfi2sframe/internal/outfile"
	"cfi2sframe/report"
	"cfi2sframe/sframe"
	"cfi2sframe/translate"
)

// A token says which row holds from an offset in a function on.
type token struct{ offset, row uint32 }

// A piece is a function that CFI describes, or a stretch of code without CFI that rows are there for.
type piece struct {
	begin, end  uint64
	first, last uint32 // of its tokens, last excluded
	covered     uint64
	cfi         bool
	name        string
	gaps        []lack
	matched     bool
}

// A lack is code of a function that has no row, by the reason.
type lack struct {
	reason string
	bytes  uint64
}

// A side is one of the files.
type side struct {
	report.DiffSide
	file   *elffile.File
	code   []codePart
	pieces []piece
	tokens []token
	object bool
}

// A codePart is a section of code, or a segment where there are no sections.
type codePart struct {
	name        string
	begin, size uint64
	sum         [sha256.Size]byte
}

// load reads a file.
func (d *differ) load(ctx context.Context, s *side, path string, opt FileOptions) (err error) {
	in, err := openInput(ctx, path, use{})
	if err != nil {
		return err
	}
	defer in.close()
	f, err := openELF(elffile.NewBudget(in.info.Size()), in.src, in.info.Size())
	if err != nil {
		return err
	}
	defer func() {
		if failed := f.ReadError(); failed != nil {
			err = outfile.Plain(failed)
		}
	}()
	sec, err := section(f)
	if err != nil {
		return err
	}
	format, err := formatOf(sec)
	if err != nil {
		return err
	}
	debug, err := debugfile.Open(opt.DebugFile, path, f)
	if err != nil {
		return err
	}
	defer debug.Close()
	table, err := cfi.Load(f, opt.Source, debug.File())
	if err != nil {
		return err
	}
	_, abi, err := arch.Find(table.Machine, table.Order)
	if err == nil && abi != sec.ABI {
		err = fmt.Errorf("ABI %v in .sframe is not that of machine %v", sec.ABI, table.Machine)
	}
	if err != nil {
		return err
	}
	s.DiffSide = report.DiffSide{
		File: path, ABI: sec.ABI.String(), Format: int(sec.Version), PCRel: format.PCRel, Sorted: sec.Flags&sframe.FDESorted != 0,
		FDEs: sec.Len(), FREs: uint64(sec.NumFREs), Size: sec.Size(), Functions: table.Len(),
	}
	s.file, s.object = f, f.IsObject()
	res, err := translate.Translate(table, translate.Options{Version: sec.Version, Outermost: format.Outermost, Moves: f.Moves}, translate.Discard())
	if err != nil {
		return err
	}
	r := &sideReader{differ: d, side: s, sec: sec.Sorted(), gaps: res.Gaps, known: math.MaxUint64,
		padding: paddingOf(f, table, nil, nil, 1), numbers: make(map[uint32]uint32)}
	if listed := gapsOf(res); listed > len(res.Gaps) {
		r.known = res.Gaps[len(res.Gaps)-1].End
	}
	if err := r.read(table); err != nil {
		return err
	}
	if s.code, err = codeParts(f); err != nil {
		return err
	}
	s.locate(debug.File())
	if failed := debug.File().ReadError(); failed != nil {
		return fmt.Errorf("debug file %s: %w", debug.Path(), outfile.Plain(failed))
	}
	s.file = nil
	return nil
}

// gapsOf returns how many gaps a translation has, those that are not listed too.
func gapsOf(res *translate.Result) int {
	n := 0
	for _, s := range res.Sums {
		n += s.Ranges
	}
	return n
}

// locate names the pieces.
func (s *side) locate(debug *elffile.File) {
	ranges := make([]report.Range, len(s.pieces))
	for i := range s.pieces {
		ranges[i] = report.Range{Begin: s.pieces[i].begin, End: s.pieces[i].end}
	}
	for i, l := range report.Locate(s.file, debug, ranges) {
		s.pieces[i].name = l.Function
	}
}

// codeParts returns the parts of the file that have code, with sums of their contents. Parts that overlap, which no linker
// makes, are left out: they could make any file a large one.
func codeParts(f *elffile.File) ([]codePart, error) {
	var parts []codePart
	var total uint64
	add := func(name string, begin, off, size uint64) error {
		if total += size; total > f.Size || begin > math.MaxUint64-size {
			return nil
		}
		h := sha256.New()
		n, err := io.Copy(h, io.NewSectionReader(f.Contents(), int64(min(off, math.MaxInt64)), int64(size)))
		if err != nil {
			return outfile.Plain(err)
		}
		if uint64(n) < size {
			return fmt.Errorf("%s: %d bytes at file offset %#x do not fit the file of %d bytes", name, size, off, f.Size)
		}
		parts = append(parts, codePart{name, begin, size, [sha256.Size]byte(h.Sum(nil))})
		return nil
	}
	for i := range f.Sections {
		s := &f.Sections[i]
		if s.Alloc() && s.HasBytes() && s.Flags&uint64(elf.SHF_EXECINSTR) != 0 {
			if err := add(s.Name, s.Base, s.Off, s.Size); err != nil {
				return nil, err
			}
		}
	}
	for i := range f.Progs {
		p := &f.Progs[i]
		if len(f.Sections) == 0 && elf.ProgType(p.Type) == elf.PT_LOAD && elf.ProgFlag(p.Flags)&elf.PF_X != 0 {
			if err := add("PT_LOAD", p.Vaddr, p.Off, p.Filesz); err != nil {
				return nil, err
			}
		}
	}
	slices.SortStableFunc(parts, func(a, b codePart) int { return cmp.Compare(a.begin, b.begin) })
	return parts, nil
}

// A sideReader goes through the functions of a file and its section by address.
type sideReader struct {
	*differ
	*side
	sec     *sframe.Section
	numbers map[uint32]uint32 // of rows, by those of the sframe.Reader and what their FDE says
	gaps    []translate.Gap   // those that were not passed yet
	known   uint64            // up to where they are listed
	padding []uint8           // as paddingOf returns it
	pos     uint64            // up to where the last piece is known
}

// read makes the pieces and their tokens.
func (r *sideReader) read(table *cfi.Table) error {
	next := 0
	// upTo has all functions that begin below an address as pieces.
	upTo := func(addr uint64) {
		for ; next < table.Len() && table.At(next).Begin < addr; next++ {
			fn := table.At(next)
			r.finish()
			r.open(fn.Begin, fn.End, true)
		}
	}
	err := r.segments(func(begin, end uint64, row uint32) {
		for begin < end {
			if upTo(begin + 1); r.inside(begin) {
				part := min(end, r.pieces[len(r.pieces)-1].end)
				r.hold(begin, part, row)
				begin = part
				continue
			}
			part := end
			if next < table.Len() {
				part = min(part, table.At(next).Begin)
			}
			if next > 0 && r.padding != nil {
				if last := table.At(next-1).End + uint64(r.padding[next-1]); begin < last {
					part = min(part, last)
					r.Padding += part - begin
					begin = part
					continue
				}
			}
			if n := len(r.pieces); n == 0 || r.pieces[n-1].cfi || r.pieces[n-1].end != begin {
				r.finish()
				r.open(begin, begin, false)
			}
			r.pieces[len(r.pieces)-1].end = part
			r.hold(begin, part, row)
			begin = part
		}
	})
	if err != nil {
		return err
	}
	upTo(math.MaxUint64)
	r.finish()
	return nil
}

// inside reports whether an address is in the last piece, and that is a function.
func (r *sideReader) inside(addr uint64) bool {
	n := len(r.pieces)
	return n > 0 && r.pieces[n-1].cfi && addr < r.pieces[n-1].end
}

// open begins a piece.
func (r *sideReader) open(begin, end uint64, cfi bool) {
	n := uint32(len(r.tokens))
	r.pieces = append(r.pieces, piece{begin: begin, end: end, first: n, last: n, cfi: cfi})
	r.pos = begin
}

// hold notes that a row holds for a part of the last piece.
func (r *sideReader) hold(begin, end uint64, row uint32) {
	p := &r.pieces[len(r.pieces)-1]
	r.lack(begin)
	r.token(begin, row)
	p.covered += end - begin
	r.pos = end
}

// token notes from where on a row holds.
func (r *sideReader) token(at uint64, row uint32) {
	p := &r.pieces[len(r.pieces)-1]
	offset := at - p.begin
	if n := uint32(len(r.tokens)); n > p.first && r.tokens[n-1].row == row || offset > math.MaxUint32 { // no FDE is that large
		return
	}
	r.tokens = append(r.tokens, token{uint32(offset), row})
	p.last = uint32(len(r.tokens))
}

// lack notes that there is no row up to an address.
func (r *sideReader) lack(end uint64) {
	if r.pos >= end {
		return
	}
	r.token(r.pos, 0)
	p := &r.pieces[len(r.pieces)-1]
	for r.pos < end {
		for len(r.gaps) > 0 && r.gaps[0].End <= r.pos {
			r.gaps = r.gaps[1:]
		}
		part, reason := end, notWritten
		switch {
		case len(r.gaps) > 0 && r.gaps[0].Begin <= r.pos:
			part, reason = min(end, r.gaps[0].End), r.gaps[0].Reason.Name()
		case len(r.gaps) > 0:
			part = min(end, r.gaps[0].Begin)
		case r.pos >= r.known:
			reason = notKnown
		}
		p.add(reason, part-r.pos)
		r.pos = part
	}
}

// add adds code without a row.
func (p *piece) add(reason string, bytes uint64) {
	for i := range p.gaps {
		if p.gaps[i].reason == reason {
			p.gaps[i].bytes += bytes
			return
		}
	}
	p.gaps = append(p.gaps, lack{reason, bytes})
}

// of returns how much code of a reason has no row.
func (p *piece) of(reason string) uint64 {
	for _, g := range p.gaps {
		if g.reason == reason {
			return g.bytes
		}
	}
	return 0
}

// finish ends the last piece.
func (r *sideReader) finish() {
	if len(r.pieces) == 0 {
		return
	}
	p := &r.pieces[len(r.pieces)-1]
	if r.lack(p.end); p.cfi {
		r.Described += p.end - p.begin
		r.Covered += p.covered
	} else {
		r.Beside += p.covered
	}
}

// segments calls fn for each stretch of code that one row holds for, by address; for the blocks of PC-mask FDEs one
// after the other.
func (r *sideReader) segments(fn func(begin, end uint64, row uint32)) error {
	var refs []sframe.Ref
	var last, rows uint64
	most := anyDiffRows + r.sec.Size()/2
	reader := r.sec.NewReader()
	for i := range r.sec.Len() {
		d := r.sec.FDE(i)
		if d.Start < last || d.Start > math.MaxUint64-uint64(d.Size) {
			return fmt.Errorf("FDE %d at %#x overlaps the one before it, or wraps around", i, d.Start)
		}
		last = d.End()
		var err error
		if _, refs, err = reader.Refs(i, refs[:0]); err != nil {
			return err
		}
		step := uint64(d.Size)
		if d.PCMask && (len(refs) > 1 || len(refs) == 1 && refs[0].Start > 0) {
			if step = uint64(d.RepSize); step == 0 {
				continue // in V1, of which readers do not agree on what such rows hold for
			}
		}
		for block := d.Start; block < last; block += step {
			if rows += uint64(len(refs)) + 1; rows > most {
				return fmt.Errorf("FDEs of .sframe share rows: more than %d, up to FDE %d at %#x, are not compared", most, i, d.Start)
			}
			limit := min(block+step, last)
			for j, ref := range refs {
				begin, end := block+uint64(ref.Start), limit
				if j+1 < len(refs) {
					end = min(end, block+uint64(refs[j+1].Start))
				}
				if begin < end {
					fn(begin, end, r.number(reader, ref.Row, d.Signal, d.KeyB))
				}
			}
		}
	}
	return nil
}

// number returns the number of a row.
func (r *sideReader) number(reader *sframe.Reader, n uint32, signal, keyB bool) uint32 {
	key := n << 2
	if signal {
		key |= 1
	}
	if keyB {
		key |= 2
	}
	if number, ok := r.numbers[key]; ok {
		return number
	}
	row := reader.Rows[n]
	normal := diffRow{r.sec.ABI.Normal(row), signal, keyB}
	if fixed := r.sec.ABI.FixedRA(); fixed != 0 && normal.RA == (sframe.Rule{Base: sframe.CFA, Offset: int32(fixed), Deref: true}) {
		normal.RA = sframe.Rule{} // which is what it says
	}
	number, ok := r.rows[normal]
	if !ok {
		number = uint32(len(r.words))
		r.rows[normal] = number
		r.words = append(r.words, r.wordsOf(row, signal, keyB))
	}
	r.numbers[key] = number
	return number
}

// wordsOf returns a row in words, with the names of SP and FP.
func (r *sideReader) wordsOf(row sframe.Row, signal, keyB bool) string {
	abi := r.sec.ABI
	for _, rule := range []*sframe.Rule{&row.CFA, &row.RA, &row.FP} {
		switch {
		case rule.Base == sframe.Register && rule.Reg == abi.SP():
			rule.Base = sframe.SP
		case rule.Base == sframe.Register && rule.Reg == abi.FP():
			rule.Base = sframe.FP
		}
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

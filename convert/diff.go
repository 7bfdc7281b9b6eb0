package convert

import (
	"cmp"
	"context"
	"crypto/sha256"
	"debug/elf"
	"fmt"
	"hash/maphash"
	"io"
	"math"
	"regexp"
	"slices"
	"sort"
	"strings"
	"sync"

	"cfi2sframe/arch"
	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/debugfile"
	"cfi2sframe/internal/outfile"
	"cfi2sframe/report"
	"cfi2sframe/sframe"
	"cfi2sframe/translate"
)

// What is held of each of two files at most: FDEs may share rows, and have as many blocks as they like.
const (
	anyDiffRows = 1 << 22 // and one more for two bytes of the section
	maxChanges  = 1 << 16 // that are listed
)

// Reasons that are not those of a translation: of code that the format has rows for.
const (
	notWritten = "not-written"
	notKnown   = "not-known"
)

var diffReasons = map[string]string{
	notWritten: "the format has rows for it, which were not written",
	notKnown:   "there are too many gaps to tell why",
}

// DiffFiles compares the .sframe of two files, whoever wrote them: what is in them, and which rows functions have. If the
// code is not the same, functions are matched by their names. Of the options, Source and DebugFile count.
func DiffFiles(ctx context.Context, old, new string, opt FileOptions) (*report.Diff, error) {
	d := &differ{rows: make(map[diffRow]uint32), words: []string{""}, seed: maphash.MakeSeed()}
	for i, path := range []string{old, new} {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := d.load(ctx, &d.sides[i], path, opt); err != nil {
			return nil, &FileError{path, err}
		}
	}
	return d.compare(), nil
}

// A FileError is an error of one of several files.
type FileError struct {
	Path string
	Err  error
}

func (e *FileError) Error() string { return e.Path + ": " + e.Err.Error() }
func (e *FileError) Unwrap() error { return e.Err }

// A diffRow is a row, and what its FDE says of it.
type diffRow struct {
	sframe.Row
	signal, keyB bool
}

// A differ compares two files. Rows have numbers, which are the same for both; 0 stands for none.
type differ struct {
	rows  map[diffRow]uint32
	words []string // by number
	seed  maphash.Seed
	sides [2]side
}

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
	f, err := elffile.New(in.src, in.info.Size())
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
	r := &sideReader{differ: d, side: s, sec: sec.Sorted(), gaps: res.Gaps, known: math.MaxUint64, numbers: make(map[uint32]uint32)}
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
		if refs, err = reader.Refs(i, refs[:0]); err != nil {
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

// sum returns a number that pieces with the same rows have in common.
func (d *differ) sum(s *side, p *piece) uint64 {
	var h maphash.Hash
	h.SetSeed(d.seed)
	maphash.WriteComparable(&h, p.end-p.begin)
	for _, t := range s.tokens[p.first:p.last] {
		maphash.WriteComparable(&h, t)
	}
	return h.Sum64()
}

// sameCode reports whether the code of both files is the same, byte by byte. Names of sections may be gone.
func (d *differ) sameCode() bool {
	a, b := d.sides[0].code, d.sides[1].code
	object := d.sides[0].object
	return object == d.sides[1].object && slices.EqualFunc(a, b, func(a, b codePart) bool {
		return (a.begin == b.begin || object) && a.size == b.size && a.sum == b.sum
	})
}

// place returns where an address is: in which part of the code, and how far from its begin.
func (s *side) place(addr uint64) (part int, offset uint64) {
	part = sort.Search(len(s.code), func(i int) bool { return s.code[i].begin > addr }) - 1
	if part < 0 {
		return part, addr
	}
	return part, addr - s.code[part].begin
}

// compare compares the files.
func (d *differ) compare() *report.Diff {
	out := &report.Diff{
		Schema: report.DiffSchema, Old: d.sides[0].DiffSide, New: d.sides[1].DiffSide, SameCode: d.sameCode(),
		Gaps: []report.DiffGap{}, Changes: []report.Change{},
	}
	pairs := d.pairs(out.SameCode)
	gaps := make(map[string]*report.DiffGap)
	for _, p := range pairs {
		d.change(out, p)
		count(gaps, p)
	}
	for _, r := range translate.Reasons() {
		if g := gaps[r.Name()]; g != nil {
			g.Text = r.String()
			out.Gaps = append(out.Gaps, *g)
		}
	}
	for _, name := range []string{notWritten, notKnown} {
		if g := gaps[name]; g != nil {
			g.Text = diffReasons[name]
			out.Gaps = append(out.Gaps, *g)
		}
	}
	old, new := out.Old, out.New
	old.File = new.File
	n := out.Functions
	out.Same = old == new && n.Offsets+n.Rows+n.OnlyOld+n.OnlyNew == 0
	return out
}

// A pair is a function in both files; one of them is nil if it is in the other one only.
type pair [2]*piece

// count sums up the gaps of a pair.
func count(gaps map[string]*report.DiffGap, p pair) {
	add := func(reason string, old, new uint64) {
		g := gaps[reason]
		if g == nil {
			g = &report.DiffGap{Reason: reason}
			gaps[reason] = g
		}
		g.Old += old
		g.New += new
		g.Gained += max(new, old) - old
		g.Lost += max(new, old) - new
	}
	if p[0] != nil {
		for _, l := range p[0].gaps {
			var new uint64
			if p[1] != nil {
				new = p[1].of(l.reason)
			}
			add(l.reason, l.bytes, new)
		}
	}
	if p[1] != nil {
		for _, l := range p[1].gaps {
			if p[0] == nil || p[0].of(l.reason) == 0 {
				add(l.reason, 0, l.bytes)
			}
		}
	}
}

// change counts a pair, and lists it if it is not the same.
func (d *differ) change(out *report.Diff, p pair) {
	n := &out.Functions
	c := report.Change{Old: d.described(0, p[0]), New: d.described(1, p[1])}
	switch {
	case p[1] == nil:
		n.OnlyOld++
		c.Kind, c.Function = report.ChangeOld, p[0].name
	case p[0] == nil:
		n.OnlyNew++
		c.Kind, c.Function = report.ChangeNew, p[1].name
	default:
		c.Function = cmp.Or(p[1].name, p[0].name)
		a, b := d.sides[0].tokens[p[0].first:p[0].last], d.sides[1].tokens[p[1].first:p[1].last]
		i := 0
		for i < len(a) && i < len(b) && a[i] == b[i] {
			i++
		}
		switch {
		case i == len(a) && i == len(b) && p[0].end-p[0].begin == p[1].end-p[1].begin:
			n.Same++
			return
		case slices.EqualFunc(a, b, func(a, b token) bool { return a.row == b.row }):
			n.Offsets++
			c.Kind = report.ChangeOffsets
		default:
			n.Rows++
			c.Kind = report.ChangeRows
		}
		c.Offset = min(p[0].end-p[0].begin, p[1].end-p[1].begin)
		for _, t := range [][]token{a, b} {
			if i < len(t) {
				c.Offset = min(c.Offset, uint64(t[i].offset))
			}
		}
		c.OldRow, c.NewRow = d.rowAt(a, c.Offset), d.rowAt(b, c.Offset)
	}
	if len(out.Changes) == maxChanges {
		out.Omitted++
		return
	}
	out.Changes = append(out.Changes, c)
}

// rowAt returns in words the row that holds at an offset.
func (d *differ) rowAt(tokens []token, offset uint64) string {
	i := sort.Search(len(tokens), func(i int) bool { return uint64(tokens[i].offset) > offset }) - 1
	if i < 0 {
		return ""
	}
	return d.words[tokens[i].row]
}

// described returns what is reported of a function in one of the files.
func (d *differ) described(i int, p *piece) *report.DiffFunction {
	if p == nil {
		return nil
	}
	s := &d.sides[i]
	f := &report.DiffFunction{Begin: p.begin, Size: p.end - p.begin, Covered: p.covered}
	for _, t := range s.tokens[p.first:p.last] {
		if t.row > 0 {
			f.Rows++
		}
	}
	if part, offset := s.place(p.begin); s.object && part >= 0 {
		f.Section, f.Begin = s.code[part].name, offset
	}
	return f
}

// pairs matches the functions of both files, in the order of the new one, with those that only the old one has at the end.
func (d *differ) pairs(byPlace bool) []pair {
	a, b := &d.sides[0], &d.sides[1]
	partner := make([]*piece, len(b.pieces))
	match := func(old *piece, i int) {
		old.matched = true
		partner[i] = old
	}
	if byPlace {
		d.matchPlaces(match)
	} else {
		d.matchNames(match)
	}
	var out []pair
	for i := range b.pieces {
		out = append(out, pair{partner[i], &b.pieces[i]})
	}
	for i := range a.pieces {
		if !a.pieces[i].matched {
			out = append(out, pair{&a.pieces[i], nil})
		}
	}
	return out
}

// matchPlaces matches functions that begin at the same place of the same code.
func (d *differ) matchPlaces(match func(*piece, int)) {
	a, b := &d.sides[0], &d.sides[1]
	type place struct {
		part   int
		offset uint64
	}
	old := make(map[place]*piece, len(a.pieces))
	for i := range a.pieces {
		part, offset := a.place(a.pieces[i].begin)
		old[place{part, offset}] = &a.pieces[i]
	}
	for i := range b.pieces {
		part, offset := b.place(b.pieces[i].begin)
		if p := old[place{part, offset}]; p != nil {
			match(p, i)
		}
	}
}

// matchNames matches functions by their names. Of several with one name those are matched first that have the same rows, and
// the others in their order; then those whose names a compiler has changed. Functions that no symbol names have the name of a
// section in common: the others of these are matched if they are as many.
func (d *differ) matchNames(match func(*piece, int)) {
	a, b := &d.sides[0], &d.sides[1]
	type key struct {
		name string
		sum  uint64
	}
	old := make(map[key][]*piece)
	for i := range a.pieces {
		p := &a.pieces[i]
		k := key{p.name, d.sum(a, p)}
		old[k] = append(old[k], p)
	}
	var left []int // of the new file
	for i := range b.pieces {
		p := &b.pieces[i]
		k := key{p.name, d.sum(b, p)}
		if same := old[k]; len(same) > 0 {
			match(same[0], i)
			old[k] = same[1:]
		} else {
			left = append(left, i)
		}
	}
	matchRest := func(of func(string) string) {
		rest, others := make(map[string][]*piece), make(map[string][]int)
		for i := range a.pieces {
			if p := &a.pieces[i]; !p.matched {
				rest[of(p.name)] = append(rest[of(p.name)], p)
			}
		}
		for _, i := range left {
			others[of(b.pieces[i].name)] = append(others[of(b.pieces[i].name)], i)
		}
		left = left[:0]
		for name, is := range others {
			old := rest[name]
			n := min(len(old), len(is))
			if (name == "" || strings.HasPrefix(name, ".")) && len(old) != len(is) {
				n = 0
			}
			for i := range n {
				match(old[i], is[i])
			}
			left = append(left, is[n:]...)
		}
		slices.Sort(left)
	}
	matchRest(func(name string) string { return name })
	matchRest(plainName)
}

// variant is what compilers append to the names of functions that they have changed for their callers, and cut parts off.
var variant = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\.(constprop|isra|lto_priv|llvm)\.[0-9]+| \[clone \.(constprop|isra|lto_priv|llvm)\.[0-9]+\]`)
})

// plainName returns the name that a function has in the source.
func plainName(name string) string { return variant().ReplaceAllString(name, "") }

package cfi

import (
	"bytes"
	"cmp"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/arch"
	"cfi2sframe/internal/gopclntab"
)

// A Source selects the sections from which CFI is loaded.
type Source uint8

const (
	// .gopclntab, then .eh_frame, then .debug_frame for code not yet covered, unless BOLT has rewritten the file
	Auto       Source = iota
	EHFrame           // .eh_frame only
	DebugFrame        // .debug_frame only
	GoPCLNTab         // .gopclntab only: the table of Go programs
)

var sourceNames = [...]string{Auto: "auto", EHFrame: "eh_frame", DebugFrame: "debug_frame", GoPCLNTab: "gopclntab"}

func (s Source) String() string {
	if int(s) < len(sourceNames) {
		return sourceNames[s]
	}
	return fmt.Sprintf("Source(%d)", uint8(s))
}

// ParseSource returns the Source with the given name.
func ParseSource(name string) (Source, error) {
	if i := slices.Index(sourceNames[:], name); i >= 0 {
		return Source(i), nil
	}
	return 0, fmt.Errorf("unknown source %q; use auto, eh_frame, debug_frame or gopclntab", name)
}

// registers holds the DWARF numbers of the registers whose rules are tracked. If the machine has raState, opcodes 0x2b
// to 0x2d change how the return address is signed.
type registers struct{ sp, fp, raState uint64 }

// isSignState reports whether the register is RA_SIGN_STATE, which tells whether return addresses are signed.
func (r *registers) isSignState(reg uint64) bool { return reg == r.raState && reg != arch.NoReg }

// A section holds the contents of a CFI section and the facts needed to decode them.
type section struct {
	name     string
	source   Source
	data     []byte
	addr     uint64 // address of data[0]; 0 for .debug_frame
	textBase uint64 // base of DW_EH_PE_textrel
	dataBase uint64 // base of DW_EH_PE_datarel
	order    binary.ByteOrder
	regs     registers
	file     *elffile.File // nil for Parse
	open     bool          // the size is unknown: a zero length ends the section
	programs *programs
	whole    map[uint32]elffile.Span // full ranges of FDEs that overlap others, by offset of the FDE
}

// A Function is a range of code and its FDE.
type Function struct {
	// Begin and End delimit the code; End is exclusive. If FDEs overlap, this is only a part of the FDE's range.
	Begin, End uint64

	off     uint32 // offset of the FDE in its section
	code    uint32 // offset of the instructions, or 0 if the rows were built
	limit   uint32 // offset of the end of the instructions, or the size of the rows
	program uint32 // number of the program, and the marks cut and disputed
	cie     *cie
}

// Marks in Function.program.
const (
	cut      = 1 << 31 // the FDE's range, in section.whole, is larger
	disputed = 1 << 30 // another FDE has different rows for the code
)

// number returns the number of the function's program.
func (fn *Function) number() uint32 { return fn.program &^ (cut | disputed) }

// Disputed reports whether another FDE of the same source has different rows for the function's code. Unwinders choose
// different FDEs, so the function has no rows.
func (fn *Function) Disputed() bool { return fn.program&disputed != 0 }

// fdeRange returns the full range of the FDE. Offsets in the program are relative to its start.
func (fn *Function) fdeRange() elffile.Span {
	if fn.program&cut != 0 {
		return fn.cie.sec.whole[fn.off]
	}
	return elffile.Span{Begin: fn.Begin, End: fn.End}
}

// narrow restricts the function to a part of the FDE's range.
func (fn *Function) narrow(begin, end uint64) {
	if fn.program&cut == 0 {
		s := fn.cie.sec
		if s.whole == nil {
			s.whole = make(map[uint32]elffile.Span)
		}
		s.whole[fn.off] = fn.fdeRange()
		fn.program |= cut
	}
	fn.Begin, fn.End = begin, end
}

// Signal reports whether the function is a signal frame (augmentation S).
func (fn *Function) Signal() bool { return fn.cie.signal }

// KeyB reports whether return addresses are signed with the B key (augmentation B, AArch64 only).
func (fn *Function) KeyB() bool { return fn.cie.keyB }

// Program returns a number below Table.NumPrograms, or -1 if the function is only a part of an FDE that overlaps
// others. Functions with the same CIE and identical instructions have the same number and the same Steps. In large
// files, most functions have the same CFI program as other functions.
func (fn *Function) Program() int {
	if fn.program&cut != 0 {
		return -1
	}
	return int(fn.program)
}

// An FDE is a comparable handle for a frame description entry.
type FDE struct {
	sec *section
	off uint32
}

// FDE returns the FDE of the function. An FDE that overlaps others may be split into several functions.
func (fn *Function) FDE() FDE { return FDE{fn.cie.sec, fn.off} }

// Section returns the name of the FDE's section.
func (fn *Function) Section() string { return fn.cie.sec.name }

// Offset returns the offset of the FDE in its section in bytes.
func (fn *Function) Offset() uint64 { return uint64(fn.off) }

// Dropped counts FDEs that are not used, or are used only in part.
type Dropped struct {
	ZeroLength int // FDEs that cover no bytes
	// Discarded counts FDEs for code that the linker discarded: they start outside executable code, at -1 or -2, or at
	// 0 if no function starts there.
	Discarded int
	// Overlapped counts FDEs that were truncated or dropped because another FDE of the same source covers the code, and
	// parts of FDEs that were dropped because of maxParts.
	Overlapped int
}

// A SourceInfo describes a section that was read.
type SourceInfo struct {
	Name string
	Size uint64 // in bytes, decompressed
	FDEs int
}

// A Table is the CFI of a file.
type Table struct {
	Machine   elf.Machine
	Order     binary.ByteOrder
	Sources   []SourceInfo
	Debug     bool // .debug_frame is from the debug file
	Dropped   Dropped
	Errors    []*Error // malformed records, up to maxErrors
	NumErrors int      // total number of malformed records

	Refused []Refusal // code whose rows could not be inferred, by address

	functions []Function // sorted by Begin, without overlaps
	shadowed  []Function // see Shadowed
	programs  *programs
	exec      *executor // kept for Infer
}

const maxErrors = 1000

func (t *Table) report(e *Error) {
	t.NumErrors++
	if !t.atErrorLimit() {
		t.Errors = append(t.Errors, e)
	}
}

// atErrorLimit reports whether further errors are only counted.
func (t *Table) atErrorLimit() bool { return len(t.Errors) >= maxErrors }

// ErrNone is returned for files without CFI.
var ErrNone = errors.New("no CFI")

// Load reads the CFI of f. If f has no .debug_frame, Load reads the one in its debug file, unless debug is nil.
// Malformed records are reported in the Table. It is an error if the requested source has no CFI.
func Load(f *elffile.File, src Source, debug *elffile.File) (*Table, error) {
	if arch.Of(elf.Machine(f.Machine)) == nil {
		return nil, abiError(f.Machine)
	}
	t := &Table{Machine: elf.Machine(f.Machine), Order: f.Order}
	var secs []*section
	r := newReader(f, debug)
	if src != DebugFrame && src != GoPCLNTab {
		s, err := r.ehFrames(f)
		if err != nil {
			return nil, err
		}
		secs = append(secs, s...)
	}
	if src == DebugFrame || src == Auto && !rewritten(f) && !rewritten(debug) {
		s, err := r.debugFrames(f)
		if err == nil && len(s) == 0 && debug != nil {
			s, err = r.debugFrames(debug)
			t.Debug = len(s) > 0
		}
		if err != nil {
			return nil, err
		}
		secs = append(secs, s...)
	}
	var table *gopclntab.Table
	if src != EHFrame && src != DebugFrame {
		var err error
		if table, err = t.goTable(f); err != nil {
			return nil, err
		}
	}
	if len(secs) == 0 && table == nil && t.NumErrors == 0 {
		return nil, fmt.Errorf("%w: %s", ErrNone, map[Source]string{
			Auto:       "neither .eh_frame nor .debug_frame",
			EHFrame:    "neither .eh_frame nor a PT_GNU_EH_FRAME that points to it",
			DebugFrame: "no .debug_frame",
			GoPCLNTab:  "no .gopclntab of Go 1.18 or later",
		}[src])
	}
	t.parse(secs, f, debug, table)
	if err := f.Budget().Spend(costProgram, t.programs.work()); err != nil {
		return nil, fmt.Errorf("CFI with %d distinct programs: %w", t.NumPrograms(), err)
	}
	return t, nil
}

// parse decodes CFI sections and the table of a Go program. f, debug and table may be nil.
func (t *Table) parse(secs []*section, f, debug *elffile.File, table *gopclntab.Table) {
	code := []elffile.Span{{End: math.MaxUint64}}
	if f != nil {
		code = executable(f)
	}
	a := arch.Of(t.Machine)
	regs := registers{sp: a.SP, fp: a.FP, raState: a.RAState}
	x := newExecutor()
	t.programs = x.programs
	var parts [DebugFrame + 1][]Function
	for _, s := range secs {
		s.order, s.regs, s.file, s.programs = t.Order, regs, f, t.programs
		p := parser{sec: s, table: t, exec: x, code: code, cies: make(map[uint64]*cie), room: len(s.data)}
		p.parse()
		p.atZero([]*elffile.File{f, debug})
		if len(parts[s.source]) == 0 {
			parts[s.source] = p.fns
		} else {
			parts[s.source] = append(parts[s.source], p.fns...)
		}
		t.Sources = append(t.Sources, SourceInfo{s.name, uint64(len(s.data)), p.fdes})
	}
	var goFns []Function
	if table != nil {
		goFns = t.goFunctions(table, x, code)
	}
	t.exec = x
	t.programs.rules = x.numbering.rules
	t.functions = t.disjoint(parts[EHFrame])
	if d := t.disjoint(parts[DebugFrame]); len(d) > 0 {
		t.functions = t.fill(t.functions, d)
	}
	if table != nil {
		t.functions = t.fill(t.disjoint(goFns), t.functions)
	}
}

// A Section is call frame information in memory.
type Section struct {
	Source Source // EHFrame or DebugFrame: the format of the records
	Data   []byte // with relocations applied; must not change while the Table is in use
	Addr   uint64 // address of Data[0]; the base of pc-relative pointers
	Text   uint64 // base of DW_EH_PE_textrel
	GOT    uint64 // base of DW_EH_PE_datarel
}

// Parse decodes call frame information in memory. Every address counts as executable, and indirect pointers are errors.
// Malformed records are reported in the Table.
func Parse(m elf.Machine, order binary.ByteOrder, sections ...Section) (*Table, error) {
	if arch.Of(m) == nil {
		return nil, abiError(m)
	}
	t := &Table{Machine: m, Order: order}
	var secs []*section
	for _, s := range sections {
		if s.Source != EHFrame && s.Source != DebugFrame {
			return nil, fmt.Errorf("section with source %v; use EHFrame or DebugFrame", s.Source)
		}
		secs = append(secs, &section{
			name: "." + s.Source.String(), source: s.Source, data: s.Data,
			addr: s.Addr, textBase: s.Text, dataBase: s.GOT,
		})
	}
	t.parse(secs, nil, nil, nil)
	return t, nil
}

// An abiError is the error for a machine without an SFrame ABI.
type abiError elf.Machine

func (m abiError) Error() string {
	return fmt.Sprintf("machine %v: SFrame is defined for %s only", elf.Machine(m), arch.Names())
}

func (m abiError) Unwrap() error { return arch.ErrABI }

// Limits on the total size of a file's CFI in bytes: the size of the file, but at least anyTotal and at most maxTotal.
// CFI is larger than its file only if it is compressed exceptionally well or several headers refer to the same bytes.
// A Table takes up to fifty times as much memory as its CFI.
const (
	maxTotal = 128 << 20
	anyTotal = 12 << 20
)

// Budget costs, measured in November 2026.
const (
	costCFI     = 25  // per byte of CFI, from reading to verification
	costProgram = 250 // per byte of distinct instructions
)

// A reader reads the CFI sections of a file and of its debug file.
type reader struct {
	limit uint64 // maximum total size of the sections in bytes
	read  uint64 // number of bytes read so far
}

func newReader(f, debug *elffile.File) *reader {
	size := min(f.Size, f.Budget().Size())
	if debug != nil {
		size = max(size, debug.Size)
	}
	return &reader{limit: min(max(size, anyTotal), maxTotal)}
}

// take accounts for n bytes. It returns an error if they exceed the limit, or their cost exceeds the budget of f.
func (r *reader) take(f *elffile.File, where string, off, n uint64) error {
	if n > r.limit-r.read {
		return fmt.Errorf("%s at file offset %#x: %d bytes of CFI, in addition to %d in other sections, "+
			"exceed the limit of %d for a file of this size", where, off, n, r.read, r.limit)
	}
	r.read += n
	if err := f.Budget().Spend(costCFI, n); err != nil {
		return fmt.Errorf("%s at file offset %#x: %d bytes of CFI: %w", where, off, n, err)
	}
	return nil
}

// section returns the contents of a section.
func (r *reader) section(f *elffile.File, s *elffile.Section) ([]byte, error) {
	where := "section " + s.Name
	n, err := f.UncompressedSize(s)
	if err == nil {
		err = r.take(f, where, s.Off, n)
	}
	if err != nil {
		return nil, err
	}
	return f.ReadRelocated(s)
}

// sections returns the sections with any of the given names.
func (r *reader) sections(f *elffile.File, src Source, names ...string) ([]*section, error) {
	var secs []*section
	textBase, dataBase := base(f, ".text"), base(f, ".got")
	for _, s := range elffile.Each(f.Sections) {
		if !slices.Contains(names, s.Name) || !s.HasBytes() {
			continue
		}
		b, err := r.section(f, s)
		if err != nil {
			return nil, err
		}
		sec := &section{name: s.Name, source: src, data: b}
		if src == EHFrame {
			sec.addr, sec.textBase, sec.dataBase = s.Base, textBase, dataBase
		}
		secs = append(secs, sec)
	}
	return secs, nil
}

// base returns the address of a section, or 0.
func base(f *elffile.File, name string) uint64 {
	if s := f.Section(name); s != nil {
		return s.Base
	}
	return 0
}

// ehFrames finds .eh_frame.
func (r *reader) ehFrames(f *elffile.File) ([]*section, error) {
	secs, err := r.sections(f, EHFrame, ".eh_frame")
	if err != nil || len(secs) > 0 || f.Prog(elf.PT_GNU_EH_FRAME) == nil {
		return secs, err
	}
	s, err := r.fromHdr(f)
	if s == nil || err != nil {
		return nil, err
	}
	return []*section{s}, nil
}

// fromHdr finds .eh_frame through PT_GNU_EH_FRAME, which contains .eh_frame_hdr (LSB Core, "The .eh_frame_hdr
// section").
func (r *reader) fromHdr(f *elffile.File) (*section, error) {
	const where = "PT_GNU_EH_FRAME"
	p := f.Prog(elf.PT_GNU_EH_FRAME)
	n := min(p.Filesz, 4+2*addrSize)
	if n == 0 {
		return nil, nil
	}
	b, err := f.ReadAt(where, p.Off, n)
	if err != nil {
		return nil, err
	}
	if len(bytes.Trim(b, "\x00")) == 0 { // llvm-objcopy: the sections are removed, and their contents cleared
		return nil, nil
	}
	c := cursor{data: b, sec: &section{name: where, addr: p.Vaddr, dataBase: p.Vaddr, order: f.Order, file: f}}
	if v := c.u8(); v != 1 {
		c.fail(0, "unknown version %d of .eh_frame_hdr", v)
	}
	enc := c.u8()
	c.take(2, "encodings")
	addr := c.pointer(enc, 0)
	if c.err != nil {
		return nil, c.err
	}
	// The header does not contain the size of .eh_frame, so the section extends to the end of the segment.
	for _, p := range elffile.Each(f.Progs) {
		if elf.ProgType(p.Type) == elf.PT_LOAD && addr >= p.Vaddr && addr-p.Vaddr < p.Filesz {
			off, n := p.Off+(addr-p.Vaddr), p.Filesz-(addr-p.Vaddr)
			if off == 0 { // mold: if there is no .eh_frame, the pointer refers to the ELF header
				return nil, nil
			}
			if err := r.take(f, ".eh_frame", off, n); err != nil {
				return nil, err
			}
			b, err := f.ReadAt(".eh_frame", off, n)
			if err != nil {
				return nil, err
			}
			return &section{name: ".eh_frame", source: EHFrame, data: b, addr: addr, open: true}, nil
		}
	}
	const msg = "points to .eh_frame at address %#x, which is not in a loaded segment"
	return nil, &Error{where, 0, fmt.Sprintf(msg, addr)}
}

// rewritten reports whether BOLT has rewritten the file. BOLT moves code, but leaves .debug_frame as it was.
func rewritten(f *elffile.File) bool { return f != nil && f.Section(".note.bolt_info") != nil }

func (r *reader) debugFrames(f *elffile.File) ([]*section, error) {
	return r.sections(f, DebugFrame, ".debug_frame", ".zdebug_frame")
}

// maxPadding is the maximum distance in bytes between executable sections that are treated as one range, because an FDE
// may cover adjacent sections. Linkers rarely align sections to a larger boundary.
const maxPadding = 64

// executable returns the ranges of executable code in ascending order.
func executable(f *elffile.File) []elffile.Span {
	var merged []elffile.Span
	for _, s := range f.Code() {
		if n := len(merged); n > 0 && (s.Begin <= merged[n-1].End || s.Begin-merged[n-1].End <= maxPadding) {
			merged[n-1].End = max(merged[n-1].End, s.End)
		} else {
			merged = append(merged, s.Span)
		}
	}
	return merged
}

// find returns the range of code that contains addr.
func find(code []elffile.Span, addr uint64) (elffile.Span, bool) {
	i := sort.Search(len(code), func(i int) bool { return code[i].End > addr })
	if i < len(code) && code[i].Begin <= addr {
		return code[i], true
	}
	return elffile.Span{}, false
}

// Part returns the table restricted to functions first to last-1. Parts can be used concurrently.
func (t *Table) Part(first, last int) *Table {
	part := *t
	part.functions = t.functions[first:last:last]
	return &part
}

// Split splits the table into n parts with about the same number of functions.
func (t *Table) Split(n int) []*Table {
	n = max(n, 1)
	parts := make([]*Table, n)
	for i := range parts {
		parts[i] = t.Part(t.Len()*i/n, t.Len()*(i+1)/n)
	}
	return parts
}

// Only is like Part, but selects the functions for which keep returns true.
func (t *Table) Only(keep func(*Function) bool) *Table {
	part := *t
	part.functions = nil
	for i := range t.functions {
		if keep(&t.functions[i]) {
			part.functions = append(part.functions, t.functions[i])
		}
	}
	return &part
}

// work estimates the time to execute the function's instructions.
func (fn *Function) work() int { return 16 + int(fn.limit-fn.code) }

// disjoint sorts the functions of one source and removes overlaps: shared code belongs to the function that starts
// first or, if the starts are equal, comes first in the section. If their rows differ, the code is disputed.
func (t *Table) disjoint(fns []Function) []Function {
	sortByBegin(fns)
	var end uint64
	sound := 0 // number of functions before the first overlap
	for ; sound < len(fns) && fns[sound].Begin >= end; sound++ {
		end = fns[sound].End
	}
	if sound == len(fns) {
		return fns
	}
	first := len(t.shadowed)
	out := fns[:sound]
	for _, fn := range fns[sound:] {
		if fn.Begin < end {
			t.Dropped.Overlapped++
			t.shadowed = append(t.shadowed, fn)
			if fn.End <= end {
				continue
			}
			fn.narrow(end, fn.End)
		}
		end = fn.End
		out = append(out, fn)
	}
	return t.dispute(out, t.shadowed[first:])
}

// dispute separates and marks the code for which a shadowed function has other rows than the function that owns it. If
// that takes more work than maxParts and a few comparisons for each, all code of the remaining ones is disputed.
func (t *Table) dispute(owners, shadowed []Function) []Function {
	room := maxParts
	var spans []elffile.Span
	for i := range shadowed {
		fn := &shadowed[i]
		room += 4 * fn.work()
		j := sort.Search(len(owners), func(j int) bool { return owners[j].End > fn.Begin })
		for ; room >= 0 && j < len(owners) && owners[j].Begin < fn.End; j++ {
			if owner := &owners[j]; owner.FDE() != fn.FDE() {
				room -= fn.work() + owner.work()
				spans = append(spans, differences(*owner, *fn)...)
			}
		}
		if room < 0 {
			spans = append(spans, elffile.Span{Begin: fn.Begin, End: fn.End})
		}
	}
	slices.SortFunc(spans, func(a, b elffile.Span) int { return cmp.Compare(a.Begin, b.Begin) })
	out := make([]Function, 0, len(owners)+2*len(spans))
	for _, fn := range owners {
		for begin := fn.Begin; begin < fn.End; {
			for len(spans) > 0 && spans[0].End <= begin {
				spans = spans[1:]
			}
			part, end := fn, fn.End
			switch {
			case len(spans) == 0 || spans[0].Begin >= end:
			case spans[0].Begin > begin:
				end = spans[0].Begin
			default:
				end = min(end, spans[0].End)
				part.program |= disputed
			}
			if begin != fn.Begin || end != fn.End || part.Disputed() {
				part.narrow(begin, end)
			}
			out = append(out, part)
			begin = end
		}
	}
	return out
}

// differences returns the code of both functions for which a has rows, but b has other rows or none.
func differences(a, b Function) (spans []elffile.Span) {
	begin, end := max(a.Begin, b.Begin), min(a.End, b.End)
	switch {
	case a.Err() != nil:
		return nil
	case b.Err() != nil || a.Signal() != b.Signal() || a.KeyB() != b.KeyB():
		return []elffile.Span{{Begin: begin, End: end}}
	}
	a.narrow(begin, end)
	b.narrow(begin, end)
	rows := slices.Collect(b.Rows())
	for r := range a.Rows() {
		for ; len(rows) > 0 && rows[0].Begin < r.End; rows = rows[1:] {
			if rows[0].Number != r.Number && !rows[0].equivalent(r.Rules) {
				s := elffile.Span{Begin: max(r.Begin, rows[0].Begin), End: min(r.End, rows[0].End)}
				if n := len(spans); n > 0 && spans[n-1].End == s.Begin {
					spans[n-1].End = s.End
				} else {
					spans = append(spans, s)
				}
			}
			if rows[0].End > r.End {
				break
			}
		}
	}
	return spans
}

// sortByBegin sorts functions stably by their start. It is fast because it sorts only functions that start before a
// preceding function, and almost all functions are already in order.
func sortByBegin(fns []Function) {
	ordered, others := fns[:0], []Function(nil)
	for _, fn := range fns {
		if n := len(ordered); n > 0 && fn.Begin < ordered[n-1].Begin {
			others = append(others, fn)
		} else {
			ordered = append(ordered, fn)
		}
	}
	slices.SortStableFunc(others, func(a, b Function) int { return cmp.Compare(a.Begin, b.Begin) })
	for i, j := len(ordered), len(others); j > 0; {
		if i > 0 && ordered[i-1].Begin > others[j-1].Begin {
			i--
			fns[i+j] = ordered[i]
		} else {
			j--
			fns[i+j] = others[j]
		}
	}
}

// maxParts bounds the work, as estimated by Function.work, on all but the first part of each function.
const maxParts = 1 << 20

// fill returns the functions in list a, and those parts of the functions in list b that list a does not cover. Both
// lists are sorted and disjoint, and so is the result. Once the work exceeds maxParts, further parts are dropped.
func (t *Table) fill(a, b []Function) []Function {
	out := make([]Function, 0, len(a)+len(b))
	room := maxParts
	var parts int // of the current function in b
	part := func(fn *Function, begin, end uint64) {
		if parts++; parts > 1 {
			if room -= fn.work(); room < 0 {
				t.Dropped.Overlapped++
				return
			}
		}
		out = append(out, *fn)
		if begin != fn.Begin || end != fn.End {
			out[len(out)-1].narrow(begin, end)
		}
	}
	for i := range b {
		fn, begin := &b[i], b[i].Begin
		parts = 0
		for len(a) > 0 && a[0].End <= fn.Begin {
			out, a = append(out, a[0]), a[1:]
		}
		for len(a) > 0 && a[0].Begin < fn.End && begin < fn.End {
			if begin < a[0].Begin {
				part(fn, begin, a[0].Begin)
			}
			begin = a[0].End
			if a[0].End > fn.End {
				break
			}
			out, a = append(out, a[0]), a[1:]
		}
		if begin < fn.End {
			part(fn, begin, fn.End)
		}
	}
	return append(out, a...)
}

// Size returns the size of the CFI in a file in bytes, without reading it. For compressed sections it is an estimate.
func Size(f *elffile.File) uint64 {
	if len(f.Sections) == 0 {
		return f.Size
	}
	const compression = 4
	var n uint64
	for _, s := range elffile.Each(f.Sections) {
		switch {
		case !s.HasBytes() || s.Size > f.Size:
		case s.Name == ".zdebug_frame", s.Name == ".debug_frame" && s.Compressed():
			n += compression * s.Size
		case s.Name == ".debug_frame", s.Name == ".eh_frame":
			n += s.Size
		}
	}
	return n
}

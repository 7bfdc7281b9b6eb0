package convert

import (
	"bytes"
	"cmp"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/elfwrite"
	"cfi2sframe/internal/arch"
	"cfi2sframe/internal/code"
	"cfi2sframe/internal/padding"
	"cfi2sframe/internal/plt"
	"cfi2sframe/verify"
)

// Infers reports whether rows for code without CFI can be inferred in a file: it must be linked, because jumps in
// objects have no targets yet, and for a supported machine (amd64, little-endian aarch64).
func Infers(f *elffile.File) bool {
	return !f.IsObject() && f.Order == binary.LittleEndian && code.Supports(elf.Machine(f.Machine))
}

// ErrMayInfer is wrapped by errors that Options.Infer may avoid.
var ErrMayInfer = errors.New("rows may be inferred from its instructions")

// mayInfer adds ErrMayInfer to an error if the file has code that can be examined.
func mayInfer(f *elffile.File, err error) error {
	if Infers(f) && slices.ContainsFunc(f.Code(), func(c elffile.CodeRange) bool { return c.Filesz > 0 }) {
		return fmt.Errorf("%w; %w", err, ErrMayInfer)
	}
	return err
}

// infer adds verified rows that are inferred from instructions, for code that is neither in the table nor a PLT stub.
func infer(ctx context.Context, f *elffile.File, t *cfi.Table, progress Progress) error {
	if !Infers(f) {
		return nil
	}
	var described []elffile.Span
	for fn := range t.Functions() {
		described = append(described, elffile.Span{Begin: fn.Begin, End: fn.End})
	}
	inf, refused, err := inferRows(ctx, f, t, described, progress)
	if err != nil {
		return err
	}
	t.Infer(inf)
	for _, x := range refused {
		t.Refused = append(t.Refused, cfi.Refusal{Begin: x.Begin, End: x.End, Reason: x.Reason.String()})
	}
	return nil
}

// notInferred adds to an error why no rows were inferred: the refused code by reason.
func notInferred(t *cfi.Table, err error) error {
	bytesOf := map[string]uint64{}
	for _, r := range t.Refused {
		bytesOf[r.Reason] += r.End - r.Begin
	}
	var list []string
	reasons := slices.Sorted(maps.Keys(bytesOf))
	slices.SortStableFunc(reasons, func(a, b string) int { return cmp.Compare(bytesOf[b], bytesOf[a]) })
	for _, reason := range reasons {
		list = append(list, fmt.Sprintf("%s %d", reason, bytesOf[reason]))
	}
	if len(list) == 0 {
		return err
	}
	return fmt.Errorf("%w; no rows could be inferred from instructions (bytes by reason: %s)", err,
		strings.Join(list, ", "))
}

// inferRows infers rows for code that is neither in the described ranges nor a PLT stub. It also returns the code
// without rows.
func inferRows(ctx context.Context, f *elffile.File, t *cfi.Table, described []elffile.Span, progress Progress) (
	*cfi.Inference, []code.Refusal, error,
) {
	if progress != nil {
		defer progress(1)
	}
	stubs, err := plt.Find(f, t)
	if err != nil {
		return nil, nil, err
	}
	known := slices.Clone(described)
	for _, s := range stubs {
		known = append(known, elffile.Span{Begin: s.Begin, End: s.End})
	}
	slices.SortFunc(known, func(a, b elffile.Span) int { return cmp.Compare(a.Begin, b.Begin) })
	r := &codeReader{f: f}
	text := &code.Text{Machine: elf.Machine(f.Machine), Start: f.Entry, Data: r.data}
	if err = addSymbols(f, text); err != nil {
		return nil, nil, err
	}
	if text.Gaps, err = r.gaps(known, sortedFunctions(text)); err != nil {
		return nil, nil, err
	}
	if len(text.Gaps) == 0 {
		return &cfi.Inference{}, nil, nil
	}
	if err = r.relocate(); err != nil {
		return nil, nil, err
	}
	if f.Type == uint16(elf.ET_EXEC) { // no relocations tell where the pointers are
		text.Pointers = func(visit func(addr uint64)) error { return r.pointers(text.Gaps, visit) }
	}
	size := uint64(0)
	for i := range text.Gaps {
		size += uint64(len(text.Gaps[i].Code))
	}
	text.Step = func(analysed uint64) error { return progress.step(ctx, float64(analysed)/float64(size)*findShare) }
	text.Row = rowOf(t, described)
	err = elfwrite.References(f, func(first, last uint64) {
		if first == last {
			text.Entries = append(text.Entries, first)
		}
	})
	if err != nil {
		return nil, nil, err
	}
	text.Described = func(f func(addr uint64, code []byte)) error { return r.eachFunction(described, f) }
	inf, refused, err := code.Find(text)
	if err != nil {
		return nil, nil, err
	}
	step := func(done float64) error { return progress.step(ctx, findShare+done*(1-findShare)) }
	refused, err = prove(f, t, inf, r.withoutPadding(refused), step)
	return inf, refused, err
}

// addSymbols adds the functions that have global symbols, and those that do not return.
func addSymbols(f *elffile.File, text *code.Text) error {
	text.NoReturn = map[uint64]bool{}
	text.Resume = map[uint64]bool{}
	imported, resumes := map[uint32]bool{}, map[uint32]bool{} // functions that do not return, by index in .dynsym
	exported, returns := map[uint32]uint64{}, map[uint32]bool{}
	for _, table := range []elf.SectionType{elf.SHT_SYMTAB, elf.SHT_DYNSYM} {
		err := f.NamedSymbols(table, func(s elffile.Symbol, name []byte) {
			t, local := elf.ST_TYPE(s.Info), elf.ST_BIND(s.Info) == elf.STB_LOCAL // .cold parts have local symbols
			switch {
			case t != elf.STT_FUNC && t != elf.STT_GNU_IFUNC || s.Section == 0:
			case local && !isPart(name):
				text.Entries = append(text.Entries, s.Value)
			case !local:
				text.Functions = append(text.Functions, s.Value)
			}
			if table == elf.SHT_DYNSYM && s.Section != 0 && t == elf.STT_FUNC {
				exported[s.Index] = s.Value
			}
			if table == elf.SHT_DYNSYM && s.Section == 0 && returnsAlways(name) {
				returns[s.Index] = true
			}
			resume := bytes.HasPrefix(name, []byte("_Unwind_Resume\x00"))
			if doesNotReturn(name, local) {
				if s.Section != 0 {
					text.NoReturn[s.Value] = true
					if resume {
						text.Resume[s.Value] = true
					}
				}
				if table == elf.SHT_DYNSYM {
					imported[s.Index] = true
					resumes[s.Index] = resume
				}
			}
		})
		if err != nil {
			return err
		}
	}
	text.Words, text.Returns = map[uint64]uint64{}, map[uint64]bool{}
	return eachRelocated(f, func(word uint64, symbol uint32) {
		if imported[symbol] {
			text.NoReturn[word] = true
		}
		if resumes[symbol] {
			text.Resume[word] = true
		}
		if returns[symbol] {
			text.Returns[word] = true
		}
		if to, ok := exported[symbol]; ok {
			text.Words[word] = to
		}
	})
}

// findShare is the share of the time that the analysis takes. The proof takes the rest.
const findShare = 0.75

// A Progress is called while rows are inferred, with the share of the work that is done. The last call is with 1, even
// after an error. It may be nil.
type Progress func(done float64)

// step reports progress. It returns an error if ctx is done.
func (p Progress) step(ctx context.Context, done float64) error {
	if p != nil {
		p(done)
	}
	return ctx.Err()
}

// prove removes functions that package verify rejects. The table gives the rows of other code.
func prove(f *elffile.File, t *cfi.Table, inf *cfi.Inference, refused []code.Refusal, step func(done float64) error) (
	[]code.Refusal, error,
) {
	wrong, err := verify.Code(f, t, inf, step)
	if err != nil {
		return nil, err
	}
	inf.Functions = slices.DeleteFunc(inf.Functions, func(fn cfi.InferredFunction) bool {
		_, bad := wrong[fn.Component]
		if bad {
			span := elffile.Span{Begin: fn.Begin, End: fn.End}
			refused = append(refused, code.Refusal{Span: span, Reason: code.Unproved})
		}
		return bad
	})
	slices.SortFunc(refused, func(a, b code.Refusal) int { return cmp.Compare(a.Begin, b.Begin) })
	return refused, nil
}

// isPart reports whether b starts with the name of a part of a function, which is entered by jumps.
func isPart(b []byte) bool {
	b = b[:min(len(b), maxName)]
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return bytes.Contains(b, []byte(".cold"))
}

// maxName bounds the part of a symbol's name that is examined.
const maxName = 512

// sortedFunctions returns the addresses of functions with symbols, and the entry point.
func sortedFunctions(text *code.Text) []uint64 {
	all := append(slices.Concat(text.Functions, text.Entries), text.Start)
	slices.Sort(all)
	return all
}

// rowOf returns a function that looks up the rows of described code.
func rowOf(t *cfi.Table, described []elffile.Span) func(pc uint64) (row cfi.InferredRow, ok, known bool) {
	return func(pc uint64) (row cfi.InferredRow, ok, known bool) {
		i := sort.Search(len(described), func(i int) bool { return described[i].End > pc })
		if i == len(described) || described[i].Begin > pc {
			return row, false, false
		}
		r, ok := t.Lookup(pc)
		if ok {
			row, ok = cfi.InferredFrom(t.Machine, r.Rules)
		}
		return row, ok, true
	}
}

// A codeReader reads code and constant data.
type codeReader struct {
	f      *elffile.File
	relocs []reloc // sorted by address
}

// A reloc is a word of data to which the loader adds the load address.
type reloc struct{ at, value uint64 }

// relocate reads the relocations that give addresses of code to constant data.
func (r *codeReader) relocate() error {
	f := r.f
	types := arch.Of(elf.Machine(f.Machine)).Relative
	ranges := f.Code()
	inCode := func(addr uint64) bool {
		return slices.ContainsFunc(ranges, func(c elffile.CodeRange) bool { return c.Has(addr) })
	}
	for _, s := range elffile.Each(f.Sections) {
		if elf.SectionType(s.Type) != elf.SHT_RELA || !s.Alloc() {
			continue
		}
		err := f.ReadTable("section "+s.Name, s.Off, s.Size, elffile.RelaSize, func(rela []byte, _ uint64) error {
			for ; len(rela) >= elffile.RelaSize; rela = rela[elffile.RelaSize:] {
				value := f.Order.Uint64(rela[elffile.RelaAddend:])
				if slices.Contains(types, uint32(f.Order.Uint64(rela[elffile.RelaInfo:]))) && inCode(value) {
					r.relocs = append(r.relocs, reloc{f.Order.Uint64(rela), value})
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	slices.SortFunc(r.relocs, func(a, b reloc) int { return cmp.Compare(a.at, b.at) })
	return nil
}

// pointers calls visit for each aligned word of data that is an address in the gaps, in ascending order of the words'
// addresses.
func (r *codeReader) pointers(gaps []code.Gap, visit func(addr uint64)) error {
	for _, s := range elffile.Each(r.f.Sections) {
		if !s.Alloc() || !s.HasBytes() || s.Flags&uint64(elf.SHF_EXECINSTR) != 0 {
			continue
		}
		err := r.f.ReadTable("section "+s.Name, s.Off, s.Size, 8, func(b []byte, _ uint64) error {
			for ; len(b) >= 8; b = b[8:] {
				to := r.f.Order.Uint64(b)
				i := sort.Search(len(gaps), func(i int) bool { return to < gaps[i].Addr+uint64(len(gaps[i].Code)) })
				if i < len(gaps) && to >= gaps[i].Addr {
					visit(to)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// gaps returns the code outside the given ranges, without padding at either end of a gap, unless a function starts with
// it.
func (r *codeReader) gaps(known []elffile.Span, functions []uint64) ([]code.Gap, error) {
	var out []code.Gap
	meter := padding.NewMeter(r.f)
	end := uint64(0)
	for _, c := range r.f.Code() {
		begin, last := max(c.Begin, end), c.Begin+c.Filesz
		if begin >= last {
			continue
		}
		end = last
		meter.Enter(c.Begin, c.Filesz, c.Off)
		add := func(begin, end uint64) error {
			first := end // start of the first function
			if i, _ := slices.BinarySearch(functions, begin); i < len(functions) {
				first = min(first, functions[i])
			}
			if begin < end {
				begin, end = meter.Trim(begin, end)
				begin = min(begin, first)
			}
			if begin >= end {
				return nil
			}
			b, err := r.f.ReadAt("code", c.Off+begin-c.Begin, end-begin)
			out = append(out, code.Gap{Addr: begin, Code: b})
			return err
		}
		i := sort.Search(len(known), func(i int) bool { return known[i].End > begin })
		for ; begin < last; i++ {
			next := elffile.Span{Begin: last, End: last}
			if i < len(known) && known[i].Begin < last {
				next = known[i]
			}
			if err := add(begin, next.Begin); err != nil {
				return nil, err
			}
			begin = max(begin, next.End)
		}
	}
	return out, nil
}

// withoutPadding removes unreachable padding between functions from the refused code.
func (r *codeReader) withoutPadding(refused []code.Refusal) []code.Refusal {
	meter := padding.NewMeter(r.f)
	var in elffile.CodeRange
	ranges := r.f.Code()
	for i := range refused {
		x := &refused[i]
		if x.Reason != code.Unreached {
			continue
		}
		if !in.Has(x.Begin) {
			in = ranges[slices.IndexFunc(ranges, func(c elffile.CodeRange) bool { return c.Has(x.Begin) })]
			meter.Enter(in.Begin, in.Filesz, in.Off)
		}
		x.Begin, x.End = meter.Trim(x.Begin, x.End)
	}
	return slices.DeleteFunc(refused, func(x code.Refusal) bool { return x.Begin >= x.End })
}

// eachFunction calls f with the address and the code of each function. The functions must be sorted by address.
func (r *codeReader) eachFunction(functions []elffile.Span, f func(addr uint64, code []byte)) error {
	var w elffile.Window
	for _, fn := range functions {
		if b := w.Read(r.f, fn.Begin, fn.Size()); b != nil {
			f(fn.Begin, b)
		}
	}
	return r.f.ReadError()
}

// data returns up to n bytes of data at an address. Jump tables of computed gotos are in writable data: compilers never
// change them.
func (r *codeReader) data(addr uint64, n int) []byte {
	for _, h := range elffile.Each(r.f.Progs) {
		if h.Type == uint32(elf.PT_LOAD) && addr >= h.Vaddr && addr-h.Vaddr < h.Filesz {
			n := min(uint64(n), h.Filesz-(addr-h.Vaddr))
			b, err := r.f.ReadAt("data", h.Off+addr-h.Vaddr, n)
			if err != nil {
				return nil
			}
			byAddress := func(x reloc, at uint64) int { return cmp.Compare(x.at, at) }
			k, _ := slices.BinarySearchFunc(r.relocs, addr, byAddress)
			for ; k < len(r.relocs) && r.relocs[k].at+8 <= addr+n; k++ {
				r.f.Order.PutUint64(b[r.relocs[k].at-addr:], r.relocs[k].value)
			}
			return b
		}
	}
	return nil
}

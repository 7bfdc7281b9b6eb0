package report

import (
	"debug/elf"
	"slices"
	"sort"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/arch"
)

// Start-up code comes from the object files crt*.o of the C library and the compiler. Compilers link these files into
// every program and library. Much of this code has no CFI, whatever the compiler flags, and stack traces rarely include
// it.

// startupNames are the functions in crti.o and crtbegin.o from glibc, musl, the BSDs, GCC and LLVM. entryNames are the
// entry points in crt1.o, which programs may also define themselves.
var (
	startupNames = []string{
		"call_weak_fn", "_init", "_fini", "deregister_tm_clones", "register_tm_clones", "__do_global_dtors_aux",
		"__do_global_ctors_aux", "frame_dummy", "__do_init", "__do_fini",
	}
	entryNames = []string{"_start", "_start_c", "__start", "___start"}
)

// Upper bounds on sizes in bytes. GCC 12 to 16 and glibc 2.36 to 2.43 on amd64, aarch64 and s390x need at most 112
// (maxBeforeDtors), 84 (maxDtors), 64 (maxFrameDummy) and 80 (maxInit), measured on 2026-11-28.
const (
	maxBeforeDtors  = 160 // deregister_tm_clones and register_tm_clones
	maxDtors        = 192 // __do_global_dtors_aux
	maxFrameDummy   = 96
	maxInit         = 128     // .init, .fini, or any other function
	maxPointers     = 1 << 16 // in .init_array and .fini_array
	maxStartupNames = 1 << 16 // maximum number of symbol names to read in code without CFI
)

// findStartup returns the start-up code in the given ranges of code without CFI, which are sorted and contain no
// padding. It follows pointers, calls and jumps, which stripped files also contain, then looks for symbols in the rest.
func findStartup(f *elffile.File, free []elffile.Span) []elffile.Span {
	var found []elffile.Span
	crti := false // crti.o is linked in, and therefore also crt1.o
	for i := range f.Sections {
		if s := &f.Sections[i]; (s.Name == ".init" || s.Name == ".fini") && s.IsCode() && s.Size <= maxInit {
			found = append(found, elffile.Span{Begin: s.Base, End: s.Base + s.Size})
			crti = crti || s.Name == ".init"
		}
	}
	names := startupNames
	if crti {
		names = slices.Concat(startupNames, entryNames)
	}
	found = disjoint(append(found, startupPlaces(f, free, crti)...))
	var rest []elffile.Span
	for _, r := range free {
		rest = append(rest, subtract(r, found)...)
	}
	return disjoint(append(found, startupSymbols(f, rest, names)...))
}

// disjoint sorts ranges and truncates overlapping ones.
func disjoint(list []elffile.Span) []elffile.Span {
	slices.SortFunc(list, byBegin)
	out, end := list[:0], uint64(0)
	for _, r := range list {
		if r.Begin = max(r.Begin, end); r.Begin < r.End {
			out = append(out, r)
			end = r.End
		}
	}
	return out
}

// startupPlaces finds start-up code without using symbols.
//
// The functions of crtbegin.o are deregister_tm_clones, register_tm_clones, __do_global_dtors_aux and frame_dummy, in
// this order. .fini_array points to the third, which calls the first, and .init_array to the fourth, which jumps to the
// second; in older files .fini and .init call them. These functions may follow the entry point, which is in crt1.o,
// and, on aarch64, a function from crti.o that .init calls. The function of crtend.o is the last in .text.
func startupPlaces(f *elffile.File, free []elffile.Span, crti bool) []elffile.Span {
	a := arch.Of(elf.Machine(f.Machine))
	if a == nil || f.IsObject() {
		return nil
	}
	dtors, ctors := codePointers(f, a, elf.SHT_FINI_ARRAY), codePointers(f, a, elf.SHT_INIT_ARRAY)
	called := func(name string) (targets []uint64) {
		if s := f.Section(name); crti && s != nil {
			eachBranch(f, a, s.Addr, s.Addr+min(s.Size, maxInit), true, func(_, target uint64) {
				targets = append(targets, target)
			})
		}
		return targets
	}
	helpers := called(".init")
	ctors, dtors = append(ctors, helpers...), append(dtors, called(".fini")...)
	slices.Sort(ctors)
	slices.Sort(dtors)
	var found []elffile.Span
	for _, r := range free {
		dtor := firstAtLeast(dtors, r.Begin)
		ctor := firstAtLeast(ctors, dtor)
		begin, end := ^uint64(0), uint64(0)
		if ctor < r.End && ctor-dtor <= maxDtors {
			register := ^uint64(0)
			eachBranch(f, a, ctor, min(r.End, ctor+maxFrameDummy), false, func(next, target uint64) {
				if target >= r.Begin && target < dtor && (target == register || end == 0) {
					register, end = target, next
				}
			})
			eachBranch(f, a, dtor, ctor, true, func(_, target uint64) {
				if target >= r.Begin && target < register && dtor-target <= maxBeforeDtors {
					begin = target
				}
			})
		}
		if begin >= end { // without crtbegin.o: start-up code must extend to the end of the range
			begin, end = r.End, r.End
		}
		for _, at := range append(helpers, f.Entry) {
			if crti && at >= r.Begin && at < begin && begin-at <= maxInit {
				begin = at
			}
		}
		if begin < end {
			found = append(found, elffile.Span{Begin: begin, End: end})
		}
	}
	return found
}

// firstAtLeast returns the first element of a sorted list that is >= bound, or the maximum value if there is none.
func firstAtLeast(list []uint64, bound uint64) uint64 {
	if i, _ := slices.BinarySearch(list, bound); i < len(list) {
		return list[i]
	}
	return ^uint64(0)
}

// eachBranch calls fn for each direct call, or each direct jump, in the code from begin to end, with the address of the
// next instruction and the target.
func eachBranch(f *elffile.File, a *arch.Arch, begin, end uint64, calls bool, fn func(next, target uint64)) {
	off, ok := f.FileOffset(begin, end-begin)
	if !ok {
		return
	}
	b, err := f.ReadAt("code", off, end-begin)
	if err != nil {
		return // the file is damaged
	}
	for i := range b {
		pc := begin + uint64(i)
		if size, target, call := a.Branch(b[i:], pc); size > 0 && call == calls {
			fn(pc+uint64(size), target)
		}
	}
}

// codePointers returns the pointers in the section of the given type. If the linker left the section zeroed, the
// pointers are in R_*_RELATIVE relocations.
func codePointers(f *elffile.File, a *arch.Arch, of elf.SectionType) []uint64 {
	i := slices.IndexFunc(f.Sections, func(s elffile.Section) bool { return elf.SectionType(s.Type) == of })
	if i < 0 {
		return nil
	}
	s := &f.Sections[i]
	var list []uint64
	empty := true
	// If the section is damaged, start-up code counts as ordinary code.
	_ = f.ReadTable("section "+s.Name, s.Off, min(s.Size, 8*maxPointers), 8, func(b []byte, _ uint64) error {
		for ; len(b) >= 8; b = b[8:] {
			p := f.Order.Uint64(b)
			empty = empty && p == 0
			list = append(list, p)
		}
		return nil
	})
	if !empty {
		return list
	}
	const relaSize = 24
	total := uint64(0) // bounds the work on overlapping tables
	for i := range f.Sections {
		r := &f.Sections[i]
		if elf.SectionType(r.Type) != elf.SHT_RELA || !r.Alloc() || r.Size > f.Size-min(total, f.Size) {
			continue
		}
		total += r.Size
		_ = f.ReadTable("section "+r.Name, r.Off, r.Size, relaSize, func(b []byte, _ uint64) error {
			for ; len(b) >= relaSize; b = b[relaSize:] {
				relative := f.Order.Uint64(b[8:]) == uint64(a.Relative[0])
				if relative && f.Order.Uint64(b)-s.Addr < s.Size && len(list) < 2*maxPointers {
					list = append(list, f.Order.Uint64(b[16:]))
				}
			}
			return nil
		})
	}
	return list
}

// startupSymbols finds start-up code by its symbols. A function whose symbol has no size ends at the next symbol.
func startupSymbols(f *elffile.File, free []elffile.Span, names []string) []elffile.Span {
	var found []elffile.Span
	var starts []uint64 // of all symbols in code without CFI
	functionSymbols([]*elffile.File{f}, func(p nameRef, s elffile.Symbol) {
		i := sort.Search(len(free), func(i int) bool { return free[i].End > s.Value })
		if i == len(free) || !free[i].Has(s.Value) || len(starts) == maxStartupNames || p.isMapping() {
			return
		}
		starts = append(starts, s.Value)
		if slices.Contains(names, p.shortName()) {
			end := min(free[i].End, s.Value+maxInit)
			if s.Size > 0 && s.Size <= maxInit {
				end = min(end, s.Value+s.Size)
			}
			found = append(found, elffile.Span{Begin: s.Value, End: end})
		}
	})
	slices.Sort(starts)
	for i := range found {
		r := &found[i]
		r.End = min(r.End, firstAtLeast(starts, r.Begin+1))
	}
	return found
}

package coverage

import (
	"slices"
	"sort"

	"cfi2sframe/elffile"
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

// Upper bounds on sizes in bytes. In Debian 12 and unstable, on amd64, aarch64 and s390x, start-up code without CFI has
// at most 80 bytes in .init and 185 in .text.
const (
	maxInit         = 128     // .init, .fini, or any other function
	maxInText       = 192     // all functions in .text
	maxStartupNames = 1 << 16 // maximum number of symbol names to read in code without CFI
)

// findStartup returns the start-up code in the given ranges of code without CFI, which are sorted and contain no
// padding: .init and .fini, and functions in .text. In a stripped file, these are the first code of .text that has no
// CFI, because compilers link the files of the C library first. Code without CFI that follows directly may count.
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
	named := startupSymbols(f, free, names)
	if text := f.Section(".text"); crti && len(named) == 0 && text != nil && !f.IsObject() {
		i := sort.Search(len(free), func(i int) bool { return free[i].End > text.Addr })
		if i < len(free) {
			r := free[i]
			r.End = min(r.End, r.Begin+maxInText)
			named = append(named, r)
		}
	}
	return disjoint(append(found, named...))
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
		if next, _ := slices.BinarySearch(starts, r.Begin+1); next < len(starts) {
			r.End = min(r.End, starts[next])
		}
	}
	return found
}

package debian

import (
	"slices"
	"strings"
)

// A fix is a change in a project by which code that is left out would be covered.
type fix struct {
	project, what string
	loses         func(f *file, l *lossy) bool // of what CFI describes
	without       func(f *file) bool           // CFI that it would then have
	refused       func(f *file) bool           // room that it would then have
}

// crypto are the source packages with assembly that OpenSSL's translator of Perl has made, copies of it among them.
var crypto = []string{"openssl", "gnutls28", "chromium", "nodejs", "python-cryptography"}

// media are the source packages with assembly for x86inc.asm, which writes no CFI.
var media = []string{"x265", "x264", "ffmpeg", "dav1d", "aom", "svt-av1", "libvpx", "rust-rav1e", "rav1e"}

func from(sources ...string) func(f *file) bool {
	return func(f *file) bool { return slices.Contains(sources, f.pkg.Source) }
}

func of(language string) func(f *file) bool {
	return func(f *file) bool { return strings.Contains(f.row["languages"], language) }
}

func isCrypto(f *file, l *lossy) bool {
	return slices.Contains(crypto, f.pkg.Source) && (l.Reason == "cfa-expression" || l.Reason == "cfa-register")
}

// fixes are in no order.
var fixes = []fix{
	{project: "Chromium", what: "unwind tables for all of its code, and not for a part", without: from("chromium")},
	{project: "GHC", what: "CFI of native code without -g, too", without: of("Haskell")},
	{project: "Go", what: "CFI in a section that strip keeps, such as .eh_frame", without: of("Go")},
	{project: "Free Pascal", what: "CFI", without: of("Pascal")},
	{project: "Qt, Firefox", what: "room for two program headers: notes of their own that need not be where they are", refused: func(f *file) bool {
		o := f.outcome(2)
		return o != nil && o.Kept == "no-room"
	}},
	{project: "GCC (AArch64)", what: "the frame record above vectors of variable length (SVE), as clang has it: a frame on x29", loses: func(_ *file, l *lossy) bool {
		return l.Reason == "cfa-expression" && strings.Contains(l.Rule, "(r46)") // VG, the number of 64-bit granules in a vector
	}},
	{project: "GCC (x86)", what: "functions that realign the stack and pass arguments on it: as with -maccumulate-outgoing-args, a frame on rbp and no DRAP", loses: func(_ *file, l *lossy) bool {
		return l.Reason == "drap" || l.Reason == "fp-rule" && strings.HasPrefix(l.Rule, "*(rbp")
	}},
	{project: "x86inc.asm (x264, x265, FFmpeg, dav1d, libaom ...)", what: "CFI in its macros", without: from(media...)},
	{project: "OpenBLAS", what: "CFI in its assembly", without: from("openblas")},
	{project: "OCaml", what: "calls of C on another stack: a frame on a register that a reader of the stack knows", loses: func(f *file, l *lossy) bool {
		return of("OCaml")(f) && l.Reason == "cfa-register"
	}},
	{project: "OpenSSL (and copies: GnuTLS, BoringSSL in Chromium)", what: "in its assembly the CFA itself in a slot of the frame, not the stack pointer at entry, which is 8 less", loses: isCrypto},
	{project: "Libgcrypt", what: "the same", loses: func(f *file, l *lossy) bool {
		return f.pkg.Source == "libgcrypt20" && (l.Reason == "cfa-expression" || l.Reason == "cfa-register")
	}},
	{project: "GCC (x86)", what: "stack-clash protection: loops that probe with the frame on r11", loses: func(f *file, l *lossy) bool {
		return l.Reason == "cfa-register" && l.Rule == "r11+N" && !isCrypto(f, l) && f.pkg.Source != "libgcrypt20"
	}},
}

// covered sums up what each fix would cover.
func covered(all []*system) [][]string {
	lines := [][]string{{"project", "what", "#files", "#bytes that V2 loses", "#V3", "#bytes without CFI", "#bytes in files without room", "#of all that V2 leaves out"}}
	type sums struct {
		files                      int
		lost2, lost3, none, files2 uint64
	}
	var total sums
	by := make([]sums, len(fixes))
	for _, s := range all {
		for i := range s.files {
			f := &s.files[i]
			total.none += f.number("without_cfi")
			if o := f.outcome(2); o != nil && o.Kept == "no-room" {
				total.files2 += f.number("described")
			}
			for j := range f.functionsLost() {
				total.lost2 += f.res.Functions[j].V2
				total.lost3 += f.res.Functions[j].V3
			}
			for k := range fixes {
				fix, t := &fixes[k], &by[k]
				before := *t
				if fix.without != nil && fix.without(f) {
					t.none += f.number("without_cfi")
				}
				if fix.refused != nil && fix.refused(f) {
					t.files2 += f.number("described")
				}
				for j := range f.functionsLost() {
					if l := &f.res.Functions[j]; fix.loses != nil && fix.loses(f, l) {
						t.lost2 += l.V2
						t.lost3 += l.V3
					}
				}
				if *t != before {
					t.files++
				}
			}
		}
	}
	out := func(t *sums) uint64 { return t.lost2 + t.none + t.files2 }
	order := make([]int, len(fixes))
	for k := range order {
		order[k] = k
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch x, y := out(&by[a]), out(&by[b]); {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
	line := func(project, what string, t *sums) []string {
		return []string{project, what, digits(t.files), digits(t.lost2), digits(t.lost3), digits(t.none), digits(t.files2), share(out(t), out(&total))}
	}
	var sum sums
	for _, k := range order {
		t := &by[k]
		lines = append(lines, line(fixes[k].project, fixes[k].what, t))
		sum.files += t.files
		sum.lost2, sum.lost3, sum.none, sum.files2 = sum.lost2+t.lost2, sum.lost3+t.lost3, sum.none+t.none, sum.files2+t.files2
	}
	for i := range all {
		for j := range all[i].files {
			f := &all[i].files[j]
			if f.number("without_cfi") > 0 || len(f.functionsLost()) > 0 {
				total.files++
			}
		}
	}
	return append(lines, line("these together", "", &sum), line("all", "", &total))
}

package debian

import (
	"cmp"
	"io"
	"slices"
	"strings"

	"cfi2sframe/lab/kit"
)

// Reasons for code that is not covered, besides those of reports.
const (
	withoutCFI = "no CFI"
	noRoom     = "no room"
)

// A fix is a change in a project that would cover code.
type fix struct {
	project, what string
	covers        func(f *file, l *loss) bool
}

// crypto are the source packages with assembly that OpenSSL's translator of Perl has made, or with copies of it.
var crypto = []string{"openssl", "gnutls28", "chromium", "nodejs", "python-cryptography"}

// media are the source packages with assembly for x86inc.asm, which writes no CFI.
var media = []string{"x265", "x264", "ffmpeg", "dav1d", "aom", "svt-av1", "libvpx", "rust-rav1e", "rav1e"}

// describes returns the fix that gives CFI to code of source packages.
func describes(sources ...string) func(f *file, l *loss) bool {
	return func(f *file, l *loss) bool { return l.Reason == withoutCFI && slices.Contains(sources, f.pkg.Source) }
}

// describesLanguage does that for code of a language.
func describesLanguage(name string) func(f *file, l *loss) bool {
	return func(f *file, l *loss) bool {
		return l.Reason == withoutCFI && strings.Contains(f.row["languages"], name)
	}
}

func isCrypto(f *file, l *loss) bool {
	return slices.Contains(crypto, f.pkg.Source) && (l.Reason == "cfa-expression" || l.Reason == "cfa-register")
}

func isGcrypt(f *file, l *loss) bool {
	return f.pkg.Source == "libgcrypt20" && (l.Reason == "cfa-expression" || l.Reason == "cfa-register")
}

// fixes are in no order.
var fixes = []fix{
	{"Chromium", "unwind tables for all of its code, and not for a part", describes("chromium")},
	{"GHC", "CFI of native code without -g, too", describesLanguage("Haskell")},
	{"Go", "CFI in a section that strip keeps, such as .eh_frame", describesLanguage("Go")},
	{"Free Pascal", "CFI", describesLanguage("Pascal")},
	{"Qt, Firefox", "room for two program headers: notes of their own that need not be where they are",
		func(_ *file, l *loss) bool { return l.Reason == noRoom }},
	{"GCC (AArch64)", "the frame record above vectors of variable length (SVE), as clang has it: a frame on x29",
		func(_ *file, l *loss) bool {
			return l.Reason == "cfa-expression" && strings.Contains(l.Rule, "(r46)") // VG, 64-bit granules in a vector
		}},
	{"GCC (x86)", "functions that realign the stack and pass arguments on it: as with -maccumulate-outgoing-args, " +
		"a frame on rbp and no DRAP",
		func(_ *file, l *loss) bool {
			return l.Reason == "drap" || l.Reason == "fp-rule" && strings.HasPrefix(l.Rule, "*(rbp")
		}},
	{"x86inc.asm (x264, x265, FFmpeg, dav1d, libaom ...)", "CFI in its macros", describes(media...)},
	{"OpenBLAS", "CFI in its assembly", describes("openblas")},
	{"OCaml", "calls of C on another stack: a frame on a register that a reader of the stack knows",
		func(f *file, l *loss) bool {
			return strings.Contains(f.row["languages"], "OCaml") && l.Reason == "cfa-register"
		}},
	{"OpenSSL (and copies: GnuTLS, BoringSSL in Chromium)", "in its assembly the CFA itself in a slot of the frame, not " +
		"the stack pointer at entry, which is 8 less", isCrypto},
	{"Libgcrypt", "the same", isGcrypt},
	{"GCC (x86)", "stack-clash protection: loops that probe with the frame on r11", func(f *file, l *loss) bool {
		return l.Reason == "cfa-register" && l.Rule == "r11+N" && !isCrypto(f, l) && !isGcrypt(f, l)
	}},
}

// fixesTable sums up what each fix would cover.
func fixesTable(w io.Writer, all []*system) {
	sums := make([]group, len(fixes))
	var together, total group
	for _, s := range all {
		for _, f := range s.files {
			losses := append(slices.Clone(f.result.Losses), loss{Reason: withoutCFI, V2: f.number("without_cfi")})
			if f.result.Outcomes[2].Kept == "no-room" {
				losses = append(losses, loss{Reason: noRoom, V2: f.number("described")})
			}
			for _, l := range losses {
				if l.Reason == withoutCFI || l.Reason == noRoom {
					l.V3 = l.V2
				}
				if l.V2 == 0 {
					continue
				}
				total.add(f, &l)
				for i := range fixes {
					if fixes[i].covers(f, &l) {
						sums[i].add(f, &l)
						together.add(f, &l)
					}
				}
			}
		}
	}
	order := make([]int, len(fixes))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(sums[b].v2, sums[a].v2) })
	t := kit.NewTable(w, "project", "what", ">files", ">bytes in V2", ">in V3", ">of all that V2 leaves out")
	for _, i := range order {
		g := &sums[i]
		t.Row(fixes[i].project, fixes[i].what, digits(g.files), digits(g.v2), digits(g.v3), share(g.v2, total.v2))
	}
	t.Row("these together", "", "", digits(together.v2), digits(together.v3), share(together.v2, total.v2))
	t.Row("all", "", "", digits(total.v2), digits(total.v3), share(total.v2, total.v2))
}

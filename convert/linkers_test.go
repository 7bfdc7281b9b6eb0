package convert_test

import (
	"debug/elf"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"cfi2sframe/convert"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/image"
	"cfi2sframe/internal/testkit/long"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/sframe"
)

// TestLinkers converts programs from several compilers and linkers, runs them natively or under qemu-user, and expects
// every byte of their PLTs to be covered.
func TestLinkers(t *testing.T) {
	const (
		cflags = " -O2 -o prog user.c -lm "
		a64    = "aarch64-linux-gnu-gcc-16" + cflags
		s390   = "s390x-linux-gnu-gcc-16" + cflags
		clang  = "clang-23" + cflags
		lld    = "mkdir b; ln -s /usr/bin/ld.lld-23 b/ld.lld; "
	)
	for i, tt := range []struct {
		name, build, run string
	}{
		{"amd64 GNU", "gcc-16" + cflags, ""},
		{"amd64 GNU, lazy", "gcc-16 -Wl,-z,lazy" + cflags, ""},
		{"amd64 GNU, AVX and DRAP", "gcc-16 -mavx2 -mforce-drap -mstackrealign" + cflags, ""},
		{"amd64 lld", clang + "-fuse-ld=/usr/bin/ld.lld-23 -z lazy", ""},
		{"amd64 lld, IBT", clang + "-fuse-ld=/usr/bin/ld.lld-23 -fcf-protection=full -Wl,-z,force-ibt", ""},
		{"amd64 mold", clang + "-fuse-ld=/usr/bin/mold", ""},
		{"amd64 mold, not PIE", clang + "-fuse-ld=/usr/bin/mold -no-pie", ""},
		{"aarch64 GNU", a64, "qemu-aarch64 -L /usr/aarch64-linux-gnu"},
		{"aarch64 GNU, BTI and PAC", a64 + "-mbranch-protection=standard -Wl,-z,force-bti,-z,pac-plt",
			"qemu-aarch64 -L /usr/aarch64-linux-gnu"},
		{"aarch64 GNU, stack clash protection", a64 + "-fstack-clash-protection",
			"qemu-aarch64 -L /usr/aarch64-linux-gnu"},
		{"aarch64 lld", lld + a64 + "-B$PWD/b -fuse-ld=lld", "qemu-aarch64 -L /usr/aarch64-linux-gnu"},
		{"aarch64 mold", a64 + "-fuse-ld=mold", "qemu-aarch64 -L /usr/aarch64-linux-gnu"},
		{"s390x GNU", s390, "qemu-s390x -L /usr/s390x-linux-gnu"},
		{"s390x GNU, stack clash protection", s390 + "-fstack-clash-protection", "qemu-s390x -L /usr/s390x-linux-gnu"},
		{"s390x lld", lld + s390 + "-B$PWD/b -fuse-ld=lld", "qemu-s390x -L /usr/s390x-linux-gnu"},
		{"s390x mold", s390 + "-fuse-ld=mold", "qemu-s390x -L /usr/s390x-linux-gnu"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if i%3 > 0 {
				long.Test(t)
			}
			dir := peer.Run(t, "sid", tt.build+" 2>log || { cat log; exit 1; }; "+tt.run+" ./prog",
				"../testdata/c/user.c")
			prog := filepath.Join(dir, "prog")
			for _, version := range []sframe.Version{sframe.V1, sframe.V2, sframe.V3} {
				if version == sframe.V1 && strings.HasPrefix(tt.name, "s390x") {
					continue
				}
				out, c := run(t, prog, convert.Options{Version: version})
				before, after := open(t, prog), open(t, out)
				if err := image.Compare(before, after); err != nil {
					t.Errorf("V%d: %v", version, err)
				}
				plts(t, after)
				if version == sframe.V3 && c.Covered != c.Described {
					t.Errorf("V3: %d of %d bytes covered; gaps %+v", c.Covered, c.Described, c.Gaps)
				}
				name := fmt.Sprintf("v%d", version)
				copyFile(t, out, filepath.Join(dir, name))
				peer.Again(t, "sid", dir, tt.run+" ./"+name)
			}
		})
	}
}

// plts expects every byte of the PLT sections to be covered.
func plts(t *testing.T, f *elffile.File) {
	t.Helper()
	d := must.Get(convert.ReadSection(f))(t)
	found := false
	for i := range f.Sections {
		s := &f.Sections[i]
		if !strings.HasPrefix(s.Name, ".plt") && s.Name != ".iplt" || s.Flags&uint64(elf.SHF_EXECINSTR) == 0 {
			continue
		}
		found = true
		for pc := s.Addr; pc < s.Addr+s.Size; pc++ {
			if d.Find(pc) < 0 {
				t.Errorf("%v: %s+%#x of %#x bytes is not described", d.Version, s.Name, pc-s.Addr, s.Size)
				break
			}
		}
	}
	if !found {
		t.Errorf("there is no PLT")
	}
}

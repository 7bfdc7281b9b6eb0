package gnu

import (
	"path/filepath"
	"testing"

	"cfi2sframe/cfi"
	"cfi2sframe/convert"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/linked"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/sframe"
)

// TestCheck compares what GNU ld makes of a C and a C++ program with their CFI, as
// cfi2sframe check does. All that is wrong is what ld makes of .plt.got.
func TestCheck(t *testing.T) {
	for _, tt := range []struct {
		suite, cc, cxx string
		version        sframe.Version
	}{
		{"trixie", "gcc", "", sframe.V2},
		{"sid", "gcc-16", "g++-16", sframe.V3},
		{"sid", "aarch64-linux-gnu-gcc-16", "aarch64-linux-gnu-g++-16", sframe.V3},
		{"sid", "s390x-linux-gnu-gcc-16", "s390x-linux-gnu-g++-16", sframe.V3},
	} {
		t.Run(tt.suite+" "+tt.cc, func(t *testing.T) {
			const flags = " -O2 -Wa,--gsframe "
			script := tt.cc + flags + "user.c -lm -o c.prog 2>log || { cat log; exit 1; }\n"
			if tt.cxx != "" {
				script += tt.cxx + flags + "-ffunction-sections one.cc two.cc hand.s -o cxx.prog 2>log || { cat log; exit 1; }\n"
			}
			sources := []string{"../../testdata/c/user.c"}
			if tt.cxx != "" {
				arch := map[string]string{"gcc-16": "amd64", "aarch64-linux-gnu-gcc-16": "aarch64",
					"s390x-linux-gnu-gcc-16": "s390x"}[tt.cc]
				script = "mv hand_" + arch + ".s hand.s\n" + script
				sources = append(sources, "../../testdata/cxx/one.cc", "../../testdata/cxx/two.cc",
					"../../testdata/cxx/parts.h", "../../testdata/cxx/hand_"+arch+".s")
			}
			dir := peer.Run(t, tt.suite, script, sources...)
			programs, err := filepath.Glob(dir + "/*.prog")
			if err != nil || len(programs) == 0 {
				t.Fatalf("no programs: %v", err)
			}
			for _, p := range programs {
				f, err := linked.Open(p)
				if err != nil {
					t.Fatal(err)
				}
				c, err := check(f)
				if err != nil {
					t.Errorf("%s: %v", p, err)
					continue
				}
				if c.Version != tt.version || c.Covered == 0 || !c.Sorted {
					t.Errorf("%s: V%d, %d bytes covered, sorted %t", p, c.Version, c.Covered, c.Sorted)
				}
				got := false
				for _, m := range c.Mismatches {
					if name := linked.Function(f, m.Begin); name != ".plt.got" {
						t.Errorf("%s: %s: %v", p, name, m)
					}
					got = true
				}
				if !got && tt.suite == "trixie" { // whose C library has a destructor in .plt.got
					t.Errorf("%s: nothing is wrong with .plt.got", p)
				}
			}
		})
	}
}

// check compares the section of a file with its CFI.
func check(f *elffile.File) (*convert.Comparison, error) {
	s, err := convert.ReadSection(f)
	if err != nil {
		return nil, err
	}
	table, err := convert.LoadCFI(f, cfi.Auto, nil)
	if err != nil {
		return nil, err
	}
	return convert.Check(f, s, table)
}

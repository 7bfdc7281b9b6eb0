//go:build linux

package linker

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"cfi2sframe/internal/testkit/must"
)

func TestRefuses(t *testing.T) {
	dir := makePrograms(t, "ld.lld", "rust-lld", "x86_64-linux-gnu-ld.gold", "ld.bfd", "ld.mold", "gcc", "zig",
		"goldfish", "lldb")
	must.Do(t, os.Symlink("ld.lld", filepath.Join(dir, "ld")))
	for _, tt := range []struct {
		program string
		args    []string
		want    bool
	}{
		{"ld.lld", nil, true}, {"rust-lld", nil, true}, {"x86_64-linux-gnu-ld.gold", nil, true}, {"zig", nil, true},
		{"ld", nil, true}, // a link to lld
		{"ld.lld-23", nil, true}, {"ld.bfd", nil, false}, {"ld.mold", nil, false}, {"goldfish", nil, false},
		{"lldb", nil, false}, {"gcc", nil, false}, {"gcc", []string{"-fuse-ld=lld"}, true},
		{"gcc", []string{"-fuse-ld=gold", "-fuse-ld=bfd"}, false},
		{"gcc", []string{"--ld-path=" + filepath.Join(dir, "ld")}, true},
	} {
		if got := Refuses(filepath.Join(dir, tt.program), tt.args); got != tt.want {
			t.Errorf("%s %q: %t", tt.program, tt.args, got)
		}
	}
}

func TestInputs(t *testing.T) {
	t.Chdir(makePrograms(t, "a.o-", "out.o-", "name.o-", "lib/libboth.a-", "lib/libboth.so-", "lib/libone.a-",
		"more/libone.a-", "more/libtwo.a-"))
	for _, tt := range []struct {
		args []string
		want []Input
	}{
		{[]string{"a.o", "missing.o", "lib", "-o", "out.o"}, []Input{{0, "a.o"}}},
		{[]string{"-soname", "name.o", "a.o"}, []Input{{2, "a.o"}}},
		{[]string{"-pie", "a.o", "a.o"}, []Input{{1, "a.o"}, {2, "a.o"}}},
		{[]string{"-lone", "-ltwo", "-lnone", "-Llib", "-L", "more"},
			[]Input{{0, "lib/libone.a"}, {1, "more/libtwo.a"}}},
		{[]string{"-Llib", "-lboth", "-Bstatic", "-lboth", "-Bdynamic", "-lboth"}, []Input{{3, "lib/libboth.a"}}},
		{[]string{"-Llib", "-l:libboth.a", "-l:libnone.a", "-l"}, []Input{{1, "lib/libboth.a"}}},
	} {
		if got := Inputs(tt.args, Outputs(tt.args)); !slices.Equal(got, tt.want) {
			t.Errorf("%q: %v; want %v", tt.args, got, tt.want)
		}
	}
}

// TestQuote expects Split to undo Quote.
func TestQuote(t *testing.T) {
	want := []string{"a.o", "", "two words", `"`, `'`, `\`, `a\"b c'`, "tab\t", "ä"}
	if got, err := Split(Quote(want)); err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
}

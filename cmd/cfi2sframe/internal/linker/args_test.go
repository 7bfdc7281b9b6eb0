//go:build linux

package linker

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/testfile"
)

// TestSplit compares Split with a shell.
func TestSplit(t *testing.T) {
	for _, text := range []string{
		"", "  ", "a", " a  b\tc\nd\re ", `a\ b c`, `'a b' c`, `"a b" c`, `a'b c'd`, `a"b"'c'`, `''`, `a "" b`,
		`"a'b" 'c"d'`,
		`"a\"b"`, `"a\\b"`, `"a\b"`, `'a\b'`, `'a\' b`, `a\\b`, `\"a`, `\'a b`, `"\$x\` + "`" + `y"`, "a\\\nb",
		"\"a\\\nb\"", "'a\\\nb'",
		"ä\\ ö 'ü ß'", "latin-\xe4.o '\xff \xe9'", "--format 3 --min-coverage '99.5'", `-o "my prog"`,
	} {
		got, err := Split(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
		}
		// A shell does not treat \r as white space, so the test replaces it with a space.
		out, err := exec.Command("sh", "-c", `set -f; for w in `+strings.ReplaceAll(strings.ReplaceAll(text, "\r", " "),
			"\n", nl(text))+`
			do printf '%s\0' "$w"; done`).Output()
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		want := strings.Split(string(out), "\x00")
		if want = want[:len(want)-1]; !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	for _, text := range []string{`'a`, `"a`, `a 'b" c`, `"a\"`} {
		if got, err := Split(text); err == nil || len(got) == 0 {
			t.Errorf("%q: got %q, %v", text, got, err)
		}
	}
	if got, _ := Split("a\vb\fc d\\"); !slices.Equal(got, []string{"a", "b", "c", `d\`}) {
		t.Errorf("got %q", got)
	}
}

// nl returns the replacement for newlines in the word list of a shell loop: a space, unless the text has quotes or
// escapes.
func nl(text string) string {
	if strings.ContainsAny(text, `'"\`) {
		return "\n"
	}
	return " "
}

// TestExpand expands response files, including nested and missing ones, and one that names itself.
func TestExpand(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		"plain":   "a b\n-o c",
		"quoted":  `'a b' "c d" e\ f -o "out put"`,
		"nested":  "x @plain @quoted y",
		"missing": "@nothing a",
		"self":    "a @self",
		"empty":   "",
	} {
		testfile.Write(t, name, text)
	}
	for _, test := range []struct {
		args []string
		want []string
	}{
		{[]string{"a", "-ob"}, []string{"a", "-ob"}},
		{[]string{"1", "@plain", "2"}, []string{"1", "a", "b", "-o", "c", "2"}},
		{[]string{"@quoted"}, []string{"a b", "c d", "e f", "-o", "out put"}},
		{[]string{"@nested"}, []string{"x", "a", "b", "-o", "c", "a b", "c d", "e f", "-o", "out put", "y"}},
		{[]string{"@missing"}, []string{"@nothing", "a"}},
		{[]string{"@", "@.", "@empty"}, []string{"@", "@."}},
	} {
		if got := Expand(test.args); !slices.Equal(got, test.want) {
			t.Errorf("%q: got %q, want %q", test.args, got, test.want)
		}
	}
	got := Expand([]string{"@self"})
	if len(got) != maxExpanded+1 || got[0] != "a" || got[maxExpanded] != "@self" {
		t.Errorf("a file that names itself: %d arguments, %q ...", len(got), got[:min(3, len(got))])
	}
}

func TestOutputs(t *testing.T) {
	for args, want := range map[string]string{
		"":                             "a.out",
		"a.o b.o":                      "a.out",
		"-o x a.o":                     "x",
		"a.o -ox":                      "x",
		"a.o --output x":               "x",
		"a.o --output=x":               "x",
		"a.o --output":                 "a.out",
		"a.o --oformat=binary --ox":    "a.out",
		"a.o -output=x":                "utput=x",
		"-o x -o y":                    "x y",
		"-o x -mllvm -opaque-pointers": "x paque-pointers",
		"a.o -o":                       "",
	} {
		if got := strings.Join(Outputs(strings.Fields(args)), " "); got != want {
			t.Errorf("%q: got %q, want %q", args, got, want)
		}
	}
}

// TestOutputsOfLinkers links with this machine's linkers, and expects Outputs to include the file that they create.
func TestOutputsOfLinkers(t *testing.T) {
	found := 0
	for _, name := range Names {
		path := peer.Look(t, name)
		dir := t.TempDir()
		object := filepath.Join(dir, "start.o")
		as := exec.Command(peer.Look(t, "as"), "-o", object)
		as.Stdin = strings.NewReader(".globl _start\n_start: nop\n")
		must.Run(t, as)
		for i, args := range []string{
			"", "-o x", "-ox", "--output x", "--output=x", "-omagic", "-o x -o y", "-r -o x", "-o -x",
		} {
			work := filepath.Join(dir, string(rune('a'+i)))
			must.Do(t, os.Mkdir(work, 0o777))
			fields := strings.Fields(args)
			cmd := exec.Command(path, append([]string{object}, fields...)...)
			cmd.Dir = work
			if cmd.Run() != nil {
				continue // not every linker supports every option
			}
			made, err := os.ReadDir(work)
			if err != nil || len(made) != 1 {
				t.Fatalf("%s %s: %v, %v", name, args, made, err)
			}
			found++
			if got := Outputs(fields); !slices.Contains(got, made[0].Name()) {
				t.Errorf("%s %s makes %s; want %q", name, args, made[0].Name(), got)
			}
		}
	}
	if found < 5*len(Names) {
		t.Errorf("only %d links succeeded", found)
	}
}

// TestOwnLayout checks the options for scripts in GNU ld's manual, and other options with the same prefixes.
func TestOwnLayout(t *testing.T) {
	for line, want := range map[string]bool{
		"":                               false,
		"a.o -o prog":                    false,
		"-T vdso.lds a.o":                true,
		"-Tvdso.lds a.o":                 true,
		"--script=vdso.lds":              true,
		"--script vdso.lds":              true,
		"-script vdso.lds":               true,
		"-Wl,-T,vdso.lds":                true,
		"-Wl,-z,now,-Tvdso.lds":          true,
		"-Wl,--script=vdso.lds a.o":      true,
		"-Ttext=0x1000 a.o":              false,
		"-Ttext 0x1000 -Tdata 0 -Tbss 0": false,
		"-Ttext-segment=0x400000":        false,
		"-Wl,-Trodata-segment=1,-Tldata-segment=2": false,
		"--dynamic-list=T -o T":                    false,
		"-Ttexts.lds":                              true,
		"--version-script=x.map":                   false,
		"-Wl,--incremental":                        true,
		"--incremental-full":                       true,
		"--no-incremental":                         false,
	} {
		if got := OwnLayout(strings.Fields(line)); got != want {
			t.Errorf("%s: %t, want %t", line, got, want)
		}
	}
}

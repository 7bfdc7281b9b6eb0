package mutants

import (
	"bytes"
	"fmt"
	"go/importer"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// code is a package of which tests notice some changes.
const code = `package a

import "errors"

var widths = []int{4, 8}

var errNone = errors.New("none")

// Clamp is well tested.
func Clamp(n int) int {
	if n > 10 {
		n = 10
	}
	return n
}

func Sum(list []int) (sum int) {
	for i := 0; i < len(list); i++ {
		sum += list[i]
	}
	return sum
}

func First(list []int) (int, error) {
	if len(list) == 0 {
		return 0, errNone
	}
	return list[0], nil
}

func Wide(i int) bool { return widths[i] == 8 && i != 0 }
`

const tests = `package a

import "testing"

func TestClamp(t *testing.T) {
	for in, want := range map[int]int{9: 9, 10: 10, 11: 10, 12: 10} {
		if Clamp(in) != want {
			t.Error(in)
		}
	}
}

func TestSum(t *testing.T) {
	if Sum([]int{1, 2, 4}) != 7 {
		t.Error("wrong")
	}
}
`

const userTests = `package b

import (
	"testing"

	"toy/a"
)

func TestFirst(t *testing.T) {
	if _, err := a.First(nil); err == nil {
		t.Error("no error")
	}
}

func TestSlow(t *testing.T) { t.Skip() }
`

// toy writes a module with a package, its tests, and another one that uses it.
func toy(t *testing.T) *config {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module toy\n\ngo 1.26\n", "go.sum": "", "a/a.go": code, "a/a_test.go": tests,
		"b/b.go": "package b\n\nimport _ \"toy/a\"\n", "b/b_test.go": userTests,
		"a/example_test.go": "package a_test\n\nimport _ \"toy/b\"\n",
	} {
		write(t, filepath.Join(root, name), text)
	}
	return &config{
		root: root, cache: t.TempDir(), packages: []string{"a"}, users: []user{{"b", "First"}}, jobs: 2, seed: 1, least: 100, longest: 10,
		only: regexp.MustCompile(""),
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}

// TestSites finds the changes of a file.
func TestSites(t *testing.T) {
	c := toy(t)
	t.Chdir(c.root)
	s, info, err := load("a", "toy/a", []string{"a.go"}, importer.Default())
	if err != nil {
		t.Fatal(err)
	}
	all := s.mutants(info)
	var got []string
	seen := make(map[string]bool)
	for _, m := range all {
		if seen[m.key()] {
			t.Errorf("twice the same key %q", m.key())
		}
		seen[m.key()] = true
		compiles := ""
		if !s.compiles(m) {
			compiles = " (does not compile)"
		}
		got = append(got, fmt.Sprintf("%s, %s: %s%s", m.Func, m.Kind, m.Text, compiles))
	}
	for _, want := range []string{
		"var widths, constant: var widths = []int{(4 - 1), 8}",
		"var widths, table: var widths = []int{/* 4 */ 8}",
		"Clamp, early return: func Clamp(n int) int { return 0;",
		"Clamp, negation: if !(n > 10) {",
		"Clamp, branch: if false && (n > 10) {",
		"Clamp, border: if n >= 10 {",
		"Clamp, constant: if n > (10 + 1) {",
		"Clamp, dropped: if false { n = 10 }",
		"Sum, early return: func Sum(list []int) (sum int) { return;",
		"Sum, operator: for i := 0; i < len(list); i-- {",
		"Sum, border: for i := 0; i <= len(list); i++ {",
		"Sum, operator: sum -= list[i]",
		"Sum, branch: for i := 0; i < len(list); i++ { break;",
		"First, lost error: return 0, nil",
		"First, early return: func First(list []int) (int, error) { return 0, nil;",
		"Wide, operator: func Wide(i int) bool { return widths[i] == 8 || i != 0 }",
		"Wide, early return: func Wide(i int) bool { return false; return widths[i] == 8 && i != 0 }",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("%q is missing of\n%s", want, strings.Join(got, "\n"))
		}
	}
	for _, m := range all {
		if strings.Contains(m.Text, `"none`) {
			t.Errorf("a message is changed: %s", m)
		}
	}
	for _, number := range []int{0, 10} {
		chosen := choose(all, number, 1, s.compiles)
		if again := choose(slices.Clone(all), number, 1, s.compiles); !slices.Equal(chosen, again) {
			t.Errorf("of %d, others are chosen the second time", number)
		}
		if number > 0 && len(chosen) != number || slices.ContainsFunc(chosen, func(m *mutant) bool { return !s.compiles(m) }) {
			t.Errorf("%d are chosen, %d were expected, all of which compile", len(chosen), number)
		}
	}
	if other := choose(all, 10, 2, s.compiles); slices.Equal(other, choose(all, 10, 1, s.compiles)) {
		t.Error("the seed makes no difference")
	}
}

// TestRun tries the mutants of a small package.
func TestRun(t *testing.T) {
	c := toy(t)
	t.Chdir(c.root)
	c.only = regexp.MustCompile(`if (true|false) .*\(n > 10\)|!\(n > 10\)|if n >= 10|\(10 . 1\)|func Clamp|return 0, nil$|return widths|i \+= 0`)
	run1 := func(want string) string {
		t.Helper()
		var out, log bytes.Buffer
		err := run(t.Context(), &out, &log, c)
		if got := fmt.Sprint(err); !strings.Contains(got, want) {
			t.Fatalf("error %v, %q expected\n%s%s", err, want, &log, &out)
		}
		return log.String() + out.String()
	}
	out := run1("a test is missing, or an argument in")
	for _, want := range []string{
		"not noticed: a/a.go:11 Clamp (border): if n >= 10 {",     // 10 becomes 10
		"a/a.go:31 Wide (early return): func Wide(i int) bool { ", // is not tested
		"the tests of a, with nothing changed", "| `a` | ", "\n| all | ",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing of\n%s", want, out)
		}
	}
	for _, not := range []string{"Clamp (negation)", "Clamp (constant): if n > (10 + 1)", "First (lost error)", "Clamp (early return)"} {
		if strings.Contains(out, not) {
			t.Errorf("%q was noticed, but the output has it:\n%s", not, out)
		}
	}

	// The first one cannot be noticed; the others have a test now.
	write(t, filepath.Join(c.root, "a/wide_test.go"), `package a

import "testing"

func TestWide(t *testing.T) {
	if Wide(0) || !Wide(1) {
		t.Error("wrong")
	}
}
`)
	c.only = regexp.MustCompile(`n >= 10|\(n > 10\)|func Wide\(i int\) bool { return false`)
	c.arguments = "# a comment\n\na/a.go Clamp\n\tif n >= 10 {\n\t10 stays 10\n\teither way.\n"
	out = run1("<nil>")
	if !strings.Contains(out, "the tests of a, with nothing changed") || strings.Contains(out, "the tests of b") || !strings.Contains(out, "100.0 %") {
		t.Errorf("the tests of a are others, and those of b the same:\n%s", out)
	}
	if out = run1("<nil>"); strings.Contains(out, "with nothing changed") {
		t.Errorf("nothing is another, but tests were run:\n%s", out)
	}
	for arguments, want := range map[string]string{
		"a/a.go Clamp\n\tif false && (n > 10) {\n\tNobody looks.\n": "argued.txt says that these cannot be noticed:\na/a.go:11 Clamp (branch): if false && (n > 10) {\n\tTestClamp of a notices it",
		"a/a.go Clamp\n\tif n >= 99 {\n\tIt is gone.\n":             "argued.txt speaks of what cannot be made of the sources any more:\na/a.go Clamp\nif n >= 99 {",
		"a/a.go Clamp\n\tif n >= 10 {\n":                            "expected a line with file and function",
		"a/a.go Clamp\n\tx\n\ty\n\na/a.go Clamp\n\tx\n\ty\n":        "is there twice",
		"b/b.go F\n\tx\n\tof a package that is not tried\n":         "were noticed, expected 100 %",
	} {
		c.arguments = arguments
		run1(want)
	}

	// Tests that fail anyway say nothing.
	c.arguments = ""
	write(t, filepath.Join(c.root, "a/wide_test.go"), "package a\n\nimport \"testing\"\n\nfunc TestWide(t *testing.T) { t.Error(1) }\n")
	run1("the tests of a fail with nothing changed")
}

// TestHang ends a test that has no end.
func TestHang(t *testing.T) {
	c := toy(t)
	t.Chdir(c.root)
	write(t, filepath.Join(c.root, "a/a_test.go"), "package a\n\nimport \"testing\"\n\nfunc TestHang(t *testing.T) { for { Clamp(1) } }\n")
	b := &bench{ctx: t.Context(), dir: t.TempDir(), root: c.root, env: os.Environ()}
	s, info, err := load("a", "toy/a", []string{"a.go"}, importer.Default())
	if err != nil {
		t.Fatal(err)
	}
	o, err := b.try(s, s.mutants(info)[0], []stage{{pkg: "a", timeout: 1e9}})
	if err != nil || !o.Noticed || o.How != "hung" || o.Package != "a" {
		t.Errorf("%+v, error %v", o, err)
	}
}

package mutants

import (
	"bytes"
	"path"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/long"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/testfile"
)

// code is a package whose tests notice some changes.
const code = `package a

import "errors"

var errNone = errors.New("none")

// Clamp is well tested.
func Clamp(n int) int {
	if n > 10 {
		n = 10
	}
	return n
}

func First(list []int) (int, error) {
	if len(list) == 0 {
		return 0, errNone
	}
	return list[0], nil
}
`

// more is code without tests.
const more = `package a

var widths = []int{4, 8}

func Sum(list []int) (sum int) {
	for i := 0; i < len(list); i++ {
		sum += list[i]
	}
	return sum
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
`

// toy creates a module with a package and its tests, and makes it the current directory.
func toy(t *testing.T) *config {
	t.Helper()
	t.Chdir(t.TempDir())
	testfile.Write(t, "go.mod", "module toy\n\ngo 1.26\n")
	testfile.Write(t, "a/a.go", code)
	testfile.Write(t, "a/a_test.go", tests)
	return &config{packages: []string{"a"}, seed: 1, least: 100}
}

// TestSites lists the mutants of two files.
func TestSites(t *testing.T) {
	toy(t)
	testfile.Write(t, "a/more.go", more)
	all := append(must.Get(find("a/a.go"))(t), must.Get(find("a/more.go"))(t)...)
	var got []string
	seen := make(map[string]bool)
	for _, m := range all {
		if seen[m.key()] {
			t.Errorf("two changes have the key %q", m.key())
		}
		seen[m.key()] = true
		got = append(got, m.fn+": "+m.changed)
		if strings.Contains(m.changed, `"none~`) {
			t.Errorf("a message is changed: %v", &m)
		}
	}
	for _, want := range []string{
		"var widths: var widths = []int{(4 - 1), 8}",
		"Clamp: if false && (n > 10) {",
		"Clamp: if n >= 10 {",
		"Clamp: if n > (10 + 1) {",
		"Clamp: if false { n = 10 }",
		"Sum: func Sum(list []int) (sum int) { return;",
		"Sum: for i := 0; i < len(list); i-- {",
		"Sum: for i := 0; i <= len(list); i++ {",
		"Sum: sum -= list[i]",
		"Sum: for i := 0; i < len(list); i++ { break;",
		"First: return 0, nil",
		"Wide: func Wide(i int) bool { return widths[i] == 8 || i != 0 }",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, strings.Join(got, "\n"))
		}
	}
}

// TestRun tries the mutants of a small package.
func TestRun(t *testing.T) {
	long.Test(t)
	c := toy(t)
	var out bytes.Buffer
	err := c.run(&out)
	if err == nil || !strings.Contains(err.Error(), "less than 100 %: a test is missing") {
		t.Fatalf("error %v\n%s", err, &out)
	}
	for want, is := range map[string]bool{
		"not noticed: a/a.go:9 Clamp: if n >= 10 {":         true, // 10 becomes 10
		"not noticed: a/a.go:9 Clamp: if n > (10 + 1) {":    false,
		"not noticed: a/a.go:9 Clamp: if false && (n > 10)": false,
		"not noticed: a/a.go:17 First: return 0, nil":       true, // has no test
	} {
		if strings.Contains(out.String(), want) != is {
			t.Errorf("%q: want %v in\n%s", want, is, &out)
		}
	}
	for arguments, want := range map[string]string{
		"a/a.go Clamp\n\tif false && (n > 10) {\n\tNo.\n": "a test notices what argued.txt says cannot be " +
			"noticed: a/a.go:9",
		"a/a.go Clamp\n\tif n >= 99 {\n\tIt is gone.\n":      "cannot be made any more:\na/a.go Clamp\nif n >= 99 {",
		"a/a.go Clamp\n\tif n >= 10 {\n":                     "the changed line and the argument must follow",
		"a/a.go Clamp\n\tx\n\ty\n\na/a.go Clamp\n\tx\n\ty\n": "occurs twice",
	} {
		c.arguments = arguments
		if err := c.run(&out); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v; want %q", err, want)
		}
	}
	c.arguments, c.least = "# a comment\n\na/a.go Clamp\n\tif n >= 10 {\n\t10 stays 10.\n", 30
	out.Reset()
	if err := c.run(&out); err != nil || strings.Contains(out.String(), "n >= 10") {
		t.Errorf("error %v\n%s", err, &out)
	}
	testfile.Write(t, "a/wide_test.go", "package a\n\nimport \"testing\"\n\nfunc TestWide(t *testing.T) { t.Error(1) "+
		"}\n")
	if err := c.run(&out); err == nil || !strings.Contains(err.Error(), "the tests of a fail without any change") {
		t.Errorf("error %v", err)
	}
}

// TestArguments expects all arguments to match mutants of the product.
func TestArguments(t *testing.T) {
	t.Chdir("../..")
	why := must.Get(arguments(argumentText))(t)
	packages := make(map[string]bool)
	for key := range why {
		file, _, _ := strings.Cut(key, " ")
		packages[path.Dir(file)] = true
	}
	for pkg := range packages {
		all := must.Get(findAll(pkg))(t)
		if err := stale(pkg, all, why); err != nil {
			t.Error(err)
		}
	}
}

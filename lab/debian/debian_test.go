package debian

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/lab/product"
)

// TestSystem takes a package that dpkg-deb has made through all steps.
func TestSystem(t *testing.T) {
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("dpkg-deb is missing")
	}
	dir := t.TempDir()
	command := func(in, name string, args ...string) {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Dir = in
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", cmd, err, out)
		}
	}
	write := func(name string, b []byte) {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, b, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	fixture := func(name string) []byte {
		t.Helper()
		b, err := os.ReadFile("../../testdata/bin/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	write("root/DEBIAN/control", []byte("Package: some\nSource: thing (1.1)\nVersion: 1.2-3\nArchitecture: amd64\n"+
		"Maintainer: n <n@example.org>\nDescription: d\n"))
	write("root/usr/bin/plain", fixture("amd64/prologue"))
	write("root/usr/bin/drap", fixture("amd64/drap1"))
	write("root/usr/lib/other", fixture("s390x/prologue"))
	write("root/usr/lib/a.a", []byte("!<arch>\n"))
	write("root/usr/share/empty", nil)
	write("root/usr/lib/truncated", fixture("amd64/plt")[:100])
	if err := os.Link(filepath.Join(dir, "root/usr/bin/plain"), filepath.Join(dir, "root/usr/bin/same")); err != nil {
		t.Fatal(err)
	}
	tool := filepath.Join(dir, "cfi2sframe")
	if err := product.Build(tool); err != nil {
		t.Fatal(err)
	}
	command(dir, tool, "-q", "root/usr/bin/plain", "-o", "root/usr/bin/own")
	write("debs/partial", nil)
	write("results/partial", nil)
	command(dir, "dpkg-deb", "--root-owner-group", "--build", "root", "debs/some_1.2-3_amd64.deb")

	tree, results := filepath.Join(dir, "trees/test-amd64"), filepath.Join(dir, "results")
	do := func(args ...string) {
		t.Helper()
		if status := Command().Main(args); status != 0 {
			t.Fatalf("%v: status %d", args, status)
		}
	}
	do("unpack", filepath.Join(dir, "debs"), tree, results+"/test-amd64")
	command(filepath.Dir(tree), tool, "--survey", "--report", "csv", "--report-file", results+"/test-amd64.csv", "test-amd64")
	do("convert", tool, tree, results+"/test-amd64")
	do("sample", results)

	all, err := loadAll(results)
	if err != nil {
		t.Fatal(err)
	}
	s := all[0]
	if p := s.packages[0]; p.Name != "some" || p.Source != "thing" || p.Size == 0 || p.ELF != 6 {
		t.Errorf("package %+v", p)
	}
	find := func(name string) *file {
		t.Helper()
		i := slices.IndexFunc(s.files, func(f *file) bool { return f.name == "test-amd64/some/usr/"+name })
		if i < 0 {
			t.Fatalf("%s is missing", name)
		}
		return s.files[i]
	}
	for _, version := range versions {
		for _, name := range []string{"bin/plain", "bin/own", "bin/drap", "lib/other"} {
			f := find(name)
			if o := f.result.Outcomes[version]; !f.converted(version) || o.Check != "" || o.Covered == 0 || o.SFrame == 0 {
				t.Errorf("%s in V%d: %+v", name, version, o)
			}
		}
		if o := find("lib/truncated").result.Outcomes[version]; o.Error == "" {
			t.Errorf("truncated file in V%d: %+v", version, o)
		}
	}
	if own := find("bin/own").result.Own; own == nil || own.Format != 2 || len(own.Mismatches) != 0 || own.Covered == 0 {
		t.Errorf("section that the file had: %+v", own)
	}

	var doc strings.Builder
	for _, table := range tables {
		fmt.Fprintf(&doc, "<!-- %s -->\nold\n<!-- end -->\nafter\n", table.name)
	}
	write("doc.md", []byte(doc.String()))
	do("tables", results, filepath.Join(dir, "doc.md"))
	b, err := os.ReadFile(filepath.Join(dir, "doc.md"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	for _, want := range []string{
		"<!-- end -->\nafter\n",
		"| test-amd64 | 1 | 1 | ",
		// By readelf, the CFA of drap1 is based on r10 or an expression for 44 bytes, and for one more rbp is elsewhere.
		"| drap | `*(rbp-N)` | 1 | 1 | 25 | 0 |", "| drap | `r10+N` | 1 | 1 | 19 | 0 |",
		"| drap | stack realignment (DRAP) | 1 | 44 | 0 |",
		"| thing | 45 | 0 | 100.00 % | - |",
		"no DRAP | 1 | 45 | 0 | ",
		"| refused: section header table",
		"| test-amd64 | V2 | 1 | ",
	} {
		if !strings.Contains(text, want) || strings.Contains(text, "old\n") {
			t.Errorf("%q is missing in the tables, or old ones are still there:\n%s", want, text)
		}
	}
	write("doc.md", []byte("nothing\n"))
	if err := update(results, filepath.Join(dir, "doc.md")); err == nil || !strings.Contains(err.Error(), "packages") {
		t.Errorf("error %v about a document without tables", err)
	}
}

// TestWrongResult expects that packages counts results that --check finds wrong, or that differ from the survey.
func TestWrongResult(t *testing.T) {
	good := outcome{Verified: true, Described: 20, Covered: 10}
	c := &checked{Described: 20, Covered: 10}
	if got := compare(&good, c); got != "" {
		t.Error(got)
	}
	c.Mismatches = []any{1}
	if got := compare(&good, c); got != "1 mismatches" {
		t.Error(got)
	}
	row := map[string]string{"described": "20", "v2_covered": "10", "v3_covered": "10"}
	f := &file{row: row, result: &result{Outcomes: map[int]*outcome{2: &good, 3: {Kept: "no-cfi"}}}}
	expect := func(what, end string) {
		t.Helper()
		var b strings.Builder
		packages(&b, []*system{{name: "test", files: []*file{f}}})
		if !strings.HasSuffix(b.String(), end) {
			t.Errorf("%s:\n%s", what, &b)
		}
	}
	expect("nothing wrong", "| 1 | 0 | 0 | 0 |\n")
	row["v2_covered"] = "11"
	expect("the survey has other bytes", "| 1 | 0 | 0 | 1 |\n")
	row["v2_covered"], good.Check = "10", "1 mismatches"
	expect("a mismatch", "| 1 | 0 | 0 | 1 |\n")
}

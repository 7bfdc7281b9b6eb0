package debian

import (
	"bytes"
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
	command := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
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
	write("root/DEBIAN/control", []byte("Package: some\nSource: thing (1.1)\nVersion: 1.2-3\nArchitecture: amd64\nMaintainer: n <n@example.org>\nDescription: d\n"))
	write("root/usr/bin/plain", fixture("amd64/prologue"))
	write("root/usr/bin/drap", fixture("amd64/drap1"))
	write("root/usr/lib/other", fixture("s390x/prologue"))
	write("root/usr/lib/a.a", []byte("!<arch>\n"))
	write("root/usr/share/text", []byte("text"))
	write("root/usr/share/empty", nil)
	truncated := fixture("amd64/plt")[:100]
	write("root/usr/lib/truncated", truncated)
	if err := os.Link(filepath.Join(dir, "root/usr/bin/plain"), filepath.Join(dir, "root/usr/bin/same")); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "cfi2sframe")
	if err := product.Build(program); err != nil {
		t.Fatal(err)
	}
	command(program, "-q", filepath.Join(dir, "root/usr/bin/plain"), "-o", filepath.Join(dir, "root/usr/bin/own"))
	if err := os.Mkdir(filepath.Join(dir, "debs"), 0o755); err != nil {
		t.Fatal(err)
	}
	command("dpkg-deb", "--root-owner-group", "--build", filepath.Join(dir, "root"), filepath.Join(dir, "debs/some_1.2-3_amd64.deb"))

	results := filepath.Join(dir, "results")
	if err := os.Mkdir(results, 0o755); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	do := func(args ...string) string {
		t.Helper()
		out.Reset()
		if err := run(args, &out); err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		return out.String()
	}
	tree := filepath.Join(dir, "trees/test-amd64")
	do("unpack", "--to", tree, "--list", filepath.Join(results, "test-amd64.packages.json"), filepath.Join(dir, "debs"))
	cmd := exec.Command(program, "--survey", "--report", "csv", "--report-file", filepath.Join(results, "test-amd64.csv"), "test-amd64")
	cmd.Dir = filepath.Dir(tree)
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("survey: %v\n%s", err, said)
	}
	convert := []string{"convert", "--tool", program, "--results", filepath.Join(results, "test-amd64.jsonl"), tree}
	if said := do(convert...); !strings.Contains(said, "1 packages converted, 5 files; 0 packages were there") {
		t.Error(said)
	}
	// What is there is not done again, unless it is not whole.
	if said := do(convert...); !strings.Contains(said, "0 packages converted, 0 files; 1 packages were there") {
		t.Error(said)
	}

	all, err := loadAll(results)
	if err != nil {
		t.Fatal(err)
	}
	s := all[0]
	p := s.packages["some"]
	if p == nil || p.Version != "1.2-3" || p.Source != "thing" || p.Arch != "amd64" || p.Files != 8 || p.ELF != 5 || p.Archives != 1 {
		t.Errorf("package %+v", p)
	}
	find := func(name string) *file {
		t.Helper()
		i := slices.IndexFunc(s.files, func(f file) bool { return f.name == name })
		if i < 0 {
			t.Fatalf("%s is missing", name)
		}
		return &s.files[i]
	}
	for _, format := range formats {
		for _, name := range []string{"usr/bin/plain", "usr/bin/own", "usr/bin/drap", "usr/lib/other"} {
			if o := find(name).outcome(format); o == nil || !o.done() || o.Check != "" || o.Covered == 0 || o.SFrame == 0 {
				t.Errorf("%s in format %d: %+v", name, format, o)
			}
		}
		if o := find("usr/lib/truncated").outcome(format); o == nil || o.Error == "" {
			t.Errorf("truncated file in format %d: %+v", format, o)
		}
	}
	// By what readelf says of drap1, the CFA is based on r10 or given by an expression in 44 bytes, and in one more rbp is not where it
	// belongs.
	if f := find("usr/bin/drap"); f.lost(2) != 45 || f.lost(3) != 0 || len(f.res.Functions) != 3 || f.res.Functions[0].Reason != "drap" || f.res.Functions[0].V2+f.res.Functions[1].V2 != 44 {
		t.Errorf("drap: %d bytes lost in V2, %d in V3, %+v", f.lost(2), f.lost(3), f.res.Functions)
	}
	if f := find("usr/bin/own"); f.res.Own == nil || f.res.Own.Version != 2 || f.res.Own.Mismatch != 0 || f.res.Own.Covered == 0 {
		t.Errorf("section that was there: %+v", f.res.Own)
	}
	if f := find("usr/bin/plain"); f.lost(2) != 0 {
		t.Errorf("plain: %d bytes lost", f.lost(2))
	}

	chosen := strings.Fields(do("sample", "--number", "2", "--results", results))
	if len(chosen) != 2 || !strings.HasPrefix(chosen[0], "test-amd64/some/usr/") {
		t.Errorf("chosen: %q", chosen)
	}
	write("results/readers.txt", []byte("libsframe 2.44\n| libsframe | format | ABI | files |\n| --- | --- | --- | ---: |\n| all |  |  | 1420 |\n300 different files\n"))
	text := do("tables", "--results", results)
	// The same in a document, of which the rest stays.
	doc := "before\n"
	for line := range strings.Lines(text) {
		if name, ok := strings.CutPrefix(line, "## "); ok {
			doc += fmt.Sprintf("<!-- %s -->\nold\n<!-- end -->\nafter %s", strings.TrimSpace(name), name)
		}
	}
	write("doc.md", []byte(doc))
	do("tables", "--results", results, "--into", filepath.Join(dir, "doc.md"))
	b, err := os.ReadFile(filepath.Join(dir, "doc.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"before\n<!-- packages -->\n| system |", "<!-- end -->\nafter own\n", "`test-amd64/some/usr/lib/truncated` | all |"} {
		if !bytes.Contains(b, []byte(want)) || bytes.Contains(b, []byte("old\n")) {
			t.Errorf("the document lacks %q, or has what was there before:\n%s", want, b)
		}
	}
	write("doc.md", []byte("nothing\n"))
	if err := run([]string{"tables", "--results", results, "--into", filepath.Join(dir, "doc.md")}, &out); err == nil || !strings.Contains(err.Error(), "packages") {
		t.Errorf("error %v; the table that is missing was expected", err)
	}
	for _, want := range []string{
		"| libsframe | format | ABI | files |\n| --- | --- | --- | ---: |\n| all |  |  | 1,420 |\n",
		"| test-amd64 | V3 | 4 | 4 |",                 // converted, read again
		"| test-amd64 | 1 | 1 | 1 |",                  // packages
		"| thing | drap | 1 | 100.00 % | - |",         // all that is lost
		"`test-amd64/some/usr/lib/truncated` | all |", // damaged
		"no DRAP | 1 | 45 | 0 | 0 | 0 |",              // what realigns the stack
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the tables lack %q:\n%s", want, text)
		}
	}
}

// TestWrongResult expects a result that --check finds wrong to be counted.
func TestWrongResult(t *testing.T) {
	dir := t.TempDir()
	tool := filepath.Join(dir, "tool")
	script := `#!/bin/sh
if [ "$1" = --check ]; then
	echo "$2: amd64, SFRAME_VERSION_2, 1 FDEs, 2 FREs: 10 of 20 bytes of code described by CFI have the same in SFrame (50.00 %); mismatches: 1"
	exit 1
fi
for file; do :; done
echo "{\"file\": \"$file\", \"described\": 20, \"covered\": 10, \"verified\": true}"
`
	if err := os.WriteFile(tool, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile("../../testdata/bin/amd64/prologue")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "tree/p"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "tree/p/file"), b, 0o755); err != nil {
		t.Fatal(err)
	}
	s := settings{tool: tool}
	c, err := s.convert(filepath.Join(dir, "tree"), "p")
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Files[0].Outcomes[2].Check; got != "1 mismatches" {
		t.Errorf("%q", got)
	}
	row := map[string]string{"described": "20", "v2_covered": "10", "v3_covered": "10"}
	expect := func(what, good, wrong string) {
		t.Helper()
		sys := &system{name: "test", files: []file{{pkg: &pkg{}, row: row, res: &c.Files[0]}}}
		if lines := checks([]*system{sys}); lines[1][2] != "1" || lines[1][3] != good || lines[1][7] != wrong {
			t.Errorf("%s: %q", what, lines[1])
		}
	}
	expect("a mismatch", "0", "1")
	c.Files[0].Outcomes[2].Check = ""
	expect("nothing wrong", "1", "0")
	row["v2_covered"] = "11"
	expect("the survey has other bytes", "0", "1")
}

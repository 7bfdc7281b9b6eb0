package report_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"testing"

	"cfi2sframe/cmd/cfi2sframe/internal/report"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/testfile"
)

// TestSchemaKept expects the schema to list the reasons of package convert, and no others.
func TestSchemaKept(t *testing.T) {
	var root struct {
		Defs struct {
			Kept struct {
				Properties struct{ Kept struct{ Enum []string } }
			}
		} `json:"$defs"`
	}
	must.Do(t, json.Unmarshal([]byte(report.JSONSchema), &root))
	source := testfile.Read(t, "../../../../convert/reason.go")
	var want []string
	for _, m := range regexp.MustCompile(`Reason = "([a-z0-9-]+)"`).FindAllSubmatch(source, -1) {
		want = append(want, string(m[1]))
	}
	if got := root.Defs.Kept.Properties.Kept.Enum; len(want) < 10 || !slices.Equal(got, want) {
		t.Errorf("reasons %q; want %q", got, want)
	}
}

// TestSchemaCodeReasons expects the schema and docs/code.md to list the reasons of package code.
func TestSchemaCodeReasons(t *testing.T) {
	var root struct {
		Defs struct {
			Reason struct{ Enum []string } `json:"code_reason"`
		} `json:"$defs"`
	}
	must.Do(t, json.Unmarshal([]byte(report.JSONSchema), &root))
	find := func(path, pattern string) (names []string) {
		text := testfile.Read(t, "../../../../"+path)
		for _, m := range regexp.MustCompile(pattern).FindAllSubmatch(text, -1) {
			names = append(names, string(m[1]))
		}
		return names
	}
	want := find("internal/code/code.go", `: "(code-[a-z-]+)"`)
	if got := root.Defs.Reason.Enum; len(want) < 8 || !slices.Equal(got, want) {
		t.Errorf("the schema has %q; want %q", got, want)
	}
	if got := find("docs/code.md", "(?m)^\\| `(code-[a-z-]+)` \\|"); !slices.Equal(got, want) {
		t.Errorf("docs/code.md has %q; want %q", got, want)
	}
}

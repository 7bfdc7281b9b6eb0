package schema

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// strict makes a schema refuse fields that it does not describe.
func strict(v any) {
	switch v := v.(type) {
	case map[string]any:
		if _, ok := v["properties"]; ok {
			v["unevaluatedProperties"] = false
		}
		for _, e := range v {
			strict(e)
		}
	case []any:
		for _, e := range v {
			strict(e)
		}
	}
}

// validate expects the lines of a survey to be what the schema says.
func validate(t *testing.T, survey []byte, lines *jsonschema.Schema) {
	t.Helper()
	for i, line := range bytes.Split(bytes.TrimSuffix(survey, []byte("\n")), []byte("\n")) {
		if err := lines.Validate(value(t, line)); err != nil {
			t.Errorf("line %d: %v", i+1, err)
		}
	}
}

// TestSchemaSurvey surveys the fixtures and damaged files, and nothing.
func TestSchemaSurvey(t *testing.T) {
	b, err := os.ReadFile("../../cmd/cfi2sframe/internal/survey/survey.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	doc := value(t, b)
	strict(doc) // refuses fields that it does not describe
	lines := compile(t, doc)
	fixtures := "../../testdata/bin/"
	drap, err := os.ReadFile(fixtures + "amd64/drap1")
	if err != nil {
		t.Fatal(err)
	}
	lossless, err := os.ReadFile(fixtures + "amd64/prologue")
	if err != nil {
		t.Fatal(err)
	}
	damaged := func(off int, v ...byte) []byte {
		b := bytes.Clone(drap)
		copy(b[off:], v)
		return b
	}
	dir := t.TempDir()
	for i, files := range []map[string][]byte{
		{},
		{
			"a": drap, "gone": drap, "fixed": []byte("text"), "same": drap, "worse": lossless, "x/32": damaged(4, 1),
			"x/mips":     damaged(18, 8),
			"x/object.o": damaged(16, 1), "x/garbage": damaged(40, 0xff, 0xff), "x/short": drap[:10], "x/empty": nil,
		},
		{"a": lossless, "new": drap, "fixed": drap, "same": drap, "worse": drap},
	} {
		pool := filepath.Join(dir, fmt.Sprint(i), "pool")
		if err := os.MkdirAll(filepath.Join(pool, "x"), 0o777); err != nil {
			t.Fatal(err)
		}
		for name, b := range files {
			if err := os.WriteFile(filepath.Join(pool, name), b, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		validate(t, command(t, filepath.Dir(pool), 0, "survey", "--report", "json", "pool"), lines)
	}
	for _, args := range [][]string{{"amd64", "aarch64", "aarch64_be", "s390x"}, {"--shard", "1/3", "amd64"}} {
		validate(t, command(t, fixtures, 0, append([]string{"survey", "--report", "json"}, args...)...), lines)
	}
}
